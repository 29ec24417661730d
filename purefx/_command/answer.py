"""Answers of commands and how they are printed: as text, in colours, or as one JSON document.

Both are made only if they are printed.  Names of a program are escaped, so the output has no terminal escapes but those of our
own colours.
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

from purefx.ir.errors import InvalidProgram, MissingDependency, PurefxError, Violation
from purefx.ir.names import escaped
from purefx.ir.show.styled import Form, styled

__all__ = ["Answer", "CommandError", "check_color", "findings", "put", "put_error", "say"]


class CommandError(PurefxError, ValueError):
    """The command cannot be done: the message says why, and what to type."""


@frozen
class Answer:
    """The result of a command."""

    text: Callable[[], str]
    data: Callable[[], Mapping[str, Any]]
    form: Form | None = None
    """The kind of text; None for text without colours."""
    status: int = 0


def put(answer: Answer, parsed: argparse.Namespace) -> int:
    """Print an answer as the options say, and return its status."""
    if parsed.json:
        _put_json(answer.data())
        return answer.status
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = escaped(answer.text()).removesuffix("\n").encode(encoding, "backslashreplace").decode(encoding)
    if text:
        form = answer.form if _is_colored(parsed.color) else None
        sys.stdout.write(f"{text}\n" if form is None else _with_colors(text, form))
    return answer.status


def put_error(error: BaseException, message: str, *, as_json: bool) -> None:
    """Print an error to stderr, and as JSON to stdout if JSON is wanted."""
    say(message)
    if as_json:
        more = {"findings": findings(error.violations)} if isinstance(error, InvalidProgram) else {}
        _put_json({"error": type(error).__name__, "message": message, **more})


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(escaped(text) + "\n")


def findings(found: tuple[Violation, ...]) -> list[dict[str, Any]]:
    """Return findings for JSON.

    >>> findings((Violation("r", "wrong", graph=""),))[0]["where"]
    'the root graph'
    """
    return [{**asdict(one), "where": one.where} for one in found]


def _put_json(data: Mapping[str, Any]) -> None:
    # DEL is the one character that JSON leaves as it is and that terminals act on.
    sys.stdout.write(json.dumps(data).replace("\x7f", "\\u007f") + "\n")


def check_color(wanted: str) -> None:
    """Raise ``MissingDependency`` if ``--color always`` is wanted without rich."""
    if wanted == "always" and not _has_rich():
        raise MissingDependency("--color always needs rich: pip install 'purefx[rich]', or leave --color out")


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

    # Everything is decided above, so rich decides nothing: colors, width, a status of its own if a pipe is closed.
    found = io.StringIO()
    console = Console(file=found, color_system="standard", no_color=False, legacy_windows=False)
    console.print(styled(text, form), soft_wrap=True)
    return found.getvalue()
