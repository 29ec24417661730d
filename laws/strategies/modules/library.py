"""What the writer of a module tree knows: classes, modules and state that exist already, and what is finished.

It grows while the text is written.
"""

from __future__ import annotations

from typing import Literal

from attrs import evolve, frozen

from .recipe import SlotRecipe

__all__ = ["BUILTINS", "SLOTS", "Library", "Made", "Place", "Result", "SlotKind", "leaf"]

Result = Literal["value", "pair", "dict", "none", "buffer", "input"]


@frozen
class Place:
    """A piece of state, as a body writes it."""

    text: str
    kind: Literal["parameter", "buffer", "constant"]
    shape: str = "3"
    alone: bool = False
    """Whether nothing else may share its memory, because it is assigned anew."""
    tied: bool = True
    """Whether it may be one tensor with another; the exporter forgets where the second name of an unsaved buffer stood."""

    def below(self, prefix: str) -> Place:
        """Return the place as it is called one level up.

        >>> Place("b0", "buffer").below("self.m0").text
        'self.m0.b0'
        """
        return evolve(self, text=f"{prefix}.{self.text}")

    def vector(self, number: int) -> str:
        """Return the text of three numbers in it.

        >>> Place("self.b0", "buffer", "2, 3").vector(5)
        'self.b0[1]'
        """
        return self.text if self.shape == "3" else f"{self.text}[{number % 2}]"


@frozen
class Made:
    """A class that is written, or a module of torch: how one is made, what a call takes and gives, what is in it."""

    new: str
    takes: int = 0
    flags: frozenset[str] = frozenset()
    result: Result = "value"
    state: tuple[Place, ...] = ()
    modules: tuple[tuple[str, Made], ...] = ()
    is_wired: bool = False
    """Whether one instance was tied to what is elsewhere, so that another instance would lack something."""
    ids: bool = False
    """Whether it takes whole numbers."""

    @property
    def is_simple(self) -> bool:
        """Whether a call takes one value and gives one."""
        return self.result in ("value", "input") and not (self.takes or self.flags or self.ids)


def _places(*names: str, kind: Literal["parameter", "buffer"] = "parameter", shape: str = "3") -> tuple[Place, ...]:
    return tuple(Place(name, kind, shape) for name in names)


_WEIGHT = _places("weight", shape="3, 3")

BUILTINS = (
    Made("nn.Linear(3, 3)", state=(*_WEIGHT, *_places("bias"))),
    Made("nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))"),  # equal bodies of other sizes
    Made("nn.LayerNorm(3)", state=_places("weight", "bias")),
    Made("nn.BatchNorm1d(3)", state=(*_places("running_mean", "running_var", kind="buffer"), *_places("weight", "bias"))),
    Made("nn.Dropout(0.5)"),
    Made("nn.Identity()", result="input"),
    Made("nn.Linear(3, 3, bias=False)", state=_WEIGHT),
    Made("nn.Embedding(4, 3)", ids=True),
    Made("nn.ReLU()"),
    Made("nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))"),
    Made("nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.ReLU())"),
    Made("nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(1), nn.Linear(6, 3))"),
)
"""Modules of torch whose calls take and give three columns."""


def leaf(number: int) -> Made:
    """Return a module of torch.

    >>> leaf(5).new
    'nn.Identity()'
    """
    return BUILTINS[number % len(BUILTINS)]


@frozen
class SlotKind:
    """A kind of state: how it is made, and how a body reads it."""

    new: str
    """The line of ``__init__``; ``{0}`` is the name."""
    kind: Literal["parameter", "buffer", "constant"]
    shape: str = "3"
    key: str = ""
    """What is written behind the name to reach the tensor."""
    alone: bool = False
    tied: bool = True


SLOTS = (
    SlotKind("self.{0} = nn.Parameter(torch.randn(3))", "parameter"),
    SlotKind('self.register_buffer("{0}", torch.randn(3))', "buffer"),
    SlotKind('self.register_buffer("{0}", torch.randn(2, 3))', "buffer", "2, 3"),
    SlotKind('self.register_buffer("{0}", torch.zeros(3), persistent=False)', "buffer", tied=False),
    SlotKind("self.{0} = torch.randn(3)", "constant", alone=True),
    SlotKind("self.{0} = nn.ParameterList([torch.randn(3), torch.ones(3)])", "parameter", key="[1]", alone=True),
    SlotKind('self.register_buffer("{0}", torch.ones(2, 3), persistent=False)', "buffer", "2, 3", tied=False),
    SlotKind("self.{0} = nn.Parameter(torch.randn(3), requires_grad=False)", "parameter"),
    SlotKind('self.{0} = nn.ParameterDict({{"a": torch.randn(3)}})', "parameter", key='["a"]', alone=True),
    SlotKind('self.register_buffer("{0}", torch.ones(3))', "buffer", alone=True),
)


class Library:
    """The classes, modules and state of the whole tree so far.

    Args:
        writes: whether bodies may write to values in place.
        keeps_dead: whether what nobody uses is left as it is; otherwise most of it is returned or written to state.

    >>> Library(writes=True).name()
    'M1'
    """

    def __init__(self, *, writes: bool, keeps_dead: bool = False) -> None:
        self.writes = writes
        self.keeps_dead = keeps_dead
        self.texts: list[str] = []
        """The classes."""
        self.made: list[Made] = []
        self.wiring: list[str] = []
        """Lines at the end of the root's ``__init__``."""
        self.modules: list[tuple[str, Made]] = []
        """As the root writes them."""
        self.state: list[Place] = []
        """Likewise; what may be tied."""
        self.names = 0
        self.has_two_names = self.has_held = False
        """Whether some module has, or is held by one that is not its parent; never both.

        The exporter knows a module with two names by the way in which it was reached, and one that is reached through a
        list by nothing: it says "m2" for "n1.m2", and "m0.slice(1, None, None).0" for a module of a slice.
        """
        self._views: set[str] = set()

    def name(self) -> str:
        """Return a new name for a class."""
        self.names += 1
        return f"M{self.names}"

    def share(self, place: Place, drawn: SlotRecipe) -> bool:
        """Keep a place, and write a line that makes it another's tensor or a view of it where that was drawn.

        Args:
            place: as the root writes it.
            drawn: whether, and with which.
        """
        start = drawn.other % (len(self.state) or 1)
        line = None
        if drawn.sharing > 2:
            line = next((line for other in self.state[start:] if (line := _sharing(place, other, drawn))), None)
        self.state.append(place)
        # Two views of one window are one tensor to the exporter's files.
        view = line.partition(" = ")[2] if line is not None and line.endswith("]") else None
        if view in self._views:
            return False
        if view is not None:
            self._views.add(view)
        self.wiring += [] if line is None else [line]
        return line is not None


def _sharing(place: Place, other: Place, drawn: SlotRecipe) -> str | None:
    if other.kind != place.kind:
        return None
    if other.shape == place.shape and place.tied and other.tied and (drawn.sharing == 3 or place.kind == "parameter"):
        return f"{place.text} = {other.text}"
    if place.kind == "buffer" and other.shape == "2, 3" and place.shape == "3":
        return f"{place.text} = {other.text}[{drawn.other % 2}]"
    return None
