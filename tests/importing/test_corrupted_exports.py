"""Exported programs that were edited by hand are imported and transformed, or refused with a typed error that names the place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

import purefx as px
from purefx.laws.strategies import exported_programs
from purefx.laws.tiers import examples_of, share
from tests.importing.corrupted_exports import EDITS, NoValue, Text, calls

pytestmark = pytest.mark.usefixtures("unverified")

aten = torch.ops.aten


class Model(torch.nn.Module):
    """Two layers, a buffer that is written, and a result with two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Count calls."""
        self.count.add_(1)
        first, second = self.down(torch.relu(self.up(x))).split(2, -1)
        return first + y, second * self.count[:2]


def model() -> ExportedProgram:
    """Return an exported program to edit."""
    return torch.export.export(Model(), (torch.ones(3, 4), torch.ones(2))).run_decompositions({})


def taken(ep: ExportedProgram) -> str:
    """Return the refusal of an exported program, by import or by the first step of ``transform``; "" if there is none."""
    try:
        px.transform(px.import_ep(ep))
    except px.PurefxError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def node(ep: ExportedProgram, target: Any) -> Any:
    """Return the first call of an operator."""
    return next(found for found in ep.graph.nodes if found.target is target)


def formal(ep: ExportedProgram, number: int) -> Any:
    """Return an input, counted from 0."""
    return [found for found in ep.graph.nodes if found.op == "placeholder"][number]


def output(ep: ExportedProgram) -> Any:
    """Return the output node."""
    return list(ep.graph.nodes)[-1]


def with_output(ep: ExportedProgram, change: Callable[[list[Any]], Any]) -> None:
    """Return other values."""
    output(ep).args = (change([*output(ep).args[0]]),)


def setting(target: Any, args: Callable[[Any], Any], **kwargs: Any) -> Callable[[ExportedProgram], None]:
    """Give a call other arguments."""

    def edit(ep: ExportedProgram) -> None:
        found = node(ep, target)
        found.args, found.kwargs = tuple(args(found.args)), {**found.kwargs, **kwargs}

    return edit


def noting(key: Any, value: Any) -> Callable[[ExportedProgram], None]:
    """Write something into the meta of a call."""

    def edit(ep: ExportedProgram) -> None:
        node(ep, aten.relu.default).meta[key] = value

    return edit


def in_inputs(number: int, **fields: Any) -> Callable[[ExportedProgram], None]:
    """Change fields of the spec of an input."""

    def edit(ep: ExportedProgram) -> None:
        for name, value in fields.items():
            setattr(ep.graph_signature.input_specs[number], name, value)

    return edit


def in_outputs(number: int, **fields: Any) -> Callable[[ExportedProgram], None]:
    """Change fields of the spec of an output."""

    def edit(ep: ExportedProgram) -> None:
        for name, value in fields.items():
            setattr(ep.graph_signature.output_specs[number], name, value)

    return edit


def a_foreign_use(ep: ExportedProgram) -> None:
    """Use a node of another graph."""
    node(ep, aten.relu.default).args = (torch.fx.Graph().placeholder("foreign"),)


def an_erased_node(ep: ExportedProgram) -> None:
    """Take a node out of the list that others use."""
    found = node(ep, aten.relu.default)
    found._prev._next, found._next._prev = found._next, found._prev


def a_later_use(ep: ExportedProgram) -> None:
    """Put a node behind its users."""
    list(ep.graph.nodes)[-2].append(node(ep, aten.relu.default))


def no_output(ep: ExportedProgram) -> None:
    """Erase the output."""
    ep.graph.erase_node(output(ep))


def a_second_output(ep: ExportedProgram) -> None:
    """Return twice."""
    ep.graph.output(())


def a_call_behind_the_output(ep: ExportedProgram) -> None:
    """Put a node behind the output."""
    output(ep).append(node(ep, aten.relu.default))


def a_call_of_a_module(ep: ExportedProgram) -> None:
    """Call a module."""
    with ep.graph.inserting_before(output(ep)):
        ep.graph.create_node("call_module", "up", (formal(ep, 0),))


def a_tensor_as_attribute(ep: ExportedProgram) -> None:
    """Read a tensor of the module."""
    ep.graph_module.register_buffer("extra", torch.ones(1))
    with ep.graph.inserting_before(output(ep)):
        ep.graph.get_attr("extra")


def one_name_twice(ep: ExportedProgram) -> None:
    """Call two nodes alike."""
    node(ep, aten.relu.default).name = formal(ep, 5).name


def named(name: Any) -> Callable[[ExportedProgram], None]:
    """Rename a node."""

    def edit(ep: ExportedProgram) -> None:
        node(ep, aten.relu.default).name = name

    return edit


def one_spec_less(what: str) -> Callable[[ExportedProgram], None]:
    """Drop a spec."""
    return lambda ep: getattr(ep.graph_signature, what).pop()


def a_spec_more(ep: ExportedProgram) -> None:
    """Claim one more input."""
    ep.graph_signature.input_specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument("z"), None))


def a_mutation_more(ep: ExportedProgram) -> None:
    """Claim one more output."""
    ep.graph_signature.output_specs.append(OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument("z"), "count"))


def held(change: Callable[[dict[str, Any]], Any]) -> Callable[[ExportedProgram], None]:
    """Change the state."""
    return lambda ep: change(ep.state_dict)


WRONG: dict[str, Callable[[ExportedProgram], Any]] = {
    "a use of a node of another graph": a_foreign_use,
    "a use of a node that was taken out": an_erased_node,
    "a use before the definition": a_later_use,
    "no output": no_output,
    "two outputs": a_second_output,
    "a node behind the output": a_call_behind_the_output,
    "a call of a module": a_call_of_a_module,
    "a read of a tensor": a_tensor_as_attribute,
    "one name twice": one_name_twice,
    "an empty name": named(""),
    "a name that is a number": named(3),
    "a name that is no identifier": named("a b"),
    "an argument of a class of the user": setting(aten.relu.default, lambda args: [NoValue()]),
    "a module as an argument": setting(aten.relu.default, lambda args: [torch.nn.ReLU()]),
    "a set as an argument": setting(aten.relu.default, lambda args: [{1}]),
    "text for a tensor": setting(aten.relu.default, lambda args: ["text"]),
    "too many arguments": setting(aten.relu.default, lambda args: [*args, *args]),
    "too few arguments": setting(aten.relu.default, lambda args: []),
    "a keyword that the operator does not have": setting(aten.relu.default, lambda args: args, no_such=1),
    "an argument given twice": setting(aten.relu.default, lambda args: args, self=1),
    "an item beyond the last": setting(operator.getitem, lambda args: [args[0], 7]),
    "an item with a name": setting(operator.getitem, lambda args: [args[0], "a"]),
    "a function as a value": noting("val", print),
    "a set as a value": noting("val", {1}),
    "a number as a key of meta": noting(3, 4),
    "a trace that is no text": noting("stack_trace", 3),
    "a stack that is a list": noting("nn_module_stack", [("a", "A")]),
    "a stack of numbers": noting("nn_module_stack", {"a": 7}),
    "a module call inside of itself": noting("nn_module_stack", {"L__self__": ("", "M"), "a": ("up", "A"), "b": ("up", "A")}),
    "a module that the state and the hierarchy lack": noting("nn_module_stack", {"a@²": ("/a", "A")}),
    "one input spec less": one_spec_less("input_specs"),
    "one output spec less": one_spec_less("output_specs"),
    "one input spec more": a_spec_more,
    "one output spec more": a_mutation_more,
    "a parameter that the state lacks": in_inputs(0, target="no.such"),
    "a parameter without a name": in_inputs(0, target=None),
    "a mutation of a buffer that the state lacks": in_outputs(0, target="no.such"),
    "a gradient to nothing": in_outputs(1, kind=OutputKind.GRADIENT_TO_PARAMETER, target="no.such"),
    "a mutation of an input that is none": in_outputs(1, kind=OutputKind.USER_INPUT_MUTATION, target="no.such"),
    "state that is gone": held(lambda state: state.pop("up.weight")),
    "state that is text": held(lambda state: state.update({"up.weight": "text"})),
    "state that is None": held(lambda state: state.update({"up.weight": None})),
    "state of another shape": held(lambda state: state.update({"up.weight": torch.nn.Parameter(torch.ones(7))})),
    "state with a number for a name": held(lambda state: state.update({3: torch.ones(1)})),
    "one value returned less": lambda ep: with_output(ep, lambda values: tuple(values[:-1])),
    "a result that is no value of the graph": lambda ep: with_output(ep, lambda values: (*values[:-1], NoValue())),
    "one result that is not in a tuple": lambda ep: with_output(ep, lambda values: values[-1]),
    "new contents that are a number": lambda ep: with_output(ep, lambda values: (1, *values[1:])),
}
"""Edits that leave a program wrong, by what is wrong."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    ep = model()
    WRONG[name](ep)
    assert taken(ep), "nothing was refused"


def test_the_refusal_names_the_node() -> None:
    for name in ("a use of a node of another graph", "a use before the definition", "a set as an argument", "text for a tensor"):
        ep = model()
        WRONG[name](ep)
        assert "relu" in taken(ep)


@pytest.mark.parametrize("name", EDITS)
def test_what_is_odd_is_taken_or_refused(name: str) -> None:
    for number, case in enumerate(examples_of(exported_programs(), share(20), sum(map(ord, name)))):
        if calls(case.ep):
            EDITS[name](case.ep, Random(number))
            refusal = taken(case.ep)
            assert name != "nothing" or not refusal


def test_texts_of_other_classes_are_no_names() -> None:
    ep = model()
    named(Text("new"))(ep)
    assert taken(ep)
