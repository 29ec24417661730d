"""``outline``: the flat program becomes the tree of module calls.

``schedule.py`` makes the nodes of each call contiguous, ``extraction.py`` extracts the calls, ``outline.py`` composes both.
``merged.py`` does it in one with ``deduplicate``.
"""

from __future__ import annotations

from .outline import outline

__all__ = ["outline"]
