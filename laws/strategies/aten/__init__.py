"""Exported programs of real aten operators, built by hand: tier two of the generated programs.

Hand-built programs reach what no exporter writes often (overlapping state, legal but unusual effects), in
milliseconds; each is in the exporter's form all the same.
"""

from __future__ import annotations

from .build import Exported, exported_programs

__all__ = ["Exported", "exported_programs"]
