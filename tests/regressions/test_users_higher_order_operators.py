"""A user's own higher-order operator was taken to do no more than its bodies and the operators of other libraries do.

It has no schema: it may write to its operands, draw and print, so one that wrote what another node reads was moved past it.
It may do anything, like a function in no registry, unless it is declared.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, disable_proxy_modes_tracing, track_tensor_tree

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.registered import effects_of
from tests.programs import parent

LOG: list[str] = []


class Logged(HigherOrderOperator):
    """Doubles a tensor and says so."""

    def __init__(self) -> None:
        super().__init__("purefx_logged")

    def __call__(self, x: torch.Tensor, text: str) -> Any:
        return super().__call__(x, text)


class Applied(HigherOrderOperator):
    """Runs a body, and adds random numbers to its operand before that."""

    def __init__(self) -> None:
        super().__init__("purefx_applied")

    def __call__(self, body: Any, x: torch.Tensor) -> Any:
        return super().__call__(body, x)


logged, applied = Logged(), Applied()
BELOW = torch._C.DispatchKey.CompositeExplicitAutograd
AUTOGRAD = torch._C.DispatchKey.Autograd


@logged.py_impl(BELOW)
def _(x: torch.Tensor, text: str) -> torch.Tensor:
    LOG.append(text)
    return x * 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, text: str) -> torch.Tensor:  # type: ignore[override]
        with torch._C._AutoDispatchBelowAutograd():
            return logged(x, text)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return grad * 2, None


@logged.py_impl(AUTOGRAD)
def _(x: torch.Tensor, text: str) -> Any:
    return Doubled.apply(x, text)


@logged.py_impl(FakeTensorMode)
def _(mode: Any, x: torch.Tensor, text: str) -> torch.Tensor:
    with mode:
        return x * 2


@logged.py_impl(ProxyTorchDispatchMode)
def _(mode: Any, x: torch.Tensor, text: str) -> Any:
    made = mode.tracer.create_proxy("call_function", logged, (mode.tracer.unwrap_proxy(x), text), {}, name="logged")
    with disable_proxy_modes_tracing():
        result = torch.empty_like(x)
    return track_tensor_tree(result, made, constant=None, tracer=mode.tracer)


@logged.py_functionalize_impl
def _(ctx: Any, x: torch.Tensor, text: str) -> Any:
    inner = ctx.unwrap_tensors(x)
    with ctx.redispatch_to_next():
        return ctx.wrap_tensors(logged(inner, text))


@applied.py_impl(BELOW)
@applied.py_impl(AUTOGRAD)
def _(body: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        x.add_(torch.rand_like(x))
    return body(x)


class Child(nn.Module):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.lin = text, nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return logged(self.lin(x), self.text)


class Root(parent(a=lambda: Child("a"), b=lambda: Child("b"))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(x) + logged(x, "root")


def said(module: nn.Module, x: torch.Tensor) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return the log of two calls, the result, and the gradient to the input."""
    LOG.clear()
    leaf = x.clone().requires_grad_()
    result = module(leaf) + module(leaf)
    result.sum().backward()
    assert leaf.grad is not None
    return list(LOG), result.detach(), leaf.grad


def assert_same(made: nn.Module, eager: nn.Module) -> None:
    given, expected = said(made, X), said(eager, X)
    assert given[0] == expected[0]
    torch.testing.assert_close(given[1:], expected[1:])


X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]])


@pytest.mark.parametrize("decomposed", [False, True])
def test_exported_programs_with_one(decomposed: bool, tmp_path: Path) -> None:
    """Import, transform, split, lower, export again and save: log, results and gradients are eager's."""
    torch.manual_seed(0)
    eager = Root()
    ep = torch.export.export(copy.deepcopy(eager), (X,), preserve_module_call_signature=("b",))
    program = px.transform(px.import_ep(ep.run_decompositions() if decomposed else ep))
    path = tmp_path / "logged.purefx"
    allow = set(program.foreign_operators)
    assert allow == {"higher_order.purefx_logged"}
    px.save(program, path, allow=allow)
    loaded = px.load(path, allow=allow)
    assert loaded == program
    modules = [px.lower(program), px.lower(program, to="interpreter"), px.lower(px.split_balanced(program, 2)), px.lower(loaded)]
    modules += [px.lower(px.deduplicate(program)), px.to_ep(program).module()]
    for module in modules:
        assert_same(module, eager)
    swapped, expected = px.swap_modules(program, {"b": Child("c")}), copy.deepcopy(eager)
    expected.b = Child("c")
    expected.b.load_state_dict(px.lower(swapped).get_submodule("b").state_dict())
    assert_same(px.lower(swapped), expected)


def traced() -> torch.fx.GraphModule:
    """Return a graph of one that writes its operand and draws; others read that and draw as well."""
    body = torch.fx.Graph()
    body.output((body.call_function(torch.ops.aten.neg.default, (body.placeholder("p"),)),))
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    early = graph.call_function(torch.ops.aten.neg.default, (x,))
    made = graph.call_function(applied, (graph.get_attr("body"), x))
    late = graph.call_function(torch.ops.aten.mul.Tensor, (x, 3))
    drawn = graph.call_function(torch.ops.aten.rand_like.default, (early,))
    graph.output((early, made, late, drawn))
    return torch.fx.GraphModule({"body": torch.fx.GraphModule({}, body)}, graph)


def test_what_it_does_is_not_known() -> None:
    """It stays behind what reads its operand, and before what reads it later and what draws."""
    program = px.import_fx(traced())
    assert dependencies(program, program.main)[1:] == [[0], [1], [0, 1]]
    for first, late in (("neg", "applied"), ("applied", "mul"), ("applied", "rand")):
        names = {word: next(node.name for node in program.main.nodes if word in node.name) for word in (first, late)}
        with pytest.raises(px.errors.PartitionError, match="depends on"):
            px.split_by_tags(px.transform(program), ("a", "b"), tag_of={names[first]: "b", names[late]: "a"})
    expected, lowered = traced(), px.lower(px.transform(program))
    for module in (expected, lowered):
        torch.manual_seed(0)
        module.last = module(X.clone())  # type: ignore[assignment]
    torch.testing.assert_close(lowered.last, expected.last)


def test_it_is_declared() -> None:
    """For one import or for the process; it does what its bodies do all the same.  Those of torch are known."""
    program = px.import_fx(traced(), effects={applied: px.PURE})
    assert dependencies(program, program.main)[1:] == [[], [], [0]]
    effects = next(node.do.effects for node in program.main.nodes if "applied" in node.name and isinstance(node.do, px.Op))
    assert effects == px.Effects(through_bodies=True)
    assert effects_of(applied) == px.ir.ANYTHING.__class__(random=True, ordered=True, unknown=True, through_bodies=True)
    px.declare(applied, px.Effects(writes=(px.ir.ArgAt(1, "x"),), random=True))
    try:
        program = px.import_fx(traced())
        assert dependencies(program, program.main)[1:] == [[0], [1], [0, 1]]
        assert px.verify(px.transform(program)) == ()
    finally:
        px.declare(applied, None)
    with pytest.raises(px.errors.EffectsError, match="higher-order operator of torch"):
        px.declare(torch.ops.higher_order.cond, px.PURE)
