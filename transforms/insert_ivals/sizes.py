"""Sizes: numbers that cross a preserved signature are computed again where they are used.

One idea: the exporter computes a size once and lets every module use it, which no call signature knows.  A size is read
off any tensor that has it, so it is computed again from what the call itself takes, or from the inputs of the root.
A number that is not computed from sizes alone stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.names import Names
from ...ir.node import Frame, Node, Op, Stack
from ...ir.numbers import SYMBOLIC
from ...ir.operators import op_of
from ...ir.program import Program
from .crossings import Leaves

__all__ = ["Sizes"]

SIZE = op_of(torch.ops.aten.sym_size.int)


class Sizes:
    """Computes sizes again in other calls; each once for each call."""

    def __init__(self, program: Program, leaves: Leaves, names: Names) -> None:
        graph = program.main
        self.names = names
        self.leaves = leaves
        self.by_name = graph.by_name
        self.values = {formal.name: formal.meta.get("val") for formal in graph.inputs}
        self.values.update((node.name, node.meta.get("val")) for node in graph.nodes)
        self.roots = tuple([formal.name for formal in graph.inputs])
        self.known: dict[tuple[str, Frame | None], Arg] = {}

    def is_size(self, name: str) -> bool:
        """Say whether a value is a symbolic number that an operator without effects computes."""
        node = self.by_name.get(name)
        return node is not None and isinstance(self.values.get(name), SYMBOLIC) and _is_plain(node)

    def again(self, name: str, stack: Stack) -> tuple[Arg, list[Node]] | None:
        """Return a size computed for use in a call, with the nodes that this takes; None where it can not be.

        Args:
            name: the size.
            stack: the calls around the user.
        """
        depth = max((number for number, frame in enumerate(stack, 1) if frame in self.leaves.takes), default=0)
        scope = stack[:depth]
        made: list[Node] = []
        new: dict[tuple[str, Frame | None], Arg] = {}
        if not all(self._compute(part, scope, made, new) for part in self._parts(name)):
            return None
        self.known.update(new)
        return self.known[name, scope[-1] if scope else None], made

    def _parts(self, name: str) -> list[str]:
        # The numbers that a number is computed from, itself last.
        order: list[str] = []
        todo = [(name, False)]
        while todo:
            part, done = todo.pop()
            if done:
                order.append(part)
            elif part not in order:
                todo.append((part, True))
                if self._size_of(part) is None:
                    todo.extend((inner, False) for inner in self.by_name[part].refs() if self.is_size(inner))
        return list(dict.fromkeys(order))

    def _compute(self, name: str, scope: Stack, made: list[Node], new: dict[tuple[str, Frame | None], Arg]) -> bool:
        key = (name, scope[-1] if scope else None)
        if key in self.known or key in new:
            return True
        node = self.by_name[name]
        args: tuple[Arg, ...]
        if self._size_of(name) is not None:
            place = self._tensor_with(self.values[name], scope)
            if place is None:
                return False
            args = (Ref(place[0]), place[1])
        else:
            owned = {ref: new.get((ref, key[1]), self.known.get((ref, key[1]))) for ref in node.refs()}
            if any(arg is None for arg in owned.values()):
                return False
            args = replace_refs(node.args, owned)
        again = self.names.fresh(name)
        meta = MappingProxyType({"val": self.values[name]})
        made.append(evolve(node, name=again, args=args, stack=scope, meta=meta))
        new[key] = Ref(again)
        return True

    def _size_of(self, name: str) -> str | None:
        node = self.by_name[name]
        first = node.args[0] if node.args else None
        return first.name if type(node.do) is Op and node.do.name == SIZE.name and type(first) is Ref else None

    def _tensor_with(self, size: Any, scope: Stack) -> tuple[str, int] | None:
        candidates: Sequence[str] = self.leaves.takes[scope[-1]] if scope else self.roots
        for name in candidates:
            value = self.values.get(name)
            if isinstance(value, torch.Tensor):
                # As text: comparing symbolic sizes would install guards.
                for dim, other in enumerate(value.shape):
                    if isinstance(other, torch.SymInt) and str(other) == str(size):
                        return name, dim
        return None


def _is_plain(node: Node) -> bool:
    return type(node.do) is Op and not node.kwargs and not node.do.effects.acts
