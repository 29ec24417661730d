"""``Mistake``: a wrong transformation with the programs that it is made on and the law that finds it.

A decorator says all that a test must know, so a new mistake is one function.  The small tools that several
mistakes are built from are here as well; each does the right thing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from attrs import evolve, frozen

import purefx as px
from purefx.ir.arguments import Arg, map_refs
from purefx.laws.strategies import Stage
from purefx.laws.tiers import Tier

__all__ = ["Mistake", "Nodes", "mistake", "resolved", "using", "values_used", "with_nodes"]

Nodes = list[px.Node]


@frozen
class Mistake:
    """A wrong transformation, the stage of the programs that it is made on, and the name of the law that finds it."""

    transform: Callable[[px.Program], px.Program]
    stage: Stage
    law: str
    tier: Tier = "toy"
    """Where the programs come from."""

    @property
    def name(self) -> str:
        """What it does wrong."""
        return self.transform.__name__

    def __call__(self, program: px.Program) -> px.Program:
        return self.transform(program)


def mistake(stage: Stage, law: str, *, tier: Tier = "toy") -> Callable[[Callable[[px.Program], px.Program]], Mistake]:
    """Say of a function that it is wrong, on which programs, and which law finds that."""
    return lambda transform: Mistake(transform, stage, law, tier)


def with_nodes(program: px.Program, nodes: Nodes) -> px.Program:
    """Return the program with other nodes in its root; the same object where they are equal."""
    if nodes == list(program.main.nodes):
        return program
    return program.with_main(evolve(program.main, nodes=tuple(nodes)))


def using(arg: Arg, instead: Mapping[str, str]) -> Arg:
    """Return an argument with other names, at any depth."""
    return map_refs(arg, lambda ref: px.Ref(instead[ref.name]) if type(ref) is px.Ref and ref.name in instead else ref)


def resolved(nodes: Nodes, removed: Container[str]) -> dict[str, str]:
    """Return what stands for each removed node: its first operand, or what stands for that."""
    instead: dict[str, str] = {}
    for node in nodes:
        if node.name in removed:
            operand = node.args[0].name
            instead[node.name] = instead.get(operand, operand)
    return instead


def values_used(program: px.Program) -> set[str]:
    """Return the values that nodes of the root or its output use."""
    return {name for node in program.main.nodes for name in node.refs()} | set(program.main.output_refs())
