"""Read module stacks, find those of backward nodes, and record calls while a function is traced.

Autograd runs outside of all modules.  A backward node is placed in the call of its forward node, which tracers record in
several ways.  A sum of gradients, for which they record nothing, is placed at the uses of the value that was used twice.
"""

from __future__ import annotations

import operator
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from attrs import evolve, frozen

from ..callables import class_name
from ..calls.call_graph import call_counts
from ..calls.parts import PART
from ..calls.uncertain_names import LAST_NAME
from ..graph import Frame, Graph, Node, Stack, common_prefix
from ..meta import PHASE, is_backward
from ..names import is_below, is_name
from ..torch_private import EMPTY_STACK_KEY, backward_numbered, calls_wrapped
from ..validation import MODULE

ROOTS = ("L__self__", "self")

TABLE = "_modules"
"""The attribute in which a module keeps its children."""

EXPORT_ROOT = "_export_root"
"""The exporter's names of the root in the bodies of operators."""

Entries = tuple[tuple[str, tuple[str, Any]], ...]
"""A module stack as tracers write it: pairs of a key and (path, class)."""

STEP = re.compile(r"""\.(?P<name>\w+)|\[(?:(?P<index>\d+)|(['"])(?P<text>[^\]]+)\3)\]""")
"""A step of a path as Dynamo spells it: ``.name``, ``[0]`` or ``['name']``."""


class StackReader:
    """Parses stacks, each distinct one once, and collects the class names that they mention.

    A stack ends before a call that another stack has in another place.
    """

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._known: dict[Any, tuple[Stack, bool]] = {}
        """Each stack that was read, and whether calls inside of it belong to it: it did not end before its last entry."""
        self._around: dict[Frame, Stack] = {}

    def read(
        self, raw: Mapping[str, tuple[str, Any]] | None, *, below: str | None = None
    ) -> Stack | None:
        """Return the stack below the root module, or None if the tracer wrote none.

        Args:
            raw: the stack in the tracer's format.
            below: a module whose call is left out, with all calls inside it.

        Raises:
            AttributeError, TypeError, ValueError: it is not a dict of key to (path, class).
        """
        return (
            None if not raw or EMPTY_STACK_KEY in raw else self._read(tuple(raw.items()), below)[0]
        )

    def _read(self, entries: Entries, below: str | None) -> tuple[Stack, bool]:
        key = entries if below is None else (entries, below)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._parse(entries, below)
        return known

    def _parse(self, entries: Entries, below: str | None) -> tuple[Stack, bool]:
        *outer, (key, (way, kind)) = entries
        stack, is_whole = self._read(tuple(outer), below) if outer else ((), True)
        if not is_whole:
            return stack, False
        path, number = self._spelled(key, way)
        if path is None:
            return (), False
        if kind:  # "" if a program that was exported again does not know the class
            self.types.setdefault(path, class_name(kind))
        if not path:
            return stack, True
        frame = Frame(path, int(number) if number.isdecimal() and len(number) < 10 else 0)
        is_whole = path != below and not self._is_elsewhere(frame, stack)
        return (*stack, frame) if is_whole else stack, is_whole

    def _spelled(self, key: str, way: str) -> tuple[str | None, str]:
        # The path of a module, "" for the root and None if it is unreadable, and the number of the call.
        raise NotImplementedError

    def last(self) -> dict[str, int]:
        """Return the highest number of a call of each module."""
        found: dict[str, int] = {}
        for frame in self._around:
            found[frame.path] = max(found.get(frame.path, 0), frame.call)
        return found

    def _is_elsewhere(self, frame: Frame, stack: Stack) -> bool:
        # Tracers name the children of a module that they reach without a path as if they were children of the root.
        return self._around.setdefault(frame, stack) != stack


class ExportedStacks(StackReader):
    """Reads the stacks of an exported program.

    A strict export names a module by its identity and by the attribute path that reached it.  Paths that are not in the
    hierarchy are replaced by the first path of the module, if it has one.

    Args:
        places: the paths of the hierarchy, in order.
        nodes: of all fx graphs.

    >>> ExportedStacks().read({"L__self__": ("", "M"), "L__self__a@1": ("a", "Sub")})
    (Frame(path='a', call=1),)
    """

    def __init__(self, places: Iterable[str] = (), nodes: Iterable[Any] = ()) -> None:
        super().__init__()
        self.objects: dict[str, dict[str, None]] = {}
        """The paths by which each module was called, by the exporter's name of the module."""
        self.where: dict[str, str] = {}
        """The path in the hierarchy, for each path that is not in it."""
        self.numbers: dict[tuple[str, str], str] = {}
        """The number of each call through such a path, by path and key."""
        self._learn(dict.fromkeys(places), nodes)

    def _learn(self, places: Mapping[str, None], nodes: Iterable[Any]) -> None:
        ways: dict[str, dict[str, None]] = {}
        calls: dict[tuple[str, str], None] = {}
        for node in nodes:
            stack = node.meta.get("nn_module_stack")
            items = stack.items() if isinstance(stack, Mapping) else ()
            inner = [(value[0], key) for key, value in items if type(value) is tuple and value[0]]
            if inner and not inner[0][1].partition("@")[0].isdigit():
                return  # the exporter wrote paths of the hierarchy
            for way, key in inner:
                ways.setdefault(key.partition("@")[0], {})[way] = None
                calls[way, key] = None
        for found in ways.values():
            near = {way.removeprefix(EXPORT_ROOT).removeprefix(".") for way in found}
            place = next((path for path in places if path in near), None)
            if place is not None:
                self.where.update({way: place for way in found if way not in places})
        counts: dict[str, int] = {}
        for way, key in sorted(calls, key=lambda call: call[0] in self.where):
            place, number = self.where.get(way, way), key.rpartition("@")[2] if "@" in key else "0"
            if way in self.where:  # they follow the calls under the path in the hierarchy
                self.numbers[way, key] = str(counts.get(place, 0))
                counts[place] = counts.get(place, 0) + 1
            else:
                counts[place] = max(counts.get(place, 0), int(number) + 1)

    def _spelled(self, key: str, way: str) -> tuple[str | None, str]:
        name, _, number = key.partition("@")
        path = self.where.get(way, str(way))
        self.objects.setdefault(name, {})[path] = None
        return path, self.numbers.get((way, key), number.rpartition("@")[2])

    def _is_elsewhere(self, frame: Frame, stack: Stack) -> bool:
        return (
            super()._is_elsewhere(frame, stack) and frame not in stack
        )  # verify finds a call inside of itself

    def facts(self) -> frozenset[str]:
        """Return what the stacks tell about the program: a strict export names modules by identity."""
        named = [paths for name, paths in self.objects.items() if name.isdigit()]
        has_several = any(len(paths) > 1 for paths in named) or any(self.last().values())
        return frozenset({LAST_NAME}) if named and has_several else frozenset()

    def cells(self, paths: Iterable[str]) -> dict[str, int]:
        """Return which modules are one object, as numbers by path.

        Args:
            paths: of the hierarchy, in order.

        >>> reader = ExportedStacks()
        >>> for path in ("a", "b"):
        ...     _ = reader.read({"L__self__": ("", "M"), "1234": (path, "Sub")})
        >>> reader.cells(["", "a", "b", "c"])
        {'a': 0, 'b': 0}
        """
        keys: dict[str, str] = {}
        for key, found in self.objects.items():
            if len(found) > 1 and len({self.types.get(path) for path in found}) == 1:
                keys.update(dict.fromkeys(found, key))
        numbers: dict[str, int] = {}
        shared = [path for path in paths if path and path in keys]
        return {path: numbers.setdefault(keys[path], len(numbers)) for path in shared}


class TracedStacks(StackReader):
    """Reads the stacks of any tracer; a stack with an unreadable entry is empty.

    >>> stacks = TracedStacks()
    >>> stacks.read({"": ("", "M"), "L__self___up": ("L['self'].up[0]", "Linear"), "x@1": ("up.0.act", "ReLU")})
    (Frame(path='up.0', call=0), Frame(path='up.0.act', call=1))
    """

    def _spelled(self, key: str, way: str) -> tuple[str | None, str]:
        spelled, _, number = way.partition("@")
        return read_place(spelled), key.rpartition("@")[2] if "@" in key else number


def stack_inside(raw: Mapping[str, tuple[str, Any]], own: str) -> Mapping[str, tuple[str, Any]]:
    """Return the part of a stack inside of a module, with paths from that module.

    Args:
        raw: the stack, in the format of any tracer.
        own: the path of the module; its class is that of the root.

    >>> stack_inside({"": ("", "M"), "a": ("a", "A"), "a.b": ("a.b", "B"), "c": ("c", "C")}, "a")
    {'a': ('', 'A'), 'a.b': ('b', 'B')}
    """
    inside: dict[str, tuple[str, Any]] = {}
    for key, (way, kind) in raw.items():
        path = read_place(way.partition("@")[0])
        if path == own:
            inside = {key: ("", "" if kind == PART else kind)}
        elif path is not None and is_below(path, own):
            inside[key] = (path[len(own) + 1 :], kind)
        elif path is None or not is_below(own, path):
            break  # a call of a module that is outside
    return inside


def read_place(text: object) -> str | None:
    """Return the path that a tracer spelled; "" for the root, None if the text is not a path.

    >>> read_place("L['self'].layers[0].up"), read_place("layers.0"), read_place("L__self__")
    ('layers.0.up', 'layers.0', '')
    >>> read_place("L['self']._modules['a']")
    'a'
    >>> read_place("L['self'].layers[i]"), read_place("__import__('os')")
    (None, None)
    """
    if type(text) is not str:
        return None
    roots = (text[: text.find("]") + 1], *ROOTS) if text.startswith(("L['", 'L["')) else ROOTS
    root = next(
        (root for root in roots if text == root or text.startswith((f"{root}.", f"{root}["))), ""
    )
    rest = text[len(root) :] if root else f".{text}" if text else ""
    names: list[str] = []
    while rest:
        step = STEP.match(rest)
        name: str = (step["name"] or step["index"] or step["text"]) if step else ""
        if step is None or not is_name(name):
            return None
        rest = rest[step.end() :]
        if not (name == TABLE and rest.startswith("[")):
            names.append(name)
    return ".".join(names)


Calls = tuple[Any, ...]
"""The entries of a module stack as torch writes it, outermost first."""


@frozen
class Traced:
    """Module stacks and backward nodes of one graph, as its tracer recorded them."""

    stacks: Mapping[torch.fx.Node, Mapping[Any, Any]]
    """The module stack of each node that has one, as torch writes it; backward nodes have that of their forward node."""
    backward: frozenset[str]
    """The names of the nodes of the backward."""


def traced_backward(graph: torch.fx.Graph) -> Traced:
    """Return the backward nodes of a graph, with the module stacks of their forward nodes.

    Args:
        graph: from any tracer; most have no backward.

    >>> traced_backward(torch.fx.symbolic_trace(torch.nn.ReLU()).graph)
    Traced(stacks={}, backward=frozenset())
    """
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return (
        _Placing(nodes).placed()
        if any(is_backward(node.meta) for node in nodes)
        else Traced({}, frozenset())
    )


class _Placing:
    """Finds the module stack of each node of a graph with a backward."""

    def __init__(self, nodes: Sequence[torch.fx.Node]) -> None:
        self.nodes = nodes
        self.calls: dict[torch.fx.Node, Calls] = {}
        """The calls around each node, where they are known; () at the root."""
        self.numbers: list[int] = []
        self.by_number: dict[int, torch.fx.Node] = {}
        """The forward node of each number."""
        self.behind: set[torch.fx.Node] = set()
        """Nodes before which autograd ran: it makes autograd nodes, too, which may have the numbers before theirs."""
        self.backward: set[torch.fx.Node] = set()
        self.sums: list[torch.fx.Node] = []
        """Backward nodes without a known forward node."""

    def placed(self) -> Traced:
        """Return the known stacks of all nodes."""
        is_behind = False
        for node in self.nodes:
            if self.is_backward(node):
                is_behind = True
                continue
            self.calls[node] = self.own(node)
            # Of several nodes with one number, the first made the autograd node; the others have no gradients.
            number = node.meta.get("seq_nr")
            if type(number) is int and self.by_number.setdefault(number, node) is node:
                self.behind.update([node] if is_behind else [])
                is_behind = False
        self.numbers = sorted(self.by_number)
        for node in self.nodes:
            if node in self.backward:
                forward = self.forward_of(node)
                calls = self.own(node) or (self.calls.get(forward) if forward is not None else None)
                if calls is None:
                    self.sums.append(node)
                else:
                    self.calls[node] = calls
        self.place_sums()
        stacks = {node: dict(calls) for node, calls in self.calls.items() if calls}
        return Traced(stacks, frozenset([node.name for node in self.backward]))

    def forward_of(self, node: torch.fx.Node) -> torch.fx.Node | None:
        """Return the forward node of a backward node, if its number is known."""
        meta = node.meta
        of_node = (
            "autograd_backward" in meta and "is_gradient_acc" not in meta
        )  # else the number is of another node
        number = meta.get("seq_nr")
        if not of_node or type(number) is not int:
            return None
        # An operator that makes several autograd nodes (under ``torch.func.grad``, one for each level) has the last number.
        place = bisect_left(self.numbers, number)
        found = self.by_number[self.numbers[place]] if place < len(self.numbers) else None
        return None if found in self.behind and self.numbers[place] != number else found

    def is_backward(self, node: torch.fx.Node) -> bool:
        """Return whether autograd made a node, or it adds two values of autograd outside of all modules."""
        added = (
            node.all_input_nodes
            if node.target is torch.ops.aten.add.Tensor and not self.own(node)
            else []
        )
        if is_backward(node.meta) or (len(added) == 2 and self.backward.issuperset(added)):
            self.backward.add(node)
            return True
        return False

    def own(self, node: torch.fx.Node) -> Calls:
        """Return the calls in the meta of a node."""
        for key in ("fwd_nn_module_stack", "nn_module_stack"):
            stack = node.meta.get(key)
            if isinstance(stack, Mapping) and stack:
                return tuple(stack.items())
        return ()

    def place_sums(self) -> None:
        """Place the sums of gradients, and other nodes without a known forward node.

        A sum is the gradient to a value that was used several times: it belongs in the innermost call around these uses.  Its
        operands may come from elsewhere (``x + f(x)`` passes one gradient through).  If the value is unknown, the sum goes into
        the innermost call around its operands, or around one operand and one user.
        """
        behind: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        for node in reversed(self.sums):
            direct = [user for user in node.users if user not in behind]
            behind[node] = direct or [one for user in node.users for one in behind[user]]
        for node in self.sums:
            uses = self.uses(behind[node])
            operands = node.all_input_nodes
            before = self.known([one for one in operands if one in self.backward] or operands)
            after = self.known(behind[node])
            guessed = [
                common_prefix(before),
                *[common_prefix([one, other]) for one in before for other in after],
            ]
            self.calls[node] = common_prefix(uses) if uses else max(guessed, key=len)

    def uses(self, behind: Sequence[torch.fx.Node]) -> list[Calls]:
        """Return the calls that use the value to which a sum is the gradient; none if the value is unknown.

        Args:
            behind: the nodes that use the sum.
        """
        value = next((made for one in behind if (made := self.forward_of(one)) is not None), None)
        while value is not None:
            users = [user for user in _users(value) if user not in self.backward]
            if len(users) > 1:
                return [self.calls.get(user, ()) for user in users]
            # A value with one use has no sum: its user passed the gradient through, as an addition does.
            value = next(iter(users), None)
        return []

    def known(self, nodes: Iterable[torch.fx.Node]) -> list[Calls]:
        """Return the known calls around some nodes."""
        return [self.calls[node] for node in nodes if node in self.calls]


def _users(node: torch.fx.Node) -> list[torch.fx.Node]:
    # Users of a tuple are those of its projections; copies that autograd saved do not count.
    users = [
        one
        for user in node.users
        for one in (user.users if user.target is operator.getitem else (user,))
    ]
    return [user for user in users if user.target is not torch.ops.aten.detach.default]


def with_backward_calls(graph: Graph, backward: frozenset[str]) -> Graph:
    """Return the root graph with the backward nodes in separate calls, and marked as backward in their meta.

    A module that the forward calls n times gets n more calls: call ``n + k`` is the gradient of call ``k``.

    Args:
        graph: the flat root; its backward nodes are in the calls of their forward nodes.
        backward: the names of those nodes.
    """
    if not backward:
        return graph
    counts = call_counts([node for node in graph.nodes if node.name not in backward])
    moved: list[Node] = []
    for node in graph.nodes:
        if node.name in backward:
            stack = tuple(
                [Frame(frame.path, counts.get(frame.path, 0) + frame.call) for frame in node.stack]
            )
            node = evolve(
                node, stack=stack, meta=MappingProxyType({**node.meta, PHASE: "backward"})
            )
        moved.append(node)
    return evolve(graph, nodes=tuple(moved))


@contextmanager
def module_calls(module: torch.nn.Module) -> Generator[None]:
    """Let ``make_fx`` record the module call around each operator, those of the backward included.

    ``import_fx`` reads the records, and ``outline`` makes a forward and a backward body for each module in them.

    Args:
        module: the module that the traced function calls, also through ``torch.func.functional_call``; it is not changed.

    Raises:
        ArgumentError: it is not a module.

    >>> import torch, purefx as px
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Tanh())
    >>> def gradient(x):
    ...     return torch.autograd.grad(model(x).sum(), x)[0]
    >>> with px.training.module_calls(model):
    ...     traced = make_fx(gradient)(torch.ones(1, 2, requires_grad=True))
    >>> [str(node.stack[0]) for node in px.import_fx(traced).main.nodes if "tanh" in str(node.do)]
    ['1', '1@1']
    """
    MODULE.check(module, "module_calls")
    with torch.fx.traceback.preserve_node_meta(), noted_calls(module), backward_numbered():
        yield


def noted_calls(root: torch.nn.Module) -> AbstractContextManager[None]:
    """Record the module calls around each node that is traced in the context.

    Args:
        root: the traced module; a call of it restarts the numbers, and calls of modules outside it are not recorded.

    >>> with noted_calls(torch.nn.ReLU()):
    ...     y = torch.nn.ReLU()(torch.ones(2))
    """
    return calls_wrapped(_Noted(root).around)


class _Noted:
    """Records the running calls of modules."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.thread = threading.get_ident()
        self.paths = {
            id(module): path
            for path, module in reversed(list(root.named_modules(remove_duplicate=False)))
        }
        """The first path of each module."""
        self.counts: dict[str, int] = {}
        self.outside: dict[str, tuple[Any, ...]] = {}
        """The calls around the first call of each module."""
        self.running: list[tuple[Any, ...]] = []
        """For each running call, the stack of calls up to it, as entries of a module stack."""

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that calls a module, to record the call.

        Args:
            call: calls a module.
        """

        def noted(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if (
                torch.compiler.is_dynamo_compiling()
            ):  # the body of an operator, whose calls the tracer does not record
                return call(module, *args, **kwargs)
            path = self.paths.get(id(module)) if threading.get_ident() == self.thread else None
            if path is None:
                return call(module, *args, **kwargs)
            self.running.append(self.calls(path, module))
            self.write_stack()
            try:
                return call(module, *args, **kwargs)
            finally:
                self.running.pop()
                self.write_stack()

        return noted

    def calls(self, path: str, module: torch.nn.Module) -> tuple[Any, ...]:
        """Return the calls around the nodes of a module that is called now."""
        if module is self.root and not self.running:
            self.counts.clear()  # torch runs the module once before it traces it
        # Autograd recomputes modules (checkpointing) that were called before, in the same modules.
        outside = self.running[-1] if self.running else self.outside.get(path, ())
        self.outside.setdefault(path, outside)
        number = self.counts[path] = self.counts.get(path, -1) + 1
        # As in Dynamo, because names need not be identifiers.
        steps = [
            f".{name}" if name.isidentifier() else f"[{name!r}]" for name in path.split(".") if name
        ]
        return (
            *outside,
            (f"{path}@{number}", ("L['self']" + "".join(steps), class_name(type(module)))),
        )

    def write_stack(self) -> None:
        """Write the running calls into the meta of the nodes that are traced next."""
        meta = torch.fx.traceback.get_current_meta()
        if self.running:
            meta["nn_module_stack"] = dict(self.running[-1])
        else:
            meta.pop("nn_module_stack", None)
