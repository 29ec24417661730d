"""The rule about what ``purefx.pack`` makes: objects of registered types are for modules and the caller, not for operators.

One idea: functions on containers call methods of what they are given (``__getitem__``, ``__add__``), and those of a user's class
are none of a program's business.  What a pack makes is followed through calls, which hand it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, field

from ..arguments import TREES, Ref, refs_in
from ..borders import is_border
from ..node import Call, Node, Op
from ..opaque import is_module_call
from ..trees import PACK, UNPACK
from .rule import Finding
from .screen import GETITEM, Census
from .survey import Survey

__all__ = ["check_packed"]

PLAIN_TYPES = frozenset({tuple, list, dict})


def check_packed(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given an object of a registered pytree type."""
    if all(op.name != PACK.name for op, _, _ in survey.ops.values()):
        return
    flow = _Flow(survey)
    while flow.grows():
        pass
    for census in survey.censuses.values():
        names, wholes = flow.objects(census)
        for index, node in survey.nodes_of(census):
            if type(node.do) is Op and not _takes_objects(node):
                known = names if node.do.name == GETITEM and _is_item(node) else names | set(wholes)
                for name in [name for name in node.refs() if name in known]:
                    text = f"it takes {name!r}, which is an object that {PACK.name} made, or holds one"
                    yield Finding(text, census.name, index, node.name)


@define
class _Flow:
    """Which inputs and results of graphs are such objects; it only grows."""

    survey: Survey
    inputs: dict[str, set[str]] = field(factory=dict)
    results: dict[str, set[int]] = field(factory=dict)
    """Places in the tuple that a graph gives back; -1 where it gives back one value that is one, or holds one deeper."""

    def grows(self) -> bool:
        """Follow the objects through every graph once, and say whether more were met."""
        before = self._size()
        for census in self.survey.censuses.values():
            names, wholes = self.objects(census)
            for _, node in census.calls:
                callee = node.do.graph if type(node.do) is Call else ""
                body = self.survey.graphs.get(callee)
                if callee and body is not None and len(body.inputs) == len(node.args):
                    pairs = zip(body.inputs, node.args, strict=True)
                    taken = [formal.name for formal, arg in pairs if not (names | set(wholes)).isdisjoint(refs_in((arg,)))]
                    self.inputs.setdefault(callee, set()).update(taken)
            output: Any = census.graph.output
            found = self.results.setdefault(census.name, set())
            if type(output) is tuple:
                found.update([at for at, part in enumerate(output) if not (names | set(wholes)).isdisjoint(refs_in((part,)))])
            elif not (names | set(wholes)).isdisjoint(refs_in((output,))):
                found.add(-1)
        return self._size() > before

    def _size(self) -> int:
        return sum(map(len, (*self.inputs.values(), *self.results.values())))

    def objects(self, census: Census) -> tuple[set[str], dict[str, set[int]]]:
        """Return the objects of a graph, and the tuples that hold some, with their places."""
        names, wholes = set(self.inputs.get(census.name, ())), dict[str, set[int]]()
        for _, node in self.survey.nodes_of(census):
            if type(node.do) is Call and (held := self.results.get(node.do.graph)):
                if held == {-1}:
                    names.add(node.name)
                else:
                    wholes[node.name] = held
            elif type(node.do) is Op and node.do.name == PACK.name and _is_of_a_type(node):
                names.add(node.name)
            elif type(node.do) is Op and node.do.name == GETITEM and _is_item(node):
                source, item = node.args
                if item in wholes.get(source.name, ()):
                    names.add(node.name)
        return names, wholes


def _is_item(node: Node) -> bool:
    return len(node.args) == 2 and type(node.args[0]) is Ref and type(node.args[1]) is int


def _takes_objects(node: Node) -> bool:
    return is_module_call(node) or is_border(node) or (type(node.do) is Op and node.do.name in (PACK.name, UNPACK.name))


def _is_of_a_type(node: Node) -> bool:
    todo: list[Any] = [node.args[1]] if len(node.args) == 2 and isinstance(node.args[1], TREES) else []
    while todo:
        spec = todo.pop()
        if not spec.is_leaf():
            if spec.type not in PLAIN_TYPES:
                return True
            todo.extend(spec.children())
    return False
