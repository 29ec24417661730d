"""Rules about calls: referenced graphs exist, are reachable, nest without cycles and get one operand for each input.

One walk over the instances of bodies serves all rules.  Boundaries inside a preserved call name each leaf of its pytrees once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from attrs import Factory, define
from torch.nn import Parameter

from ..arguments import Body, Items, Ref, children_of, refs_in
from ..callables import op_name
from ..calls.call_graph import instance_paths, instances, plain_calls, signatures_of_bodies
from ..calls.parts import is_part
from ..graph import Call, Frame, Get, Node, Op
from ..names import join, parent_of, way_to
from ..operators import BODIES
from ..own_operators import GIVES, PACK, TAKES, is_boundary
from ..persistent import derived, grouped
from ..program import CallSignature
from ..state import SlotKind
from ..tensors import disagreement, value_in
from ..torch_private import checks_inputs
from .findings import Check, Finding, short
from .index import GraphIndex, ProgramIndex


@define
class Instances:
    """The findings about reads and calls, by rule and the ``id`` of a node."""

    findings: dict[str, dict[int, Finding]] = Factory(lambda: defaultdict(dict))
    modules: dict[str, dict[str, bool]] = Factory(lambda: defaultdict(dict))
    """The reads of modules of the state, by graph, and whether the module may do more than check inputs."""


@derived
def instances_of(whole: ProgramIndex) -> Instances:
    """Follow the reads and calls from the root through every instance, once."""
    program, found = whole.program, Instances()
    modules = () if all(map(is_part, program.modules)) else program.types
    # Without state below them, all instances of a body are equivalent.
    paths = modules or {above for name in whole.slots for above in way_to(name)[:-1]}
    held = set(program.state.modules)
    bodies: dict[tuple[str, int], tuple[str, str]] = {}
    for name, path in instances(program, among={"", *paths}):
        scope = whole.graphs[name]
        _resolve(whole, scope, path, found)
        for index, node, do in scope.calls:
            inner = join(path, do.instance.path)
            faults: dict[str, str] = {}
            if modules and inner not in modules:
                faults["known-modules"] = ", which program.modules does not list"
            if held and (holder := held_by(held, inner)):
                faults["opaque-modules"] = f", inside the opaque module {holder!r}"
            body, caller = bodies.setdefault((inner, do.instance.call), (do.graph, name))
            if body != do.graph:
                faults["call-labels"] = (
                    f", with the body {do.graph!r}; the same call in {caller or 'the root'} has {body!r}"
                )
            for rule, fault in faults.items():
                text = f"it calls {do.instance}, which is the module {inner!r}{fault}"
                found.findings[rule].setdefault(id(node), scope.at(index, text))
    return found


def _resolve(whole: ProgramIndex, scope: GraphIndex, path: str, found: Instances) -> None:
    for index, node, do, usual in scope.gets:
        name = join(path, do.slot)
        slot = whole.slots.get(name)
        if slot is None:
            text = f"it reads {do.slot!r}, and the slot {name!r} does not exist in {path or 'the root'}"
            found.findings["reads"].setdefault(id(node), scope.at(index, text))
        elif slot.kind is SlotKind.MODULE:
            acting = found.modules[scope.name]
            acting[node.name] = acting.get(node.name, False) or not checks_inputs(slot.value)
        elif (
            usual is not None
            and type(slot.value) is Parameter
            and (slot.value.dtype, slot.value.shape) == usual
        ):
            continue  # most reads, and instances
        elif (difference := disagreement(value_in(node.meta), slot.value)) is not None:
            found.findings["state-geometry"].setdefault(
                id(node), scope.at(index, f"it reads {difference}")
            )


def of_instances(rule: str) -> Check:
    """Return the check of a rule about the instances of reads and calls."""
    return lambda whole: instances_of(whole).findings[rule].values()


def held_by(held: Collection[str], path: str) -> str:
    """Return the one of some modules that a path is at or below; an empty string if none is.

    >>> held_by({"a", "a.b"}, "a.b.weight"), held_by({"a"}, "b.weight")
    ('a.b', '')
    """
    while path and path not in held:
        path = parent_of(path)
    return path


def origins(whole: ProgramIndex, scope: GraphIndex, arg: Any) -> Iterator[Any]:
    """Yield the origins of the values in an argument, across calls of bodies.

    Origins are operators, inputs of the root, and literals; for packed values also their leaves.

    Args:
        whole: the program.
        scope: the graph of the argument.
        arg: an argument.
    """
    todo, seen = [(scope, arg)], set[tuple[str, str]]()
    while todo:
        scope, arg = todo.pop()
        if not refs_in((arg,)):
            yield arg
            continue
        if type(arg) is not Ref:
            todo.extend((scope, part) for part in children_of(arg))
            continue
        if (scope.name, arg.name) in seen:
            continue
        seen.add((scope.name, arg.name))
        node = scope.graph.by_name.get(arg.name)
        if node is None:
            names = scope.graph.input_names
            passed = _callers(whole).get(scope.name, [])
            todo.extend((caller, call.args[names.index(arg.name)]) for caller, call in passed)
            if not passed:
                yield scope.graph.inputs[names.index(arg.name)]
            continue
        source, item = node.projection or (arg.name, None)
        maker = scope.graph.by_name.get(source, node)
        if type(maker.do) is not Call:
            yield node
            if node.op_name == PACK.name:
                todo.extend((scope, leaf) for leaf in node.args[:1])
            continue
        body = whole.graphs[maker.do.graph]
        output: Any = body.graph.output
        if item is not None and isinstance(output, tuple) and -len(output) <= item < len(output):
            output = output[item]
        todo.append((body, output))


@derived
def _callers(whole: ProgramIndex) -> Mapping[str, list[tuple[GraphIndex, Node]]]:
    return grouped(
        [
            (do.graph, (scope, node))
            for scope in whole.graphs.values()
            for _, node, do in scope.calls
        ]
    )


def check_known_callees(whole: ProgramIndex) -> Iterator[Finding]:
    """Find calls and operator bodies whose graph does not exist."""
    for scope in whole.graphs.values():
        for index, callee in scope.callees:
            if callee not in whole.graphs:
                yield scope.at(
                    index, f"it names the graph {callee!r}, which is not in program.graphs"
                )


def check_reachable(whole: ProgramIndex) -> Iterator[Finding]:
    """Find graphs that nothing reaches from the root."""
    for name in sorted(whole.program.graphs.keys() - whole.graphs.keys()):
        yield Finding("no graph that the root reaches calls this graph", name)


def check_acyclic(whole: ProgramIndex) -> Iterator[Finding]:
    """Find a cycle of calls."""
    callees = {
        name: [callee for _, callee in scope.callees] for name, scope in whole.graphs.items()
    }
    try:
        TopologicalSorter(callees).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]  # each calls the next
        first, second = whole.graphs[circle[-2]], circle[-1]
        names = " -> ".join([name or "the root" for name in circle])
        index = next(index for index, callee in first.callees if callee == second)
        yield first.at(index, f"graphs call each other in a cycle: {names:.200}")


def check_arity(whole: ProgramIndex) -> Iterator[Finding]:
    """Find calls that do not pass exactly the inputs of their body, by position."""
    for scope in whole.graphs.values():
        for index, node, do in scope.calls:
            body = whole.graphs.get(do.graph)
            if body is not None and (len(node.args) != len(body.graph.inputs) or node.kwargs):
                passed = len(node.args) + len(node.kwargs)
                yield scope.at(
                    index,
                    f"it passes {passed} values; its body takes {len(body.graph.inputs)}, by position",
                )


def check_bodies(whole: ProgramIndex) -> Iterator[Finding]:
    """Find arguments in the place of a body that are no graphs, and bodies of operators that do not return values."""
    for scope in whole.graphs.values():
        for index, node in enumerate(scope.graph.nodes):
            if node.op_name.startswith(HIGHER):
                for fault in _body_faults(node, node.op_name):
                    yield scope.at(index, fault)
        for index, callee in scope.callees:
            output = whole.graphs[callee].graph.output
            if type(scope.graph.nodes[index].do) is Op and type(output) not in (tuple, Items, Ref):
                yield scope.at(index, f"its graph {callee!r} returns {short(output)}, not values")


HIGHER = "higher_order."

WITH_EFFECTS = "higher_order.with_effects"


def _body_faults(node: Node, target: str) -> Iterator[str]:
    named, first = dict(node.kwargs), 0
    if target == WITH_EFFECTS and len(node.args) > 1 and callable(node.args[1]):
        target, first = op_name(node.args[1]), 2  # it calls an operator with the rest
    for body in BODIES.get(target.removeprefix(HIGHER), ()):
        position = first + body.position
        is_named = position >= len(node.args)
        name = repr(body.parameter) if is_named else str(position)
        if is_named and body.parameter not in named:
            yield f"it has no argument {name}, which is a graph"
            continue
        arg = named[body.parameter] if is_named else node.args[position]
        if body.items is None:
            parts = [arg]
        elif isinstance(arg, tuple) and arg:
            parts = [*arg[body.items]]
        else:
            yield f"its argument {name} is {short(arg)}, not a list that contains graphs"
            continue
        for part in parts:
            # An operator in the place of a body is called as a body is.
            if type(part) is Ref or not (type(part) is Body or callable(part)):
                yield f"its argument {name} is {short(part)}, not a graph"


def check_boundaries(whole: ProgramIndex) -> Iterator[Finding]:
    """Find boundaries that are outside preserved calls, repeated, used as values, or differ from their pytree."""
    if whole.op_names.isdisjoint((TAKES.name, GIVES.name)):
        return
    program = whole.program
    bodies, places = signatures_of_bodies(program), instance_paths(program)
    for name, scope in whole.graphs.items():
        # Results are identified by the names of their values.
        results = scope.graph.results
        if (
            name in bodies
            and not scope.is_root
            and any(type(result) is not Ref for result in results)
        ):
            yield scope.at(
                len(scope.graph.nodes),
                "a body with a preserved call signature returns something else than values",
            )
        seen: set[object] = set()
        for index, node in enumerate(scope.graph.nodes):
            if is_boundary(node):
                inner = node.stack[-1] if node.stack else None
                frame = None if inner is None else Frame(join(places[name], inner.path), inner.call)
                signature = (
                    bodies.get(name) if frame is None else program.call_signatures.get(frame)
                )
                key = node.do, node.stack
                fault = _boundary_fault(node, signature, scope, second=key in seen)
                seen.add(key)
                if fault is not None:
                    yield scope.at(index, fault)


def _boundary_fault(
    node: Node, signature: CallSignature | None, scope: GraphIndex, *, second: bool
) -> str | None:
    where, stack = str(node.stack[-1]) if node.stack else "this body", node.stack
    takes = node.op_name == TAKES.name
    if signature is None:
        return f"it names the leaves of {where}, which program.call_signatures does not contain"
    if second:
        return f"it names the {'arguments' if takes else 'results'} of {where} for the second time"
    count = getattr(signature.in_spec if takes else signature.out_spec, "num_leaves", None)
    users = [
        *scope.graph.users.get(node.name, ()),
        *["the output"] * (node.name in scope.graph.output_refs()),
    ]
    if users:
        return f"it names the leaves of {where} and has no value, but {users[0]} uses it"
    if node.kwargs or count != len(node.args):
        return (
            f"it has {len(node.args) + len(node.kwargs)} leaves, the pytree of {where} has {count}"
        )
    for name in refs_in(node.args) if takes and not (scope.is_root and not stack) else ():
        maker = scope.graph.by_name.get(
            name
        )  # arguments exist before the call; reads are placed by sink_state
        if maker is not None and type(maker.do) is not Get and maker.stack[: len(stack)] == stack:
            return f"it names {name!r} as an argument, but a node inside the call makes it"
    return None


def check_shared(whole: ProgramIndex) -> Iterator[Finding]:
    """Find calls without a signature of modules whose other calls share a callable, which would mistake them for these."""
    program = whole.program
    paths = {frame.path for frame, signature in program.call_signatures.items() if signature.shared}
    for frame in sorted(program.call_signatures, key=str) if paths else ():
        if frame.path in paths and not program.call_signatures[frame].shared:
            text = f"{frame} does not share the callable of the other calls of {frame.path}"
            yield Finding(text, node="program.call_signatures")
    for frame, (name, index) in plain_calls(program, paths).items():
        text = f"{frame} has no signature, and other calls of {frame.path} share one callable"
        yield whole.graphs[name].at(index, text)
