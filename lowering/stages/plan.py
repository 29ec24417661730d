"""``StagePlan``: what crosses between the parts of a split program, and which state each part has.

One idea: a list of values for each border, in the order in which the part before it gives them; everything else (what is
refused, the programs of the stages, what torch must allocate) is read off these lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from attrs import frozen

from ...ir.arguments import Arg, Ref
from ...ir.chain import Chain
from ...ir.effects.happenings import happenings
from ...ir.effects.resolved import Happening
from ...ir.meta import EMPTY_META, Meta
from ...ir.numbers import is_number, numbers_in
from ...ir.parts import original
from ...ir.paths import is_below
from ...ir.program import Program
from ...ir.signature import LiteralType, UserInput, UserOutput

__all__ = ["StagePlan"]


@frozen(slots=False)
class StagePlan:
    """A split program and its parts.

    Args:
        program: the program.
        chain: its parts.
    """

    program: Program
    chain: Chain

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What the first part is given: the user inputs that are not baked into the program, used or not."""
        pairs = zip(self.program.main.inputs, self.program.signature.inputs, strict=True)
        return tuple([formal.name for formal, spec in pairs if type(spec) is UserInput and type(spec.type) is not LiteralType])

    @cached_property
    def outputs(self) -> tuple[Arg, ...]:
        """What the caller gets, values and literals."""
        pairs = zip(self.program.main.output, self.program.signature.outputs, strict=True)
        return tuple([arg for arg, spec in pairs if type(spec) is UserOutput])

    @cached_property
    def borders(self) -> tuple[tuple[str, ...], ...]:
        """For each border the values that cross it: before the first part, between the parts, and behind the last."""
        found = [self.inputs]
        for number, part in enumerate(self.chain.parts[:-1]):
            after = self.chain.parts[number + 1].node
            used = {self.chain.value(name) for name in after.refs()}
            found.append(tuple(dict.fromkeys([name for name in part.given if name is not None and name in used])))
        given = [self.chain.value(arg.name) for arg in self.outputs if type(arg) is Ref]
        return (*found, tuple(given))

    @cached_property
    def literals(self) -> Mapping[str, Arg]:
        """The user inputs that are baked into the program, with their values."""
        pairs = zip(self.program.main.inputs, self.program.signature.inputs, strict=True)
        return {
            formal.name: spec.type.value for formal, spec in pairs if type(spec) is UserInput and type(spec.type) is LiteralType
        }

    @cached_property
    def metas(self) -> Mapping[str, Meta]:
        """What is known of each value of the root."""
        main = self.program.main
        found: dict[str, Meta] = {value.name: value.meta for value in (*main.inputs, *main.nodes)}
        for part in self.chain.parts:
            graph = self.program.graphs[part.graph]
            inner: dict[str, Meta] = {value.name: value.meta for value in (*graph.inputs, *graph.nodes)}
            for output, name in zip(part.outputs, part.given, strict=True):
                if name is not None and "val" not in found[name] and type(output) is Ref:
                    found[name] = inner.get(output.name, EMPTY_META)
        return found

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The values of the root that are no tensors."""
        known = {formal.name for formal in self.program.main.inputs if is_number(formal.meta)}
        for part in self.chain.parts:
            graph = self.program.graphs[part.graph]
            formals = zip(graph.inputs, part.node.args, strict=True)
            given = {formal.name for formal, arg in formals if type(arg) is not Ref or self.chain.value(arg.name) in known}
            inside = numbers_in(graph, given)
            results = zip(part.outputs, part.given, strict=True)
            known.update(name for output, name in results if name and (type(output) is not Ref or output.name in inside))
        return frozenset(known)

    @cached_property
    def happenings(self) -> tuple[Happening, ...]:
        """What each part does besides computing."""
        main = self.program.main
        done = dict(zip([node.name for node in main.nodes], happenings(self.program, main), strict=True))
        return tuple([done[part.node.name] for part in self.chain.parts])

    @cached_property
    def slots(self) -> tuple[tuple[str, ...], ...]:
        """For each part its state: what is below it, and what it reads or writes elsewhere, in the program's order."""
        found: list[tuple[str, ...]] = []
        for part, done in zip(self.chain.parts, self.happenings, strict=True):
            touched = {*done.reads_slots, *done.writes_slots, *done.aliases_slots}
            found.append(tuple([name for name in self.program.state if name in touched or is_below(name, part.path)]))
        return tuple(found)

    def original(self, path: str) -> str:
        """Return a path of the split program, counted from the root, as the original program had it."""
        return original(path, self.paths)

    @cached_property
    def paths(self) -> frozenset[str]:
        """The parts by name."""
        return frozenset([part.path for part in self.chain.parts])
