"""What a command answers, and how that is printed: as text, as text with colours, or as one JSON document.

Both are made only when they are asked for.  Whatever a program says is escaped, so the output has no terminal escapes but
those of our own colours, which are there where a terminal is, rich is installed, and nobody objects.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict, frozen

from purefx.ir.errors import InvalidProgram, PurefxError, Violation
from purefx.ir.names import escaped
from purefx.ir.show.styled import Form, styled

__all__ = ["Answer", "CommandError", "check_color", "findings", "progress", "put", "put_error", "say"]


class CommandError(PurefxError, ValueError):
    """What was typed cannot be done: the message says why, and what to type.

    >>> issubclass(CommandError, ValueError)
    True
    """


@frozen
class Answer:
    """What a command found.

    >>> answer = Answer(lambda: "two", lambda: {"found": 2}, status=1)
    >>> answer.text(), answer.data(), answer.form is None
    ('two', {'found': 2}, True)
    """

    text: Callable[[], str]
    data: Callable[[], Mapping[str, Any]]
    form: Form | None = None
    """What kind of text it is; None for what has no colours."""
    status: int = 0


def put(answer: Answer, given: argparse.Namespace) -> int:
    """Print an answer as it was asked for, and return its status.

    Args:
        answer: what the command found.
        given: what was typed.
    """
    if given.json:
        _put_json(answer.data())
        return answer.status
    text = _encodable(escaped(answer.text()).removesuffix("\n"))
    if text:
        form = answer.form if _is_colored(given.color) else None
        sys.stdout.write(f"{text}\n" if form is None else _with_colors(text, form))
    return answer.status


def _encodable(text: str) -> str:
    # What the terminal has no letter for is an escape as well.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def put_error(error: BaseException, message: str, *, as_json: bool) -> None:
    """Say what went wrong to whoever reads stderr, and as JSON to whoever reads that.

    Args:
        error: what was raised.
        message: what to say.
        as_json: whether stdout gets a document.
    """
    say(message)
    if as_json:
        said: dict[str, Any] = {"error": type(error).__name__, "message": message}
        if isinstance(error, InvalidProgram):
            said["findings"] = findings(error.violations)
        _put_json(said)


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(escaped(text) + "\n")


def progress(text: str) -> None:
    """Write a line to stderr where somebody waits for it."""
    if sys.stderr.isatty():
        say(text)


def findings(found: tuple[Violation, ...]) -> list[dict[str, Any]]:
    """Return findings as JSON has them.

    >>> findings((Violation("r", "wrong", graph=""),))[0]["where"]
    'the root graph'
    """
    return [{**asdict(one), "where": one.where} for one in found]


def _put_json(data: Mapping[str, Any]) -> None:
    # DEL is the one character that JSON leaves as it is and that terminals act on.
    sys.stdout.write(json.dumps(data).replace("\x7f", "\\u007f") + "\n")


# -- colours --------------------------------------------------------------------------------------------------------------------


def check_color(wanted: str) -> None:
    """Raise where colours were asked for by name and cannot be had.

    Args:
        wanted: what ``--color`` says.

    Raises:
        CommandError: rich is not installed.
    """
    if wanted == "always" and not _has_rich():
        raise CommandError("--color always needs rich, which is not installed: pip install 'purefx[rich]', or leave --color out")


def _has_rich() -> bool:
    return importlib.util.find_spec("rich") is not None


def _is_colored(wanted: str) -> bool:
    # The option, then NO_COLOR and FORCE_COLOR, as no-color.org and force-color.org want them, then what is there.
    if wanted != "auto":
        return wanted == "always"
    if os.environ.get("NO_COLOR"):
        return False
    is_there = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return bool(os.environ.get("FORCE_COLOR") or is_there) and _has_rich()


def _with_colors(text: str, form: Form) -> str:
    from rich.console import Console

    # What was decided above is told in full, so that rich decides nothing by itself: colors, width, a status of its own
    # where a pipe is closed.
    found = io.StringIO()
    console = Console(file=found, color_system="standard", no_color=False, legacy_windows=False)
    console.print(styled(text, form), soft_wrap=True)
    return found.getvalue()
