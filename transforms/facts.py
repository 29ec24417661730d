"""The facts that transformations require and establish: which of them can be looked up, and what to do where one does not hold.

What a program claims of itself is in ``Program.facts``; here it is not believed.
"""

from __future__ import annotations

from collections import defaultdict

from ..ir.graph import Call, Get
from ..ir.program import Program
from ..ir.signature import InputMutation, StateInput, StateMutation, Token

__all__ = ["ADVICE", "observed"]

ADVICE = defaultdict(
    lambda: "run what establishes that first",
    {
        "flat": "run it before outline, or after inline",
        "state as inputs": "run it before sink_state, or after lift_state",
        "state sunk": "run sink_state, or transform, first",
        "token free": "run remove_effect_tokens, or transform, first",
        "split": "run split_by_tags first",
    },
)


def observed(program: Program) -> frozenset[str]:
    """Return the facts that can be looked up, whatever the program claims.

    >>> from purefx.ir import Graph, Program
    >>> sorted(observed(Program.of({"": Graph((), (), ())})))
    ['flat', 'mutations in place', 'state as inputs', 'state sunk', 'token free']
    """
    signature = program.signature
    present = {type(node.do) for node in program.main.nodes}
    present |= {type(spec) for spec in (*signature.inputs, *signature.outputs)}
    if signature.lifted:
        present.add(Get)  # state that was sunk and is read nowhere, or in bodies only, is not an input all the same
    return frozenset(fact for fact, kinds in ABSENT.items() if present.isdisjoint(kinds))


ABSENT: dict[str, tuple[type, ...]] = {
    "flat": (Call,),
    "state as inputs": (Get,),
    "state sunk": (StateInput,),
    "mutations in place": (StateMutation, InputMutation),
    "token free": (Token,),
}
"""What a program does not have when a fact holds."""
