"""``main``: parses what was typed, runs the command, and makes a message and an exit status of every error.

An error is never a traceback, whose status would mean that programs differ.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from purefx._command.looking import looking_commands
from purefx._command.options import Commands, UsageError
from purefx._command.origins import history_command
from purefx._command.output import CommandError, check_color, put, put_error
from purefx._command.sizes import size_commands
from purefx._command.splitting import split_command
from purefx._command.writing import writing_commands
from purefx.ir.errors import InvalidProgram, PurefxError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what stands behind ``python -m purefx``; by default what the process was started with.

    Returns:
        The exit status: 0; 1 where programs differ or something is wrong with one; 2 where something could not be done.

    Raises:
        SystemExit: what was typed is no command (2), or help was asked for (0).

    >>> main(["show", "no/such/file.purefx"])
    2
    """
    given = _parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        check_color(given.color)
        for name in given.modules:
            _import(name)
        status = put(given.run(given), given)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head` closes the pipe: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  whatever it is, it has a status of ours
        status, message = _judged(error)
        put_error(error, message, as_json=given.json)
    return status


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    commands = Commands("Look at programs in files, compare, convert and split them.")
    looking_commands(commands)
    size_commands(commands)
    history_command(commands)
    writing_commands(commands)
    split_command(commands)
    try:
        return commands.parsed(arguments)
    except UsageError as error:
        put_error(error, str(error), as_json="--json" in arguments)
        raise SystemExit(2) from None


def _judged(error: BaseException) -> tuple[int, str]:
    match error:
        case InvalidProgram():
            return 1, str(error)
        case PurefxError() | OSError():
            return 2, f"purefx: {error}"
        case KeyboardInterrupt():
            return 2, "purefx: interrupted; nothing was written"
        case _:  # a mistake of ours: Python's own status for it, 1, would say that programs differ
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename}:{frame.lineno}"
            return 2, f"purefx: this is a defect of purefx: {type(error).__name__}: {error} ({where})"


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever the module does
        raise CommandError(f"--import {name!a}: {type(error).__name__}: {error}") from error
