"""``insert_ivals``: values that cross a preserved call signature without being named by it.

``boundary_values.py`` finds them, ``arguments.py`` knows which are what the call was given, ``versions.py`` which are contents of
state, ``sizes.py`` computes sizes again where they are used, ``insert_ivals.py`` puts the pieces together.
"""

from __future__ import annotations

from .insert_ivals import insert_ivals

__all__ = ["insert_ivals"]
