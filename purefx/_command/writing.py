"""``convert`` and ``report``: a program is read, and another file is written of it.

What is there already is replaced when all is done, and no file that is read is written.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from purefx._command.files import check_out, read, transform_option, transformed, write
from purefx._command.options import FILE, Commands
from purefx._command.output import Answer
from purefx.ir.verify import verify
from purefx.report.write import report

__all__ = ["writing_commands"]


def writing_commands(commands: Commands) -> None:
    """Add the commands.

    Args:
        commands: of the command line.
    """
    told = "Save a program as data that can be loaded without trust."
    convert = commands.add("convert", _convert, told, "convert model.pt2 new.purefx --trust --transform", files=["IN"])
    convert.add_argument("out", metavar="OUT", help="the file to write, never IN; what is there is replaced when all is done")
    transform_option(convert)
    convert.add_argument("--no-weights", action="store_true", help="leave out what a state_dict has")
    told = "Write a program, its steps and what is wrong with it as one HTML file; status 1 if anything is wrong."
    page = commands.add("report", _report, told, "report model.pt2 --trust --transform --out model.html", files=["FILE"])
    out = "the file to write (report.html); only a page is replaced"
    page.add_argument("--out", metavar="HTML", default="report.html", help=out)
    page.add_argument("--before", metavar="FILE", help=f"a program to compare with, which comes first in the time line: {FILE}")
    transform_option(page)


def _convert(given: argparse.Namespace) -> Answer:
    source = vars(given)["in"]
    check_out(given.out, [source])
    program = transformed(read(source, given), given)
    size = write(program, given.out, given, weights=not given.no_weights)
    return Answer(lambda: "", lambda: {"path": given.out, "bytes": size})


def _report(given: argparse.Namespace) -> Answer:
    sources = [one for one in (given.file, given.before) if one is not None]
    check_out(given.out, sources, told="a file that is read; name the page with --out, like --out report.html")
    program = read(given.file, given)
    before = None if given.before is None else read(given.before, given)
    program = transformed(program, given)
    path, found = report(program, Path(given.out), before=before), verify(program)
    said: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size, "findings": len(found)}
    said["steps"] = [step.name for step in program.trail]
    return Answer(lambda: str(path), lambda: said, status=1 if found else 0)
