"""``StagePlan``: boundary values between the parts of a split program, their shapes, and the state of each part.

Programs that ``torch.distributed.pipelining`` cannot run are refused first.  ``stage_program`` makes a program of one part:
parts use the original names, so the body of a part becomes a root; inputs and results are reordered like the boundary, and
results are made sendable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from attrs import evolve, frozen

from ...ir.analysis.numbers import is_number, numbers_in
from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.calls.parts import Chain, original
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import node_effects
from ...ir.errors import StageError, UnsupportedProgram
from ...ir.expression import symbols_in
from ...ir.forks import cached_property
from ...ir.graph import Graph, Input, Node
from ...ir.importing.constraints import tensor_type
from ...ir.meta import EMPTY_META, Meta
from ...ir.names import FROM_ROOT, Names, is_below
from ...ir.operators import CLONE, op_of
from ...ir.persistent import pmap
from ...ir.program import Module, Program
from ...ir.rewriter import Relocation
from ...ir.signature import (
    ArgumentType,
    Constraints,
    LiteralType,
    NumberType,
    ObjectType,
    Signature,
    StateInput,
    StateMutation,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from ...ir.state import SlotKind, State
from ...ir.torch_private import FakeTensorMode, pytree
from ...transforms.modes.modes import KEPT, Modes
from ..lower import lower_unchecked


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
        """The inputs of the first part: all user inputs that are not baked into the program."""
        return tuple([name for name, kind in self.users.items() if type(kind) is not LiteralType])

    @cached_property
    def users(self) -> Mapping[str, ArgumentType]:
        """The types of the user inputs, by name."""
        return {formal.name: spec.type for formal, spec in self.program.user_inputs}

    @cached_property
    def outputs(self) -> tuple[Arg, ...]:
        """The results of the program, values and literals."""
        return tuple([arg for arg, spec in self.program.outputs if type(spec) is UserOutput])

    @cached_property
    def boundaries(self) -> tuple[tuple[str, ...], ...]:
        """The values that cross each boundary: before the first part, between the parts, and after the last."""
        found = [self.inputs]
        for number, part in enumerate(self.chain.parts[:-1]):
            used = {self.chain.value(name) for name in self.chain.parts[number + 1].node.refs()}
            found.append(
                tuple(
                    dict.fromkeys(
                        [name for name in part.given if name is not None and name in used]
                    )
                )
            )
        return (
            *found,
            tuple([self.chain.value(arg.name) for arg in self.outputs if type(arg) is Ref]),
        )

    @cached_property
    def literals(self) -> Mapping[str, Arg]:
        """The user inputs that are baked into the program, with their values."""
        return {name: kind.value for name, kind in self.users.items() if type(kind) is LiteralType}

    @cached_property
    def unclosed(self) -> frozenset[str]:
        """The graphs that leave a region open if their caller has gradients enabled."""
        modes = Modes(self.program, grad=True)
        return frozenset(
            [
                name
                for name, grad in modes.exits.items()
                if grad not in (KEPT, True) or modes.levels[name] != (0, 0)
            ]
        )

    @cached_property
    def metas(self) -> Mapping[str, Meta]:
        """The meta of each value of the root; without a fake value, the meta of the value inside the part."""
        found = dict(self.program.main.metas)
        for part in self.chain.parts:
            inner = self.program.graphs[part.graph].metas
            for output, name in zip(part.outputs, part.given, strict=True):
                if name is not None and "val" not in found[name] and type(output) is Ref:
                    found[name] = inner[output.name]
        return found

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The values of the root that are not tensors."""
        known = {formal.name for formal in self.program.main.inputs if is_number(formal.meta)}
        for part in self.chain.parts:
            graph = self.program.graphs[part.graph]
            formals = zip(graph.inputs, part.node.args, strict=True)
            numbers = {
                formal.name
                for formal, arg in formals
                if type(arg) is not Ref or self.chain.value(arg.name) in known
            }
            inside = numbers_in(graph, numbers)
            results = zip(part.outputs, part.given, strict=True)
            known.update(
                name
                for output, name in results
                if name and (type(output) is not Ref or output.name in inside)
            )
        return frozenset(known)

    @cached_property
    def node_effects(self) -> tuple[NodeEffects, ...]:
        """The effects of each part."""
        main = self.program.main
        effects = dict(
            zip([node.name for node in main.nodes], node_effects(self.program, main), strict=True)
        )
        return tuple([effects[part.node.name] for part in self.chain.parts])

    @cached_property
    def slots(self) -> tuple[tuple[str, ...], ...]:
        """The state of each part, below it or used by it, in the program's order."""
        found: list[tuple[str, ...]] = []
        for part, effects in zip(self.chain.parts, self.node_effects, strict=True):
            touched = {*effects.reads_slots, *effects.writes_slots, *effects.aliases_slots}
            found.append(
                tuple(
                    [
                        name
                        for name in self.program.state
                        if name in touched or is_below(name, part.path)
                    ]
                )
            )
        return tuple(found)

    def original(self, path: str) -> str:
        """Return the path in the original program of a path in the split program."""
        return original(path, self.paths)

    @cached_property
    def paths(self) -> frozenset[str]:
        """The parts by name."""
        return frozenset([part.path for part in self.chain.parts])


def boundaries(
    programs: Sequence[Program], names: Sequence[str], example: Sequence[torch.Tensor] | None
) -> list[list[torch.Tensor]]:
    """Return the boundary tensors on the meta device: into the first stage, between the stages, out of the last.

    Args:
        programs: the programs of the stages.
        names: the names of the stages.
        example: one microbatch; None if all sizes are known.

    Raises:
        StageError: sizes are dynamic without an example, or depend on data.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.enable_grad():
        values = list(_first(programs[0], example))
        found = [[_like(value) for value in values]]
        for program, name in zip(programs, names, strict=True):
            stage = lower_unchecked(_fake(program, mode), "graph_module")
            try:
                results = stage(*values)
            except Exception as error:
                raise StageError(
                    f"the sizes of the results of {name} are unknown before it runs: {error}"
                ) from error
            values = [results] if isinstance(results, torch.Tensor) else list(results)
            found.append([_like(value) for value in values])
            values = [
                value.detach().requires_grad_(value.requires_grad) for value in values
            ]  # the next stage gets leaves
    return found


def _first(program: Program, example: Sequence[torch.Tensor] | None) -> Iterator[torch.Tensor]:
    # The inputs of the first stage, on the device of the program, independent of the stages.
    specs = list(program.signature.users.values())
    if example is not None and len(example) != len(specs):
        raise StageError(
            f"example= has {len(example)} tensors, but the first stage takes {len(specs)}"
        )
    for spec, value in zip(
        specs, example if example is not None else [None] * len(specs), strict=True
    ):
        assert type(spec.type) is TensorType, "check_stages raises otherwise"
        sizes = [
            size
            for size in (spec.type.shape if value is None else value.shape)
            if isinstance(size, int)
        ]
        if len(sizes) < len(spec.type.shape):
            raise StageError(
                f"the sizes of {spec.argument} are dynamic, but the stages of a pipeline need fixed ones: pass example=, the "
                "arguments of the first stage for one microbatch"
            )
        needs = value is not None and value.requires_grad
        yield torch.empty(
            sizes, dtype=spec.type.dtype, device=spec.type.device, requires_grad=needs
        )


def _fake(program: Program, mode: FakeTensorMode) -> Program:
    # One fake tensor for each cell, so ties stay ties.
    state = program.state
    values = {slot.cell: slot.value for _, slot in state.pairs}
    fakes = {
        cell: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        for cell, value in values.items()
    }
    slots = {name: evolve(slot, value=fakes[slot.cell]) for name, slot in state.pairs}
    return program.evolve(state=evolve(state, slots=pmap(slots)))


def _like(value: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return made.requires_grad_(value.requires_grad)


RELAY = "run relay_skips"
MOVE = "run move_non_tensor_nodes, then relay_skips"


def check_stages(plan: StagePlan, *, shared: str) -> None:
    """Raise when the parts cannot be stages.

    Args:
        plan: the parts.
        shared: how to treat parameters of several parts, ``"error"`` or ``"copy"``.

    Raises:
        StageError: the parts cannot be stages; lists all reasons.
    """
    found = [line for check in CHECKS for line in check(plan)]
    if shared == "error" and not found:
        found += _shared_parameters(plan)
    if found:
        raise StageError(
            "the parts of this program cannot be stages of torch.distributed.pipelining:", found
        )


def _inputs(plan: StagePlan) -> Iterator[str]:
    if not plan.chain.parts:
        yield "there are no parts: split the program with split_by_tags, split_by_module or split_balanced"
    for formal, spec in plan.program.inputs:
        match spec:
            case StateInput(slot=slot):
                yield f"{slot} is an input of the root: run sink_state before the program is split"
            case Token():
                yield f"{formal.name} is an effect token: run remove_effect_tokens before the program is split"
            case UserInput(type=TensorType() | LiteralType()):
                pass
            case UserInput(type=kind):
                kind_text = (
                    f"a number ({kind.kind})" if type(kind) is NumberType else "not a tensor"
                )
                name = spec.argument or formal.name
                yield f"the input {name} is {kind_text}, but stages take tensors: export it as a constant or a tensor"


def _outputs(plan: StagePlan) -> Iterator[str]:
    for arg, spec in plan.program.outputs:
        match spec:
            case UserOutput():
                if type(arg) is Ref and arg.name in plan.numbers:
                    yield f"the program returns {arg.name}, a number, but the last stage can return only tensors"
            case StateMutation(slot=slot):
                yield f"the new contents of {slot} are a result: run inplace_mutations before the program is split"
            case _:
                yield f"{getattr(arg, 'name', arg)} is a result of kind {type(spec).__name__}; stages return only user outputs"


def _skips(plan: StagePlan) -> Iterator[str]:
    made = {name: number for name, (number, _) in plan.chain.makers.items()}
    paths = [*[part.path for part in plan.chain.parts], "the caller"]  # the last is number -1
    for number, part in enumerate(plan.chain.parts):
        for name in dict.fromkeys(part.node.refs()):
            maker = made.get(name, -1)
            if name not in plan.literals and maker != number - 1:
                yield f"{part.path} takes {name} from {paths[maker]}, which is not the part before it: {RELAY}"
    for name in plan.boundaries[-1]:
        if (maker := made.get(name, -1)) != len(plan.chain.parts) - 1:
            yield f"the result {name} is made by {paths[maker]}, which is not the last part: {RELAY}"


def _numbers(plan: StagePlan) -> Iterator[str]:
    for part, names in zip(plan.chain.parts, plan.boundaries[1:-1], strict=False):
        for name in names:
            if name in plan.numbers:
                yield f"{part.path} returns {name}, a number, but only tensors can be sent: {MOVE}"


def _writes(plan: StagePlan) -> Iterator[str]:
    for part, effects in zip(plan.chain.parts, plan.node_effects, strict=True):
        for name in effects.writes:
            yield (
                f"{part.path} writes into its input {name}, which other parts would not see: put the write into the "
                "part that makes the value, or export without it"
            )
        # In effects every gradient marker opens a region, also the one that closes it.
        if effects.scope != (0, 0) and part.graph in plan.unclosed:
            yield f"{part.path} leaves a region (a gradient mode, an autocast) open for the next part: cut around the region"


def _written_state(plan: StagePlan) -> Iterator[str]:
    # No other part may use memory that one part writes.
    users = _users(plan, by_storage=True)
    for part, effects in zip(plan.chain.parts, plan.node_effects, strict=True):
        for slot in dict.fromkeys(effects.writes_slots):
            others = [name for name in users[plan.program.state[slot].storage] if name != part.path]
            if others:
                yield (
                    f"{part.path} writes {plan.original(slot)}, which {', '.join(others)} also uses, so the copies would "
                    "diverge: put all its users into one part"
                )


def _users(plan: StagePlan, *, by_storage: bool) -> Mapping[int, list[str]]:
    found: dict[int, dict[str, None]] = {}
    for part, names in zip(plan.chain.parts, plan.slots, strict=True):
        for name in names:
            slot = plan.program.state[name]
            found.setdefault(slot.storage if by_storage else slot.cell, {})[part.path] = None
    return {key: list(paths) for key, paths in found.items()}


def shared_cells(plan: StagePlan) -> Mapping[int, list[str]]:
    """Return the parameters that several parts use: the parts by cell."""
    kinds = {slot.cell for _, slot in plan.program.state.pairs if slot.kind is SlotKind.PARAMETER}
    users = _users(plan, by_storage=False)
    return {cell: paths for cell, paths in users.items() if len(paths) > 1 and cell in kinds}


def _shared_parameters(plan: StagePlan) -> Iterator[str]:
    for cell, paths in shared_cells(plan).items():
        names = dict.fromkeys(plan.original(name) for name in plan.program.state.by_cell[cell])
        yield (
            f"the parameter {' = '.join(names)} is used by {', '.join(paths)}: put all its users into one part, or pass "
            'shared="copy" and call sum_tied_gradients after every step, so that the copies stay equal'
        )


CHECKS: tuple[Callable[[StagePlan], Iterator[str]], ...] = (
    _inputs, _outputs, _numbers, _skips, _writes, _written_state,
)  # fmt: skip


CONTIGUOUS = op_of(torch.ops.aten.contiguous.default)


def stage_program(plan: StagePlan, number: int) -> Program:
    """Return the program of one stage, from one boundary to the next, with its own state.

    Args:
        plan: a split program that passed ``check_stages``.
        number: the number of the part.
    """
    path, graphs, program = (
        plan.chain.parts[number].path,
        _graphs(plan, plan.chain.parts[number].graph),
        plan.program,
    )
    graphs[""] = _root(plan, number, graphs.pop(plan.chain.parts[number].graph))
    signature, constraints = _contract(plan, number)
    listed = [module for module in program.modules if is_below(module.path, path)]
    modules = [evolve(module, path=module.path[len(path) + 1 :]) for module in listed]
    preserved = {
        frame: found
        for frame, found in program.call_signatures.items()
        if is_below(frame.path, path)
    }
    return Program.of(
        graphs,
        state=_state(plan, number),
        signature=signature,
        modules=(Module(""), *modules) if modules else (),
        call_signatures=pmap(
            {
                evolve(frame, path=frame.path[len(path) + 1 :]): preserved[frame]
                for frame in preserved
            }
        ),
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


def _sendable(
    plan: StagePlan, number: int, name: str, inner: Arg, names: Names, metas: dict[str, Meta]
) -> list[Node]:
    # Sent values must be contiguous (a requirement of torch), and must not be state that the next
    # microbatch writes during the transfer, or that the caller gets once per microbatch.
    effects = plan.node_effects[number]
    at = plan.chain.makers[name][1]
    slots = effects.results[at].slots if effects.results else effects.aliases_slots
    written = {plan.program.state[slot].storage for slot in effects.writes_slots}
    meta = metas.get(inner.name, EMPTY_META) if type(inner) is Ref else EMPTY_META
    if any(plan.program.state[slot].storage in written for slot in slots):
        return [
            Node(
                names.fresh("sent"),
                CLONE,
                (inner,),
                (("memory_format", torch.contiguous_format),),
                meta=meta,
            )
        ]
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
    # State below the part takes precedence over state of another part with the same original name.
    path, slots = plan.chain.parts[number].path, plan.program.state.slots
    names = {plan.original(name): slots[name] for name in plan.slots[number]}
    names |= {
        plan.original(name): slots[name] for name in plan.slots[number] if is_below(name, path)
    }
    return State.of(names)


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
    symbols = {
        name
        for spec in specs
        if type(spec.type) is TensorType
        for size in spec.type.shape
        for name in symbols_in(size)
    }
    ranges = tuple(
        [
            bounds
            for bounds in program.constraints.ranges
            if symbols.issuperset(symbols_in(bounds.expr))
        ]
    )
    # Guards refer to user inputs by number, so they apply to the first stage if it accepts all of them.
    return signature, Constraints(
        ranges, () if number or plan.literals else program.constraints.guards
    )


def _type(meta: Meta) -> ArgumentType:
    value = meta.get("val")
    if not isinstance(value, torch.Tensor):
        return ObjectType("Tensor")
    try:
        return tensor_type(value)
    except UnsupportedProgram:
        return ObjectType("Tensor")  # an inexpressible size is not checked
