"""Tables of the data: every text and every row is in it once, under a number, so steps cost what differs.

A report is also made of programs that are not valid, so nothing here believes a field: what cannot be printed is said to be so.
"""

from __future__ import annotations

from typing import Any

import torch

from purefx.ir.analysis.history import op_name
from purefx.ir.arguments import bodies_in, refs_in
from purefx.ir.effects.declared import NodeEffects
from purefx.ir.graph import Call, Get, Graph, Input, Node
from purefx.ir.meta import EMPTY_META
from purefx.ir.show.values import described, safely, shown, source_line
from purefx.ir.text import print_node
from purefx.ir.text.arguments import print_arg
from purefx.ir.torch_private import size_number

__all__ = ["NOTHING", "Rows", "Tables", "Texts", "bytes_of", "number"]

NOTHING = -1
"""What stands where a row has no text."""

EXACT = 2**53
"""The page counts in doubles."""


class Rows:
    """Numbers equal rows alike.

    >>> rows = Rows()
    >>> rows.add((1, (2,))), rows.add((3,)), rows.add((1, (2,))), rows.items
    (0, 1, 0, [(1, (2,)), (3,)])
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.items: list[Any] = []

    def add(self, row: Any) -> int:
        """Return the number of a row."""
        found = self._numbers.get(row)
        if found is None:
            found = self._numbers[row] = len(self.items)
            self.items.append(row)
        return found


class Texts(Rows):
    r"""Numbers texts.

    >>> texts = Texts()
    >>> texts.text("a\x1b[2J\n\u202e"), texts.text(None), texts.items
    (0, -1, ['a\\x1b[2J\\n\\u202e'])
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, int] = {}

    def text(self, text: Any) -> int:
        """Return the number of a text as it is shown; -1 for None."""
        if text is None:
            return NOTHING
        text = str(text)
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self.add(shown(text))
        return found


def number(value: int | None) -> int | float | None:
    """Return a count as the page can read it.

    >>> number(3), number(2**60), number(10**400), number(None)
    (3, 1.152921504606847e+18, 1e+300, None)
    """
    if value is None or abs(value) < EXACT:
        return value
    return float(min(value, 10**300))


class Tables:
    """The tables that all steps share: texts, rows of nodes, graphs, what histories are made of."""

    def __init__(self) -> None:
        self.texts = Texts()
        self.nodes = Rows()
        self.graphs = Rows()
        self.histories = Rows()
        self.changes = Rows()
        self.lists = Rows()
        """Lists of places and of imported nodes, which many histories have in common."""
        self.places = Rows()
        self.imported = Rows()
        self.modules = Rows()

    def input(self, formal: Input, history: int) -> int:
        """Return the number of the row of an input."""
        text, meta = self.texts.text, formal.meta or EMPTY_META
        name, value = text(formal.name), meta.get("val")
        source = text(source_line(meta))
        return self.nodes.add((
            name, 3, text("input"), name, text(described(value)), bytes_of(value), NOTHING, (), source, history, (), (),
        ))  # fmt: skip

    def node(self, node: Node, effects: NodeEffects | None, history: int) -> int:
        """Return the number of the row of a node.

        Args:
            node: of a program, valid or not.
            effects: what it does, where that is known.
            history: the number of its history.
        """
        text, meta, do = self.texts.text, node.meta if hasattr(node.meta, "get") else EMPTY_META, node.do
        kind = 1 if type(do) is Call else 2 if type(do) is Get else 0
        value = meta.get("val")
        return self.nodes.add((
            text(node.name), kind, text(safely(lambda: op_name(node)) or "nothing"), text(safely(lambda: print_node(node))),
            text(described(value)), bytes_of(value), text(None if effects is None else told(effects)),
            safely(lambda: tuple([text(frame) for frame in node.stack]), ()), text(source_line(meta)), history,
            safely(lambda: self._callees(node), ()), safely(lambda: self._names(node.refs()), ()),
        ))  # fmt: skip

    def graph(self, graph: Graph, inputs: tuple[int, ...], nodes: tuple[int, ...]) -> int:
        """Return the number of a graph, whose inputs and nodes have numbers."""
        output = safely(lambda: f"return {print_arg(graph.output)}")
        used = safely(lambda: self._names(refs_in((graph.output,))), ())
        return self.graphs.add((inputs, nodes, self.texts.text(output), used))

    def _names(self, names: list[str]) -> tuple[int, ...]:
        return tuple([self.texts.text(name) for name in dict.fromkeys(names)])

    def _callees(self, node: Node) -> tuple[tuple[int, int], ...]:
        # The graphs that it runs, each with the path of the module that it calls; bodies of operators run where they stand.
        text, do = self.texts.text, node.do
        if type(do) is Call:
            return ((text(do.graph), text(do.instance.path)),)
        return tuple([(text(name), NOTHING) for name in bodies_in(node.args, node.kwargs)])


def bytes_of(value: Any) -> int | float | None:
    """Return how many bytes a value takes; None where that is not known, or it is no tensor.

    Args:
        value: what meta has as ``val``.

    >>> bytes_of(torch.ones(2, 3)), bytes_of((torch.ones(1), torch.ones(2).double())), bytes_of(3) is None
    (24, 20, True)
    """
    if isinstance(value, tuple | list):
        found = [size for part in value if (size := bytes_of(part)) is not None]
        return sum(found) if found else None
    return safely(lambda: number(_tensor_bytes(value)), None) if isinstance(value, torch.Tensor) else None


def _tensor_bytes(value: torch.Tensor) -> int | None:
    total = value.dtype.itemsize
    for size in value.shape:
        known = size if type(size) is int else size_number(size)
        if known is None:
            return None
        total *= int(known)
    return total


def told(effects: NodeEffects) -> str | None:
    """Return what a node does besides computing, on one line; None for nothing.

    >>> told(NodeEffects(writes=("x",), random=True)), told(NodeEffects())
    ('writes x; draws random numbers', None)
    """
    lists = (
        ("writes", effects.writes), ("writes state", effects.writes_slots), ("reads state", effects.reads_slots),
        ("may share memory with", effects.aliases), ("is state", effects.aliases_slots), ("completes", effects.completes),
    )  # fmt: skip
    said = [f"{what} {', '.join(map(str, names))}" for what, names in lists if names]
    said += ["draws random numbers"] if effects.random else []
    said += ["in order with others"] if effects.ordered else []
    said += [f"in order within {', '.join(filter(None, map(str, key))) or 'all'}" for key in effects.domains]
    said += ["opens or closes a region"] if effects.scope != (0, 0) else []
    return "; ".join(said) or None
