"""torch.compile, symbolic_trace and exporting again, of roots and of children."""

from __future__ import annotations

import copy
import inspect
from typing import Any, cast

import pytest
import torch
from torch import nn

from tests.lowering.users import FORMS, KINDS, agree, lowered, mixed, mixed_args, three
from tests.programs import Block, parent

EACH = pytest.mark.parametrize("to", KINDS)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# What aot_eager compiles, dynamo has traced as it does for eager; but decomposed, that runs without gradients.
BACKENDS = [
    pytest.param(
        form, backend, marks=[pytest.mark.deep] if backend == "eager" and form in ("strict", "dynamic", "strict dynamic") else []
    )
    for form in FORMS
    for backend in ("eager", "aot_eager")
]


@EACH
@pytest.mark.parametrize(("form", "backend"), BACKENDS)
def test_compile_takes_the_whole_graph(to: str, form: str, backend: str) -> None:
    """fullgraph=True of the root with keyword arguments, and of a child: eager's numbers, three calls."""
    model, ep = mixed(form)
    module = lowered(ep, to)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend=backend)
    expected = copy.deepcopy(model)
    if "decomposed" in form and backend == "aot_eager":
        # The decomposed program itself cannot be differentiated: it writes running statistics that backward reads.
        compiled, expected = torch.no_grad()(compiled), torch.no_grad()(expected)
    for args, kwargs in three(mixed_args):
        torch.testing.assert_close(compiled(*args, **kwargs), expected(*args, **kwargs))
    child = torch.compile(module.first, fullgraph=True, backend=backend)
    args, _ = mixed_args()
    torch.testing.assert_close(child(args[0]), model.first(args[0]))


@EACH
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strict", [False, True])
def test_exports_again_with_dynamic_shapes_by_name(to: str, form: str, strict: bool) -> None:
    """The signature of forward is the original's, so shapes by name and keywords work; the result means the same."""
    model, ep = mixed(form)
    module, (args, kwargs) = lowered(ep, to), mixed_args()
    assert list(inspect.signature(module.forward).parameters) == ["x", "scale"]
    first = {0: torch.export.Dim.DYNAMIC} if "dynamic" in form else None
    again = torch.export.export(copy.deepcopy(module), args, kwargs, dynamic_shapes={"x": first, "scale": first}, strict=strict)
    assert again.graph_signature.user_inputs == ("x", "scale")
    agree(lowered(again, to), model, three(lambda: mixed_args(5 if first else 3)))


class Nested(parent(block=Block)):
    """Takes containers."""

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor], named: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.block(pair[0] + pair[1]) * named["scale"]


class Again(parent(inner=lambda: Flagged())):
    """Calls one module in two ways."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(x), flag=True)


class Flagged(parent(linear=lambda: nn.Linear(4, 4))):
    """Does what a flag says."""

    def forward(self, x: torch.Tensor, flag: bool = False) -> torch.Tensor:
        return self.linear(x).relu() if flag else self.linear(x)


@EACH
@pytest.mark.parametrize("model", [Nested(), Again()], ids=["nested", "later calls"])
def test_symbolic_trace_with_flat_arguments(to: str, model: nn.Module) -> None:
    """torch.fx.symbolic_trace gives a flat graph of operators that means the same; later calls of a module are in it."""
    torch.manual_seed(0)
    model.eval()
    x = torch.randn(2, 4)
    args: Any = ((x, x), {"scale": x}) if isinstance(model, Nested) else (x,)
    flat = (x, x, x) if isinstance(model, Nested) else (x,)
    module = lowered(torch.export.export(copy.deepcopy(model), args), to)
    traced = torch.fx.symbolic_trace(module, concrete_args=tuple(cast(Any, torch.fx).PH for _ in flat))
    assert {node.op for node in traced.graph.nodes} <= {"placeholder", "get_attr", "call_function", "output"}
    torch.testing.assert_close(traced(*flat), copy.deepcopy(model)(*args), rtol=0, atol=0)


def test_symbolic_trace_of_a_child() -> None:
    """A child of generated code can be traced as any module."""
    model, x = Nested(), torch.randn(2, 4)
    module = lowered(torch.export.export(model, ((x, x), {"scale": x})))
    assert torch.equal(torch.fx.symbolic_trace(module.block)(x), model.block(x))


def test_signature_names() -> None:
    """Positional, keyword-only and nested arguments have the original's names; a name that Python cannot have gives up."""

    class Named(nn.Module):
        def forward(self, x: Any, y: Any = None, *, flag: Any = None) -> Any:
            return x["a"] + y + flag

    x = torch.ones(2)
    module = lowered(torch.export.export(Named(), ({"a": x},), {"flag": x, "y": x}))
    assert str(inspect.signature(module.forward)) == "(x, *, flag, y)"  # in which order keywords stood is not exported
    with pytest.raises(TypeError, match="flag, y by keyword"):
        module({"a": x}, x, x)
    assert torch.equal(module({"a": x}, flag=x, y=x), 3 * x)

    class Star(nn.Module):
        def forward(self, *xs: Any, **named: Any) -> Any:
            return xs[0] + xs[1] + named["k"]

    ep = torch.export.export(Star(), (x, x), {"k": x})
    module = lowered(ep)
    assert torch.equal(module(x, x, k=x), 3 * x)
    assert inspect.signature(module.forward) is not None
