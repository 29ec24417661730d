"""``hoist``: what all calls of a body compute alike is computed once, by the caller.

Each pass moves what is worth it by one level: out of bodies, to before their calls.  Values that several levels pass on move up
in as many passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, frozen

from ...ir.arguments import Arg, Ref
from ...ir.graph import Get, Graph, Input, Node, Stack, common_prefix
from ...ir.meta import Meta
from ...ir.names import FROM_ROOT
from ...ir.origins import standing_for
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..shared_bodies import value_only
from ..transformation import UNLIMITED, Fuel, transformation
from .movable import Movable, read_of
from .sites import Site, Survey

__all__ = ["hoist"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    inverse="replicate",
    laws=[
        "no operator runs more often, and one runs less often",
        "calls that are given the same compute nothing from it alone",
        "with all calls inlined and equal nodes computed once the same operators run as before",
    ],
)
def hoist(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Compute once, in the caller, what several calls of a body compute alike.

    Before::

        graph ""           y = call layers.0 -> Layer (x, mask);  z = call layers.1 -> Layer (y, mask)
        graph "Layer"      (x, mask)           m = aten.rsub.Scalar(mask, 1);  y = aten.add.Tensor(x, m);  return y

    After::

        graph ""           m = aten.rsub.Scalar(mask, 1)
                           y = call layers.0 -> Layer (x, mask, m);  z = call layers.1 -> Layer (y, mask, m)
        graph "Layer"      (x, mask, m)        y = aten.add.Tensor(x, m);  return y

    A tensor of a body moves to before the calls of the body if

    - it is computed by operators without effects from inputs, from literals, and from state that is one tensor in all modules
      that share the body;
    - nothing has written its operands by then, nothing writes it, and the body neither returns it nor a view of it;
    - it stands before the first region of the body (autocast, gradient modes, vmap), of which ``regions_to_bodies`` leaves fewer;
    - and it is worth it: some caller passes the same for it in two calls, with no write to that and no region's begin or end
      in between, or passes on what its own callers pass twice.

    Then all calls of the body get it as one more argument.  Numbers, such as sizes, views of inputs, and reads of state are
    computed on both sides where both need them.  The inputs that only it used stay, so that ``replicate`` can undo it;
    ``eliminate_dead_code`` takes them out.  Calls, results of operators that give several, operators with bodies and their
    bodies, calls with a preserved signature, and parts of a split program stay as they are.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one value that moves from a body to all of its callers; bodies in the order of first use, values in
            order of execution, level by level.

    Returns:
        The program with shared computations in the callers; moved nodes stand in the module call that their calls stand in.

    >>> import purefx as px
    >>> nodes = (px.Node("m", px.Op("toy.exp"), (px.Ref("k"),)), px.Node("y", px.Op("toy.add"), (px.Ref("x"), px.Ref("m"))))
    >>> body = px.Graph((px.Input("x"), px.Input("k")), nodes, px.Ref("y"))
    >>> calls = [px.Node(y, px.Call(px.Frame(y), "f"), (px.Ref(x), px.Ref("k"))) for x, y in ("xa", "ab")]
    >>> main = px.Graph((px.Input("x"), px.Input("k")), tuple(calls), (px.Ref("b"),))
    >>> hoisted = px.hoist(px.Program.of({"": main, "f": body}))
    >>> [node.name for node in hoisted.main.nodes], [node.name for node in hoisted.graphs["f"].nodes]
    (['m', 'a', 'b'], ['y'])
    """
    result = program
    while (moved := _one_level(result, fuel)) is not result:
        result = moved
    return result


def _one_level(program: Program, fuel: Fuel) -> Program:
    survey = Survey(program)
    moves: dict[str, _Move] = {}
    for name in survey.sites:
        taken = _taken(survey, name, fuel)
        if taken:
            moves[name] = _Move.of(survey.movable[name], taken)
    if not moves:
        return program
    callers = {site.caller for name in moves for site in survey.sites[name]}
    changed = [name for name in program.order if name in moves or name in callers]
    return program.with_graphs({name: _changed(survey, name, moves) for name in changed}).pruned()


def _taken(survey: Survey, name: str, fuel: Fuel) -> list[str]:
    # The values that move; one that is computed from a value that stays, stays.
    body, taken = survey.movable[name], list[str]()
    stays, values = set[str](), frozenset(body.values)
    for node in body.graph.nodes:
        if node.name not in body.leaves:
            continue
        is_value = node.name in values
        if not stays.isdisjoint(node.refs()):
            stays.add(node.name)
        elif is_value and survey.is_worth(name, node.name) and fuel.burn("hoist", node.name, "out of", repr(name)):
            taken.append(node.name)
        elif is_value and not body.is_free(node):
            stays.add(node.name)
    return taken


@frozen
class _Move:
    """What moves out of one body."""

    nodes: tuple[Node, ...]
    """What callers compute, in order: what moves, with the numbers and reads that it needs."""
    passed: tuple[Input, ...]
    """What the rest of the body uses of that; it is called as it was."""
    gone: frozenset[str]
    """What the body does not compute any more."""

    @classmethod
    def of(cls, body: Movable, taken: Sequence[str]) -> _Move:
        graph, moves = body.graph, frozenset(taken)
        needed = set(taken)
        used, gone = set(graph.output_refs()), set(taken)
        for node in reversed(graph.nodes):
            if node.name in needed:
                needed.update(node.refs())
                if node.name not in used:
                    gone.add(node.name)
            if node.name not in gone:
                used.update(node.refs())
        nodes = tuple([node for node in graph.nodes if node.name in needed])
        passed = [Input(node.name, value_only(node.meta)) for node in nodes if node.name in moves and node.name in used]
        return cls(nodes, tuple(passed), frozenset(gone))


@define
class _Made:
    """A node of a caller that several calls use."""

    number: int
    """The first of those calls."""
    node: Node
    stacks: list[Stack]
    """Where all of them stand."""
    metas: list[Meta]
    """Those of the nodes that it stands for."""


def _changed(survey: Survey, name: str, moves: Mapping[str, _Move]) -> Graph:
    # A graph without what moves out of it, and with what moves out of the bodies that it calls.
    graph = survey.program.graphs[name]
    edit, inputs = Rewriter(graph), graph.inputs
    if name in moves:
        edit.erase(*moves[name].gone)
        inputs = (*inputs, *moves[name].passed)
    calls = [(site, moves[body]) for body in moves for site in survey.sites[body] if site.caller == name]
    made: dict[object, _Made] = {}
    for site, move in sorted(calls, key=lambda call: call[0].number):
        given = _computed(survey, site, move.nodes, made, edit)
        args = (*site.node.args, *[given[formal.name] for formal in move.passed])
        edit.put(site.number, site.node.evolve(args=args))
    for one in made.values():
        edit.before(one.number, one.node.evolve(stack=common_prefix(one.stacks), meta=standing_for(one.node.meta, one.metas)))
    return edit.graph(inputs=inputs)


def _computed(survey: Survey, site: Site, nodes: Iterable[Node], made: dict[object, _Made], edit: Rewriter) -> Mapping[str, Arg]:
    # What stands in the caller for values of the body; what an earlier call uses already is made once.
    known, leaves = dict(site.known), survey.movable[site.body].leaves
    for node in nodes:
        there = node.using(known)
        if type(node.do) is Get:
            (leaf,) = leaves[node.name]
            there = there.evolve(do=read_of(leaf.removeprefix(FROM_ROOT), survey.paths[site.caller]))
        same = Node("", there.do, there.args, there.kwargs)
        versions = () if type(node.do) is Get else tuple([site.versions[leaf] for leaf in sorted(leaves[node.name])])
        one = made.setdefault((same, versions, site.region), _Made(site.number, there, [], []))
        if not one.stacks:
            one.node = there.evolve(name=edit.names.fresh(node.name))
        one.stacks.append(site.node.stack)
        one.metas.append(node.meta)
        known[node.name] = Ref(one.node.name)
    return known
