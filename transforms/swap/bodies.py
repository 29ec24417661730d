"""Bodies with redirected calls, the bodies of programs that replace a module, and state and modules after a swap.

Each graph is rewritten in one walk.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import Factory, define, evolve, frozen

from ...ir.arguments import Arg, Items, Ref, replace_refs
from ...ir.calls.argument_tree import ArgumentTree, leaf_ranges
from ...ir.calls.call_sites import CallSite
from ...ir.calls.parts import is_part, with_listed
from ...ir.errors import PurefxError, SwapError
from ...ir.forks import cached_property
from ...ir.graph import Call, Get, Graph, Node, Op, Stack
from ...ir.meta import Meta, without_value
from ...ir.names import FROM_ROOT, Names, last_name, parent_of, way_to, word_of
from ...ir.operators import GETITEM
from ...ir.origins import made_of
from ...ir.own_operators import CALL_MODULE, GIVES, PACK, TAKES, UNPACK, attribute_of
from ...ir.program import Module, Program
from ...ir.rewriter import Relocation
from ...ir.signature import UserInput, UserOutput
from ...ir.state import Slot, State, describe_tensor, registered_kind
from ...ir.tensors import TensorIds
from ...ir.verify import check
from ..pipeline import transform


def covering(paths: Container[str], name: str) -> str | None:
    """Return the swapped module at or above a path or a slot; None if it is not swapped.

    >>> covering({"a.b"}, "a.b.weight"), covering({"a.b"}, "a.bc")
    ('a.b', None)
    """
    while name and name not in paths:
        name = parent_of(name)
    return name or None


def found_in(by: torch.nn.Module | Program, path: str) -> Any:
    """Return the module or tensor of a replacement at a path below it; None if none exists.

    >>> found_in(torch.nn.Sequential(torch.nn.ReLU()), "0"), found_in(Program.of({}), "0")
    (ReLU(), None)
    """
    if not isinstance(by, Program):
        return attribute_of(by, path)
    slot = by.state.slots.get(path)
    return None if slot is None else slot.value


def replaced_slot(
    program: Program, path: str, slot: str, by: torch.nn.Module | Program, reader: str
) -> Slot:
    """Return the slot of a replacement that outside readers of a removed slot read instead.

    Raises:
        SwapError: the replacement has no such slot, or one of another kind or type.
    """
    name = slot[len(path) + 1 :]
    value, old = found_in(by, name), program.state[slot]
    prefix = f"module {path!r}: {reader} reads its {name}"
    if not isinstance(value, torch.Tensor):
        raise SwapError(
            f"{prefix}, and its replacement has no such tensor; add one, or swap a module around both"
        )
    mine, theirs = describe_tensor(old.value)[1:3], describe_tensor(value)[1:3]
    if mine != theirs:
        raise SwapError(
            f"{prefix}, which is {mine[0]} {mine[1]}, and its replacement has {theirs[0]} {theirs[1]} there"
        )
    return Slot(registered_kind(value), value, 0, 0)


def new_state(state: State, arrivals: Mapping[str, Mapping[str, Slot]]) -> State:
    """Return the state after a swap; kept names stay in place, and new ones are at the position of the original's first slot.

    Args:
        state: the state before.
        arrivals: the slots of each replacement, by name.
    """
    numbers = TensorIds(state)  # of removed slots too: a replacement may have the same tensor
    waiting = {
        path: {new: slot for new, slot in new_slots.items() if new not in state}
        for path, new_slots in arrivals.items()
    }
    slots: dict[str, Slot] = {}
    for name in state.order:
        path = covering(arrivals, name)
        if path is None:
            slots[name] = state[name]
            continue
        slots.update({new: numbers.renumbered(slot) for new, slot in waiting.pop(path, {}).items()})
        if name in arrivals[path]:
            slots[name] = numbers.renumbered(arrivals[path][name])
    for rest in waiting.values():
        slots.update({new: numbers.renumbered(slot) for new, slot in rest.items()})
    return State.of(slots)


def new_modules(program: Program, arrivals: Mapping[str, tuple[Module, ...]]) -> tuple[Module, ...]:
    """Return the hierarchy after a swap; if a program lists only its parts, it does not change."""
    if all(is_part(module) for module in program.modules):
        return program.modules
    found, waiting = list[Module](), dict(arrivals)
    around = {
        outer for path in arrivals for outer in way_to(path)
    }  # a module around a replacement differs from its alias
    for module in program.modules:
        path = covering(arrivals, module.path)
        stays = (
            evolve(module, cell=None)
            if module.path in around and module.cell is not None
            else module
        )
        found += [stays] if path is None else waiting.pop(path, ())
    rest = [module for waited in waiting.values() for module in waited]
    return with_listed(
        tuple(found),
        [module.path for module in rest],
        {module.path: module.type_name for module in rest},
    )


@frozen
class Graft:
    """A program that replaces a module."""

    path: str
    program: Program
    """It has only user inputs and outputs, and reads its state where it is used."""
    graphs: dict[str, Graph]
    """Its bodies, by their new ids."""
    root: str
    outputs: tuple[int, ...]
    """The leaves of the result that its body returns; the others are constants."""


def prepared(path: str, program: Program) -> Program:
    """Return a program whose root has only user inputs and outputs, in the form of a body.

    Raises:
        SwapError: the program is not valid, or has outputs that no module has.
    """
    try:
        check(program)
        specs = (*program.signature.inputs, *program.signature.outputs)
        plain = all(type(spec) in (UserInput, UserOutput) for spec in specs)
        if not plain or any(node.stack for node in program.main.nodes):
            program = transform(program)
    except PurefxError as error:
        raise SwapError(f"module {path!r}: the program cannot replace it: {error}") from error
    for spec in (*program.signature.inputs, *program.signature.outputs):
        if type(spec) not in (UserInput, UserOutput):
            raise SwapError(
                f"module {path!r}: the signature of the program has a {type(spec).__name__}, which no module has"
            )
    return program


def graft(
    path: str, program: Program, names: Names, order: tuple[int, ...], count: int | None
) -> Graft:
    """Move the bodies of a program below a path.

    Args:
        path: the replaced module.
        program: the result of ``prepared``.
        names: the used ids of graphs.
        order: for each input of the program, its leaf of the call's arguments.
        count: the number of leaves that the call passes; None without a preserved signature, and so without boundaries.
    """
    ids = {
        name: names.fresh(path if name == program.root else f"{path}.{name.lstrip('$')}")
        for name in program.order
    }
    below = Relocation(
        lambda inner: f"{FROM_ROOT}{path}.{inner[1:]}" if inner.startswith(FROM_ROOT) else inner
    )
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        graphs[ids[name]] = graph.with_nodes(
            [below.node(node).calling(ids.__getitem__) for node in graph.nodes]
        )
    body = graphs[ids[program.root]]
    returned = tuple([number for number, leaf in enumerate(body.results) if type(leaf) is Ref])
    nodes = (
        body.nodes if count is None else _with_boundaries(path, body, order, count, body.results)
    )
    left = tuple([body.results[number] for number in returned])
    graphs[ids[program.root]] = Graph(body.inputs, nodes, left[0] if len(left) == 1 else left)
    return Graft(path, program, graphs, ids[program.root], returned)


def _with_boundaries(
    path: str, body: Graph, order: tuple[int, ...], count: int, output: tuple[Arg, ...]
) -> tuple[Node, ...]:
    inputs = {leaf: Ref(formal.name) for leaf, formal in zip(order, body.inputs, strict=True)}
    names = body.names()
    word = word_of(path)
    origin = made_of([node.meta for node in body.nodes])
    takes = Node(
        names.fresh(f"{word}_takes"),
        TAKES,
        tuple([inputs.get(leaf) for leaf in range(count)]),
        meta=origin,
    )
    return (takes, *body.nodes, Node(names.fresh(f"{word}_gives"), GIVES, output, meta=origin))


@frozen(eq=False)
class Swap:
    """A swapped call."""

    site: CallSite
    origin: Meta
    """The provenance of the nodes that replace the call."""
    graft: Graft | None
    """The replacing program; None for a replacing module."""
    order: tuple[int, ...] = ()
    """For a program, the argument leaf of each input."""
    through: frozenset[str] = frozenset()
    """Arguments that the original returned unchanged, and whose later uses mean its result."""
    kept: Mapping[int, str] = MappingProxyType({})
    """Result leaves whose uses mean the argument that was returned: the value, by leaf."""
    called: str = ""
    """For a module, its name and the signature of the call, for error messages about results."""


@frozen(eq=False)
class Decision:
    """The changes of one instance of a body, besides those of its callees."""

    swaps: Mapping[str, Swap]
    """The swaps, by name of the call."""
    slots: Mapping[str, str]
    """The new slots, by name of the read."""

    @property
    def key(self) -> Hashable:
        """A key that is equal for decisions with equal results; None if nothing changes."""
        swaps = [
            (name, id(swap.graft), swap.order, swap.through, tuple(swap.kept.items()))
            for name, swap in self.swaps.items()
        ]
        return (*swaps, *self.slots.items()) or None


@define(eq=False)
class Rewriting:
    """Swaps the calls of a graph."""

    graph: Graph
    """A body."""
    decision: Decision
    """Its changes."""
    nodes: list[Node] = Factory(list)
    known: dict[str, Arg] = Factory(dict)
    """The values that replace others from this node on."""
    results: dict[str, list[Arg]] = Factory(dict)
    """The values that replace the parts of a call with several results."""
    modules: dict[tuple[str, Stack], Ref] = Factory(dict)
    """The reads of modules, by slot and place."""

    @cached_property
    def names(self) -> Names:
        """The names of the new graph."""
        return self.graph.names()

    def run(self) -> Graph:
        """Return the graph with swapped calls; the same object if nothing changes."""
        if self.decision.key is None:
            return self.graph
        for node in self.graph.nodes:
            name, index = node.item
            if node.name in self.decision.swaps:
                self._swap(node, self.decision.swaps[node.name])
            elif name in self.results:
                self.known[node.name] = self.results[name][index]
            else:
                self.nodes.append(self._carried(node))
        return Graph(
            self.graph.inputs, tuple(self.nodes), replace_refs(self.graph.output, self._known())
        )

    def _known(self) -> dict[str, Arg]:
        return self.known | {name: tuple(parts) for name, parts in self.results.items()}

    def _carried(self, node: Node) -> Node:
        # A node that stays, with its new arguments.
        node = node.using(self.known)
        if self.results and not self.results.keys().isdisjoint(node.refs()):
            node = node.using(self._known())
        if node.name in self.decision.slots:
            return node.evolve(do=Get(self.decision.slots[node.name]))
        return node

    def _swap(self, node: Node, swap: Swap) -> None:
        site, convention = swap.site, swap.site.convention
        leaves = [
            self.known.get(leaf.name, leaf) if type(leaf) is Ref else leaf for leaf in site.leaves
        ]
        making = _Making(node, swap, self, self._wanted(node, swap))
        results = (
            making.module_call(leaves)
            if swap.graft is None
            else making.program_call(swap.graft, leaves)
        )
        results.update({leaf: self.known.get(name, Ref(name)) for leaf, name in swap.kept.items()})
        if convention.single:
            self.known[node.name] = results[convention.outputs[0]]
        else:
            self.results[node.name] = [results[leaf] for leaf in convention.outputs]
        self.known.update({name: results[site.through[name]] for name in swap.through})

    def _wanted(self, node: Node, swap: Swap) -> dict[int, Node | None]:
        # The used leaves of the result, each with the node whose name and meta it inherits.
        convention = swap.site.convention
        found: dict[int, Node | None] = dict.fromkeys(
            swap.site.through[name] for name in sorted(swap.through)
        )
        if convention.single:
            return found | {convention.outputs[0]: node}
        users = self.graph.users_of(node.name)
        parts = {
            user.projection[1]: user for user in reversed(users) if user.projection is not None
        }
        return found | {leaf: parts.get(place) for place, leaf in enumerate(convention.outputs)}


@frozen(eq=False)
class _Making:
    """The nodes that replace one call."""

    node: Node
    swap: Swap
    walk: Rewriting
    wanted: dict[int, Node | None]

    def _add(
        self,
        wish: str,
        op: Op | Get | Call,
        args: tuple[Arg, ...],
        like: Node | None = None,
        kwargs: Any = (),
    ) -> Ref:
        meta: Meta = (
            MappingProxyType({**without_value(self.node.meta), **self.swap.origin})
            if like is None
            else like.meta
        )
        name = self.walk.names.fresh(wish) if like is None else like.name
        self.walk.nodes.append(Node(name, op, args, kwargs, self.node.stack, meta))
        return Ref(name)

    @property
    def _word(self) -> str:
        return word_of(last_name(self.swap.site.path))

    def module_call(self, leaves: Sequence[Arg]) -> dict[int, Arg]:
        """Call a module of the state; return the leaves of its result."""
        site, signature, modules = (
            self.swap.site,
            self.swap.site.convention.signature,
            self.walk.modules,
        )
        key = (site.call.instance.path, self.node.stack)
        if key not in modules:
            modules[key] = self._add(f"{self._word}_module", Get(key[0]), ())
        tree = ArgumentTree.of(signature.in_spec)
        pairs = zip(tree.specs, leaf_ranges(tree.specs), strict=True)
        parts = [
            self._argument(spec, leaves[numbers.start : numbers.stop]) for spec, numbers in pairs
        ]
        count = len(tree.positional)
        kwargs = tuple(zip(tree.keyword, parts[count:], strict=True))
        result = self._add(self._word, CALL_MODULE, (modules[key], *parts[:count]), kwargs=kwargs)
        arguments = (result, signature.out_spec, self.swap.called)
        if not self.wanted:
            return {}
        if signature.out_spec.is_leaf():
            return {0: self._add(self._word, UNPACK, arguments, self.wanted[0])}
        return self._parts(
            self._add("leaves", UNPACK, arguments),
            {number: number for number in sorted(self.wanted)},
        )

    def _argument(self, spec: Any, leaves: Sequence[Arg]) -> Arg:
        return leaves[0] if spec.is_leaf() else self._add("packed", PACK, (Items(leaves), spec))

    def _parts(self, whole: Ref, places: Mapping[int, int]) -> dict[int, Arg]:
        # The used leaves of a result, by their places in it.
        items = [(leaf, place) for leaf, place in places.items() if leaf in self.wanted]
        return {
            leaf: self._add(self._word, GETITEM, (whole, place), self.wanted[leaf])
            for leaf, place in items
        }

    def program_call(self, graft: Graft, leaves: Sequence[Arg]) -> dict[int, Arg]:
        """Call the body of a program; return the leaves of its result."""
        call = Call(self.swap.site.call.instance, graft.root)
        args = tuple([leaves[leaf] for leaf in self.swap.order])
        results: dict[int, Arg] = dict(enumerate(graft.program.main.output))  # the constants stay
        if len(graft.outputs) == 1:
            (leaf,) = graft.outputs
            return results | {leaf: self._add(self._word, call, args, self.wanted.get(leaf))}
        whole = self._add(self._word, call, args)
        return results | self._parts(
            whole, {leaf: place for place, leaf in enumerate(graft.outputs)}
        )
