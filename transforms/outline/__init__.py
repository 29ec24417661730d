"""``outline``: the flat program becomes the tree of module calls.

``gather.py`` puts the nodes of each call side by side, ``scopes.py`` cuts the calls out, ``outline.py`` says when.
"""

from __future__ import annotations

from .outline import outline

__all__ = ["outline"]
