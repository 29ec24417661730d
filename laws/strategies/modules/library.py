"""``Library``: what is finished anywhere in the tree while its text is written.

One idea: a class is finished before its parent goes on, so what is in the library can be tied to, held, called or made
again by whatever comes later, and no module ever holds one that holds it.  Nothing here writes steps.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from .made import Made, Place
from .recipe import SlotRecipe

__all__ = ["SLOTS", "Library", "SlotKind"]


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
        keeps_dead: whether what nobody uses is left as it is; otherwise most of it is given back or written to state.

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
