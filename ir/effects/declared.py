"""``Effects`` of an operator and ``NodeEffects`` of a node: what a call does besides computing its result.

An operator declares effects by position of its arguments; a node has them by name of value and slot.
"""

from __future__ import annotations

from functools import cached_property

from attrs import fields, frozen

from ..arguments import Arg

__all__ = ["ANYTHING", "COMMUNICATION", "LIBRARIES", "NOTHING", "PURE", "ArgAt", "Effects", "NodeEffects", "Shared", "Unless"]


@frozen
class ArgAt:
    """An argument of an operator: its position and its keyword.

    >>> ArgAt(0, "self").name
    'self'
    """

    index: int
    name: str

    def find(self, args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...], default: Arg = None) -> Arg:
        """Return the argument in a call, or the default where the call leaves it out.

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
    """An effect that does not happen when an argument is literally a given value."""

    arg: ArgAt
    value: bool | float
    default: bool | float | None

    def spares(self, args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...]) -> bool:
        """Return whether the call at hand has the value that switches the effect off.

        >>> Unless(ArgAt(2, "train"), False, None).spares((1, 0.5, False), ())
        True
        """
        found = self.arg.find(args, kwargs, self.default)
        return isinstance(found, bool | int | float) and found == self.value


@frozen(cache_hash=True)
class Effects:
    """What a call does, by argument.

    >>> PURE.writes, ANYTHING.ordered
    ((), True)
    """

    writes: tuple[ArgAt, ...] = ()
    """Arguments whose storage it changes."""
    writes_unless: tuple[Unless, ...] = ()
    """Literal arguments that switch those writes off."""
    returns: tuple[ArgAt | None, ...] = ()
    """For each result, the argument that it *is* (the same tensor object), where that is known."""
    aliases: tuple[ArgAt, ...] = ()
    """Arguments whose storage a result may share."""
    random: bool = False
    """It draws from the global generator."""
    random_unless: tuple[Unless, ...] = ()
    """Literal arguments that switch the draw off."""
    ordered: bool = False
    """Its order among ordered operators can be seen (asserts, prints, tokens)."""
    through_bodies: bool = False
    """It does what the bodies among its arguments do, to its operands."""
    unknown: bool = False
    """Nothing is known: it may write and alias every operand."""
    domain: str = ""
    """A further domain in which its order can be seen: it stays in order with what is in the same domain, and with nothing else
    (``COMMUNICATION``, ``LIBRARIES``)."""
    group: ArgAt | None = None
    """The argument that names the group inside of the domain (a process group): only members of one group are in order.  Where it
    is not a literal, or there is none, the operator is in order with the whole domain."""
    completes: tuple[ArgAt, ...] = ()
    """Arguments whose contents are only there when it has run (``wait_tensor``): for order it is a write, and changes nothing."""
    scope: int = 0
    """1 where it opens a region in which operators mean something else (a level of vmap), -1 where it closes one: no
    operator moves into such a region or out of it."""

    @cached_property
    def acts(self) -> bool:
        """Whether a call may do anything besides computing a result, which may share storage with an argument.

        >>> PURE.acts, Effects(aliases=(ArgAt(0, "self"),)).acts, ANYTHING.acts
        (False, False, True)
        """
        return bool(
            self.writes
            or self.random
            or self.ordered
            or self.domain
            or self.completes
            or self.through_bodies
            or self.unknown
            or self.scope
        )

    @cached_property
    def token(self) -> str:
        """What it says on one line, for the identity of bodies; nothing if it does nothing.

        >>> Effects(random=True).token, Effects().token
        ("! ('random', True)", '')
        """
        said = [(part.name, getattr(self, part.name)) for part in fields(Effects) if getattr(self, part.name) != part.default]
        # A switch at False is one at 0.0: they are equal, and read alike here.
        told = [(name, [_switch(item) for item in what] if name.endswith("_unless") else what) for name, what in said]
        return " ".join(["!", *map(repr, told)]) if told else ""


def _switch(unless: Unless) -> tuple[object, ...]:
    return (unless.arg, 0.0 + unless.value, None if unless.default is None else 0.0 + unless.default)


COMMUNICATION = "communication"
"""The domain of operators that talk to other processes: in order within their process group, on every process the same."""

LIBRARIES = "libraries"
"""The domain of operators that are not torch's and that nobody declared: their schema does not say whether they log or count."""

PURE = Effects()
"""No effect at all; most operators share this one value."""

ANYTHING = Effects(random=True, ordered=True, unknown=True)
"""What an operator without a schema is taken to do."""


@frozen
class Shared:
    """What one of several results of a call may share storage with."""

    values: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    first: int = 0
    """The first of the results that it may share storage with; its own number where there is none."""


@frozen
class NodeEffects:
    """What one node does to the world, by name of value: resolved from its op, call or bodies."""

    writes: tuple[str, ...] = ()
    """Values whose storage it changes."""
    writes_slots: tuple[str, ...] = ()
    """State that it changes without being handed it (a call whose body reads its own state)."""
    reads_slots: tuple[str, ...] = ()
    """State that it reads without being handed it."""
    aliases: tuple[str, ...] = ()
    """Values that its result may share storage with."""
    aliases_slots: tuple[str, ...] = ()
    """State that its result may share storage with without being handed it."""
    results: tuple[Shared, ...] = ()
    """The same for each of the results of a call that gives several."""
    random: bool = False
    ordered: bool = False
    domains: tuple[tuple[str, ...], ...] = ()
    """Further domains in which it is in order: (domain,) with all of one, (domain, group) with a group; () with every one."""
    completes: tuple[str, ...] = ()
    """Values whose contents are only there when it has run."""
    scope: tuple[int, int] = (0, 0)
    """How many regions it closes that it did not open, and how many it opens and leaves open."""


NOTHING = NodeEffects()
