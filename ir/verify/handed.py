"""The rule about what calls hand to bodies and get from them: operators there can take it, as where it is written out.

One idea: literals, and several results as one value, are followed through calls the way ``inline`` brings them, so that no
transformation makes of a valid program one that is not.  Graphs in which nothing but values comes and goes are not walked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field

from ..arguments import CONTAINERS, Arg, Ref, children_of, refs_in, replace_refs
from ..node import Call, Do, Node, Op
from ..signature import InputMutation, StateMutation
from ..torch_private import OpOverload, schema_of
from .calls import projection_fault
from .kinds import short
from .operands import fault_of
from .rule import Finding
from .screen import GETITEM, Census
from .signature import specs_of
from .survey import Survey

__all__ = ["check_handed"]

UNKNOWN = Ref("")
"""A value of which nothing is known: no value has this name."""

MOST_WALKS = 1000
"""How often, beyond once for each graph, bodies are walked for what they are handed; a program can ask for 2**n times."""


def check_handed(survey: Survey) -> Iterator[Finding]:
    """Find operators that cannot take what a call hands to their body, or gives back to them."""
    walks = _Walks(survey)
    for census in reversed(survey.censuses.values()):
        if walks.is_seeded(census):
            walks.walk(census)
        else:
            walks.results[census.name, ()] = _blurred(census.graph.output, walks.several(census))
    yield from walks.found.values()
    given: Any = walks.results.get((survey.root, ()))
    own: Any = survey.main.output if survey.main is not None else ()
    if type(given) is tuple:
        yield from _written(given, own, specs_of(survey.signature.outputs))


def _written(given: tuple[Arg, ...], own: tuple[Arg, ...], specs: Sequence[Any]) -> Iterator[Finding]:
    # Literals of the root itself are told by the rule "mutations".
    for number, (part, arg, spec) in enumerate(zip(given, own, specs, strict=False)):
        if type(spec) in (StateMutation, InputMutation) and type(part) is not Ref and type(arg) is Ref:
            text = f"the new contents {arg.name!r} are {short(part)}, which a call gives back, not a value"
            yield Finding(text, node=f"signature.outputs[{number}]")


@define
class _Level:
    """One walk through a graph: what is known of its values."""

    census: Census
    key: Any
    rest: Iterator[tuple[int, Node]]
    known: dict[str, Arg]
    call: str
    """Which call it is, for messages; empty where nothing was handed over."""
    whole: set[str] = field(factory=set)
    """Values that are several results of this graph's own nodes: of their direct uses the rule "results" speaks."""
    result: str = ""
    """The value that stands for what it gives back, in the level around it."""

    def learns(self, name: str, value: Arg) -> None:
        """Remember what a value is, where something is known of it."""
        if type(value) is not Ref:
            self.known[name] = value

    def gets(self, name: str, value: Arg) -> None:
        """Remember what a call or an operator gives."""
        self.learns(name, value)
        if type(value) is tuple:
            self.whole.add(name)


@define
class _Walks:
    survey: Survey
    results: dict[Any, Arg] = field(factory=dict)
    """What graphs give back, by name and by what they were handed."""
    found: dict[tuple[str, int], Finding] = field(factory=dict)

    def several(self, census: Census) -> dict[str, Arg]:
        """Return what a graph gives back that is several results of one operator."""
        if not any(_count(op) for op, _, _ in self.survey.ops.values()):
            return {}
        given = set(refs_in((census.graph.output,)))
        counts = {node.name: _count(node.do) for _, node in self.survey.nodes_of(census) if node.name in given}
        return {name: (UNKNOWN,) * count for name, count in counts.items() if count}

    def is_seeded(self, census: Census) -> bool:
        """Say whether anything but values of which nothing is known is handed over or comes back in a graph."""
        args = [arg for _, node in census.calls for arg in node.args]
        if any(type(arg) is not Ref and arg is not None for arg in args):
            return True
        if any(self._gives_more(node.do.graph) for _, node in census.calls if type(node.do) is Call):
            return True
        handed = {arg.name for arg in args if type(arg) is Ref}
        makers = [node for _, node in self.survey.nodes_of(census) if node.name in handed]
        return any(_count(node.do) or self._gives_several(node) for node in makers)

    def _gives_more(self, graph: str) -> bool:
        # More than one value, or several in one tuple.
        given = self.results.get((graph, ()), UNKNOWN)
        parts = given if type(given) is tuple else (given,)
        return any(type(part) is not Ref and part is not None for part in parts)

    def _gives_several(self, node: Node) -> bool:
        return type(node.do) is Call and type(self.results.get((node.do.graph, ()), UNKNOWN)) in CONTAINERS

    def walk(self, census: Census) -> None:
        """Walk a graph of whose inputs nothing is known, and the bodies that it hands something to."""
        levels = [self._level(census, (), {}, "")]
        while levels:
            level = levels[-1]
            index, node = next(level.rest, (0, None))
            if node is None:
                levels.pop()
                given = self.results[level.census.name, level.key] = _blurred(level.census.graph.output, level.known)
                if levels:
                    levels[-1].gets(level.result, given)
            elif type(node.do) is Call:
                inner = self._called(node, node.do, level, {entered.census.name for entered in levels})
                if inner is not None:
                    levels.append(inner)
            elif type(node.do) is Op:
                self._look(level, index, node, node.do)

    def _level(self, census: Census, key: Any, known: dict[str, Arg], call: str) -> _Level:
        return _Level(census, key, iter(self.survey.nodes_of(census)), known, call)

    def _called(self, node: Node, call: Call, level: _Level, entered: set[str]) -> _Level | None:
        census = self.survey.censuses.get(call.graph)
        if census is None or call.graph in entered or len(self.survey.inputs_of(census)) != len(node.args):
            return None  # other rules say so
        args = [_blurred(arg, level.known) for arg in node.args]
        known = {formal.name: arg for formal, arg in zip(census.graph.inputs, args, strict=True) if type(arg) is not Ref}
        key = tuple([(name, _key(arg)) for name, arg in known.items() if arg is not None])
        if (call.graph, key) in self.results:
            given = self.results[call.graph, key]
        elif len(self.results) > len(self.survey.censuses) + MOST_WALKS:
            given = UNKNOWN
        else:
            inner = self._level(census, key, known, str(call.instance))
            inner.result = node.name
            return inner
        level.gets(node.name, given)
        return None

    def _look(self, level: _Level, index: int, node: Node, op: Op) -> None:
        names = node.refs()
        if not level.known.keys().isdisjoint(names):
            direct = any(type(arg) is Ref and arg.name in level.whole for arg in (*node.args, *[arg for _, arg in node.kwargs]))
            used = node.using(level.known)
            if op.name == GETITEM and len(used.args) == 2:
                fault = None if direct else projection_fault(self.survey, used, {})
                if fault is None:
                    level.learns(node.name, _item(*used.args))
            else:
                fault = None if direct else fault_of(used, op.target)
            if fault is not None and (level.census.name, index) not in self.found and fault_of(node, op.target) is None:
                said = f"in the call {level.call}: {fault}" if level.call else fault
                self.found[level.census.name, index] = Finding(said, level.census.name, index, node.name)
        if count := _count(op):
            level.gets(node.name, (UNKNOWN,) * count)


def _count(do: Do) -> int:
    """Return how many results an operator of the dispatcher gives, where they are several; else 0."""
    target: Any = do.target if type(do) is Op else None
    count = len(schema_of(target).returns) if isinstance(target, OpOverload) else 0
    return count if count > 1 else 0


def _blurred(arg: Arg, known: dict[str, Arg]) -> Arg:
    """Return what is known of an argument; what it uses besides is ``UNKNOWN``."""
    return replace_refs(arg, {name: known.get(name, UNKNOWN) for name in refs_in((arg,))})


def _item(whole: Arg, item: Arg) -> Arg:
    if type(whole) is tuple and type(item) is int and -len(whole) <= item < len(whole):
        return whole[item]
    return UNKNOWN


def _key(arg: Arg) -> Any:
    # What operators ask of a literal: of what kind it is, and which item is taken.
    if type(arg) in CONTAINERS:
        return type(arg), *[_key(part) for part in children_of(arg)]
    return (int, arg) if type(arg) is int else type(arg)
