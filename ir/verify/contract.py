"""Rules about the contract of a program: constraints that can be computed, and facts that hold.

Every size, guard and range is over inputs that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..expression import ARITIES, DEEPEST, LARGEST, OPERATORS, UNCOMPUTABLE, Apply, InputDim, InputValue, Sym, evaluate
from ..signature import InputMutation, NumberType, Range, StateInput, StateMutation, TensorType, Token, UserInput
from .findings import Finding, short
from .survey import Survey


def check_constraints(survey: Survey) -> Iterator[Finding]:
    """Find ranges, guards and sizes over inputs, sizes or operators that do not exist, or that have no value."""
    users = [spec for spec in survey.program.signature.inputs if type(spec) is UserInput]
    for what, faults in (("ranges", _range_faults), ("guards", _guard_faults)):
        for number, part in enumerate(getattr(survey.program.constraints, what)):
            yield from [Finding(fault, node=f"constraints.{what}[{number}]") for fault in faults(part, users)]
    for number, user in enumerate(users):
        for size in _sizes(user.type):
            yield from [Finding(fault, node=f"user input {number}") for fault in _size_faults(size, users)]


def _range_faults(span: Range, users: list[UserInput]) -> Iterator[str]:
    if span.low is not None and span.high is not None and span.low > span.high:
        yield f"nothing is in the range from {_number(span.low)} to {_number(span.high)}"
    for end in (span.low, span.high):
        if end is not None and not -LARGEST <= end <= LARGEST:
            yield f"it ends at an integer of {end.bit_length()} bits, and sizes have 64"
    yield from _all_faults(span.expr, users)


def _guard_faults(guard: Any, users: list[UserInput]) -> Iterator[str]:
    yield from _all_faults(guard, users, over=InputDim)


def _number(number: object) -> str:
    # Python refuses to write integers of very many digits.
    if type(number) is int and not -LARGEST <= number <= LARGEST:
        return f"of {number.bit_length()} bits"
    return repr(number) if type(number) is int else short(number)


def _sizes(kind: Any) -> tuple[Any, ...]:
    if type(kind) is TensorType:
        return kind.shape
    return (kind.expr,) if type(kind) is NumberType and kind.expr is not None else ()


def _size_faults(size: Any, users: list[UserInput]) -> Iterator[str]:
    if type(size) is int and not 0 <= size < LARGEST:
        yield f"it has the size {_number(size)}, and sizes are whole numbers of 64 bits"
    elif type(size) not in (int, Sym, Apply):
        yield f"it has the size {short(size)}, and sizes are whole numbers"
    else:
        yield from _all_faults(size, users, over=Sym)


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
                if over is Sym:
                    yield f"it refers to user input {_number(index)}; a size is of symbols"
                elif not 0 <= index < len(users):
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


def check_facts(survey: Survey) -> Iterator[Finding]:
    """Find facts that are claimed and do not hold."""
    facts = survey.program.facts
    if "flat" in facts:
        for census in survey.censuses.values():
            for index, _, _ in census.calls:
                yield census.at(index, "the program is said to be 'flat', but this is a call", "flat")
    if "state as inputs" in facts:
        for index, _, _ in survey.main.gets:
            text = "the program is said to have its 'state as inputs', but this reads state"
            yield survey.main.at(index, text, "state as inputs")
    if "state sunk" in facts:
        yield from _specs(survey, "inputs", (StateInput,), "state sunk")
    if "mutations in place" in facts:
        yield from _specs(survey, "outputs", (StateMutation, InputMutation), "mutations in place")
    if "token free" in facts:
        yield from _specs(survey, "inputs", (Token,), "token free")
        yield from _specs(survey, "outputs", (Token,), "token free")
        for op, census, index in survey.ops.values():
            if op.name == THREADING:
                text = "the program is said to be 'token free', but this threads a token"
                yield census.at(index, text, "token free")


def _specs(survey: Survey, what: str, kinds: tuple[type, ...], fact: str) -> Iterator[Finding]:
    for number, spec in enumerate(getattr(survey.program.signature, what)):
        if type(spec) in kinds:
            text = f"the program is said to be {fact!r}, but this is a {type(spec).__name__}"
            yield Finding(text, node=f"signature.{what}[{number}]", cause=fact)
