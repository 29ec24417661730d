"""What was typed, parsed: one parser for each command, the options that all have, and advice where something is wrong.

Each command has an example in its help, which a test runs.  What a command does is not known here.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from purefx._command.output import Answer
from purefx.ir.names import did_you_mean

__all__ = ["Commands", "UsageError"]

PROGRAM = "python -m purefx"

FILE = "a saved program, or a .pt2 with --trust"

STATUS = "status: 0; 1 where programs differ or something is wrong with one; 2 where something could not be done"


class UsageError(Exception):
    """What was typed is no command; the text has the usage, the reason and an example.

    >>> issubclass(UsageError, Exception)
    True
    """


class Parser(argparse.ArgumentParser):
    """A parser that raises, and gives an example."""

    examples: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, with the usage and an example."""
        more = [f"example: {self.examples[0]}"] if self.examples else []
        lines = [self.format_usage().rstrip(), f"{self.prog}: error: {message}", *more, f"more: {self.prog} --help"]
        raise UsageError("\n".join(lines))


class Commands:
    """The parser of the command line, to which commands add themselves.

    >>> commands = Commands("Look at programs.")
    >>> _ = commands.add("show", lambda given: 0, "Print it.", "show a.purefx", files=["FILE"])
    >>> commands.parsed(["show", "a.purefx", "--json"]).json
    True
    """

    def __init__(self, told: str) -> None:
        self._parser = Parser(PROGRAM, description=told, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=STATUS)
        self._parser.examples = (f"{PROGRAM} show model.purefx",)
        self._added = self._parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
        self._by_name: dict[str, Parser] = {}
        self._shared = _shared()

    def add(
        self, name: str, run: Callable[[argparse.Namespace], Answer], told: str, *examples: str, files: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser, for options of its own.

        Args:
            name: what is typed.
            run: does it.
            told: what it does, in a sentence or two.
            examples: what may stand behind ``python -m purefx``.
            files: what it reads, in order.
        """
        lines = [f"{PROGRAM} {one}" for one in examples]
        made = self._added.add_parser(
            name,
            parents=[self._shared],
            help=told,
            description=textwrap.fill(told, 78),
            epilog="\n".join([f"example: {line}" for line in lines]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.examples = tuple(lines)
        for file in files:
            made.add_argument(file.lower(), metavar=file, help=FILE)
        made.set_defaults(run=run, command=name)
        self._by_name[name] = made
        return made

    def parsed(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return what was typed.

        Args:
            arguments: the words.

        Raises:
            UsageError: they are no command.
            SystemExit: help was asked for, and printed.
        """
        first = arguments[0] if arguments else ""
        if first and not first.startswith("-") and first not in self._by_name:
            near = did_you_mean(first, self._by_name)
            self._parser.error(f"there is no command {first!a}{near}; there are {', '.join(self._by_name)}")
        given, more = self._parser.parse_known_args(arguments)
        if more:
            parser = self._by_name[given.command]
            known = set(re.findall(r"--[a-z-]+", parser.format_help()))
            parser.error(f"unrecognized arguments: {' '.join(map(ascii, more))}{did_you_mean(more[0], known)}")
        return given


def _shared() -> Parser:
    shared = Parser(add_help=False)
    add: Callable[..., Any] = shared.add_argument_group("options of all commands").add_argument
    add("--json", action="store_true", help="print one JSON document instead, also of an error")
    told = "colours: where stdout is a terminal, rich is installed and NO_COLOR is not set (auto); always; never"
    add("--color", choices=("auto", "always", "never"), default="auto", help=told)
    add("--trust", action="store_true", help="load .pt2 files of torch too, which run code when they are loaded")
    told = "import a module first, which registers operators"
    add("--import", dest="modules", metavar="MODULE", action="append", default=[], help=told)
    told = "accept an operator that a file may not name unasked, as an error has named it"
    add("--allow", metavar="NAME", action="append", default=[], help=told)
    return shared
