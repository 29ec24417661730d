"""Chains: the views and casts that drawn programs have where a pattern looks through some (``px.through``).

Each is a few steps that every tensor can take; how many, the drawing of programs chooses (``operands.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen

from ...transforms.rules.terms import Term
from ...transforms.rules.through import Through

__all__ = ["Passed", "chains_of", "name_of"]

aten: Any = torch.ops.aten

STEPS: Mapping[str, Callable[[Any], Any]] = {
    "turned": lambda x: aten.transpose.int(x, 0, -1) if x.dim() else aten.unsqueeze.default(x, 0),
    "flat": lambda x: aten.reshape.default(x, [-1]),
    "row": lambda x: aten.unsqueeze.default(x, 0),
    "copied": aten.clone.default,
    "double": lambda x: aten.to.dtype(x, torch.float64),
    "single": lambda x: aten.to.dtype(x, torch.float32),
}

VIEWS = ("", "turned", "flat", "row", "turned flat", "row turned", "turned copied", "turned row flat", "flat row turned")

CASTS = ("", "double", "single", "double single", "single double single")

BOTH = ("", "turned", "double", "turned double", "double flat", "row single", "turned double row", "flat double single")


@frozen(eq=False, repr=False)
class Passed(Term):
    """A term behind some views and casts.

    >>> import torch
    >>> from ...transforms.rules.terms import Var
    >>> Passed(Var("x"), ("turned", "flat")), Passed(Var("x"), ("turned", "flat")).of(torch.ones(2, 3)).shape
    (x turned flat, torch.Size([6]))
    """

    whole: Any
    steps: tuple[str, ...]

    def _parts(self) -> Sequence[Any]:
        return [self.whole]

    def _text(self, part: Callable[[Any], str]) -> str:
        return " ".join([part(self.whole), *self.steps])

    def of(self, value: Any) -> Any:
        """Return what the steps make of a tensor."""
        for step in self.steps:
            value = STEPS[step](value)
        return value


def name_of(term: Through) -> Any:
    """Return what names a chain: chains of one name are the same one."""
    return id(term) if term.chain is None else term.chain.name


def chains_of(term: Through) -> list[tuple[str, ...]]:
    """Return the chains that are drawn where a term looks through some: of no step, of one, of two, of three.

    >>> import torch, purefx as px
    >>> from ...transforms.rules.terms import Var
    >>> [len(steps) for steps in chains_of(px.through(Var("x"), casts=True, views=False))]
    [0, 1, 1, 2, 3]
    """
    found = BOTH if term.views and term.casts else VIEWS if term.views else CASTS
    return [tuple(each.split()) for each in found]
