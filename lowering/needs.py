"""What a program asks of the module at a path: calls and reads that come from outside of it.

One idea: a call or a read leads into every module on its way that does not hold the caller; whatever stands there instead has to
answer it.  One walk over the calls finds them all, when a child of a lowered module is first assigned.  What may stand there is
asked in ``swaps.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from attrs import define, field, frozen

from ..ir.graph import Graph
from ..ir.node import Call, Frame, Get, Node, Op
from ..ir.opaque import is_module_call, read_modules
from ..ir.paths import FROM_ROOT, is_below, join
from ..ir.program import Program

__all__ = ["Asked", "Needs", "needs_by_path"]


@frozen(eq=False)
class Asked:
    """A call, or a read of a piece of state."""

    path: str
    """What is called, or read, from the root."""
    caller: str
    """The module whose body does it."""
    graph: str
    """That body."""
    node: Node


@define
class Needs:
    """What is asked of one module, and of those below it, from outside."""

    calls: list[Asked] = field(factory=list)
    held: list[Asked] = field(factory=list)
    """Calls of modules that the program holds as they are."""
    reads: list[Asked] = field(factory=list)
    inside: list[Asked] = field(factory=list)
    """Nodes of the module itself that stand in another body, because they were not cut out of it."""


def needs_by_path(
    program: Program, calls: tuple[tuple[Frame, str], ...], ties: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> dict[str, Needs]:
    """Return what is asked of each module, by path; a module that nobody asks anything is not there.

    Args:
        program: what runs.
        calls: every call of a module and the body that it runs, as ``Family.calls`` has them.
        ties: all names of a tensor that has several: the original may have read it under any of them.

    >>> from purefx.ir import Graph, Program
    >>> needs_by_path(Program.of({"": Graph((), (), ())}), ((Frame(""), ""),))
    {}
    """
    found: dict[str, Needs] = {}
    leading = {name: _leading(program.graphs[name]) for name in program.order}
    for caller, name in dict.fromkeys((frame.path, name) for frame, name in calls):
        for kind, target, node in leading[name]:
            whole = join(caller, target)
            for each in ties.get(whole, (whole,)) if kind == "reads" else (whole,):
                asked = Asked(each, caller, name, node)
                for path in _entered(each.rpartition(".")[0] if kind == "reads" else each, caller):
                    getattr(found.setdefault(path, Needs()), kind).append(asked)
    return found


def _leading(graph: Graph) -> list[tuple[str, str, Node]]:
    # What leads out of the module that the body stands in, or into one below it: a list of Needs, a path, and the node.
    found: list[tuple[str, str, Node]] = []
    held = read_modules(graph.nodes)
    handed = {name for node in graph.callers if type(node.do) is Op for name in node.refs()}
    inside: dict[str, Node] = {}
    for node in graph.nodes:
        for frame in node.stack:
            inside.setdefault(frame.path, node)
        do = node.do
        if type(do) is Call:
            found.append(("calls", do.instance.path, node))
        elif type(do) is Get:
            if node.name in held or not ("." in do.slot or do.slot.startswith(FROM_ROOT)):
                continue
            found.append(("reads", do.slot, node))
            if node.name in handed:  # the exporter hands the state of modules to branches that call them
                inside.setdefault(do.slot.rpartition(".")[0] or FROM_ROOT, node)
        elif is_module_call(node):
            slot = held.get(getattr(node.args[0], "name", ""))
            if slot is not None:
                found.append(("held", slot, node))
    return found + [("inside", path, node) for path, node in inside.items()]


def _entered(target: str, caller: str) -> Iterator[str]:
    while target and target != caller and not is_below(caller, target):
        yield target
        target = target.rpartition(".")[0]
