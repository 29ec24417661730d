"""Shared by all values: persistent maps (``PMap``), how values are shown (``Displayed``), and the pause of the collector.

``derived`` memoizes a function in the value that it is computed from.
Only this module imports pyrsistent, whose C extension corrupts live objects.  ``show/`` and ``text/`` register printers with
``html_of`` and ``text_of``, so that values do not import them.  IPython and rich are optional.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import singledispatch, wraps
from typing import Any, ClassVar, Generic, TypeVar, cast, final

import pyrsistent._pmap
import pyrsistent._pvector

from .show.styled import Form, styled

K = TypeVar("K")
V = TypeVar("V")


def _load_pure_python_map() -> Any:
    # pyrsistent 0.20 keeps `pvector` (C when it can) beside `python_pvector`; its map module looks the name up in
    # its own globals, so a second copy of that module with another binding is all that is needed.  The copy is named
    # inside the package because it imports its neighbours relatively; it is not put in sys.modules.
    spec = importlib.util.spec_from_file_location(
        "pyrsistent._pmap_of_purefx", pyrsistent._pmap.__file__
    )
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pvector = cast(Any, pyrsistent._pvector).python_pvector
    module._EMPTY_PMAP = module._turbo_mapping({}, 0)
    return module


_module = _load_pure_python_map()


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in order.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def closure(starts: Iterable[K], following: Callable[[K], Iterable[K]]) -> dict[K, None]:
    """Return everything that some starting points lead to, depth first, with these; each once.

    Args:
        starts: the starting points; the last is followed first.
        following: returns what one thing leads to, likewise.

    >>> list(closure([1], {1: [2, 3], 2: [], 3: [2]}.__getitem__))
    [1, 3, 2]
    """
    found: dict[K, None] = {}
    todo = list(starts)
    while todo:
        here = todo.pop()
        if here not in found:
            found[here] = None
            todo += following(here)
    return found


MANY = 4
"""If every fourth entry changes, a new dict is faster than editing the tree."""

FEW = 1024
"""Smaller maps are copied as dicts: as fast as an edit of the tree, and faster to read."""


@final
class PMap(Mapping[K, V], Generic[K, V]):
    """A persistent map; every edit returns a new one that shares the rest.  ``pmap`` makes the first.

    >>> first = pmap({"a": 1})
    >>> second = first.set("b", 2)
    >>> sorted(first), sorted(second)
    (['a'], ['a', 'b'])
    """

    __slots__ = ("_read", "_tree")

    def __init__(self, read: Mapping[K, V], tree: Any = None) -> None:
        self._read = read
        self._tree = tree

    def __getitem__(self, key: K) -> V:
        return self._read[key]

    def __contains__(self, key: object) -> bool:
        return key in self._read

    def __iter__(self) -> Iterator[K]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)

    def set(self, key: K, val: V) -> PMap[K, V]:
        """Return a map with one more entry, or another value in it."""
        return self.update(cast("Mapping[K, V]", {key: val}))

    def update(self, other: Mapping[K, V]) -> PMap[K, V]:
        """Return a map with the entries of another map added; these replace entries with equal keys."""
        if len(self) <= FEW or MANY * len(other) >= len(self):
            return PMap({**self._read, **other})
        tree = (_module.pmap(self._read) if self._tree is None else self._tree).update(other)
        return PMap(tree, tree)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self is other or dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"pmap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return pmap, (dict(self),)


def pmap(mapping: Mapping[K, V] | None = None) -> PMap[K, V]:
    """Return a persistent copy of a mapping.

    Args:
        mapping: its entries; None for the empty map.

    Returns:
        A map that later changes of ``mapping`` do not affect; a ``PMap`` is returned as it is.

    >>> pmap({"x": 1})["x"]
    1
    """
    return mapping if type(mapping) is PMap else PMap(dict(mapping or {}))


Owner = TypeVar("Owner")


def derived(work: Callable[[Owner], V]) -> Callable[[Owner], V]:
    """Memoize a function of one value in the ``derived`` dict of the value.

    Args:
        work: the function; its result must not be changed.

    >>> from types import SimpleNamespace
    >>> doubled = derived(lambda value: [value.number * 2])
    >>> value = SimpleNamespace(number=2, derived={})
    >>> doubled(value), doubled(value) is doubled(value)
    ([4], True)
    """

    @wraps(work)
    def kept(owner: Owner) -> V:
        known: dict[Any, Any] = cast("Any", owner).derived
        if work not in known:
            known[work] = work(owner)
        return known[work]

    return kept


@singledispatch
def text_of(value: object, **options: Any) -> str:  # noqa: ARG001
    r"""Return a value in the text form; ``text_of.register(Type, printer)`` adds a type.

    Args:
        value: a program, a graph, a node, a diff; anything else is shown as by ``repr``.
        options: of its printer.

    >>> from purefx.ir import Graph
    >>> text_of(Graph((), (), ()))
    'graph @""() {\n  return ()\n}'
    >>> text_of(3)
    '3'
    """
    return repr(value)


LINES = 400
"""The number of lines that IPython prints and a notebook saves besides the markup; ``print`` shows all."""


@singledispatch
def html_of(value: object) -> str | None:  # noqa: ARG001
    """Return a value as HTML, or None if its type has no page; ``html_of.register(Type, page)`` adds one.

    Args:
        value: a program, a graph, a diff, counts, a finding.

    >>> html_of(3) is None
    True
    """
    return None


@singledispatch
def summary_of(value: object) -> str:
    """Return the text that ``print`` shows; a summary for long values."""
    return text_of(value)


class Displayed:
    """Base class of values that print as their text form and that notebooks and rich show; it has no fields.

    >>> from purefx.ir import Graph, Input
    >>> bundle = Graph((Input("x"),), ())._repr_mimebundle_()
    >>> list(bundle), bundle["text/html"].startswith("<div")
    (['text/plain', 'text/html'], True)
    """

    __slots__ = ()
    _form: ClassVar[Form] = "program"
    """The kind of text that it prints as."""

    def __str__(self) -> str:
        return text_of(self)

    def __rich__(self) -> object:
        return styled(str(self), self._form)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        """Return the text, at most ``LINES`` lines of it, and the markup; without this, IPython keeps the whole ``repr``."""
        forms = {"text/plain": _plain(self), "text/html": html_of(self)}
        return {kind: found for kind, found in forms.items() if found is not None}


def _plain(value: object) -> str | None:
    try:
        lines = str(value).rstrip("\n").split("\n")
    except Exception:  # noqa: BLE001  fields may hold anything; the markup is still shown
        return None
    more = len(lines) - LINES
    return "\n".join(
        [*lines[:LINES], f"... {more:,} more lines, which print shows"] if more > 0 else lines
    )
