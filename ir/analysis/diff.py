"""``diff``, ``Diff`` and ``print_diff``: the difference between two programs, as a value that prints like a unified diff.

A diff holds the differences only, and its cost grows with them: maps are compared by shared objects, graphs node by node
with names as anchors.  Programs that differ in names differ.  Each line of the text is a line of the text form after
``-``, ``+`` or a blank, with two lines of context around each change; it cannot be parsed back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

from attrs import field, frozen

from ..arguments import same_arg
from ..graph import Graph, Node
from ..persistent import Displayed, text_of
from ..program import Program
from ..state import State, same_value
from ..text.arguments import print_arg
from ..text.contract import print_sections
from ..text.lexer import spell_path, spell_value
from ..text.programs import counted, print_graph, print_node
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
        found[number] = Hunk(hunk.start, hunk.removed, hunk.added, above, tuple(before[end:free]))
    return tuple(found)


@frozen
class GraphEdit:
    """The changes of one graph.  An added graph has no ``before``, a removed graph no ``after``.

    >>> GraphEdit("", None, None).nodes
    ()
    """

    name: str
    before: Graph | None = field(hash=False, repr=False)
    after: Graph | None = field(hash=False, repr=False)
    inputs: Hunks = ()
    nodes: Hunks = ()


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
    sections: tuple[tuple[str, Hunks], ...] = ()
    """Hunks of the lines of each section of the text form, by its keyword: root, facts, modules, state ..."""
    contents: tuple[str, ...] = ()
    """Slots that differ in their values alone."""
    graphs: tuple[GraphEdit, ...] = ()

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
    mine, theirs = print_sections(before, after), print_sections(after, before)
    found = [
        (word, hunks(_inside(word, mine[word]), _inside(word, theirs[word])))
        for word in mine
        if word != "facts"
    ]
    lost, new = (
        tuple(map(spell_path, sorted(facts)))
        for facts in (before.facts - after.facts, after.facts - before.facts)
    )
    return Diff(
        tuple(
            [("facts", (Hunk(0, lost, new),))] * bool(lost or new)
            + [(word, edits) for word, edits in found if edits]
        ),
        _other_contents(before.state, after.state, mine["state"], theirs["state"]),
        _graph_edits(before, after),
    )


def _inside(word: str, lines: list[str]) -> list[str]:
    # The lines of a section without its keyword and braces.
    return (
        [line.removeprefix("  ") for line in lines[1:-1]]
        if len(lines) > 1
        else [line[len(word) + 1 :] for line in lines]
    )


def _other_contents(
    before: State, after: State, mine: list[str], theirs: list[str]
) -> tuple[str, ...]:
    if before.slots is after.slots:
        return ()
    both = [
        (name, before[name].value, after[name].value)
        for name in before.order
        if name in before and name in after
    ]
    first = dict(zip(before.order, _inside("state", mine), strict=False))
    second = dict(zip(after.order, _inside("state", theirs), strict=False))
    return tuple(
        [
            name
            for name, old, new in both
            if first[name] == second.get(name) and not same_value(old, new)
        ]
    )


def _graph_edits(before: Program, after: Program) -> tuple[GraphEdit, ...]:
    mine, theirs = before.graphs, after.graphs
    if mine is theirs:
        return ()
    differ = {name for name in (*mine, *theirs) if mine.get(name) is not theirs.get(name)}
    found: list[GraphEdit] = []
    for name in dict.fromkeys((*after.order, *before.order, *sorted(differ))):
        left, right = (mine.get(name), theirs.get(name)) if name in differ else (None, None)
        if left is not None and right is not None:
            edit = GraphEdit(
                name, left, right, hunks(left.inputs, right.inputs), hunks(left.nodes, right.nodes)
            )
            found += (
                [edit]
                if edit.inputs or edit.nodes or not same_arg(left.output, right.output)
                else []
            )
        elif left is not right:
            found.append(GraphEdit(name, left, right))
    return tuple(found)


def print_diff(diff: Diff) -> str:
    r"""Return a diff as text.

    Args:
        diff: the result of ``purefx.diff``.

    Returns:
        Lines of printable ASCII, the same in every process: a summary, then each change.

    >>> print_diff(Diff((("facts", (Hunk(0, (), ("flat",)),)),)))
    'facts changed\nfacts\n+ flat'
    """
    lines = [summary(diff)]
    for word, found in diff.sections:
        lines += [word, *_hunks(found, "entry", str)]
    if diff.contents:
        lines += ["state with other contents", *[f"  {spell_path(name)}" for name in diff.contents]]
    for edit in diff.graphs:
        lines += _graph(edit)
    return "\n".join(lines)


def summary(diff: Diff) -> str:
    """Return a one-line summary of a diff.

    >>> summary(Diff()), summary(Diff((("root", ()),)))
    ('nothing differs', 'root changed')
    """
    graphs, nodes = Counter[str](), Counter[str]()
    for edit in diff.graphs:
        graphs[
            "added" if edit.before is None else "removed" if edit.after is None else "changed"
        ] += 1
        nodes.update({kind: len(names) for kind, names in fates(edit.nodes).items()})
    every = [
        (word, kind, counts[kind])
        for word, counts in (("graph", graphs), ("node", nodes))
        for kind in KINDS
    ]
    parts = [f"{counted(count, word)} {kind}" for word, kind, count in every if count]
    words = dict.fromkeys([word for word, _ in diff.sections] + ["state"] * bool(diff.contents))
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
        fates["added" if name not in gone else "moved" if gone[name] == node else "changed"].append(
            name
        )
    fates["removed"] = [name for name in gone if name not in new]
    return fates


def _signed(sign: str, lines: Iterable[str]) -> list[str]:
    return [f"{sign} {line}" for line in lines]


def _hunks(found: Hunks, word: str, printed: Callable[[Any], str]) -> list[str]:
    lines: list[str] = []
    for hunk in found:
        if (
            word != "entry" or hunk.start or hunk.above or hunk.below
        ):  # a section that is replaced as a whole has no place
            lines.append(f"@@ {word} {hunk.start}")
        for sign, items in (
            (" ", hunk.above),
            ("-", hunk.removed),
            ("+", hunk.added),
            (" ", hunk.below),
        ):
            lines += _signed(sign, map(printed, items))
    return lines


def _graph(edit: GraphEdit) -> list[str]:
    before, after, head = edit.before, edit.after, f"graph @{spell_path(edit.name)}"
    if before is None or after is None:
        sign, word, graph = ("+", "added", after) if before is None else ("-", "removed", before)
        return [
            f"{head} {word}",
            *_signed(sign, print_graph(graph, name=edit.name).splitlines() if graph else ()),
        ]
    moved = set(fates(edit.nodes)["moved"])

    def node_line(node: Node) -> str:
        return print_node(node) + ("  ; moved" if node.name in moved else "")

    lines = [
        f"{head} changed",
        *_hunks(edit.inputs, "input", lambda formal: spell_value(formal.name)),
    ]
    lines += _hunks(edit.nodes, "node", node_line)
    if not same_arg(before.output, after.output):
        lines += [
            "@@ return",
            f"- return {print_arg(before.output)}",
            f"+ return {print_arg(after.output)}",
        ]
    return lines


text_of.register(Diff, print_diff)
