"""The files of the command line: which are read, and where a new one may be written.

A file that purefx wrote is data and is read unconditionally; reading a .pt2 of torch runs code, so that takes ``--trust``.  No
file that is read is written.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from purefx._command.output import CommandError, progress
from purefx.ir.errors import StoreError
from purefx.ir.importing import import_ep
from purefx.ir.program import Program
from purefx.ir.store import load, save
from purefx.ir.store.container import near_file
from purefx.report.gather import MOST_INSTANCES, is_small
from purefx.transforms import transform

__all__ = ["check_out", "read", "read_small", "transform_option", "transformed", "write"]

WHY_TRUST = (
    "torch runs code while it loads a .pt2: it unpickles objects and evaluates text, whoever wrote the file. If you made it, "
    "or trust who did, say --trust; `convert` it once, and the result is data, which needs no trust"
)

ZIP = b"PK\x03\x04"

LOGS = ("torch.export", "torch.export.pt2_archive._package")
"""Where torch logs what is wrong with a .pt2."""

RESULT = "the file that is read; give the result another name, and move it there when it is right"
"""What is said where a new program would be written over that."""

LARGE = 2**24
"""Whoever reads a file of more bytes is told what takes so long."""


def read(path: str, given: argparse.Namespace) -> Program:
    """Return the program in a file.

    Args:
        path: of the file.
        given: what was typed.

    Raises:
        CommandError: it is no file that may be read, or torch cannot load it.
        OSError: it cannot be read.
        PurefxError: it is no program, or one that is refused.
    """
    file = Path(path)
    if file.exists() and not file.is_file() and not file.is_dir():
        raise CommandError(f"{path} is not a file")  # a pipe would be waited for
    try:
        with file.open("rb") as stream:
            is_zip = stream.read(len(ZIP)) == ZIP
    except FileNotFoundError as error:
        raise CommandError(f"No such file: {path!a}{near_file(file)}") from error
    if file.stat().st_size > LARGE:
        progress(f"reading {path}")
    if is_zip and not given.trust:
        raise CommandError(f"{path}: {WHY_TRUST}")
    try:
        return _exported(path) if is_zip else load(path, device="cpu", allow=given.allow)
    except (StoreError, CommandError) as error:
        if "not registered" not in str(error):
            raise
        raise CommandError(f"{error}\nhere: --import MODULE, the one that registers it") from error


def _exported(path: str) -> Program:
    import torch

    said: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:  # torch logs what happened, with a traceback, and raises that something did
        said.append(record)
        return False

    for name in LOGS:
        logging.getLogger(name).addFilter(keep)
    try:
        ep = torch.export.load(path)
    except Exception as error:  # torch raises whatever its parts do
        causes = [record.exc_info[1] for record in said if record.exc_info] or [error]
        raise CommandError(f"{path}: torch cannot load it: {type(causes[-1]).__name__}: {causes[-1]}") from error
    finally:
        for name in LOGS:
            logging.getLogger(name).removeFilter(keep)
    return import_ep(ep)


def read_small(path: str, given: argparse.Namespace) -> Program:
    """Return the program in a file, where its modules can be looked at one by one.

    Args:
        path: of the file.
        given: what was typed.

    Raises:
        CommandError: bodies that call others twice each make too many of them; and what ``read`` raises.
    """
    program = read(path, given)
    if not is_small(program):
        raise CommandError(
            f"{path}: bodies are called more than {MOST_INSTANCES:,} times in all, too often to be told one by one"
        )
    return program


def transform_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that ``transformed`` asks for."""
    parser.add_argument("--transform", action="store_true", help="restore the hierarchy of modules first")


def transformed(program: Program, given: argparse.Namespace) -> Program:
    """Return a program, its hierarchy restored where that was asked for.

    Args:
        program: what was read.
        given: what was typed.
    """
    if not given.transform:
        return program
    progress("transforming")
    return transform(program)


def check_out(path: str, sources: list[str], *, told: str = RESULT) -> None:
    """Raise where a new file must not, or cannot, be written.

    Args:
        path: the new one.
        sources: what is read.
        told: what is said of it where it is one of those.

    Raises:
        CommandError: it is one of the files that are read, or in no folder.
    """
    out = Path(path)
    if any(out.exists() and Path(source).exists() and out.samefile(source) for source in sources):
        raise CommandError(f"{path} is {told}")
    if not out.is_dir() and not Path(os.path.realpath(out)).parent.is_dir():
        raise CommandError(f"there is no folder {str(out.parent)!a} to save in")


def write(program: Program, path: str, given: argparse.Namespace, *, weights: bool = True) -> int:
    """Save a program, and return how many bytes it takes.

    Args:
        program: what to save.
        path: of the file, which was checked.
        given: what was typed.
        weights: whether to save what a state_dict has.
    """
    progress(f"writing {path}")
    save(program, path, weights=weights, allow=given.allow)
    return Path(path).stat().st_size
