"""``diff``, ``Diff`` and ``print_diff``: the difference between two programs, as a value that prints like a unified diff.

A diff holds the differences only, and its cost grows with them: maps are compared by shared objects, graphs node by node
with names as anchors.  Programs that differ in names differ.  Each line of the text is a line of the text form after
``-``, ``+`` or a blank, with two lines of context around each change; it cannot be parsed back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import attrs
from attrs import field, frozen

from ..arguments import Arg, same_arg
from ..graph import Graph, Node
from ..persistent import Displayed, PMap, pmap, text_of
from ..program import Program
from ..state import State
from ..text.arguments import print_arg, print_tree
from ..text.contract import INPUT, MODULE, OUTPUT, RANGE, SUNK, print_call_signatures, print_expr
from ..text.lexer import spell_path, spell_value
from ..text.printer import print_graph, print_node
from ..text.state import print_slot
from ..validation import TWO_PROGRAMS

AROUND = 2
"""The number of context items before and after a hunk, unless another hunk is nearer."""


@frozen
class Hunk:
    """One place at which a sequence changes.

    >>> Hunk(3, removed=("a",)).added
    ()
    """

    start: int
    """The position of the change in the sequence before."""
    removed: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()
    above: tuple[Any, ...] = ()
    """Unchanged items right before the change."""
    below: tuple[Any, ...] = ()
    """Unchanged items right after it."""


Hunks = tuple[Hunk, ...]


def hunks(before: Sequence[Any], after: Sequence[Any]) -> Hunks:
    """Return the hunks that turn one sequence into another, from the first place to the last; none for equal sequences.

    >>> [(hunk.start, hunk.removed, hunk.added) for hunk in hunks("abcdef", "abXdfg")]
    [(2, ('c',), ('X',)), (4, ('e',), ()), (6, (), ('g',))]
    """
    if before is after:
        return ()
    matched = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    found = [
        Hunk(start, tuple(before[start:end]), tuple(after[first:last]))
        for tag, start, end, first, last in matched
        if tag != "equal"
    ]
    return _with_surroundings(before, found)


def _with_surroundings(before: Sequence[Any], found: list[Hunk]) -> Hunks:
    free = 0
    for number, hunk in enumerate(found):
        end = hunk.start + len(hunk.removed)
        limit = found[number + 1].start if number + 1 < len(found) else len(before)
        above = tuple(before[max(free, hunk.start - AROUND) : hunk.start])
        free = min(end + AROUND, limit)
        below = tuple(before[end:free])
        found[number] = Hunk(hunk.start, hunk.removed, hunk.added, above, below)
    return tuple(found)


@frozen
class Change:
    """The entry of a key before and after; None if it is missing.

    >>> Change("m", None, 1).after
    1
    """

    key: Any
    before: Any = field(hash=False)
    after: Any = field(hash=False)


@frozen
class GraphEdit:
    """The changes of one graph.

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

    >>> from purefx.ir import Graph, Input, Node, Op, Program, Ref
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
    """Hunks of ordered fields, by their keyword in the text form: modules, takes, gives ..."""
    specs: tuple[Change, ...] = ()
    slots: tuple[Change, ...] = ()
    signatures: tuple[Change, ...] = ()
    """Preserved call signatures, by module call."""
    graphs: tuple[Change | GraphEdit, ...] = ()
    """A ``Change`` is a graph that is added or removed."""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Diff()


def diff(before: Program, after: Program) -> Diff:
    """Return the difference between two programs.

    Args:
        before: a program at any stage, valid or not.
        after: another one.

    Returns:
        The differences; empty, and false, for equal programs with equal facts.

    Raises:
        TypeError: one of the two is not a Program.

    >>> from purefx.ir import Graph, Program
    >>> bool(diff(Program.of({"": Graph((), (), ())}), Program.of({"": Graph((), (), ())})))
    False
    """
    for program in (before, after):
        TWO_PROGRAMS.check(program, "diff")
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
        specs=tuple([change for change in specs if change.before != change.after]),
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
    return tuple([Change(name, before.slots.get(name), after.slots.get(name)) for name in keys if name in differ])


def _map_changes(before: PMap[Any, Any], after: PMap[Any, Any], keys: Iterable[Any]) -> tuple[Change, ...]:
    if before is after:
        return ()
    pairs = [(key, before.get(key), after.get(key)) for key in keys]
    return tuple([Change(key, mine, theirs) for key, mine, theirs in pairs if mine is not theirs and mine != theirs])


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
    inputs = hunks(before.inputs, after.inputs)
    nodes = hunks(before.nodes, after.nodes)
    return GraphEdit(name, inputs, nodes, output) if inputs or nodes or output is not None else None


def print_diff(diff: Diff) -> str:
    r"""Return a diff as text.

    Args:
        diff: the result of ``purefx.diff``.

    Returns:
        Lines of printable ASCII, the same in every process: a summary, then each change.

    >>> print_diff(Diff(facts=((), ("flat",))))
    'facts changed\nfacts\n+ flat'
    """
    lines = [summary(diff)]
    if diff.root is not None:
        lines += ["root", *[f"{sign} @{spell_path(name)}" for sign, name in zip("-+", diff.root, strict=True)]]
    if any(diff.facts):
        lines += ["facts", *_signed("-", map(spell_path, diff.facts[0])), *_signed("+", map(spell_path, diff.facts[1]))]
    for name, found in diff.sequences:
        lines += [name, *_hunks(found, "entry", PRINTERS[name])]
    lines += _changed_slots(diff)
    for change in diff.specs:
        lines += [str(change.key), *_pair(change, lambda spec: ["none" if spec is None else print_tree(spec)])]
    for change in diff.signatures:
        lines += ["signature", *_pair(change, lambda found, key=change.key: print_call_signatures(pmap({key: found})))]
    for edit in diff.graphs:
        lines += _graph(edit)
    return "\n".join(lines)


def summary(diff: Diff) -> str:
    """Return a one-line summary of a diff.

    >>> summary(Diff()), summary(Diff(root=("", "a")))
    ('nothing differs', 'root changed')
    """
    graphs: dict[str, int] = dict.fromkeys(KINDS, 0)
    nodes: dict[str, int] = dict.fromkeys(KINDS, 0)
    for edit in diff.graphs:
        if isinstance(edit, Change):
            graphs["added" if edit.before is None else "removed"] += 1
            continue
        graphs["changed"] += 1
        for kind, names in fates(edit.nodes).items():
            nodes[kind] += len(names)
    parts = [
        f"{count} {word}{'' if count == 1 else 's'} {kind}"
        for word, counts in (("graph", graphs), ("node", nodes))
        for kind, count in counts.items()
        if count
    ]
    words = ["root"] if diff.root is not None else []
    words += ["facts"] if any(diff.facts) else []
    words += [name for name, _ in diff.sequences if name != "state"]
    words += ["state"] if diff.slots or "state" in dict(diff.sequences) else []
    words += [change.key for change in diff.specs]
    words += ["call signatures"] if diff.signatures else []
    parts += [f"{', '.join(words)} changed"] if words else []
    return "; ".join(parts) or "nothing differs"


KINDS = ("added", "removed", "changed", "moved")


def fates(found: Hunks) -> dict[str, list[str]]:
    """Return the names of the nodes that are added, removed, changed or moved.

    A node that is removed at one place and added at another under the same name is moved or changed.

    Args:
        found: the hunks of the nodes of one graph.

    >>> fates(())
    {'added': [], 'removed': [], 'changed': [], 'moved': []}
    """
    gone = {node.name: node for hunk in found for node in hunk.removed}
    new = {node.name: node for hunk in found for node in hunk.added}
    fates: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, node in new.items():
        fates["added" if name not in gone else "moved" if gone[name] == node else "changed"].append(name)
    fates["removed"] = [name for name in gone if name not in new]
    return fates


PRINTERS: Mapping[str, Callable[[Any], str]] = {
    "modules": MODULE.write,
    "state": spell_path,
    "takes": INPUT.write,
    "gives": OUTPUT.write,
    "lifted": SUNK.write,
    "names": spell_path,
    "ranges": RANGE.write,
    "guards": print_expr,
}


def _changed_slots(diff: Diff) -> list[str]:
    lines: list[str] = []
    for change in diff.slots:
        text = [print_slot(change.key, slot) for slot in (change.before, change.after) if slot is not None]
        if len(text) == 2 and text[0] == text[1]:
            lines.append(f"  {text[0]}  ; other contents")
        else:
            lines += _pair(change, lambda slot, key=change.key: [print_slot(key, slot)])
    return ["slots", *lines] if lines else []


def _pair(change: Change, printed: Callable[[Any], Iterable[str]]) -> list[str]:
    lines: list[str] = []
    for sign, value in (("-", change.before), ("+", change.after)):
        if value is not None:
            lines += _signed(sign, printed(value))
    return lines


def _signed(sign: str, lines: Iterable[str]) -> list[str]:
    return [f"{sign} {line}" for line in lines]


def _hunks(found: Hunks, word: str, printed: Callable[[Any], str]) -> list[str]:
    lines: list[str] = []
    for hunk in found:
        lines.append(f"@@ {word} {hunk.start}")
        for sign, items in ((" ", hunk.above), ("-", hunk.removed), ("+", hunk.added), (" ", hunk.below)):
            lines += _signed(sign, map(printed, items))
    return lines


def _graph(edit: Change | GraphEdit) -> list[str]:
    if isinstance(edit, Change):
        sign, graph = ("+", edit.after) if edit.before is None else ("-", edit.before)
        assert type(graph) is Graph
        word = "added" if sign == "+" else "removed"
        return [f"graph @{spell_path(edit.key)} {word}", *_signed(sign, print_graph(graph, name=edit.key).splitlines())]
    moved = set(fates(edit.nodes)["moved"])

    def node_line(node: Node) -> str:
        return print_node(node) + ("  ; moved" if node.name in moved else "")

    lines = [f"graph @{spell_path(edit.name)} changed", *_hunks(edit.inputs, "input", lambda formal: spell_value(formal.name))]
    lines += _hunks(edit.nodes, "node", node_line)
    if edit.output is not None:
        lines += ["@@ return", *[f"{sign} return {print_arg(arg)}" for sign, arg in zip("-+", edit.output, strict=True)]]
    return lines


text_of.register(Diff, print_diff)
