"""Notebook pages of a program, a graph, a diff and a finding: compact, folded, of a bounded size.

A page states its omissions.  Invalid programs are shown as far as possible.  Steps, histories and pictures are in
``purefx.report``; counts are in ``purefx.stats``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from ..analysis.diff import Diff, print_diff
from ..calls.call_graph import instance_paths, times_called
from ..displayed import html_of, summary_of
from ..errors import InvalidProgram, Violation
from ..graph import Graph, Node
from ..persistent import pmap
from ..program import Module, Program
from ..signature import Signature
from ..state import State
from ..text.arguments import print_arg
from ..text.contract import INPUT, OUTPUT
from ..text.lexer import spell_path, spell_value
from ..text.programs import counted, print_node, print_program
from ..text.state import print_state
from .html import (
    ROWS,
    Room,
    code,
    described,
    dim,
    fold,
    listed,
    more,
    page,
    safely,
    shown,
    source_line,
    table,
    text,
    titled,
)

__all__ = ["diff_page", "finding_page", "graph_page", "program_page", "summary"]

LINES = 600
"""Nodes, or lines of a diff, on one page."""

BODIES = 200
"""Bodies that get a line each."""

OPEN = 60
"""The root starts unfolded if it has at most so many lines."""

FINDINGS = 12

SUMMARY = 60
"""The maximal number of lines that ``print`` shows of a program."""


def program_page(program: Program) -> str:
    """Return a program as HTML: its bodies, each once, its state and its steps.

    Args:
        program: at any stage, valid or not.

    >>> "0 nodes" in program_page(Program.of({"": Graph((), ())}))
    True
    """
    order, (title, *sizes, facts), classes = _headed(program)
    head = f"<div><b>{text(title)}</b> {', '.join(sizes)} {dim(facts)}</div>"
    parts = [safely(lambda part=part: part(program), "") for part in (_state, _steps)]
    return page(head, *_bodies(program, order, classes), *parts)


def _classes(program: Program) -> dict[str, str]:
    return {one.path: one.type_name for one in program.modules if type(one) is Module and one.type_name is not None}


def _bodies(program: Program, order: Sequence[str], classes: Mapping[str, str]) -> Iterator[str]:
    room = Room(LINES)
    paths, counts = safely(lambda: instance_paths(program), {}), safely(lambda: times_called(program), {})
    for name in order[:BODIES]:
        times = f" x{counts[name]:,}" if counts.get(name, 0) > 1 else ""
        head = f'<span class="graph">@{text(spell_path(name))}</span>{times} {dim(classes.get(paths.get(name, name)))}'
        specs = program.signature if name == program.root else None
        yield safely(lambda: _body(program.graphs[name], head, room, specs), fold(f"{head} (cannot be shown)", ""))  # noqa: B023
    yield more(len(order) - BODIES, "graph")


def summary(program: Program) -> str:
    """Return the output of ``print`` for a program: its text if that is short, else a line for each graph, state and steps.

    Args:
        program: at any stage, valid or not.

    >>> print(summary(Program.of({"": Graph((), ())})), end="")
    program {
      graph @""() {
        return ()
      }
    }
    """
    if sum(len(graph.nodes) for graph in program.graphs.values()) <= SUMMARY:
        full = print_program(program)
        if full.count("\n") <= SUMMARY:
            return full
    order, (title, *parts), classes = _headed(program)
    counts, paths = safely(lambda: times_called(program), {}), safely(lambda: instance_paths(program), {})
    rows: list[tuple[str, ...]] = []
    for name in order[: SUMMARY - 10]:
        times = f"x{counts[name]:,}" if counts.get(name, 0) > 1 else ""
        kind = classes.get(paths.get(name, name), "").rpartition(".")[2]
        rows.append((f"  @{spell_path(name)}", times, kind, counted(len(program.graphs[name].nodes), "node")))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip() for row in rows]
    lines += [f"  ... {counted(len(order) - len(rows), 'graph')} more"] if len(order) > len(rows) else []
    cells = {slot.cell: slot.value for _, slot in program.state.pairs}.values()
    size = sum(value.numel() * value.element_size() for value in cells if isinstance(value, torch.Tensor))
    lines.append(f"state: {counted(len(program.state.order), 'name')}, {size:,} bytes")
    lines += [f"steps: {shown(', '.join(map(str, program.trail)))}"] if program.trail else []
    lines.append("program.text() is all of it, program.text(name) one graph, px.tree(program) the modules")
    return "\n".join([f"{title}: {', '.join(filter(None, parts))}", *lines, ""])


def _headed(program: Program) -> tuple[list[str], tuple[str, str, str, str], dict[str, str]]:
    order = list(dict.fromkeys((*safely(lambda: program.order, ()), *program.graphs)))
    classes = safely(lambda: _classes(program), {})
    sizes = [safely(lambda graph=graph: len(graph.nodes), 0) for graph in program.graphs.values()]
    facts = safely(lambda: ", ".join(sorted(map(str, program.facts))))
    title = classes.get("", "").rpartition(".")[2] or "program"
    return order, (title, counted(len(order), "graph"), counted(sum(sizes), "node"), facts), classes


def graph_page(graph: Graph) -> str:
    """Return a graph as HTML.

    Args:
        graph: of a program, valid or not.

    >>> "</span> ()" in graph_page(Graph((), ()))
    True
    """
    return page(_body(graph, "<b>graph</b>", Room(LINES)))


def _body(graph: Graph, head: str, room: Room, signature: Signature | None = None) -> str:
    inputs, nodes = graph.inputs[: room.take(len(graph.inputs))], graph.nodes[: room.take(len(graph.nodes))]
    roles: Sequence[Any] = () if signature is None else signature.inputs
    rows: list[tuple[str, str]] = []
    for formal, spec in zip_longest(inputs, roles[: len(inputs)]):
        about = described(formal.meta.get("val")) if spec is None else safely(lambda spec=spec: INPUT.write(spec))
        rows.append((f'<span class="keyword">input</span> {code(spell_value(formal.name))}', dim(about)))
    for node in nodes:
        line = titled(code(safely(lambda node=node: print_node(node))), safely(lambda node=node: source_line(node.meta), None))
        rows.append((line, dim(safely(lambda node=node: described(node.meta.get("val")), None))))
    outputs = [] if signature is None else [safely(lambda spec=spec: OUTPUT.write(spec)) for spec in signature.outputs[:ROWS]]
    results = ", ".join(outputs) if {*outputs, "user"} != {"user"} else None
    rows += [(code(f"return {safely(lambda: print_arg(graph.output))}"), dim(results))]
    left = len(graph.inputs) - len(inputs) + len(graph.nodes) - len(nodes)
    title = f"{head} {dim(counted(len(graph.nodes), 'node'))}"
    return fold(title, table(rows) + more(left, "line"), is_open=signature is not None and len(rows) <= OPEN)


def _state(program: Program) -> str:
    order, slots = program.state.order, program.state.slots
    first = State(order[:ROWS], pmap({name: slots[name] for name in order[:ROWS] if name in slots}))
    return listed("state", list(map(code, print_state(first))), len(order))


def _steps(program: Program) -> str:
    return listed("steps", [text(safely(lambda step=step: str(step))) for step in program.trail[:ROWS]], len(program.trail))


def diff_page(diff: Diff) -> str:
    """Return a diff as HTML; each differing graph and each other kind of difference folds.

    Args:
        diff: the result of ``purefx.diff``.

    >>> '<span class="add">+ flat</span>' in diff_page(Diff(facts=((), ("flat",))))
    True
    """
    head, *lines = print_diff(diff).split("\n")
    room, sections = Room(LINES), list[list[str]]()
    for line in lines:
        if line[:1] in SIGNS:
            sections[-1].append(line)
        else:
            sections.append([line])
    shown = [_section(*found, room=room) for found in sections[:BODIES]]
    return page(f"<div><b>{text(head)}</b></div>", *shown, more(len(sections) - BODIES, "section"))


SIGNS = {"+": "add", "-": "gone", "@": "place", " ": "same"}
"""The style of a line of a diff, by its first letter."""


def _section(what: str, *lines: str, room: Room) -> str:
    kept = lines[: room.take(len(lines))]
    rows = [(f'<span class="{SIGNS[line[0]]}">{text(line)}</span>',) for line in kept]
    return fold(code(what), table(rows) + more(len(lines) - len(kept), "line"), is_open=len(lines) <= OPEN)


def finding_page(*found: Violation) -> str:
    """Return findings of ``verify`` as HTML.

    Args:
        found: the findings.

    >>> "at enc / y" in finding_page(Violation("unique-names", "the name is taken", graph="enc", node="y"))
    True
    """
    return page(*[_finding(one) for one in found[:FINDINGS]], more(len(found) - FINDINGS, "finding"))


def _finding(found: Violation) -> str:
    head, *lines = str(found).split("\n")
    rule, _, message = head.partition(": ")
    rows = [(f"<b>{code(line)}</b>" if line.lstrip().startswith(">") else code(line),) for line in lines[:ROWS]]
    return fold(f'<span class="rule">{text(rule)}</span> {text(message, 3000)}', table(rows), is_open=True)


html_of.register(Program, program_page)
summary_of.register(Program, summary)
html_of.register(Graph, graph_page)
html_of.register(Node, lambda node: page(code(print_node(node)), dim(described(node.meta.get("val")))))
html_of.register(Diff, diff_page)
html_of.register(Violation, finding_page)
html_of.register(InvalidProgram, lambda error: finding_page(*error.violations))
