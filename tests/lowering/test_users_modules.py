"""Lowered modules as users treat them: modes, conversions, written parameters, replaced children, wrappers, and ``unflatten``."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.export import FlatArgsAdapter

import purefx as px
from tests.lowering.users import KINDS, Mixed, agree, export, lowered, mixed_args, three
from tests.models import Tower, module_class, parent

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
    with pytest.warns(
        px.errors.ModeWarning, match=r"cannot change modes.*norm \(aten\..*batch_norm"
    ) as caught:
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
@pytest.mark.parametrize("way", ["to_empty", "meta and to_empty", "a copy on meta"])
def test_constants_keep_their_contents_where_state_is_emptied(to: str, way: str) -> None:
    """Emptied parameters are loaded again, and nobody would load a constant: eager's are attributes, which stay."""
    model, (args, kwargs) = Mixed(), mixed_args()
    module = lowered(export(model, "plain", args, kwargs), to)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    for each in (model, module):
        if way != "to_empty":
            each.to("meta")
    if way == "a copy on meta":
        model, module = copy.deepcopy(model), copy.deepcopy(module)
    for each in (model, module):
        each.to_empty(device="cpu")
        each.load_state_dict(saved)
    agree(module, model, three(mixed_args))


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


# Takes two tensors, and is called in other ways through adapters.
Pairs = module_class("Pairs", lambda self, x, y: x - 2 * y)


class Recorder(FlatArgsAdapter):
    """Takes one tensor for both, or what it was told to give; remembers what it was asked."""

    def __init__(
        self,
        gives: Callable[[list[Any]], Any] = lambda flat: [flat[0], flat[0]],
        paths: tuple[str, ...] = (),
    ) -> None:
        self.gives, self.paths = gives, paths
        self.asked: dict[str, Any] = {}

    def adapt(
        self,
        target_spec: Any,
        input_spec: Any,
        input_args: list[Any],
        metadata: Any = None,
        obj: Any = None,
    ) -> list[Any]:
        self.asked = {
            "target": target_spec,
            "input": input_spec,
            "flat": input_args,
            "metadata": metadata,
            "obj": obj,
        }
        return self.gives(input_args)

    def get_flat_arg_paths(self) -> list[str]:
        return list(self.paths)


X, Y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])


def test_adapters() -> None:
    """They are called as by torch, only where the arguments do not fit; ``lower`` accepts one as well."""
    ep = torch.export.export(Pairs(), (X, Y))
    for unflatten in (px.unflatten, torch.export.unflatten):
        adapter = Recorder()
        module = unflatten(ep, adapter)
        assert torch.equal(module([X]), -X)
        asked = adapter.asked
        signature: Any = ep.module_call_graph[0].signature
        assert asked["target"] == signature.in_spec
        assert asked["input"].num_leaves == 1
        assert torch.equal(asked["flat"][0], X)
        assert asked["metadata"]["unflattened_module"] is module
        assert asked["obj"][0][0] is X
    adapter = Recorder()
    module = px.lower(px.transform(px.import_ep(ep)), flat_args_adapter=adapter)
    assert torch.equal(module(X, y=Y), X - 2 * Y)
    assert adapter.asked == {}
    for gives, said in (
        (lambda flat: flat, "takes 2 flat arguments .x, y.; Recorder returned 1"),
        (lambda flat: [flat[0], torch.ones(3)], r"argument y: .*got shape \(3,\)"),
    ):
        with pytest.raises(px.PurefxError, match=said):
            px.unflatten(ep, Recorder(gives))([X])


def ddp(module: Any) -> Any:
    return nn.parallel.DistributedDataParallel(module)


def fsdp(module: Any) -> Any:
    mesh = init_device_mesh("cpu", (1,))
    for layer in module.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


@EACH
@pytest.mark.parametrize("wrap", [ddp, fsdp])
def test_wrapped_modules_train_as_eager(to: str, wrap: Callable[[Any], Any]) -> None:
    """Gradients and state_dict keys are those of the wrapped eager model."""
    model, x = Tower(2), torch.randn(2, 4)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        mine, theirs = (
            wrap(lowered(torch.export.export(copy.deepcopy(model), (x,)), to)),
            wrap(model),
        )
        for module in (mine, theirs):
            module(x).square().sum().backward()
        assert list(mine.state_dict()) == list(theirs.state_dict())
        for pair in zip(mine.parameters(), theirs.parameters(), strict=True):
            grads = [
                p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in pair
            ]
            torch.testing.assert_close(*grads, rtol=0, atol=0)
    finally:
        time.sleep(
            0.02
        )  # the destructor of DDP joins threads of gloo with the GIL, which they may still wait for
        dist.destroy_process_group()
