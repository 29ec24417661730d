"""``relay_skips`` and ``move_non_tensor_nodes``: boundary values between parts are relayed, or recomputed.

Both respect the dependency relation of the whole program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import is_
from types import MappingProxyType

from attrs import evolve

from ...ir.arguments import Arg, Ref, refs_in, replace_refs
from ...ir.calls.parts import Chain, chain_of
from ...ir.calls.parts import PartCall as Part
from ...ir.graph import Call, Graph, Input, Node
from ...ir.meta import EMPTY_META, Meta
from ...ir.names import Names, word_of
from ...ir.operators import GETITEM
from ...ir.program import Program
from ...ir.signature import GIVEN
from ..shared_bodies import value_only
from ..transformation import UNLIMITED, Fuel, transformation
from .cut import flat_inside, outlined_inside, with_bodies_of
from .movable import ROOT, Movable, Place, Tree

__all__ = ["move_non_tensor_nodes", "relay_skips"]


class OpenPart:
    """One part that can be changed.

    Args:
        part: what it is in the root.
        graph: its body.
        names: hands out names for values of the root.
    """

    def __init__(self, part: Part, graph: Graph, names: Names) -> None:
        self.part = part
        self.graph = graph
        self.formals: list[Input] = list(graph.inputs)
        self.actuals: list[Arg] = list(part.node.args)
        self.nodes: list[Node] = list(graph.nodes)
        self.outputs: list[Arg] = list(part.outputs)
        self.given: list[str | None] = list(part.given)
        self.changed = False
        self._names = names
        self._inner: Names | None = None

    @property
    def inner(self) -> Names:
        """Hands out names for values of the body."""
        if self._inner is None:
            self._inner = self.graph.names()
        return self._inner

    def take(self, value: str, wanted: str, meta: Meta) -> str:
        """Return what the body calls a value of the root, which becomes an input if it is none yet.

        Args:
            value: the name in the root.
            wanted: the name that a new input gets if it is free.
            meta: of a new input.
        """
        for formal, actual in zip(self.formals, self.actuals, strict=True):
            if type(actual) is Ref and actual.name == value:
                return formal.name
        self.changed = True
        self.formals.append(Input(self.inner.fresh(wanted), meta))
        self.actuals.append(Ref(value))
        return self.formals[-1].name

    def take_no_more(self, formal: Input) -> None:
        """Remove an input; its uses in the body must be replaced."""
        index = next(at for at, one in enumerate(self.formals) if one is formal)
        del self.formals[index], self.actuals[index]
        self.changed = True

    def give(self, inner: str, wanted: str) -> str:
        """Return what the root calls a value of the body, which becomes a result if it is none yet.

        Args:
            inner: the name in the body.
            wanted: the name that the root gets for it if that is free.
        """
        for index, (output, name) in enumerate(zip(self.outputs, self.given, strict=True)):
            if type(output) is Ref and output.name == inner:
                return name if name is not None else self._named(index, wanted)
        self.outputs.append(Ref(inner))
        self.given.append(None)
        return self._named(len(self.given) - 1, wanted)

    def _named(self, index: int, wanted: str) -> str:
        self.changed = True
        name = self.given[index] = self._names.fresh(wanted)
        return name

    def use(self, instead: Callable[[str], str]) -> None:
        """Take other values of the root in place of some.

        Args:
            instead: gives the name of what is taken for a value.
        """
        for index, actual in enumerate(self.actuals):
            if type(actual) is Ref and (name := instead(actual.name)) != actual.name:
                self.actuals[index] = Ref(name)
                self.changed = True

    def body(self) -> Graph:
        """Return the body; the same object if it does not differ."""
        made = self.graph.with_nodes(self.nodes, inputs=tuple(self.formals))
        before = self.graph.output if type(self.graph.output) is tuple else (self.graph.output,)
        if len(self.outputs) == len(before) and all(map(is_, self.outputs, before)):
            return made
        return Graph(made.inputs, made.nodes, self.outputs[0] if len(self.outputs) == 1 else tuple(self.outputs))

    def in_root(self, graph: str, body: Graph, metas: Sequence[Meta]) -> list[Node]:
        """Return the nodes of the root that call the part and take its results.

        Args:
            graph: the id of the body.
            body: the body.
            metas: of the results, in order.
        """
        node, call = self.part.node, self.part.node.do
        assert type(call) is Call
        called = node.calling(lambda _: graph).evolve(args=tuple(self.actuals))
        if type(body.output) is not tuple:
            return [called.evolve(name=self.given[0] or node.name, meta=metas[0])]
        kept = type(self.graph.output) is tuple and self.part.node.name not in self.given
        name = node.name if kept else self._names.fresh(word_of(call.instance.path))
        value = MappingProxyType({"val": tuple([meta.get("val") for meta in metas])})
        made = [called.evolve(name=name, meta=value)]
        for index, (given, meta) in enumerate(zip(self.given, metas, strict=True)):
            if given is not None:
                made.append(Node(given, GETITEM, (Ref(name), index), (), (), meta))
        return made


def rebuilt(
    program: Program, chain: Chain, parts: Sequence[OpenPart], *, metas: Mapping[str, Meta], output: Mapping[int, str]
) -> Program:
    """Return a split program whose parts were changed.

    Args:
        program: the program that the parts were read from.
        chain: its parts as they were.
        parts: the parts as they are now, in order.
        metas: of the values of the root that have new names.
        output: the value that the root returns instead, by position.
    """
    once = {name: chain.value(name) for name in chain.makers if chain.value(name) != name}
    for name in once:
        parts[chain.makers[name][0]].changed = True
    for part in parts:
        part.use(lambda name: once.get(name, name))
    graphs, nodes = _written(program, parts, {**program.main.metas, **metas})
    refs: dict[str, Arg] = {name: Ref(first) for name, first in once.items()}
    results = tuple([Ref(output[at]) if at in output else replace_refs(arg, refs) for at, arg in enumerate(program.main.output)])
    graphs[program.root] = evolve(program.main, nodes=tuple(nodes), output=results)
    return program.with_graphs(graphs)


def _written(program: Program, parts: Sequence[OpenPart], metas: Mapping[str, Meta]) -> tuple[dict[str, Graph], list[Node]]:
    calls = Counter(callee for name in program.order for callee in program.graphs[name].callees)
    ids = Names(program.graphs)
    graphs: dict[str, Graph] = {}
    nodes: list[Node] = []
    for part, old in zip(parts, _nodes_of(program, parts), strict=True):
        if not part.changed:
            nodes.extend(old)
            continue
        body, graph = part.body(), part.part.graph
        if body is not part.graph:
            if calls[graph] > 1:
                calls[graph] -= 1
                graph = ids.fresh(graph)
            graphs[graph] = body
        told = [value_only(metas.get(name or "", EMPTY_META)) for name in part.given]
        nodes.extend(part.in_root(graph, body, told))
    return graphs, nodes


def _nodes_of(program: Program, parts: Sequence[OpenPart]) -> list[list[Node]]:
    # The call of each part and the nodes that take its results; those may stand further down.
    numbers = {part.part.node.name: number for number, part in enumerate(parts)}
    found: list[list[Node]] = [[] for _ in parts]
    for node in program.main.nodes:
        number = numbers.get(node.name)
        found[numbers[node.refs()[0]] if number is None else number].append(node)
    return found


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "every part takes only what the part before it gives",
        "parts compute what they computed",
    ],
)
def relay_skips(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Relay values that skip parts through the parts between, so that each part uses only results of the one before it.

    Before::

        graph ""        a = call @stage0(x);  b = call @stage1(a);  c = call @stage2(b, x)
        graph "stage1"  (a) { b = aten.relu.default(a);  return b }

    After::

        graph ""        a, x_1 = call @stage0(x);  b, x_2 = call @stage1(a, x_1);  c = call @stage2(b, x_2)
        graph "stage1"  (a, x) { b = aten.relu.default(a);  return (b, x) }

    The first part takes the user inputs; user outputs are relayed to the last part. Values of any kind are relayed, numbers
    too, though ``torch.distributed.pipelining`` carries tensors only: ``move_non_tensor_nodes`` goes before it.

    Args:
        program: a split program, see ``split_by_tags``.
        fuel: a rewrite is one value that is relayed, in the order in which they are made, inputs first.

    Returns:
        The program in which no value skips a part.

    Raises:
        UnsupportedProgram: the root of the program does something itself, so it is not split.

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
    main = program.main
    names = main.names()
    parts = [OpenPart(part, program.graphs[part.graph], names) for part in chain.parts]
    metas = dict(main.metas)
    now: dict[str, str] = {}
    """For each value that is relayed, what it is called after the last part that handed it on."""
    for part, values in zip(parts, through, strict=True):
        part.use(lambda name: now.get(chain.value(name), name))
        for value in values:
            inner = part.take(now.get(value, value), value, value_only(metas[value]))
            now[value] = part.give(inner, value)
            metas[now[value]] = metas[value]
    output = {at: now[value] for at, value in _returned(program, chain) if value in now}
    return rebuilt(program, chain, parts, metas=metas, output=output)


def _through(program: Program, chain: Chain, fuel: Fuel) -> list[list[str]]:
    # For each part the values that it must hand on, in the order in which they are made.
    needed: dict[str, int] = {}
    """The last part that uses a value, by its first name; what the caller gets is used behind the last."""
    for number, part in enumerate(chain.parts):
        for name in part.node.refs():
            needed[chain.value(name)] = number
    needed.update(dict.fromkeys([value for _, value in _returned(program, chain)], len(chain.parts)))
    found: list[list[str]] = [[] for _ in chain.parts]
    for value in program.main.metas:
        first = _made_by(value, chain.makers) + 1
        last = needed.get(value, 0)
        if first < last and fuel.burn("relay", repr(value)):
            for values in found[first:last]:
                values.append(value)
    return found


def _made_by(value: str, makers: Mapping[str, tuple[int, int]]) -> int:
    # An input comes from before the first part, which is given all of them.
    return makers[value][0] if value in makers else -1


def _returned(program: Program, chain: Chain) -> list[tuple[int, str]]:
    # What the caller gets; new contents of buffers and inputs are written back where they are made.
    specs = program.signature.outputs
    outputs: tuple[Arg, ...] = program.main.output
    given = [type(spec) in GIVEN for spec in specs] if len(specs) == len(outputs) else [True] * len(outputs)
    pairs = zip(enumerate(outputs), given, strict=True)
    return [(at, chain.value(arg.name)) for (at, arg), is_given in pairs if is_given and type(arg) is Ref]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "no number crosses that can be computed where it is used",
        "tensors are computed in the part in which they were",
    ],
)
def move_non_tensor_nodes(
    program: Program, *, keep: Collection[str] = (), recompute: bool = True, fuel: Fuel = UNLIMITED
) -> Program:
    """Compute sizes, shapes and other numbers in the part that uses them, so that tensors cross and numbers do not.

    Before::

        graph ""        a, n = call @stage0(x);  b = call @stage1(a, n)
        graph "stage0"  (x) { n = aten.sym_size.int(x, 0);  a = aten.relu.default(x);  return (a, n) }

    After::

        graph ""        a = call @stage0(x);  b = call @stage1(a, x)
        graph "stage1"  (a, x) { n = aten.sym_size.int(x, 0);  ... }

    A number stays where it is when an operator of its tree has effects, or reads what is written in between. What a user
    passes as a number stays an input. Where one is made in a module call, the parts are outlined again afterwards.

    Args:
        program: a split program, see ``split_by_tags``.
        keep: parts, by path, that give no operator away.
        recompute: also compute numbers again that several parts need, or that their own part needs for tensors. Otherwise
            operators only move: those that one other part alone needs, with all that depends on them.
        fuel: a rewrite is one number that no longer crosses, those of the last part first.

    Returns:
        The program in which the rest crosses; the order of what has effects is the same.

    Raises:
        UnsupportedProgram: the root of the program does something itself, so it is not split.

    >>> import torch, purefx as px
    >>> from purefx.ir.operators import op_of
    >>> size = px.Node("n", op_of(torch.ops.aten.sym_size.int), (px.Ref("x"), 0))
    >>> use = px.Node("y", op_of(torch.ops.aten.mul.Scalar), (px.Ref("x"), px.Ref("n")))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (size, use), (px.Ref("y"),))})
    >>> split = px.split_by_tags(program, ("stage0", "stage1"), tag_of={"n": "stage0", "y": "stage1"})
    >>> moved = px.move_non_tensor_nodes(split)
    >>> [node.name for node in moved.graphs["stage1"].nodes], moved.graphs["stage0"].nodes
    (['n', 'y'], ())
    """
    chain = chain_of(program, asked_by="move_non_tensor_nodes")
    movable = Movable(program, chain, keep=keep, recompute=recompute)
    if not movable.is_inside_a_call():
        return _moved(program, chain, movable, fuel)
    flat = flat_inside(program)
    chain = chain_of(flat, asked_by="move_non_tensor_nodes")
    moved = _moved(flat, chain, Movable(flat, chain, keep=keep, recompute=recompute), fuel)
    return program if moved is flat else with_bodies_of(program, outlined_inside(moved))


def _moved(program: Program, chain: Chain, movable: Movable, fuel: Fuel) -> Program:
    work = _Moving(program, chain, movable, fuel)
    for number in range(len(chain.parts) - 1, -1, -1):
        work.clear(number)
        work.receive(number)
    if not any(part.changed for part in work.parts):
        return program
    return rebuilt(program, chain, work.parts, metas=work.metas, output={})


class _Moving:
    def __init__(self, program: Program, chain: Chain, movable: Movable, fuel: Fuel) -> None:
        main = program.main
        self.chain = chain
        self.movable = movable
        self.fuel = fuel
        names = main.names()
        self.parts = [OpenPart(part, program.graphs[part.graph], names) for part in chain.parts]
        self.metas = dict(main.metas)
        self.moved: list[set[str]] = [set() for _ in chain.parts]
        """For each part the numbers that others compute now."""
        self.used = {chain.value(name) for name in main.output_refs()}
        """The values of the root that the caller and the parts that are done with use."""

    def receive(self, number: int) -> None:
        """Compute in a part the numbers among its inputs, where possible; later parts are done already."""
        part = self.parts[number]
        known: dict[Place, str] = {}
        """What the part calls values that come from elsewhere."""
        made: list[Node] = []
        instead: dict[str, Arg] = {}
        for formal, actual in list(zip(part.formals, part.actuals, strict=True)):
            tree = self.movable.tree(actual.name, number) if type(actual) is Ref else None
            if tree is None or not self.fuel.burn("compute", repr(formal.name), "in", part.part.path):
                continue
            part.take_no_more(formal)
            goal = tree.nodes[-1][0]
            if goal in known:
                instead[formal.name] = Ref(known[goal])
            self._write(part, tree, formal.name, known, made)
        part.nodes = [*made, *[node.using(instead) for node in part.nodes]]
        part.outputs = [replace_refs(output, instead) for output in part.outputs]
        self.used.update([self.chain.value(actual.name) for actual in part.actuals if type(actual) is Ref])

    def _write(self, part: OpenPart, tree: Tree, wanted: str, known: dict[Place, str], made: list[Node]) -> None:
        goal = tree.nodes[-1][0]
        for place, node in tree.nodes:
            if place in known:
                continue
            args: dict[str, Arg] = {}
            for name in node.refs():
                origin = tree.origins[place[0], name]
                if origin not in known:
                    known[origin] = self._brought(part, origin)
                args[name] = Ref(known[origin])
            known[place] = wanted if place == goal else part.inner.fresh(node.name)
            new = node.using(args)
            made.append(Node(known[place], new.do, new.args, new.kwargs, (), new.meta))  # its module does not run here
            self.moved[place[0]].add(place[1])

    def _brought(self, part: OpenPart, origin: Place) -> str:
        number, name = origin
        if number == ROOT:
            return part.take(name, name, value_only(self.metas[name]))
        meta = self.movable.graphs[number].by_name[name].meta
        value = self.parts[number].give(name, name)
        self.metas.setdefault(value, meta)
        return part.take(value, name, value_only(meta))

    def clear(self, number: int) -> None:
        """Take away what was in a part only for the numbers that others compute now: results, operators and inputs."""
        part, moved = self.parts[number], self.moved[number]
        if not moved:
            return
        pairs = list(zip(part.outputs, part.given, strict=True))
        kept = [(output, name) for output, name in pairs if name in self.used or not _is_one(output, moved)]
        part.outputs, part.given = [output for output, _ in kept], [name for _, name in kept]
        part.nodes, gone = _without(part, moved)
        left = {name for node in part.nodes for name in node.refs()} | set(refs_in(tuple(part.outputs)))
        idle = {name for node in gone for name in node.refs()} - left
        for formal in [formal for formal in part.formals if formal.name in idle]:
            part.take_no_more(formal)
        part.changed = part.changed or len(kept) < len(pairs) or bool(gone)


def _is_one(output: Arg, names: Collection[str]) -> bool:
    return type(output) is Ref and output.name in names


def _without(part: OpenPart, moved: Collection[str]) -> tuple[list[Node], list[Node]]:
    # Backwards: what was moved stays as long as something uses it.
    used = set(refs_in(tuple(part.outputs)))
    kept: list[Node] = []
    gone: list[Node] = []
    for node in reversed(part.nodes):
        if node.name in moved and node.name not in used:
            gone.append(node)
        else:
            used.update(node.refs())
            kept.append(node)
    return kept[::-1], gone
