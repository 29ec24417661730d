"""``Effects`` of an operator and ``NodeEffects`` of a node: the side effects of a call.

An operator declares effects by argument position; those of a node are resolved to names of values and slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from attrs import evolve, fields, frozen

from ..arguments import Arg, Args, Kwargs


@frozen
class ArgAt:
    """An argument of an operator: its position and its keyword.

    >>> ArgAt(0, "self").name
    'self'
    """

    index: int
    name: str

    def find(self, args: Args, kwargs: Kwargs, default: Arg = None) -> Arg:
        """Return the argument in a call, or the default if the call omits it.

        >>> ArgAt(1, "p").find((1, 0.5), ()), ArgAt(1, "p").find((1,), (("p", 0.1),))
        (0.5, 0.1)
        """
        if self.index < len(args):
            return args[self.index]
        for key, value in kwargs:
            if key == self.name:
                return value
        return default


@frozen
class Unless:
    """Switches an effect off when an argument is a certain literal.

    >>> dropout = Effects(random=True, random_unless=(Unless(ArgAt(1, "p"), 0.0, None),))
    >>> dropout.random_unless[0].spares((1, 0.0), ())
    True
    """

    arg: ArgAt
    value: bool | float
    default: bool | float | None

    def spares(self, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call has the value that switches the effect off.

        >>> Unless(ArgAt(2, "train"), False, None).spares((1, 0.5, False), ())
        True
        """
        found = self.arg.find(args, kwargs, self.default)
        return isinstance(found, bool | int | float) and found == self.value


@frozen(cache_hash=True)
class Effects:
    """Effects of an operator, by argument.

    >>> PURE.writes, ANYTHING.ordered
    ((), True)
    """

    writes: tuple[ArgAt, ...] = ()
    """Arguments whose storage it changes."""
    writes_unless: tuple[Unless, ...] = ()
    """Literal arguments that switch those writes off."""
    returns: tuple[ArgAt | None, ...] = ()
    """For each result, the argument that it *is* (the same tensor object), if known."""
    aliases: tuple[ArgAt, ...] = ()
    """Arguments whose storage a result may share."""
    random: bool = False
    """It draws from the global generator."""
    random_unless: tuple[Unless, ...] = ()
    """Literal arguments that switch the draw off."""
    ordered: bool = False
    """It is ordered with respect to other ordered operators (asserts, prints, tokens)."""
    through_bodies: bool = False
    """It has the effects of the bodies among its arguments, on its operands."""
    unknown: bool = False
    """Unknown effects: it may write and alias every operand."""
    domain: str = ""
    """A further ordering domain: it is ordered only with respect to operators in the same domain
    (``COMMUNICATION``, ``LIBRARIES``)."""
    group: ArgAt | None = None
    """The argument that names the group inside the domain (a process group): only members of one group are ordered.  If it
    is not a literal or missing, the operator is ordered with the whole domain."""
    completes: tuple[ArgAt, ...] = ()
    """Arguments whose contents are available only after it has run (``wait_tensor``): for ordering this is a write that changes
    nothing."""
    sends: tuple[ArgAt, ...] = ()
    """Those of the aliased arguments whose storage is not shared by a result, only read until a result is waited for."""
    message: bool = False
    """It communicates with one other process: it keeps its place among all waits, to avoid
    deadlocks.  Operators that all processes of a group run may pass waits."""
    scope: int = 0
    """1 if it opens a region in which operators have another meaning (a level of vmap), -1 if it closes one: operators
    do not move into or out of a region."""

    @cached_property
    def acts(self) -> bool:
        """Whether a call may do more than compute a result, which may share storage with an argument.

        >>> PURE.acts, Effects(aliases=(ArgAt(0, "self"),)).acts, ANYTHING.acts
        (False, False, True)
        """
        acts = (
            "writes",
            "random",
            "ordered",
            "domain",
            "completes",
            "through_bodies",
            "unknown",
            "scope",
        )
        return any(getattr(self, name) for name in acts)

    @cached_property
    def token(self) -> str:
        """Its effects on one line, for the identity of bodies; empty if it has none.

        >>> Effects(random=True).token, Effects().token
        ("! ('random', True)", '')
        """
        changed = [
            (part.name, getattr(self, part.name))
            for part in fields(Effects)
            if getattr(self, part.name) != part.default
        ]
        # Switches at False and at 0.0 are equal, so they need the same text.
        facts = [
            (name, [_switch(item) for item in what] if name.endswith("_unless") else what)
            for name, what in changed
        ]
        return " ".join(["!", *map(repr, facts)]) if facts else ""


def _switch(unless: Unless) -> tuple[object, ...]:
    return (
        unless.arg,
        0.0 + unless.value,
        None if unless.default is None else 0.0 + unless.default,
    )


COMMUNICATION = "communication"
"""The domain of communication between processes: ordered within a process group, equally on all processes."""

LIBRARIES = "libraries"
"""The domain of undeclared operators of other libraries, which may log or count."""

PURE = Effects()
"""No effect at all; most operators share this one value."""

ANYTHING = Effects(random=True, ordered=True, unknown=True)
"""The effects assumed of an operator without a schema."""


@frozen
class Shared:
    """The values and slots with which one of several results of a call may share storage."""

    values: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    first: int = 0
    """The first result that it may share storage with; else its own number."""


@frozen
class NodeEffects:
    """Effects of one node, resolved from its op, call or bodies to the values and slots that it names."""

    writes: tuple[str, ...] = ()
    """Values whose storage it changes."""
    writes_slots: tuple[str, ...] = ()
    """State that it writes without having it as an operand (a call whose body reads its own state)."""
    reads_slots: tuple[str, ...] = ()
    """State that it reads without having it as an operand."""
    aliases: tuple[str, ...] = ()
    """Values that its result may share storage with."""
    aliases_slots: tuple[str, ...] = ()
    """State that its result may share storage with, without having it as an operand."""
    results: tuple[Shared, ...] = ()
    """For a call with several results: the values and slots that each result may share storage with."""
    random: bool = False
    ordered: bool = False
    domains: tuple[tuple[str, ...], ...] = ()
    """Further ordering domains: (domain,) for a whole domain, (domain, group) for a group, () for all."""
    completes: tuple[str, ...] = ()
    """Values whose contents are available only after it has run."""
    sends: tuple[str, ...] = ()
    """Values, among those that it aliases, which are only read until its result is waited for."""
    waits: bool = False
    """It may wait for another process, itself or in a body."""
    message: bool = False
    """It may communicate with one other process, itself or in a body: it keeps its place among waits."""
    scope: tuple[int, int] = (0, 0)
    """The number of regions that it closes and did not open, and of those that it leaves open."""

    def renamed(
        self, values: Callable[[str], Iterable[str]], slots: Callable[[str], str]
    ) -> NodeEffects:
        """Return the same effects on other values and state.

        Args:
            values: returns the replacements of a value.
            slots: returns the replacement of a slot.

        >>> NodeEffects(writes=("a",), reads_slots=("w",)).renamed(lambda name: (name, "b"), str.upper).writes
        ('a', 'b')
        """
        made: dict[str, Any] = {}
        for name in VALUES:
            made[name] = tuple([new for old in getattr(self, name) for new in values(old)])
        for name in SLOTS:
            made[name] = tuple(map(slots, getattr(self, name)))
        results = [
            Shared(
                tuple([new for old in one.values for new in values(old)]),
                tuple(map(slots, one.slots)),
                one.first,
            )
            for one in self.results
        ]
        return evolve(self, results=tuple(results), **made)


VALUES = ("writes", "aliases", "completes", "sends")
SLOTS = ("writes_slots", "reads_slots", "aliases_slots")
FLAGS = ("random", "ordered", "waits", "message")


def joined(several: Sequence[NodeEffects]) -> NodeEffects:
    """Return the joint effects of several nodes, without the effects of single results.

    >>> joined([NodeEffects(writes=("a",)), NodeEffects(random=True)]).writes
    ('a',)
    """
    several = [one for one in several if one is not NOTHING]
    made: dict[str, Any] = {name: any(getattr(one, name) for one in several) for name in FLAGS}
    for name in (*VALUES, *SLOTS, "domains"):
        made[name] = tuple(dict.fromkeys([item for one in several for item in getattr(one, name)]))
    return NodeEffects(**made, scope=leveled(one.scope for one in several))


def leveled(steps: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of regions that a run of nodes closes and did not open, and of those that it leaves open.

    >>> leveled([(0, 1), (1, 0)]), leveled([(1, 0), (0, 1)])
    ((0, 0), (1, 1))
    """
    closes = opens = 0
    for closing, opening in steps:
        closes += max(0, closing - opens)
        opens = max(0, opens - closing) + opening
    return closes, opens


NOTHING = NodeEffects()
