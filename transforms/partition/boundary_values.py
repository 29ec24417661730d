"""``relay_skips`` and ``move_non_tensor_nodes``: relay or recompute the boundary values between parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from attrs import evolve

from ...ir.analysis.numbers import computed_of, numbers_in
from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.calls.parts import Chain, chain_of, part_names
from ...ir.effects.declared import NOTHING
from ...ir.effects.resolved import node_effects, storages
from ...ir.graph import Graph, Input, Node, Op
from ...ir.names import Names, word_of
from ...ir.program import Program
from ...ir.signature import GIVEN
from ..dispatch import with_results
from ..inline import inline
from ..shared_bodies import value_only
from ..transformation import UNLIMITED, Fuel, transformation
from .cut import cut, is_outlined, outlined_inside, with_bodies_of, without_part_names
from .placement import Placing


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "every part accepts only results of the part before it",
        "every part computes the same values as before",
    ],
)
def relay_skips(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Relay values that skip parts, so that each part uses only results of the previous one.

    Before::

        graph ""        a = call @stage0(x);  b = call @stage1(a);  c = call @stage2(b, x)
        graph "stage1"  (a) { b = aten.relu.default(a);  return b }

    After::

        graph ""        a, x_1 = call @stage0(x);  b, x_2 = call @stage1(a, x_1);  c = call @stage2(b, x_2)
        graph "stage1"  (a, x) { b = aten.relu.default(a);  return (b, x) }

    The first part takes the user inputs; user outputs are relayed to the last part. Values of any kind are relayed, including
    numbers, but ``torch.distributed.pipelining`` supports only tensors: run ``move_non_tensor_nodes`` first.

    Args:
        program: a split program, see ``split_by_tags``.
        fuel: a rewrite is one relayed value, in the order of the graph, inputs first.

    Returns:
        The program in which no value skips a part.

    Raises:
        UnsupportedProgram: the program is not split: its root has operators.

    >>> import purefx as px
    >>> uses = (("a", "x"), ("b", "a"), ("c", "bx"))
    >>> nodes = tuple([px.Node(name, px.Op("toy.op"), tuple(map(px.Ref, args))) for name, args in uses])
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), nodes, (px.Ref("c"),))})
    >>> split = px.split_by_tags(program, ("stage0", "stage1", "stage2"), tag_of=dict(a="stage0", b="stage1", c="stage2"))
    >>> print(px.relay_skips(split).graphs["stage1"])
    graph @""(a, x) {
      b = toy.op(a) ! pure
      return (b, x)
    }
    """
    chain = chain_of(program, asked_by="relay_skips")
    through = _through(program, chain, fuel)
    if not any(through):
        return program
    calls = Counter(callee for name in program.order for callee in program.graphs[name].callees)
    names, ids, metas = program.main.names(), Names(program.graphs), dict(program.main.metas)
    graphs: dict[str, Graph] = {}
    nodes: list[Node] = []
    now: dict[str, str] = {}
    """The name of each relayed value after the last part that relayed it."""

    def current(name: str) -> Ref:
        return Ref(now.get(chain.value(name), chain.value(name)))

    for part, values in zip(chain.parts, through, strict=True):
        first = {name: current(name) for name in part.node.refs()}
        body, args = program.graphs[part.graph], list(replace_refs(part.node.args, first))
        inputs, inner = list(body.inputs), body.names()
        results = {
            output: name
            for output, name in zip(part.outputs, part.given, strict=True)
            if name is not None
        }
        for value in values:
            arg = current(value)
            if arg not in args:
                inputs.append(Input(inner.fresh(value), value_only(metas[value])))
                args.append(arg)
            relayed = Ref(inputs[args.index(arg)].name)
            now[value] = results[relayed] = results.get(relayed) or names.fresh(value)
            metas[now[value]] = metas[value]
        outputs = tuple(results)
        made = Graph(tuple(inputs), body.nodes, outputs[0] if len(outputs) == 1 else outputs)
        graph = part.graph
        if made != body:
            if calls[graph] > 1:
                calls[graph] -= 1
                graph = ids.fresh(graph)
            graphs[graph] = made
        call = part.node.calling(lambda _, graph=graph: graph).evolve(args=tuple(args))
        if len(results) != 1 and call.name in part.given:
            call = call.evolve(name=names.fresh(word_of(part.path)))
        nodes += with_results(call, tuple(results.values()), metas)
    last = {name: current(name) for name in program.main.output_refs()}
    returned = dict(_returned(program, chain))
    original = {name: Ref(chain.value(name)) for name in last}
    output = [
        replace_refs(arg, last if at in returned else original)
        for at, arg in enumerate(program.main.output)
    ]
    graphs[program.root] = evolve(program.main, nodes=tuple(nodes), output=tuple(output))
    return program.with_graphs(graphs)


def _through(program: Program, chain: Chain, fuel: Fuel) -> list[list[str]]:
    # The values that each part must relay, in the order of the graph.
    needed: dict[str, int] = {}
    """The last part that uses a value, by its original name; the outputs of the program are used after the last part."""
    for number, part in enumerate(chain.parts):
        for name in part.node.refs():
            needed[chain.value(name)] = number
    needed.update(
        dict.fromkeys([value for _, value in _returned(program, chain)], len(chain.parts))
    )
    found: list[list[str]] = [[] for _ in chain.parts]
    for value in program.main.metas:
        first = (
            chain.makers[value][0] + 1 if value in chain.makers else 0
        )  # the first part takes all inputs
        last = needed.get(value, 0)
        if first < last and fuel.burn("relay", repr(value)):
            for values in found[first:last]:
                values.append(value)
    return found


def _returned(program: Program, chain: Chain) -> list[tuple[int, str]]:
    # The user outputs; new contents of buffers and inputs are written back where they are computed.
    specs = program.signature.outputs
    outputs: tuple[Arg, ...] = program.main.output
    selected = (
        [type(spec) in GIVEN for spec in specs]
        if len(specs) == len(outputs)
        else [True] * len(outputs)
    )
    pairs = zip(enumerate(outputs), selected, strict=True)
    return [
        (at, chain.value(arg.name))
        for (at, arg), is_selected in pairs
        if is_selected and type(arg) is Ref
    ]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "no number crosses that can be computed where it is used",
        "tensors are computed in the part in which they were",
    ],
)
def move_non_tensor_nodes(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Compute sizes, shapes and other numbers in the part that uses them, so that only tensors cross part boundaries.

    Before::

        graph ""        a, n = call @stage0(x);  b = call @stage1(a, n)
        graph "stage0"  (x) { n = aten.sym_size.int(x, 0);  a = aten.relu.default(x);  return (a, n) }

    After::

        graph ""        a = call @stage0(x);  b = call @stage1(a, x)
        graph "stage1"  (a, x) { n = aten.sym_size.int(x, 0);  ... }

    A number that several parts use is computed in each. It stays if an operator that it depends on has effects, is in a region,
    or reads memory that is written later. A number that is a user input stays an input.

    Args:
        program: a split program, see ``split_by_tags``.
        fuel: a rewrite is one number that no longer crosses a boundary, those of the last part first.

    Returns:
        The program with the remaining boundary values; the order of effects is the same.

    Raises:
        UnsupportedProgram: the program is not split: its root has operators.

    >>> import torch, purefx as px
    >>> from purefx.ir.operators import op_of
    >>> size = px.Node("n", op_of(torch.ops.aten.sym_size.int), (px.Ref("x"), 0))
    >>> use = px.Node("y", op_of(torch.ops.aten.mul.Scalar), (px.Ref("x"), px.Ref("n")))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (size, use), (px.Ref("y"),))})
    >>> split = px.split_by_tags(program, ("stage0", "stage1"), tag_of={"n": "stage0", "y": "stage1"})
    >>> moved = px.move_non_tensor_nodes(split)
    >>> [node.name for node in moved.graphs["stage1"].nodes], moved.graphs["stage0"].nodes
    (['n_1', 'y'], ())
    """
    chain = chain_of(program, asked_by="move_non_tensor_nodes")
    whole = inline(program)
    home = {part.path: number for number, part in enumerate(chain.parts)}
    part_of = [home[node.stack[0].path] for node in whole.main.nodes]
    flat = without_part_names(whole, part_names(program))
    bodies = _with_copies(whole, flat.main, part_of, [part.path for part in chain.parts], fuel)
    if bodies is None:
        return program
    flat = flat.with_main(flat.main.with_nodes([node for body in bodies for node in body]))
    placing = Placing(
        tuple(home), tuple([number for number, body in enumerate(bodies) for _ in body])
    )
    made = cut(flat, placing, reserved=[node.name for node in program.main.nodes])
    made = outlined_inside(made) if is_outlined(program) else made
    return with_bodies_of(program, made.evolve(facts=program.facts))


def _with_copies(
    whole: Program, flat: Graph, part_of: list[int], paths: list[str], fuel: Fuel
) -> list[list[Node]] | None:
    # The nodes of each part, after copies of numbers that earlier parts computed; None if none is copied.
    home, barred = _movable(whole, part_of)
    names, used = flat.names(), set(flat.output_refs())
    bodies: list[list[Node]] = [[] for _ in paths]
    changed = False
    for part in range(len(paths) - 1, -1, -1):
        kept = _still_needed(
            [node for node, at in zip(flat.nodes, part_of, strict=True) if at == part], used, home
        )
        wanted = dict.fromkeys(
            [name for node in kept for name in node.refs() if home.get(name, part) < part]
        )
        todo = [
            name
            for name in wanted
            if part not in barred and fuel.burn("compute", repr(name), "in", paths[part])
        ]
        copied = computed_of(
            todo, {name: flat.by_name[name] for name, made in home.items() if made < part}
        )
        instead: dict[str, Arg] = {}
        for node in flat.nodes:
            if node.name in copied and home.get(node.name, part) < part:
                instead[node.name] = Ref(names.fresh(node.name))
                copy = node.using(instead)  # without a stack: its module does not run here
                bodies[part].append(
                    Node(instead[node.name].name, copy.do, copy.args, copy.kwargs, (), copy.meta)
                )
        bodies[part] += [node.using(instead) for node in kept]
        used.update(name for node in bodies[part] for name in node.refs())
        changed = changed or bool(todo)
    return bodies if changed else None


def _still_needed(nodes: list[Node], used: set[str], home: Mapping[str, int]) -> list[Node]:
    # Numbers without users are dropped, because other parts compute them now.
    needed, kept = set(used), list[Node]()
    for node in reversed(nodes):
        if node.name in needed or node.name not in home:
            kept.append(node)
            needed.update(node.refs())
    return kept[::-1]


def _movable(whole: Program, part_of: list[int]) -> tuple[dict[str, int], set[int]]:
    # The part of each number that later parts could compute, too, and the parts that begin inside a region: there, nothing from
    # outside is recomputed, because sizes under vmap differ.
    graph = whole.main
    numbers, effects = numbers_in(graph), node_effects(whole, graph)
    memory = storages(whole, graph, effects)
    depths = [
        0,
        *accumulate(opens - closes for closes, opens in [effect.scope for effect in effects]),
    ]
    written: set[object] = set()
    free: set[str] = set()
    for node, effect, depth in list(zip(graph.nodes, effects, depths[1:], strict=True))[::-1]:
        if effect.writes_slots:
            break
        read = [memory.find(name) for name in node.refs() if name not in numbers]
        is_pure_number = node.name in numbers and type(node.do) is Op and effect == NOTHING
        if is_pure_number and depth == 0 and written.isdisjoint(read):
            free.add(node.name)
        written.update(memory.find(name) for name in effect.writes)
    home: dict[str, int] = {}
    formals = set(graph.input_names)
    for node, part in zip(graph.nodes, part_of, strict=True):
        if node.name in free and all(
            name in home or name in formals for name in node.refs() if name in numbers
        ):
            home[node.name] = part
    first: dict[int, int] = {}
    for part, depth in zip(part_of, depths, strict=False):
        first.setdefault(part, depth)
    return home, {part for part, depth in first.items() if depth}
