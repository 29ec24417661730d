"""``relay_skips`` and ``move_non_tensor_nodes``: boundary values between parts are relayed, or recomputed.

Both respect the dependency relation of the whole program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...ir.arguments import Arg, Ref, refs_in, replace_refs
from ...ir.calls.parts import Chain, chain_of
from ...ir.graph import Node
from ...ir.program import Program
from ...ir.signature import GIVEN
from ..shared_bodies import value_only
from ..transformation import UNLIMITED, Fuel, transformation
from .cut import flat_inside, outlined_inside, with_bodies_of
from .movable import ROOT, Movable, Place, Tree
from .part_interface import OpenPart, rebuilt

__all__ = ["move_non_tensor_nodes", "relay_skips"]


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
