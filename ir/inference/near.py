"""``inferred_near``: the values of a program after an edit, where they change inside of the edited graphs and nowhere else.

The edited graphs are walked as in a walk of the whole program (``propagation.py``); that nothing else is to be done is asked of
what they call and give.  Where it is, or cannot be told, nothing is returned and the whole program is walked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..arguments import Ref
from ..calls.call_graph import calls_alike
from ..facts import Edit, Fact
from ..graph import Call, Get, Graph
from ..program import Program
from ..tensors import value_in
from .propagation import Propagation
from .results import agrees
from .values import running
from .walk import Called, Request

__all__ = ["COMPLETE", "inferred_near"]

KEPT = ("state", "signature", "modules", "call_signatures", "constraints")


def _is_complete(program: Program) -> bool:
    return not Propagation(program).open and all(_given_back(program, name) for name in program.order)


def _given_back(program: Program, name: str) -> bool:
    # Whether the calls in a graph hand their bodies what those say that they are given, and are said to give what they give.
    graph = program.graphs[name]
    for node in graph.callers:
        if type(node.do) is Call:
            body = program.graphs[node.do.graph]
            pairs = [(value_in(node.meta), _output(body))]
            refs = [(arg, formal) for arg, formal in zip(node.args, body.inputs, strict=True) if type(arg) is Ref]
            pairs += [(value_in(graph.metas[arg.name]), value_in(formal.meta)) for arg, formal in refs]
            if any(said is None or not agrees(given, said) for said, given in pairs):
                return False
    return True


def _output(graph: Graph) -> object:
    metas = graph.metas
    values = [value_in(metas[name]) for name in graph.output_refs()]
    return tuple(values) if type(graph.output) is tuple else values[0] if values else None


COMPLETE = Fact("complete values", _is_complete)
"""Whether all values are there, and calls and reads say what bodies and state do."""


def inferred_near(program: Program, changed: Collection[tuple[str, str]]) -> Program | None:
    """Return a program with values; None where other graphs than those that were edited may get others.

    Args:
        program: the program after an edit.
        changed: graph and name of the values whose meta cannot be trusted, beside those without a value.

    >>> from purefx.ir import Graph
    >>> inferred_near(Program.of({"": Graph((), (), ())}), ())
    """
    found = COMPLETE.before(program)
    if found is None or not found[0] or not found[1].keeps(*KEPT):
        return None
    edit = found[1]
    if not {name for name, _ in changed} <= set(edit.changed):
        return None
    if not all(_is_alone(edit.before.graphs[name], program.graphs[name], _of(changed, name)) for name in edit.changed):
        return None
    try:
        return _walked(program, edit, changed)
    except Exception:  # noqa: BLE001  whoever walks the whole program says what an operator refuses, and where
        return None


def _of(changed: Collection[tuple[str, str]], graph: str) -> set[str]:
    return {name for where, name in changed if where == graph}


def _is_alone(old: Graph, new: Graph, changed: set[str]) -> bool:
    # Whether what the graph is given, what it reads and what it calls is the same.
    if len(old.inputs) != len(new.inputs) or not calls_alike(old, new) or any(type(node.do) is not Call for node in new.callers):
        return False
    pairs = zip(new.inputs, old.inputs, strict=True)
    if any(value_in(mine.meta) is None or value_in(mine.meta) is not value_in(other.meta) for mine, other in pairs):
        return False
    had = {id(node) for node in old.nodes}
    reads = [node for node in new.nodes if type(node.do) is Get]
    return changed.isdisjoint([part.name for part in (*reads, *new.inputs)]) and all(id(node) in had for node in reads)


def _walked(program: Program, edit: Edit, changed: Collection[tuple[str, str]]) -> Program | None:
    work = Propagation.near(program, frozenset(changed), edit.changed)
    made: dict[str, Graph] = {}
    with running(work.values.mode):
        for name in edit.changed:
            graph = program.graphs[name]
            call = work.run(Request(name, [value_in(formal.meta) for formal in graph.inputs], ""))
            if call.fresh or call.depends or not agrees(call.value, _output(edit.before.graphs[name])):
                return None
            made[name] = call.body
    if any(call.body is not call.source for call in _others(work, edit.changed)):
        return None
    changes = {name: graph for name, graph in made.items() if graph is not program.graphs[name]}
    result = program.evolve(graphs=program.graphs.update(changes)) if changes else program
    if not all(_given_back(result, name) for name in edit.changed):
        return None
    if not any(work.is_to_infer(value) for graph in made.values() for value in graph.nodes):
        COMPLETE.keep(result, True)  # noqa: FBT003
    return result


def _others(work: Propagation, names: Collection[str]) -> Iterator[Called]:
    return (call for name, calls in work.found.items() if name not in names for call in calls)
