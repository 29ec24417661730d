"""``BodyWriter``: a drawn body becomes the text of its class, regions and calls of other classes included.

Each new call writes the class of what it calls first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from attrs import evolve

from .library import Made, Place, Result, leaf
from .recipe import Again, Body, Call, Item, Region, Step
from .text import BodyText, is_held

__all__ = ["BodyWriter", "RegionText"]


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


HOLDERS = {
    2: ("nn.ModuleList([{0}, {0}, {0}])", "[0]"),
    3: ("nn.ModuleList([nn.Identity(), {0}])", "[1]"),
    4: ('nn.ModuleDict({{"a": {0}}})', '["a"]'),
    5: ("Holder({0})", ".inner"),
    7: ("nn.Sequential({0}, nn.Tanh())", "[0]"),
}
"""How a module is held, and what is written behind the name to reach it; by name alone where nothing is said."""

LIST, ELSEWHERE, SEQUENCE = 2, 6, 7

RESULTS: tuple[Result, ...] = ("value", "value", "value", "pair", "dict", "none", "buffer", "input")

TAKES = ((), (), ("y=None",), ("y",), ("y=0.5",))
"""What a body takes besides ``x``."""

HEADS = (None, None, "x if y is None else x + y", 'x + y["t"] * y["k"]', "x * y")

FLAGS = ((1, "flag", "flag=True"), (2, "mode", 'mode="other"'))
"""The bit of a drawn number, the flag, and how a call gives it."""


class BodyWriter(RegionText):
    """Writes the classes of a body and of all that it calls.

    >>> from .library import Library
    >>> library = Library(writes=True)
    >>> BodyWriter(library, "M1", None).write(Body((), (Call(0, 0, 0, 0, 8),), 0, 0)).new
    'M1()'
    >>> print(library.texts[-1])
    class M1(nn.Module):
        def __init__(self):
            super().__init__()
            self.m0 = nn.ReLU()
        def forward(self, x):
            v1 = self.m0(x)
            return v1
    """

    def write(self, body: Body) -> Made:
        """Write the class of a body that is not the root's."""
        for drawn in body.slots:
            self.slot(drawn)
        head = HEADS[body.extra]
        if head is not None:
            self.bind(head)
        self.items(body.items)
        result = self.give(RESULTS[body.result])
        flags = [text for flag, text in (("flag", "flag=False"), ("mode", 'mode="plain"')) if flag in self.flags]
        self.library.texts.append(self.text(f"def forward({', '.join(['self', 'x', *TAKES[body.extra], *flags])}):"))
        state = tuple(evolve(place, text=place.text.removeprefix("self.")) for place in self.state if is_held(place.text))
        modules = tuple((text.removeprefix("self."), made) for text, made in self.modules if is_held(text))
        made = Made(f"{self.name}()", body.extra, frozenset(self.flags), result, state, modules, self.is_wired)
        self.library.made.append(made)
        return made

    def items(self, items: Iterable[Item]) -> None:
        """Write steps, regions and calls; a branch of a ``cond`` has steps only."""
        for item in items:
            match item:
                case Step():
                    self.step(item)
                case Region():
                    self.region(item)
                case Call():
                    self._call(item)
                case Again():
                    self._again(item)
                case _:
                    assert_never(item)

    def _call(self, call: Call) -> None:
        if call.holder == ELSEWHERE and self._may_hold:
            self._call_elsewhere(call)
            return
        new, key = HOLDERS.get(call.holder, ("{0}", ""))
        name = f"self.m{len(self.init)}"
        line = len(self.init)
        self.init.append("")
        # The modules of a list are made by one line, so nothing is tied to one of them.
        is_one = self.where is not None and call.holder != LIST
        made = self._made(call, f"{self.where}.{name.removeprefix('self.')}{key}" if is_one else None)
        self.init[line] = f"{name} = {new.format(made.new)}"
        self._reach(name + key, made)
        if call.holder == SEQUENCE and made.is_simple:
            self.modules.append((name, leaf(8)))
            key = ""
        self._called(name + key, made, call.first, call.second, call.flag)
        if call.holder == LIST and made.is_simple:
            self.line(f"for module in {name}[1:]:")
            self.line(f"    {self.values[-1]} = module({self.values[-1]})")

    @property
    def _may_hold(self) -> bool:
        return self.where is not None and not self.library.has_two_names

    def _call_elsewhere(self, call: Call) -> None:
        # A child of the root, which only this module calls, through a list that no parent knows of.
        number = len(self.library.wiring)
        self.library.wiring.append("")
        self.library.has_held = True
        made = self._made(call, f"self.n{number}")
        self.library.wiring[number] = f"self.n{number} = {made.new}"
        self._called(self._hold(f"self.n{number}", made), made, call.first, call.second, call.flag)

    def _made(self, call: Call, where: str | None) -> Made:
        if isinstance(call.module, int):
            made = leaf(call.module)
        else:
            made = BodyWriter(self.library, self.library.name(), where).write(call.module)
        self.is_wired |= made.is_wired
        if where is not None:
            self.library.modules.append((where, made))
        return made

    def _hold(self, there: str, made: Made) -> str:
        at = f"held{len(self.library.wiring)}"
        self.library.wiring.append(f"{self.where}.{at} = [{there}]")
        self.is_wired = self.library.has_held = True
        self._reach(f"self.{at}[0]", made)
        return f"self.{at}[0]"

    def _reach(self, at: str, made: Made) -> None:
        self.state += [place.below(at) for place in made.state]
        self.modules += [(f"{at}.{text}", inner) for text, inner in made.modules]
        self.modules.append((at, made))

    def _again(self, again: Again) -> None:
        new = [made for made in self.library.made if not made.is_wired]
        others = [(text, made) for text, made in self.library.modules if not text.startswith(f"{self.where}.")]
        named = [(text, made) for text, made in self.modules if text.count(".") == 1 and "held" not in text]
        at, made = self.modules[-1 - again.module % len(self.modules)] if self.modules else ("", leaf(0))
        if again.kind == 2 and new:
            made = new[again.module % len(new)]
            at = self._attach(made.new, made)
        elif again.kind == 3 and others and self._may_hold:
            there, made = others[again.module % len(others)]
            at = self._hold(there, made)
        elif again.kind == 4 and named and not self.library.has_held:
            there, made = named[again.module % len(named)]
            at = self._attach(there, made)
            self.library.has_two_names = True
        if at:
            self._called(at, made, again.first, again.module, again.flag)

    def _attach(self, new: str, made: Made) -> str:
        at = f"self.m{len(self.init)}"
        self.init.append(f"{at} = {new}")
        self._reach(at, made)
        return at

    def _called(self, at: str, made: Made, first: int, second: int, flag: int) -> None:
        x, other = self.value(first), self.value(second)
        given = [f"({x}[:, 0] > 0).long()" if made.ids else x]
        y = {2: other, 3: f'{{"t": {other}, "none": None, "k": 2}}', 4: "2.0"}.get(made.takes)
        if y is not None and (made.takes == 3 or second % 3):
            given.append(f"y={y}" if flag & 4 else y)
        given += [text for bit, name, text in FLAGS if name in made.flags and flag & bit]
        self._received(f"{at}({', '.join(given)})", made.result)

    def _received(self, text: str, result: Result) -> None:
        match result:
            case "none":
                self.line(text)
            case "buffer":
                name = self.fresh()
                self.line(f"{name} = {text}")
                self.state.append(Place(name, "buffer"))
            case "pair":
                names = self.fresh(), self.fresh()
                self.line(f"{', '.join(names)} = {text}")
                self.values += names
            case "dict":
                self.bind(f'{text}["a"]')
            case "value" | "input":
                self.bind(text)
