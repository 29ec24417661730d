"""Rule about the gradients of a joint forward and backward program: of what they are, and that there is a loss.

One idea: a gradient is for one parameter or one leaf of the arguments, and has its shape; all are of one loss.  Whether the
numbers are right is a question for the laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import Ref
from ..graph import Input
from ..node import Node
from ..signature import InputGradient, LossOutput, StateGradient, UserInput
from ..state import SlotKind
from .rule import Finding
from .signature import specs_of
from .survey import Survey
from .tensors import disagreement, value_in

__all__ = ["check_gradients"]


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
