"""``example_args``: arguments that fit a program; and the law of fake values, ``meta["val"]``, against the values at run time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..ir.analysis.numbers import SYMBOLIC
from ..ir.arguments import thawed
from ..ir.errors import UnsupportedProgram
from ..ir.expression import Expr
from ..ir.inference import FakeValues
from ..ir.program import Program
from ..ir.signature import LiteralType, NumberType, RestType, TensorType, UserInput
from ..ir.tensors import NUMBERS, drawn
from ..ir.torch_private import device_of
from .evaluate import evaluate
from .law import Case, Transform, law
from .purity import seeded
from .toy import TensorMachine


def example_args(program: Program, *, seed: int = 0) -> list[Any]:
    """Return arguments that fit a program: the leaves of its user inputs, in order.

    Contents depend on the type alone: floating point numbers are drawn from a normal distribution, integers are 0 or 1.  Symbolic
    sizes are those of the export, or the smallest that fit ranges and guards.  torch's own generator is not used.

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
    return [_leaf(formal.name, spec, values, draw) for formal, spec in program.user_inputs]


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
    found = values.example_number(expr)
    if found is None:
        raise UnsupportedProgram(
            f"a size of the input {name!r} is known only at run time: pass your own arguments"
        )
    return found


KNOWN = (*SYMBOLIC, int)
"""Types of fake numbers that are compared; of floats, a tracer knows the type only."""


def false_values(program: Program, calls: Sequence[Sequence[Any]]) -> list[str]:
    """Run a program, and list the wrong fake values, one sentence for each value and kind of mistake.

    Calls with an open size of 0 or 1 are left out: torch records values as if it were at least 2.

    Args:
        program: a program of real operators at any stage, on the CPU; its state is not changed.
        calls: the leaves of the user inputs, for each call.

    >>> from attrs import evolve
    >>> from purefx.ir.importing import import_ep
    >>> program = import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1),)))
    >>> false_values(program, [(torch.ones(1),)])
    []
    >>> node = evolve(program.main.nodes[0], meta={"val": torch.ones(2)})
    >>> false_values(program.with_main(evolve(program.main, nodes=(node,))), [(torch.ones(1),)])
    ['the root / relu: meta has torch.float32 (2,) (1,), but the value is torch.float32 (1,) (1,)']
    """
    found: dict[str, None] = {}
    for leaves in calls:
        if _has_small_sizes(program, leaves):
            continue
        sizes: dict[str, Any] = {}

        def seen(graph: str, part: Any, value: Any, sizes: dict[str, Any] = sizes) -> None:
            if "val" in part.meta:
                differences = _differences(part.meta["val"], value, sizes)
                found.update(
                    dict.fromkeys(
                        f"{graph or 'the root'} / {part.name}: {said}" for said in differences
                    )
                )

        with seeded(0), torch.no_grad():
            evaluate(program, [leaves], TensorMachine(), seen=seen)
    return list(found)


def _has_small_sizes(program: Program, leaves: Sequence[Any]) -> bool:
    specs = program.signature.users.values()
    for spec, leaf in zip(specs, leaves, strict=False):
        shape = spec.type.shape if type(spec.type) is TensorType else ()
        numbers = leaf.shape if isinstance(leaf, torch.Tensor) else ()
        if any(type(size) is not int and n < 2 for size, n in zip(shape, numbers, strict=False)):
            return True
    return False


def _differences(said: Any, real: Any, sizes: dict[str, Any]) -> Iterator[str]:
    todo = [(said, real)]
    while todo:
        mine, runs = todo.pop()
        if isinstance(mine, tuple | list) and isinstance(runs, tuple | list):
            if len(mine) != len(runs):
                yield f"meta has {len(mine)} values, but there are {len(runs)}"
            else:
                todo += zip(mine, runs, strict=True)
        elif isinstance(mine, torch.Tensor):
            if not isinstance(runs, torch.Tensor):
                yield f"meta has a tensor, but the value is a {type(runs).__name__}"
            elif not _is_tensor(mine, runs, sizes):
                yield f"meta has {_shown(mine)}, but the value is {_shown(runs)}"
        elif isinstance(mine, KNOWN) and isinstance(runs, int) and not _is_size(mine, runs, sizes):
            yield f"meta has {mine}, which is {sizes.get(str(mine), mine)}, but the value is {runs}"


def _is_tensor(said: torch.Tensor, real: torch.Tensor, sizes: dict[str, Any]) -> bool:
    if (said.dtype, device_of(said).type, said.dim()) != (real.dtype, real.device.type, real.dim()):
        return False
    pairs = list(zip(said.shape, real.shape, strict=True))
    if said.layout is torch.strided and real.layout is torch.strided:
        # Strides of tensors with at most one element are arbitrary.
        strides = zip(said.stride(), real.stride(), real.shape, strict=True)
        pairs += [(mine, runs) for mine, runs, size in strides if size > 1 and real.numel()]
    return all(_is_size(mine, runs, sizes) for mine, runs in pairs)


def _is_size(said: Any, real: Any, sizes: dict[str, Any]) -> bool:
    known = sizes.setdefault(str(said), real) if isinstance(said, SYMBOLIC) else said
    return bool(known == real)


def _shown(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride() if tensor.layout is torch.strided else tensor.layout}"


@law("every fake value agrees with the value in every call")
def recorded_values(transform: Transform, case: Case) -> list[str]:
    if case.computed(false_values, case.program):
        return []  # it was wrong before, as exporters are under autocast
    return case.computed(false_values, transform(case.program))
