"""The function of each command, and the exit status of every error: a traceback would exit with 1, as for different programs.

The output is that of the library.  A file that purefx wrote is data and needs no trust; torch runs code while it loads a .pt2,
so that needs ``--trust``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from attrs import frozen

from purefx.ir.analysis.diff import diff
from purefx.ir.analysis.history import became, history
from purefx.ir.calls.call_graph import body_named, module_calls
from purefx.ir.calls.parts import original, part_names, parts
from purefx.ir.errors import InvalidProgram, NamingError, PipelineError, PurefxError
from purefx.ir.importing import import_ep
from purefx.ir.names import did_you_mean, escaped, is_below
from purefx.ir.program import Program
from purefx.ir.show.styled import Form, styled
from purefx.ir.store import load, save
from purefx.ir.store.container import is_zip
from purefx.ir.torch_private import silence
from purefx.ir.verify import verify
from purefx.report import report
from purefx.report.gather import MOST_INSTANCES, is_small, parts_of
from purefx.stats import stats, table, tree
from purefx.transforms import deduplicate, split_balanced, split_by_module, transform

SHOWN = 20
"""The maximal number of graphs in an error message."""

WHY_TRUST = (
    "torch runs code from a .pt2 file while it loads it: it unpickles objects and evaluates text. If you trust the author "
    "of the file, pass --trust; `convert` it once to a file that needs no trust"
)


class CommandError(PurefxError, ValueError):
    """The command cannot run; the message has the reason and what to type."""


@frozen
class Answer:
    """The result of a command."""

    text: str
    form: Form | None = None
    """The kind of text; None for text without colours."""
    status: int = 0


def run_command(parsed: argparse.Namespace) -> int:
    """Run a command, print its answer or its error, and return the exit status.

    Args:
        parsed: the command and its options.
    """
    try:
        for name in parsed.modules:
            _import(name)
        answer = RUN[parsed.command](parsed)
        _print(answer)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head` closes the pipe: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  every error has an exit status
        status, message = _status_and_message(error)
        sys.stderr.write(escaped(message) + "\n")
        return status
    return answer.status


def _print(answer: Answer) -> None:
    # Names of a program are escaped, so the only terminal escapes in the output are those of our colours.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = (
        escaped(answer.text)
        .removesuffix("\n")
        .encode(encoding, "backslashreplace")
        .decode(encoding)
    )
    if (
        answer.form is not None
        and sys.stdout.isatty()
        and importlib.util.find_spec("rich") is not None
    ):
        from rich.console import Console

        Console().print(styled(text, answer.form), soft_wrap=True)
    elif text:
        sys.stdout.write(f"{text}\n")


def _status_and_message(error: BaseException) -> tuple[int, str]:
    match error:
        case InvalidProgram():
            return 1, str(error)
        case PurefxError() | OSError():
            return 2, f"purefx: {error}"
        case KeyboardInterrupt():
            return 2, "purefx: interrupted; nothing was written"
        case _:  # a bug of purefx
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename}:{frame.lineno}"
            return (
                2,
                f"purefx: this is a bug in purefx, please report it: {type(error).__name__}: {error} ({where})",
            )


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # the module may raise anything
        raise CommandError(f"--import {name!a}: {type(error).__name__}: {error}") from error


# -- files ----------------------------------------------------------------------------------------------------------------------


def _read(path: str, parsed: argparse.Namespace) -> Program:
    if not is_zip(path):
        return load(path, device="cpu", allow=parsed.allow)
    if not parsed.trust:
        raise CommandError(f"{path}: {WHY_TRUST}")
    try:
        with silence():
            ep = torch.export.load(path)
    except Exception as error:  # torch may raise anything
        raise CommandError(
            f"{path}: torch cannot load it: {type(error).__name__}: {error}"
        ) from error
    return import_ep(ep)


def _read_small(path: str, parsed: argparse.Namespace) -> Program:
    program = _read(path, parsed)
    if not is_small(program):
        raise CommandError(
            f"{path}: bodies are called more than {MOST_INSTANCES:,} times in all, too often to list each call"
        )
    return program


def _transformed(program: Program, parsed: argparse.Namespace) -> Program:
    return transform(program) if parsed.transform else program


def _check_out(path: str, *sources: str | None) -> None:
    out = Path(path)
    if any(
        source is not None and out.exists() and Path(source).exists() and out.samefile(source)
        for source in sources
    ):
        raise CommandError(f"{path} is also an input; choose another name for the result")
    if not out.is_dir() and not Path(os.path.realpath(out)).parent.is_dir():
        raise CommandError(f"the folder {str(out.parent)!a} does not exist")


# -- commands -------------------------------------------------------------------------------------------------------------------


def _show(parsed: argparse.Namespace) -> Answer:
    program = _read(parsed.file, parsed)
    if parsed.graph is None:
        return Answer(program.text(), "program")
    found = body_named(program, parsed.graph)
    if found is None:
        known = ", ".join(map(ascii, program.order[:SHOWN]))
        near = did_you_mean(parsed.graph, program.order)
        raise CommandError(f"{parsed.file} has no graph {parsed.graph!a}; it has {known}{near}")
    return Answer(program.text(found[0]), "program")


def _verify(parsed: argparse.Namespace) -> Answer:
    program = _read(parsed.file, parsed)  # raises if the program is invalid
    found = verify(program, infer=parsed.infer)
    if found:
        return Answer("\n".join([f"{violation}\n" for violation in found]), "finding", 1)
    nodes = sum(len(graph.nodes) for graph in program.graphs.values())
    counts = f"{len(program.graphs):,} graphs, {nodes:,} nodes, {len(program.state.order):,} names of state"
    return Answer(
        f"valid: {counts}{', every value inferred' if parsed.infer else '; --infer checks the values of nodes too'}"
    )


def _diff(parsed: argparse.Namespace) -> Answer:
    change = diff(_read(parsed.a, parsed), _read(parsed.b, parsed))
    return Answer(str(change), "diff", 1) if change else Answer("")


def _stats(parsed: argparse.Namespace) -> Answer:
    return Answer(str(stats(_read_small(parsed.file, parsed))), "table")


def _tree(parsed: argparse.Namespace) -> Answer:
    return Answer(
        str(tree(_transformed(_read_small(parsed.file, parsed), parsed), depth=parsed.depth)),
        "table",
    )


def _history(parsed: argparse.Namespace) -> Answer:
    program, name = _read_small(parsed.file, parsed), parsed.node
    if parsed.forward:
        graph, _, name = name.rpartition(" / ")
        return Answer(str(became(program, name, graph=graph)), "history")
    has = (
        []
        if " / " in name
        else [one for one in program.order if name in program.graphs[one].by_name]
    )
    if len(has) > 1 and program.root not in has:
        names = ", ".join([ascii(f"{one} / {name}") for one in has[:SHOWN]])
        raise CommandError(
            f"{len(has)} graphs have a node {name!a}; pick one: {names}{' ...' if len(has) > SHOWN else ''}"
        )
    try:
        return Answer(str(history(program, name)), "history")
    except NamingError as error:
        hint = "; write a node of a graph or module as 'layers.0 / relu', and pass --forward for an imported node"
        raise CommandError(f"{error}{hint}") from error


def _convert(parsed: argparse.Namespace) -> Answer:
    _check_out(parsed.out, parsed.file)
    program = _transformed(_read(parsed.file, parsed), parsed)
    save(program, parsed.out, weights=not parsed.no_weights, allow=parsed.allow)
    return Answer("")


def _report(parsed: argparse.Namespace) -> Answer:
    _check_out(parsed.out, parsed.file, parsed.before)
    program = _read(parsed.file, parsed)
    before = None if parsed.before is None else _read(parsed.before, parsed)
    program = _transformed(program, parsed)
    return Answer(
        str(report(program, Path(parsed.out), before=before)), status=1 if verify(program) else 0
    )


def _split(parsed: argparse.Namespace) -> Answer:
    if (parsed.parts is None) == (not parsed.at):
        raise CommandError("pass either --parts N or --at GLOB, not both")
    _check_out(parsed.out, parsed.file)
    program = _transformed(_read_small(parsed.file, parsed), parsed)
    try:
        found = (
            split_balanced(program, parsed.parts)
            if parsed.at == []
            else _split_at(program, parsed.at)
        )
    except PipelineError as error:
        raise CommandError(f"{error}; here: --transform") from error
    if "deduplicated" in program.facts:
        found = deduplicate(found)  # splitting copies bodies for each part
    save(found, parsed.out, allow=parsed.allow)
    return Answer(_parts_text(found), "table")


def _split_at(program: Program, globs: Iterable[str]) -> Program:
    names = part_names(program)
    paths = [
        path
        for path in dict.fromkeys([original(frame.path, names) for frame in module_calls(program)])
        if path
    ]
    found = {path for glob in globs for path in _matching(glob, paths)}
    at = [path for path in paths if path in found]
    return split_by_module(program, {path: f"stage{number}" for number, path in enumerate(at)})


def _matching(glob: str, paths: list[str]) -> list[str]:
    # A star matches one name, so 'layers.*' matches the layers but not the modules in them.
    wanted = glob.split(".")
    found = [
        path
        for path in paths
        if len(names := path.split(".")) == len(wanted) and all(map(fnmatchcase, names, wanted))
    ]
    if not found:
        raise CommandError(
            f"no called module matches {glob!a}{did_you_mean(glob, paths)}; `tree` lists them"
        )
    return found


def _parts_text(program: Program) -> str:
    modules = stats(program).modules
    rows: list[tuple[str, ...]] = [("part", "body", "operators", "parameters", "bytes")]
    for part in parts(program):
        inside = [one for one in modules if one.path == part.name or is_below(one.path, part.name)]
        counts = [sum(getattr(one, what) for one in inside) for what in rows[0][2:]]
        rows.append((part.name, f"@{part.graph}", *[f"{count:,}" for count in counts]))
    arrows: list[tuple[str, ...]] = [("from", "to", "values", "bytes")]
    for one in (parts_of(program) or {"arrows": []})["arrows"]:
        size = f"{one['bytes']:,}{'' if one['complete'] else '+'}"
        arrows.append((one["from"], one["to"], f"{len(one['values']):,}", size))
    return "\n".join([*table(rows, left=2), "", *table(arrows, left=2)])


RUN = {
    "show": _show, "verify": _verify, "diff": _diff, "stats": _stats, "tree": _tree, "history": _history, "convert": _convert,
    "report": _report, "split": _split,
}  # fmt: skip
