"""``stats`` and ``tree``: how large a program is, in all and by module.

Both count as ``purefx.stats`` does; ``hierarchy`` says which modules are one row of the tree.
"""

from __future__ import annotations

import argparse

from purefx._command.files import read_small, transform_option, transformed
from purefx._command.hierarchy import Row, rows_of
from purefx._command.options import Commands
from purefx._command.output import Answer, CommandError
from purefx.stats import stats, table

__all__ = ["size_commands"]

DEEPEST = 40
"""How deep rows are indented; deeper ones stand in one column."""

FLAT = "The program is flat: no module has a body of its own.  With --transform, modules with equal bodies are one row."


def size_commands(commands: Commands) -> None:
    """Add the commands.

    Args:
        commands: of the command line.
    """
    told = "Count operators, modules, parameters, bytes and floating point operations."
    commands.add("stats", _stats, told, "stats model.purefx", files=["FILE"])
    told = (
        "Print the tree of modules, each with what is in and below it. Modules with equal bodies are one row (x32): all of them."
    )
    tree = commands.add("tree", _tree, told, "tree model.purefx", "tree model.pt2 --trust --transform --depth 3", files=["FILE"])
    tree.add_argument("--depth", type=int, metavar="N", help="how deep; 0 is the root alone")
    transform_option(tree)


def _stats(given: argparse.Namespace) -> Answer:
    found = stats(read_small(given.file, given))
    return Answer(lambda: str(found), found.to_dict, "table")


def _tree(given: argparse.Namespace) -> Answer:
    if given.depth is not None and given.depth < 0:
        raise CommandError(f"--depth {given.depth}: it is how many levels are shown below the root, 0 or more")
    program = transformed(read_small(given.file, given), given)
    rows = rows_of(program, depth=given.depth)
    is_flat = len(rows) > 1 and not any(row.bodies for row in rows)
    return Answer(lambda: _text(rows, is_flat=is_flat), lambda: {"modules": [row.to_dict() for row in rows]}, "table")


def _text(rows: list[Row], *, is_flat: bool) -> str:
    head = ("module", "", "class", "body", "operators", "parameters", "bytes", "flops")
    lines = table([head, *map(_cells, rows)], left=4)
    return "\n".join([*lines, *(["", FLAT] if is_flat else [])])


def _cells(row: Row) -> tuple[str, ...]:
    times = f"x{len(row.paths):,}" if len(row.paths) > 1 else ""
    name = (row.type_name or "").rpartition(".")[2]
    body = f"as {row.like}" if row.like is not None else ", ".join([f"@{body}" for body in row.bodies])
    counts = [f"{count:,}" for count in (row.operators, row.parameters, row.bytes)]
    flops = "-" if row.flops is None else f"{row.flops:,}"
    return ("  " * min(row.depth, DEEPEST) + row.label, times, name, body, *counts, flops)
