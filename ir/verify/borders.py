"""The rules about preserved calls: what one takes and gives are the leaves of its pytrees, and a callable answers all calls.

One idea: a border stands in a call whose signature is known, once for each direction, with one leaf for each place in the
pytree.  Which values the leaves are is for the rules about values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import Ref, refs_in
from ..borders import GIVES, TAKES, is_border
from ..callers import places_of_bodies, plain_calls, signatures_of_bodies
from ..node import Frame, Get, Node, Op
from ..paths import join
from ..program import CallSignature
from .kinds import short
from .rule import Finding
from .screen import Census
from .structure import MAP_TYPE
from .survey import Survey

__all__ = ["check_borders", "check_shared"]


NAMES = frozenset({TAKES.name, GIVES.name})


def check_borders(survey: Survey) -> Iterator[Finding]:
    """Find borders outside preserved calls, second ones, and those with more or fewer leaves than their pytree."""
    signatures: Any = survey.program.call_signatures
    if type(signatures) is not MAP_TYPE or NAMES.isdisjoint(op.name for op, _, _ in survey.ops.values()):
        return
    if _has_circle(survey):
        return  # "acyclic-calls" says so; there is no end to the calls
    try:
        bodies, places = signatures_of_bodies(survey.program), places_of_bodies(survey.program)
    except (AttributeError, KeyError, TypeError):
        return  # calls of graphs that are not there, or garbage: other rules say so
    for name, census in survey.censuses.items():
        yield from _uses(survey, census)
        yield from _beside(survey, census, bodies)
        seen: set[object] = set()
        for index, node in survey.nodes_of(census):
            if type(node.do) is Op and is_border(node):
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
    # A border says what crosses it, and gives nothing.
    borders = {node.name for _, node in survey.nodes_of(census) if type(node.do) is Op and is_border(node)}
    if not borders:
        return
    for index, node in survey.nodes_of(census):
        for used in borders.intersection(refs_in(node.args, node.kwargs)):
            yield Finding(
                f"it uses {used!r}, which says what a preserved call takes or gives, and is no value",
                census.name,
                index,
                node.name,
            )
    for used in borders.intersection(refs_in((census.graph.output,))):
        yield Finding(f"it gives back {used!r}, which is no value", census.name, len(census.graph.nodes), "output")


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
        text = f"it gives back {short(odd[0])}; what a body with a preserved call signature gives back are values"
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
