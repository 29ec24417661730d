"""The files of the command line: which are read, and where a new one may be written.

A file that purefx wrote is data and needs no trust; torch runs code while it loads a .pt2, so that takes ``--trust``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch

from purefx._command.answer import CommandError, say
from purefx.ir.errors import StoreError
from purefx.ir.importing import import_ep
from purefx.ir.program import Program
from purefx.ir.store import load, save
from purefx.ir.store.container import near_file
from purefx.ir.torch_private import pytree
from purefx.report.gather import MOST_INSTANCES, is_small
from purefx.transforms import transform

__all__ = ["check_out", "read", "read_small", "transformed", "write"]

WHY_TRUST = (
    "torch runs code while it loads a .pt2: it unpickles objects and evaluates text, whoever wrote the file. If you made it, "
    "or trust who did, say --trust; `convert` it once, and the result is data, which needs no trust"
)

ZIP = b"PK\x03\x04"

LOGS = ("torch.export", "torch.export.pt2_archive._package")
"""Where torch logs what is wrong with a .pt2."""

UNREGISTERED = re.compile(r"registered type '([^']+)' cannot be read from text: it is not registered")

LARGE = 2**24
"""Reading a file of more bytes is announced."""


def read(path: str, parsed: argparse.Namespace) -> Program:
    """Return the program in a file.

    Raises:
        CommandError: it cannot be read, needs trust, or torch cannot load it.
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
        _progress(f"reading {path}")
    if is_zip and not parsed.trust:
        raise CommandError(f"{path}: {WHY_TRUST}")
    try:
        return _exported(path) if is_zip else _saved(path, parsed.allow)
    except (StoreError, CommandError) as error:
        if "not registered" not in str(error):
            raise
        raise CommandError(f"{error}\nhere: --import MODULE, the one that registers it") from error


def _saved(path: str, allow: list[str]) -> Program:
    # Nothing runs here, so a class that is not imported is a name, in this process.
    while True:
        try:
            return load(path, device="cpu", allow=allow)
        except StoreError as error:
            found = UNREGISTERED.search(str(error))
            if found is None:
                raise
            _stand_in(found[1])


def _stand_in(name: str) -> None:
    def refused(*_: Any) -> Any:
        raise CommandError(f"{name} is not imported")

    made: Any = type(name.rpartition(".")[2], (), {"__module__": name.rpartition(".")[0]})
    options: dict[str, Any] = {"to_dumpable_context": json.dumps, "from_dumpable_context": json.loads}
    pytree.register_pytree_node(made, refused, refused, serialized_type_name=name, **options)


def _exported(path: str) -> Program:
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


def read_small(path: str, parsed: argparse.Namespace) -> Program:
    """Return the program in a file; raise if its modules are too many to be listed one by one."""
    program = read(path, parsed)
    if not is_small(program):
        raise CommandError(f"{path}: bodies are called more than {MOST_INSTANCES:,} times in all, too often to list each call")
    return program


def transformed(program: Program, parsed: argparse.Namespace) -> Program:
    """Return a program, with its hierarchy restored if ``--transform`` was given."""
    if not parsed.transform:
        return program
    _progress("transforming")
    return transform(program)


def check_out(path: str, *sources: str | None) -> None:
    """Raise ``CommandError`` if a new file is one that is read, or in no folder."""
    out = Path(path)
    if any(source is not None and out.exists() and Path(source).exists() and out.samefile(source) for source in sources):
        raise CommandError(f"{path} is a file that is read; give the result another name")
    if not out.is_dir() and not Path(os.path.realpath(out)).parent.is_dir():
        raise CommandError(f"there is no folder {str(out.parent)!a} to save in")


def write(program: Program, path: str, parsed: argparse.Namespace, *, weights: bool = True) -> int:
    """Save a program, and return how many bytes it takes."""
    _progress(f"writing {path}")
    save(program, path, weights=weights, allow=parsed.allow)
    return Path(path).stat().st_size


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        say(text)
