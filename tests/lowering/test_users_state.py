"""Modes, conversions, names and written parameters: the state of lowered modules as users treat it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import purefx as px
from tests.lowering.users import KINDS, Mixed, agree, export, lowered, mixed_args, three
from tests.programs import Tower, parent

EACH = pytest.mark.parametrize("to", KINDS)


class Drops(nn.Module):
    """Dropout and batch norm."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.drop, self.norm = nn.Dropout(rate), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.drop(x))


@EACH
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("form", ["plain", "decomposed"])
def test_a_written_mode_warns_once(to: str, training: bool, form: str) -> None:
    """A switch to the other mode says which modules do not follow, once; to the same one, nothing."""
    module = lowered(export(Drops().train(training), form, (torch.randn(3, 4),)), to)
    module.train(training)
    with pytest.warns(px.errors.ModeWarning, match=r"cannot change modes.*norm \(aten\..*batch_norm") as caught:
        module.train(not training)
    assert len(caught) == 1
    assert module.drop.training is (not training)
    module.train(training).train(not training)


@EACH
def test_modes_that_change_nothing_do_not_warn(to: str) -> None:
    """No dropout, a rate of zero, or modules that the user put in."""
    x = torch.randn(3, 4)
    for model in (Tower(1), nn.Sequential(nn.Dropout(0.0))):
        lowered(export(model, "plain", (x,)), to).eval().train()
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    module = lowered(export(model, "plain", (x,)), to)
    module.set_submodule("1", nn.Dropout(0.5))
    module.eval()
    assert torch.equal(module(x), module(x))


@EACH
@pytest.mark.parametrize("convert", ["double", "half", "meta"])
def test_conversions_reach_everything(to: str, convert: str) -> None:
    """Parameters and buffers; constants move and keep their type, as eager's; ties stay; a copy is converted alone."""
    module = lowered(export(Mixed(), "plain", *mixed_args()), to)
    other = copy.deepcopy(module)
    other = other.to("meta") if convert == "meta" else getattr(other, convert)()
    tensors = [*other.parameters(), *other.buffers()]
    if convert == "meta":
        assert {tensor.device.type for tensor in (*tensors, other.shift)} == {"meta"}
    else:
        dtype = torch.float64 if convert == "double" else torch.float16
        assert {tensor.dtype for tensor in tensors if tensor.is_floating_point()} == {dtype}
    assert other.first.up.weight is other.second.up.weight
    assert module.shift.dtype is other.shift.dtype is torch.float32
    if convert == "double":
        args, kwargs = mixed_args()
        expected = Mixed().double()
        expected.load_state_dict(other.state_dict())
        torch.testing.assert_close(
            other(args[0].double(), scale=kwargs["scale"].double()), expected(args[0].double(), scale=kwargs["scale"].double())
        )


@EACH
@pytest.mark.parametrize("convert", ["double", "half", "bfloat16"])
def test_a_converted_module_with_constants_is_eagers(to: str, convert: str) -> None:
    """The constants of the original are attributes and literals, which no conversion reaches."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.factor = nn.Linear(2, 2), torch.tensor([1.1, 2.3])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.factor + torch.tensor([0.1, 0.7])

    model = Constants()
    module = getattr(lowered(export(model, "plain", (torch.ones(1, 2),)), to), convert)()
    model = getattr(model, convert)()
    x = torch.ones(1, 2, dtype=model.linear.weight.dtype)
    result, expected = module(x), model(x)
    assert result.dtype is expected.dtype
    assert torch.equal(result, expected)


class Held(nn.Module):
    """State, and a constant in a module and in one that is called twice with other bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.shift = nn.Linear(2, 2), torch.tensor([3.0, 4.0])
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, tanh: bool = False) -> torch.Tensor:
        self.n.add_(1)
        x = self.lin(x) + self.shift * self.n
        return x.tanh() * self.shift if tanh else x


class HoldsTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held, self.scale = Held(), torch.tensor([0.5, 2.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.held(self.held(x), tanh=True) * self.scale


@EACH
@pytest.mark.parametrize("way", ["to_empty", "meta and to_empty", "a copy on meta"])
def test_constants_keep_their_contents_where_state_is_emptied(to: str, way: str) -> None:
    """Emptied parameters are loaded again, and nobody would load a constant: eager's are attributes, which stay."""
    model, x = HoldsTwice(), torch.randn(1, 2)
    module = lowered(export(model, "plain", (x,)), to)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    for each in (model, module):
        if way != "to_empty":
            each.to("meta")
    if way == "a copy on meta":
        model, module = copy.deepcopy(model), copy.deepcopy(module)
    for each in (model, module):
        each.to_empty(device="cpu")
        each.load_state_dict(saved)
    for _ in range(2):
        assert torch.equal(module(x), model(x))
        torch.testing.assert_close(dict(module.state_dict()), dict(model.state_dict()), rtol=0, atol=0)


def test_tied_buffers_stay_tied() -> None:
    """One buffer under two names is one buffer after a conversion."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
            self.b.running_mean = self.a.running_mean

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    module = lowered(export(Tied().eval(), "plain", (torch.randn(3, 4),))).double()
    assert module.a.running_mean is module.b.running_mean


class Writes(parent(scale=lambda: nn.Parameter(torch.ones(4)), linear=lambda: nn.Linear(4, 4))):
    """Writes a parameter that requires gradients, where they are off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.scale.mul_(0.5)
        return self.linear(x) * self.scale


@EACH
@pytest.mark.parametrize("form", ["plain", "decomposed", "strict", "dynamic", "decomposed dynamic"])
def test_parameters_that_are_written(to: str, form: str) -> None:
    """Decomposed too, where ep.module() raises: eager's numbers and state, and still a parameter."""
    torch.manual_seed(0)
    model = Writes()
    module = lowered(export(model, form, (torch.randn(3, 4),)), to)
    agree(module, model, three(lambda: ((torch.randn(3, 4),), {})))
    assert module.scale.requires_grad
    assert module.scale.is_leaf
    module(torch.randn(3, 4)).sum().backward()
    assert module.scale.grad is not None


WORKS = (
    "self",
    "graph",
    "code",
    "weight",
    "class",
    "lambda",
    "T",
    "meta",
    "type_name",
    "finalize",
    "x",
    "purefx_place",
    "é",
    "a b",
)
REFUSED = ("forward", "training", "state_dict", "add_module", "_modules")


class Holds(nn.Module):
    """Holds a layer under any name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._modules[name] = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self._modules[self.name]
        assert layer is not None
        return layer(x)


@EACH
@pytest.mark.parametrize("name", WORKS)
def test_any_name_that_can_be_exported_works(to: str, name: str) -> None:
    """Numbers, state_dict both ways, graphs, copies and conversions."""
    model, x = Holds(name), torch.randn(2, 4)
    module = lowered(export(model, "plain", (x,)), to)
    assert torch.equal(module(x), model(x))
    assert module.graph is not None
    assert torch.equal(copy.deepcopy(module)(x), model(x))
    model.load_state_dict(module.state_dict(), strict=True)
    module.load_state_dict(model.state_dict(), strict=True)
    assert module.double()(x.double()).dtype is torch.float64


@pytest.mark.parametrize("name", REFUSED)
def test_other_names_are_refused_by_the_exporter(name: str) -> None:
    """torch.export itself does not take a child that hides what a module is made of."""
    with pytest.raises(TypeError, match="not an instance of"):
        export(Holds(name), "plain", (torch.randn(2, 4),))


@EACH
def test_a_replaced_child_is_used(to: str) -> None:
    """An eager module that is called alike takes the place of a child at once; hooks with keywords run."""
    model, x = Tower(2), torch.randn(2, 4)
    module = lowered(export(model, "plain", (x,)), to)
    new = nn.Linear(4, 8)
    module.layers[0].up = new
    model.layers[0].up = new
    assert torch.equal(module(x), model(x))
    seen: list[Any] = []
    module.register_forward_pre_hook(lambda _m, args, kwargs: seen.append((len(args), list(kwargs))), with_kwargs=True)
    module.layers[1].register_forward_hook(lambda _m, args, kwargs, out: seen.append(out.shape), with_kwargs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(input=x) if "input" in str(module.purefx_plan.signature) else module(x=x)
    assert seen == [(0, ["x"]), (2, 4)]


@EACH
def test_what_users_put_before_a_parameter_is_what_runs(to: str) -> None:
    """A parametrization and a pruning mask take the parameter out of its dict; bodies read what stands there instead."""
    x = torch.randn(2, 4)
    for change in (parametrizations.weight_norm, lambda linear: prune.l1_unstructured(linear, "weight", amount=0.5)):
        model = Tower(1)
        module = lowered(export(copy.deepcopy(model), "plain", (x,)), to)
        for tower in (model, module):
            change(tower.get_submodule("layers.0.up"))
        assert torch.equal(module(x), model(x))
        with torch.no_grad():
            for tower in (model, module):
                next(tower.get_submodule("layers.0.up").parameters()).mul_(3)
        assert torch.equal(module(x), model(x))
