"""``RegionText``: steps under a flag, under ``no_grad``, and in the branches of a ``cond``.

One idea: a region is written with the same lists of values and state, and what would be unknown after it is taken from
them when it ends.  Nothing here writes calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from .recipe import Again, Call, Item, Region, Step
from .text import BodyText, is_held

__all__ = ["RegionText"]


class RegionText(BodyText):
    r"""A body that can write regions.

    >>> from .library import Library
    >>> body = RegionText(Library(writes=True), "M1", None)
    >>> body.region(Region(10, 0, (), ()))
    >>> print("\n".join(body.lines).replace("        ", ""))
    def v1(a):
        v3 = a.tanh()
        return v3
    def v2(a):
        v4 = a.tanh()
        return v4
    v5 = cond(x.sum() > 0, v1, v2, (x,))
    """

    def items(self, items: Iterable[Item]) -> None:
        """Write steps; a class that derives from this one writes the others."""
        for item in items:
            if isinstance(item, Step):
                self.step(item)

    def region(self, region: Region) -> None:
        """Write a region; its last step is one that always computes something new, or it holds one call and nothing else."""
        calls = [item for item in region.items if isinstance(item, (Call, Again))] if region.kind > 7 else []
        if region.kind < 6 or self.is_pure:
            self._flagged(region)
        elif region.kind < 10 and calls:
            self._alone(calls[0], Again(0, 0, region.first, region.first))
        elif region.kind < 10:
            self.line("with torch.no_grad():")
            self._inside(region.items, Step(0, region.first, region.first))
        else:
            self._cond(region)

    def _inside(self, items: Iterable[Item], last: Step) -> None:
        self.indent += 1
        self.items(items)
        self.step(last)
        self.indent -= 1

    def _alone(self, call: Item, again: Again) -> None:
        # A teacher and a student: nothing but a call stands in the region, and the module is called again outside.
        self.line("with torch.no_grad():")
        written = len(self.lines)
        self.indent += 1
        self.items((call,))
        if len(self.lines) == written:
            self.step(Step(0, again.first, again.first))
        self.indent -= 1
        self.items((again,))

    def _flagged(self, region: Region) -> None:
        test = "self.training"
        if self.where != "self" and not self.is_pure:
            flag = "flag" if region.kind % 2 == 0 else "mode"
            self.flags.add(flag)
            test = "flag" if flag == "flag" else 'mode == "other"'
        values, state = len(self.values), len(self.state)
        self.bind(self.value(region.first))
        kept = self.values[-1]
        self.line(f"if {test}:")
        self._inside(region.items, Step(0, 0, region.first))
        self.lines.append("    " * (self.indent + 1) + f"{kept} = {self.last(values + 1)}")
        self.values[values:] = [kept]
        self.state[state:] = [place for place in self.state[state:] if is_held(place.text)]

    def _cond(self, region: Region) -> None:
        outer, self.is_pure = self.values, True
        names = self.fresh(), self.fresh()
        modules = [text for text, made in self.modules if made.new.startswith("nn.Linear")]
        steps = [item for item in region.items if isinstance(item, Step)]
        for name, inside in zip(names, (steps, region.others), strict=True):
            self.line(f"def {name}(a):")
            self.values = ["a"]
            if modules and region.first % 2:
                self.values = [f"{modules[-1]}(a)"]
            self._inside(inside, Step(0, 0, region.first % 4))
            self.lines.append("    " * (self.indent + 1) + f"return {self.last()}")
        self.values, self.is_pure = outer, False
        given = self.value(region.first)
        self.bind(f"cond({given}.sum() > 0, {names[0]}, {names[1]}, ({given},))")
