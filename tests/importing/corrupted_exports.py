"""Ways to edit an exported program by hand, which leave it wrong, odd or as it was.

Each edits one in place, at a place that is drawn.  Graphs that operators take stay as they are: all programs share them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

aten = torch.ops.aten

Edit = Callable[[ExportedProgram, Random], None]

EDITS: dict[str, Edit] = {}


def edits(edit: Edit) -> Edit:
    """Enter an edit into the table."""
    EDITS[edit.__name__] = edit
    return edit


class Text(str):
    """A text that is not quite one."""

    __slots__ = ()


@frozen
class NoValue:
    """What nothing in a graph can be."""


def calls(ep: ExportedProgram) -> list[Any]:
    """Return the calls of the root; bodies are shared by all programs that are drawn."""
    return [node for node in ep.graph.nodes if node.op == "call_function"]


def a_call(ep: ExportedProgram, random: Random) -> Any:
    """Return some call."""
    return random.choice(calls(ep))


def anything(ep: ExportedProgram, random: Random) -> Any:
    """Return some node of the root, but its output."""
    return random.choice([node for node in ep.graph.nodes if node.op != "output"])


@edits
def nothing(ep: ExportedProgram, random: Random) -> None:
    """Leave it as it is."""


@edits
def another_value(ep: ExportedProgram, random: Random) -> None:
    anything(ep, random).meta["val"] = random.choice([print, {1}, NoValue(), 3, [print], None, torch.nn.ReLU(), (1, {"a": {2}})])


@edits
def another_key(ep: ExportedProgram, random: Random) -> None:
    anything(ep, random).meta[random.choice([3, None, ("a",), "a", Text("val")])] = 1


@edits
def another_trace(ep: ExportedProgram, random: Random) -> None:
    anything(ep, random).meta["stack_trace"] = random.choice([3, None, "text", ["text"]])


@edits
def another_name(ep: ExportedProgram, random: Random) -> None:
    others = [anything(ep, random).name, a_call(ep, random).name]
    random.choice([anything, a_call])(ep, random).name = random.choice([*others, "", "class", "a b", "new", 3, Text("new")])


@edits
def another_stack(ep: ExportedProgram, random: Random) -> None:
    stack = dict(a_call(ep, random).meta.get("nn_module_stack") or {})
    places: list[Any] = [("/a", "A"), ("no.such", "A"), ("a", ""), ("a", "A"), ("a.c", "A"), ("", "A"), (3, "A"), ("a", 3)]
    keys: list[Any] = ["x", "x@1", "x@²", "L__self__a", "1234", "_empty_nn_module_stack_from_metadata_hook", 3]
    stack[random.choice(keys)] = random.choice([*places, 7, ("a",)])
    found = [stack, dict(reversed(stack.items())), dict(list(stack.items())[1:]), [stack], {}, None]
    a_call(ep, random).meta["nn_module_stack"] = random.choice([stack, *found])


@edits
def the_stack_of_another(ep: ExportedProgram, random: Random) -> None:
    mine, other = a_call(ep, random).meta, a_call(ep, random).meta
    stack = {**dict(mine.get("nn_module_stack") or {}), **dict(other.get("nn_module_stack") or {})}
    mine["nn_module_stack"] = stack


@edits
def another_target(ep: ExportedProgram, random: Random) -> None:
    targets = [aten.relu.default, aten.add.Tensor, operator.getitem, operator.add, aten.split.Tensor, aten.add_.Tensor, len]
    a_call(ep, random).target = random.choice(targets)


@edits
def another_argument(ep: ExportedProgram, random: Random) -> None:
    node = a_call(ep, random)
    deep: Any = [anything(ep, random)]
    for _ in range(random.choice([1, 2, 200])):
        deep = [deep]
    foreign = torch.fx.Graph().placeholder("foreign")
    slices = slice(random.choice([1, [1], anything(ep, random)]))
    odd = ["text", 1, None, deep, foreign, anything(ep, random), slices, {"a": 1}, {(1, (2,)): 1}, [1, "a"], torch.float32, len]
    args = [*node.args]
    args[random.randrange(len(args) + 1) :] = [random.choice(odd)]
    node.args = tuple(args)


@edits
def another_keyword(ep: ExportedProgram, random: Random) -> None:
    node = a_call(ep, random)
    key = random.choice(["dim", "dtype", "no_such", 3, Text("dim"), "self", "alpha"])
    node.kwargs = {**node.kwargs, key: random.choice([1, anything(ep, random), [1], [[1]], "text", {"a": 1}])}


@edits
def another_order(ep: ExportedProgram, random: Random) -> None:
    anything(ep, random).append(anything(ep, random))


@edits
def a_second_call_of_a_graph(ep: ExportedProgram, random: Random) -> None:
    bearers = [node for node in ep.graph.nodes if node.op == "get_attr"]
    if bearers:
        node = a_call(ep, random)
        node.args = (*node.args, random.choice([bearers[0], [bearers[0]]]))


@edits
def another_output(ep: ExportedProgram, random: Random) -> None:
    output = list(ep.graph.nodes)[-1]
    found = [*output.args[0]]
    given = [1, [1], anything(ep, random), (anything(ep, random),), None, "text", len, {"a": 1}]
    given += [node for node in ep.graph.nodes if node.op == "get_attr"] * 3
    if found:
        found[random.randrange(len(found))] = random.choice(given)
    output.args = (random.choice([tuple(found), found, (*found, 1), found[:-1], 1]),)


@edits
def another_state(ep: ExportedProgram, random: Random) -> None:
    held = random.choice([ep.state_dict, ep.constants])
    values = [None, torch.ones(7), torch.nn.Parameter(torch.ones(7)), "text", torch.ones(1).to_sparse(), *held.values()]
    name = random.choice([*held, "new", "a.new", 3, "", Text("new")])
    held[name] = random.choice([*values, torch.ones(0), torch.ones(2, device="meta")])


@edits
def less_state(ep: ExportedProgram, random: Random) -> None:
    held = random.choice([ep.state_dict, ep.constants])
    if held:
        del held[random.choice([*held])]


@edits
def another_spec(ep: ExportedProgram, random: Random) -> None:
    specs = ep.graph_signature.input_specs
    if specs:
        spec: Any = random.choice(specs)
        spec.target = random.choice([random.choice(specs).target, "no.such", 3, None])
        spec.kind = random.choice([spec.kind, random.choice(list(InputKind))])


@edits
def fewer_specs(ep: ExportedProgram, random: Random) -> None:
    specs = random.choice([ep.graph_signature.input_specs, ep.graph_signature.output_specs])
    if specs:
        del specs[random.randrange(len(specs))]
