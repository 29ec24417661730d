"""Small programs, written by hand as nodes of integers or as text, for the tests of transformations."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from textwrap import dedent
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.calls.parts import PART
from purefx.ir.meta import Meta
from purefx.ir.text import print_graph


def relu(replacement: Callable[..., Any], **options: Any) -> px.Rule:
    """Return a rule of one operator."""
    return px.rule(lambda x: torch.relu(x), **options).becomes(replacement)


def number(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Meta:
    """Return the meta of a value of a shape."""
    return MappingProxyType({"val": torch.zeros(shape, dtype=dtype)})


def tree(graphs: str, *sections: str) -> px.Program:
    """Return a program that takes one value and gives one, from the text of its graphs and of its other sections."""
    given = ("takes {\nuser x: f32[2]\n}", "gives {\nuser\n}", *sections, dedent(graphs))
    program = px.parse(
        re.sub(r"(out_spec .*\n)}\nsignatures {\n", r"\1", "\n".join(["program {", *given, "}"]))
    )
    assert px.verify(program) == ()
    return program


def split_tree(
    graphs: str, *sections: str, takes: str = "user x: f32[2]", gives: int = 1
) -> px.Program:
    """Return a split program from the text of its graphs; every module that the root calls is a part."""
    root = graphs[graphs.index('@""') :].partition("}")[0]
    names = dict.fromkeys(re.findall(r"call @\w+\(.*\) as (\w+)", root))
    modules = "modules {\n" + "\n".join(f'{name}: "{PART}"' for name in names) + "\n}"
    head = (f"takes {{\n{takes}\n}}", "gives {\n" + "user\n" * gives + "}")
    program = px.parse("\n".join(["program {", *head, *sections, modules, dedent(graphs), "}"]))
    assert px.verify(program) == ()
    return program


def shown(program: px.Program, *names: str) -> str:
    """Return some graphs as text, all if none is named."""
    return "\n".join(
        print_graph(program.graphs[name], name=name) for name in names or program.order
    )


def preserved(
    frame: str, names: str = "(x)", in_spec: str = "((*,), {})", out_spec: str = "*"
) -> str:
    """Return the section of a preserved call signature."""
    return f"signatures {{\n{frame}: names {names} in_spec {in_spec} out_spec {out_spec}\n}}"


def told(program: px.Program, metas: Mapping[str, Mapping[str, Any]]) -> px.Program:
    """Return a program with meta for some values of its root."""

    def meta(name: str) -> Meta:
        return MappingProxyType(dict(metas.get(name, {})))

    inputs = tuple(px.Input(formal.name, meta(formal.name)) for formal in program.main.inputs)
    nodes = tuple(evolve(node, meta=meta(node.name)) for node in program.main.nodes)
    return program.with_main(px.Graph(inputs, nodes, program.main.output))


@functools.cache
def symbolic() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two fake values of one dimension, of two symbolic sizes."""

    class Pair(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, y + 1

    sizes = {name: {0: torch.export.Dim.AUTO} for name in "xy"}
    found = torch.export.export(
        Pair(), (torch.ones(3), torch.ones(4)), dynamic_shapes=sizes
    ).graph.nodes
    first, second = (node.meta["val"] for node in found if node.op == "placeholder")
    return first, second


def lines(program: px.Program) -> list[str]:
    """Return the nodes and the output of the root as lines, with one space between words."""
    return [" ".join(line.split()) for line in shown(program, "").splitlines()[1:-1]]


def calling(
    nodes: str, *more: str, metas: Mapping[str, Mapping[str, Any]] | None = None
) -> px.Program:
    """Return a program of these nodes, with the buffers ``c.n`` and ``c.m``; the first call of ``c`` is preserved, and more."""
    state = "state {\nbuffer c.n: f32[2]\nbuffer c.m: f32[2]\n}"
    return told(tree('graph @""(x) {\n' + nodes + "\n}", state, preserved("c"), *more), metas or {})
