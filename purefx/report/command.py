"""``python -m purefx report FILE``: writes the page of a saved program, and prints where it is.

The command line of ``report``; how a file is read, and what becomes of errors, is the business of ``purefx/_command.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from purefx.ir.errors import PurefxError
from purefx.ir.names import escaped
from purefx.ir.program import Program
from purefx.ir.verify import verify
from purefx.report.write import report
from purefx.transforms import transform

__all__ = ["ReportError", "report_command"]

EXAMPLE = "example: python -m purefx report model.pt2 --trust --transform --out model.html"


class ReportError(PurefxError, ValueError):
    """What was typed cannot be a report.

    >>> issubclass(ReportError, ValueError)
    True
    """


def report_command(commands: Any, shared: argparse.ArgumentParser, read: Callable[[str, argparse.Namespace], Program]) -> None:
    """Add the command to those of the command line.

    Args:
        commands: of the parser.
        shared: the options that all commands have.
        read: reads a file.
    """
    told = "Write a program, its steps and what is wrong with it as one HTML file; status 1 if anything is wrong."
    made = commands.add_parser("report", parents=[shared], help=told, description=told, epilog=EXAMPLE)
    made.add_argument("file", metavar="FILE", help="a saved program, or a .pt2 with --trust")
    told = "the file to write (report.html); only a page is replaced"
    made.add_argument("--out", metavar="HTML", default="report.html", help=told)
    made.add_argument("--before", metavar="FILE", help="a program to compare with, which comes first in the time line")
    made.add_argument("--transform", action="store_true", help="restore the hierarchy of modules first")
    made.add_argument("--json", action="store_true", help="print what was written as JSON")
    made.set_defaults(run=lambda given: _report(given, read))


def _report(given: argparse.Namespace, read: Callable[[str, argparse.Namespace], Program]) -> int:
    out = Path(given.out)
    for source in filter(None, (given.file, given.before)):
        if out.exists() and Path(source).exists() and out.samefile(source):
            raise ReportError(f"{given.out} is a file that is read; name the page with --out, like --out report.html")
    program = read(given.file, given)
    before = None if given.before is None else read(given.before, given)
    if given.transform:
        program = transform(program)
    path, found = report(program, out, before=before), verify(program)
    steps = [step.name for step in program.trail]
    said = {"path": str(path), "bytes": path.stat().st_size, "steps": steps, "findings": len(found)}
    sys.stdout.write((json.dumps(said) if given.json else escaped(str(path))) + "\n")
    return 1 if found else 0
