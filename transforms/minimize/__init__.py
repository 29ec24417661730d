"""``minimize``: the smallest program found on which something still goes wrong.

``search.py`` asks, ``weight.py`` says what is smaller, ``cutting.py`` and ``retyping.py`` make candidates; ``dropping.py``,
``bodies.py``, ``values.py``, ``shrinking.py`` and ``literals.py`` propose them.  No program is run here: that is what the
caller's question does.
"""

from __future__ import annotations

from .minimize import Minimized, minimize

__all__ = ["Minimized", "minimize"]
