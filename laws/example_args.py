"""``example_args``: arguments that fit the signature of a program, for programs of which nobody has any.

Contents are drawn from the type alone, so they mean nothing: integers are 0 and 1, which are indices of nearly everything.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ir.arguments import thawed
from ..ir.errors import UnsupportedProgram
from ..ir.expression import Expr
from ..ir.inference import FakeValues
from ..ir.program import Program
from ..ir.signature import LiteralType, NumberType, RestType, TensorType, UserInput
from ..ir.tensors import NUMBERS, drawn

__all__ = ["example_args"]


def example_args(program: Program, *, seed: int = 0) -> list[Any]:
    """Return arguments that a program takes: the leaves of its user inputs, in order.

    Floating point numbers are drawn from a normal distribution, integers are 0 or 1, and symbolic sizes are those of the export,
    or the smallest that fit ranges and guards.  Torch's own generator is not used.

    Args:
        program: any valid program.
        seed: the same one gives the same arguments.

    Returns:
        The leaves of one call, as ``tensor_meaning`` takes them; ``px.lower(program)`` takes them one by one where the signature
        has no pytrees, as in a result of ``px.minimize``.

    Raises:
        UnsupportedProgram: an input takes an object that only the caller has, or a size that only a run knows.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1, 2),)))
    >>> [leaf.shape for leaf in example_args(program)]
    [torch.Size([1, 2])]
    """
    draw = torch.Generator().manual_seed(seed)
    values = FakeValues(program)
    return [_leaf(formal.name, spec, values, draw) for formal, spec in program.inputs if type(spec) is UserInput]


def _leaf(name: str, spec: UserInput, values: FakeValues, draw: torch.Generator) -> Any:
    match spec.type:
        case TensorType(dtype=dtype, shape=shape, device=device):
            sizes = [_number(name, size, values) for size in shape]
            return drawn(sizes, dtype, draw).to(device)
        case NumberType(expr=expr) if expr is not None:
            return _number(name, expr, values)
        case NumberType(kind=kind):
            return NUMBERS[kind]
        case LiteralType(value=value):
            return thawed(value)
        case RestType(keywords=keywords):
            return {} if keywords else ()
        case _:
            raise UnsupportedProgram(
                f"the input {name!r} takes an object ({getattr(spec.type, 'description', '')}), of which no example can be made: "
                "pass one of your own"
            )


def _number(name: str, expr: Expr, values: FakeValues) -> Any:
    found = values.symbols.example(expr)
    if found is None:
        raise UnsupportedProgram(f"a size of the input {name!r} is known only when the program runs: pass arguments of your own")
    return found
