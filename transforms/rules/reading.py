"""Reads of state as rules see them: which read a value is a copy of, and whether a read gives what is current at its place.

What is read is not looked at here (``new_state.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.arguments import Arg, Ref
from ...ir.errors import RuleError
from ...ir.graph import Node, Op
from ...ir.program import Program
from ...ir.signature import StateMutation

__all__ = ["check_current", "copied_from"]

COPYING = frozenset([f"aten.{name}.default" for name in ("lift_fresh_copy", "lift_fresh", "detach_", "detach", "alias", "clone")])
"""Operators that the exporter puts behind a tensor that was made in the program, and others that keep its contents."""


def copied_from(
    arg: Arg, node_of: Callable[[str], Node | None], is_changed: Callable[[str], bool] | None
) -> tuple[Arg, dict[str, None]] | None:
    """Return what a value is a copy of, itself if it is none, and the nodes from there to it; None where something writes one.

    Args:
        arg: a use of a value.
        node_of: the node that computes a value; None for an input.
        is_changed: says whether something writes the memory of a value; None where it is not asked.

    >>> from ...ir.graph import Get
    >>> nodes = {"w": Node("w", Get("weight")), "y": Node("y", Op("aten.clone.default"), (Ref("w"),))}
    >>> copied_from(Ref("y"), nodes.get, None)
    (Ref(name='w'), {'y': None, 'w': None})
    """
    passed: dict[str, None] = {}
    while type(arg) is Ref:
        node = node_of(arg.name)
        if node is not None:
            passed[arg.name] = None
        if is_changed is not None and is_changed(arg.name):
            return None
        if node is None or type(node.do) is not Op or node.do.name not in COPYING:
            break
        arg = node.args[0]
    return arg, passed


def check_current(program: Program, slot: str) -> None:
    """Check that a read of state gives what it holds at the place of the read, wherever that is.

    Args:
        program: in which it is read.
        slot: from the root.

    Raises:
        RuleError: there is no such state; or the program gives its new contents back, and computes with versions of them.
    """
    state = program.state
    if slot not in state:
        raise RuleError(f"there is no state {slot!r} to read")
    outputs = program.signature.outputs
    given_back = {state[spec.slot].storage for spec in outputs if type(spec) is StateMutation and spec.slot in state}
    if state[slot].storage in given_back:
        raise RuleError(
            f"a read of {slot!r} would give what it held before the call: the program writes nothing in place, but computes new\n"
            "contents and gives them back, and which of its values is current at some place is not known. Apply the rule before\n"
            "run_decompositions, or make the value that is wanted a variable of the pattern; after px.inplace_mutations, or\n"
            "px.transform, a read gives what was written by then."
        )
