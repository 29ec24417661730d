"""Rules about constraints: ranges and guards speak of user inputs and sizes that exist.

One idea: expressions are trees of data and are walked with a list, so that nothing that stands there can exhaust the
stack.  They are not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..expression import OPERATORS, Apply, InputDim, InputValue, Sym
from ..signature import Range, TensorType, UserInput
from .kinds import short
from .rule import Finding
from .signature import specs_of

if TYPE_CHECKING:
    from .survey import Survey

__all__ = ["check_constraints"]


def check_constraints(survey: Survey) -> Iterator[Finding]:
    """Find ranges and guards over inputs, sizes or operators that do not exist."""
    users = [spec for spec in specs_of(survey.signature.inputs) if type(spec) is UserInput]
    for number, span in enumerate(specs_of(survey.constraints.ranges)):
        place = f"constraints.ranges[{number}]"
        if type(span) is not Range or type(span.low) not in (int, type(None)) or type(span.high) not in (int, type(None)):
            yield Finding(f"it is {short(span)}, not a Range of integers", node=place)
            continue
        if span.low is not None and span.high is not None and span.low > span.high:
            yield Finding(f"nothing is in the range from {span.low} to {span.high}", node=place)
        yield from (Finding(fault, node=place) for fault in _faults(span.expr, users))
    for number, guard in enumerate(specs_of(survey.constraints.guards)):
        yield from (Finding(fault, node=f"constraints.guards[{number}]") for fault in _faults(guard, users))
    for what in ("ranges", "guards"):
        if type(getattr(survey.constraints, what)) is not tuple:
            yield Finding(f"it is {short(getattr(survey.constraints, what))}, not a tuple", node=f"constraints.{what}")


def _faults(expr: Any, users: list[UserInput]) -> Iterator[str]:
    todo = [expr]
    while todo:
        part = todo.pop()
        match part:
            case bool() | int() | float() | Sym(name=str()):
                continue
            case Apply(op=str() as op, args=tuple() as args) if op in OPERATORS:
                todo.extend(reversed(args))
            case InputDim(index=int() as index) | InputValue(index=int() as index):
                if not 0 <= index < len(users):
                    yield f"it speaks of user input {index}, and there are {len(users)}"
                elif type(part) is InputDim:
                    yield from _dim_faults(part, users[index])
            case _:
                yield f"it holds {short(part)}, which is no expression"


def _dim_faults(part: InputDim, user: UserInput) -> Iterator[str]:
    if type(user.type) is not TensorType:
        yield f"it speaks of a size of {user.argument or f'user input {part.index}'}, which is no tensor"
    elif type(part.dim) is not int or not 0 <= part.dim < len(user.type.shape):
        yield f"it speaks of dimension {part.dim!r} of {user.argument or part.index}, which has {len(user.type.shape)}"
