"""``show``, ``verify``, ``digest`` and ``diff``: what a program is, what is wrong with it, and what makes it another.

Text is what the library prints; JSON is the same, taken apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from purefx._command.files import read
from purefx._command.options import Commands
from purefx._command.output import Answer, CommandError, findings
from purefx.ir.analysis.diff import Change, Diff, GraphEdit, diff
from purefx.ir.analysis.diff_text import fates, summary
from purefx.ir.analysis.digest import digest
from purefx.ir.analysis.history import op_name
from purefx.ir.errors import InvalidProgram
from purefx.ir.graph import Call, Get, Graph, Node
from purefx.ir.names import did_you_mean
from purefx.ir.program import Program
from purefx.ir.show.values import described, source_line
from purefx.ir.text import print_graph, print_node
from purefx.ir.text.arguments import print_arg
from purefx.ir.text.state import print_slot
from purefx.ir.verify import verify

__all__ = ["looking_commands"]


def looking_commands(commands: Commands) -> None:
    """Add the commands.

    Args:
        commands: of the command line.
    """
    told = "Print a program as text."
    show = commands.add("show", _show, told, "show model.purefx", "show model.purefx --graph Block", files=["FILE"])
    show.add_argument("--graph", metavar="ID", help='this graph alone; "" is the root')
    told = "Say everything that is wrong with a program; status 1 if anything is."
    check = commands.add("verify", _verify, told, "verify model.purefx --infer", files=["FILE"])
    check.add_argument("--infer", action="store_true", help="run every operator on fake values too, and compare")
    commands.add("digest", _digest, "Print the identity of a program up to names.", "digest model.purefx", files=["FILE"])
    told = "Print what makes one program another; status 1 if anything does."
    commands.add("diff", _diff, told, "diff before.purefx after.purefx", files=["A", "B"])


def _show(given: argparse.Namespace) -> Answer:
    program = read(given.file, given)
    if given.graph is None:
        return Answer(program.text, lambda: _program_data(program, program.order), "program")
    if given.graph not in program.graphs:
        known = ", ".join(map(ascii, program.order[:20]))
        near = did_you_mean(given.graph, program.order)
        raise CommandError(f"{given.file} has no graph {given.graph!a}; it has {known}{near}")
    graph = program.graphs[given.graph]
    return Answer(lambda: print_graph(graph, name=given.graph), lambda: _program_data(program, [given.graph]), "program")


def _program_data(program: Program, names: Iterable[str]) -> dict[str, Any]:
    graphs = [_graph_data(name, program.graphs[name]) for name in names]
    return {"root": program.root, "facts": sorted(program.facts), "graphs": graphs}


def _graph_data(name: str, graph: Graph) -> dict[str, Any]:
    inputs = [{"name": one.name, "value": described(one.meta.get("val"))} for one in graph.inputs]
    nodes = [_node_data(node) for node in graph.nodes]
    return {"graph": name, "inputs": inputs, "nodes": nodes, "returns": print_arg(graph.output)}


def _node_data(node: Node) -> dict[str, Any]:
    kind = type(node.do)
    return {
        "name": node.name,
        "kind": "call" if kind is Call else "get" if kind is Get else "operator",
        "op": op_name(node),
        "uses": list(dict.fromkeys(node.refs())),
        "runs": node.callees,
        "module": str(node.stack[-1]) if node.stack else None,
        "value": described(node.meta.get("val")),
        "line": source_line(node.meta),
        "text": print_node(node),
    }


def _verify(given: argparse.Namespace) -> Answer:
    try:  # loading verifies; what is broken comes as an error
        found = verify(read(given.file, given), infer=given.infer)
    except InvalidProgram as error:
        if not given.json:
            raise
        found = error.violations
    data = {"valid": not found, "findings": findings(found)}
    return Answer(lambda: "\n".join([f"{violation}\n" for violation in found]), lambda: data, "finding", 1 if found else 0)


def _digest(given: argparse.Namespace) -> Answer:
    found = digest(read(given.file, given))
    return Answer(lambda: found, lambda: {"digest": found})


def _diff(given: argparse.Namespace) -> Answer:
    change = diff(read(given.a, given), read(given.b, given))
    return Answer(lambda: str(change) if change else "", lambda: _diff_data(change), "diff", 1 if change else 0)


def _diff_data(change: Diff) -> dict[str, Any]:
    lost, new = change.facts
    return {
        "same": not change,
        "summary": summary(change),
        "root": None if change.root is None else list(change.root),
        "facts": {"removed": list(lost), "added": list(new)},
        "graphs": [_edit_data(edit) for edit in change.graphs],
        "state": [_slot_data(one) for one in change.slots],
        "signature": [name for name, _ in change.sequences if name != "state"] + [str(one.key) for one in change.specs],
        "text": str(change),
    }


def _edit_data(edit: Change | GraphEdit) -> dict[str, Any]:
    if isinstance(edit, Change):
        return {"graph": edit.key, "fate": "added" if edit.before is None else "removed"}
    return {"graph": edit.name, "fate": "changed", "nodes": fates(edit.nodes)}


def _slot_data(change: Change) -> dict[str, Any]:
    before, after = (None if slot is None else print_slot(change.key, slot) for slot in (change.before, change.after))
    return {"name": change.key, "before": before, "after": after}
