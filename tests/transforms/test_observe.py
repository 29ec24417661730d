"""``observe``: what forward hooks of eager see, beside a result that stays what it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import purefx as px
from tests.programs import Counter, Shared, exported

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def hooked(module: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """Return a copy that records what each call of a module gives, copied when it does."""
    module, seen, times = copy.deepcopy(module), dict[str, Any](), dict[str, int]()

    def hook(path: str, result: Any) -> None:
        number = times[path] = times.get(path, -1) + 1
        seen[f"{path}@{number}" if number else path] = pytree.tree_map(torch.clone, result)

    for path, each in module.named_modules():
        each.register_forward_hook(lambda _, args, result, path=path: hook(path, result))
    module.register_forward_pre_hook(lambda *_: times.clear())
    return module, seen


def agree(module: nn.Module, paths: str | list[str], *args: Any, preserve: tuple[str, ...] = (), **options: Any) -> list[str]:
    """Compare outputs, state and what is observed with hooks, flat and as a tree, over three calls; return what is observed."""
    ep = torch.export.export(copy.deepcopy(module), args, preserve_module_call_signature=preserve, **options)
    flat = px.import_ep(ep)
    names: list[str] = []
    for program in (flat, px.transform(flat)):
        before = str(program)
        result = px.observe(program, paths)
        assert str(program) == before
        assert px.verify(result, infer=True) == ()
        lowered = px.lower(result)
        eager, seen = hooked(module)
        for factor in (1, -1, 2):
            given = [arg * factor for arg in args]
            mine, found = lowered(*copy.deepcopy(given))
            theirs = eager(*copy.deepcopy(given))
            pairs = zip(pytree.tree_leaves(mine), pytree.tree_leaves(theirs), strict=True)
            assert all(torch.equal(*pair) for pair in pairs)
            for path, value in found.items():
                assert all(
                    torch.equal(*pair) for pair in zip(pytree.tree_leaves(value), pytree.tree_leaves(seen[path]), strict=True)
                )
        names = list(found)
        mine, theirs = lowered.state_dict(), eager.state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    return names


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(x)))


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), x.cos()


class Several(nn.Module):
    """A module that gives two values, one that is called twice, a shared body below another."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.block = Pair(), Block()
        self.rest = nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.pair(x)
        return self.rest(self.block(self.block(a) * b))


class Written(nn.Module):
    """What the inner module gives is written afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y.add_(1).relu_() * 2


CASES: dict[str, tuple[nn.Module, str | list[str], list[str]]] = {
    "one layer of several": (nn.Sequential(Block(), Block(), Block()), "1.down", ["1.down"]),
    "all of a shared body": (nn.Sequential(Block(), Block(), Block()), "*.up", ["0.up", "1.up", "2.up"]),
    "at two depths": (nn.Sequential(Block(), Block()), ["0", "0.up", "1.down"], ["0", "0.up", "1.down"]),
    "called twice": (Several(), "block", ["block", "block@1"]),
    "inside of what is called twice": (Several(), "block.up", ["block.up", "block.up@1"]),
    "two values": (Several(), "pair", ["pair"]),
    "below a shared one": (Several(), "rest.1.act", ["rest.1.act"]),
    "written later": (Written(), "linear", ["linear"]),
    "beside state that counts": (nn.Sequential(nn.Linear(4, 4), Counter()), "0", ["0"]),
    "batch norm in training": (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), "*", ["0", "1", "2"]),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_hooks_see(case: str) -> None:
    module, paths, names = CASES[case]
    assert agree(module, paths, X) == names


def test_sizes_may_be_dynamic() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    assert agree(nn.Sequential(Block(), Block()), "1", X, dynamic_shapes=({0: rows},)) == ["1"]


def test_a_preserved_module_gives_what_it_returned() -> None:
    assert agree(Several(), "pair", X, preserve=("pair",)) == ["pair"]


def test_nothing_inside_of_a_preserved_module_can_be_observed() -> None:
    ep = torch.export.export(Several(), (X,), preserve_module_call_signature=("block",))
    with pytest.raises(px.UnsupportedProgram, match=r"block.up cannot be observed: it stands in block, whose call signature"):
        px.observe(px.transform(px.import_ep(ep)), "block.up")


def test_bodies_stay_shared() -> None:
    program = px.transform(px.import_ep(exported(nn.Sequential(Block(), Block(), Block()), X)))
    assert len(px.observe(program, "2.up").order) == len(program.order)


def test_what_is_observed_can_be_observed_again() -> None:
    program = px.transform(px.import_ep(exported(nn.Sequential(Block(), Block()), X)))
    (result, first), second = px.lower(px.observe(px.observe(program, "0.up"), ["0.up", "1.up"]))(X)
    assert torch.equal(result, px.lower(program)(X))
    assert list(first) == ["0.up"]
    assert list(second) == ["0.up", "1.up"]
    assert torch.equal(first["0.up"], second["0.up"])


@pytest.mark.parametrize("paths", ["nowhere", ["item", "0"], "1.upp"])
def test_a_glob_that_matches_nothing(paths: Any) -> None:
    program = px.import_ep(exported(nn.Sequential(Block(), Block()), X))
    with pytest.raises(px.NamingError, match=r"observe: no module '\S+' is called that gives a value"):
        px.observe(program, paths)


def test_wrong_use() -> None:
    program = px.transform(px.import_ep(exported(Shared(), X)))
    with pytest.raises(TypeError, match="observe takes globs of module paths"):
        px.observe(program, [1])  # type: ignore[list-item]
    split = px.split_by_tags(program, ("a",), tag_of=lambda _: "a")
    with pytest.raises(px.UnsupportedProgram, match="before it is split"):
        px.observe(split, "*")
