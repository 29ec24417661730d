"""``observe``: what inner modules give becomes a further output of the program.

``calls.py`` finds the calls and refuses those whose values cannot be told, ``observe.py`` lets the program return the values.
"""

from __future__ import annotations

from .observe import observe

__all__ = ["observe"]
