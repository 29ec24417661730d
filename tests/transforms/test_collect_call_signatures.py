"""``collect_call_signatures``: tracepoints of a traced graph become preserved signatures, as for exported programs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._export.wrappers import _wrap_submodules  # what torch.export puts around preserved modules
from torch.fx.experimental.proxy_tensor import make_fx

import purefx as px
from purefx.ir.operators import op_of
from tests.programs import NEG, flat, parent

X = torch.arange(8.0).reshape(2, 4)

POINT = op_of(torch.ops.higher_order._export_tracepoint)


class Sub(parent(lin=lambda: nn.Linear(4, 4))):
    """Takes a keyword, gives a dict."""

    def forward(self, x: torch.Tensor, *, k: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": self.lin(x), "b": x + k}


class Model(parent(sub=Sub, out=lambda: nn.Linear(4, 4))):
    """Calls one module twice, the second time with results of the first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.sub(x, k=x * 2)
        second = self.sub(first["b"], k=first["a"])
        return self.out(second["a"]) + second["b"]


def traced(module: nn.Module, *paths: str) -> tuple[px.Program, dict[str, Any]]:
    """Return what make_fx traces under torch's hooks, and the pytrees that those noted."""
    specs: dict[str, Any] = {}
    with torch.no_grad(), _wrap_submodules(module, paths, specs):
        return px.import_fx(make_fx(module)(X)), specs


def test_a_trace_says_what_an_export_says() -> None:
    module = Model()
    program, specs = traced(module, "sub")
    result = px.collect_call_signatures(program, specs=specs)
    assert px.verify(result) == ()
    assert px.collect_call_signatures(result) is result
    exported = px.capture(module, (X,), preserve_module_call_signature=("sub",))
    assert set(result.call_signatures) == set(exported.call_signatures) == {px.Frame("sub"), px.Frame("sub", 1)}
    for frame, signature in exported.call_signatures.items():
        assert (result.call_signatures[frame].in_spec, result.call_signatures[frame].out_spec) == (
            signature.in_spec,
            signature.out_spec,
        )
    inside = [node.do.name for node in result.main.nodes if px.Frame("sub", 1) in node.stack and type(node.do) is px.Op]
    assert (inside[0], inside[-1]) == ("purefx.takes", "purefx.gives")
    lowered = px.lower(px.transform(result))
    assert torch.equal(lowered(X), module(X))
    given = lowered.sub(X, k=X)
    assert list(given) == ["a", "b"]
    assert torch.equal(given["a"], module.sub.lin(X))


def test_nested_calls_and_no_specs() -> None:
    module = Model()
    program, specs = traced(module, "sub", "sub.lin")
    for given in (specs, None):
        result = px.collect_call_signatures(program, specs=given)
        assert px.verify(result) == ()
        assert {str(frame) for frame in result.call_signatures} == {"sub", "sub@1", "sub.lin", "sub.lin@1"}
        stacks = {" / ".join(map(str, node.stack)) for node in result.main.nodes}
        assert stacks == {"", "sub", "sub@1", "sub / sub.lin", "sub@1 / sub.lin@1"}
        lowered = px.lower(px.transform(result))
        assert torch.equal(lowered(X), module(X))
        assert torch.equal(lowered.get_submodule("sub.lin")(X), module.sub.lin(X))
    assert str(result.call_signatures[px.Frame("sub")].in_spec).count("*") == 2


def point(name: str, kind: Any, path: Any, *refs: str, stack: tuple[px.Frame, ...] = ()) -> px.Node:
    """Return a tracepoint."""
    return px.Node(name, POINT, tuple(map(px.Ref, refs)), (("kind", kind), ("path", path)), stack)


TAKES, GIVES = "module_call_inputs", "module_call_outputs"


def test_stacks_that_are_there_are_kept() -> None:
    """A tracer that writes stacks says which call it is, and what is inside it."""
    outer, inner = px.Frame("a", 4), px.Frame("a.b")
    nodes = [
        point("t", TAKES, "a", "x", stack=(outer,)),
        px.Node("y", NEG, (px.Ref("x"),), (), (inner,)),
        px.Node("z", NEG, (px.Ref("y"),), (), (outer,)),
        point("u", GIVES, "a", "z", stack=(outer,)),
    ]
    result = px.collect_call_signatures(flat(nodes, px.Ref("z"), "x"))
    assert [node.stack for node in result.main.nodes] == [(outer,), (outer, inner), (outer,), (outer,)]
    assert set(result.call_signatures) == {outer}
    assert px.verify(result) == ()
    assert set(px.normalize_stacks(result).call_signatures) == {px.Frame("a")}
