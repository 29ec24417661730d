"""The rule about modules that a program holds as they are: they are called, and all that they hold is theirs.

One idea: nothing is known of such a module, so the only thing to do with it is to call it, and nothing of the program stands
at a path below it.  Which arguments it takes is its own business.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..arguments import Ref, refs_in
from ..node import Call, Node, Op
from ..opaque import CALL_GUARDS, CALLS, attribute_of, is_module_call
from ..paths import way_to
from ..signature import StateInput
from ..state import SlotKind
from .instances import instances_of
from .rule import Finding
from .screen import Census
from .signature import specs_of
from .survey import Survey

__all__ = ["check_modules"]


def check_modules(survey: Survey) -> Iterator[Finding]:
    """Find modules that are used as values, calls of what is no module, and state or bodies at a module's path."""
    held = {name for name, slot in survey.slots.items() if slot.kind is SlotKind.MODULE}
    called = any(op.name in CALLS for op, _, _ in survey.ops.values())
    if not (held or called):
        return
    yield from instances_of(survey).entered
    yield from _inside(survey, held)
    yield from _state_below(survey, held)
    for census in survey.censuses.values():
        yield from _misused(survey, census, _modules_in(survey, census))


def _inside(survey: Survey, held: set[str]) -> Iterator[Finding]:
    # In the root every path is counted from the root; whoever outlines would make a body at that path.
    root = survey.censuses.get(survey.root)
    for index, stack in root.stacks if root is not None else ():
        for frame in stack:
            above = next((path for path in way_to(frame.path) if path in held), None) if type(frame.path) is str else None
            if above is not None:
                text = f"it is inside {frame}, and {above!r} is a module that the program holds as it is"
                yield Finding(text, survey.root, index, survey.graphs[survey.root].nodes[index].name)
                break


def _modules_in(survey: Survey, census: Census) -> set[str]:
    # The values of a graph that are modules: reads, and state inputs of the root.
    found = set(instances_of(survey).modules.get(census.name, ()))
    if census.name == survey.root:
        pairs = zip(survey.inputs_of(census), specs_of(survey.signature.inputs), strict=False)
        for formal, spec in pairs:
            slot = survey.slots.get(spec.slot) if type(spec) is StateInput and type(spec.slot) is str else None
            if slot is not None and slot.kind is SlotKind.MODULE:
                found.add(formal.name)
    return found


def _misused(survey: Survey, census: Census, modules: set[str]) -> Iterator[Finding]:
    read_in = {read.name: read.stack for _, read in census.gets if read.name in modules}
    for index, node in survey.nodes_of(census):
        if is_module_call(node):
            first = node.args[0] if node.args else None
            if type(first) is not Ref:
                yield Finding("its first argument is no read of a module", census.name, index, node.name)
            elif first.name not in modules:
                yield Finding(f"it calls {first.name}, which is no module of the state", census.name, index, node.name)
            elif read_in.get(first.name, node.stack) != node.stack:
                # Whoever outlines cuts between the two, and a module is nothing that bodies take or give.
                text = f"it calls {first.name}, which is read in another module call"
                yield Finding(text, census.name, index, node.name)
            elif node.do == CALL_GUARDS and first.name in instances_of(survey).acting.get(census.name, ()):
                said = f"it takes {first.name} for what ep.module() checks its inputs with, and that is another module"
                yield Finding(f"{said}; call it with purefx.call_module", census.name, index, node.name)
        for name in _values_of(node):
            if name in modules:
                yield Finding(f"it uses the module {name} as a value", census.name, index, node.name)
    for name in refs_in((census.graph.output,)):
        if name in modules:
            yield Finding(f"the module {name} is given back as a value", census.name, len(census.graph.nodes), None)


def _values_of(node: Node) -> list[str]:
    if type(node.do) is Call or type(node.do) is Op:
        args = node.args[1:] if is_module_call(node) else node.args
        return refs_in(args, node.kwargs)
    return []


def _state_below(survey: Survey, held: set[str]) -> Iterator[Finding]:
    for name, slot in survey.ordered_slots:
        above = name.rpartition(".")[0]
        while above and above not in held:
            above = above.rpartition(".")[0]
        # A tensor of the module itself may be read from outside, as eager reads `self.embed.weight`.
        if above and attribute_of(survey.slots[above].value, name[len(above) + 1 :]) is not slot.value:
            text = f"it is below {above!r}, which is a module that the program holds as it is"
            yield Finding(text, node=f"state {name!r}")
