"""``print_diff``: a diff as text, like a unified diff.

Each line is a line of the text form of programs, after ``-``, ``+`` or a blank.  A node that only moved is marked as such.  The
output has no more than the differences and two lines of context around each; it cannot be parsed back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..arguments import Arg
from ..graph import Graph, Input, Node
from ..persistent import pmap, text_of
from ..text.arguments import print_arg, print_tree
from ..text.contract import INPUT, MODULE, OUTPUT, RANGE, SUNK, print_call_signatures, print_expr
from ..text.lexer import spell_path, spell_value
from ..text.printer import print_graph, print_node
from ..text.state import print_slot
from .diff import Change, Diff, GraphEdit, Hunks


def print_diff(diff: Diff) -> str:
    r"""Return a diff as text.

    Args:
        diff: what ``purefx.diff`` gave.

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
    """Return what became of nodes, by name: a node that is removed here and added there is the same one, moved or changed.

    Args:
        found: how the nodes of a graph change.

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

    lines = [f"graph @{spell_path(edit.name)} changed", *_hunks(edit.inputs, "input", _print_formal)]
    lines += _hunks(edit.nodes, "node", node_line)
    if edit.output is not None:
        lines += ["@@ return", *[_return(sign, arg) for sign, arg in zip("-+", edit.output, strict=True)]]
    return lines


def _print_formal(formal: Input) -> str:
    return spell_value(formal.name)


def _return(sign: str, arg: Arg) -> str:
    return f"{sign} return {print_arg(arg)}"


text_of.register(Diff, print_diff)
