"""Rules about operators: their declared effects, and calls of opaque modules.

Declared effects are those of the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve, fields

from ..arguments import Ref, refs_in
from ..effects.declared import ANYTHING, Effects
from ..effects.registered import effects_of, is_foreign, lacking, registered_effects
from ..graph import Call, Node, Op
from ..names import way_to
from ..own_operators import CALL_GUARDS, CALLS, attribute_of, is_module_call
from ..signature import StateInput
from ..state import SlotKind
from ..torch_private import OpOverload
from .calls import instances_of
from .findings import Finding
from .signature import specs_of
from .survey import Census, Survey

__all__ = ["check_effects", "check_modules", "check_operator_names", "check_targets"]


def check_targets(survey: Survey) -> Iterator[Finding]:
    """Find operators without a target that bear the name of one that is registered: they look like it, and cannot run."""
    from ..text.operators import resolve  # here, because a text is read of programs that this folder checks

    for op, graph, index in survey.ops.values():
        # Toy programs thread tokens and take bodies by the names of torch's, and are evaluated without it.
        if op.target is None and type(op.name) is str and not op.effects.through_bodies and resolve(op.name) is not None:
            text = f"it is named {op.name!r}, which is registered, and has no target to run"
            yield Finding(text, graph, index, survey.graphs[graph].nodes[index].name)


def check_effects(survey: Survey) -> Iterator[Finding]:
    """Find operators whose effects are not those of their target; ``ordered`` may be added to them.

    Of an operator of another library, and of a function of which nothing is known, more may be said (``declare``), and nothing
    that contradicts its schema.
    """
    for op, graph, index in survey.ops.values():
        target: Any = op.target
        if target is None or not callable(target):
            continue
        real = effects_of(target)
        if op.effects is real or op.effects == real:
            continue
        # remove_effect_tokens writes the order that a token stood for on the operator.
        if op.effects.ordered and not real.ordered and evolve(op.effects, ordered=False) == real:
            continue
        known = registered_effects(target)
        unknown = evolve(known, through_bodies=False) == ANYTHING  # a higher-order one does what its bodies do all the same
        if unknown and op.effects.through_bodies >= known.through_bodies:
            continue
        if is_foreign(target) and not known.unknown and not lacking(op.effects, known):
            continue
        text = f"{op.name} is said to have {_difference(op.effects, real)}"
        yield Finding(text, graph, index, survey.graphs[graph].nodes[index].name)


def _difference(said: Effects, real: Effects) -> str:
    parts = [
        f"{field.name}={getattr(said, field.name)!r} (it has {getattr(real, field.name)!r})"
        for field in fields(Effects)
        if getattr(said, field.name) != getattr(real, field.name)
    ]
    return ", ".join(parts)


def check_operator_names(survey: Survey) -> Iterator[Finding]:
    """Find operators that do not bear the name of their target, and one name for two targets: names decide equality."""
    bearers: dict[str, Op] = {}
    for op, graph, index in survey.ops.values():
        target: Any = op.target
        if target is None:
            continue
        node = survey.graphs[graph].nodes[index].name
        if isinstance(target, OpOverload) and op.name != str(target):
            yield Finding(f"it is named {op.name!r} and runs {target}", graph, index, node)
        other = bearers.setdefault(op.name, op).target
        if other is not target and other != target:
            yield Finding(f"two different functions are named {op.name!r}", graph, index, node)


def check_modules(survey: Survey) -> Iterator[Finding]:
    """Find modules that are used as values, calls of what is not a module, and state or bodies at a module's path."""
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
                yield Finding("its first argument is not a read of a module", census.name, index, node.name)
            elif first.name not in modules:
                yield Finding(f"it calls {first.name}, which is not a module of the state", census.name, index, node.name)
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
            yield Finding(f"the module {name} is returned as a value", census.name, len(census.graph.nodes), None)


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
