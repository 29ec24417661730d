"""What users read of a root and of its children, torch.compile, symbolic_trace and exporting again."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.users import FORMS, KINDS, agree, lowered, mixed, mixed_args, three
from tests.models import Tower, module_class, parent
from tests.tables import in_turns

EACH = pytest.mark.parametrize("to", KINDS)


@EACH
def test_class_names_and_text(to: str, capfd: pytest.CaptureFixture[str]) -> None:
    """type_name of root and children; print_readable gives the text and prints only when asked."""
    module = lowered(torch.export.export(Tower(2), (torch.ones(2, 4),)), to)
    assert module.type_name().endswith("models.Tower")
    assert module.layers[0].type_name().endswith("models.Block")
    assert module.layers[0].up.type_name() == "torch.nn.modules.linear.Linear"
    capfd.readouterr()
    for part in (module, module.layers[1]):
        text = part.print_readable(print_output=False)
        assert ("self.layers" if part is module else "self.up") in text
        assert "f32[2, 4]" in text and "def forward" in part.code
    assert capfd.readouterr() == ("", "")
    module.print_readable()
    assert "def forward" in capfd.readouterr().out


@in_turns(form=FORMS, to=KINDS)
def test_every_node_of_every_graph_has_a_value(to: str, form: str) -> None:
    """meta["val"] everywhere but on outputs, in the graphs of later calls too; and what else torch has in such a module."""
    module = lowered(mixed(form)[1], to)
    theirs = vars(torch.fx.symbolic_trace(torch.nn.ReLU())) if to == "graph_module" else ()
    hidden = [part for _, part in module.purefx_hidden()]
    seen = 0
    for part in (*module.modules(), *hidden):
        if hasattr(part, "purefx_place"):
            part.graph.lint()
            assert [
                node for node in part.graph.nodes if node.op != "output" and "val" not in node.meta
            ] == []
            assert {name for name in theirs if not hasattr(part, name)} <= {
                "_prologue_start"
            }  # of the generated code
            seen += 1
    assert seen > 5


@EACH
def test_an_edited_graph_takes_effect(to: str) -> None:
    """After finalize() (and at once where torch's does): in that module, seen from its root, and compiled."""
    model, x = Tower(2), torch.randn(2, 4)
    module = lowered(torch.export.export(copy.deepcopy(model), (x,)), to)
    block = module.layers[0]
    for node in block.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.tanh.default
    if to == "interpreter":
        block.graph.lint()
    else:
        assert torch.equal(module(x), model(x))
        block.finalize()
    hidden = model.layers[0].up(x).tanh()
    expected = model.layers[1](x + model.layers[0].down(hidden))
    assert torch.equal(module(x), expected)
    block.finalize()
    assert torch.equal(module(x), expected)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    assert torch.equal(torch.compile(module, backend="eager", fullgraph=True)(x), expected)
    torch._dynamo.reset()


def test_a_child_whose_name_is_a_keyword_runs_and_its_parent_cannot_be_edited() -> None:
    inner = module_class(
        "Inner",
        lambda self, x: getattr(self, "class").deep(x),
        **{"class": lambda: parent(deep=nn.ReLU)()},
    )
    module = lowered(torch.export.export(inner(), (torch.ones(2),)))
    assert torch.equal(module(-torch.ones(2)), torch.zeros(2))
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"keywords \('class.deep'\) cannot appear in it; rename them",
    ):
        module.recompile()


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# What aot_eager compiles, dynamo has traced as it does for eager; but decomposed, that runs without gradients.
COMPILED = {f"{backend}-{to}": (backend, to) for backend in ("aot_eager", "eager") for to in KINDS}


@in_turns(form=FORMS, compiled_as=COMPILED)
def test_compile_takes_the_whole_graph(form: str, compiled_as: tuple[str, str]) -> None:
    """fullgraph=True of the root with keyword arguments, and of a child: eager's numbers, three calls."""
    backend, to = compiled_as
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


AGAIN = {form: (form, False) for form in FORMS} | {
    f"{form}, again strict": (form, True) for form in ("plain", "strict dynamic")
}


@in_turns(forms=AGAIN, to=KINDS)
def test_exports_again_with_dynamic_shapes_by_name(to: str, forms: tuple[str, bool]) -> None:
    """The signature of forward is the original's, so shapes by name and keywords work; the result means the same."""
    form, strict = forms
    model, ep = mixed(form)
    module, (args, kwargs) = lowered(ep, to), mixed_args()
    assert list(inspect.signature(module.forward).parameters) == ["x", "scale"]
    first = {0: torch.export.Dim.DYNAMIC} if "dynamic" in form else None
    again = torch.export.export(
        copy.deepcopy(module),
        args,
        kwargs,
        dynamic_shapes={"x": first, "scale": first},
        strict=strict,
    )
    assert again.graph_signature.user_inputs == ("x", "scale")
    agree(lowered(again, to), model, three(lambda: mixed_args(5 if first else 3)))


def test_signature_names() -> None:
    """Positional, keyword-only and nested arguments have the original's names; a name that Python cannot have gives up."""
    kind = module_class("Named", lambda self, x, y=None, *, flag=None: x["a"] + y + flag)
    x = torch.ones(2)
    module = lowered(torch.export.export(kind(), ({"a": x},), {"flag": x, "y": x}))
    assert (
        str(inspect.signature(module.forward)) == "(x, *, flag, y)"
    )  # in which order keywords stood is not exported
    with pytest.raises(TypeError, match="flag, y by keyword"):
        module({"a": x}, x, x)
    assert torch.equal(module({"a": x}, flag=x, y=x), 3 * x)
    kind = module_class("Star", lambda self, *xs, **named: xs[0] + xs[1] + named["k"])
    ep = torch.export.export(kind(), (x, x), {"k": x})
    module = lowered(ep)
    assert torch.equal(module(x, x, k=x), 3 * x)
    assert inspect.signature(module.forward) is not None
