"""The command line: ``show``, ``verify``, ``digest``, ``diff``, ``convert`` and ``report`` of programs in files.

A file that purefx wrote is data and is read unconditionally; reading a .pt2 of torch runs code, so it requires ``--trust``.  An
error is one message and an exit status, never a traceback, whose status would mean that programs differ.  Output has no
terminal escapes, and input files are never written.  The library can do everything that is done here.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purefx._check_command import check_command
from purefx.ir import InvalidProgram, Program, PurefxError
from purefx.ir.analysis.diff import diff
from purefx.ir.analysis.digest import digest
from purefx.ir.importing import import_ep
from purefx.ir.names import escaped
from purefx.ir.store import load, save
from purefx.ir.text import print_graph
from purefx.ir.verify import verify
from purefx.report.command import report_command
from purefx.transforms import transform

__all__ = ["main"]

WHY_TRUST = (
    "torch runs code while it loads a .pt2: it unpickles objects and evaluates text, whoever wrote the file. If you made it, "
    "or trust who did, say --trust; `convert` it once, and the result is data, which needs no trust"
)

ZIP = b"PK\x03\x04"


class _Trouble(Exception):
    """An error for the user that is not an error of the library."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what stands behind ``python -m purefx``; by default what the process was started with.

    Returns:
        The exit status: 0; 1 where programs differ or one is invalid; 2 where something could not be done.

    >>> main(["show", "no/such/file.purefx"])
    2
    """
    given = _parser().parse_args(arguments)
    try:
        for name in given.modules:
            _import(name)
        status: int = given.run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head` closes the pipe: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InvalidProgram as error:
        _say(str(error))
        return 1
    except (PurefxError, OSError, _Trouble) as error:
        _say(f"purefx: {error}")
        return 2
    except KeyboardInterrupt:
        _say("purefx: interrupted; nothing was written")
        return 2
    except Exception as error:  # noqa: BLE001  a mistake of ours: Python's own status for it, 1, would say that programs differ
        frame = traceback.extract_tb(error.__traceback__)[-1]
        _say(f"purefx: this is a defect of purefx: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})")
        return 2
    return status


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever the module does
        raise _Trouble(f"--import {name!a}: {type(error).__name__}: {error}") from error


def _say(text: str) -> None:
    sys.stderr.write(escaped(text) + "\n")


def _tell(text: str) -> None:
    text = escaped(text)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        _say(text)


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--trust", action="store_true", help="load .pt2 files of torch too, which run code when they are loaded")
    shared.add_argument(
        "--import",
        dest="modules",
        metavar="MODULE",
        action="append",
        default=[],
        help="import a module first, which registers operators",
    )
    shared.add_argument(
        "--allow",
        metavar="NAME",
        action="append",
        default=[],
        help="accept an operator that a file may not name unasked, as an error has named it",
    )
    return shared


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m purefx", description="Look at programs in files, compare and convert them.")
    shared = _shared()
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, told: str, *files: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, parents=[shared], help=told, description=told)
        for file in files:
            made.add_argument(file.lower(), metavar=file, help="a saved program, or a .pt2 with --trust")
        made.set_defaults(run=run)
        return made

    show = command("show", _show, "Print a program as text.", "FILE")
    show.add_argument("--graph", metavar="ID", help='this graph alone; "" is the root')
    check = command("verify", _verify, "Say everything that is wrong with a program; status 1 if anything is.", "FILE")
    check.add_argument("--infer", action="store_true", help="run every operator on fake values too, and compare")
    check_command(commands, shared)
    command("digest", _digest, "Print the identity of a program up to names.", "FILE")
    command("diff", _diff, "Print what makes one program another; status 1 if anything does.", "A", "B")
    convert = command("convert", _convert, "Save a program as data that can be loaded without trust.", "IN")
    convert.add_argument("out", metavar="OUT", help="the file to write, never IN; what is there is replaced when all is done")
    convert.add_argument("--transform", action="store_true", help="restore the hierarchy of modules first")
    convert.add_argument("--no-weights", action="store_true", help="leave out what a state_dict has")
    report_command(commands, shared, _read)
    return parser


def _read(path: str, given: argparse.Namespace) -> Program:
    if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise _Trouble(f"{path} is not a file")  # a pipe would be waited for
    with Path(path).open("rb") as file:
        is_zip = file.read(len(ZIP)) == ZIP
    _progress(f"reading {path}")
    if not is_zip:
        return load(path, device="cpu", allow=given.allow)
    if not given.trust:
        raise _Trouble(f"{path}: {WHY_TRUST}")
    import torch

    try:
        ep = torch.export.load(path)
    except Exception as error:  # torch raises whatever its parts do
        raise _Trouble(f"{path}: torch cannot load it: {type(error).__name__}: {error}") from error
    return import_ep(ep)


def _show(given: argparse.Namespace) -> int:
    program = _read(given.file, given)
    if given.graph is None:
        _tell(str(program))
    elif given.graph in program.graphs:
        _tell(print_graph(program.graphs[given.graph], name=given.graph))
    else:
        raise _Trouble(f"{given.file} has no graph {given.graph!a}; it has {', '.join(map(ascii, program.order[:20]))}")
    return 0


def _verify(given: argparse.Namespace) -> int:
    # Loading verifies; what is broken comes as an error.
    found = verify(_read(given.file, given), infer=given.infer)
    for violation in found:
        _tell(f"{violation}\n")
    return 1 if found else 0


def _digest(given: argparse.Namespace) -> int:
    _tell(digest(_read(given.file, given)))
    return 0


def _diff(given: argparse.Namespace) -> int:
    change = diff(_read(given.a, given), _read(given.b, given))
    if change:
        _tell(str(change))
    return 1 if change else 0


def _convert(given: argparse.Namespace) -> int:
    source, out = vars(given)["in"], Path(given.out)
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise _Trouble(f"{given.out} is the file that is read; give the result another name, and move it there when it is right")
    if not out.is_dir() and not Path(os.path.realpath(out)).parent.is_dir():
        raise _Trouble(f"there is no folder {str(out.parent)!a} to save in")
    program = _read(source, given)
    if given.transform:
        _progress("transforming")
        program = transform(program)
    _progress(f"writing {given.out}")
    save(program, given.out, weights=not given.no_weights, allow=given.allow)
    return 0
