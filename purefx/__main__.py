"""The command line, ``python -m purefx COMMAND``: its commands and options, and ``main``.

Torch takes seconds to import, so this file does not import it; each command imports its code when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import purefx

__all__ = ["main"]

PROGRAM = "python -m purefx"
STATUS = "status: 0; 1 if programs differ or a program is invalid; 2 if the command could not run"
OUT = "the file to write, never the one that is read; an old one is replaced when the new one is complete"

TRANSFORM = (
    "--transform",
    {"action": "store_true", "help": "restore the hierarchy of modules first"},
)

COMMANDS: dict[str, tuple[str, str, tuple[str, ...], list[tuple[str, dict[str, Any]]]]] = {
    "show": (
        "Print a program as text.", "show model.purefx --graph Block", ("FILE",),
        [("--graph", {"metavar": "ID", "help": 'only this graph, by its id or a module that runs it; "" is the root'})],
    ),
    "verify": (
        "List all problems in a program; exits with 1 if there are any.", "verify model.purefx --infer", ("FILE",),
        [("--infer", {"action": "store_true", "help": "run every operator on fake values too, and compare"})],
    ),
    "diff": (
        "Print the differences of two programs; exits with 1 if there are any.", "diff before.purefx after.purefx",
        ("A", "B"), [],
    ),
    "stats": ("Count operators, modules, parameters, bytes and floating point operations.", "stats model.purefx", ("FILE",), []),
    "tree": (
        "Print the tree of modules with the sizes of each; modules with equal bodies are one row (x32).",
        "tree model.pt2 --trust --transform --depth 3", ("FILE",),
        [("--depth", {"type": int, "metavar": "N", "help": "levels below the root; 0 is the root alone"}), TRANSFORM],
    ),
    "history": (
        "Trace a node back to its steps, imported nodes and source lines, or forward to its results.",
        "history model.purefx 'Block / relu'", ("FILE",),
        [
            ("node", {"metavar": "NODE", "help": "its name; 'layers.0 / relu' is the one in that graph or module"}),
            ("--forward", {"action": "store_true", "help": "trace an imported node"}),
        ],
    ),
    "convert": (
        "Save a program as data that loads without trust.", "convert model.pt2 new.purefx --trust --transform", ("FILE",),
        [
            ("out", {"metavar": "OUT", "help": OUT}), TRANSFORM,
            ("--no-weights", {"action": "store_true", "help": "leave out the tensors of the state_dict"}),
        ],
    ),
    "report": (
        "Write a program, its steps and its problems as one HTML file; exits with 1 if it has problems.",
        "report model.pt2 --trust --transform --out model.html", ("FILE",),
        [
            ("--out", {"metavar": "HTML", "default": "report.html", "help": "the file to write; only a report is replaced"}),
            ("--before", {"metavar": "FILE", "help": "a program to compare with, first in the time line"}), TRANSFORM,
        ],
    ),
    "split": (
        "Split a program into parts that run one after the other, and print their sizes and the values that cross.",
        "split model.purefx parts.purefx --at 'layers.*'", ("FILE",),
        [
            ("out", {"metavar": "OUT", "help": OUT}), TRANSFORM,
            ("--parts", {"type": int, "metavar": "N", "help": "N parts of about equal size, in bytes of parameters"}),
            ("--at", {"metavar": "GLOB", "action": "append", "default": [], "help": "a part for each of these modules"}),
        ],
    ),
}  # fmt: skip
"""By name: summary, example, files that it reads, and other arguments. ``_command.py`` has its function."""

SHARED: list[tuple[str, dict[str, Any]]] = [
    ("--trust", {"action": "store_true", "help": "load .pt2 files too, which run code while torch loads them"}),
    ("--import", {
        "dest": "modules", "metavar": "MODULE", "action": "append", "default": [],
        "help": "import a module first that registers operators or classes which the file names",
    }),
    ("--allow", {
        "metavar": "NAME", "action": "append", "default": [],
        "help": "accept an operator that reaches beyond tensors, by the name in the error message",
    }),
]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows ``python -m purefx``; by default the arguments of the process.

    Returns:
        The exit status: 0; 1 if programs differ or one is invalid; 2 if the command could not run.

    Raises:
        SystemExit: the arguments are not a command (2), or help or the version was printed (0).

    >>> main(["show", "no/such/file.purefx"])
    2
    """
    summary = "Inspect, compare, convert and split programs in files."
    top = argparse.ArgumentParser(PROGRAM, description=summary, epilog=STATUS)
    top.add_argument("--version", action="version", version=f"purefx {purefx.__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, (what, example, files, options) in COMMANDS.items():
        parser = commands.add_parser(
            name, help=what, description=what, epilog=f"example: {PROGRAM} {example}"
        )
        for file in files:
            parser.add_argument(
                file.lower(), metavar=file, help="a saved program, or a .pt2 with --trust"
            )
        for option, settings in [*options, *SHARED]:
            parser.add_argument(option, **settings)
    parsed = top.parse_args(arguments)
    run: Any = importlib.import_module("purefx._command")
    return run.run_command(parsed)


if __name__ == "__main__":
    sys.exit(main())
