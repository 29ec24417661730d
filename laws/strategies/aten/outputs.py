"""What a drawn program gives back: new contents of state and inputs, then the user's outputs in a pytree.

One idea: a functional program first gives what its writes came to; on top of that any program may give what was drawn:
values, constants, inputs, and new contents that nobody wrote before; and then most of what nobody would use, because nothing
can go wrong where nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.export.graph_signature import ConstantArgument, OutputKind, OutputSpec, SymIntArgument, TensorArgument

from ....ir.torch_private import pytree
from .flow import Flow, Value
from .recipe import OutputRecipe

__all__ = ["outputs"]

LITERALS = (None, 3, 0.5, True, "text")

DEAD = 6
"""Of so many values one stays dead where nobody uses it."""


def outputs(flow: Flow, drawn: Sequence[OutputRecipe]) -> tuple[list[tuple[Any, OutputSpec]], Any]:
    """Return the results of a program with their specs, and the pytree of those that are the user's."""
    results: dict[object, tuple[Any, OutputSpec]] = {}
    for given, value in flow.latest.items():
        results.setdefault(given.memory, _mutation(given, value))
    users: list[tuple[Any, OutputSpec]] = []
    for output in drawn:
        target = flow.given[output.value % len(flow.given)]
        contents = flow.same(output.value, target) if output.kind == 9 and target.is_writable else None
        # The verifier of torch knows mutations by the value's name: one value is the new contents of one tensor.
        used = {value for value, _ in results.values()}
        if contents is not None and target.memory not in results and contents.node not in used:
            results[target.memory] = _mutation(target, contents)
        else:
            users.append(_user(flow, output, flow.value(output.value)))
    if not users:
        users.append(_user(flow, OutputRecipe(0, 0), flow.value(0)))
    given = {value for value, _ in (*results.values(), *users)}
    users += [_user(flow, OutputRecipe(0, 0), value) for value in _unused(flow) if value.node not in given]
    return [*results.values(), *users], _tree(len(users), drawn[0].value if drawn else 0)


def _unused(flow: Flow) -> list[Value]:
    # Some of them stay: programs that the exporter writes have dead code, and passes must meet it.
    return [value for number, value in enumerate(flow.values) if not value.node.users and number % DEAD != DEAD - 1]


def _mutation(given: Value, value: Value) -> tuple[Any, OutputSpec]:
    kind = OutputKind.USER_INPUT_MUTATION if given.slot is None else OutputKind.BUFFER_MUTATION
    return value.node, OutputSpec(kind, TensorArgument(value.node.name), given.slot or given.node.name)


def _user(flow: Flow, output: OutputRecipe, value: Value) -> tuple[Any, OutputSpec]:
    if output.kind == 6:
        literal = LITERALS[output.value % len(LITERALS)]
        return literal, OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", literal), None)
    if output.kind == 7:
        value = flow.given[-1 - output.value % len(flow.given)]
    if output.kind == 8 and flow.numbers:
        node = flow.numbers[-1].node
        return node, OutputSpec(OutputKind.USER_OUTPUT, SymIntArgument(node.name), None)
    return value.node, OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(value.node.name), None)


def _tree(count: int, form: int) -> Any:
    if count == 1 and form % 2 == 0:
        return pytree.tree_structure(0)
    forms: tuple[Any, ...] = (
        tuple(range(count)), list(range(count)), {f"k{index}": index for index in range(count)},
        ({"a": 0}, [*range(count - 1)]), [{"a": [(0,)], "b": {f"k{index}": index for index in range(count - 1)}}],
    )  # fmt: skip
    return pytree.tree_structure(forms[form // 2 % len(forms)])
