"""``module_trees``: a hypothesis strategy of modules with the arguments to call and to export them with.

One idea: small numbers are drawn, text comes out.  Nothing here runs a module, but to learn the names in it when call
signatures are to be preserved.
"""

from __future__ import annotations

import hypothesis.strategies as st
from attrs import evolve

from .recipe import Recipe, recipes
from .root import write_root
from .tree import ModuleTree

__all__ = ["module_trees"]


def module_trees(*, preserve: bool = False) -> st.SearchStrategy[ModuleTree]:
    """Return a strategy of module trees, which shrink by dropping module calls.

    Args:
        preserve: also draw modules whose call signatures the exporter should preserve.

    >>> from hypothesis import find
    >>> print(find(module_trees(), lambda tree: "nn.Linear" in tree.source))
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.m0 = nn.Linear(3, 3)
        def forward(self, x):
            v1 = self.m0(x)
            return v1
    <BLANKLINE>
    # training; n = 3; Root()((n, 3))
    """
    trees = recipes().map(_tree)
    if not preserve:
        return trees
    return st.builds(_preserving, trees, st.lists(st.integers(0, 7), min_size=1, max_size=2))


def _tree(recipe: Recipe) -> ModuleTree:
    return ModuleTree(write_root(recipe), recipe.inputs, recipe.sizes == 3, recipe.mode, recipe.grads)


def _preserving(tree: ModuleTree, numbers: list[int]) -> ModuleTree:
    names = [name for name, _ in tree.build().named_modules() if name]
    return evolve(tree, preserve=tuple(dict.fromkeys(names[number % len(names)] for number in numbers if names)))
