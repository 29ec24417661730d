"""What ``docs/unflatten.md`` says that differs, for who changes one import: each is so, with torch and with ours."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.unflatten import InterpreterModule, UnflattenedModule

import purefx as px
from tests.models import module_class

DOCS = Path(__file__).parents[2] / "docs" / "unflatten.md"
X = torch.randn(2, 3)
CLAIMS: dict[str, Callable[[], None]] = {}


def claim(said: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Say what a function shows."""
    return lambda show: CLAIMS.setdefault(said, show)


Either = module_class(
    "Either",
    lambda self, x, first: self.lin(x).relu() if first else self.lin(x).tanh(),
    lin=lambda: nn.Linear(3, 3),
)
Twice = module_class("Twice", lambda self, x: self.n(self.n(x, True) * 2, False), n=Either)


class Closure(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.run = lambda x: module(x) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)


class Closes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.f = Closure(self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x)


Plain = module_class("Plain", lambda self, x: x + 1)
Norm = module_class("Norm", lambda self, x: x.to(x.dtype) * 2)
Residual = module_class("Residual", lambda self, x: x + self.n(x), n=Norm)


@functools.cache
def exported(
    kind: type[nn.Module], preserve: tuple[str, ...] = (), *, strict: bool = False
) -> torch.export.ExportedProgram:
    # Not of a copy: a closure holds the module that it was made with.
    return torch.export.export(kind(), (X,), strict=strict, preserve_module_call_signature=preserve)


def modules(
    kind: type[nn.Module], preserve: tuple[str, ...] = (), *, strict: bool = False
) -> tuple[Any, Any]:
    """Return what torch makes of a module, and what we do."""
    ep = exported(kind, preserve, strict=strict)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):  # torch says what it checks
        warnings.simplefilter("ignore")
        return torch.export.unflatten(ep), px.unflatten(ep)


def raised(module: nn.Module, *args: Any) -> BaseException:
    with pytest.raises(Exception) as caught, contextlib.redirect_stdout(io.StringIO()):  # noqa: PT011  asked below
        module(*args)
    return caught.value


@claim("call nodes are named after values")
def named_after_values() -> None:
    calls = [
        {node.name: node.target for node in each.graph.nodes if node.op == "call_module"}
        for each in modules(Twice)
    ]
    assert calls == [{"n": "n", "n_1": "n@1"}, {"relu": "n", "tanh": "n@1"}]


@claim("later calls are not children")
def later_calls() -> None:
    torchs, ours = modules(Twice)
    assert isinstance(getattr(torchs, "n@1"), nn.Module)
    assert isinstance(getattr(ours, "n@1"), nn.Module)
    assert "n@1" in dict(torchs.named_modules())
    assert "n@1" not in dict(ours.named_modules())
    assert [list(each.state_dict()) for each in (torchs, ours)] == [
        ["n.lin.weight", "n.lin.bias", "n@1.lin.weight", "n@1.lin.bias"],
        ["n.lin.weight", "n.lin.bias"],
    ]
    setattr(torchs, "n@1", nn.ReLU())
    torch.testing.assert_close(torchs(X), torchs.n(X) * 2)
    with pytest.raises(px.errors.SwapError, match="'n@1' is one call of 'n'"):
        setattr(ours, "n@1", nn.ReLU())


@claim("the first call is not assigned alone while others have bodies of their own")
def first_call() -> None:
    torchs, ours = modules(Twice)
    torchs.n = nn.Tanh()
    torch.testing.assert_close(torchs(X), getattr(torchs, "n@1")(X.tanh() * 2))
    with pytest.raises(px.errors.SwapError, match="its calls run different bodies"):
        ours.n = nn.Tanh()


@claim("closures stay calls")
def closures() -> None:
    torchs, ours = modules(Closes)
    assert [node.target for node in ours.f.graph.nodes if node.op == "call_module"] == ["/.a"]
    assert [node.op for node in torchs.f.graph.nodes].count("placeholder") == 3
    torch.testing.assert_close(ours.f(X), ours.a(X) + 1)
    assert isinstance(raised(torchs.f, X), RuntimeError)


@claim("other errors")
def other_errors() -> None:
    torchs, ours = modules(Twice)
    few, shape = raised(ours), raised(ours, X[:1])
    assert isinstance(few, px.errors.InputError)
    assert isinstance(few, TypeError)
    assert type(raised(torchs)) is TypeError
    assert isinstance(shape, RuntimeError)
    assert type(shape).__name__ == "InputValueError"
    assert type(raised(torchs, X[:1])) is RuntimeError
    assert "'x'" in str(few)
    assert "argument x" in str(shape)


@claim("inputs of another dtype are refused")
def other_dtypes() -> None:
    torchs, ours = modules(Plain)
    assert torchs(X.double()).dtype is torch.float64
    assert type(raised(ours, X.double())).__name__ == "InputValueError"
    assert "Input" not in type(raised(modules(Twice)[0], X.double())).__name__


@claim("assignments are checked")
def asked_first() -> None:
    torchs, ours = modules(Residual, ("n",))
    before = ours.n
    with pytest.raises(px.errors.SwapError, match="does not accept that"):
        ours.n = nn.Bilinear(3, 3, 3)
    assert ours.n is before
    torchs.n = nn.Bilinear(3, 3, 3)
    assert isinstance(raised(torchs, X), TypeError)


@claim("`px.lower` gives other classes")
def classes() -> None:
    torchs, ours = modules(Twice)
    lowered: Any = px.lower(px.transform(px.import_ep(exported(Twice))))
    for each in (torchs, ours):
        assert isinstance(each, UnflattenedModule)
        assert isinstance(each.get_submodule("n.lin"), InterpreterModule)
    assert isinstance(lowered, torch.fx.GraphModule)
    assert isinstance(lowered.get_submodule("n.lin"), torch.fx.GraphModule)


class Enclosed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = Twice()
        self.c = nn.ModuleList([self.a])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c[0](self.a(self.a(x)))


@claim("aliases are one object where the export says so")
def one_object() -> None:
    torchs, ours = modules(Enclosed, strict=True)
    for each in (torchs, ours):
        assert each.get_submodule("c.0") is each.a
    assert any(key.startswith("c.0.") and "lin@" in key for key in torchs.state_dict())
    assert list(ours.state_dict()) == list(Enclosed().state_dict())
    for each in modules(Enclosed):
        assert each.get_submodule("c.0") is not each.a
        called: list[int] = []
        each.a.register_forward_pre_hook(lambda *_, called=called: called.append(1))
        each(X)
        assert len(called) == 2  # in eager 3


@claim("a module returns what the original did")
def gives_back() -> None:
    torchs, ours = modules(Residual, ("n",))
    writes = [
        [node for node in each.n.graph.nodes if node.target is torch.ops.aten.copy_.default]
        for each in (torchs, ours)
    ]
    assert list(map(len, writes)) == [1, 0]
    for each in (torchs, ours):
        torch.testing.assert_close(each(X), X * 3)


@pytest.mark.parametrize("said", CLAIMS)
def test_what_is_said_to_differ_differs(said: str) -> None:
    CLAIMS[said]()


def test_every_claim_of_the_page_is_a_test() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## What differs")[2]
    assert re.findall(r"^- \*\*(.*?)\*\*", section, flags=re.MULTILINE) == list(CLAIMS)


def test_assigning_unties_modules_of_two_names() -> None:
    """Not a difference to torch, but one to eager, which the page tells."""
    eager = Enclosed()
    for each, stays in ((eager, True), *((made, False) for made in modules(Enclosed))):
        each.load_state_dict(
            {name: value + 1 for name, value in each.state_dict().items()}, assign=True
        )
        assert (
            each.get_parameter("a.n.lin.weight") is each.get_parameter("c.0.n.lin.weight")
        ) is stays, type(each)
