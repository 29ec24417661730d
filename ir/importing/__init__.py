"""Import from torch: an ``ExportedProgram`` or any ``GraphModule`` becomes a ``Program``.

Importing changes nothing and copies no tensor.  ``program.py`` puts the pieces together, each other file reads one of them.
"""

from __future__ import annotations

from .exported import import_ep
from .fx import import_fx

__all__ = ["import_ep", "import_fx"]
