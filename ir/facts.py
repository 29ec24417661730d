"""``Fact``: what follows from a program, kept with it and carried over edits.

What follows from one graph belongs to that graph (``Graph.derived``).  A fact looks at more: it says how it is derived from
nothing, and how it follows from that of a program of which a few graphs were edited, where it can say so.  There is no table:
facts are in ``Program.known``, which belongs to one program and goes with it.  ``Program.evolve`` hands on what is known of the
program that it edits, as entries that say which program they are about, so an entry is never taken for true of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from attrs import define, frozen

from .persistent import PMap, changed_keys

__all__ = ["FIELDS", "UNASKED", "Edit", "Fact", "Known", "edit_between", "hand_on", "is_about", "itself"]

T = TypeVar("T")

FIELDS = ("graphs", "root", "state", "signature", "modules", "call_signatures", "constraints", "facts")
"""The fields of a program that facts may depend on; what it came from is none of them."""

UNASKED: Any = object()
"""Stands for a value that is derived once somebody asks."""

ORIGIN, ITSELF = "origin", "itself"
"""Under which names a program knows the one that it was edited from, and itself as those know it that were made from it."""

MANY = 4
"""Where every fourth graph was edited, a fact that nobody asked for before is derived from nothing."""


@define(eq=False)
class Known:
    """A fact of one program."""

    program: Any
    """The program, without its trail and without what is known of it: nothing else is kept alive, and there is no circle."""
    value: Any = UNASKED


@frozen(eq=False)
class Edit:
    """What lies between two programs that have graphs under the same names."""

    before: Any
    after: Any
    changed: tuple[str, ...]
    """The names of the graphs that are other objects."""

    def keeps(self, *fields: str) -> bool:
        """Return whether some fields hold the same objects."""
        return all(getattr(self.before, name) is getattr(self.after, name) for name in fields)


def edit_between(before: Any, after: Any) -> Edit | None:
    """Return what lies between two programs; None where graphs came or went, or the root is another.

    Args:
        before: a program.
        after: another one, most likely made from it.

    >>> from purefx.ir import Graph, Input, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> edit_between(program, program.with_main(Graph((Input("x"),), (), ()))).changed
    ('',)
    """
    if type(before.root) is not str or type(after.root) is not str or before.root != after.root:
        return None
    if type(before.graphs) is not PMap or type(after.graphs) is not PMap:  # `verify` is asked of anything
        return None
    changed = changed_keys(before.graphs, after.graphs)
    return None if changed is None else Edit(before, after, changed)


def _never(value: Any, edit: Edit) -> None:  # noqa: ARG001
    return None


@frozen(eq=False)
class Fact(Generic[T]):
    """A fact, by name: called with a program, it returns its value.

    >>> from purefx.ir import Graph, Program
    >>> count = Fact("nodes", lambda program: sum(len(graph.nodes) for graph in program.graphs.values()))
    >>> count(Program.of({"": Graph((), (), ())}))
    0
    """

    name: str
    derive: Callable[[Any], T]
    """Gives it from nothing."""
    follow: Callable[[T, Edit], T | None] = _never
    """Gives it after an edit, the same as from nothing; None where it cannot say."""

    def __call__(self, program: Any) -> T:
        """Return the value of the fact for a program.

        Args:
            program: a program at any stage.
        """
        value = self.followed(program)
        return self.keep(program, self.derive(program)) if value is None else value

    def followed(self, program: Any) -> T | None:
        """Return the value of the fact where it is known, or follows from that of the program before; None otherwise.

        Args:
            program: a program at any stage.
        """
        known: Known | None = program.known.get(self.name)
        if known is not None and is_about(known, program):
            return self._value(known)
        found = self.before(program)
        value = None if found is None else self.follow(*found)
        return None if value is None else self.keep(program, value)

    def before(self, program: Any) -> tuple[T, Edit] | None:
        """Return the value for the program that this one was edited from, and the edit; None where there is none, or it is large.

        Args:
            program: a program, of which the fact may not be known.
        """
        known: Known | None = program.known.get(self.name)
        if known is None and ORIGIN in program.known:
            known = self._at_the_origin(program.known[ORIGIN].program, program)
        edit = None if known is None else edit_between(known.program, program)
        return None if known is None or edit is None else (self._value(known), edit)

    def _value(self, known: Known) -> T:
        if known.value is UNASKED:
            known.value = self.derive(known.program)
        return known.value

    def _at_the_origin(self, origin: Any, program: Any) -> Known | None:
        # Nobody asked it of the program that was edited.  It has other versions perhaps, which follow from it as well.
        if self.name not in origin.known:
            edit = edit_between(origin, program)
            if edit is None or MANY * len(edit.changed) > len(program.graphs):
                return None
            self.keep(origin, self.derive(origin))
        return origin.known[self.name]

    def keep(self, program: Any, value: T) -> T:
        """Remember the value of the fact for a program, and return it."""
        program.known[self.name] = Known(itself(program).program, value)
        return value


def is_about(known: Known, program: Any) -> bool:
    """Return whether a fact is one of a program: whether all that facts depend on are the same objects.

    Args:
        known: a fact.
        program: a program.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> is_about(Known(program.bare()), program)
    True
    """
    mine = known.program
    return all(getattr(mine, name) is getattr(program, name) for name in FIELDS)


def hand_on(before: Any, after: Any) -> None:
    """Let a program know what is known of the one that it was made from, and that one itself.

    Args:
        before: a program.
        after: what was made by changing some of its fields; nothing is known of it yet.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> sorted(program.evolve(facts=frozenset()).known)
    ['origin']
    """
    # Of several edits in a row, the program before them that somebody asked something, or the first.
    origin = before.known.get(ITSELF) or before.known.get(ORIGIN) or itself(before)
    after.known.update(before.known)
    after.known.pop(ITSELF, None)
    after.known[ORIGIN] = origin


def itself(program: Any) -> Known:
    """Return a program as facts know it that are about it.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> itself(program) is itself(program), itself(program).program == program
    (True, True)
    """
    found = program.known.get(ITSELF)
    if found is None:
        found = program.known[ITSELF] = Known(program.bare())
    return found
