"""Hooks on every module run as often and in the order that eager's do, whichever bodies its calls run."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import torch

import purefx as px
from tests.lowering.test_one_module import KINDS, Leaf, Names, Renamed, Twice
from tests.transforms.test_outline import CIRCLE, outlined, preserved


class Inner(torch.nn.Module):
    """Calls its leaves, each as often as it drew."""

    def __init__(self, draw: random.Random, children: list[torch.nn.Module]) -> None:
        super().__init__()
        for number, child in enumerate(children):
            self.add_module(f"c{number}", child)
        self.plan = {
            flag: [
                (f"c{draw.randrange(len(children))}", draw.random() < 0.5)
                for _ in range(draw.choice([1, 2, 3]))
            ]
            for flag in (False, True)
        }

    def forward(self, x: torch.Tensor, flag: bool = False) -> torch.Tensor:
        for name, inner in self.plan[flag]:
            x = self.get_submodule(name)(x, inner) * 1.5
        return x


def drawn(seed: int) -> torch.nn.Module:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    inner: list[torch.nn.Module] = [
        Inner(draw, [Leaf() for _ in range(draw.choice([1, 2]))]) for _ in range(2)
    ]
    return Inner(draw, [*inner, Leaf()])


class Noting:
    """Puts hooks on all modules and notes what they are told; forward hooks change what they are given a little."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.said: list[Any] = []
        for path, part in module.named_modules():
            self._hook(path, part)

    def _hook(self, path: str, part: torch.nn.Module) -> None:
        def note(kind: str, told: torch.nn.Module) -> None:
            assert told is part
            self.said.append((kind, path))

        def before(told: torch.nn.Module, args: Any) -> None:
            note("before", told)

        def with_keywords(told: torch.nn.Module, args: Any, kwargs: Any) -> None:
            note("before, with keywords", told)

        def after(told: torch.nn.Module, args: Any, result: Any) -> Any:
            note("after", told)
            return result * 1.25 + 0.5

        def backward(told: torch.nn.Module, grads: Any, _: Any) -> None:
            note("backward", told)

        part.register_forward_pre_hook(before)
        part.register_forward_pre_hook(with_keywords, with_kwargs=True)
        part.register_forward_hook(after)
        part.register_full_backward_hook(backward)


def behaviour(module: torch.nn.Module) -> list[Any]:
    """Return what hooks are told, results and gradients, in two calls."""
    noting = Noting(module)
    found: list[Any] = []
    for number in range(2):
        x = torch.ones(1, 2, requires_grad=True)
        result = module(x + number)
        result.sum().backward()
        assert x.grad is not None
        found += [result.tolist(), x.grad.tolist()]
    grads = {
        name: value.grad.tolist()
        for name, value in module.named_parameters()
        if value.grad is not None
    }
    return [noting.said, found, grads]


@pytest.mark.parametrize("seed", range(8))
def test_hooks_run_as_in_eager(seed: int) -> None:
    model = drawn(seed)
    program = px.transform(
        px.import_ep(torch.export.export(copy.deepcopy(model), (torch.ones(1, 2),)))
    )
    expected = behaviour(copy.deepcopy(model))
    for to in ("graph_module", "interpreter"):
        lowered = px.lower(program, to=to)
        for module in (copy.deepcopy(lowered), pickle.loads(pickle.dumps(lowered)), lowered):
            assert behaviour(module) == expected, to


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("preserved", [(), ("a",)])
def test_hooks_of_later_calls(to: Any, preserved: tuple[str, ...]) -> None:
    model, x = Twice(), torch.ones(1, 2)
    ep = torch.export.export(copy.deepcopy(model), (x,), preserve_module_call_signature=preserved)
    module: Any = px.lower(px.transform(px.import_ep(ep)), to=to)
    assert {node.name for node in module.purefx_place.body.graph.nodes} <= {
        node.name for node in module.graph.nodes
    }
    said: dict[str, list[str]] = {"eager": [], "lowered": []}
    for name, one in (("eager", model), ("lowered", module)):
        child = one.get_submodule("a")
        always = child.register_forward_hook(
            lambda *_, to=said[name]: to.append("always"), always_call=True
        )
        removed = child.register_forward_hook(lambda *_, to=said[name]: to.append("removed"))
        one(x)
        removed.remove()
        one(x)
        child.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one(x)
        always.remove()
        with pytest.raises(ZeroDivisionError):
            one(x)
    assert said["lowered"] == said["eager"]
    assert said["eager"].count("removed") == 2


def told(module: torch.nn.Module, paths: tuple[str, ...], x: torch.Tensor) -> list[Any]:
    """Return what hooks say that are registered under several names of modules."""
    said: list[Any] = []
    handles: list[Any] = []
    for path in paths:
        child = module.get_submodule(path)
        handles += [
            child.register_forward_pre_hook(lambda *_, path=path: said.append(("before", path))),
            child.register_forward_hook(
                lambda *told, path=path: said.append((path, told[2].tolist())) or told[2] * 2
            ),
            child.register_full_backward_hook(
                lambda *_, path=path: said.append(("backward", path))
            ),
        ]
    module(x.clone().requires_grad_()).sum().backward()
    for handle in handles[:2]:
        handle.remove()
    said.append(module(x).tolist())
    return said


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("preserved_names", [(), ("list.0",)])
def test_a_hook_on_any_name_runs_for_calls_of_all(
    to: Any, preserved_names: tuple[str, ...]
) -> None:
    model, x = Renamed(), torch.ones(1, 2)
    ep = torch.export.export(
        copy.deepcopy(model), (x,), strict=True, preserve_module_call_signature=preserved_names
    )
    module = px.lower(px.transform(px.import_ep(ep)), to=to)
    assert module.get_submodule("a") is not module.get_submodule("list.0")  # or this shows nothing
    for paths in (("a", "list.0"), ("list.0",), ("list.0", "a")):
        expected = told(copy.deepcopy(model), paths, x)
        for each in (
            copy.deepcopy(module),
            pickle.loads(pickle.dumps(module)),
            px.lower(px.transform(px.import_ep(ep)), to=to),
        ):
            assert told(each, paths, x) == expected, paths


@pytest.mark.parametrize("to", KINDS)
def test_a_hook_below_any_name_runs_for_calls_of_all(to: Any) -> None:
    model, x = Names(), torch.ones(1, 2)
    module = px.lower(px.transform(px.capture(copy.deepcopy(model), (x,))), to=to)
    for paths in (("a.a",), ("b.a",), ("a", "b", "b.a", "a.a")):
        assert told(copy.deepcopy(module), paths, x) == told(copy.deepcopy(model), paths, x), paths


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize(
    "how", ["register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook"]
)
def test_hooks_that_no_call_would_run_are_refused(to: Any, how: str) -> None:
    modules = tuple(map(px.ir.Module, ("", "a", "b")))
    cut: Any = px.lower(outlined(CIRCLE, flat="a b").evolve(modules=modules), to=to)
    for child in (cut.a, cut.b, copy.deepcopy(cut).a, pickle.loads(pickle.dumps(cut)).b):
        with pytest.raises(px.errors.UnsupportedProgram, match="in the body of the root"):
            getattr(child, how)(print)
    whole: Any = px.lower(outlined(CIRCLE, preserved("a"), flat="b"), to=to)
    getattr(whole.a, how)(lambda *_: None)
    getattr(cut, how)(lambda *_: None)
