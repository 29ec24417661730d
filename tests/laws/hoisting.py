"""Laws of ``hoist`` and ``replicate``: how often operators run, and what runs when nothing is called any more.

Each is asked of the result alone or of both programs, and shares no code with the transformations.
"""

from __future__ import annotations

from collections import Counter

from purefx.ir.analysis.numbers import SYMBOLIC
from purefx.ir.effects.aliases import storages
from purefx.ir.effects.declared import PURE
from purefx.ir.effects.resolved import node_effects
from purefx.ir.graph import Call, Get, Graph, Node, Op
from purefx.ir.persistent import pmap
from purefx.ir.program import Program
from purefx.laws.law import Case, Transform
from purefx.transforms import eliminate_common_subexpressions, hoist, inline
from tests.laws.aimed import law
from tests.laws.aims import called_twice, called_without_state, half_hoisted, hoisted

__all__ = ["hoisted_comes_back", "nothing_twice", "runs_less", "runs_no_less", "same_inlined"]

NUMBERS = (*SYMBOLIC, int, float)


def _placed(program: Program) -> Counter[tuple[str, str]]:
    # How often each operator runs in each graph, through all calls.  Numbers and views are computed wherever they are used.
    times: Counter[str] = Counter({program.root: 1})
    found: Counter[tuple[str, str]] = Counter()
    for name in reversed(program.bottom_up):
        graph = program.graphs[name]
        for callee in graph.callees:
            times[callee] += times[name]
        for node in graph.nodes:
            if type(node.do) is Op and not (node.do.effects.aliases or isinstance(node.meta.get("val"), NUMBERS)):
                found[name, node.do.name] += times[name]
    return found


def _runs(program: Program) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, name), times in _placed(program).items():
        found[name] += times
    return found


@law(
    "no operator that makes a tensor runs more often than before, and where one stands elsewhere, one runs less often",
    aim=called_twice,
)
def runs_less(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    before, after = _runs(case.program), _runs(result)
    found = [f"{name} runs {after[name]} times, and ran {before[name]} times" for name in after if after[name] > before[name]]
    same = after == before and _placed(result) != _placed(case.program)
    return [*found, "every operator runs as often as before, somewhere else"] if same else found


def _may_be_hoisted(transform: Transform, case: Case) -> bool:
    program = transform(case.program)
    is_split = any(module.type_name == "purefx.Part" for module in program.modules)
    return not (_acts(program) or len(program.call_signatures) or is_split)


@law(
    "where nothing is written, calls that are given the same compute nothing from it alone",
    where=_may_be_hoisted,
    aim=called_twice,
)
def nothing_twice(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    handed = {name for _, graph in _graphs(program) for node in graph.callers if type(node.do) is Op for name in graph.callees}
    found: list[str] = []
    for caller, graph in _graphs(program):
        calls = [(node.do.graph, node) for node in graph.nodes if type(node.do) is Call]
        for place, (body, call) in enumerate(calls):
            for other_body, other in calls[:place]:
                if body == other_body and body not in handed:
                    same = {
                        one.name for one, a, b in zip(program.graphs[body].inputs, call.args, other.args, strict=True) if a == b
                    }
                    found += [f"{caller}: {call.name} and {other.name} compute {name}" for name in _from(program, body, same)]
    return found


def _acts(program: Program) -> bool:
    # Whether anything is written, or a region begins or ends.
    effects = [does for _, graph in _graphs(program) for does in node_effects(program, graph)]
    return any(does.writes or does.writes_slots or does.completes or does.scope != (0, 0) for does in effects)


def _graphs(program: Program) -> list[tuple[str, Graph]]:
    return [(name, program.graphs[name]) for name in program.order]


def _from(program: Program, body: str, same: set[str]) -> list[str]:
    # What a body computes from some inputs, and does not give back.
    graph = program.graphs[body]
    memory = storages(program, graph, node_effects(program, graph))
    given = {memory.find(name) for name in graph.output_refs()}
    used = set(graph.output_refs())
    for node in reversed(graph.nodes):
        if node.name in used or type(node.do) is not Op or node.do.effects.acts:
            used.update(node.refs())
    taken_apart = {item[0] for node in graph.nodes if (item := node.projection) is not None}

    def moves(node: Node) -> bool:
        is_one = node.name in used and node.name not in taken_apart and node.projection is None
        is_tensor = not isinstance(node.meta.get("val"), (*NUMBERS, tuple, list, type(None))) or "val" not in node.meta
        return is_one and is_tensor and memory.find(node.name) not in given and same.issuperset(node.refs())

    return [node.name for node in graph.nodes if type(node.do) is Op and node.do.effects == PURE and moves(node)]


def _does_not_act(transform: Transform, case: Case) -> bool:
    return not _acts(case.program)


@law(
    "where nothing is written, with all calls inlined and equal nodes computed once the same operators run as before",
    where=_does_not_act,
    aim=half_hoisted,
)
def same_inlined(transform: Transform, case: Case) -> list[str]:
    # Equal nodes of two calls with preserved signatures stay two, and calls that are passed may be such or not.
    def left(program: Program) -> Counter[str]:
        flat = inline(program)
        return _runs(eliminate_common_subexpressions(flat.evolve(call_signatures=pmap({}))))

    before, after = left(case.program), left(transform(case.program))
    return [
        f"{name} runs {after[name]} times, and ran {before[name]} times" for name in before | after if after[name] != before[name]
    ]


@law("no operator that makes a tensor runs less often than before", aim=hoisted)
def runs_no_less(transform: Transform, case: Case) -> list[str]:
    before, after = _runs(case.program), _runs(transform(case.program))
    return [f"{name} runs {after[name]} times, and ran {before[name]} times" for name in before if after[name] < before[name]]


def _passes_no_state(transform: Transform, case: Case) -> bool:
    return not any(
        type(made.do) is Get
        for _, graph in _graphs(case.program)
        for node in graph.nodes
        if type(node.do) is Call
        for name in node.refs()
        if (made := graph.by_name.get(name)) is not None
    )


@law(
    "what hoist moved comes back: no body is given more than it is without hoist, where callers pass no state",
    where=_passes_no_state,
    aim=called_without_state,
)
def hoisted_comes_back(transform: Transform, case: Case) -> list[str]:
    # How often operators run may differ: of equal values that callers and bodies compute, hoist makes one, and one comes back.
    # Where state is passed, nothing says whether what comes back was computed of it or of what the body read itself.
    before, after = transform(case.program).graphs, transform(hoist(case.program)).graphs
    return [
        f"{name} is given {[one.name for one in after[name].inputs]}, and {[one.name for one in graph.inputs]} without"
        for name, graph in before.items()
        if name in after and len(after[name].inputs) > len(graph.inputs)
    ]
