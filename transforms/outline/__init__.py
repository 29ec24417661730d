"""``outline``: the flat program becomes the tree of module calls.

``schedule.py`` makes the nodes of each call contiguous, ``extraction.py`` cuts the calls out, ``outline.py`` says when.
"""

from __future__ import annotations

from .outline import outline

__all__ = ["outline"]
