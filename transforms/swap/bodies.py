"""Bodies with redirected calls, the bodies of programs that replace a module, and state and modules after a swap.

Each graph is rewritten in one walk.  Leaves are packed into the pytrees of the original.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, evolve, frozen

from ...ir.arguments import Arg, Items, Record, Ref, refs_in, replace_refs
from ...ir.calls.argument_tree import ArgumentTree, leaf_ranges
from ...ir.calls.call_sites import CallSite
from ...ir.calls.parts import is_part, with_listed
from ...ir.errors import PurefxError, SwapError
from ...ir.graph import Call, Frame, Get, Graph, Node, Op, Stack
from ...ir.meta import Meta
from ...ir.names import FROM_ROOT, Names, way_to, word_of
from ...ir.operators import GETITEM
from ...ir.origins import made_of
from ...ir.own_operators import CALL_MODULE, GIVES, PACK, TAKES, UNPACK, attribute_of
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Module, Program
from ...ir.rewriter import Relocation
from ...ir.signature import SunkInput, UserInput, UserOutput
from ...ir.state import Slot, SlotKind, State, describe_tensor
from ...ir.tensors import TensorIds
from ...ir.verify import check
from ..pipeline import transform
from ..shared_bodies import without_values

__all__ = [
    "Changes",
    "Graft",
    "Swap",
    "checked_interface",
    "covering",
    "found_in",
    "graft",
    "new_modules",
    "new_state",
    "prepared",
    "rewritten",
    "stands_for",
]

PLAIN_KEYS = (str, int, bool, type(None))

Emit = Callable[[str, Op, tuple[Arg, ...]], Ref]
"""Adds a node with a preferred name, and returns its value."""


@define
class Packing:
    """Makes arguments in one graph."""

    emit: Emit

    def arguments(self, in_spec: Any, leaves: Sequence[Arg]) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
        """Return the positional and the keyword arguments that leaves make up."""
        tree = ArgumentTree.of(in_spec)
        parts = self._parts(tree.specs, leaves)
        count = len(tree.positional)
        return tuple(parts[:count]), tuple(zip(tree.keyword, parts[count:], strict=True))

    def _parts(self, specs: Sequence[Any], leaves: Sequence[Arg]) -> list[Arg]:
        pairs = zip(specs, leaf_ranges(specs), strict=True)
        return [self.argument(spec, leaves[numbers.start : numbers.stop]) for spec, numbers in pairs]

    def argument(self, spec: Any, leaves: Sequence[Arg]) -> Arg:
        """Return one argument.  Nesting is what a caller of the original wrote, so it is shallow."""
        if spec.is_leaf():
            return leaves[0]
        if spec.type not in (tuple, list, dict) or not all(type(key) in PLAIN_KEYS for key in spec.context or ()):
            return self.emit("packed", PACK, (Items(leaves), spec))
        parts = self._parts(spec.children(), leaves)
        if spec.type is dict:
            return Record(tuple(zip(spec.context, parts, strict=True)))
        return Items(parts) if spec.type is list else tuple(parts)


def covering(paths: Container[str], name: str) -> str | None:
    """Return the swapped module that a path or a slot is at or below; None for one that stays.

    >>> covering({"a.b"}, "a.b.weight"), covering({"a.b"}, "a.bc")
    ('a.b', None)
    """
    while name and name not in paths:
        name = name.rpartition(".")[0]
    return name or None


def found_in(by: torch.nn.Module | Program, path: str) -> Any:
    """Return what a replacement has at a path below it: a module or a tensor that others use; None if there is nothing.

    >>> found_in(torch.nn.Sequential(torch.nn.ReLU()), "0"), found_in(Program.of({}), "0")
    (ReLU(), None)
    """
    if not isinstance(by, Program):
        return attribute_of(by, path)
    slot = by.state.slots.get(path)
    return None if slot is None else slot.value


def stands_for(program: Program, path: str, slot: str, by: torch.nn.Module | Program, reader: str) -> Slot:
    """Return what a reader outside of a swapped module reads from now on, under the name of a slot that went with it.

    Raises:
        SwapError: the replacement has nothing of that name, or something else.
    """
    name = slot[len(path) + 1 :]
    value, old = found_in(by, name), program.state[slot]
    said = f"module {path!r}: {reader} reads its {name}"
    if not isinstance(value, torch.Tensor):
        raise SwapError(f"{said}, and its replacement has no such tensor; give it one, or swap a module around both")
    mine, theirs = describe_tensor(old.value)[1:3], describe_tensor(value)[1:3]
    if mine != theirs:
        raise SwapError(f"{said}, which is {mine[0]} {mine[1]}, and its replacement has {theirs[0]} {theirs[1]} there")
    kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
    return Slot(kind, value, 0, 0)


def new_state(state: State, arrivals: Mapping[str, Mapping[str, Slot]]) -> State:
    """Return the state with that of what was swapped in.

    Args:
        state: the state before.
        arrivals: for each swapped module, the slots that come, by name.
    """
    numbers = TensorIds(state)  # those that go too: what comes may be the same tensor
    stays = {name: covering(arrivals, name) for name in state.order}
    # A name that was there before keeps its place; new ones come where the first of their module was.
    waiting = {path: {new: slot for new, slot in slots.items() if new not in state} for path, slots in arrivals.items()}
    slots: dict[str, Slot] = {}
    for name, path in stays.items():
        if path is None:
            slots[name] = state[name]
            continue
        slots.update({new: numbers.renumbered(slot) for new, slot in waiting.pop(path, {}).items()})
        if name in arrivals[path]:
            slots[name] = numbers.renumbered(arrivals[path][name])
    for rest in waiting.values():
        slots.update({new: numbers.renumbered(slot) for new, slot in rest.items()})
    return State(tuple(slots), pmap(slots))


def new_modules(program: Program, arrivals: Mapping[str, tuple[Module, ...]]) -> tuple[Module, ...]:
    """Return the hierarchy with that of what was swapped in; a program that lists none beside its parts lists none then."""
    if all(is_part(module) for module in program.modules):
        return program.modules
    found: list[Module] = []
    waiting = dict(arrivals)
    around = {outer for path in arrivals for outer in way_to(path)}  # what holds a replacement is no longer one with its alias
    for module in program.modules:
        path = covering(arrivals, module.path)
        stays = evolve(module, cell=None) if module.path in around and module.cell is not None else module
        found += [stays] if path is None else waiting.pop(path, ())
    rest = [module for waited in waiting.values() for module in waited]
    return with_listed(tuple(found), [module.path for module in rest], {module.path: module.type_name for module in rest})


def new_lifted(program: Program, paths: set[str], state: State) -> tuple[SunkInput, ...]:
    """Return the inputs that ``sink_state`` took away, as far as their state is still there."""
    return tuple([place for place in program.signature.lifted if covering(paths, place.slot) is None and place.slot in state])


@frozen
class Graft:
    """A program that stands in place of a module."""

    path: str
    program: Program
    """With inputs and outputs of the user only, its state read where it is used."""
    graphs: dict[str, Graph]
    """Its bodies, by the ids that they get."""
    root: str
    outputs: tuple[int, ...]
    """The leaves of the result that its body returns; the others are constants."""

    def call_signatures(self) -> dict[Frame, CallSignature]:
        """Return the preserved call signatures inside of it, by their calls here."""
        inner = self.program.call_signatures
        return {evolve(frame, path=f"{self.path}.{frame.path}"): inner[frame] for frame in inner}


def prepared(path: str, program: Program) -> Program:
    """Return a program whose root has only user inputs and outputs, in the form of a body.

    Raises:
        SwapError: it is not valid, or has other outputs than a module.
    """
    try:
        check(program)
        specs = (*program.signature.inputs, *program.signature.outputs)
        plain = all(type(spec) in (UserInput, UserOutput) for spec in specs)
        if not plain or any(node.stack for node in program.main.nodes):
            program = transform(program)
    except PurefxError as error:
        raise SwapError(f"module {path!r}: the program that shall stand in for it cannot: {error}") from error
    return checked_interface(path, program)


def checked_interface(path: str, program: Program) -> Program:
    """Return a program that stands in for a module, whose root has only user inputs and outputs.

    Raises:
        SwapError: it has others.
    """
    for spec in (*program.signature.inputs, *program.signature.outputs):
        if type(spec) not in (UserInput, UserOutput):
            said = f"the program has a {type(spec).__name__} in its signature, which no module has; give one without"
            raise SwapError(f"module {path!r}: {said}")
    return program


def graft(path: str, program: Program, names: Names, order: tuple[int, ...], count: int | None) -> Graft:
    """Return the bodies of a program as they read at a path.

    Args:
        path: the module whose place it takes.
        program: what ``prepared`` gave.
        names: the ids of graphs that are taken.
        order: for each input of the program, the leaf of the call's arguments that it is.
        count: how many leaves the call passes; None if its signature was not preserved, so no boundaries say which.
    """
    ids = {name: names.fresh(path if name == program.root else f"{path}.{name.lstrip('$')}") for name in program.order}
    below = Relocation(lambda inner: f"{FROM_ROOT}{path}.{inner[1:]}" if inner.startswith(FROM_ROOT) else inner)
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        graphs[ids[name]] = graph.with_nodes([below.node(node).calling(ids.__getitem__) for node in graph.nodes])
    body = graphs[ids[program.root]]
    output = body.output if type(body.output) is tuple else (body.output,)
    given = tuple([number for number, leaf in enumerate(output) if type(leaf) is Ref])
    nodes = body.nodes if count is None else _with_boundaries(path, body, order, count, output)
    left = tuple([output[number] for number in given])
    graphs[ids[program.root]] = Graph(body.inputs, nodes, left[0] if len(left) == 1 else left)
    return Graft(path, program, graphs, ids[program.root], given)


def _with_boundaries(path: str, body: Graph, order: tuple[int, ...], count: int, output: tuple[Arg, ...]) -> tuple[Node, ...]:
    inputs = {leaf: Ref(formal.name) for leaf, formal in zip(order, body.inputs, strict=True)}
    taken = body.names()
    word = word_of(path)
    origin = made_of([node.meta for node in body.nodes])
    takes = Node(taken.fresh(f"{word}_takes"), TAKES, tuple([inputs.get(leaf) for leaf in range(count)]), meta=origin)
    gives = Node(taken.fresh(f"{word}_gives"), GIVES, output, meta=origin)
    return (takes, *body.nodes, gives)


@frozen(eq=False)
class Swap:
    """A call that is swapped."""

    site: CallSite
    origin: Meta
    """What the call was made of, for nodes that take its place."""
    graft: Graft | None
    """The program that stands in; None for a module that the program then holds."""
    order: tuple[int, ...] = ()
    """For a program, the leaf that each of its inputs is."""
    through: frozenset[str] = frozenset()
    """Values that the original returned as they were, and that mean its result from here on."""
    kept: Mapping[int, str] = MappingProxyType({})
    """Leaves of the result that were an argument, and mean that: the value, by leaf."""
    called: str = ""
    """For a module, which one is called and how, for the error about another result."""


@frozen(eq=False)
class Changes:
    """The changes of one body at one instance."""

    swaps: Mapping[str, Swap]
    """By name of the call."""
    callees: Mapping[tuple[str, str], str]
    """What a called body has become, by name of the node and the body."""
    slots: Mapping[str, str]
    """What is read instead, by name of the read."""


def rewritten(graph: Graph, changes: Changes) -> Graph:
    """Return a graph with its calls swapped."""
    return _Rewriting(graph, changes).run()


class _Rewriting:
    def __init__(self, graph: Graph, changes: Changes) -> None:
        self.graph = graph
        self.changes = changes
        self.names = graph.names()
        self.nodes: list[Node] = []
        self.known: dict[str, Arg] = {}
        """What stands for values from the point of the walk on."""
        self.results: dict[str, list[Arg]] = {}
        """What stands for the parts of a call that gave several."""
        self.parts: set[str] = set()
        """Nodes that were added and only take something apart."""
        self.modules: dict[tuple[str, Stack], str] = {}
        """The reads of modules, by slot and place."""
        self.at: Node = graph.nodes[0]
        self.packing = Packing(self._add)

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.at = node
            swap = self.changes.swaps.get(node.name)
            if swap is not None:
                self._swap(node, swap)
            elif not self._is_part(node):
                self.nodes.append(self._carried(node))
        known = self._known()
        output = replace_refs(self.graph.output, known)
        return Graph(self.graph.inputs, self._used(output), output)

    def _used(self, output: Arg) -> tuple[Node, ...]:
        # A container of which nothing is used need not be unpacked.
        used = set(refs_in((output,)))
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node.name in used or node.name not in self.parts:
                used.update(node.refs())
                kept.append(node)
        return tuple(reversed(kept))

    def _known(self) -> dict[str, Arg]:
        return self.known | {name: tuple(parts) for name, parts in self.results.items()}

    def _add(self, wish: str, op: Op, args: tuple[Arg, ...]) -> Ref:
        name = self.names.fresh(wish)
        self.parts.add(name)
        meta = MappingProxyType({**without_values(self.at.meta), **self.changes.swaps[self.at.name].origin})
        self.nodes.append(Node(name, op, args, (), self.at.stack, meta))
        return Ref(name)

    def _carried(self, node: Node) -> Node:
        # A node that stays, with what stands for the values that it uses.
        node = node.using(self.known)
        if self.results and not self.results.keys().isdisjoint(node.refs()):
            node = node.using(self._known())
        callees, do = self.changes.callees, node.do
        if type(do) is Get and node.name in self.changes.slots:
            return node.evolve(do=Get(self.changes.slots[node.name]))
        return node.calling(lambda graph: callees.get((node.name, graph), graph))

    def _is_part(self, node: Node) -> bool:
        # One of several results of a swapped call is there already, or is given the name that it had.
        name, index = node.projection or ("", 0)
        if name not in self.results:
            return False
        self.known[node.name] = self.results[name][index]
        return True

    def _swap(self, node: Node, swap: Swap) -> None:
        site, convention = swap.site, swap.site.convention
        leaves = [self.known.get(leaf.name, leaf) if type(leaf) is Ref else leaf for leaf in site.leaves]
        wanted = self._wanted(node, swap)
        given = (
            self._to_module(node, site, leaves, wanted) if swap.graft is None else self._to_program(node, swap, leaves, wanted)
        )
        given.update({leaf: self.known.get(name, Ref(name)) for leaf, name in swap.kept.items()})
        if convention.single:
            self.known[node.name] = given[convention.outputs[0]]
        else:
            self.results[node.name] = [given[leaf] for leaf in convention.outputs]
        self.known.update({name: given[site.through[name]] for name in swap.through})

    def _wanted(self, node: Node, swap: Swap) -> dict[int, Node | None]:
        # The leaves of the result that somebody uses, each with the node whose name and meta it takes over.
        convention = swap.site.convention
        found: dict[int, Node | None] = dict.fromkeys(swap.site.through[name] for name in sorted(swap.through))
        if convention.single:
            return found | {convention.outputs[0]: node}
        users = [self.graph.by_name[name] for name in self.graph.users.get(node.name, ())]
        parts = {user.projection[1]: user for user in reversed(users) if user.projection is not None}
        return found | {leaf: parts.get(place) for place, leaf in enumerate(convention.outputs)}

    def _leaf(self, site: CallSite, whole: Ref, place: int, like: Node | None) -> Ref:
        if like is None:
            return self._add(_wish(site), GETITEM, (whole, place))
        self.parts.add(like.name)
        self.nodes.append(Node(like.name, GETITEM, (whole, place), (), self.at.stack, like.meta))
        return Ref(like.name)

    def _to_module(self, node: Node, site: CallSite, leaves: list[Arg], wanted: dict[int, Node | None]) -> dict[int, Arg]:
        swap, signature = self.changes.swaps[node.name], site.convention.signature
        module = self._read(site)
        args, kwargs = self.packing.arguments(signature.in_spec, leaves)
        name = self.names.fresh(_wish(site))
        meta = MappingProxyType({**without_values(node.meta), **swap.origin})
        self.nodes.append(Node(name, CALL_MODULE, (Ref(module), *args), kwargs, node.stack, meta))
        if not wanted:
            return {}
        taken = (Ref(name), signature.out_spec, swap.called)
        if signature.out_spec.is_leaf():
            like = wanted[0]
            if like is None:
                return {0: self._add(_wish(site), UNPACK, taken)}
            self.nodes.append(Node(like.name, UNPACK, taken, (), node.stack, like.meta))
            return {0: Ref(like.name)}
        whole = self._add("leaves", UNPACK, taken)
        return {number: self._leaf(site, whole, number, wanted[number]) for number in sorted(wanted)}

    def _read(self, site: CallSite) -> str:
        slot, stack = site.call.instance.path, self.at.stack
        found = self.modules.get((slot, stack))
        if found is None:
            found = self.modules[slot, stack] = self.names.fresh(f"{_wish(site)}_module")
            self.nodes.append(Node(found, Get(slot), (), (), stack))
        return found

    def _to_program(self, node: Node, swap: Swap, leaves: list[Arg], wanted: dict[int, Node | None]) -> dict[int, Arg]:
        graft, site = swap.graft, swap.site
        assert graft is not None
        frame = Frame(site.call.instance.path, site.call.instance.call)
        args = tuple([leaves[leaf] for leaf in swap.order])
        single = len(graft.outputs) == 1
        like = wanted.get(graft.outputs[0]) if single else None
        name = self.names.fresh(_wish(site)) if like is None else like.name
        meta = without_values(node.meta) if like is None else like.meta
        self.nodes.append(Node(name, Call(frame, graft.root), args, (), node.stack, meta))
        given: dict[int, Arg] = dict(enumerate(graft.program.main.output))  # the constants stay
        if single:
            return given | {graft.outputs[0]: Ref(name)}
        for place, number in enumerate(graft.outputs):
            if number in wanted:
                given[number] = self._leaf(site, Ref(name), place, wanted[number])
        return given


def _wish(site: CallSite) -> str:
    return word_of(site.path.rpartition(".")[2])
