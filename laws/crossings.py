"""What holds of the values that cross between parts: ``relay_skips`` and ``move_non_tensor_nodes``.

One idea: the root of a split program is read anew, nodes and names only, so nothing here knows how values were rewired.
"""

from __future__ import annotations

from collections import Counter

from ..ir.arguments import Ref
from ..ir.node import Call, Node, Op
from ..ir.numbers import is_number
from ..ir.parts import parts
from ..ir.program import Program
from ..ir.signature import GIVEN
from .law import Case, Law, Transform

__all__ = ["NODES_STAY", "NO_NUMBER_CROSSES", "STRAIGHT", "TENSORS_STAY"]

SIZE = "aten.sym_size.int"


def _home(program: Program) -> dict[str, int]:
    # The number of the part that gives a value of the root; -1 for its inputs.
    found = {formal.name: -1 for formal in program.main.inputs}
    count = -1
    for node in program.main.nodes:
        if type(node.do) is Call:
            count += 1
            found[node.name] = count
        else:
            found[node.name] = found[node.refs()[0]]
    return found


def _straight(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    home = _home(result)
    calls = parts(result)
    found = [
        f"{part.name} takes {name} of part {home[name]}"
        for number, part in enumerate(calls)
        for name in part.node.refs()
        if home[name] != number - 1
    ]
    pairs = zip(result.main.output, result.signature.outputs, strict=True)
    given = [arg.name for arg, spec in pairs if type(spec) in GIVEN and type(arg) is Ref]
    return found + [f"{name} of part {home[name]} is given back" for name in given if home[name] != len(calls) - 1]


def _nodes_stay(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    found: list[str] = []
    for old, new in zip(parts(before), parts(after), strict=True):
        if before.graphs[old.graph].nodes != after.graphs[new.graph].nodes:
            found.append(f"{old.name} computes something else")
    return found


def _operators(program: Program, part: str) -> Counter[str]:
    graph = program.graphs[next(one.graph for one in parts(program) if one.name == part)]
    return Counter(str((node.do, node.stack)) for node in graph.nodes if not _is_number(node))


def _is_number(node: Node) -> bool:
    return bool(is_number(node.meta)) or (type(node.do) is Op and node.do.name == SIZE)


def _tensors_stay(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    names = [part.name for part in parts(before)]
    return [f"{name} computes other tensors" for name in names if _operators(before, name) != _operators(after, name)]


def _no_number_crosses(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    effects = [node.do.effects for _, node in program.nodes() if type(node.do) is Op]
    if any(one.writes or one.scope or one.unknown for one in effects):
        return []
    used = {name for part in parts(program) for name in part.node.refs()}
    makers = {part.node.name: program.graphs[part.graph] for part in parts(program)}
    found: list[str] = []
    for node in program.main.nodes:
        graph = makers[node.name if type(node.do) is Call else node.refs()[0]]
        output = graph.output[node.args[1]] if type(node.do) is Op else graph.output
        made = graph.by_name.get(output.name) if type(output) is Ref else None
        if node.name in used and made is not None and _is_number(made):
            found.append(f"{node.name} is a number, and crosses")
    return found


STRAIGHT = Law("straight", "every part takes only what the part before it gives, and the last gives the results", _straight)
NODES_STAY = Law("nodes stay", "every part has the nodes that it had", _nodes_stay)
TENSORS_STAY = Law("tensors stay", "every part computes the tensors that it computed", _tensors_stay)
NO_NUMBER_CROSSES = Law(
    "no number crosses", "where nothing is written and no region is open, no number crosses between parts", _no_number_crosses
)
