"""``capture_joint`` and ``import_fx(state=)``: results, gradients and state of a joint program are eager's, bit for bit."""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.analysis.digest import alpha_equal
from tests.importing.joints import (
    CASES,
    Again,
    Blocks,
    Caught,
    Nested,
    Writes,
    differences,
    drawn,
    inside,
    joint_graph,
)
from tests.models import parent


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Give a module and an example call of it."""
    torch.manual_seed(0)
    make, args, kwargs = CASES[request.param]
    return make(), args, kwargs


def test_a_joint_program_is_eager(case: Any) -> None:
    """It is, flat and as a tree; text, files and the way back keep all of it."""
    module, args, kwargs = case
    before = copy.deepcopy(module.state_dict())
    flat = px.training.capture_joint(module, args, kwargs)
    tree = px.transform(flat)
    assert differences(flat, module, args, kwargs) == []
    assert differences(tree, module, args, kwargs) == []
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    inlined = px.inline(px.outline(flat))  # each call in one piece
    assert differences(inlined, module, args, kwargs, calls=1) == []
    assert alpha_equal(px.inline(px.outline(inlined)), inlined)
    assert alpha_equal(
        px.parse(flat.text(), state={name: flat.state[name].value for name in flat.state}), flat
    )


def test_files_keep_tangents(tmp_path: Path) -> None:
    module, args = Blocks(), (drawn(2, 4),)
    flat = px.training.capture_joint(module, args)
    px.save(flat, tmp_path / "joint.pfx")
    loaded = px.load(tmp_path / "joint.pfx")
    assert alpha_equal(loaded, flat)
    assert [node.meta.get("phase") for node in loaded.main.nodes] == [
        node.meta.get("phase") for node in flat.main.nodes
    ]
    assert differences(loaded, module, args, {}) == []


def test_state_is_the_modules_own() -> None:
    """Slots have the names, kinds and ties of the module, and share its tensors."""
    make, args, kwargs = CASES["tied"]
    module = make()
    program = px.training.capture_joint(module, args, kwargs)
    assert list(program.state) == ["embed.weight", "frozen.weight", "frozen.bias", "out.weight"]
    assert all(program.state[name].value is value for name, value in module.named_parameters())
    assert program.state["out.weight"].cell == program.state["embed.weight"].cell
    assert [
        spec.slot for spec in program.signature.outputs if type(spec) is px.ir.StateGradient
    ] == ["embed.weight"]


def test_a_module_with_two_paths_is_not_changed() -> None:
    """torch's functional_call leaves its own tensors there (2.13, tie_weights=True)."""
    make, args, kwargs = CASES["aliased"]
    module = make()
    before = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    px.training.capture_joint(module, args, kwargs)
    after = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    assert list(after) == list(before)
    assert all(after[name] is value for name, value in before.items())


def test_what_does_not_exist_is_none() -> None:
    """A parameter that the result does not depend on has a gradient, and it is None."""
    make, args, kwargs = CASES["unused"]
    program = px.training.capture_joint(make(), args, kwargs)
    slots = [spec.slot for spec in program.signature.outputs if type(spec) is px.ir.StateGradient]
    assert dict(zip(slots, program.main.output[1:], strict=True)).keys() >= {
        "unused.weight",
        "unused.bias",
    }
    assert [arg is None for arg in program.main.output[1:]] == [
        slot.startswith("unused") for slot in slots
    ]


def test_tangents_are_arguments_by_name() -> None:
    """They come behind the module's own arguments, one for each result that needs a gradient."""
    make, args, kwargs = CASES["nested"]
    program = px.training.capture_joint(make(), args, kwargs)
    users = [spec for spec in program.signature.inputs if type(spec) is px.ir.UserInput]
    assert [spec.argument for spec in users if spec.tangent_of is None] == [
        "x",
        "scale",
        "more['shift']",
        "more['n']",
        "flag",
    ]
    assert [spec.tangent_of for spec in users[5:]] == [0, 1, 2, 3, 4]
    assert program.signature.outputs[:1] == (px.ir.UserOutput(),)


class Windows(nn.Module):
    """A buffer that is a part of another one, and is written."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("memory", torch.zeros(4))
        self.register_buffer("window", self.memory[:2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.window.add_(1)
        return self.layer(x) + self.memory


class Clipped(parent(layer=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.layer.weight.clamp_(-0.1, 0.1)
        return self.layer(x)


def test_names_need_not_be_identifiers() -> None:
    layers = nn.Sequential(OrderedDict([("a b", nn.Linear(4, 4)), ("c-d", nn.Linear(4, 4))]))
    program = px.training.capture_joint(layers, (drawn(2, 4),))
    assert {frame.path for node in program.main.nodes for frame in node.stack} == {"a b", "c-d"}
    assert inside(program) == 1


class Branches(parent(layer=lambda: nn.Linear(4, 4))):
    """A condition on values, which torch traces with Dynamo."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.layer, lambda x: x * 2, (x,))


@pytest.mark.filterwarnings("ignore")
def test_branches_have_gradients() -> None:
    module, x = Branches(), drawn(2, 4)
    joint = px.lower(px.training.capture_joint(module, (x,)))
    for given in (x.abs(), -x.abs()):
        (result, (weight, _)) = joint(given, tangents=(torch.ones(2, 4),))
        assert torch.equal(result, module(given))
        assert weight.any() == (given.sum() > 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile
def test_it_is_captured_in_any_mode() -> None:
    """Modes around the call do not matter, and a compiled module is the module."""
    module, args = Blocks(), (drawn(2, 4),)
    program = px.training.capture_joint(module, args)
    with torch.no_grad():
        assert alpha_equal(px.training.capture_joint(module, args), program)
    with torch.inference_mode():
        assert alpha_equal(px.training.capture_joint(torch.compile(module), args), program)


def test_modules_that_raise_are_over() -> None:
    """What comes after a call that raised is not in it."""
    program = px.training.capture_joint(Caught(), (drawn(2, 4),))
    assert {str(frame) for node in program.main.nodes for frame in node.stack} == {
        "layer",
        "layer@1",
    }


@pytest.mark.parametrize("name", ["again", "batch-norm", "unused", "own"])
def test_described_graphs_are_joint_programs(name: str) -> None:
    """What a graph says of its inputs and outputs becomes its signature, with the tensors that are given."""
    torch.manual_seed(0)
    make, args, kwargs = CASES[name]
    module = make()
    program = px.import_fx(joint_graph(copy.deepcopy(module), *args), state=module)
    flat = px.training.capture_joint(module, args, kwargs)
    assert program.signature.outputs == flat.signature.outputs
    assert [type(spec) for spec in program.signature.inputs] == [
        type(spec) for spec in flat.signature.inputs
    ]
    eager, lowered = copy.deepcopy(module), px.lower(program)
    parameters = [value for value in eager.parameters() if value.requires_grad]
    for seed in range(2):
        torch.manual_seed(seed)
        result = eager(*args)
        tangent = torch.randn_like(result)
        wanted = torch.autograd.grad(result, parameters, tangent, allow_unused=True)
        torch.manual_seed(seed)
        (got,), gradients = lowered(*args, tangents=(tangent,))
        assert torch.equal(got, result)
        assert all(
            one is other or torch.equal(one, other)
            for one, other in zip(gradients, wanted, strict=True)
        )
    assert all(
        torch.equal(value, eager.state_dict()[key]) for key, value in lowered.state_dict().items()
    )


X = drawn(2, 4)


def captured(make: Any, *args: Any, **kwargs: Any) -> Any:
    return lambda: px.training.capture_joint(make(), args, kwargs)


def called(**kwargs: Any) -> Any:
    return lambda: px.lower(px.training.capture_joint(Again(), (X,)))(X, **kwargs)


def with_state(state: Any) -> Any:
    return lambda: px.import_fx(joint_graph(nn.Linear(4, 4), X), state=state)


REFUSED: dict[str, tuple[Any, str]] = {
    "own tangents": (captured(Nested, X, 1.0, more={}, tangents=()), "an argument of that name"),
    "no gradient": (captured(nn.ReLU, X), "no result of ReLU needs a gradient"),
    "object": (captured(Again, object()), "neither a tensor nor a literal"),
    "lazy": (captured(lambda: nn.Sequential(nn.LazyLinear(4)), X), "'0.weight' is lazy"),
    "memory": (
        captured(Windows, X),
        r"get_buffer\('(memory|window)'\).*share memory, and one of them is mutated",
    ),
    "parameter": (
        captured(Clipped, X),
        r"get_parameter\('layer.weight'\).*mutated in place requires a gradient",
    ),
    "raises": (captured(Again, drawn(2, 5)), "AOTAutograd cannot trace Again"),
    "a written argument": (captured(Writes, drawn(2, 4, grad=True)), r"in-place|in place"),
    "to_ep": (
        lambda: px.to_ep(px.training.capture_joint(Blocks(), (X,))),
        r"tangents\[0\] is a tangent",
    ),
    "no tangents": (called(), "missing argument 'tangents'"),
    "a bare tangent": (
        called(tangents=torch.ones(2, 4)),
        "argument tangents: expected a tuple, got a Tensor",
    ),
    "another shape": (
        called(tangents=(torch.ones(4),)),
        r"argument tangents\[0\]: expected a tensor of shape \(2, 4\)",
    ),
    "two tangents": (
        called(tangents=(torch.ones(2, 4),) * 2),
        "argument tangents: expected a tuple of 1 part",
    ),
    "a number as state": (with_state(3), "names to its tensors, not an int"),
    "empty state": (with_state({}), "has no tensor of that name"),
    "other state": (with_state(Blocks()), "has no tensor of that name"),
    "numbers in the state": (with_state({"weight": 3, "bias": 4}), "its value is the int 3"),
    "state of other shapes": (
        with_state({"weight": torch.ones(1), "bias": torch.ones(4)}),
        "state",
    ),
    "no descriptions": (
        lambda: px.import_fx(torch.fx.symbolic_trace(nn.Linear(4, 4)), state=nn.Linear(4, 4)),
        "restore_names",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_what_is_refused_is_named(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(px.PurefxError, match=words):
        call()


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return y.view(-1), y.t()


def test_what_has_no_role_is_refused_by_name() -> None:
    """Torch returns the tensor that results are views of, and takes the tangent of that one."""
    x = drawn(2, 4, grad=True)
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"__intermediate_base\(output\[0\]\): several results are views",
    ):
        px.import_fx(joint_graph(Views(), x), state={})
    assert differences(px.training.capture_joint(Views(), (x,)), Views(), (x,), {}) == []
