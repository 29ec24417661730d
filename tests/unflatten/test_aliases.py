"""A module under several names: one object where the export says so, which strict ones do, as with torch and in eager."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.calls.call_graph import calls_by_label
from tests.models import parent
from tests.tables import in_turns

X = torch.randn(2, 3)


class Encoder(
    parent(lin=lambda: nn.Linear(3, 3), norm=lambda: nn.LayerNorm(3), drop=lambda: nn.Dropout(0.0))
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.drop(self.lin(x))).relu()


class Listed(nn.Module):
    """In a list and as an attribute, and called twice under one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Encoder()
        self.c = nn.ModuleList([self.a, nn.Linear(3, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c[0](self.a(self.a(x)))


class Nested(nn.Module):
    """A container whose children have other names too."""

    def __init__(self) -> None:
        super().__init__()
        self.e = Encoder()
        self.f = nn.Sequential(self.e, self.e.norm, nn.Sequential(self.e.lin))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(self.e(x))


class Tied(nn.Module):
    """Two modules of one weight, which are two."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight, self.b.bias = self.a.weight, self.a.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


class Count(parent(n=lambda: torch.zeros(3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        return x * self.n


def norms() -> nn.Module:
    norm = nn.LayerNorm(3)
    return nn.Sequential(norm, nn.ReLU(), norm)


def counts() -> nn.Module:
    count = Count()
    return nn.Sequential(count, nn.Sequential(count), count)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "norms": norms, "listed": Listed, "nested": Nested, "tied": Tied, "counts": counts,
}  # fmt: skip
KNOWN: dict[str, Any] = {}


def exported(name: str) -> tuple[nn.Module, Any]:
    """Return a model and its strict export."""
    if name not in KNOWN:
        torch.manual_seed(0)
        model = MODELS[name]()
        KNOWN[name] = model, torch.export.export(copy.deepcopy(model), (X,), strict=True)
    return KNOWN[name]


def objects(module: nn.Module, like: nn.Module) -> set[tuple[str, ...]]:
    """Return which paths of a model lead to one object."""
    paths = [path for path, _ in like.named_modules(remove_duplicate=False)]
    return {
        tuple([b for b in paths if module.get_submodule(b) is module.get_submodule(a)])
        for a in paths
    }


def pickled(module: Any) -> Any:
    return pickle.loads(pickle.dumps(module))


def saved(program: px.Program, folder: Path) -> px.Program:
    px.save(program, folder / "p.px")
    loaded = px.load(folder / "p.px")
    assert loaded == program
    assert px.parse(program.text()).modules == program.modules
    return loaded


WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "interpreter": lambda ep, _: px.unflatten(ep),
    "graph_module": lambda ep, _: px.lower(px.transform(px.import_ep(ep))),
    "deepcopy": lambda ep, _: copy.deepcopy(px.unflatten(ep)),
    "pickle": lambda ep, _: pickled(px.lower(px.transform(px.import_ep(ep)))),
    "load": lambda ep, folder: px.lower(px.transform(saved(px.import_ep(ep), folder))),
    "inline": lambda ep, _: px.lower(px.transform(px.inline(px.transform(px.import_ep(ep))))),
    "to_ep": lambda ep, _: px.unflatten(px.to_ep(px.transform(px.import_ep(ep)))),
    "torch of to_ep": lambda ep, _: torch.export.unflatten(px.to_ep(px.import_ep(ep))),
}


@in_turns(name=list(MODELS), way=list(WAYS))
def test_what_is_one_object_in_eager_is_one(name: str, way: str, tmp_path: Path) -> None:
    model, ep = exported(name)
    eager, ours = copy.deepcopy(model), WAYS[way](ep, tmp_path)
    if way != "torch of to_ep":
        assert [path for path, _ in ours.named_modules()] == [
            path for path, _ in eager.named_modules()
        ]
        for _ in range(3):
            torch.testing.assert_close(ours(X), eager(X), rtol=0, atol=0)
        assert list(ours.state_dict()) == list(eager.state_dict())
    assert objects(ours, model) == objects(eager, model)


@pytest.mark.parametrize("name", MODELS)
def test_hooks_act_on_the_calls_of_all_names(name: str) -> None:
    model, ep = exported(name)
    for path, _ in model.named_modules(remove_duplicate=False):
        eager, ours = copy.deepcopy(model), px.unflatten(ep)
        for module in (eager, ours):
            module.get_submodule(path).register_forward_hook(lambda _, __, out: out * 2)
            module.get_submodule(path).register_forward_pre_hook(lambda _, args: (args[0] + 1,))
        torch.testing.assert_close(ours(X), eager(X))


class Uncalled(nn.Module):
    """Calls a module by one of its names, and a child of it by another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Encoder()
        self.a = self.first
        self.lin = self.first.lin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(self.a(x))


@in_turns(name=[*MODELS, "uncalled"], strict={"not strict": False, "strict": True})
def test_capture_knows_what_is_one_object(name: str, strict: bool, tmp_path: Path) -> None:
    """Called or not, whatever the exporter says: hooks, assigned state and state that is replaced are as in eager."""
    model = {**MODELS, "uncalled": Uncalled}[name]()
    program = px.capture(copy.deepcopy(model), (X,), strict=strict)
    assert px.verify(program, infer=True) == ()
    for each in (program, saved(program, tmp_path)):
        module = px.lower(px.transform(each))
        assert objects(module, model) == objects(model, model)
        assert [path for path, _ in module.named_modules()] == [
            path for path, _ in model.named_modules()
        ]
    for path, part in model.named_modules(remove_duplicate=False):
        said: dict[bool, list[Any]] = {}
        for is_eager, each in ((True, copy.deepcopy(model)), (False, copy.deepcopy(module))):
            child, notes = each.get_submodule(path), said.setdefault(is_eager, [])
            child.register_forward_hook(
                lambda told, *_, notes=notes, child=child: notes.append(told is child)
            )
            notes.append(each(X).tolist())
            child.load_state_dict(
                {key: value + 1 for key, value in part.state_dict().items()}, assign=True
            )
            notes += [
                each(X).tolist(),
                {key: value.tolist() for key, value in each.state_dict().items()},
            ]
            for key, value in list(child.named_parameters(recurse=False)):
                delattr(child, key)
                setattr(child, key, value.detach() * 2)
            notes += [each(X).tolist(), list(each.state_dict())]
        silent = calls_by_label(px.transform(program))
        if path in silent or any(part is model.get_submodule(each) for each in silent):
            assert said[False] == said[True], path


def test_a_child_is_put_in_for_all_names_of_its_parent() -> None:
    model, ep = exported("listed")
    eager = copy.deepcopy(model)
    ours: Any = px.unflatten(ep)
    other = nn.Linear(3, 3)
    for module in (eager, ours):
        listed: Any = module.get_submodule("c.0")
        listed.lin = other
    torch.testing.assert_close(ours(X), eager(X))
    assert ours.a.lin is other
    with pytest.raises(px.errors.SwapError, match="does not accept that"):
        ours.a.lin = nn.Bilinear(3, 3, 3)


def test_gradients_and_conversion_reach_the_one_object() -> None:
    model, ep = exported("norms")
    eager, ours = copy.deepcopy(model), px.unflatten(ep)
    for module in (eager, ours):
        module.double()(X.double()).sum().backward()
        module.get_submodule("2").zero_grad()
        assert module.get_submodule("0").weight.grad is None
        module(X.double()).pow(2).sum().backward()
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_calls_of_other_sizes_are_two_objects_as_with_torch() -> None:
    class Sizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Sequential(nn.Flatten(0, 1), nn.ReLU())
            self.rest = nn.ModuleList([nn.Linear(3, 4), self.act])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rest[1](
                self.rest[0](self.act(x.unsqueeze(0))).unsqueeze(2).expand(-1, -1, 2)
            )

    model = Sizes()
    ep = torch.export.export(model, (X,), strict=True)
    for module in (torch.export.unflatten(ep), px.unflatten(ep), px.lower(px.import_ep(ep))):
        torch.testing.assert_close(module(X), model(X))
