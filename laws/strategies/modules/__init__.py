"""Generated ``nn.Module``s: ``from purefx.laws.strategies import module_trees``.

The module calls are drawn first and the steps inside them next; a case is the text of its classes, so the
smallest failing one can be pasted and run.  Nothing here compares anything.
"""

from __future__ import annotations

from .tree import ModuleTree, module_trees

__all__ = ["ModuleTree", "module_trees"]
