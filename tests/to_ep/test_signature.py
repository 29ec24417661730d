"""What the signature of the result says: derived from the program, in torch's order, under the names of the made nodes."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.experimental import _export_forward_backward
from torch.export.graph_signature import InputKind, OutputKind

import purefx as px
from tests.models import ADD, NEG, Counter, decompose, exported, flat, imported, module_class
from tests.to_ep.support import flattened, loaded


def kinds(ep: torch.export.ExportedProgram) -> list[tuple[str, str | None]]:
    """Return the kind and target of each output."""
    return [(spec.kind.name, spec.target) for spec in ep.graph_signature.output_specs]


def test_a_program_that_writes_in_place_is_no_aten() -> None:
    program = imported(Counter(), torch.ones(2, 4))
    assert px.to_ep(program).dialect == "TRAINING"
    with pytest.raises(px.errors.UnsupportedProgram, match=r"add_.Tensor' is not functional"):
        px.to_ep(program, dialect="ATEN")


def test_old_contents_that_are_returned_or_swapped() -> None:
    """``ep.module()`` writes before it returns, one buffer after the other; what it overwrites is saved first."""
    slots = {
        name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.tensor([float(number)] * 2), number, number)
        for number, name in enumerate("ab")
    }
    inputs = tuple(px.Input(name) for name in ("a", "b", "x"))
    signature = px.ir.Signature(
        (
            px.ir.StateInput("a"),
            px.ir.StateInput("b"),
            px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), "x"),
        ),
        (
            px.ir.StateMutation("a"),
            px.ir.StateMutation("b"),
            px.ir.UserOutput(),
            px.ir.UserOutput(),
        ),
    )
    graph = px.Graph(
        inputs,
        (px.Node("y", ADD, (px.Ref("x"), px.Ref("a"))),),
        tuple(map(px.Ref, ("b", "a", "a", "y"))),
    )
    program = px.Program.of(
        {"": graph}, signature=signature, state=px.ir.State(("a", "b"), px.ir.pmap(slots))
    )
    expected = px.lower(program)
    for ep in (px.to_ep(program), loaded(px.to_ep(program)), px.to_ep(px.transform(program))):
        module, eager = ep.module(), copy.deepcopy(expected)
        for _ in range(3):
            for given, wanted in zip(module(torch.ones(2)), eager(torch.ones(2)), strict=True):
                assert torch.equal(given, wanted)
        assert {name: value.tolist() for name, value in module.state_dict().items()} == {
            name: value.tolist() for name, value in eager.state_dict().items()
        }
    assert px.to_ep(program).module()(torch.ones(2))[0].tolist() == [0, 0]


def test_every_kind_of_input_and_output() -> None:
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("kept", torch.ones(2))
            self.register_buffer("dropped", torch.ones(2), persistent=False)
            self.constant = torch.ones(2)

        def forward(
            self,
            x: torch.Tensor,
            input: dict[str, Any],  # noqa: A002
            n: int,
            *,
            id: None,  # noqa: A002
            text: str,
        ) -> Any:
            y = x * self.weight + self.kept + self.dropped + self.constant * n
            return {"y": y + input["k"], "rows": x.shape[0], "text": text, "none": id, "flag": True}

    module = Kinds()
    kwargs: dict[str, Any] = {"id": None, "text": "t"}
    shapes = {
        "x": {0: torch.export.Dim.DYNAMIC},
        "input": {"k": None},
        "n": None,
        "id": None,
        "text": None,
    }
    args = (torch.randn(3, 2), {"k": torch.randn(2)}, 4)
    source = torch.export.export(copy.deepcopy(module), args, kwargs, dynamic_shapes=shapes)
    program = px.import_ep(source)
    ep = px.to_ep(px.transform(program))
    assert px.alpha_equal(px.import_ep(ep), program)
    found = {(spec.kind, spec.target, spec.persistent) for spec in ep.graph_signature.input_specs}
    assert found == {
        (spec.kind, spec.target, spec.persistent) for spec in source.graph_signature.input_specs
    }
    assert (InputKind.BUFFER, "dropped", False) in found
    assert [type(spec.arg) for spec in ep.graph_signature.output_specs] == [
        type(spec.arg) for spec in source.graph_signature.output_specs
    ]
    assert ep.graph_signature.user_inputs == source.graph_signature.user_inputs
    assert {name: list(getattr(ep, name)) for name in ("state_dict", "constants")} == {
        name: list(getattr(source, name)) for name in ("state_dict", "constants")
    }
    given, wanted = ep.module()(*args, **kwargs), module(*args, **kwargs)
    assert torch.equal(given.pop("y"), wanted.pop("y"))
    assert given == wanted


def test_names_follow_the_nodes() -> None:
    """A name that Python or fx cannot have is another one in the graph, and in the signature alike."""
    nodes = [px.Node("1 bad", NEG, (px.Ref("class"),)), px.Node("input", NEG, (px.Ref("1 bad"),))]
    ep = px.to_ep(flat(nodes, (px.Ref("input"), px.Ref("1 bad")), "class", "id"))
    assert ep.graph_signature.user_inputs == ("input_0", "id")
    assert [node.name for node in ep.graph.nodes if node.op == "call_function"] == list(
        reversed(ep.graph_signature.user_outputs)
    )
    assert ep.module()(torch.ones(2), torch.ones(2))[1].tolist() == [-1, -1]


def test_effect_tokens_stay_or_become_order() -> None:
    class Prints(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.ops.aten._print("first")
            torch.ops.aten._print("second")
            return x + 1

    program = imported(Prints(), torch.ones(2), decomposed=True)
    ep = px.to_ep(program)
    assert ep.dialect == "ATEN"
    assert next(spec.kind for spec in ep.graph_signature.input_specs) is InputKind.TOKEN
    assert kinds(ep)[0][0] == OutputKind.TOKEN.name
    assert px.alpha_equal(px.import_ep(ep), program)
    ordered = px.to_ep(px.transform(program))
    assert [str(node.args[0]) for node in ordered.graph.nodes if "_print" in str(node.target)] == [
        "first",
        "second",
    ]
    assert [
        node.args[1:]
        for node in decompose(ordered, core=True).graph.nodes
        if "with_effects" in str(node.target)
    ] == [node.args[1:] for node in ep.graph.nodes if "with_effects" in str(node.target)]


def test_joint_programs() -> None:
    """The backward signature stays, and ``module()`` gives the loss and the gradients; torch's own program raises."""
    kind = module_class(
        "Loss",
        lambda self, x, y: nn.functional.cross_entropy(self.layer(self.layer(x)), y),
        layer=lambda: nn.Linear(3, 3),
    )
    module, args = kind(), (torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1]))
    forward = exported(module, *args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = _export_forward_backward(forward)
    with pytest.raises(ValueError, match="treespec"):
        joint.module()(*args)
    program = px.import_ep(joint)
    ep = px.to_ep(program)
    assert px.import_ep(ep) == program
    assert ep.graph_signature.backward_signature is not None
    loss, *gradients = ep.module()(*args)
    expected = module(*args)
    torch.testing.assert_close(loss, expected)
    wanted = torch.autograd.grad(expected, [*module.parameters(), args[0]])
    for gradient, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, other)
    assert px.alpha_equal(
        px.import_ep(px.to_ep(px.transform(program))), flattened(px.transform(program))
    )
