"""Issue 4, numbers 3, 4 and 6: state that is loaded and converted, guards that stay, long chains of reads.

A lowered module is loaded, converted, trained and called like eager, and refuses the inputs that ``ep.module()``
refuses.  What modules hold is in ``test_state.py``; that two names of one module are one object again is not asked.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from attrs import evolve, frozen
from torch import nn
from torch.export import Dim
from torch.nn.utils import parametrizations

import purefx as px
from tests.programs import parent
from tests.unflatten.harness import Case, Cases, compare, export, exported

CASES = Cases()
X = (torch.randn(4, 3),)
BUILDS: tuple[Callable[[torch.export.ExportedProgram], nn.Module], ...] = (
    px.unflatten,
    lambda ep: px.lower(px.transform(px.import_ep(ep)), to="interpreter"),
)

EACH_WAY = pytest.mark.parametrize("way", ["plain", pytest.param("strict, decomposed, saved", marks=pytest.mark.slow)])
"""The two ends: as the exporter gives it, and after everything that may happen to it."""


@CASES.add(X, preserve=("a",))
class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


@CASES.add(X, preserve=("c",))
class NonPersistent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("p", torch.zeros(3), persistent=False)
        self.register_buffer("kept", torch.randn(3))
        self.c = nn.Linear(3, 3)
        self.c.register_buffer("q", torch.full((3,), 0.5), persistent=False)
        self.c.constant = torch.arange(3.0)

    def forward(self, x: Any) -> Any:
        self.p.add_(1)
        self.kept.mul_(2)
        return self.c(x) + self.p * self.c.q + self.kept + self.c.constant + torch.tensor([1.0, 2.0, 3.0])


@CASES.add(X, preserve=("norm",))
class NormTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(cast(torch.Tensor, self.norm.running_mean))

    def forward(self, x: Any) -> Any:
        return self.norm(self.norm(x) * 2)


@CASES.add(X)
class ListsAndDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ps = nn.ParameterList([torch.randn(3), torch.randn(3)])
        self.pd = nn.ParameterDict({"b": torch.randn(3), "a": torch.randn(3)})

    def forward(self, x: Any) -> Any:
        return x * self.ps[0] + self.ps[1] * self.pd["a"] + self.pd["b"]


@CASES.add(X, preserve=("l",))
class WeightNorm(parent(l=lambda: parametrizations.weight_norm(nn.Linear(3, 3)))):
    def forward(self, x: Any) -> Any:
        return self.l(x)


@CASES.add(X)
class Held(nn.Module):
    """Uses its parameters through a Python list, where the exporter finds them under no name."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.w = nn.Parameter(torch.randn(3))
        self.held = [self.w, self.l.weight]

    def forward(self, x: Any) -> Any:
        return self.l(x) * self.w + self.held[0] + self.held[1].sum()


@CASES.add(X)
class TwoNames(nn.Module):
    """Holds one module under three names; two are called."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.b = self.unused = self.a

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


def ties(module: nn.Module) -> set[frozenset[str]]:
    """Return the names of parameters and buffers, those of one object together."""
    names: dict[int, set[str]] = {}
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), set()).add(name)
    return {frozenset(group) for group in names.values()}


def tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return every tensor of a module: parameters, buffers, and the constants of all its modules."""
    constants = [value for child in module.modules() for value in vars(child).values() if isinstance(value, torch.Tensor)]
    return [*module.parameters(), *module.buffers(), *constants]


EACH = pytest.mark.parametrize("case", [pytest.param(case, id=case.make.__name__) for case in CASES.all])


@EACH_WAY
@EACH
def test_loaded(case: Case, way: str) -> None:
    eager = case.make()
    ep = exported(case, eager, way)
    for build in BUILDS:
        lowered, twin = build(ep), case.make()
        twin.load_state_dict(lowered.state_dict(), strict=True)
        compare(lowered, twin, case)
        compare(build(ep), eager, case)
        lowered, other = build(ep), case.make()
        lowered.load_state_dict(other.state_dict(), strict=True)
        assert ties(lowered) == ties(eager)
        compare(lowered, other, case)


@pytest.mark.parametrize("way", ["plain", "decomposed"])
@EACH
def test_converted(case: Case, way: str) -> None:
    eager = case.make()
    ep = exported(case, eager, way)
    double = evolve(case, calls=[tuple(arg.double() for arg in args) for args in case.calls])
    for build in BUILDS:
        lowered = build(ep).double()
        stored = [*lowered.parameters(), *lowered.buffers()]  # constants keep their type, as in eager
        assert {tensor.dtype for tensor in stored} <= {torch.float64, torch.int64}
        assert ties(lowered) == ties(eager)
        compare(lowered, copy.deepcopy(eager).double(), double)
        lowered = build(ep).to("meta")
        assert {tensor.device.type for tensor in tensors(lowered)} == {"meta"}
        assert ties(lowered) == ties(eager)
        found = lowered(X[0].to("meta"))
        assert found.is_meta
        assert found.shape == (4, 3)


@pytest.mark.parametrize("kind", [Tied, NonPersistent, ListsAndDicts])
def test_refused(kind: type[nn.Module]) -> None:
    eager = kind()
    lowered = px.unflatten(export(eager, X))
    state = {"extra": torch.ones(1)}
    expected = eager.load_state_dict(state, strict=False)
    assert lowered.load_state_dict(state, strict=False) == expected
    for name in (*expected.missing_keys, "extra"):
        with pytest.raises(RuntimeError, match=name):
            lowered.load_state_dict(state, strict=True)


@pytest.mark.parametrize("kind", [Tied, NormTwice])
@pytest.mark.parametrize("way", ["plain", "decomposed"])
def test_on_meta(kind: type[nn.Module], way: str) -> None:
    """A module without memory is exported, and gets its state afterwards."""
    real = kind()
    with torch.device("meta"):
        ep = export(kind(), (X[0].to("meta"),), way=way)
    for build in BUILDS:
        lowered = build(ep)
        assert {tensor.device.type for tensor in tensors(lowered)} == {"meta"}
        assert lowered(X[0].to("meta")).is_meta
        lowered.load_state_dict(copy.deepcopy(real.state_dict()), strict=True, assign=True)
        compare(lowered, real, Case(kind, [X, X]))


@pytest.mark.parametrize("kind", [Held, Tied, TwoNames, WeightNorm])
@pytest.mark.parametrize("way", ["plain", "decomposed"])
def test_trained(kind: type[nn.Module], way: str) -> None:
    """Each parameter is one parameter for the optimizer, also in copies and after loading."""
    eager, other = kind(), kind()
    ep = export(eager, X, way=way)
    for build in BUILDS:
        file = io.BytesIO()
        torch.save(build(ep), file)
        file.seek(0)
        loaded = build(ep)
        loaded.load_state_dict(other.state_dict())
        pairs = (
            (build(ep), eager),
            (copy.deepcopy(build(ep)), eager),
            (torch.load(file, weights_only=False), eager),
            (loaded, other),
        )
        for lowered, original in pairs:
            expected = copy.deepcopy(original)
            assert [name for name, _ in lowered.named_parameters()] == [name for name, _ in expected.named_parameters()]
            for module in (lowered, expected):
                optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
                for _ in range(2):
                    optimizer.zero_grad()
                    module(X[0]).square().sum().backward()
                    optimizer.step()
            torch.testing.assert_close(lowered.state_dict(), expected.state_dict(), rtol=0, atol=0)


@frozen
class Guarded:
    """A program with the calls that ``ep.module()`` takes, and those that it refuses because of an argument."""

    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    dynamic: Any
    taken: tuple[tuple[Any, ...], ...]
    refused: tuple[tuple[str, tuple[Any, ...]], ...]
    kwargs: tuple[str, ...] = ()
    """The names of the last arguments, which are passed by name."""

    def call(self, module: Any, args: tuple[Any, ...]) -> Any:
        count = len(args) - len(self.kwargs)
        return module(*args[:count], **dict(zip(self.kwargs, args[count:], strict=True)))


def rows(*counts: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.arange(3.0 * count).reshape(count, 3) for count in counts)


class Halved(parent(l=lambda: nn.Linear(3, 3))):
    def forward(self, inner: Any) -> Any:
        torch._check(inner.shape[0] % 2 == 0)
        torch._check(inner.shape[0] <= 10)
        return self.l(inner)[: inner.shape[0] // 2]


class Checked(parent(child=Halved)):
    """The checks are in a child, where the argument has another name."""

    def forward(self, data: Any) -> Any:
        return self.child(data) * 2


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


class Scaled(nn.Module):
    def forward(self, d: Any, *, scale: Any) -> Any:
        return d["a"][0] * scale


class Long(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x[1:] + y


N = Dim("n", min=3, max=8)
GUARDED = {
    "static": Guarded(Doubled, rows(4), None, (rows(4),), (("x", rows(5)), ("x", (torch.zeros(4, 2),)))),
    "static dim": Guarded(Doubled, rows(4), {"x": {0: N}}, (rows(5),), (("x", (torch.zeros(5, 2),)), ("x", (torch.zeros(5),)))),
    "range": Guarded(Doubled, rows(4), {"x": {0: N}}, (rows(3), rows(8)), (("x", rows(2)), ("x", rows(9)))),
    "no maximum": Guarded(Doubled, rows(4), {"x": {0: Dim("n", min=3)}}, (rows(3), rows(99)), (("x", rows(2)),)),
    "check": Guarded(Checked, rows(4), {"data": {0: Dim.DYNAMIC}}, (rows(4), rows(10)), (("data", rows(5)), ("data", rows(12)))),
    "derived": Guarded(
        Long, rows(5, 4), {"x": {0: Dim("m", min=3) + 1}, "y": {0: Dim("m", min=3)}}, (rows(4, 3),), (("x", rows(6, 4)),)
    ),
    "nested": Guarded(
        Scaled,
        ({"a": [rows(4)[0]]}, *rows(4)),
        {"d": {"a": [{0: N}]}, "scale": {0: N}},
        (({"a": [rows(8)[0]]}, *rows(8)),),
        (("d['a'][0]", ({"a": [rows(9)[0]]}, *rows(9))), ("scale", ({"a": [rows(5)[0]]}, *rows(6)))),
        kwargs=("scale",),
    ),
}


@pytest.mark.parametrize("way", ["plain", "decomposed, saved"])
@pytest.mark.parametrize("name", GUARDED)
def test_guarded(name: str, way: str) -> None:
    guarded, eager = GUARDED[name], GUARDED[name].make()
    count = len(guarded.args) - len(guarded.kwargs)
    kwargs = dict(zip(guarded.kwargs, guarded.args[count:], strict=True))
    ep = export(eager, guarded.args[:count], kwargs, way=way, dynamic_shapes=guarded.dynamic)
    theirs = ep.module()
    for lowered in (build(ep) for build in BUILDS):
        for args in guarded.taken:
            expected = guarded.call(eager, args)
            assert torch.equal(guarded.call(theirs, args), expected)
            assert torch.equal(guarded.call(lowered, args), expected)
        for argument, args in guarded.refused:
            with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)):
                guarded.call(theirs, args)
            with pytest.raises(px.errors.InputValueError) as caught:
                guarded.call(lowered, args)
            assert f"argument {argument}:" in str(caught.value)


class Counting(parent(n=lambda: torch.zeros(()))):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x * 0.5 + self.n


class OneChild(nn.Module):
    """A child that writes and reads its buffer, over and over."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.child = length, Counting()

    def forward(self, x: Any) -> Any:
        for _ in range(self.length):
            x = self.child(x)
        return x + self.child.n


class Reading(nn.Module):
    def forward(self, x: Any, n: Any) -> Any:
        return x * 0.5 + n


class ManyChildren(nn.Module):
    """The parent writes before each child reads."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.layers = nn.ModuleList([Reading() for _ in range(length)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            self.n.add_(1)
            x = layer(x, self.n)
        return x + self.n


@pytest.mark.parametrize(("kind", "length"), [pytest.param(OneChild, 512, marks=pytest.mark.slow), (ManyChildren, 64)])
def test_chained(kind: Callable[[int], nn.Module], length: int) -> None:
    """Preserved signatures; ``torch.export.unflatten`` 2.13 ends in a RecursionError at 512."""
    eager = kind(length)
    preserve = tuple(name for name, module in eager.named_modules() if isinstance(module, Counting | Reading))
    ep = export(eager, X, preserve=preserve)
    for build in BUILDS:
        compare(build(ep), eager, Case(lambda: eager, [X, X, X]))
