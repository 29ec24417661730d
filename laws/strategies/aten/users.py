"""What the user of a drawn program passes: the leaves of the inputs, their pytree, and numbers for several calls.

One idea: a small number chooses how the leaves are arranged: positions, keywords, a dict, a list, with constants among them.
Contents are different in each call, and so is the size that is dynamic.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from attrs import field, frozen

from ....ir.expression import Sym
from ....ir.torch_private import pytree, symbolic_range
from .kinds import Kind, number_kind, size, tensor_kind

__all__ = ["Users", "ranges", "users"]

LITERALS = (None, 2, True, "text")


@frozen(eq=False)
class Users:
    """The user inputs of a program."""

    leaves: tuple[tuple[str, Kind], ...]
    in_spec: Any = field(repr=False)
    names: tuple[str, ...]
    """The argument names of the original ``forward``."""

    def call(self, number: int) -> tuple[Any, ...]:
        """Return the leaves that are passed in a call."""
        return tuple(_leaf(kind, number, index) for index, (_, kind) in enumerate(self.leaves))


def _leaf(kind: Kind, call: int, index: int) -> Any:
    if kind.dtype is None:
        return kind.val
    sizes = [int(dim) if dim.isdigit() else 2 + 2 * call for dim in kind.dims]
    numbers = torch.arange(1.0, 1.0 + torch.Size(sizes).numel()).reshape(sizes)
    return torch.sin(numbers * (1 + call) + index).to(kind.dtype)


@cache
def ranges() -> dict[Any, Any]:
    """Return the range of the dynamic size."""
    found = symbolic_range(Sym(str(size())), 2, 8)
    return dict([found]) if found else {}


@cache
def users(number: int, *, is_dynamic: bool) -> Users:
    """Return the user inputs that a number stands for.

    >>> users(0, is_dynamic=False).names, [name for name, _ in users(2, is_dynamic=False).leaves]
    (('x',), ['x', 'y_q'])
    """
    form, literal = number % 6, LITERALS[number // 6 % len(LITERALS)]
    x, y, s = (tensor_kind(torch.float32, *sizes) for sizes in ((size() if is_dynamic else 3, 4), (4,), ()))
    a, b, c = number_kind(literal), y, s
    forms: tuple[tuple[tuple[str, ...], list[tuple[str, Kind]], Any], ...] = (
        (("x",), [("x", x)], ((0,), {})),
        (("x", "y"), [("x", x), ("y", y)], ((0, 0), {})),
        (("x", "y"), [("x", x), ("y_q", b)], ((0, {"q": 0}), {})),
        (("x", "flag", "z"), [("x", x), ("flag", a), ("z", y)], ((0, 0), {"z": 0})),
        (("xs",), [("xs_0", x), ("xs_1", c), ("xs_2_0", y)], (([0, 0, (0,)],), {})),
        (("x", "o"), [("x", x), ("o_p", y), ("o_q", a), ("o_r", c)], ((0,), {"o": {"p": 0, "q": 0, "r": 0}})),
    )
    names, leaves, tree = forms[form]
    return Users(tuple(leaves), pytree.tree_structure(tree), names)
