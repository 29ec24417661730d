"""``canonicalize``: one order and one set of names for all legal orders of a program.

Nodes are told apart by what they are, never by where they stand or how they are called: colour refinement over operators,
operands and users.  Nodes that stay alike (twins) are told apart one after another, as they are met, and each choice is
refined before the next: what comes of the first twin stands before what comes of the second.  From the outputs on, each node
then stands right before the first that needs it.  Graphs that refinement cannot tell apart (strongly regular ones) may get
more than one order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ...ir.analysis.digest import graph_digest, graph_tokens
from ...ir.arguments import Ref
from ...ir.effects.resolved import UnionFind
from ...ir.graph import Call, Get, Graph, Node
from ...ir.names import Names, word_of
from ...ir.program import Program
from ...ir.signature import StateInput, UserInput
from ...ir.state import exporter_name
from ..memory import precedences
from ..shared_bodies import RESERVED, word_of_operator
from ..transformation import UNLIMITED, Fuel, transformation

__all__ = ["canonicalize"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=["legal orders of one program become one program", "only the order and the names of nodes change"],
)
def canonicalize(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Give a program the order and the names that all legal orders of it get.

    Before::

        b = aten.sin.default(x)
        a = aten.exp.default(x)
        y = aten.sub.Tensor(a, b)

    After::

        exp = aten.exp.default(x)
        sin = aten.sin.default(x)
        sub = aten.sub.Tensor(exp, sin)

    The order is a legal one by the dependency relation, so effects stay in theirs.  Operands stand before their first user, in
    the order of its arguments; what gives nothing comes where it may, sorted by what it does.  Inputs are called after their
    arguments or their state, nodes after their operators.  Two programs that differ in the order and the names of nodes alone
    have one ``digest`` afterwards.  Names of bodies stay: ``digest`` does not see those.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one graph, bodies before their callers.

    Returns:
        The program in that order, under those names.

    >>> import purefx as px
    >>> nodes = [px.Node(name, px.Op(f"toy.{op}"), (px.Ref("x"),)) for name, op in (("a", "exp"), ("b", "sin"))]
    >>> end = px.Node("y", px.Op("toy.sub"), (px.Ref("a"), px.Ref("b")))
    >>> orders = [px.Graph((px.Input("x"),), (*some, end), (px.Ref("y"),)) for some in (nodes, nodes[::-1])]
    >>> first, second = [px.canonicalize(px.Program.of({"": graph})) for graph in orders]
    >>> first == second, [node.name for node in first.main.nodes]
    (True, ['exp', 'sin', 'sub'])
    """
    digests: dict[str, str] = {}
    graphs: dict[str, Graph] = {}
    for name, before in precedences(program):
        graph = program.graphs[name]
        ordered = graph.with_nodes([graph.nodes[number] for number in _order(graph, before, digests)])
        made = _named(program, name, ordered)
        graphs[name] = made if made is graph or fuel.burn("put the nodes in order", graph=name) else graph
        digests[name] = graph_digest(made, digests)
    return program.with_graphs(graphs)


# -- ranks ----------------------------------------------------------------------------------------------------------------------


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _ranked(keys: Sequence[tuple[object, ...]]) -> list[int]:
    # Which key is whose, counted from the least.
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]


def _refined(graph: Graph, ranks: list[int], before: Sequence[Sequence[int]]) -> list[int]:
    # Handed on down to the operands and up to the users, until that tells no more nodes apart; what is apart keeps its order.
    known = 0
    while known < len(set(ranks)) < len(ranks):
        known = len(set(ranks))
        keys = _handed_up(graph, _handed_down(graph, [str(rank) for rank in ranks], before), before)
        ranks = _ranked(list(zip(ranks, keys, strict=True)))
    return ranks


def _marked(graph: Graph, ranks: Sequence[int], rank: int, before: Sequence[Sequence[int]]) -> list[int]:
    # Twins of one rank: the first in each group of twins that hang together comes first, so that groups stay whole.
    counts, groups = Counter(ranks), UnionFind()
    position = {node.name: number for number, node in enumerate(graph.nodes) if counts[ranks[number]] > 1}
    for name, number in position.items():
        for other in (*graph.nodes[number].refs(), *[graph.nodes[earlier].name for earlier in before[number]]):
            if other in position:
                groups.join(name, other)
    first: dict[object, int] = {}
    for name, number in position.items():
        if ranks[number] == rank:
            first.setdefault(groups.find(name), number)
    marks = {number: mark for mark, number in enumerate(first.values())}
    return _ranked([(old, marks.get(number, len(marks))) for number, old in enumerate(ranks)])


def _own(node: Node, digests: Mapping[str, str]) -> str:
    instance = str(node.do.instance) if type(node.do) is Call else ""
    return _hash(graph_tokens(Graph((), (node,), ()), digests), instance, [str(frame) for frame in node.stack])


def _handed_down(graph: Graph, keys: Sequence[str], before: Sequence[Sequence[int]]) -> list[str]:
    # With what a node comes from.
    known = {formal.name: f"input {number}" for number, formal in enumerate(graph.inputs)}
    found: list[str] = []
    for node, key, earlier in zip(graph.nodes, keys, before, strict=True):
        found.append(_hash(key, [known[name] for name in node.refs()], sorted([found[number] for number in earlier])))
        known[node.name] = found[-1]
    return found


def _handed_up(graph: Graph, keys: Sequence[str], before: Sequence[Sequence[int]]) -> list[str]:
    # With what comes of a node, and where it is in the output.
    users: dict[str, list[str]] = {}
    for number, name in enumerate(graph.output_refs()):
        users.setdefault(name, []).append(f"output {number}")
    found, later = list(keys), [list[str]() for _ in keys]
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        found[number] = _hash(keys[number], sorted(users.get(node.name, ())), sorted(later[number]))
        for place, name in enumerate(node.refs()):
            users.setdefault(name, []).append(f"{place} of {found[number]}")
        for earlier in before[number]:
            later[earlier].append(found[number])
    return found


# -- order and names ------------------------------------------------------------------------------------------------------------


def _order(graph: Graph, before: Sequence[Sequence[int]], digests: Mapping[str, str]) -> list[int]:
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    operands = [list(dict.fromkeys([position[name] for name in node.refs() if name in position])) for node in graph.nodes]
    results = [position[name] for name in graph.output_refs() if name in position]
    inner = {number for of in (*operands, *before) for number in of}
    ends = [number for number in range(len(graph.nodes)) if number not in inner]
    lists = [*zip(operands, before, strict=True), (results, ends)]
    ranks = _refined(graph, _ranked([(_own(node, digests),) for node in graph.nodes]), before)
    while isinstance(found := _visited(lists, ranks), int):
        ranks = _refined(graph, _marked(graph, ranks, found, before), before)
    return found


def _visited(lists: Sequence[tuple[Sequence[int], Sequence[int]]], ranks: Sequence[int]) -> list[int] | int:
    # Each node after what it needs, or the rank of the first twins that could go in one order or another.  Of what a node needs
    # the first list has an order, the second gets one; the last are those of the whole graph.
    done: dict[int, None] = {}
    todo = [(len(lists) - 1, False)]
    while todo:
        number, closing = todo.pop()
        if closing:
            done.setdefault(number)
        elif number not in done:
            in_order, others = lists[number]
            rest = sorted({*others}.difference(in_order, done), key=ranks.__getitem__)
            for one, other in pairwise(rest):
                if ranks[one] == ranks[other]:
                    return ranks[one]
            todo.append((number, True))
            todo.extend([(earlier, False) for earlier in reversed([*in_order, *rest]) if earlier not in done])
    return list(done)[:-1]


def _named(program: Program, name: str, graph: Graph) -> Graph:
    names = Names(RESERVED)
    known: dict[str, Ref] = {}
    for formal, wanted in zip(graph.inputs, _inputs(program, name, graph), strict=True):
        known[formal.name] = Ref(names.fresh(wanted))
    for node in graph.nodes:
        known[node.name] = Ref(names.fresh(_word(program, node, is_root=name == program.root)))
    return graph.renamed({old: new for old, new in known.items() if new.name != old})


def _inputs(program: Program, name: str, graph: Graph) -> list[str]:
    specs = program.signature.inputs if name == program.root else ()
    found: list[str] = []
    for number in range(len(graph.inputs)):
        match specs[number] if number < len(specs) else None:
            case StateInput(slot=slot):
                found.append(exporter_name(slot, program.state[slot]))
            case UserInput(argument=argument) if argument:
                found.append(word_of(argument))
            case _:
                found.append("arg")
    return found


def _word(program: Program, node: Node, *, is_root: bool) -> str:
    do = node.do
    if type(do) is Get:
        known = is_root and do.slot in program.state
        return exporter_name(do.slot, program.state[do.slot]) if known else word_of(do.slot)
    return word_of(do.instance.path) if type(do) is Call else word_of_operator(do.name)
