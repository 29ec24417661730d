"""``to_device``: where everything is after a move, what still shares memory, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.operators import op_of
from tests.models import Shared, exported, parent

X = torch.linspace(-2, 2, 12).reshape(3, 4)
META, CPU = torch.device("meta"), torch.device("cpu")


class Tied(nn.Module):
    """Tied weights, a view into a buffer, an overlapping window, a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("whole", torch.zeros(4))
        self.register_buffer("part", self.get_buffer("whole")[1:3], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("part").add_(1)
        return self.b(self.a(x)) + self.get_buffer("whole") + self.frozen


class Says(nn.Module):
    def forward(self, x: torch.Tensor, scale: int = 2) -> torch.Tensor:
        made = (
            torch.zeros(4, device=x.device) + torch.arange(4) + torch.full((4,), 1.0, device="cpu")
        )
        wide = x.to("cpu", torch.float64).to(torch.float32)
        return (
            wide
            + made.to(x.device) * scale
            + torch.tensor([1.0, 2.0, 3.0, 4.0])
            + torch.ones_like(x, device="cpu")
        )


class Under(parent(linear=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Conditional(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y + torch.ones(4), lambda y: y.sin(), (x,))


MODULES: dict[str, nn.Module] = {
    "linear": nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2)),
    "shared": Shared(),
    "batch norm": nn.BatchNorm1d(4),
    "tied": Tied(),
    "says": Says(),
}


def imported(module: nn.Module, *args: Any, tree: bool = True) -> px.Program:
    program = px.import_ep(exported(module, *args))
    return px.transform(program) if tree else program


def described(result: Any) -> list[Any]:
    return [(leaf.device, leaf.dtype, leaf.shape) for leaf in pytree.tree_leaves(result)]


def devices_of(program: px.Program) -> set[str]:
    """The devices that are said anywhere."""
    metas = [
        meta.get("val") for name in program.order for meta in program.graphs[name].metas.values()
    ]
    found = {str(value.device) for value in metas if isinstance(value, torch.Tensor)}
    found |= {
        str(slot.value.device)
        for _, slot in program.state.pairs
        if isinstance(slot.value, torch.Tensor)
    }
    kinds = [spec.type for spec in program.signature.inputs if isinstance(spec, px.ir.UserInput)]
    found |= {kind.device for kind in kinds if isinstance(kind, px.ir.TensorType)}
    for _, node in program.nodes():
        values = (*node.args, *(value for _, value in node.kwargs))
        found |= {str(value) for value in values if isinstance(value, torch.device)}
    return found


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize("case", MODULES)
def test_on_the_meta_device_it_computes_what_the_moved_module_does(case: str, tree: bool) -> None:
    module = MODULES[case]
    program = imported(module, X, tree=tree)
    text = program.text()
    moved = px.to_device(program, "meta")
    assert program.text() == text
    assert devices_of(moved) == {"meta"}
    assert px.verify(moved, infer=True) == ()
    given = X.to("meta")
    eager = None if case == "says" else copy.deepcopy(module).to("meta")(given)
    expected = described(torch.empty(3, 4, device="meta") if eager is None else eager)
    for lowered in (
        px.lower(moved),
        px.lower(program, device="meta"),
        px.lower(moved, to="interpreter"),
    ):
        assert described(lowered(given)) == expected
        state = [
            (name, value.device, value.requires_grad)
            for name, value in lowered.state_dict(keep_vars=True).items()
        ]
        assert state == [
            (name, META, value.requires_grad)
            for name, value in module.state_dict(keep_vars=True).items()
        ]


def test_a_mapping_moves_all_at_once() -> None:
    nodes = [
        px.Node(
            name,
            op_of(torch.ops.aten.zeros.default),
            (px.ir.Items([4]),),
            (("device", torch.device(at)),),
        )
        for name, at in (
            ("a", "cuda:0"),
            ("b", "cuda:1"),
            ("c", "cuda:2"),
            ("d", "cuda"),
            ("e", "cpu"),
        )
    ]
    program = px.Program.of({"": px.Graph((), tuple(nodes), ())})

    def after(devices: dict[str, str]) -> list[str]:
        return [
            str(dict(node.kwargs)["device"]) for node in px.to_device(program, devices).main.nodes
        ]

    assert after({"cuda:0": "cuda:1", "cuda:1": "cuda:0"}) == [
        "cuda:1",
        "cuda:0",
        "cuda:2",
        "cuda:1",
        "cpu",
    ]
    assert after({"cuda": "meta", "cuda:1": "cpu"}) == ["meta", "cpu", "meta", "meta", "cpu"]
    assert after({"cpu": "cuda:3"}) == ["cuda:0", "cuda:1", "cuda:2", "cuda", "cuda:3"]


def on_fake_cuda(module: nn.Module, *args: torch.Tensor) -> px.Program:
    """The program of a module on a CUDA device that is not there."""
    program = imported(module, *args)
    with FakeTensorMode() as mode:
        fakes = {slot.cell: mode.from_tensor(slot.value) for _, slot in program.state.pairs}
    slots = {
        name: px.ir.Slot(slot.kind, fakes[slot.cell], slot.cell, slot.storage, slot.persistent)
        for name, slot in program.state.pairs
    }
    return px.to_device(
        program.evolve(state=px.ir.State(program.state.order, program.state.slots.update(slots))),
        "cuda",
    )


@pytest.mark.parametrize("case", ["linear", "shared", "tied", "says"])
def test_cuda_without_contents(case: str) -> None:
    """Fake state moves to devices that are not here; a device without an index gets one."""
    program = on_fake_cuda(MODULES[case], X)
    assert devices_of(program) == {"cuda:0"}
    assert devices_of(px.to_device(program, {"cuda:0": "cuda:1"})) == {"cuda:1"}
    assert devices_of(px.to_device(program, {"cuda": "cpu"})) == {"cpu"}
    assert px.to_device(program, "cuda:0") is program
    assert px.verify(program) == ()


def test_regions_under_autocast_follow() -> None:
    program = on_fake_cuda(Under(), X)
    regions = [node.args[0] for _, node in program.nodes() if "autocast" in str(node.do)]
    assert regions == ["cuda"]
    assert [
        node.args[0]
        for _, node in px.to_device(program, {"cuda:0": "cuda:1"}).nodes()
        if "autocast" in str(node.do)
    ] == ["cuda"]
    with pytest.raises(px.errors.UnsupportedProgram, match="autocast does not support 'meta'"):
        px.to_device(program, "meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_contents_do_not_move_where_there_is_no_device() -> None:
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"'weight', 'bias' cannot be moved .*move to the meta"
    ):
        px.to_device(imported(nn.Linear(4, 4), X), "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", [*MODULES, "under", "conditional"])
def test_on_a_real_device(case: str) -> None:
    module = {**MODULES, "under": Under(), "conditional": Conditional()}[case].eval()
    program = imported(module, X)
    moved = px.to_device(program, "cuda")
    assert px.verify(moved, infer=True) == ()
    there = px.lower(moved)(X.cuda())
    assert there.device.type == "cuda"
    torch.testing.assert_close(there.cpu(), px.lower(program)(X), rtol=2e-2, atol=2e-2)
    assert px.to_device(moved, "cpu") == program
