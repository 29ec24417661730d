"""``made_constants``: which buffers are constants that a tracer made buffers of.

One idea: ``make_fx`` and ``symbolic_trace`` register a tensor that no module has as a buffer ``_tensor_constant0``, and then
``state_dict`` has it; one of such a name that nothing writes is a constant.  Whose name it is, is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.effects.happenings import happenings
from ...ir.effects.summaries import summary
from ...ir.program import Program
from ...ir.signature import StateInput, StateMutation
from ...ir.state import SlotKind

__all__ = ["is_made", "made_constants"]

MADE = "_tensor_constant"
"""How tracers of torch call a tensor that no module has; a number follows."""


def made_constants(program: Program, names: Iterable[str]) -> frozenset[str]:
    """Return those of some slots that are constants which a tracer made buffers of.

    Args:
        program: any valid program.
        names: slots of it.

    >>> from purefx.ir import Graph
    >>> made_constants(Program.of({"": Graph((), ())}), ())
    frozenset()
    """
    state = program.state
    found = {name for name in names if state[name].kind is SlotKind.BUFFER and is_made(name)}
    if not found:
        return frozenset()
    does = summary(program.main, happenings(program, program.main))
    pairs = zip(program.main.inputs, program.signature.inputs, strict=True)
    inputs = {formal.name: spec.slot for formal, spec in pairs if type(spec) is StateInput}
    written = [*does.writes_slots, *(inputs[name] for name in does.writes if name in inputs)]
    written += [spec.slot for spec in program.signature.outputs if type(spec) is StateMutation]
    memory = {state[slot].storage for slot in written}
    return frozenset(name for name in found if state[name].storage not in memory)


def is_made(name: str) -> bool:
    """Say whether a tracer calls a tensor so that no module has.

    >>> is_made("_tensor_constant0"), is_made("a._tensor_constant12"), is_made("_tensor_constant")
    (True, True, False)
    """
    word = name.rpartition(".")[2]
    return word.startswith(MADE) and word[len(MADE) :].isdecimal()
