"""``Value``: how immutable values answer to ``copy`` and ``pickle``.

A value is its own copy. Pickle is refused with what to do instead: ``store/`` writes programs to files.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .errors import ArgumentError


class Value:
    """A base of immutable values, which are their own copies and are saved as programs; it has no fields.

    >>> import copy
    >>> from purefx.ir import Graph
    >>> graph = Graph((), ())
    >>> copy.copy(graph) is graph, copy.deepcopy(graph) is graph
    (True, True)
    """

    __slots__ = ()
    _saved: ClassVar[str] = "px.save(program, path) writes the program that it is of to a file, and px.load reads it"
    """What to do instead of pickling it."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError(f"a {type(self).__name__} cannot be pickled; {self._saved}")
