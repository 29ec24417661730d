"""What ``torch.distributed.pipelining`` can not run, found before anything is made.

One idea: a function for each thing that can be wrong, which yields one line for each place; the error shows all of them, with
what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...ir.arguments import Ref
from ...ir.errors import StageError
from ...ir.signature import NumberType, StateInput, StateMutation, TensorType, Token, UserInput, UserOutput
from ...ir.state import SlotKind
from .plan import StagePlan

__all__ = ["check_stages", "shared_cells"]

RELAY = "run relay_skips"
MOVE = "run move_non_tensor_nodes, then relay_skips"


def check_stages(plan: StagePlan, *, shared: str) -> None:
    """Raise when the parts can not be stages.

    Args:
        plan: the parts.
        shared: what shall be with parameters of several parts, ``"error"`` or ``"copy"``.

    Raises:
        StageError: with everything that is wrong.
    """
    found = [line for check in CHECKS for line in check(plan)]
    if shared == "error" and not found:
        found += _shared_parameters(plan)
    if found:
        raise StageError("the parts of this program can not be stages of torch.distributed.pipelining:", found)


def _no_parts(plan: StagePlan) -> Iterator[str]:
    if not plan.chain.parts:
        yield "there are no parts: begin with split_by_tags, split_by_module or split_balanced"


def _inputs(plan: StagePlan) -> Iterator[str]:
    for formal, spec in zip(plan.program.main.inputs, plan.program.signature.inputs, strict=True):
        match spec:
            case StateInput(slot=slot):
                yield f"{slot} is an input of the root: run sink_state before the program is split"
            case Token():
                yield f"{formal.name} is an effect token: run remove_effect_tokens before the program is split"
            case UserInput(type=TensorType()):
                pass
            case UserInput(type=NumberType(kind=kind)):
                name = spec.argument or formal.name
                yield f"the input {name} is a number ({kind}), and stages take tensors: export it as a constant or a tensor"
            case _:
                if formal.name not in plan.literals:
                    yield f"the input {spec.argument or formal.name} is no tensor, and stages take tensors"


def _outputs(plan: StagePlan) -> Iterator[str]:
    for arg, spec in zip(plan.program.main.output, plan.program.signature.outputs, strict=True):
        match spec:
            case UserOutput():
                if type(arg) is Ref and arg.name in plan.numbers:
                    yield f"the program gives back {arg.name}, a number, and the last stage can give tensors only"
            case StateMutation(slot=slot):
                yield f"the new contents of {slot} are a result: run inplace_mutations before the program is split"
            case _:
                yield f"{getattr(arg, 'name', arg)} is a result of the kind {type(spec).__name__}, and stages give user outputs"


def _skips(plan: StagePlan) -> Iterator[str]:
    made = dict.fromkeys(plan.inputs, -1)
    made.update({name: number for name, (number, _) in plan.chain.makers.items()})
    for number, part in enumerate(plan.chain.parts):
        for name in dict.fromkeys(part.node.refs()):
            if name not in plan.literals and made.get(name) != number - 1:
                yield f"{part.path} takes {name} from {_maker(plan, made.get(name))}, which is not the part before it: {RELAY}"
    last = len(plan.chain.parts) - 1
    for name in plan.borders[-1]:
        if made.get(name) != last:
            yield f"the result {name} is made by {_maker(plan, made.get(name))}, which is not the last part: {RELAY}"


def _maker(plan: StagePlan, number: int | None) -> str:
    return "the caller" if number is None or number < 0 else plan.chain.parts[number].path


def _numbers(plan: StagePlan) -> Iterator[str]:
    for part, names in zip(plan.chain.parts, plan.borders[1:-1], strict=False):
        for name in names:
            if name in plan.numbers:
                yield f"{part.path} gives {name}, which is a number, and only tensors can be sent: {MOVE}"


def _writes(plan: StagePlan) -> Iterator[str]:
    for part, done in zip(plan.chain.parts, plan.happenings, strict=True):
        for name in done.writes:
            yield (
                f"{part.path} writes into {name}, which it is given: nobody else would see that; put the write into the part "
                "that makes the value, or export without it"
            )
        if done.scope != (0, 0):
            yield f"{part.path} leaves a region (a gradient mode, an autocast) open for the next part: cut around the region"


def _written_state(plan: StagePlan) -> Iterator[str]:
    # Memory that one part writes is of no other.
    users = _users(plan, by_storage=True)
    for part, done in zip(plan.chain.parts, plan.happenings, strict=True):
        for slot in dict.fromkeys(done.writes_slots):
            others = [name for name in users[plan.program.state[slot].storage] if name != part.path]
            if others:
                yield (
                    f"{part.path} writes {plan.original(slot)}, which {', '.join(others)} has too, and the two would drift "
                    "apart: put all that uses it into one part"
                )


def _views(plan: StagePlan) -> Iterator[str]:
    # Parameters that share memory and are not one tensor can not be kept equal by summing gradients.
    cells: dict[int, dict[int, str]] = {}
    for name, slot in plan.program.state.pairs:
        cells.setdefault(slot.storage, {}).setdefault(slot.cell, name)
    users = _users(plan, by_storage=True)
    for storage, names in cells.items():
        kinds = {plan.program.state[name].kind for name in names.values()}
        if len(names) > 1 and SlotKind.PARAMETER in kinds and len(users.get(storage, ())) > 1:
            listed = ", ".join(map(plan.original, names.values()))
            yield f"{listed} share memory and are in {', '.join(users[storage])}: put all that uses them into one part"


def _users(plan: StagePlan, *, by_storage: bool) -> Mapping[int, list[str]]:
    found: dict[int, dict[str, None]] = {}
    for part, names in zip(plan.chain.parts, plan.slots, strict=True):
        for name in names:
            slot = plan.program.state[name]
            found.setdefault(slot.storage if by_storage else slot.cell, {})[part.path] = None
    return {key: list(paths) for key, paths in found.items()}


def shared_cells(plan: StagePlan) -> Mapping[int, list[str]]:
    """Return the parameters that several parts have: for each cell the parts."""
    kinds = {slot.cell for _, slot in plan.program.state.pairs if slot.kind is SlotKind.PARAMETER}
    users = _users(plan, by_storage=False)
    return {cell: paths for cell, paths in users.items() if len(paths) > 1 and cell in kinds}


def _shared_parameters(plan: StagePlan) -> Iterator[str]:
    for cell, paths in shared_cells(plan).items():
        names = dict.fromkeys(plan.original(name) for name in plan.program.state.by_cell[cell])
        yield (
            f"the parameter {' = '.join(names)} is used by {', '.join(paths)}: put all that uses it into one part, or give "
            'shared="copy" and call sum_tied_gradients after every step, or the copies are trained apart'
        )


CHECKS: tuple[Callable[[StagePlan], Iterator[str]], ...] = (
    _no_parts, _inputs, _outputs, _numbers, _skips, _writes, _written_state, _views,
)  # fmt: skip
