"""``insert_ivals``: values that cross a preserved call signature without being named by it.

``boundary_values.py`` finds them, ``arguments.py`` recognizes arguments of the call, ``versions.py`` contents of state,
``sizes.py`` recomputes sizes where they are used, ``insert_ivals.py`` puts these together.
"""

from __future__ import annotations

from .insert_ivals import insert_ivals

__all__ = ["insert_ivals"]
