"""``split``: a program becomes parts that run one after the other, in one file, and the command says what crosses them.

Where to cut is said in one of four ways; what a cut means is the business of ``purefx.split_by_tags`` and its siblings.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from purefx._command.files import check_out, read_small, transform_option, transformed, write
from purefx._command.options import Commands
from purefx._command.output import Answer, CommandError
from purefx.ir.calls.call_graph import module_calls
from purefx.ir.calls.parts import original, part_names, parts
from purefx.ir.errors import PartitionError, PipelineError
from purefx.ir.names import did_you_mean, is_below
from purefx.ir.program import Program
from purefx.report.crossing import crossing
from purefx.report.table import Texts
from purefx.stats import stats, table
from purefx.transforms import deduplicate, split_balanced, split_by_module, split_by_tags

__all__ = ["split_command"]

SHOWN = 12
"""How many tags are named."""


def split_command(commands: Commands) -> None:
    """Add the command.

    Args:
        commands: of the command line.
    """
    told = "Split a program into parts that run one after the other, and say how large they are and what crosses them."
    examples = (
        "split model.purefx parts.purefx --parts 2",
        "split model.purefx parts.purefx --at 'layers.*'",
        "split model.pt2 parts.purefx --trust --transform --part first=layers.0 --part rest=layers.1,layers.2",
    )
    made = commands.add("split", _split, told, *examples, files=["FILE"])
    made.add_argument("out", metavar="OUT", help="the file to write, never FILE; what is there is replaced when all is done")
    ways = made.add_argument_group("where to cut (one of them)").add_mutually_exclusive_group(required=True)
    ways.add_argument("--parts", type=int, metavar="N", help="N parts, the largest as small as it can be, in bytes of parameters")
    told = "a part for each module of this path, in the order in which they run: 'layers.*'; several times"
    ways.add_argument("--at", metavar="GLOB", action="append", help=told)
    told = "a part with these modules; several times, in the order in which the parts run"
    ways.add_argument("--part", metavar="NAME=GLOB,...", action="append", help=told)
    ways.add_argument("--tags", metavar="NAME,...", help="a part for each tag that nodes have in meta['tag'], in this order")
    made.add_argument("--allow-reuse", action="store_true", help="a part that others must run in the middle of becomes several")
    transform_option(made)


def _split(given: argparse.Namespace) -> Answer:
    check_out(given.out, [given.file])
    program = transformed(read_small(given.file, given), given)
    try:
        found = _cut(program, given)
    except (PipelineError, PartitionError) as error:  # it tells of Python's arguments
        option = "--transform" if isinstance(error, PipelineError) else "--allow-reuse" if "allow_reuse" in str(error) else ""
        raise CommandError(f"{error}{option and f'; here: {option}'}") from error
    if "deduplicated" in program.facts:
        found = deduplicate(found)  # splitting gives each part bodies of its own
    size = write(found, given.out, given)
    said = {"path": given.out, "bytes": size, **_told(found)}
    return Answer(lambda: _text(said), lambda: said, "table")


def _cut(program: Program, given: argparse.Namespace) -> Program:
    reuse = given.allow_reuse
    if given.parts is not None:
        return split_balanced(program, given.parts)
    if given.tags is not None:
        return split_by_tags(program, _tags(program, given.tags.split(",")), allow_reuse=reuse)
    paths = _paths(program)
    if given.at is not None:
        found = dict.fromkeys([path for glob in given.at for path in _matching(glob, paths)])
        at = [path for path in paths if path in found]
        return split_by_module(program, {path: f"stage{number}" for number, path in enumerate(at)}, allow_reuse=reuse)
    return split_by_module(program, _named(given.part, paths), allow_reuse=reuse)


def _tags(program: Program, wanted: list[str]) -> list[str]:
    # A tag that no node has is a part without nodes to the library; here it is a slip.
    known = {tag for _, node in program.nodes() if isinstance(tag := node.meta.get("tag"), str)}
    for tag in wanted:
        if tag not in known:
            has = f"they have {', '.join(map(ascii, sorted(known)[:SHOWN]))}" if known else "none has any"
            raise CommandError(f"no node has the tag {tag!a}{did_you_mean(tag, known)}; {has}")
    return wanted


def _named(wanted: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in wanted:
        name, equals, globs = one.partition("=")
        if not (name and equals):
            raise CommandError(f"--part {one!a}: write NAME=GLOB, like --part first=layers.0,layers.1")
        for glob in globs.split(","):
            for path in _matching(glob, paths) if glob else [""]:
                if found.setdefault(path, name) != name:
                    raise CommandError(f"{path!a} is asked for in two parts, {found[path]!a} and {name!a}")
    return found


def _paths(program: Program) -> list[str]:
    # In the order in which modules first run; those that are never called are of no part.
    names = set(part_names(program))
    return [path for path in dict.fromkeys([original(frame.path, names) for frame in module_calls(program)]) if path]


def _matching(glob: str, paths: Sequence[str]) -> list[str]:
    # A star stands for one name, so that 'layers.*' are the layers and not what is in them.
    wanted = glob.split(".")
    found = [path for path in paths if len(names := path.split(".")) == len(wanted) and all(map(fnmatchcase, names, wanted))]
    if not found:
        raise CommandError(f"no module that runs has the path {glob!a}{did_you_mean(glob, paths)}; `tree` shows them")
    return found


def _told(program: Program) -> dict[str, Any]:
    texts = Texts()
    found = crossing(program, texts) or {"parts": [], "arrows": []}
    names = ["inputs", *[texts.items[name] for name, _ in found["parts"]], "outputs"]
    modules = stats(program).modules
    told: list[dict[str, Any]] = []
    for part in parts(program):
        inside = [one for one in modules if one.path == part.name or is_below(one.path, part.name)]
        counts = {what: sum(getattr(one, what) for one in inside) for what in ("operators", "parameters", "bytes")}
        told.append({"part": part.name, "body": part.graph, **counts})
    arrows = [
        {
            "from": names[start + 1], "to": names[end + 1], "values": [texts.items[one] for one in carried], "count": count,
            "bytes": size, "complete": complete,
        }
        for start, end, carried, count, size, complete in found["arrows"]
    ]  # fmt: skip
    return {"parts": told, "crossing": arrows}


def _text(said: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [("part", "body", "operators", "parameters", "bytes")]
    for one in said["parts"]:
        rows.append((one["part"], f"@{one['body']}", *[f"{one[what]:,}" for what in ("operators", "parameters", "bytes")]))
    arrows: list[tuple[str, ...]] = [("from", "to", "values", "bytes")]
    for one in said["crossing"]:
        size = f"{one['bytes']:,}" if one["complete"] else f"{one['bytes']:,}+" if one["bytes"] else "?"
        arrows.append((one["from"], one["to"], f"{one['count']:,}", size))
    return "\n".join([*table(rows, left=2), "", *table(arrows, left=2)])
