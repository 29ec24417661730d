"""``executable``: a root with only user inputs and user outputs; state is read, and new contents are written in place."""

from __future__ import annotations

from ..ir.program import Program
from ..ir.signature import GIVEN, UserInput
from ..transforms import inplace_mutations, remove_effect_tokens, sink_state

__all__ = ["executable"]


def executable(program: Program) -> Program:
    """Return a program whose root has only user inputs and user outputs.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> executable(program) is program
    True
    """
    signature = program.signature
    if all(type(spec) is UserInput for spec in signature.inputs) and all(type(spec) in GIVEN for spec in signature.outputs):
        return program
    for step in (remove_effect_tokens, inplace_mutations, sink_state):
        program = step.apply(program)  # a tree too: only their laws need a flat program
    return program
