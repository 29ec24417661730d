"""Origins: the nodes that a node was made of, as an entry of its meta.

Every rewrite carries meta, so a node that is moved, renamed or copied keeps its origin at no cost.  A rewrite that makes a node
from others calls ``made_of``; one that replaces nodes by another calls ``with_origins_of``.  Nodes without origins yield nodes
without origins.  Origins are compared by identity and hold neither nodes nor programs.
``analysis/history.py`` evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from attrs import define, evolve, field, frozen

from .graph import Input, Node, Stack
from .meta import EMPTY_META, ORIGIN, Meta
from .names import escaped, is_below
from .persistent import closure

Item = TypeVar("Item", Node, Input)

INPUT = "input"
"""The operator name of an input."""


@define(eq=False)
class Imported:
    """The place of a node or an input in the imported graph.

    It is never changed, but not frozen: every imported node has one, and frozen classes take 3x as long to make.

    >>> str(Imported("relu", "aten.relu.default"))
    'relu (aten.relu.default)'
    """

    name: str
    op: str
    """The name of its operator, or ``INPUT``."""
    graph: str = ""
    stack: Stack = field(default=(), repr=False)
    """The module calls around it, from the root on."""
    trace: str | None = field(default=None, repr=False)
    """The stack trace of the user code that made it, as the tracer wrote it."""

    of: ClassVar[tuple[Origin, ...]] = ()
    """Empty: its history starts here."""

    def __str__(self) -> str:
        return f"{self.name} ({self.op})"


@frozen(eq=False)
class Made:
    """The origins of a node that a rewrite made.

    >>> relu = Imported("relu", "aten.relu.default")
    >>> Made((relu,), "soften").of[0] is relu
    True
    """

    of: tuple[Origin, ...]
    by: str = ""
    """The rule that made it; empty if the step is not a rule."""
    is_one: bool = False
    """Whether all of them computed the same value; otherwise the node combines them."""
    is_body: bool = False
    """Whether they are one node of merged equal bodies: each is the origin in one module."""


Origin = Imported | Made


@frozen
class Place:
    """The place of a node: its graph, its name, and its operation.

    >>> print(Place("layers.0", "relu", "aten.relu.default"))
    relu in layers.0 (aten.relu.default)
    """

    graph: str
    name: str
    op: str

    def __str__(self) -> str:
        return escaped(f"{self.name} in {self.graph or 'the root'} ({self.op})")


@frozen(eq=False)
class Version:
    """One version of a program: the places of all origins.

    >>> Version("outline", {}).step
    'outline'
    """

    step: str
    """The step that made it; empty for the first one."""
    places: Mapping[Origin, tuple[Place, ...]] = field(repr=False)


def origin_of(meta: Meta) -> Origin | None:
    """Return the origin that meta has, if any.

    Args:
        meta: of a node or an input.

    >>> origin_of({}) is None
    True
    """
    return meta.get(ORIGIN)


def made_of(metas: Iterable[Meta], by: str = "") -> Meta:
    """Return meta with the origin of a new node; empty if its sources have no origins.

    Args:
        metas: of all nodes and inputs that it replaces or combines.
        by: the rule that makes it; by default the step.

    >>> relu = {ORIGIN: Imported("relu", "aten.relu.default")}
    >>> made_of([relu], "soften")[ORIGIN].by, dict(made_of([{}]))
    ('soften', {})
    """
    found = tuple(
        dict.fromkeys([origin for meta in metas if (origin := meta.get(ORIGIN)) is not None])
    )
    return MappingProxyType({ORIGIN: Made(found, by)}) if found else EMPTY_META


def copied_meta(meta: Meta) -> Meta:
    """Return the meta of a node for a new node that is made from it.

    >>> dict(copied_meta({"val": 1}))
    {'val': 1}
    """
    return MappingProxyType({**meta, **made_of([meta])})


def with_origins_of(meta: Meta, others: Iterable[Meta], *, is_body: bool = False) -> Meta:
    """Return the meta of a value that also replaces others; the same object if they add no origin.

    Args:
        meta: of the value.
        others: of the replaced values.
        is_body: whether they are the same node of bodies that are merged.

    >>> one, other = ({ORIGIN: Imported(name, "aten.relu.default")} for name in ("relu", "relu_1"))
    >>> [origin.name for origin in with_origins_of(one, [one, other])[ORIGIN].of], with_origins_of(one, [one, {}]) is one
    (['relu', 'relu_1'], True)
    """
    mine = meta.get(ORIGIN)
    found: dict[Any, None] = dict.fromkeys([mine, *[other.get(ORIGIN) for other in others]])
    found.pop(None, None)
    if mine is not None and len(found) > 1:
        for one in mine.of:
            found.pop(one, None)
    if len(found) < (1 if mine is None else 2):
        return meta
    return MappingProxyType({**meta, ORIGIN: Made(tuple(found), "", is_one=True, is_body=is_body)})


def roots_at(origins: Iterable[Origin], path: str | None = None) -> list[Imported]:
    """Return the imported nodes and inputs that some origins lead to.

    Args:
        origins: the origins.
        path: a module; of merged bodies, only the one of that module counts.  By default all count.

    >>> from purefx.ir import Frame
    >>> one, other = (Imported("relu", "aten.relu.default", "", (Frame(path),)) for path in ("a", "b"))
    >>> shared = Made((one, other), is_one=True, is_body=True)
    >>> len(roots_at([shared])), roots_at([shared], "b") == [other], len(roots_at([shared], "c"))
    (2, True, 2)
    """

    def behind(origin: Origin) -> Iterable[Origin]:
        mine: list[Origin] = []
        if path is not None and isinstance(origin, Made) and origin.is_body:
            mine = [one for one in origin.of if _is_at(one, path)]
        return reversed(mine or origin.of)

    found = closure(reversed(list(origins)), behind)
    return [origin for origin in found if isinstance(origin, Imported)]


def _is_at(origin: Origin, path: str) -> bool:
    where = [
        root.stack[-1].path if root.stack else ""
        for root in ancestors([origin])
        if isinstance(root, Imported)
    ]
    return any(one == path or is_below(one, path) for one in where)


def input_meta(meta: Meta) -> Meta:
    """Return the meta of a value without its origin, for a body input that receives the value.

    Args:
        meta: of the value.

    >>> dict(input_meta({"val": 1, ORIGIN: Imported("relu", "aten.relu.default")}))
    {'val': 1}
    """
    return (
        MappingProxyType({key: value for key, value in meta.items() if key != ORIGIN})
        if ORIGIN in meta
        else meta
    )


def with_replaced_origins(
    items: Sequence[Item], gone: Mapping[str, Iterable[Meta]]
) -> tuple[Item, ...]:
    """Return nodes or inputs with the origins of erased ones that they replace.

    Args:
        items: the nodes or inputs.
        gone: the meta of the erased nodes, by the name of the replacement.

    >>> relu, x = {ORIGIN: Imported("relu", "aten.relu.default")}, Input("x")
    >>> with_replaced_origins([x], {}) == (x,), with_replaced_origins([x], {"x": [relu]})[0].meta[ORIGIN].is_one
    (True, True)
    """
    metas = (
        {
            item.name: with_origins_of(item.meta, gone[item.name])
            for item in items
            if item.name in gone
        }
        if gone
        else {}
    )
    return tuple(
        [evolve(item, meta=metas[item.name]) if item.name in metas else item for item in items]
    )


def ancestors(origins: Iterable[Origin]) -> Iterator[Origin]:
    """Iterate over origins and all of their ancestors, each once.

    Args:
        origins: the starting points.

    >>> relu = Imported("relu", "aten.relu.default")
    >>> made = Made((Made((relu,)), relu))
    >>> len(list(ancestors([made]))), relu in ancestors([made])
    (3, True)
    """
    todo = list(dict.fromkeys(origins))
    seen = set(todo)
    while todo:
        origin = todo.pop()
        yield origin
        more = [one for one in origin.of if one not in seen]
        seen.update(more)
        todo += more
