"""Save programs to files and load them, with or without tensors.

A file holds the text form in a safetensors container (docs/format.md); loading a file runs no code from it.
"""

from __future__ import annotations

from .files import load, save

__all__ = ["load", "save"]
