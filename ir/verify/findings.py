"""``Rule`` and ``Finding``: an invariant as a value, what its check reports, and the lines around the place.

Values of any kind can be printed, invalid ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from attrs import field, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, DEEPEST, TREES, Body, Items, Record, Ref, children_of, is_deep
from ..graph import Graph, Node
from ..persistent import text_of
from ..torch_private import HigherOrderOperator, OpOverload

PLAIN = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip
"""Literal types that need no second look."""

OBJECTS: tuple[Any, ...] = (OpOverload, HigherOrderOperator, *SYMBOLIC, type, range, TREES)
"""What an argument may be besides literals, references and functions: values, which say what they are by themselves."""

ALLOWED: tuple[Any, ...] = (*OBJECTS, torch.ScriptObject)


def is_argument(leaf: Any) -> bool:
    """Return whether a leaf may stand among the arguments of a node.

    >>> is_argument(1.5), is_argument(Ref("x")), is_argument([1]), is_argument(torch.ones(1))
    (True, True, False, False)
    """
    kind = type(leaf)
    if kind in PLAIN:
        return True
    if kind is Ref:
        return type(leaf.name) is str
    if kind is Body:
        return type(leaf.graph) is str
    if isinstance(leaf, ALLOWED):
        return not (isinstance(leaf, TREES) and is_deep(leaf))
    # A plain function is fine; modules are callable too, and mutable.
    return callable(leaf) and not isinstance(leaf, torch.nn.Module | torch.Tensor)


def is_nested(arg: Any) -> bool:
    """Return whether an argument is a container that can be walked.

    >>> is_nested((1, 2)), is_nested([1, 2]), is_nested(Record(7))
    (True, False, False)
    """
    kind = type(arg)
    return kind in CONTAINERS and (kind is not Record or _has_pairs(arg))


def _has_pairs(record: Any) -> bool:
    pairs = record.items
    return type(pairs) is tuple and all(type(pair) is tuple and len(pair) == 2 and _is_key(pair[0]) for pair in pairs)


def _is_key(arg: Any) -> bool:
    # A dict is made of it when the program runs; lists, dicts and, before Python 3.12, slices have no hash.
    todo = [arg]
    while todo:
        part = todo.pop()
        if type(part) in (Items, Record, slice):
            return False
        if type(part) is tuple:
            todo.extend(part)
    return True


def leaves(arg: Any) -> Iterator[Any]:
    """Iterate over the leaves of an argument from left to right; a broken container is a leaf.

    >>> list(leaves((1, (Ref("x"), slice(2)))))
    [1, Ref(name='x'), None, 2, None]
    """
    todo = [arg]
    while todo:
        part = todo.pop()
        if is_nested(part):
            todo.extend(reversed(children_of(part)))
        else:
            yield part


def depth_fault(value: Any) -> str | None:
    """Return that an argument or a pytree nests too deep, or None.

    >>> depth_fault((1, (2,))) is None
    True
    """
    return f"it nests more than {DEEPEST} levels deep" if is_deep(value) else None


def short(value: Any, *, width: int = 60) -> str:
    """Return what a value is, on one short line, whatever it is.

    >>> short([1, 2]), short("a" * 100, width=12)
    ('the list [1, 2]', "the str '...")
    """
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return f"a {kind}"
    text = f"the {kind} {_text(value)}"
    return text if len(text) <= width else text[: max(width - 3, len(kind) + 5)].rstrip() + "..."


def _text(value: Any) -> str:
    import reprlib

    try:
        return " ".join(reprlib.repr(value).split())
    except Exception as error:  # noqa: BLE001  garbage may refuse to be printed; the message must come out all the same
        return f"(its repr raises {type(error).__name__})"


INPUTS = -1
"""The position of the inputs of a graph; its output stands at ``len(graph.nodes)``."""


@frozen
class Finding:
    """What a check found: a message and a place.

    >>> Finding("the name 'y' is taken already", graph="enc", at=3, node="y").at
    3
    """

    message: str
    graph: str | None = None
    at: int | None = None
    """The number of the node in its graph, or ``INPUTS``, or the number of nodes for the output; None for the graph itself."""
    node: str | None = None
    cause: str | None = None
    """What findings have in common that one mistake makes, whatever their messages say; by default the message itself."""


Check = Callable[[Any], Iterable[Finding]]
"""From a ``Survey`` of a program to what is wrong."""


@frozen
class Rule:
    """An invariant that every valid program has.

    >>> Rule("no-nodes", "nothing is done", lambda survey: [], advice="remove them").name
    'no-nodes'
    """

    name: str
    statement: str
    """The invariant in one sentence."""
    check: Check | None = field(default=None, repr=False)
    """None for an invariant of which the survey itself says what is wrong."""
    advice: str = field(default="", kw_only=True)
    """What to do about a violation."""


AROUND = 5
WIDTH = 120


class Lines:
    """Prints the neighbourhood of nodes, each graph once.

    >>> from purefx.ir import Get, Graph, Node
    >>> Lines({"": Graph((), (Node("w", Get("weight")),), (Ref("w"),))}).around("", 0)
    ('  graph @""() {', '> w = get weight', '  return (w,)')
    """

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self._graphs = graphs
        self._known: dict[str, list[str]] = {}

    def around(self, name: str, at: int) -> tuple[str, ...]:
        """Return the lines around a position of a graph; the line itself begins with ``>``."""
        if name not in self._known:
            try:
                lines = text_of(self._graphs[name]).split("\n")[:-1]
            except Exception:  # noqa: BLE001  garbage may refuse to be printed; that must not hide what is wrong with it
                lines = []
            self._known[name] = [" ".join(line.split()) for line in lines]
        lines, here = self._known[name], at + 1
        span = enumerate(lines[max(0, here - AROUND) : here + AROUND + 1], max(0, here - AROUND))
        return tuple(
            [f"{'>' if n == here else ' '} {line if len(line) <= WIDTH else line[: WIDTH - 3] + '...'}" for n, line in span]
        )

    def node(self, name: str, at: int) -> Node | None:
        """Return what is at a position of a graph, or None."""
        nodes: Any = self._graphs[name].nodes
        found = nodes[at] if type(nodes) is tuple and 0 <= at < len(nodes) else None
        return found if type(found) is Node else None


def source_of(meta: Any) -> str | None:
    r"""Return the user's innermost source line from a node's stack trace.

    >>> source_of({"stack_trace": '  File "m.py", line 3, in forward\n    return x + y\n'})
    'm.py:3, in forward: return x + y'
    """
    trace: Any = meta.get("stack_trace") if isinstance(meta, Mapping) else None  # type: ignore[reportUnknownMemberType]
    if not isinstance(trace, str):
        return None
    lines = [line.strip() for line in trace.strip().splitlines()]
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith('File "'):
            place, _, function = lines[number].removeprefix("File ").partition(", in ")
            file, _, line = place.partition(", line ")
            code = lines[number + 1] if number + 1 < len(lines) else ""
            return f"{file.strip(chr(34))}:{line}, in {function}" + (f": {code}" if code else "")
    return lines[-1] if lines and lines[-1] else None
