"""Whoever looks on while a lowered module runs meets the operators of its program, though its code runs something quicker."""

from __future__ import annotations

import copy
import operator
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from purefx.ir.torch_private import FakeTensorMode, OpOverload, is_undisturbed
from purefx.lowering.code.bindings import BINDINGS, binding_of, has_metadata
from tests.lowering.test_bindings import Log
from tests.lowering.users import KINDS, lowered
from tests.models import parent

aten: Any = torch.ops.aten
EACH = pytest.mark.parametrize("to", KINDS)


class Inner(parent(linear=lambda: nn.Linear(4, 4), scale=lambda: torch.ones(4))):
    """Has operators with bindings and without, state, and an assertion about a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.linear(x))[:, 1:3]
        return torch.cat([y, y * 2], -1).to(torch.float64).to(torch.float32) * self.scale


class Model(parent(first=Inner, second=Inner)):
    """Calls two modules, and makes a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.first(x).view(-1, 4)) + torch.arange(4)
        return y.transpose(0, 1).softmax(-1).sum()


X = torch.linspace(-1, 1, 12).view(3, 4)


def made(to: str = "graph_module") -> Any:
    """Return the lowered module."""
    torch.manual_seed(0)
    return lowered(torch.export.export(Model().eval(), (X,)), to)


def as_written(module: Any) -> Any:
    """Return a copy of a module of generated code whose graphs run as fx has them, operator by operator."""
    written = copy.deepcopy(module)
    for part in list(written.modules()):
        if isinstance(part, torch.fx.GraphModule):
            part.recompile()
    return written


def operators(module: Any, path: str = "") -> list[Any]:
    """Return the operators of a module in the order in which they run."""
    found: list[Any] = []
    for node in module.get_submodule(path).graph.nodes:
        if node.op == "call_module":
            found += operators(module, f"{path}.{node.target}" if path else node.target)
        elif isinstance(node.target, OpOverload):
            found.append(node.target)
    return found


class Functions(TorchFunctionMode):
    """Writes down the functions of torch that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def functions(seen: list[Any]) -> list[Any]:
    """Return the operators and bindings among functions that were seen."""
    bindings = {binding_of(operator) for operator in filter(None, map(overload, BINDINGS))}
    return [each for each in seen if isinstance(each, OpOverload) or each in bindings]


def overload(name: str) -> Any:
    """Return an operator by its name, or None."""
    _, packet, form = name.split(".")
    return getattr(getattr(aten, packet), form, None)


@EACH
def test_a_function_mode_sees_operators(to: str) -> None:
    """In their order, each once, and no binding."""
    module = made(to)
    expected = module(X)
    with Functions() as mode:
        given = module(X)
    assert functions(mode.seen) == operators(module)
    assert torch.equal(given, expected)


@EACH
def test_dispatch_modes_see_the_same(to: str) -> None:
    """Operators below autograd with their operands, assertions among them, and what they cost."""
    module, written = made(to), as_written(made())
    with Log() as mine:
        module(X)
    with Log() as theirs:
        written(X)
    assert mine.lines == theirs.lines
    assert any("_assert_tensor_metadata" in line[0] for line in mine.lines)
    costs: list[Any] = []
    for each in (module, written):
        with FlopCounterMode(display=False) as counter:
            each(X)
        costs.append(counter.get_total_flops())
    assert costs[0] == costs[1] > 0


@EACH
def test_fx_traces_operators(to: str) -> None:
    """Proxies meet overloads only; without placeholders, one proxy for all inputs is indexed first."""
    module = made(to)
    expected = [
        each for each in operators(module) if each is not aten.arange.default
    ]  # fx runs what takes no value
    for more, first in (
        ({"concrete_args": (cast(Any, torch.fx).PH,)}, []),
        ({}, [operator.getitem]),
    ):
        traced = torch.fx.symbolic_trace(module, **more)
        assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [
            *first,
            *expected,
        ]


@EACH
@pytest.mark.parametrize("before", [False, True])
def test_compilers_see_operators(to: str, before: bool) -> None:
    """Dynamo and both ways to export meet overloads only, whether or not the module ran before."""
    module, graphs = made(to), list[torch.fx.Graph]()
    expected = module(X) if before else None

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph.graph)
        return graph.forward

    torch._dynamo.reset()
    given = torch.compile(module, fullgraph=True, backend=backend)(X)
    graphs += [
        torch.export.export(copy.deepcopy(module), (X,), strict=strict).graph
        for strict in (False, True)
    ]
    for graph in graphs:
        called = [node.target for node in graph.nodes if isinstance(node.target, OpOverload)]
        assert called == operators(module)
        assert all(node.target in called for node in graph.nodes if node.op == "call_function")
    assert expected is None or torch.equal(given, expected)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
def test_metadata_is_read_where_nobody_looks_on() -> None:
    """Of plain tensors only, and not where a dispatch mode, a tracer or a transformation would see the assertion."""
    asked = (torch.float32, torch.device("cpu"), torch.strided)
    assert has_metadata(X, *asked)
    assert has_metadata(nn.Parameter(X), *asked)
    others = (
        X.double(),
        X.to("meta"),
        X.to_sparse(),
        X.as_subclass(type("Own", (torch.Tensor,), {})),
        1.0,
        None,
    )
    assert not any(has_metadata(each, *asked) for each in others)
    for quiet in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu")):
        with quiet:
            assert is_undisturbed()
    for looking in (Log(), FakeTensorMode()):
        with looking:
            assert not has_metadata(X, *asked)
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_undisturbed())
        return x.sum()

    torch.vmap(look)(X)
    torch.func.grad(look)(X)
    torch.jit.trace(look, X, check_trace=False)
    make_fx(look)(X)
    make_fx(look, pre_dispatch=True)(X)
    assert seen == [False] * 5
