"""The function of each command, and the exit status of every error: a traceback would exit with 1, as programs that differ.

Text is what the library prints; JSON is the same as data.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from purefx._command.answer import Answer, CommandError, check_color, findings, put, put_error
from purefx._command.files import check_out, read, read_small, transformed, write
from purefx.ir.analysis.diff import Change, Diff, GraphEdit, diff
from purefx.ir.analysis.diff_text import fates, summary
from purefx.ir.analysis.digest import digest
from purefx.ir.analysis.history import became, history, op_name
from purefx.ir.calls.call_graph import body_named, module_calls
from purefx.ir.calls.parts import original, part_names, parts
from purefx.ir.errors import InvalidProgram, NamingError, PipelineError, PurefxError
from purefx.ir.graph import Call, Get, Graph, Node
from purefx.ir.names import did_you_mean, is_below
from purefx.ir.program import Program
from purefx.ir.show.values import described, source_line
from purefx.ir.text import print_node
from purefx.ir.text.arguments import print_arg
from purefx.ir.text.state import print_slot
from purefx.ir.verify import verify
from purefx.report import report
from purefx.report.gather import crossing
from purefx.report.rows import Texts
from purefx.stats import stats, table, tree
from purefx.transforms import deduplicate, split_balanced, split_by_module

__all__ = ["run_command"]

SHOWN = 20
"""How many graphs an error names."""


def run_command(parsed: argparse.Namespace) -> int:
    """Run a command, print its answer or its error, and return the exit status.

    Args:
        parsed: the command and its options.
    """
    try:
        check_color(parsed.color)
        for name in parsed.modules:
            _import(name)
        status = put(RUN[parsed.command](parsed), parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head` closes the pipe: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever it is, it has a status of ours
        status, message = _judged(error)
        put_error(error, message, as_json=parsed.json)
    return status


def _judged(error: BaseException) -> tuple[int, str]:
    match error:
        case InvalidProgram():
            return 1, str(error)
        case PurefxError() | OSError():
            return 2, f"purefx: {error}"
        case KeyboardInterrupt():
            return 2, "purefx: interrupted; nothing was written"
        case _:  # a mistake of ours
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename}:{frame.lineno}"
            return 2, f"purefx: this is a defect of purefx: {type(error).__name__}: {error} ({where})"


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever the module does
        raise CommandError(f"--import {name!a}: {type(error).__name__}: {error}") from error


def _show(parsed: argparse.Namespace) -> Answer:
    program = read(parsed.file, parsed)
    if parsed.graph is None:
        return Answer(program.text, lambda: _program_data(program, program.order), "program")
    found = body_named(program, parsed.graph)
    if found is None:
        known = ", ".join(map(ascii, program.order[:SHOWN]))
        near = did_you_mean(parsed.graph, program.order)
        raise CommandError(f"{parsed.file} has no graph {parsed.graph!a}; it has {known}{near}")
    return Answer(lambda: program.text(found[0]), lambda: _program_data(program, [found[0]]), "program")


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


def _verify(parsed: argparse.Namespace) -> Answer:
    seen = ""
    try:  # loading verifies; what is broken comes as an error
        program = read(parsed.file, parsed)
        found = verify(program, infer=parsed.infer)
        nodes = sum(len(graph.nodes) for graph in program.graphs.values())
        counts = f"{len(program.graphs):,} graphs, {nodes:,} nodes, {len(program.state.order):,} names of state"
        seen = f"valid: {counts}{', every value inferred' if parsed.infer else '; --infer checks the values of nodes too'}"
    except InvalidProgram as error:
        if not parsed.json:
            raise
        found = error.violations
    data = {"valid": not found, "findings": findings(found)}
    if not found:
        return Answer(lambda: seen, lambda: data)
    return Answer(lambda: "\n".join([f"{violation}\n" for violation in found]), lambda: data, "finding", 1)


def _digest(parsed: argparse.Namespace) -> Answer:
    found = digest(read(parsed.file, parsed))
    return Answer(lambda: found, lambda: {"digest": found})


def _diff(parsed: argparse.Namespace) -> Answer:
    change = diff(read(parsed.a, parsed), read(parsed.b, parsed))
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


def _stats(parsed: argparse.Namespace) -> Answer:
    found = stats(read_small(parsed.file, parsed))
    return Answer(lambda: str(found), found.to_dict, "table")


def _tree(parsed: argparse.Namespace) -> Answer:
    found = tree(transformed(read_small(parsed.file, parsed), parsed), depth=parsed.depth)
    return Answer(lambda: str(found), found.to_dict, "table")


def _history(parsed: argparse.Namespace) -> Answer:
    if parsed.step is not None and not parsed.forward:
        raise CommandError("--step says where to begin with --forward; backwards a node is one of the program as it is now")
    program, name = read_small(parsed.file, parsed), parsed.node
    if parsed.forward:
        graph, _, name = name.rpartition(" / ")
        found = became(program, name, graph=graph, step=parsed.step or 0)
        return Answer(lambda: str(found), found.to_dict, "history")
    has = [] if " / " in name else [one for one in program.order if name in program.graphs[one].by_name]
    if len(has) > 1 and program.root not in has:
        names = ", ".join([ascii(f"{one} / {name}") for one in has[:SHOWN]])
        raise CommandError(f"{len(has)} graphs have a node {name!a}; say which: {names}{' ...' if len(has) > SHOWN else ''}")
    try:
        origin = history(program, name)
    except NamingError as error:
        hint = "; the node of a graph or a module is written 'layers.0 / relu', one that was imported needs --forward"
        raise CommandError(f"{error}{hint}") from error
    return Answer(lambda: str(origin), origin.to_dict, "history")


def _convert(parsed: argparse.Namespace) -> Answer:
    source = vars(parsed)["in"]
    check_out(parsed.out, source)
    program = transformed(read(source, parsed), parsed)
    size = write(program, parsed.out, parsed, weights=not parsed.no_weights)
    return Answer(lambda: "", lambda: {"path": parsed.out, "bytes": size})


def _report(parsed: argparse.Namespace) -> Answer:
    check_out(parsed.out, parsed.file, parsed.before)
    program = read(parsed.file, parsed)
    before = None if parsed.before is None else read(parsed.before, parsed)
    program = transformed(program, parsed)
    path, found = report(program, Path(parsed.out), before=before), verify(program)
    data: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size, "findings": len(found)}
    data["steps"] = [step.name for step in program.trail]
    return Answer(lambda: str(path), lambda: data, status=1 if found else 0)


def _split(parsed: argparse.Namespace) -> Answer:
    if (parsed.parts is None) == (not parsed.at):
        raise CommandError("say where to cut: --parts N, or --at GLOB, not both")
    check_out(parsed.out, parsed.file)
    program = transformed(read_small(parsed.file, parsed), parsed)
    try:
        found = _cut(program, parsed)
    except PipelineError as error:
        raise CommandError(f"{error}; here: --transform") from error
    if "deduplicated" in program.facts:
        found = deduplicate(found)  # splitting gives each part bodies of its own
    size = write(found, parsed.out, parsed)
    data = {"path": parsed.out, "bytes": size, **_parts_data(found)}
    return Answer(lambda: _parts_text(data), lambda: data, "table")


def _cut(program: Program, parsed: argparse.Namespace) -> Program:
    if parsed.parts is not None:
        return split_balanced(program, parsed.parts)
    names = set(part_names(program))
    paths = [path for path in dict.fromkeys([original(frame.path, names) for frame in module_calls(program)]) if path]
    found = {path for glob in parsed.at for path in _matching(glob, paths)}
    at = [path for path in paths if path in found]
    return split_by_module(program, {path: f"stage{number}" for number, path in enumerate(at)})


def _matching(glob: str, paths: list[str]) -> list[str]:
    # A star stands for one name, so that 'layers.*' are the layers and not what is in them.
    wanted = glob.split(".")
    found = [path for path in paths if len(names := path.split(".")) == len(wanted) and all(map(fnmatchcase, names, wanted))]
    if not found:
        raise CommandError(f"no module that runs has the path {glob!a}{did_you_mean(glob, paths)}; `tree` shows them")
    return found


def _parts_data(program: Program) -> dict[str, Any]:
    texts = Texts()
    found = crossing(program, texts) or {"parts": [], "arrows": []}
    names = ["inputs", *[texts.items[name] for name, _ in found["parts"]], "outputs"]
    modules = stats(program).modules
    rows: list[dict[str, Any]] = []
    for part in parts(program):
        inside = [one for one in modules if one.path == part.name or is_below(one.path, part.name)]
        counts = {what: sum(getattr(one, what) for one in inside) for what in ("operators", "parameters", "bytes")}
        rows.append({"part": part.name, "body": part.graph, **counts})
    arrows = [
        {
            "from": names[start + 1], "to": names[end + 1], "values": [texts.items[one] for one in carried], "count": count,
            "bytes": size, "complete": complete,
        }
        for start, end, carried, count, size, complete in found["arrows"]
    ]  # fmt: skip
    return {"parts": rows, "crossing": arrows}


def _parts_text(data: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [("part", "body", "operators", "parameters", "bytes")]
    for one in data["parts"]:
        rows.append((one["part"], f"@{one['body']}", *[f"{one[what]:,}" for what in ("operators", "parameters", "bytes")]))
    arrows: list[tuple[str, ...]] = [("from", "to", "values", "bytes")]
    for one in data["crossing"]:
        size = f"{one['bytes']:,}" if one["complete"] else f"{one['bytes']:,}+" if one["bytes"] else "?"
        arrows.append((one["from"], one["to"], f"{one['count']:,}", size))
    return "\n".join([*table(rows, left=2), "", *table(arrows, left=2)])


RUN = {
    "show": _show, "verify": _verify, "digest": _digest, "diff": _diff, "stats": _stats, "tree": _tree, "history": _history,
    "convert": _convert, "report": _report, "split": _split,
}  # fmt: skip
