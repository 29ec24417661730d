"""Rules about the contract of a program: constraints that can be computed, facts that hold, gradients of a joint program.

Every size, guard and range is over inputs that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import Ref
from ..expression import ARITIES, DEEPEST, LARGEST, OPERATORS, UNCOMPUTABLE, Apply, InputDim, InputValue, Sym, evaluate
from ..graph import Call, Input, Node
from ..signature import (
    InputGradient,
    InputMutation,
    LossOutput,
    NumberType,
    Range,
    StateGradient,
    StateInput,
    StateMutation,
    TensorType,
    Token,
    UserInput,
)
from ..state import SlotKind
from ..tensors import disagreement, value_in
from .findings import Finding, short
from .signature import specs_of
from .survey import Survey

__all__ = ["check_constraints", "check_facts", "check_gradients", "check_known_facts"]


def check_constraints(survey: Survey) -> Iterator[Finding]:
    """Find ranges, guards and sizes over inputs, sizes or operators that do not exist, or that have no value."""
    users = [spec for spec in specs_of(survey.signature.inputs) if type(spec) is UserInput]
    for number, span in enumerate(specs_of(survey.constraints.ranges)):
        place = f"constraints.ranges[{number}]"
        if type(span) is not Range or type(span.low) not in (int, type(None)) or type(span.high) not in (int, type(None)):
            yield Finding(f"it is {short(span)}, not a Range of integers", node=place)
            continue
        if span.low is not None and span.high is not None and span.low > span.high:
            yield Finding(f"nothing is in the range from {_number(span.low)} to {_number(span.high)}", node=place)
        ends = [end for end in (span.low, span.high) if end is not None and not -LARGEST <= end <= LARGEST]
        yield from (Finding(f"it ends at an integer of {end.bit_length()} bits, and sizes have 64", node=place) for end in ends)
        yield from (Finding(fault, node=place) for fault in _all_faults(span.expr, users))
    for number, guard in enumerate(specs_of(survey.constraints.guards)):
        place = f"constraints.guards[{number}]"
        yield from (Finding(fault, node=place) for fault in _all_faults(guard, users, over=InputDim))
    for number, user in enumerate(users):
        place = f"user input {number}"
        yield from (Finding(fault, node=place) for size in _sizes(user.type) for fault in _size_faults(size, users))
    for what in ("ranges", "guards"):
        if type(getattr(survey.constraints, what)) is not tuple:
            yield Finding(f"it is {short(getattr(survey.constraints, what))}, not a tuple", node=f"constraints.{what}")


def _number(number: object) -> str:
    # Python refuses to write integers of very many digits.
    if type(number) is int and not -LARGEST <= number <= LARGEST:
        return f"of {number.bit_length()} bits"
    return repr(number) if type(number) is int else short(number)


def _sizes(kind: Any) -> tuple[Any, ...]:
    if type(kind) is TensorType:
        return kind.shape if type(kind.shape) is tuple else ()
    return (kind.expr,) if type(kind) is NumberType and kind.expr is not None else ()


def _size_faults(size: Any, users: list[UserInput]) -> Iterator[str]:
    if type(size) is int and not 0 <= size < LARGEST:
        yield f"it has the size {_number(size)}, and sizes are whole numbers of 64 bits"
    elif type(size) is Apply:
        yield from _all_faults(size, users)


def _all_faults(expr: Any, users: list[UserInput], *, over: type = object) -> Iterator[str]:
    if type(expr) is not Apply:
        yield from _faults(expr, users, over=over)
        return
    found = list(_faults(expr, users, over=over))
    yield from found or _values(expr)


def _faults(expr: Any, users: list[UserInput], *, over: type = object) -> Iterator[str]:
    todo: list[tuple[Any, int]] = [(expr, 0)]
    deepest = 0
    while todo:
        part, depth = todo.pop()
        deepest = max(deepest, depth)
        match part:
            case bool() | Sym(name=str()):
                if type(part) is Sym and over is InputDim:
                    yield f"it refers to the symbol {part.name[:80]!r}; a guard refers to sizes of user inputs"
            case int() | float():
                if type(part) is int and not -LARGEST <= part <= LARGEST:
                    yield f"it holds an integer of {part.bit_length()} bits, and sizes have 64"
            case Apply(op=str() as op, args=tuple() as args) if op in OPERATORS:
                low, high = ARITIES[op]
                if not low <= len(args) <= high:
                    yield f"it hands {len(args)} operands to {op!r}, which takes {low if low == high else f'at least {low}'}"
                todo.extend((arg, depth + 1) for arg in reversed(args))
            case InputDim(index=int() as index) | InputValue(index=int() as index):
                if not 0 <= index < len(users):
                    yield f"it refers to user input {_number(index)}, and there are {len(users)}"
                elif type(part) is InputDim:
                    yield from _dim_faults(part, users[index])
                elif type(users[index].type) is TensorType:
                    yield f"it takes {users[index].argument or f'user input {index}'} for a number, which is a tensor"
            case _:
                yield f"it holds {short(part)}, which is not an expression"
    if deepest > DEEPEST:
        yield f"it nests {deepest} levels deep, and {DEEPEST} are read"


def _values(expr: Any) -> Iterator[str]:
    """Find parts that say the same for all inputs and have no value: a division by zero, a power that is too large."""
    done: dict[int, bool] = {}
    todo = [(expr, False)]
    while todo:
        part, closing = todo.pop()
        if type(part) is not Apply:
            done[id(part)] = isinstance(part, int | float)
        elif not closing:
            todo += [(part, True), *[(arg, False) for arg in part.args]]
        else:
            done[id(part)] = all(done[id(arg)] for arg in part.args)
            divisor = part.args[-1] if part.op in DIVISIONS else None
            try:
                if divisor is not None and done[id(divisor)] and evaluate(divisor, {}) == 0:
                    yield f"it divides by zero: {part.op!r}"
                elif done[id(part)]:
                    evaluate(part, {})
            except UNCOMPUTABLE as error:
                yield f"a part of it has no value: {error}"
                done[id(part)] = False


DIVISIONS = frozenset({"/", "//", "%", "ceildiv"})


def _dim_faults(part: InputDim, user: UserInput) -> Iterator[str]:
    if type(user.type) is not TensorType:
        yield f"it refers to a size of {user.argument or f'user input {part.index}'}, which is not a tensor"
    elif type(part.dim) is not int or not 0 <= part.dim < len(user.type.shape):
        yield f"it refers to dimension {_number(part.dim)} of {user.argument or part.index}, which has {len(user.type.shape)}"
    elif part.of not in ("size", "stride"):
        yield f"it refers to {short(part.of)} of {user.argument or part.index}, which is neither size nor stride"


THREADING = "higher_order.with_effects"


def check_known_facts(survey: Survey) -> Iterator[Finding]:
    """Find facts that are not words: a user's transformation may establish any, but it must be text."""
    facts: Any = survey.program.facts
    for fact in sorted(facts, key=repr) if type(facts) is frozenset else ():
        if type(fact) is not str or not fact:
            yield Finding(f"{short(fact)} is not a fact: facts are words", node="facts")


def check_facts(survey: Survey) -> Iterator[Finding]:
    """Find facts that are claimed and do not hold."""
    facts: Any = survey.program.facts
    if type(facts) is not frozenset:
        return
    if "flat" in facts:
        yield from _calls(survey)
    if "state as inputs" in facts:
        yield from _reads(survey)
    if "outlined" in facts:
        yield from _stacks(survey)
    if "state sunk" in facts:
        yield from _specs(survey, "inputs", (StateInput,), "state sunk")
    if "mutations in place" in facts:
        yield from _specs(survey, "outputs", (StateMutation, InputMutation), "mutations in place")
    if "token free" in facts:
        yield from _specs(survey, "inputs", (Token,), "token free")
        yield from _specs(survey, "outputs", (Token,), "token free")
        yield from _threads(survey)


def _specs(survey: Survey, what: str, kinds: tuple[type, ...], fact: str) -> Iterator[Finding]:
    for number, spec in enumerate(specs_of(getattr(survey.signature, what))):
        if type(spec) in kinds:
            text = f"the program is said to be {fact!r}, but this is a {type(spec).__name__}"
            yield Finding(text, node=f"signature.{what}[{number}]", cause=fact)


def _calls(survey: Survey) -> Iterator[Finding]:
    for census in survey.censuses.values():
        for index, node in census.calls:
            yield Finding("the program is said to be 'flat', but this is a call", census.name, index, node.name, "flat")


def _reads(survey: Survey) -> Iterator[Finding]:
    census = survey.censuses.get(survey.root)
    for index, node in census.gets if census is not None else ():
        text = "the program is said to have its 'state as inputs', but this reads state"
        yield Finding(text, survey.root, index, node.name, "state as inputs")


def _stacks(survey: Survey) -> Iterator[Finding]:
    # Bodies of operators are not outlined: their nodes keep the stacks that the exporter gave them.
    outlined = {survey.root}
    for census in survey.censuses.values():
        outlined.update(node.do.graph for _, node in census.calls if type(node.do) is Call)
        if census.name not in outlined:
            continue
        for index, stack in census.stacks:
            text = f"the program is said to be 'outlined', but this is still inside {stack[-1]}"
            yield Finding(text, census.name, index, census.graph.nodes[index].name, "outlined")


def _threads(survey: Survey) -> Iterator[Finding]:
    for op, graph, index in survey.ops.values():
        if op.name == THREADING:
            node = survey.graphs[graph].nodes[index].name
            yield Finding("the program is said to be 'token free', but this threads a token", graph, index, node, "token free")


def check_gradients(survey: Survey) -> Iterator[Finding]:
    """Find gradients of nothing, second gradients, gradients of another shape, and gradients without one loss."""
    outputs = specs_of(survey.signature.outputs)
    losses = sum(type(spec) is LossOutput for spec in outputs)
    gradients = [(number, spec) for number, spec in enumerate(outputs) if type(spec) in (StateGradient, InputGradient)]
    if losses > 1 or (gradients and not losses):
        yield Finding(f"there are {len(gradients)} gradients and {losses} losses", node="signature.outputs")
    done: set[Any] = set()
    for number, spec in gradients:
        where = f"signature.outputs[{number}]"
        known, value, what = _wanted(survey, spec)
        if not known:
            yield Finding(f"it is the gradient to {what}, and there is none", node=where)
        elif what in done:
            yield Finding(f"it is the second gradient to {what}", node=where)
        else:
            done.add(what)
            difference = disagreement(_given(survey, number), value)
            if difference is not None:
                yield Finding(f"the gradient is {difference.replace('the slot', what)}", node=where)


def _wanted(survey: Survey, spec: Any) -> tuple[bool, Any, str]:
    # Whether what the gradient is for exists, a tensor of its shape, and how to call it.
    if type(spec) is StateGradient:
        slot = survey.slots.get(spec.slot) if type(spec.slot) is str else None
        known = slot is not None and slot.kind is SlotKind.PARAMETER
        return known, slot.value if slot is not None else None, f"the parameter {spec.slot!r}"
    root = survey.main
    formals: Any = root.inputs if root is not None and type(root.inputs) is tuple else ()
    specs = specs_of(survey.signature.inputs)
    users = [number for number, kind in enumerate(specs) if type(kind) is UserInput]
    if type(spec.leaf) is not int or not 0 <= spec.leaf < len(users):
        return False, None, f"the leaf {spec.leaf!r} of the arguments"
    number = users[spec.leaf]
    formal = formals[number] if number < len(formals) else None
    value = value_in(formal.meta) if type(formal) is Input else None
    return True, value, f"the argument {specs[number].argument!r}"


def _given(survey: Survey, number: int) -> Any:
    root = survey.main
    if root is None or type(root.output) is not tuple or number >= len(root.output) or type(root.nodes) is not tuple:
        return None
    arg = root.output[number]
    for part in (*root.nodes, *(root.inputs if type(root.inputs) is tuple else ())):
        if type(arg) is Ref and type(part) in (Node, Input) and part.name == arg.name and isinstance(part.meta, Mapping):
            return value_in(part.meta)
    return None
