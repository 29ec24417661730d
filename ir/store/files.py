"""``save`` and ``load``: a program becomes one file, and the file becomes the program.

The file is data; nothing in it is imported or run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from ..allowed import advice_for, told
from ..analysis.history import line_of, versions
from ..arguments import Arg, same_arg
from ..errors import ArgumentError, InvalidProgram, ParseError, StoreError, UnsupportedProgram
from ..graph import Frame, Op
from ..identifiers import check_identifiers
from ..origins import Imported, Made, Origin, Place, Version
from ..persistent import collector_paused, pmap
from ..program import Program
from ..state import Slot, State
from ..taking import a_path, a_program
from ..text.arguments import print_arg, read_arg
from ..text.lexer import Cursor, Known, Target, named_types, names_of
from ..text.parser import parse
from ..text.printer import print_program
from ..text.state import TensorFacts, facts_of
from ..verify import check
from .container import File, as_tensor, misshapen, opened, place_storages, put_in, read_storage, write_file
from .container import Place as StoragePlace
from .metas import read_metas, write_metas


@frozen(eq=False)
class Origins:
    """What was written of the origins of a program."""

    written: dict[str, Any]
    """For JSON."""
    numbers: Mapping[Origin, int]
    """The number of each origin, which the meta of a node has."""


def write_origins(program: Program) -> Origins:
    """Return the origins of a program and where they stood after each step.

    Args:
        program: the program.

    >>> from purefx.ir import Graph
    >>> write_origins(Program.of({"": Graph((), (), ())})).written["origins"]
    []
    """
    every = versions(program)
    order = _in_order([origin for version in every for origin in _by_place(version.places)])
    numbers = {origin: number for number, origin in enumerate(order)}
    texts: dict[str, int] = {}

    def text(said: str) -> int:
        return texts.setdefault(said, len(texts))

    rows = [_row(origin, numbers, text) for origin in order]
    steps: list[list[Any]] = []
    before: Mapping[Origin, tuple[Place, ...]] = {}
    for version in every if order else ():
        places = {**dict.fromkeys(before, ()), **version.places}
        moved = [(origin, places[origin]) for origin in order if before.get(origin, ()) != places.get(origin, ())]
        told = [[numbers[origin], *[text(said) for place in now for said in (place.graph, place.name, place.op)]]
                for origin, now in moved]  # fmt: skip
        steps.append([text(version.step), told])
        before = version.places
    return Origins({"texts": list(texts), "origins": rows, "steps": steps}, numbers)


def _by_place(places: Mapping[Origin, tuple[Place, ...]]) -> list[Origin]:
    return sorted(places, key=lambda origin: [(place.graph, place.name) for place in places[origin]])


def _in_order(origins: Iterable[Origin]) -> list[Origin]:
    done: dict[Origin, None] = {}
    todo = [(origin, False) for origin in reversed(list(origins))]
    while todo:
        origin, ready = todo.pop()
        if origin in done:
            continue
        if ready:
            done[origin] = None
        else:
            todo.append((origin, True))
            todo += [(one, False) for one in reversed(origin.of) if one not in done]
    return list(done)


def _row(origin: Origin, numbers: Mapping[Origin, int], text: Callable[[str], int]) -> list[Any]:
    if isinstance(origin, Made):
        return [text(origin.by), origin.is_one, origin.is_body, [numbers[one] for one in origin.of]]
    frames = [[text(frame.path), frame.call] for frame in origin.stack]
    line = line_of(origin)
    said = "" if line is None else f'File "{line["file"]}", line {line["line"]}, in {line["function"]}\n{line["code"]}'
    return [text(origin.name), text(origin.op), text(origin.graph), text(said), frames]


def read_origins(written: Any) -> tuple[list[Origin], tuple[Version, ...]]:
    """Return origins by number, and the versions of the program, the saved one last.

    Args:
        written: what JSON had.

    Raises:
        StoreError: it is not what ``write_origins`` gives.

    >>> read_origins({"texts": [], "origins": [], "steps": []})
    ([], ())
    """
    texts, origins = written["texts"], list[Origin]()
    for row in written["origins"]:
        origins.append(_origin(row, texts, origins))
    return origins, tuple(_versions(written["steps"], texts, origins))


def _at(table: Sequence[Any], number: Any) -> Any:
    if not 0 <= number < len(table):
        raise StoreError("the origins name what is not there")
    return table[number]


def _origin(row: Any, texts: Sequence[str], known: Sequence[Origin]) -> Origin:
    if misshapen(row, (int, bool, bool, [int])) is None:
        by, is_one, is_body, of = row
        return Made(tuple([_at(known, number) for number in of]), _at(texts, by), is_one, is_body)
    if misshapen(row, (int, int, int, int, [(int, int)])) is not None:
        raise StoreError("an origin in it is malformed")
    name, op, graph, trace, frames = row
    stack = tuple([Frame(_at(texts, path), call) for path, call in frames])
    return Imported(_at(texts, name), _at(texts, op), _at(texts, graph), stack, _at(texts, trace) or None)


def _versions(steps: Sequence[Any], texts: Sequence[str], origins: Sequence[Origin]) -> Iterable[Version]:
    places: dict[Origin, tuple[Place, ...]] = {}
    for step, moved in steps:
        places = dict(places)
        for number, *said in moved:
            words = iter([_at(texts, one) for one in said])
            now = tuple([Place(*three) for three in zip(words, words, words, strict=True)])
            if now:
                places[_at(origins, number)] = now
            else:
                places.pop(_at(origins, number), None)
        yield Version(_at(texts, step), places)


def save(program: Program, path: str | os.PathLike[str], *, weights: bool = True, allow: Iterable[str] = ()) -> None:
    """Save a program to a file that ``load`` reads: a safetensors file that contains the program as data.

    An existing file is replaced only when the new one is complete, so a failure leaves it unchanged.

    Args:
        program: a valid program at any stage.
        path: of the file; ``.purefx`` is the usual ending.
        weights: False leaves out what a ``state_dict`` has (parameters, persistent buffers); other buffers and constants
            are part of the program all the same.
        allow: names of operators to write that a file may name only on request (``program.foreign_operators``):
            functions of your own, attributes and methods in graphs that were traced, operators that reach files.  ``load`` then
            needs the same names, or the functions.

    Raises:
        InvalidProgram: the program breaks invariants.
        UnsupportedProgram: it holds something that is not data: script objects, symbolic numbers among its arguments, tensors
            that are not plain; the message says what and where. Or it uses operators that a file may not name, and ``allow`` does
            not have them; all are named. Or safetensors is not installed (extra ``store``).
        StoreError: no file can have this path.
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
    refused = set(program.foreign_operators) - names_of(allow)
    if refused:
        raise UnsupportedProgram(
            f"the program uses operators that a file may not name: {told(refused)[:2000]}; save(..., "
            f"allow={{{', '.join(map(ascii, sorted(refused)))[:2000]}}}) writes their names, and load needs `allow` or "
            "`operators` for them"
        )
    with collector_paused():
        text = print_program(program, as_numbered=True)
        if "opaque(" in text:
            _check_all_has_text(program, text, names_of(allow))
        places, tensors = place_storages(program, weights=weights)
        origins = write_origins(program)
        structure = {
            "made with": {"torch": str(torch.__version__)},
            "program": text,
            "operators": sorted(
                {node.do.name for _, node in program.nodes() if type(node.do) is Op and node.do.target is not None}
            ),
            "storages": [[place.storage, place.key, place.slot, place.device] for place in places],
            "weights": weights,
            "meta": write_metas(program, origins.numbers),
            "origins": origins.written,
        }
        write_file(path, structure, tensors)


def _check_all_has_text(program: Program, text: str, allow: frozenset[str]) -> None:
    # Only where something may have no text: strings may say so too.
    for name, slot in program.state.pairs:
        if not isinstance(slot.value, torch.Tensor) and not _has_text(slot.value, allow):
            raise UnsupportedProgram(
                f"the {slot.kind.value} {name!a} is a {_kind(slot.value)}, which is not data and cannot be saved: make tensors "
                "of what it holds, or take the operators that use it out of the program"
            )
    for graph, node in program.nodes():
        for arg in (*node.args, *[value for _, value in node.kwargs]):
            if not _has_text(arg, allow):
                where = ascii(f"{graph or 'the root graph'} / {node.name}")
                raise UnsupportedProgram(f"{where} takes {print_arg(arg)[:200]}, which is not data and cannot be saved")
    specs = [program.signature.in_spec, program.signature.out_spec]
    for found in program.call_signatures.values():
        specs += [found.in_spec, found.out_spec]
    try:
        parse(text, types=[kind for spec in specs for kind in _named_tuples(spec)], allow=allow)
    except ParseError as error:
        raise UnsupportedProgram(f"the program holds what is not data and cannot be saved: {error}") from error


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


def load(
    path: str | os.PathLike[str],
    *,
    state: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
    operators: Mapping[str, Target] | None = None,
    types: Iterable[type] = (),
    allow: Iterable[str] = (),
) -> Program:
    """Read a program from a file that ``save`` wrote. Nothing in the file runs.

    Args:
        path: of the file.
        state: tensors by name of slot, as ``state_dict()`` gives them, to have instead of those of the file. A tensor is not
            copied if it lies as the program's does and shares memory with no other slot. Without it, what a file saved with
            ``weights=False`` lacks is made on the meta device.
        device: where the tensors of the file go; by default where they were.
        operators: what runs operators that are not registered with torch, by name: plain functions of your own.
        types: classes of pytree nodes that are not registered as such: named tuples.
        allow: names of operators to accept that are registered here and not on the allow-list (``docs/format.md``): those that
            reach files, other processes or attributes by name.

    Returns:
        A valid program, equal to the one that was saved, without its trail; what ``history`` and ``became`` tell of it stays.

    Raises:
        StoreError: no file can have this path; the file is none of ours, damaged, crafted, or of a later version; or ``state``
            does not fit it.
        InvalidProgram: what is in it is a program that breaks invariants.
        UnsupportedProgram: it needs what is not here or not allowed: operators, all of which are named; a device; safetensors
            (extra ``store``).
        OSError: there is no such file, or it cannot be read.

    >>> import tempfile, torch, purefx as px
    >>> model = torch.nn.Linear(2, 2)
    >>> program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     px.save(program, f"{folder}/linear.purefx", weights=False)
    ...     again = px.load(f"{folder}/linear.purefx", state=model.state_dict())
    >>> torch.equal(px.lower(again)(torch.ones(1, 2)), model(torch.ones(1, 2)))
    True
    """
    known = Known(operators or {}, named_types(types), names_of(allow))
    with collector_paused(), opened(a_path(path, "load")) as file:
        try:
            structure = file.structure()
            program = _read_program(structure, known)
            origins, past = read_origins(structure["origins"])
            program = program.evolve(graphs=read_metas(program, structure["meta"], known, origins), past=past)
            places = [StoragePlace(*entry) for entry in structure["storages"]]
            facts = {name: facts_of(slot.value) for name, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)}
            found = _read_state(file, program.state, places, facts, device)
            found = found if state is None else put_in(state, found, facts)
            return check_identifiers(check(program.evolve(state=found)))
        except (InvalidProgram, UnsupportedProgram, ArgumentError):
            raise
        except StoreError as error:
            raise StoreError(f"{os.fspath(path)!a}: {error}") from error
        except MALFORMED as error:
            said = ascii(str(error)[:200])[1:-1]
            raise StoreError(f"{os.fspath(path)!a}: something in it is malformed: {said}") from error


MALFORMED = (ParseError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RuntimeError)
"""What is raised where a file says what makes no sense."""


def _read_program(structure: dict[str, Any], known: Known) -> Program:
    try:
        program = parse(structure["program"], operators=known.operators, types=known.types.values(), allow=known.allow)
    except ParseError as error:
        raise StoreError(f"its program cannot be read: {error}") from error
    wanted = set(structure["operators"])
    lacking = {
        node.do.name for _, node in program.nodes() if type(node.do) is Op and node.do.target is None and node.do.name in wanted
    }
    if lacking:
        raise UnsupportedProgram(
            f"the program uses operators that a file may not name: {told(lacking)[:2000]}: {advice_for(lacking)[:2000]} "
            f"(saved with {ascii(structure['made with'])[:100]}, this is torch {torch.__version__})"
        )
    return program


def _read_state(
    file: File, state: State, places: list[StoragePlace], facts: Mapping[str, TensorFacts], device: torch.device | str | None
) -> State:
    if len({place.storage for place in places}) != len(places):
        raise StoreError("one storage is in it twice")
    storages: dict[int, torch.UntypedStorage] = {}
    devices = {place.device: _device(place.device if device is None else device) for place in places}
    for place in places:
        slot = state.slots.get(place.slot) if place.slot is not None else None
        if place.slot is not None and (slot is None or place.slot not in facts or slot.storage != place.storage):
            raise StoreError(f"a storage in it is that of {place.slot[:80]!a}, which is no such slot")
        storages[place.storage] = read_storage(file, place, facts, devices[place.device])
    cells: dict[int, torch.Tensor] = {}
    slots: dict[str, Slot] = {}
    for name, slot in state.pairs:
        if name in facts and slot.storage in storages:
            if slot.cell not in cells:
                cells[slot.cell] = as_tensor(facts[name], storages[slot.storage], name)
            slot = evolve(slot, value=cells[slot.cell])
        slots[name] = slot
    return State(state.order, pmap(slots))


def _device(name: torch.device | str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise UnsupportedProgram(f"the device {str(name)[:80]!a} is not here ({said}): load with device='cpu'") from error
    if device.type == "meta":
        raise StoreError("tensors on the meta device have no contents")
    return device
