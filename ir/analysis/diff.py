"""``diff`` and ``Diff``: the difference between two programs, as a value that can be printed and applied.

A diff holds only what differs.  Maps are compared by the objects that versions share, graphs node by node with names as
anchors, so diffing two versions of a large program costs as much as their difference and one look at the rest.  It knows
nothing of transformations and ignores meaning: programs that differ in names differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs
from attrs import evolve, field, frozen

from ..arguments import Arg, same_arg, same_tree
from ..displayed import Displayed
from ..errors import DiffError
from ..graph import Graph, Input, Node
from ..persistent import PMap, pmap
from ..program import Program
from ..signature import Signature
from ..state import State
from ..taking import TWO_PROGRAMS
from .hunks import Hunks, hunks, patched

T = TypeVar("T", bound=attrs.AttrsInstance)


@frozen
class Change:
    """The entry of a key before and after; None if there is none.

    >>> Change("m", None, 1).after
    1
    """

    key: Any
    before: Any = field(hash=False)
    after: Any = field(hash=False)


@frozen
class GraphEdit:
    """How one graph changes.

    >>> GraphEdit("").nodes
    ()
    """

    name: str
    inputs: Hunks = ()
    nodes: Hunks = ()
    output: tuple[Arg, Arg] | None = field(default=None, eq=attrs.cmp_using(eq=same_arg), hash=False)
    """Before and after, where they differ."""


@frozen
class Diff(Displayed):
    """The difference between two programs; it prints like a unified diff, in lines of the text form.

    It is true if something differs.  Meta and trails are carried and never compared.

    >>> from purefx.ir import Graph, Input, Op, Program, Ref
    >>> def made(name): return Graph((Input("x"),), (Node("y", Op(name), (Ref("x"),)),), (Ref("y"),))
    >>> print(diff(Program.of({"": made("aten.relu.default")}), Program.of({"": made("aten.tanh.default")})))
    1 graph changed; 1 node changed
    graph @"" changed
    @@ node 0
    - y = aten.relu.default(x)
    + y = aten.tanh.default(x)
    """

    _form = "diff"
    root: tuple[str, str] | None = None
    facts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Facts that are lost, and facts that are new."""
    sequences: tuple[tuple[str, Hunks], ...] = ()
    """What the program has in an order, by the words of the text form: modules, takes, gives ..."""
    specs: tuple[Change, ...] = ()
    slots: tuple[Change, ...] = ()
    signatures: tuple[Change, ...] = ()
    """Preserved call signatures, by module call."""
    graphs: tuple[Change | GraphEdit, ...] = ()
    """A ``Change`` is a graph that is added or removed."""

    def __bool__(self) -> bool:
        return self != NOTHING

    def apply(self, program: Program) -> Program:
        """Return the program after the change.

        Args:
            program: the program that the diff was made from, or another that agrees with it wherever the diff has
                something; it is not changed.

        Returns:
            For the first program of the diff one that equals the second; the same object if nothing differs.  The
            trail is that of ``program``.

        Raises:
            DiffError: the diff does not fit the program; the message has the first place.

        >>> from purefx.ir import Graph, Program
        >>> empty, named = Program.of({"": Graph((), (), ())}), Program.of({"": Graph((Input("x"),), (), ())})
        >>> diff(empty, named).apply(empty) == named
        True
        """
        if not self:
            return program
        if self.root is not None and self.root[0] != program.root:
            raise DiffError(f"the diff does not fit: the root is {program.root!a}, and should be {self.root[0]!a}")
        lost, new = self.facts
        parts = _parts(program)
        parts.update((name, patched(parts[name], found, what=name)) for name, found in self.sequences)
        return program.evolve(
            graphs=_patched_graphs(program.graphs, self.graphs),
            root=program.root if self.root is None else self.root[1],
            state=_evolved(program.state, order=parts["state"], slots=_patched_map(program.state.slots, self.slots, "the state")),
            signature=_patched_signature(program.signature, parts, self.specs),
            modules=parts["modules"],
            call_signatures=_patched_map(program.call_signatures, self.signatures, "the call signatures"),
            constraints=_evolved(program.constraints, ranges=parts["ranges"], guards=parts["guards"]),
            facts=program.facts.difference(lost).union(new),
        )


NOTHING = Diff()


def diff(before: Program, after: Program) -> Diff:
    """Return the difference between two programs.

    Args:
        before: a program at any stage, valid or not.
        after: another one.

    Returns:
        A diff for which ``diff(before, after).apply(before) == after``; empty, and false, for equal programs with equal facts.

    Raises:
        TypeError: one of the two is not a Program.

    >>> from purefx.ir import Graph, Program
    >>> bool(diff(Program.of({"": Graph((), (), ())}), Program.of({"": Graph((), (), ())})))
    False
    """
    for program in (before, after):
        TWO_PROGRAMS.taken(program, "diff")
    if before is after:
        return NOTHING
    mine, theirs = _parts(before), _parts(after)
    found = [(name, hunks(mine[name], theirs[name])) for name in mine]
    specs = [Change(name, getattr(before.signature, name), getattr(after.signature, name)) for name in SPECS]
    frames = sorted({*before.call_signatures, *after.call_signatures}, key=lambda frame: (frame.path, frame.call))
    return Diff(
        root=None if before.root == after.root else (before.root, after.root),
        facts=(tuple(sorted(before.facts - after.facts)), tuple(sorted(after.facts - before.facts))),
        sequences=tuple([(name, edits) for name, edits in found if edits]),
        specs=tuple([change for change in specs if not same_tree(change.before, change.after)]),
        slots=_slot_changes(before.state, after.state),
        signatures=_map_changes(before.call_signatures, after.call_signatures, frames),
        graphs=_graph_changes(before, after),
    )


SPECS = ("in_spec", "out_spec")


def _parts(program: Program) -> dict[str, tuple[Any, ...]]:
    signature, constraints = program.signature, program.constraints
    return {
        "modules": program.modules,
        "state": program.state.order,
        "takes": signature.inputs,
        "gives": signature.outputs,
        "lifted": signature.lifted,
        "names": signature.arg_names,
        "ranges": constraints.ranges,
        "guards": constraints.guards,
    }


def _patched_signature(signature: Signature, parts: Mapping[str, tuple[Any, ...]], specs: Iterable[Change]) -> Signature:
    given = {"inputs": parts["takes"], "outputs": parts["gives"], "lifted": parts["lifted"], "arg_names": parts["names"]}
    for change in specs:
        if getattr(signature, change.key) != change.before:
            raise DiffError(f"the diff does not fit: the {change.key} of the signature is another")
        given[change.key] = change.after
    return _evolved(signature, **given)


def _evolved(value: T, **fields: Any) -> T:
    same = all(getattr(value, name) is found for name, found in fields.items())
    return value if same else evolve(value, **fields)


def _slot_changes(before: State, after: State) -> tuple[Change, ...]:
    if before == after:
        return ()
    listed = dict.fromkeys((*before.order, *after.order))
    # An invalid state may have slots that its order lacks.
    rest = sorted({*before.slots, *after.slots}.difference(listed))
    keys = (*listed, *rest)
    differ = {change.key for change in _map_changes(before.slots, after.slots, keys)}
    if len(before.slots) == len(before.order) and len(after.slots) == len(after.order):
        mine, theirs = (dict(zip(state.order, state.identities, strict=True)) for state in (before, after))
        differ.update(name for name in listed if mine.get(name) != theirs.get(name))
    # Slots that share memory are replaced together: half of them from elsewhere would share nothing.
    for slots in (before.slots, after.slots):
        moved = {slots[name].storage for name in differ if name in slots}
        differ.update(name for name in slots if slots[name].storage in moved)
    return tuple([Change(name, before.slots.get(name), after.slots.get(name)) for name in keys if name in differ])


def _map_changes(before: PMap[Any, Any], after: PMap[Any, Any], keys: Iterable[Any]) -> tuple[Change, ...]:
    if before is after:
        return ()
    pairs = [(key, before.get(key), after.get(key)) for key in keys]
    return tuple([Change(key, mine, theirs) for key, mine, theirs in pairs if mine is not theirs and mine != theirs])


def _patched_map(mapping: PMap[Any, Any], changes: Iterable[Change], what: str) -> PMap[Any, Any]:
    new: dict[Any, Any] = {}
    gone: set[Any] = set()
    for change in changes:
        found = mapping.get(change.key)
        if found is not change.before and found != change.before:
            there = "it is missing" if found is None else "it is there" if change.before is None else "it is another"
            raise DiffError(f"the diff does not fit: {what} {str(change.key)!a}: {there}")
        if change.after is None:
            gone.add(change.key)
        else:
            new[change.key] = change.after
    if gone:
        return pmap({**{key: mapping[key] for key in mapping if key not in gone}, **new})
    return mapping.update(new) if new else mapping


def _graph_changes(before: Program, after: Program) -> tuple[Change | GraphEdit, ...]:
    mine, theirs = before.graphs, after.graphs
    if mine is theirs:
        return ()
    differ = {name for name in (*mine, *theirs) if mine.get(name) is not theirs.get(name)}
    found: list[Change | GraphEdit] = []
    for name in dict.fromkeys((*after.order, *before.order, *sorted(differ))):
        left, right = (mine.get(name), theirs.get(name)) if name in differ else (None, None)
        if left is None or right is None:
            if left is not right:
                found.append(Change(name, left, right))
            continue
        edit = _graph_edit(name, left, right)
        if edit is not None:
            found.append(edit)
    return tuple(found)


def _graph_edit(name: str, before: Graph, after: Graph) -> GraphEdit | None:
    output = None if same_arg(before.output, after.output) else (before.output, after.output)
    inputs = hunks(before.inputs, after.inputs, key=_name)
    nodes = hunks(before.nodes, after.nodes, key=_name)
    return GraphEdit(name, inputs, nodes, output) if inputs or nodes or output is not None else None


def _name(item: Node | Input) -> str:
    return item.name


def _patched_graphs(graphs: PMap[str, Graph], edits: Iterable[Change | GraphEdit]) -> PMap[str, Graph]:
    changes = [edit if isinstance(edit, Change) else _as_change(graphs, edit) for edit in edits]
    return _patched_map(graphs, changes, "graph")


def _as_change(graphs: PMap[str, Graph], edit: GraphEdit) -> Change:
    graph, what = graphs.get(edit.name), f"graph {edit.name!a}"
    if graph is None:
        raise DiffError(f"the diff does not fit: {what}: it is missing")
    if edit.output is not None and not same_arg(graph.output, edit.output[0]):
        raise DiffError(f"the diff does not fit: {what} returns something else")
    inputs = patched(graph.inputs, edit.inputs, what=f"inputs of {what}")
    nodes = patched(graph.nodes, edit.nodes, what=f"nodes of {what}")
    return Change(edit.name, graph, Graph(inputs, nodes, graph.output if edit.output is None else edit.output[1]))
