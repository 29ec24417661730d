"""Pass ivals between module calls: values that cross a preserved call without being in its signature.

Contents of state are copied to the state and read again; sizes are recomputed where they are used.
"""

from __future__ import annotations

from .insert_ivals import insert_ivals

__all__ = ["insert_ivals"]
