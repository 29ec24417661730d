"""What the writer knows of classes, modules and state that exist already: ``Made`` and ``Place``.

One idea: both are paths relative to whoever holds the module, so that a parent sees what its children have by
putting a name before them.  Nothing here writes text of steps.
"""

from __future__ import annotations

from typing import Literal

from attrs import evolve, frozen

__all__ = ["BUILTINS", "Made", "Place", "Result", "leaf"]

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
