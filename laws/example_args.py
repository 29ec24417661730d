"""``example_args``: arguments that fit the signature of a program.

Contents depend on the type alone.  Integers are 0 and 1, which are valid indices almost everywhere.
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


def example_args(program: Program, *, seed: int = 0) -> list[Any]:
    """Return arguments that fit a program: the leaves of its user inputs, in order.

    Floating point numbers are drawn from a normal distribution, integers are 0 or 1.  Symbolic sizes are those of the export, or
    the smallest that fit ranges and guards.  torch's own generator is not used.

    Args:
        program: any valid program.
        seed: equal seeds return equal arguments.

    Returns:
        The leaves of one call, for ``tensor_meaning``; if the signature has no pytrees, as after ``px.minimize``, they are the
        arguments of ``px.lower(program)``.

    Raises:
        UnsupportedProgram: an input is an object, or its size is known only at run time.

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
                f"the input {name!r} is an object ({getattr(spec.type, 'description', '')}), which cannot be generated: "
                "pass your own"
            )


def _number(name: str, expr: Expr, values: FakeValues) -> Any:
    found = values.symbols.example(expr)
    if found is None:
        raise UnsupportedProgram(f"a size of the input {name!r} is known only at run time: pass your own arguments")
    return found
