"""``save`` a program to one file, and ``load`` it again.

The file is data; loading it imports and runs nothing from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

import torch
from attrs import astuple

from ..analysis.history import versions
from ..errors import (
    ArgumentError,
    InvalidProgram,
    ParseError,
    StoreError,
    UnsupportedProgram,
    first_line,
)
from ..forks import collector_paused
from ..graph import Frame, Op
from ..meta import line_of
from ..operators import advice_for, named_with_reasons
from ..origins import Imported, Made, Origin, Place, Version, ancestors
from ..program import Program
from ..state import State, slot_values
from ..text.lexer import Cursor, Known, Target, names_of
from ..text.programs import print_program, read_program
from ..text.state import TensorFacts, facts_of, memory_begins
from ..validation import a_path, a_program, check_identifiers
from ..verify import check
from .container import (
    File,
    StoredMemory,
    check_passed,
    misshapen,
    opened,
    read_storage,
    store_memory,
    with_memory,
    write_file,
)
from .metas import read_metas, write_metas


def write_origins(program: Program) -> tuple[dict[str, Any], Mapping[Origin, int]]:
    """Return the origins of a program and their places after each step, for JSON, with the number of each origin.

    Args:
        program: the program.

    >>> from purefx.ir import Graph
    >>> write_origins(Program.of({"": Graph((), (), ())}))
    ({'origins': [], 'steps': []}, {})
    """
    every = versions(program)
    starts = [
        origin
        for version in every
        for origin in sorted(version.places, key=partial(_place_of, version))
    ]
    order = list(
        TopologicalSorter({one: one.of for one in ancestors(starts)}).static_order()
    )  # each after its sources
    numbers = {origin: number for number, origin in enumerate(order)}
    steps: list[tuple[str, list[Any]]] = []
    before: Mapping[Origin, tuple[Place, ...]] = {}
    for version in every if order else ():
        moved = [
            origin for origin in order if before.get(origin, ()) != version.places.get(origin, ())
        ]
        steps.append(
            (
                version.step,
                [[numbers[one], list(map(astuple, version.places.get(one, ())))] for one in moved],
            )
        )
        before = version.places
    return {"origins": [_row(origin, numbers) for origin in order], "steps": steps}, numbers


def _place_of(version: Version, origin: Origin) -> list[tuple[str, str]]:
    return [(place.graph, place.name) for place in version.places[origin]]


def _row(origin: Origin, numbers: Mapping[Origin, int]) -> list[Any]:
    if isinstance(origin, Made):
        return [[numbers[one] for one in origin.of], origin.by, origin.is_one, origin.is_body]
    line = line_of(origin.trace)
    trace = None if line is None else 'File "{}", line {}, in {}\n{}'.format(*line)
    return [origin.name, origin.op, origin.graph, list(map(astuple, origin.stack)), trace]


def read_origins(written: Any) -> tuple[list[Origin], tuple[Version, ...]]:
    """Return origins by number, and the versions of the program, the saved one last.

    Args:
        written: from JSON.

    Raises:
        StoreError: it is not a result of ``write_origins``.

    >>> read_origins({"origins": [], "steps": []})
    ([], ())
    """
    origins: list[Origin] = []

    def origin(number: int) -> Origin:
        if not 0 <= number < len(origins):
            raise StoreError("an origin in it names a missing origin")
        return origins[number]

    for row in written["origins"]:
        if misshapen(row, ([int], str, bool, bool)) is None:
            origins.append(Made(tuple(map(origin, row[0])), *row[1:]))
        elif misshapen(row, (str, str, str, [(str, int)], str | None)) is None:
            name, op, graph, frames, trace = row
            origins.append(
                Imported(name, op, graph, tuple([Frame(*frame) for frame in frames]), trace)
            )
        else:
            raise StoreError("an origin in it is malformed")
    found: list[Version] = []
    places: dict[Origin, tuple[Place, ...]] = {}
    for step, moved in written["steps"]:
        places = {
            **places,
            **{origin(number): tuple([Place(*place) for place in now]) for number, now in moved},
        }
        places = {one: now for one, now in places.items() if now}
        found.append(Version(step, places))
    return origins, tuple(found)


def save(
    program: Program,
    path: str | os.PathLike[str],
    *,
    weights: bool = True,
    allow: Iterable[str] = (),
) -> None:
    """Save a program to a file that ``load`` reads: a safetensors file that contains the program as data.

    An existing file is replaced only when the new one is complete, so a failure leaves it unchanged.

    Args:
        program: a valid program at any stage.
        path: of the file; ``.purefx`` is the usual ending.
        weights: False leaves out the tensors of a ``state_dict`` (parameters, persistent buffers), but not other buffers
            and constants.
        allow: names of operators that a file may name only on request (``program.foreign_operators``): user functions,
            attributes and methods in traced graphs, operators that reach files.  ``load`` then needs the same names, or the
            functions.

    Raises:
        InvalidProgram: the program breaks invariants.
        UnsupportedProgram: it holds values that are not data (script objects, symbolic numbers or bytes among its arguments,
            tensors that are not plain; the message names value and place), uses operators that are not in ``allow`` and that a
            file may not name without it (the message lists them), or safetensors is not installed (extra ``store``).
        StoreError: the path is not possible for a file.
        OSError: the file cannot be written.
        TypeError: ``program`` is not a Program.

    >>> import tempfile, torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     px.save(program, f"{folder}/linear.purefx")
    ...     px.load(f"{folder}/linear.purefx") == program
    True
    """
    check_identifiers(check(a_program(program, "save", path=path)))
    a_path(path, "save")
    if refused := set(program.foreign_operators) - names_of(allow):
        raise UnsupportedProgram(
            f"the program uses operators that a file may not name: {named_with_reasons(refused)[:2000]}; save(..., "
            f"allow={{{', '.join(map(ascii, sorted(refused)))[:2000]}}}) writes their names, and load needs `allow` or "
            "`operators` for them"
        )
    with collector_paused():
        places, tensors = store_memory(program, weights=weights)
        text = print_program(program)
        if "opaque(" in text:
            _check_all_has_text(text)
        origins, numbers = write_origins(program)
        begins, slots = memory_begins(program.state.slots.values()), reversed(program.state.pairs)
        structure = {
            "made with": {"torch": str(torch.__version__)},
            "program": text,
            "operators": sorted({op.name for op in _operators(program) if op.target is not None}),
            "storages": list(map(astuple, places)),
            "begins": {
                name: begins[storage]
                for storage, name in {slot.storage: name for name, slot in slots}.items()
                if storage in begins
            },
            "weights": weights,
            "meta": write_metas(program, numbers),
            "origins": origins,
        }
        write_file(path, structure, tensors)


def _check_all_has_text(text: str) -> None:
    cursor = Cursor(text)  # a string may contain `opaque(` too
    while cursor.kind != "end":
        if cursor.advance() == "opaque" and cursor.text == "(":
            cursor.advance()
            fault = cursor.error(f"its type is {cursor.text[:80]}")
            raise UnsupportedProgram(
                f"the program holds a value that is not data and cannot be saved: {fault}"
            )


def _operators(program: Program) -> Iterator[Op]:
    return (node.do for _, node in program.nodes() if type(node.do) is Op)


def load(
    path: str | os.PathLike[str],
    *,
    state: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
    operators: Mapping[str, Target] | None = None,
    types: Iterable[type] = (),
    allow: Iterable[str] = (),
) -> Program:
    """Read a program from a file that ``save`` wrote; nothing in the file runs.

    Args:
        path: of the file.
        state: tensors by name of slot, as in ``state_dict()`` or a ``State``, which replace those of the file. A tensor is not
            copied if it has the program's strides and offset and shares memory with no other slot. Tensors that are in
            neither (``weights=False``) are made on the meta device.
        device: for the tensors of the file; by default the devices that they had.
        operators: functions that run operators not registered with torch, by name.
        types: classes of pytree nodes that are not registered as such: named tuples.
        allow: names of registered operators to accept that are not on the allow-list (``docs/format.md``): those that reach
            files, other processes or attributes by name.

    Returns:
        A valid program, equal to the saved one, without its trail; ``history`` and ``became`` return the same.

    Raises:
        StoreError: the path is not possible for a file; the file is not from ``save``, or is damaged, crafted, or of another
            version; or ``state`` does not fit it.
        InvalidProgram: its program breaks invariants.
        UnsupportedProgram: it needs operators that are missing or not allowed (the message lists them), a missing device, or
            safetensors (extra ``store``).
        OSError: the file does not exist, or cannot be read.

    >>> import tempfile, torch, purefx as px
    >>> model = torch.nn.Linear(2, 2)
    >>> program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     px.save(program, f"{folder}/linear.purefx", weights=False)
    ...     again = px.load(f"{folder}/linear.purefx", state=model.state_dict())
    >>> torch.equal(px.lower(again)(torch.ones(1, 2)), model(torch.ones(1, 2)))
    True
    """
    known = Known(operators, types, allow)
    with collector_paused(), opened(a_path(path, "load")) as file:
        try:
            structure = file.structure()
            program = _read_program(structure, known)
            origins, past = read_origins(structure["origins"])
            program = program.evolve(
                graphs=read_metas(program, structure["meta"], known, origins), past=past
            )
            begins = {
                program.state[name].storage: begin for name, begin in structure["begins"].items()
            }
            facts = {
                name: facts_of(slot.value).behind(begins.get(slot.storage, 0))
                for name, slot in program.state.pairs
                if isinstance(slot.value, torch.Tensor)
            }
            stored = _read_storages(file, program.state, structure["storages"], facts, device)
            if state is not None:
                check_passed(slot_values(state), program.state, facts, stored)
            found = with_memory(program.state, facts, stored, slot_values(state))
            return check_identifiers(check(program.evolve(state=found)))
        except (InvalidProgram, UnsupportedProgram, ArgumentError):
            raise
        except StoreError as error:
            raise StoreError(f"{os.fspath(path)!a}: {error}") from error
        except MALFORMED as error:
            message = ascii(str(error)[:200])[1:-1]
            raise StoreError(
                f"{os.fspath(path)!a}: a part of it is malformed: {message}"
            ) from error


MALFORMED = (
    ParseError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
)
"""Errors from malformed contents of a file."""


def _read_program(structure: dict[str, Any], known: Known) -> Program:
    try:
        program = read_program(structure["program"], known)
    except ParseError as error:
        raise StoreError(f"its program cannot be read: {error}") from error
    if missing := {op.name for op in _operators(program) if op.target is None} & set(
        structure["operators"]
    ):
        raise UnsupportedProgram(
            f"the program uses operators that a file may not name: {named_with_reasons(missing)[:2000]}: "
            f"{advice_for(missing)[:2000]} (saved with {ascii(structure['made with'])[:100]}, this is torch {torch.__version__})"
        )
    return program


def _read_storages(
    file: File,
    state: State,
    rows: list[Any],
    facts: Mapping[str, TensorFacts],
    device: torch.device | str | None,
) -> dict[int, torch.UntypedStorage]:
    found: dict[int, torch.UntypedStorage] = {}
    for place in [StoredMemory(*row) for row in rows]:
        if place.slot not in facts:
            raise StoreError(
                f"a storage in it belongs to {place.slot[:80]!a}, which is not a slot with memory"
            )
        if state[place.slot].storage in found:
            raise StoreError("it has one storage twice")
        at = _device(place.device if device is None else device)
        found[state[place.slot].storage] = read_storage(file, place, facts, at)
    return found


def _device(name: torch.device | str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = first_line(error)
        raise UnsupportedProgram(
            f"the device {str(name)[:80]!a} is not available ({reason}); load with device='cpu'"
        ) from error
    if device.type == "meta":
        raise StoreError("tensors on the meta device have no contents")
    return device
