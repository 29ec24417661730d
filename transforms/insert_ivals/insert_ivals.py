"""``insert_ivals``: pass values across a preserved call signature through state and arguments.

A replacement of a module has access only to its state and its arguments.  So contents of state are written to the state where
they are computed and read where they are used, by (state, version).  A value that is the same object as an argument of the call
is replaced by that argument.  Sizes are recomputed, there and in all other calls.  Any other value stays a boundary value, and is
passed as an extra operand (``lowering/calls/preserved.py``); this is correct, but requires the module that computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import MappingProxyType

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import Ref
from ...ir.effects.resolved import node_effects, storages
from ...ir.graph import Node, Stack
from ...ir.inference import clone_value
from ...ir.operators import CLONE, COPY
from ...ir.origins import copied_meta
from ...ir.own_operators import is_boundary, user_stack
from ...ir.persistent import grouped
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..transformation import UNLIMITED, Fuel, transformation
from .sizes import sizes_again
from .versions import (
    BoundaryValue,
    Chain,
    Leaves,
    StateReads,
    boundary_values,
    chains,
    with_passed_arguments,
)


@transformation(
    proven=True,
    requires={"state sunk", "mutations in place"},
    laws=[
        "no contents of state cross a preserved call signature unnamed",
        "a call takes no size that it can read off what else it takes",
        "only copies, reads and sizes are added, only sizes go",
    ],
)
def insert_ivals(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Pass values that a preserved call signature does not name through state; recompute sizes where they are used.

    Before::

        n = get c.n                          in c
        add = aten.add.Tensor(n, 1)          in c      # the first version of c.n
        c_gives = purefx.gives(y)            in c
        z = aten.mul.Tensor(add, 2)                    # used outside

    After::

        n = get c.n                          in c
        add = aten.add.Tensor(n, 1)          in c
        copy_ = aten.copy_.default(n, add)   in c
        c_gives = purefx.gives(y)            in c
        n_1 = get c.n
        z = aten.mul.Tensor(n_1, 2)

    Args:
        program: a program whose state is sunk and whose mutations are in place; calls that are already outlined are unchanged.
        fuel: a rewrite is one use of an argument, in order; then one use of a recomputed size; then one version of state that is
            written and read, for each piece of state the latest first.

    Returns:
        The program in which the only boundary values are those that no state holds.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.insert_ivals(program) is program
    True
    """
    if not len(program.call_signatures) and {
        type(node.val) for node in program.main.nodes
    }.isdisjoint(SYMBOLIC):
        return program
    leaves = Leaves(program)
    crossed = list(boundary_values(program, leaves)) if len(program.call_signatures) else []
    replaced = with_passed_arguments(program, leaves, crossed, fuel) if crossed else program
    if replaced is not program:
        program, leaves = replaced, Leaves(replaced)
        crossed = list(boundary_values(program, leaves))
    work = _Insertion(program, leaves, fuel)
    work.sizes()
    work.versions(crossed)
    return work.program()


class _Insertion:
    def __init__(self, program: Program, leaves: Leaves, fuel: Fuel) -> None:
        self.source = program
        self.fuel = fuel
        self.graph = program.main
        self.leaves = leaves
        self.edit = Rewriter(self.graph)
        self.sizes_left: set[str] = set()
        """Recomputed sizes, which may be unused now."""
        self.numbers: frozenset[str] = frozenset()
        self.reads = StateReads(program, self.edit)
        self.written: dict[object, list[int]] = {}
        """For each memory the numbers of the nodes that write to it."""
        self.find: Callable[[object], object] = lambda key: key
        self.viewing: list[tuple[str, ...]] = []
        """For each node, the values that its result may share memory with."""

    def program(self) -> Program:
        edit = self.edit
        if edit.idle:
            return self.source
        self.reads.insert()
        edit.erase(*self._unused())
        return self.source.with_main(edit.graph())

    def _unused(self) -> set[str]:
        # Sizes that are unused because they were recomputed.
        if not self.sizes_left:
            return set()
        gone: set[str] = set()
        uses = self.edit.uses
        used = {name for node in self.edit.inserted() for name in node.refs()}
        used.update(
            name for name in self.graph.output_refs() if name not in uses.get(self.edit.end, ())
        )
        for number in range(len(self.graph.nodes) - 1, -1, -1):
            node = self.graph.nodes[number]
            if node.name in self.sizes_left and node.name not in used:
                gone.add(node.name)
                self.sizes_left.update(self.numbers.intersection(node.refs()))
            else:
                used.update(name for name in node.refs() if name not in uses.get(number, ()))
        return gone

    def sizes(self) -> None:
        """Recompute sizes in the calls that use them."""
        found = sizes_again(self.source, self.leaves, self.edit, self.fuel)
        if found is not None:
            self.sizes_left.update(found.again)
            self.numbers = frozenset(found.numbers)

    def versions(self, crossed: Sequence[BoundaryValue]) -> None:
        """Write versions of state to the state, and read them there."""
        waiting = grouped([(crossing.value, crossing) for crossing in crossed])
        if not waiting:
            return
        effects = node_effects(self.source, self.graph)
        find = storages(self.source, self.graph, effects).find
        self.viewing = [node_effect.aliases for node_effect in effects]
        self.find = find
        for number, node_effect in enumerate(effects):
            for name in node_effect.writes:
                self.written.setdefault(find(name), []).append(number)
        for chain in chains(self.source):
            if not waiting.keys().isdisjoint(chain.versions):
                place = find(chain.target)
                users = [
                    number
                    for number, node in enumerate(self.graph.nodes)
                    if any(find(name) == place for name in node.refs())
                ]
                touched = [
                    number
                    for number in users
                    if number != chain.stored and not is_boundary(self.graph.nodes[number])
                ]
                self._store(chain, waiting, touched)

    def _store(
        self, chain: Chain, waiting: dict[str, list[BoundaryValue]], touched: list[int]
    ) -> None:
        # The state holds a version until the next write; other reads of the state must expect that version.
        computed = [self.edit.position[value] for value in chain.versions[:-1]]
        spans = pairwise([*computed, chain.stored, len(self.graph.nodes) + 1])
        for value, (begin, end) in reversed([*zip(chain.versions, spans, strict=True)]):
            inside = [
                crossing for crossing in waiting.get(value, ()) if begin < crossing.used <= end
            ]
            found = [crossing for crossing in inside if self._holds(crossing, chain, begin)]
            is_last = begin == chain.stored
            older = [number for number in touched if number > begin] if not is_last else []
            if (
                not found
                or older
                or not self.fuel.burn("read", value, "from", chain.slot or chain.target)
            ):
                continue
            if not is_last:
                stack = self.graph.nodes[self.edit.position[value]].stack
                args = (Ref(self._reader(chain, stack, begin)), Ref(value))
                meta = copied_meta(self.graph.metas[value])
                self.edit.after(
                    begin, Node(self.edit.names.fresh("copy_"), COPY, args, (), stack, meta)
                )
            for crossing in found:
                self._read_instead(crossing, chain)

    def _holds(self, crossing: BoundaryValue, chain: Chain, begin: int) -> bool:
        # Whether the value that a node stores is still valid when it is used, and the use writes neither.  A value that is a
        # version of two pieces of state is read only once; writes to a view of the state are visible in both.
        value, state = self.find(crossing.value), self.find(chain.target)
        if value == state or crossing.value in self.edit.uses.get(crossing.used, ()):
            return False
        return not any(
            begin < number <= crossing.used
            for memory in (value, state)
            for number in self.written.get(memory, ())
        )

    def _read_instead(self, crossing: BoundaryValue, chain: Chain) -> None:
        count, number = len(self.graph.nodes), crossing.used
        stack: Stack = () if number == count else user_stack(self.graph.nodes[number])
        value = self._reader(chain, stack, number)
        # Views of the value must not change with the state: views of the state are made of a copy.
        if number == count or crossing.value in self.viewing[number]:
            meta = copied_meta(self.graph.metas[crossing.value])
            known = MappingProxyType({**meta, **clone_value(meta)})
            clone = Node(self.edit.names.fresh("clone"), CLONE, (Ref(value),), (), stack, known)
            self.edit.before(number, clone)
            value = clone.name
        self.edit.use(number, crossing.value, Ref(value))

    def _reader(self, chain: Chain, stack: Stack, number: int) -> str:
        if chain.slot is None:
            return chain.target
        return self.reads.read(self.graph.by_name[chain.target], chain.slot, number, stack)
