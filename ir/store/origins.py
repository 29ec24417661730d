"""Origins and versions of a program as JSON, written and read: what ``history`` and ``became`` tell, without the programs before.

Every text is written once, every origin after those that it was made of, and of each version only where something stands that
stood elsewhere before.  Of a stack trace the line of the user is kept, which is what is shown.  Nothing here is looked up or run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from ..analysis.history import line_of
from ..analysis.versions import versions
from ..errors import StoreError
from ..graph import Frame
from ..origins import Imported, Made, Origin, Place, Version
from ..program import Program


@frozen(eq=False)
class Origins:
    """What was written of the origins of a program."""

    written: dict[str, Any] | None
    """For JSON; None where nothing has an origin."""
    numbers: Mapping[Origin, int]
    """The number of each origin, which the meta of a node has."""


def write_origins(program: Program) -> Origins:
    """Return the origins of a program and where they stood after each step.

    Args:
        program: the program.

    >>> from purefx.ir import Graph
    >>> write_origins(Program.of({"": Graph((), (), ())})).written is None
    True
    """
    every = versions(program)
    order = _in_order([origin for version in every for origin in _by_place(version.places)])
    if not order:
        return Origins(None, {})
    numbers = {origin: number for number, origin in enumerate(order)}
    texts: dict[str, int] = {}

    def text(said: str) -> int:
        return texts.setdefault(said, len(texts))

    rows = [_row(origin, numbers, text) for origin in order]
    steps: list[list[Any]] = []
    before: Mapping[Origin, tuple[Place, ...]] = {}
    for version in every:
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

    >>> read_origins(None)
    ([], ())
    """
    if written is None:
        return [], ()
    if type(written) is not dict or set(written) != {"texts", "origins", "steps"}:
        raise StoreError("the origins are not an object of texts, origins and steps")
    texts, rows, steps = written["texts"], written["origins"], written["steps"]
    if not all(type(part) is list for part in (texts, rows, steps)) or not all(type(text) is str for text in texts):
        raise StoreError("the origins are not lists, or their texts are none")
    origins: list[Origin] = []
    try:
        for row in rows:
            origins.append(_origin(row, texts, origins))
        return origins, tuple(_versions(steps, texts, origins))
    except (TypeError, ValueError, IndexError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"an origin in it is none: {str(error)[:200]!a}") from error


def _at(table: Sequence[Any], number: Any) -> Any:
    if type(number) is not int or not 0 <= number < len(table):
        raise StoreError("the origins name what is not there")
    return table[number]


def _origin(row: Any, texts: Sequence[str], known: Sequence[Origin]) -> Origin:
    if type(row) is list and len(row) == 4:
        by, is_one, is_body, of = row
        if type(is_one) is not bool or type(is_body) is not bool or type(of) is not list or not of:
            raise StoreError("an origin in it is made of nothing")
        return Made(tuple([_at(known, number) for number in of]), _at(texts, by), is_one, is_body)
    name, op, graph, trace, frames = row
    stack = tuple([Frame(_at(texts, path), _count(call)) for path, call in frames])
    return Imported(_at(texts, name), _at(texts, op), _at(texts, graph), stack, _at(texts, trace) or None)


def _count(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise StoreError("an origin in it is in a call whose number is none")
    return number


def _versions(steps: Sequence[Any], texts: Sequence[str], origins: Sequence[Origin]) -> Iterable[Version]:
    places: dict[Origin, tuple[Place, ...]] = {}
    for step, moved in steps:
        places = dict(places)
        for number, *said in moved:
            if len(said) % 3:
                raise StoreError("a place in the origins is not a graph, a name and an operator")
            words = [_at(texts, one) for one in said]
            now = tuple([Place(*words[start : start + 3]) for start in range(0, len(words), 3)])
            if now:
                places[_at(origins, number)] = now
            else:
                places.pop(_at(origins, number), None)
        yield Version(_at(texts, step), places)
