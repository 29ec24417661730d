"""Programs as text, and modules against eager, for the tests of the clean-up.

It asserts that programs are valid before and after, and that a lowered module is eager over several calls.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from textwrap import dedent
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.tensors import cell_key
from tests.programs import exported

Step = Callable[[px.Program], px.Program]


def text(graphs: str, *sections: str, inputs: str = "x: f32[2]", outputs: int = 1) -> px.Program:
    """Return a program of user inputs (`x: f32[2], y: i64[]`), with as many user outputs, from the text of its graphs."""
    takes = "\n".join(f"user {one.strip()}" for one in inputs.split(";") if one.strip())
    given = (f"takes {{\n{takes}\n}}", "gives {\n" + "user\n" * outputs + "}", *sections, dedent(graphs))
    written, allow = "\n".join(["program {", *given, "}"]), {"aten._print.default"}
    memory: dict[int, torch.Tensor] = {}
    values: dict[str, torch.Tensor] = {}
    for name, slot in px.parse(written, allow=allow).state.pairs:
        value = memory.setdefault(slot.storage, torch.full(slot.value.shape, 3, dtype=slot.value.dtype))
        value = value if value.shape == slot.value.shape else value[: len(slot.value)]
        values[name] = nn.Parameter(value) if slot.kind is px.ir.SlotKind.PARAMETER else value
    program = px.infer(px.parse(written, state=values, allow=allow))
    assert px.verify(program) == ()
    return program


def root(*nodes: str) -> str:
    """Return the text of a root graph; the last line is what it returns."""
    return "\n".join(['graph @""(x) {', *nodes[:-1], f"return {nodes[-1]}", "}"])


def nodes(program: px.Program, graph: str = "") -> list[str]:
    """Return the names of the nodes of a graph."""
    return [node.name for node in program.graphs[graph].nodes]


def sound(step: Step, program: px.Program) -> px.Program:
    """Return the result, valid with its values, and the same when it is asked for again."""
    result = step(program)
    assert px.verify(result, infer=True) == ()
    assert step(result) is result
    return result


def memory(values: Any) -> list[list[int]]:
    """Return which of some tensors share memory, as groups."""
    groups: dict[object, list[int]] = {}
    for number, value in enumerate(pytree.tree_leaves(values)):
        if isinstance(value, torch.Tensor):
            groups.setdefault(cell_key(value)[1], []).append(number)
    return list(groups.values())


def same_as_eager(
    module: nn.Module,
    args: tuple[Any, ...],
    *steps: Step,
    calls: int = 3,
    stages: tuple[str, ...] = ("flat", "sunk", "tree"),
    **how: Any,
) -> px.Program:
    """Check the steps on an exported module at several stages against eager: outputs, what they share, inputs and state.

    Returns:
        The flat program after the steps.
    """
    first = px.import_ep(exported(module, *args, **how))
    found = first
    for stage in stages:
        program = {
            "flat": lambda: first,
            "sunk": lambda: px.sink_state(px.inplace_mutations(first)),
            "tree": lambda: px.transform(first),
        }[stage]()
        for step in steps:
            program = sound(step, program)
        found = program if stage == "flat" else found
        lowered = px.lower(px.transform(program) if stage == "flat" else program)
        _compare(lowered, copy.deepcopy(module), args, calls)
    return found


def _compare(lowered: nn.Module, eager: nn.Module, args: tuple[Any, ...], calls: int) -> None:
    for call in range(calls):
        given = [pytree.tree_map(partial(_changed, call=call), args) for _ in range(2)]
        torch.manual_seed(call)
        mine, drawn = lowered(*given[0]), torch.get_rng_state()
        torch.manual_seed(call)
        theirs = eager(*given[1])
        assert torch.equal(drawn, torch.get_rng_state())
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(given[0], given[1], rtol=0, atol=0, equal_nan=True)
        assert memory((mine, given[0])) == memory((theirs, given[1]))
    state, expected = lowered.state_dict(), eager.state_dict()
    assert set(state) >= set(expected)
    torch.testing.assert_close({name: state[name] for name in expected}, dict(expected), rtol=0, atol=0, equal_nan=True)


def _changed(leaf: Any, call: int) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.clone() * (call + 1) if leaf.is_floating_point() else leaf.clone()
