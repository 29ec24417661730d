"""Exported programs that were edited by hand are imported and transformed, or refused with a typed error that names the place."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

import purefx as px
from tests.models import parent

pytestmark = pytest.mark.usefixtures("unverified")

RELU = torch.ops.aten.relu.default


class Text(str):
    """A text that is not quite one."""

    __slots__ = ()


class NoValue:
    """What nothing in a graph can be."""


class Model(
    parent(
        up=lambda: torch.nn.Linear(4, 8),
        down=lambda: torch.nn.Linear(8, 4),
        count=lambda: torch.zeros(4),
    )
):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        first, second = self.down(torch.relu(self.up(x))).split(2, -1)
        return first + y, second * self.count[:2]


@functools.cache
def saved() -> bytes:
    file = io.BytesIO()
    torch.export.save(
        torch.export.export(Model(), (torch.ones(3, 4), torch.ones(2))).run_decompositions({}), file
    )
    return file.getvalue()


def model() -> ExportedProgram:
    return torch.export.load(io.BytesIO(saved()))


def refusal(ep: ExportedProgram) -> str:
    """Return how import or the first step of ``transform`` refuses an exported program; "" if neither does."""
    try:
        px.transform(px.import_ep(ep))
    except px.PurefxError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def relu(ep: ExportedProgram) -> Any:
    return next(found for found in ep.graph.nodes if found.target is RELU)


def output(ep: ExportedProgram) -> Any:
    return list(ep.graph.nodes)[-1]


def assigned(
    owner: Callable[[ExportedProgram], Any], **fields: Any
) -> Callable[[ExportedProgram], None]:
    """Return an edit that sets attributes of a part of an exported program."""

    def edit(ep: ExportedProgram) -> None:
        for name, value in fields.items():
            setattr(owner(ep), name, value)

    return edit


def returning(change: Callable[[list[Any]], Any]) -> Callable[[ExportedProgram], None]:
    return lambda ep: setattr(output(ep), "args", (change([*output(ep).args[0]]),))


def an_erased_node(ep: ExportedProgram) -> None:
    found = relu(ep)
    found._prev._next, found._next._prev = found._next, found._prev


def a_call_of_a_module(ep: ExportedProgram) -> None:
    with ep.graph.inserting_before(output(ep)):
        ep.graph.create_node("call_module", "up", (next(iter(ep.graph.nodes)),))


def a_tensor_as_attribute(ep: ExportedProgram) -> None:
    ep.graph_module.register_buffer("extra", torch.ones(1))
    with ep.graph.inserting_before(output(ep)):
        ep.graph.get_attr("extra")


FOREIGN = torch.fx.Graph().placeholder("foreign")
TWICE = {"L__self__": ("", "M"), "a": ("up", "A"), "b": ("up", "A")}
Z = TensorArgument("z")


def first_input(ep: ExportedProgram) -> Any:
    return ep.graph_signature.input_specs[0]


def second_output(ep: ExportedProgram) -> Any:
    return ep.graph_signature.output_specs[1]


WRONG: dict[str, Callable[[ExportedProgram], Any]] = {
    "a use of a node of another graph": assigned(relu, args=(FOREIGN,)),
    "a use of a node that was taken out": an_erased_node,
    "a use before the definition": lambda ep: list(ep.graph.nodes)[-2].append(relu(ep)),
    "a call of a module": a_call_of_a_module,
    "a read of a tensor": a_tensor_as_attribute,
    "one name twice": lambda ep: setattr(relu(ep), "name", list(ep.graph.nodes)[5].name),
    "an empty name": assigned(relu, name=""),
    "a name that is a number": assigned(relu, name=3),
    "a name that is no identifier": assigned(relu, name="a b"),
    "a name of another class": assigned(relu, name=Text("new")),
    "an argument of a class of the user": assigned(relu, args=(NoValue(),)),
    "a module as an argument": assigned(relu, args=(torch.nn.ReLU(),)),
    "a set as an argument": assigned(relu, args=({1},)),
    "text for a tensor": assigned(relu, args=("text",)),
    "a function as a value": lambda ep: relu(ep).meta.update(val=print),
    "a number as a key of meta": lambda ep: relu(ep).meta.update({3: 4}),
    "a trace that is no text": lambda ep: relu(ep).meta.update(stack_trace=3),
    "a stack that is a list": lambda ep: relu(ep).meta.update(nn_module_stack=[("a", "A")]),
    "a stack of numbers": lambda ep: relu(ep).meta.update(nn_module_stack={"a": 7}),
    "a module call inside of itself": lambda ep: relu(ep).meta.update(nn_module_stack=TWICE),
    "a module that the state and the hierarchy lack": lambda ep: relu(ep).meta.update(
        nn_module_stack={"a@²": ("/a", "A")}
    ),
    "one input spec less": lambda ep: ep.graph_signature.input_specs.pop(),
    "one output spec less": lambda ep: ep.graph_signature.output_specs.pop(),
    "one input spec more": lambda ep: ep.graph_signature.input_specs.append(
        InputSpec(InputKind.USER_INPUT, Z, None)
    ),
    "one output spec more": lambda ep: ep.graph_signature.output_specs.append(
        OutputSpec(OutputKind.BUFFER_MUTATION, Z, "count")
    ),
    "a parameter that the state lacks": assigned(first_input, target="no.such"),
    "a parameter without a name": assigned(first_input, target=None),
    "a gradient to nothing": assigned(
        second_output, kind=OutputKind.GRADIENT_TO_PARAMETER, target="no.such"
    ),
    "a mutation of an input that is none": assigned(
        second_output, kind=OutputKind.USER_INPUT_MUTATION, target="no.such"
    ),
    "state that is gone": lambda ep: ep.state_dict.pop("up.weight"),
    "state that is text": lambda ep: ep.state_dict.update({"up.weight": "text"}),
    "state of another shape": lambda ep: ep.state_dict.update(
        {"up.weight": torch.nn.Parameter(torch.ones(7))}
    ),
    "state with a number for a name": lambda ep: ep.state_dict.update({3: torch.ones(1)}),
    "one value returned less": returning(lambda values: tuple(values[:-1])),
    "a result that is no value of the graph": returning(lambda values: (*values[:-1], NoValue())),
    "one result that is not in a tuple": returning(lambda values: values[-1]),
}
"""Edits that leave a program wrong, by what is wrong."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    ep = model()
    WRONG[name](ep)
    said = refusal(ep)
    assert said, "nothing was refused"
    if name in (
        "a use of a node of another graph",
        "a use before the definition",
        "a set as an argument",
        "text for a tensor",
    ):
        assert "relu" in said
