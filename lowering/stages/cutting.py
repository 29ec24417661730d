"""``stage_program``: one part as a program of its own.

Inside a part all names are the original ones, so its body is a root without changes; new are the order of its inputs and
results, which is that of the boundary, and that results can be sent.  Paths that are counted from the old root lose the name of
the part that they lead to.
"""

from __future__ import annotations

from functools import partial

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.errors import UnsupportedProgram
from ...ir.expression import Apply, Expr, InputDim, InputValue, symbols_in
from ...ir.graph import Frame, Graph, Input, Node
from ...ir.importing.constraints import read_size
from ...ir.meta import EMPTY_META, Meta
from ...ir.names import FROM_ROOT, Names, is_below
from ...ir.operators import op_of
from ...ir.persistent import PMap, pmap
from ...ir.program import CallSignature, Module, Program
from ...ir.rewriter import Relocation
from ...ir.signature import ArgumentType, Constraints, ObjectType, Signature, TensorType, UserInput, UserOutput
from ...ir.state import State
from ...ir.torch_private import device_of, pytree
from .plan import StagePlan

__all__ = ["stage_program"]

CONTIGUOUS = op_of(torch.ops.aten.contiguous.default)
CLONE = op_of(torch.ops.aten.clone.default)


def stage_program(plan: StagePlan, number: int) -> Program:
    """Return the program of one stage: its own state, the values of a boundary in, those of the next boundary out.

    Args:
        plan: a split program that was found to be one of stages.
        number: of the part.
    """
    part = plan.chain.parts[number]
    graphs = _graphs(plan, part.graph)
    graphs[""] = _root(plan, number, graphs.pop(part.graph))
    signature, constraints = _contract(plan, number)
    return Program.of(
        graphs,
        state=_state(plan, number),
        signature=signature,
        modules=_modules(plan, part.path),
        call_signatures=_call_signatures(plan, part.path),
        constraints=constraints,
    )


def _root(plan: StagePlan, number: int, body: Graph) -> Graph:
    part = plan.chain.parts[number]
    names = body.names()
    formals: dict[str, Input] = {}
    known: dict[str, Arg] = {}
    for formal, actual in zip(body.inputs, part.node.args, strict=True):
        if type(actual) is not Ref:
            known[formal.name] = actual
        elif actual.name in plan.literals:
            known[formal.name] = plan.literals[actual.name]
        else:
            first = formals.setdefault(plan.chain.value(actual.name), formal)
            if first is not formal:
                known[formal.name] = Ref(first.name)
    boundary = plan.boundaries[number]
    inputs = [formals.get(name) or Input(names.fresh(name), plan.metas[name]) for name in boundary]
    nodes = [node.using(known) for node in body.nodes] if known else list(body.nodes)
    metas: dict[str, Meta] = {value.name: value.meta for value in (*inputs, *nodes)}
    results: list[Arg] = []
    for name in plan.boundaries[number + 1]:
        inner = replace_refs(part.outputs[plan.chain.makers[name][1]], known)
        sent = _sendable(plan, number, name, inner, names, metas)
        nodes += sent
        results.append(Ref(sent[-1].name) if sent else inner)
    return Graph(tuple(inputs), tuple(nodes), tuple(results))


def _sendable(plan: StagePlan, number: int, name: str, inner: Arg, names: Names, metas: dict[str, Meta]) -> list[Node]:
    # What is sent is contiguous (torch refuses to send anything else), and is not state that
    # the next microbatch writes while this one is on its way, or that the caller gets once for each.
    done = plan.node_effects[number]
    at = plan.chain.makers[name][1]
    slots = done.results[at].slots if done.results else done.aliases_slots
    written = {plan.program.state[slot].storage for slot in done.writes_slots}
    meta = metas.get(inner.name, EMPTY_META) if type(inner) is Ref else EMPTY_META
    if any(plan.program.state[slot].storage in written for slot in slots):
        return [Node(names.fresh("sent"), CLONE, (inner,), (("memory_format", torch.contiguous_format),), meta=meta)]
    if number + 1 < len(plan.chain.parts):
        return [Node(names.fresh("sent"), CONTIGUOUS, (inner,), meta=meta)]
    return []


def _graphs(plan: StagePlan, root: str) -> dict[str, Graph]:
    found: dict[str, Graph] = {}
    for name in plan.program.evolve(root=root).order:
        there = Relocation(partial(_from_root, plan, plain=name == root))
        found[name] = there.graph(plan.program.graphs[name])
    return found


def _from_root(plan: StagePlan, path: str, *, plain: bool) -> str:
    if not path.startswith(FROM_ROOT):
        return path
    return ("" if plain else FROM_ROOT) + plan.original(path[1:])


def _state(plan: StagePlan, number: int) -> State:
    # What it has itself comes before what another part has under the same original name.
    path, slots = plan.chain.parts[number].path, plan.program.state.slots
    names = {plan.original(name): slots[name] for name in plan.slots[number] if is_below(name, path)}
    names = {**{plan.original(name): slots[name] for name in plan.slots[number]}, **names}
    return State(tuple(names), pmap(names))


def _modules(plan: StagePlan, path: str) -> tuple[Module, ...]:
    below = [module for module in plan.program.modules if is_below(module.path, path)]
    return (Module(""), *[evolve(module, path=module.path[len(path) + 1 :]) for module in below]) if below else ()


def _call_signatures(plan: StagePlan, path: str) -> PMap[Frame, CallSignature]:
    found = plan.program.call_signatures
    return pmap({evolve(frame, path=frame.path[len(path) + 1 :]): found[frame] for frame in found if is_below(frame.path, path)})


def _contract(plan: StagePlan, number: int) -> tuple[Signature, Constraints]:
    program, names = plan.program, plan.boundaries[number]
    if number:
        specs = [UserInput(_type(plan.metas[name]), name) for name in names]
    else:
        by_name = {formal.name: spec for formal, spec in program.inputs}
        specs = [spec for name in names if type(spec := by_name[name]) is UserInput]
    results = len(plan.boundaries[number + 1])
    one = number + 1 == len(plan.chain.parts) and results == 1
    signature = Signature(
        tuple(specs),
        (UserOutput(),) * results,
        in_spec=pytree.tree_structure(((0,) * len(names), {})),
        out_spec=pytree.tree_structure(0) if one else None,
        arg_names=tuple([spec.argument or name for spec, name in zip(specs, names, strict=True)]),
    )
    return signature, _constraints(plan, number, specs)


def _type(meta: Meta) -> ArgumentType:
    value = meta.get("val")
    if not isinstance(value, torch.Tensor):
        return ObjectType("Tensor")
    try:
        return TensorType(value.dtype, tuple([read_size(size) for size in value.shape]), str(device_of(value)))
    except UnsupportedProgram:
        return ObjectType("Tensor")  # a size that we cannot write is one that we do not check


def _constraints(plan: StagePlan, number: int, specs: list[UserInput]) -> Constraints:
    # The guards refer to the user inputs by number, of which those that are baked in are no more.
    types = [spec.type for spec in specs]
    symbols = {name for kind in types if type(kind) is TensorType for size in kind.shape for name in symbols_in(size)}
    given = plan.program.constraints
    ranges = tuple([bounds for bounds in given.ranges if symbols.issuperset(symbols_in(bounds.expr))])
    if number:
        return Constraints(ranges)
    users = [formal.name for formal, spec in plan.program.inputs if type(spec) is UserInput]
    now = {old: plan.inputs.index(name) for old, name in enumerate(users) if name in plan.inputs}
    guards = [_renumbered(guard, now) for guard in given.guards]
    return Constraints(ranges, tuple([guard for guard in guards if guard is not None]))


def _renumbered(expr: Expr, now: dict[int, int]) -> Expr | None:
    match expr:
        case InputDim(index=index) | InputValue(index=index):
            return evolve(expr, index=now[index]) if index in now else None
        case Apply(op=op, args=args):
            parts = [_renumbered(arg, now) for arg in args]
            return None if any(part is None for part in parts) else Apply(op, tuple(parts))  # type: ignore[arg-type]
        case _:
            return expr
