"""``gather``: collect the data of a report as JSON: dicts, lists, strings and numbers.

Strings and rows are in tables, so a step adds only its differences.  The result depends on the program alone, not on the time,
the path of the file or the order of a set.  Invalid programs have reports too, so each part that cannot be printed is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from purefx.ir.analysis.history import action_of
from purefx.ir.calls.call_graph import times_called
from purefx.ir.effects.declared import NodeEffects
from purefx.ir.effects.resolved import program_effects
from purefx.ir.errors import Violation
from purefx.ir.forks import collector_paused
from purefx.ir.graph import Call, Get, Graph, Input, Node
from purefx.ir.meta import EMPTY_META
from purefx.ir.names import last_name
from purefx.ir.program import Module, Program
from purefx.ir.show.notebook import described, safely, shown, source_line
from purefx.ir.text import print_node
from purefx.ir.text.arguments import print_arg
from purefx.ir.text.programs import crossing
from purefx.ir.torch_private import size_number
from purefx.ir.verify import verify
from purefx.stats import stats

MOST_INSTANCES = 100_000
"""The maximal number of instances to visit one by one: bodies that call others twice each have exponentially many."""

MOST_FINDINGS = 500

KINDS: dict[Any, int] = {Call: 1, Get: 2}
"""The number of a kind of node in the page; 0 is an operator, 3 an input."""


class Rows:
    """Gives equal rows the same number.

    >>> rows = Rows()
    >>> rows.add((1, (2,))), rows.add((3,)), rows.add((1, (2,))), rows.items
    (0, 1, 0, [(1, (2,)), (3,)])
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.items: list[Any] = []

    def add(self, row: Any) -> int:
        """Return the number of a row."""
        number = self._numbers.setdefault(row, len(self.items))
        if number == len(self.items):
            self.items.append(row)
        return number


class Tables:
    """The tables that all steps share: strings, rows of nodes, graphs."""

    def __init__(self) -> None:
        self.texts, self.nodes, self.graphs = Rows(), Rows(), Rows()

    def text(self, text: Any) -> int:
        """Return the number of a shown string; -1 for None."""
        return -1 if text is None else self.texts.add(shown(text))

    def names(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of the distinct names."""
        return tuple([self.text(name) for name in dict.fromkeys(names)])

    def graph(self, graph: Graph, effects: Any) -> int:
        """Return the number of a graph; its effects are None if they are unknown."""
        nodes = (
            [node for node in graph.nodes if type(node) is Node]
            if isinstance(graph.nodes, tuple)
            else []
        )
        inputs = (
            [one for one in graph.inputs if type(one) is Input]
            if isinstance(graph.inputs, tuple)
            else []
        )
        by_node: Iterable[Any] = effects if effects is not None else [None] * len(nodes)
        output = safely(lambda: f"return {print_arg(graph.output)}")
        used = safely(lambda: self.names(graph.output_refs()), ())
        rows = tuple([self.node(node, done) for node, done in zip(nodes, by_node, strict=True)])
        return self.graphs.add(
            (tuple([self.input(one) for one in inputs]), rows, self.text(output), used)
        )

    def input(self, formal: Input) -> int:
        """Return the number of the row of an input."""
        name = self.text(formal.name)
        return self.nodes.add(
            (
                name,
                3,
                self.text("input"),
                name,
                *self._value(formal.meta or EMPTY_META),
                -1,
                (),
                (),
                (),
            )
        )

    def node(self, node: Node, effects: NodeEffects | None) -> int:
        """Return the number of the row of a node of a program, valid or not."""
        meta = node.meta if hasattr(node.meta, "get") else EMPTY_META
        return self.nodes.add(
            (
                self.text(node.name),
                KINDS.get(type(node.do), 0),
                self.text(safely(lambda: action_of(node)) or "nothing"),
                self.text(safely(lambda: print_node(node))),
                *self._value(meta),
                self.text(effects and effects_text(effects)),
                safely(lambda: tuple([self.text(frame) for frame in node.stack]), ()),
                safely(lambda: self._callees(node), ()),
                safely(lambda: self.names(node.refs()), ()),
            )
        )

    def _value(self, meta: Any) -> tuple[Any, ...]:
        value = meta.get("val")
        return self.text(described(value)), bytes_of(value), self.text(source_line(meta))

    def _callees(self, node: Node) -> tuple[tuple[int, int], ...]:
        # The graphs that it runs, each with the path of the called module; bodies of operators run in place.
        if type(node.do) is Call:
            return ((self.text(node.do.graph), self.text(node.do.instance.path)),)
        return tuple([(self.text(name), -1) for name in node.bodies])


def gather(program: Program, *, before: Program | None = None) -> dict[str, Any]:
    """Return the data of a report.

    Args:
        program: at any stage, valid or not.
        before: another program, which comes first.

    >>> found = gather(Program.of({"": Graph((Input("x"),), ())}))
    >>> [found["strings"][row["step"]] for row in found["versions"]], len(found["nodes"])
    (['the program'], 1)
    """
    tables, trail = Tables(), program.trail
    names = [
        "loaded" if program.past else "imported" if trail else "the program",
        *[str(step) for step in trail],
    ]
    moments = list(zip([*[step.before for step in trail], program], names, strict=True))
    if before is not None:
        moments.insert(0, (before, "before"))
    with collector_paused():
        rows = [_version(each, name, tables) for each, name in moments]
    main = next(
        (
            module.type_name
            for module in program.modules
            if type(module) is Module and module.path == ""
        ),
        None,
    )
    title = tables.text(last_name(str(main or "program")) or "program")
    nodes, graphs, strings = tables.nodes.items, tables.graphs.items, tables.texts.items
    return {"title": title, "versions": rows, "nodes": nodes, "graphs": graphs, "strings": strings}


def is_small(program: Program) -> bool:
    """Return whether a valid program has few enough instances to visit each.

    >>> is_small(Program.of({"": Graph((), ())}))
    True
    """
    return sum(times_called(program).values()) <= MOST_INSTANCES


def _version(program: Program, step: str, tables: Tables) -> dict[str, Any]:
    findings, text = verify(program), tables.text
    is_fine = not findings and is_small(program)
    effects = program_effects(program) if is_fine else {}
    graphs = {name: graph for name, graph in program.graphs.items() if type(graph) is Graph}
    found = stats(program) if is_fine else None
    return {
        "step": text(step),
        "root": text(program.root),
        "graphs": [
            [text(name), tables.graph(graphs[name], effects.get(name))]
            for name in (program.order if is_fine else graphs)
        ],
        "findings": [_finding(finding, tables) for finding in findings[:MOST_FINDINGS]],
        "parts": parts_of(program) if is_fine else None,
        "modules": [
            (
                text(one.path),
                text(one.type_name),
                one.operators,
                one.parameters,
                one.bytes,
                one.flops,
            )
            for one in (found.modules if found else ())
        ],
        "totals": found
        and [sum(found.operators.values()), found.parameters, found.bytes, found.flops],
    }


def _finding(finding: Violation, tables: Tables) -> dict[str, Any]:
    text = tables.text
    return {
        "rule": text(finding.rule),
        "message": text(finding.message),
        "graph": text(finding.graph),
        "node": text(finding.node),
        "where": text(finding.where),
        "context": [text(line) for line in finding.context],
        "source": text(finding.source),
        "advice": text(finding.advice or None),
        "count": finding.count,
    }


def parts_of(program: Program) -> dict[str, Any] | None:
    """Return the parts of a valid program and the arrows between them; None if it is not split.

    >>> import purefx as px
    >>> parts_of(px.Program.of({"": px.Graph((), ())})) is None
    True
    """
    found, arrows = crossing(program)
    if not found:
        return None
    names = ["inputs", *[part.name for part in found], "outputs"]
    return {
        "parts": [{"name": shown(part.name), "graph": shown(part.graph)} for part in found],
        "arrows": [
            {
                "from": shown(names[start]),
                "to": shown(names[end]),
                "values": list(map(shown, values)),
                **_size(program.main, values),
            }
            for (start, end), values in arrows.items()
        ],
    }


def _size(graph: Graph, names: Iterable[str]) -> dict[str, Any]:
    sizes = [bytes_of(graph.metas[name].get("val")) for name in names]
    return {
        "bytes": sum([size for size in sizes if size is not None]),
        "complete": None not in sizes,
    }


def bytes_of(value: Any) -> int | None:
    """Return the size of a value in bytes; None if it is unknown, or the value is not a tensor.

    >>> bytes_of(torch.ones(2, 3)), bytes_of((torch.ones(1), torch.ones(2).double())), bytes_of(3) is None
    (24, 20, True)
    """
    if isinstance(value, tuple | list):
        found = [size for part in value if (size := bytes_of(part)) is not None]
        return sum(found) if found else None
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [size if type(size) is int else size_number(size) for size in value.shape]
    return None if None in sizes else torch.Size(sizes).numel() * value.dtype.itemsize  # type: ignore[arg-type]


def effects_text(effects: NodeEffects) -> str | None:
    """Describe the effects of a node on one line; None if it has none.

    >>> effects_text(NodeEffects(writes=("x",), random=True)), effects_text(NodeEffects())
    ('writes x; draws random numbers', None)
    """
    lists = (
        ("writes", effects.writes),
        ("writes state", effects.writes_slots),
        ("reads state", effects.reads_slots),
        ("may share memory with", effects.aliases),
        ("is state", effects.aliases_slots),
        ("completes", effects.completes),
    )
    found = [f"{what} {', '.join(map(str, names))}" for what, names in lists if names]
    found += ["draws random numbers"] if effects.random else []
    found += ["in order with others"] if effects.ordered or effects.domains else []
    found += ["opens or closes a region"] if effects.scope != (0, 0) else []
    return "; ".join(found) or None
