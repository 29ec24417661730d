"""Rules about call boundaries: operands and results of calls, and the leaves of preserved signatures.

What an operator inside a body cannot take is a finding where the body is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from ..arguments import CONTAINERS, Arg, Ref, children_of, refs_in, replace_refs
from ..calls.call_graph import instance_paths, plain_calls, signatures_of_bodies
from ..graph import Call, Do, Frame, Get, Node, Op
from ..names import join
from ..own_operators import GIVES, TAKES, is_boundary
from ..program import CallSignature
from ..signature import InputMutation, StateMutation
from ..torch_private import OpOverload, schema_of
from .calls import projection_fault
from .findings import Finding, short
from .operands import fault_of
from .signature import specs_of
from .survey import GETITEM, Census, Survey
from .well_formed import MAP_TYPE

__all__ = ["check_boundaries", "check_handed", "check_shared"]

NAMES = frozenset({TAKES.name, GIVES.name})


def check_boundaries(survey: Survey) -> Iterator[Finding]:
    """Find boundaries outside preserved calls, second ones, and those with more or fewer leaves than their pytree."""
    signatures: Any = survey.program.call_signatures
    if type(signatures) is not MAP_TYPE or NAMES.isdisjoint(op.name for op, _, _ in survey.ops.values()):
        return
    if _has_circle(survey):
        return  # "acyclic-calls" says so; there is no end to the calls
    try:
        bodies, places = signatures_of_bodies(survey.program), instance_paths(survey.program)
    except (AttributeError, KeyError, TypeError):
        return  # calls of graphs that are not there, or garbage: other rules say so
    for name, census in survey.censuses.items():
        yield from _uses(survey, census)
        yield from _beside(survey, census, bodies)
        seen: set[object] = set()
        for index, node in survey.nodes_of(census):
            if type(node.do) is Op and is_boundary(node):
                inner = node.stack[-1] if node.stack else None
                frame = None if inner is None else Frame(join(places.get(name, ""), inner.path), inner.call, inner.part)
                signature = bodies.get(name) if frame is None else signatures.get(frame)
                key = (node.do.name, node.stack)
                fault = _fault(node, signature, second=key in seen) or _made_inside(node, census, survey, is_body=frame is None)
                seen.add(key)
                if fault is not None:
                    yield Finding(fault, name, index, node.name)


def check_shared(survey: Survey) -> Iterator[Finding]:
    """Find calls without a signature of modules whose calls share a callable: it would answer them as another call."""
    signatures: Any = survey.program.call_signatures
    if type(signatures) is not MAP_TYPE or not len(signatures) or _has_circle(survey):
        return
    try:
        paths = {frame.path for frame in signatures if signatures[frame].shared}
        apart = [frame for frame in signatures if frame.path in paths and not signatures[frame].shared]
        plain = plain_calls(survey.program, paths)
    except (AttributeError, KeyError, TypeError):
        return  # as above
    for frame in apart:
        yield Finding(f"{frame} shares no callable, and other calls of {frame.path} do", node="program.call_signatures")
    for frame, (name, index) in plain.items():
        node = survey.program.graphs[name].nodes[index]
        yield Finding(f"{frame} has no signature, and other calls of {frame.path} share one callable", name, index, node.name)


def _uses(survey: Survey, census: Census) -> Iterator[Finding]:
    # A boundary says what crosses it, and gives nothing.
    boundaries = {node.name for _, node in survey.nodes_of(census) if type(node.do) is Op and is_boundary(node)}
    if not boundaries:
        return
    for index, node in survey.nodes_of(census):
        for used in boundaries.intersection(refs_in(node.args, node.kwargs)):
            yield Finding(
                f"it uses {used!r}, which says what a preserved call takes or gives, and is not a value",
                census.name,
                index,
                node.name,
            )
    for used in boundaries.intersection(refs_in((census.graph.output,))):
        yield Finding(f"it returns {used!r}, which is not a value", census.name, len(census.graph.nodes), "output")


def _made_inside(node: Node, census: Census, survey: Survey, *, is_body: bool) -> str | None:
    # What a call takes is there before it; reads are placed by who sinks them.
    if type(node.do) is not Op or node.do.name != TAKES.name or (is_body and census.name == survey.root):
        return None
    names, stack = set(refs_in(node.args)), node.stack
    for _, maker in survey.nodes_of(census):
        if maker.name in names and type(maker.do) is not Get and maker.stack[: len(stack)] == stack:
            return f"it takes {maker.name!r}, which is made in that very call"
    return None


def _beside(survey: Survey, census: Census, bodies: Mapping[str, CallSignature]) -> Iterator[Finding]:
    # The leaf of the result that each value is has to be found by its name.
    output: Any = census.graph.output
    odd = [part for part in (output if type(output) is tuple else (output,)) if type(part) is not Ref]
    if odd and census.name in bodies and census.name != survey.root:
        text = f"it returns {short(odd[0])}; what a body with a preserved call signature returns are values"
        yield Finding(text, census.name, len(census.graph.nodes), "output")


def _has_circle(survey: Survey) -> bool:
    callees = {name: {callee for _, callee in census.callees} for name, census in survey.censuses.items()}
    waiting = dict.fromkeys(callees, 0)
    for inner in callees.values():
        for name in inner & waiting.keys():
            waiting[name] += 1
    ready = [name for name, count in waiting.items() if not count]
    left = len(waiting)
    while ready:
        left -= 1
        for name in callees[ready.pop()] & waiting.keys():
            waiting[name] -= 1
            if not waiting[name]:
                ready.append(name)
    return left > 0


def _fault(node: Node, signature: CallSignature | None, *, second: bool) -> str | None:
    where = str(node.stack[-1]) if node.stack else "this body"
    if signature is None:
        return f"it names what {where} takes or gives, and program.call_signatures does not have that call"
    if second:
        return f"{where} says for the second time what it {node.do.name.rpartition('.')[2] if type(node.do) is Op else ''}"
    spec = signature.in_spec if type(node.do) is Op and node.do.name == TAKES.name else signature.out_spec
    count = getattr(spec, "num_leaves", None)
    if node.kwargs or count != len(node.args):
        return f"it has {len(node.args) + len(node.kwargs)} leaves, the pytree of {where} has {count}"
    return None


UNKNOWN = Ref("")
"""A value of which nothing is known: no value has this name."""

MOST_WALKS = 1000
"""How often, beyond once for each graph, bodies are walked for what they are handed; a program can ask for 2**n times."""


def check_handed(survey: Survey) -> Iterator[Finding]:
    """Find operators that cannot take what a call hands to their body, or returns to them."""
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
            text = f"the new contents {arg.name!r} are {short(part)}, which a call returns, not a value"
            yield Finding(text, node=f"signature.outputs[{number}]")


@define
class _Level:
    """One walk through a graph: what is known of its values."""

    census: Census
    key: Any
    rest: Iterator[tuple[int, Node]]
    known: dict[str, Arg]
    call: str
    """Which call it is, for messages; empty if nothing was handed over."""
    whole: set[str] = field(factory=set)
    """Values that are several results of this graph's own nodes: of their direct uses the rule "results" speaks."""
    result: str = ""
    """The value that stands for what it returns, in the level around it."""

    def learns(self, name: str, value: Arg) -> None:
        """Remember what a value is, where something is known of it."""
        if type(value) is not Ref:
            self.known[name] = value

    def gets(self, name: str, value: Arg) -> None:
        """Remember what a call or an operator returns."""
        self.learns(name, value)
        if type(value) is tuple:
            self.whole.add(name)


@define
class _Walks:
    survey: Survey
    results: dict[Any, Arg] = field(factory=dict)
    """What graphs return, by name and by what they were handed."""
    found: dict[tuple[str, int], Finding] = field(factory=dict)

    def several(self, census: Census) -> dict[str, Arg]:
        """Return what a graph returns that is several results of one operator."""
        if not any(_count(op) for op, _, _ in self.survey.ops.values()):
            return {}
        given = set(refs_in((census.graph.output,)))
        counts = {node.name: _count(node.do) for _, node in self.survey.nodes_of(census) if node.name in given}
        return {name: (UNKNOWN,) * count for name, count in counts.items() if count}

    def is_seeded(self, census: Census) -> bool:
        """Return whether anything but values of which nothing is known is handed over or comes back in a graph."""
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
