"""No text of a traced graph is run by ``import_fx``, or by anything that is done with what it gives."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import purefx as px
from purefx.ir.torch_private import PyTreeCodeGen, PyTreeInfo, pytree

CODE = "purefx_harm()"
X = torch.ones(2)


@pytest.fixture(autouse=True)
def harm(monkeypatch: pytest.MonkeyPatch) -> Any:
    done: list[str] = []
    monkeypatch.setattr(builtins, "purefx_harm", lambda: done.append("harm"), raising=False)
    yield
    assert not done


def plain() -> torch.fx.GraphModule:
    root, graph = nn.Module(), torch.fx.Graph()
    root.register_buffer("b", torch.ones(2))
    root.lin = nn.Linear(2, 2)
    x = graph.placeholder("x")
    y = graph.call_function(torch.add, (x, graph.get_attr("b")), {"alpha": 1})
    z = graph.call_module("lin", (graph.call_method("relu", (y,)),))
    graph.output({"z": z})
    return torch.fx.GraphModule(root, graph)


def node(module: torch.fx.GraphModule, op: str) -> Any:
    return next(node for node in module.graph.nodes if node.op == op)


def targets(op: str, text: str) -> Callable[[torch.fx.GraphModule], None]:
    def change(module: torch.fx.GraphModule) -> None:
        node(module, op).target = text

    return change


def names(text: str) -> Callable[[torch.fx.GraphModule], None]:
    def change(module: torch.fx.GraphModule) -> None:
        for found in module.graph.nodes:
            found.name = text

    return change


def keywords(text: str) -> Callable[[torch.fx.GraphModule], None]:
    def change(module: torch.fx.GraphModule) -> None:
        node(module, "call_function").kwargs = {text: 1}

    return change


def arguments(module: torch.fx.GraphModule) -> None:
    spec = pytree.tree_structure(((0,), {}))
    module.graph._codegen = PyTreeCodeGen(PyTreeInfo([f"x={CODE}"], spec, None))


def keys(module: torch.fx.GraphModule) -> None:
    spec = pytree.tree_structure(((), {f"'+{CODE}+'": 0}))
    module.graph._codegen = PyTreeCodeGen(PyTreeInfo(["x"], spec, None))


def children(module: torch.fx.GraphModule) -> None:
    module.add_module(f'"+{CODE}+"', nn.Linear(1, 1))


class Crafted:
    """Prints as code."""

    def __repr__(self) -> str:
        return CODE


class CraftedText(str):
    """Text that prints as code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return CODE


def default(module: torch.fx.GraphModule) -> None:
    node(module, "placeholder").args = (Crafted(),)


REFUSED = {
    "placeholder": targets("placeholder", f"x={CODE}"),
    "placeholder, stars": targets("placeholder", f"**x, y={CODE}"),
    "attribute": targets("get_attr", f"b']+{CODE}#"),
    "attribute, newline": targets("get_attr", f"b\n{CODE}"),
    "module": targets("call_module", f'lin")+{CODE}#'),
    "method": targets("call_method", f"relu(); {CODE}; x.relu"),
    "method, keyword": targets("call_method", "lambda"),
    "name": names(f"y; {CODE}; z"),
    "name, newline": names(f"y\n    {CODE}"),
    "keyword": keywords(f"alpha={CODE}, alpha"),
    "keyword, reserved": keywords("class"),
    "argument": arguments,
    "key": keys,
    "child": children,
    "default": default,
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_names_that_are_code_are_refused(change: Callable[[torch.fx.GraphModule], None]) -> None:
    """With an error that shows them on one line of printable text."""
    module = plain()
    change(module)
    with pytest.raises((px.errors.InvalidProgram, px.errors.UnsupportedProgram)) as refused:
        px.import_fx(module)
    assert all(char == "\n" or char.isprintable() for char in str(refused.value))


def stacks(module: torch.fx.GraphModule) -> None:
    for found in module.graph.nodes:
        found.meta["nn_module_stack"] = {
            f"k{CODE}": (f"L['self'].{CODE}", Crafted()),
            CODE: (CODE, CODE),
        }
        found.meta["stack_trace"] = f'  File "{CODE}", line 1, in {CODE}\n    {CODE}\n'
        found.meta[CODE] = Crafted()


def constants(module: torch.fx.GraphModule) -> None:
    """Hand objects to an operator that print as code, among them a key and a text."""

    def takes(x: torch.Tensor, *_: Any) -> torch.Tensor:
        return x

    takes.__qualname__ = takes.__name__ = f"takes; {CODE}"
    takes.__module__ = f"{CODE}\n"
    found = node(module, "call_function")
    found.target = takes
    found.kwargs = {}
    found.args = (*found.args, Crafted(), [CraftedText("a")], {CraftedText("k"): Crafted()}, CODE)


def tags(module: torch.fx.GraphModule) -> None:
    node(module, "call_function").tag = Crafted()


@pytest.mark.parametrize("change", [stacks, constants, tags])
def test_objects_that_print_as_code_are_harmless(
    change: Callable[[torch.fx.GraphModule], None],
) -> None:
    """They arrive where they were to go; printing, looking at the code and making it again runs none of them."""
    module = plain()
    expected = plain()
    expected.load_state_dict(module.state_dict())
    change(module)
    program = px.import_fx(module)
    lowered: Any = px.lower(px.transform(program))
    assert torch.equal(lowered(X)["z"], module.lin(X if change is constants else X + 1))
    text = f"{program.text()}{px.verify(program)}{px.stats(program)}"
    assert all(char == "\n" or char.isprintable() for char in text)
    lowered.graph.lint()
    lowered.recompile()
    assert lowered.code and operator.attrgetter("lin")(lowered) is not None
