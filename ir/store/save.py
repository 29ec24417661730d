"""``save``: a program becomes one file.

One idea: what ``load`` could not read back is refused here, by name, before anything is written.  What a program is not
(its trail, what is no plain data in meta) is left out; docs/format.md says what is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..allowed import told
from ..arguments import Arg, same_arg
from ..collector import collector_paused
from ..errors import ParseError, UnsupportedProgram
from ..identifiers import check_identifiers
from ..node import Op
from ..program import Program
from ..text.arguments import print_arg, read_arg
from ..text.lexer import Cursor
from ..text.operators import Known, names_of
from ..text.parser import parse
from ..text.printer import print_program
from ..verify import check
from .container import write_file
from .memory import place_storages
from .metas import write_metas

__all__ = ["save"]


def save(program: Program, path: str | os.PathLike[str], *, weights: bool = True, allow: Iterable[str] = ()) -> None:
    """Write a program to a file that ``load`` reads: a safetensors file, with the program in it as data.

    What is there already is replaced when the new file is complete, so a failure leaves it as it was.

    Args:
        program: a valid program at any stage.
        path: of the file; ``.purefx`` is the usual ending.
        weights: False leaves out what a ``state_dict`` has (parameters, persistent buffers); other buffers and constants
            are part of the program all the same.
        allow: names of operators to write although a file may not name them unasked (``program.foreign_operators``):
            functions of your own, attributes and methods in graphs that were traced, operators that reach files.  Who
            loads the file has to say the same, or to give the functions.

    Raises:
        InvalidProgram: the program breaks invariants.
        UnsupportedProgram: it holds something that is no data: script objects, symbolic numbers among its arguments, tensors
            that are not plain; the message says what and where. Or it uses operators that a file may not name, and ``allow`` does
            not have them; all are named. Or safetensors is not installed (extra ``store``).
        OSError: the file can not be written.
        TypeError: ``program`` is no Program.

    >>> import tempfile, torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     px.save(program, f"{folder}/linear.purefx")
    ...     px.load(f"{folder}/linear.purefx") == program
    True
    """
    check_identifiers(check(program))
    refused = set(program.foreign_operators) - names_of(allow)
    if refused:
        raise UnsupportedProgram(
            f"the program uses operators that a file may not name: {told(refused)[:2000]}; save(..., "
            f"allow={{{', '.join(map(ascii, sorted(refused)))[:2000]}}}) writes their names, and load needs `allow` or "
            "`operators` for them"
        )
    with collector_paused():
        text = print_program(program)
        if "opaque(" in text:
            _check_all_has_text(program, text, names_of(allow))
        places, tensors = place_storages(program, weights=weights)
        structure = {
            "made with": {"torch": str(torch.__version__)},
            "program": text,
            "operators": sorted(
                {node.do.name for _, node in program.nodes() if type(node.do) is Op and node.do.target is not None}
            ),
            "storages": [[place.storage, place.key, place.slot, place.device] for place in places],
            "weights": weights,
            "meta": write_metas(program),
        }
        write_file(path, structure, tensors)


def _check_all_has_text(program: Program, text: str, allow: frozenset[str]) -> None:
    # Only where something may have no text: strings may say so too.
    for name, slot in program.state.pairs:
        if not isinstance(slot.value, torch.Tensor) and not _has_text(slot.value, allow):
            raise UnsupportedProgram(
                f"the {slot.kind.value} {name!a} is a {_kind(slot.value)}, which is no data and can not be saved: make tensors "
                "of what it holds, or take the operators that use it out of the program"
            )
    for graph, node in program.nodes():
        for arg in (*node.args, *[value for _, value in node.kwargs]):
            if not _has_text(arg, allow):
                where = ascii(f"{graph or 'the root graph'} / {node.name}")
                raise UnsupportedProgram(f"{where} takes {print_arg(arg)[:200]}, which is no data and can not be saved")
    specs = [program.signature.in_spec, program.signature.out_spec]
    for found in program.call_signatures.values():
        specs += [found.in_spec, found.out_spec]
    try:
        parse(text, types=[kind for spec in specs for kind in _named_tuples(spec)], allow=allow)
    except ParseError as error:
        raise UnsupportedProgram(f"the program holds what is no data and can not be saved: {error}") from error


def _has_text(arg: Arg, allow: frozenset[str]) -> bool:
    try:
        return same_arg(read_arg(Cursor(print_arg(arg), Known(allow=allow))), arg)
    except ParseError:
        return False


def _named_tuples(spec: Any) -> Iterator[type]:
    todo = [spec]
    while todo:
        part = todo.pop()
        if part is not None:
            todo.extend(part.children())
            if isinstance(part.context, type):
                yield part.context


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
