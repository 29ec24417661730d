"""Rules about constraints: ranges, guards and sizes of inputs are over what exists, and can be computed.

One idea: expressions are trees of data and are walked with a list, so that nothing that stands there can exhaust the
stack.  Only parts without inputs and symbols are computed, when all else is in order, and under a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..expression import ARITIES, DEEPEST, LARGEST, OPERATORS, UNCOMPUTABLE, Apply, InputDim, InputValue, Sym, evaluate
from ..signature import NumberType, Range, TensorType, UserInput
from .kinds import short
from .rule import Finding
from .signature import specs_of
from .survey import Survey

__all__ = ["check_constraints"]


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
                    yield f"it speaks of the symbol {part.name[:80]!r}; a guard speaks of sizes of user inputs"
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
                    yield f"it speaks of user input {_number(index)}, and there are {len(users)}"
                elif type(part) is InputDim:
                    yield from _dim_faults(part, users[index])
                elif type(users[index].type) is TensorType:
                    yield f"it takes {users[index].argument or f'user input {index}'} for a number, which is a tensor"
            case _:
                yield f"it holds {short(part)}, which is no expression"
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
        yield f"it speaks of a size of {user.argument or f'user input {part.index}'}, which is no tensor"
    elif type(part.dim) is not int or not 0 <= part.dim < len(user.type.shape):
        yield f"it speaks of dimension {_number(part.dim)} of {user.argument or part.index}, which has {len(user.type.shape)}"
    elif part.of not in ("size", "stride"):
        yield f"it speaks of {short(part.of)} of {user.argument or part.index}, which is neither size nor stride"
