"""The command line, ``python -m purefx COMMAND``: which commands and options there are, and ``main``.

Torch takes seconds to import, so nothing here does: what a command runs is imported when it runs.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import purefx

__all__ = ["main"]

PROGRAM = "python -m purefx"

FILE = "a saved program, or a .pt2 with --trust"

STATUS = "status: 0; 1 if programs differ or a program is invalid; 2 if the command could not run"

OUT = "the file to write, never the one that is read; an old one is replaced when the new one is complete"

TRANSFORM = ("--transform", {"action": "store_true", "help": "restore the hierarchy of modules first"})

COMMANDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], list[tuple[str, dict[str, Any]]]]] = {
    "show": (
        "Print a program as text.", ("show model.purefx", "show model.purefx --graph Block"), ("FILE",),
        [("--graph", {"metavar": "ID", "help": 'only this graph, by its id or a module that runs it; "" is the root'})],
    ),
    "verify": (
        "List all problems in a program; exits with 1 if there are any.", ("verify model.purefx --infer",), ("FILE",),
        [("--infer", {"action": "store_true", "help": "run every operator on fake values too, and compare"})],
    ),
    "digest": ("Print a hash of a program that does not depend on names.", ("digest model.purefx",), ("FILE",), []),
    "diff": (
        "Print the differences of two programs; exits with 1 if there are any.", ("diff before.purefx after.purefx",),
        ("A", "B"), [],
    ),
    "stats": (
        "Count operators, modules, parameters, bytes and floating point operations.", ("stats model.purefx",), ("FILE",), [],
    ),
    "tree": (
        "Print the tree of modules with the sizes of each; modules with equal bodies are one row (x32).",
        ("tree model.purefx", "tree model.pt2 --trust --transform --depth 3"), ("FILE",),
        [("--depth", {"type": int, "metavar": "N", "help": "levels below the root; 0 is the root alone"}), TRANSFORM],
    ),
    "history": (
        "Trace a node back to its steps, imported nodes and source lines, or forward to what became of it.",
        ("history model.purefx 'Block / relu'", "history model.purefx relu_1 --forward"), ("FILE",),
        [
            ("node", {"metavar": "NODE", "help": "its name; 'layers.0 / relu' is the one in that graph or module"}),
            ("--forward", {"action": "store_true", "help": "trace a node that was imported"}),
            ("--step", {"type": int, "metavar": "N", "help": "with --forward: the node had this name after N steps"}),
        ],
    ),
    "convert": (
        "Save a program as data that loads without trust.", ("convert model.pt2 new.purefx --trust --transform",), ("IN",),
        [
            ("out", {"metavar": "OUT", "help": OUT}), TRANSFORM,
            ("--no-weights", {"action": "store_true", "help": "leave out the tensors of the state_dict"}),
        ],
    ),
    "report": (
        "Write a program, its steps and its problems as one HTML file; exits with 1 if it has problems.",
        ("report model.pt2 --trust --transform --out model.html",), ("FILE",),
        [
            ("--out", {"metavar": "HTML", "default": "report.html", "help": "the file to write; only a report is replaced"}),
            ("--before", {"metavar": "FILE", "help": "a program to compare with, first in the time line"}), TRANSFORM,
        ],
    ),
    "split": (
        "Split a program into parts that run one after the other, and print their sizes and the values that cross.",
        ("split model.purefx parts.purefx --parts 2", "split model.purefx parts.purefx --at 'layers.*'"), ("FILE",),
        [
            ("out", {"metavar": "OUT", "help": OUT}), TRANSFORM,
            ("--parts", {"type": int, "metavar": "N", "help": "N parts of about equal size, in bytes of parameters"}),
            ("--at", {"metavar": "GLOB", "action": "append", "default": [], "help": "a part for each of these modules"}),
        ],
    ),
}  # fmt: skip
"""By name: what it does, examples, the files that it reads, and its other arguments. ``_command/run.py`` has its function."""

SHARED: list[tuple[str, dict[str, Any]]] = [
    ("--json", {"action": "store_true", "help": "print one JSON document, also of an error"}),
    ("--color", {
        "choices": ("auto", "always", "never"), "default": "auto",
        "help": "auto: if stdout is a terminal, rich is installed and NO_COLOR is not set",
    }),
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


class UsageError(Exception):
    """The arguments are no command; the text has the usage, the reason and an example."""


class Parser(argparse.ArgumentParser):
    """A parser that raises, and gives an example."""

    examples: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, with the usage and an example."""
        example = f"example: {PROGRAM} {self.examples[0]}"
        head = self.format_usage().rstrip()
        raise UsageError("\n".join([head, f"{self.prog}: error: {message}", example, f"more: {self.prog} --help"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows ``python -m purefx``; by default the arguments of the process.

    Returns:
        The exit status: 0; 1 if programs differ or one is invalid; 2 if the command could not run.

    Raises:
        SystemExit: the arguments are no command (2), or help or the version was printed (0).

    >>> main(["show", "no/such/file.purefx"])
    2
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        parsed = _parsed(words)
    except UsageError as error:
        message = "".join([char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in str(error)])
        sys.stderr.write(f"{message}\n")
        if "--json" in words:
            sys.stdout.write(json.dumps({"error": "UsageError", "message": message}) + "\n")
        raise SystemExit(2) from None
    run: Any = importlib.import_module("purefx._command.run")
    return run.run_command(parsed)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    told = "Look at programs in files, compare, convert and split them."
    top = Parser(PROGRAM, description=told, epilog=STATUS, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.examples = ("show model.purefx",)
    top.add_argument("--version", action="version", version=f"purefx {purefx.__version__}")
    added = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    parsers = {name: _parser(added, name) for name in COMMANDS}
    first = words[0] if words else ""
    if first and not first.startswith("-") and first not in parsers:
        top.error(f"there is no command {first!a}{_near(first, parsers)}; there are {', '.join(parsers)}")
    parsed, more = top.parse_known_args(words)
    if more:
        parser = parsers[parsed.command]
        known = set(re.findall(r"--[a-z-]+", parser.format_help()))
        parser.error(f"unrecognized arguments: {' '.join(map(ascii, more))}{_near(more[0], known)}")
    return parsed


def _parser(added: Any, name: str) -> Parser:
    told, examples, files, options = COMMANDS[name]
    made: Parser = added.add_parser(
        name,
        help=told,
        description=textwrap.fill(told, 78),
        epilog="\n".join([f"example: {PROGRAM} {one}" for one in examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.examples = examples
    for file in files:
        made.add_argument(file.lower(), metavar=file, help=FILE)
    for option, settings in options:
        made.add_argument(option, **settings)
    shared = made.add_argument_group("options of all commands")
    for option, settings in SHARED:
        shared.add_argument(option, **settings)
    made.set_defaults(command=name)
    return made


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
