"""Import an ``ExportedProgram`` or any ``GraphModule`` as a ``Program``.

Importing modifies nothing and copies no tensor.
"""

from __future__ import annotations

from .exported import import_ep
from .fx import import_fx

__all__ = ["import_ep", "import_fx"]
