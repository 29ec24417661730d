"""``gather``: all that a report shows, as dicts, lists, texts and numbers, which are JSON.

Texts and rows are in tables (``rows.py``), so steps cost what differs.  The result depends on the program alone: no time, no
path of the file, no order of a set.  Nothing here knows HTML.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from attrs import frozen

from purefx.ir.analysis.history import changes_of, in_order, op_name, origins_at, path_of, state_of, versions
from purefx.ir.calls.call_graph import all_instances, times_called
from purefx.ir.calls.parts import parts
from purefx.ir.effects.resolved import program_effects
from purefx.ir.errors import Violation
from purefx.ir.graph import Call, Graph, Input, Node
from purefx.ir.origins import INPUT, Imported, Place, Version, roots_at
from purefx.ir.persistent import collector_paused
from purefx.ir.program import Module, Program
from purefx.ir.show.values import said_line
from purefx.ir.verify import verify
from purefx.report.rows import NOTHING, Tables, Texts, bytes_of, number
from purefx.stats import Stats, stats

__all__ = ["MOST_INSTANCES", "crossing", "gather", "is_small"]

MOST_INSTANCES = 100_000
"""Bodies that call others twice each are instantiated any number of times: beyond this, modules are not counted one by one."""

MOST_FINDINGS = 500

MOST_CARRIED = 40
"""How many values of one arrow are named."""

MOST = 64
"""How many places of a change the page has; it says how many there are."""

MOST_IMPORTED = 8
"""The same for imported nodes."""


@frozen
class Moment:
    """A program at one point of the time line."""

    program: Program
    step: str
    """What made it, with its options."""
    number: int
    """Which step that was, as ``History`` counts; -1 for what is not in the trail."""
    findings: tuple[Violation, ...]
    is_fine: bool
    """Whether it is valid, and small enough to be looked at instance by instance."""


def gather(program: Program, *, before: Program | None = None, model: torch.nn.Module | None = None) -> dict[str, Any]:
    """Return all that a report shows of a program.

    Args:
        program: at any stage, valid or not.
        before: another program, which comes first.
        model: what was exported; tells where its classes are defined.

    >>> found = gather(Program.of({"": Graph((Input("x"),), ())}))
    >>> [found["strings"][row["step"]] for row in found["versions"]], len(found["nodes"])
    (['the program'], 1)
    """
    tables = Tables()
    with collector_paused():
        moments = _moments(program, before)
        every = _versions(program, moments)
        rows = [_version(moment, every, tables) for moment in moments]
    main = next((module.type_name for module in program.modules if type(module) is Module and module.path == ""), None)
    return {
        "title": tables.texts.text(str(main or "program").rpartition(".")[2] or "program"),
        "versions": rows,
        "classes": _classes(model, tables),
        "nodes": tables.nodes.items,
        "graphs": tables.graphs.items,
        "histories": tables.histories.items,
        "changes": tables.changes.items,
        "lists": tables.lists.items,
        "places": tables.places.items,
        "imported": tables.imported.items,
        "modules": tables.modules.items,
        "strings": tables.texts.items,
    }


def _moments(program: Program, before: Program | None) -> list[Moment]:
    trail, past = program.trail, max(0, len(program.past) - 1)
    names = ["loaded" if program.past else "imported" if trail else "the program", *[str(step) for step in trail]]
    programs = [*[step.before for step in trail], program]
    found = [(one, name, past + place) for place, (one, name) in enumerate(zip(programs, names, strict=True))]
    return [_moment(*each) for each in (*([] if before is None else [(before, "before", NOTHING)]), *found)]


def _moment(program: Program, step: str, number: int) -> Moment:
    findings = verify(program)
    return Moment(program, step, number, findings, not findings and is_small(program))


def _versions(program: Program, moments: Sequence[Moment]) -> Sequence[Version]:
    # Up to the first program that is not valid: of what comes after it nothing is known.
    fine = list(takewhile(lambda moment: moment.is_fine, [moment for moment in moments if moment.number >= 0]))
    return versions(fine[-1].program.evolve(trail=program.trail[: len(fine) - 1], past=program.past)) if fine else ()


def is_small(program: Program) -> bool:
    """Return whether a valid program can be looked at instance by instance.

    >>> is_small(Program.of({"": Graph((), ())}))
    True
    """
    return sum(times_called(program).values()) <= MOST_INSTANCES


def _version(moment: Moment, every: Sequence[Version], tables: Tables) -> dict[str, Any]:
    program, text = moment.program, tables.texts.text
    findings, is_fine = moment.findings, moment.is_fine
    known = every[: moment.number + 1] if 0 <= moment.number < len(every) else ()
    histories = Histories(program, known, tables) if known else None
    effects = program_effects(program) if is_fine else {}
    graphs = [
        [text(name), _graph(name, graph, effects.get(name), histories, tables)]
        for name in (program.order if is_fine else program.graphs)
        if type(graph := program.graphs[name]) is Graph
    ]
    return {
        "step": text(moment.step),
        "number": moment.number,
        "root": text(program.root),
        "graphs": graphs,
        "findings": [_finding(finding, tables) for finding in findings[:MOST_FINDINGS]],
        "parts": crossing(program, tables.texts) if is_fine else None,
        **(_counts(stats(program), tables) if is_fine else {"modules": [], "totals": None}),
    }


def _graph(name: str, graph: Graph, effects: Any, histories: Histories | None, tables: Tables) -> int:
    nodes = [node for node in graph.nodes if type(node) is Node] if isinstance(graph.nodes, tuple) else []
    inputs = [one for one in graph.inputs if type(one) is Input] if isinstance(graph.inputs, tuple) else []
    told: list[Any] = list(effects) if effects is not None else [None] * len(nodes)
    is_root = histories is not None and name == histories.root  # what a body is given has its history where it is made
    return tables.graph(
        graph,
        tuple([tables.input(one, histories.of(name, one.name, INPUT) if is_root and histories else NOTHING) for one in inputs]),
        tuple([
            tables.node(node, does, histories.of(name, node.name, op_name(node)) if histories else NOTHING)
            for node, does in zip(nodes, told, strict=True)
        ]),
    )  # fmt: skip


def _counts(found: Stats, tables: Tables) -> dict[str, Any]:
    text, add = tables.texts.text, tables.modules.add
    rows = [
        (text(one.path), text(one.type_name), one.operators, number(one.parameters), number(one.bytes), number(one.flops))
        for one in found.modules
    ]
    totals = (sum(found.operators.values()), found.parameters, found.bytes, found.flops)
    return {"modules": [add(row) for row in rows], "totals": [number(one) for one in totals]}


def _finding(finding: Violation, tables: Tables) -> dict[str, Any]:
    text = tables.texts.text
    return {
        "rule": text(finding.rule), "message": text(finding.message), "graph": text(finding.graph), "node": text(finding.node),
        "where": text(finding.where), "context": [text(line) for line in finding.context], "source": text(finding.source),
        "advice": text(finding.advice or None), "count": finding.count,
    }  # fmt: skip


def _classes(model: torch.nn.Module | None, tables: Tables) -> list[list[int]]:
    # Where the class of each module is defined, by path.
    found: dict[type, str | None] = {}
    rows: list[list[int]] = []
    for path, module in () if model is None else model.named_modules(remove_duplicate=False):
        kind = type(module)
        if kind not in found:
            found[kind] = _defined(kind)
        rows.append([tables.texts.text(path), tables.texts.text(kind.__qualname__), tables.texts.text(found[kind])])
    return rows


def _defined(kind: type) -> str | None:
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):  # made in a session, or built in
        return None


def crossing(program: Program, texts: Texts) -> dict[str, Any] | None:
    """Return the parts of a program and the arrows between them; None for one that is not split.

    Args:
        program: a valid program.
        texts: the table of texts.

    >>> import purefx as px
    >>> crossing(px.Program.of({"": px.Graph((), ())}), Texts()) is None
    True
    """
    found = parts(program)
    if not found:
        return None
    number_of = {part.node.name: number for number, part in enumerate(found)}
    inputs, outputs = -1, len(found)
    home = dict.fromkeys([formal.name for formal in program.main.inputs], inputs)
    values = {formal.name: formal.meta.get("val") for formal in program.main.inputs}
    values.update((node.name, node.meta.get("val")) for node in program.main.nodes)
    arrows: dict[tuple[int, int], dict[str, None]] = {}
    for node in program.main.nodes:
        if type(node.do) is Call and node.name in number_of:
            home[node.name] = number_of[node.name]
            for name in node.refs():
                arrows.setdefault((home[name], home[node.name]), {})[name] = None
        else:
            home[node.name] = next((home[name] for name in node.refs()), inputs)
    for name in program.main.output_refs():
        arrows.setdefault((home[name], outputs), {})[name] = None
    return {
        "parts": [[texts.text(part.name), texts.text(part.graph)] for part in found],
        "arrows": [[start, end, *_carried(list(names), values, texts)] for (start, end), names in arrows.items()],
    }


def _carried(names: list[str], values: dict[str, Any], texts: Texts) -> tuple[list[int], int, int | float, bool]:
    sizes = [bytes_of(values.get(name)) for name in names]
    known = [size for size in sizes if size is not None]
    return [texts.text(name) for name in names[:MOST_CARRIED]], len(names), sum(known), len(known) == len(sizes)


class Histories:
    """Answers for the nodes of one version of a program.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (px.Node("y", px.Op("toy.one")),), (px.Ref("y"),))})
    >>> Histories(program, (), Tables()).of("", "y", "toy.one")
    -1
    """

    def __init__(self, program: Program, every: Sequence[Version], tables: Tables) -> None:
        self._program = program
        self._every = every
        self._tables = tables
        self._paths = all_instances(program)
        self._known: dict[Imported, int] = {}

    @property
    def root(self) -> str:
        """The id of the graph whose inputs have histories."""
        return self._program.root

    def of(self, graph: str, name: str, op: str) -> int:
        """Return the number of the history of a node; -1 where nothing is known.

        Args:
            graph: the id of its graph.
            name: of the node.
            op: what it does, in a word.
        """
        found, reads = origins_at(self._program, graph, name)
        path = path_of(self._program.graphs[graph].by_name.get(name), self._paths.get(graph, ()))
        roots, state = roots_at(found, path), state_of(self._program, reads, path, self._paths)
        if not (roots or state):
            return NOTHING
        text, tables = self._tables.texts.text, self._tables
        changes = [
            (one.number, text(one.step), tuple(map(text, one.rules)), *self._listed(one.before), *self._listed(one.after))
            for one in changes_of(self._every, found, Place(graph, name, op))
        ]
        nodes = in_order([one for one in roots if one.op != INPUT])
        inputs = sorted([one.name for one in roots if one.op == INPUT])
        return tables.histories.add((
            tuple(map(tables.changes.add, changes)),
            tables.lists.add(tuple(map(self._imported, nodes[:MOST_IMPORTED]))), len(nodes),
            tuple(map(text, inputs[:MOST])), tuple(map(text, state[:MOST])),
        ))  # fmt: skip

    def _listed(self, places: tuple[Place, ...]) -> tuple[int, int]:
        text, add = self._tables.texts.text, self._tables.places.add
        rows = [add((text(one.graph), text(one.name), text(one.op))) for one in places[:MOST]]
        return self._tables.lists.add(tuple(rows)), len(places)

    def _imported(self, origin: Imported) -> int:
        found = self._known.get(origin)
        if found is None:
            text = self._tables.texts.text
            module = str(origin.stack[-1]) if origin.stack else None
            found = self._tables.imported.add((text(origin.name), text(origin.op), text(module), text(said_line(origin))))
            self._known[origin] = found
        return found
