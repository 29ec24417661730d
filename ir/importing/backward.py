"""The backward in graphs that have one: which nodes it has, and in which module call each of them belongs.

Autograd runs outside of all modules.  A backward node belongs in the call of the forward node that it is the gradient of, which
a tracer says in one of several ways; a sum of gradients, of which it says nothing, belongs to the value that was used twice.
"""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from attrs import evolve, frozen

from ..callables import class_name
from ..graph import Frame, Graph, Node, common_prefix
from ..meta import PHASE, is_backward
from ..taking import MODULE
from ..torch_private import backward_numbered, calls_wrapped, hooks_of

Calls = tuple[Any, ...]
"""The entries of a module stack as torch writes it, outermost first."""


@frozen
class Traced:
    """What a tracer said of the nodes of one graph."""

    stacks: Mapping[torch.fx.Node, Mapping[Any, Any]]
    """The module stack of each node that has one, as torch writes it; that of its forward node for a node of the backward."""
    backward: frozenset[str]
    """The names of the nodes of the backward."""


def traced_backward(graph: torch.fx.Graph, metas: Mapping[torch.fx.Node, Mapping[str, Any]] | None = None) -> Traced:
    """Return which nodes of a graph are its backward, and the module stacks of the forward nodes that they belong to.

    Args:
        graph: of any tracer; most have no backward.
        metas: of nodes of which more is known than their own meta says.

    >>> traced_backward(torch.fx.symbolic_trace(torch.nn.ReLU()).graph)
    Traced(stacks={}, backward=frozenset())
    """
    known = metas or {}
    pairs = [(node, known.get(node) or node.meta) for node in graph.nodes if node.op not in ("placeholder", "output")]
    if not any(is_backward(meta) for _, meta in pairs):
        return Traced({}, frozenset())
    return _Placing(pairs).placed()


class _Placing:
    """Finds the module stack of each node of a graph with a backward."""

    def __init__(self, pairs: Sequence[tuple[torch.fx.Node, Mapping[str, Any]]]) -> None:
        self.pairs = pairs
        self.calls: dict[torch.fx.Node, Calls] = {}
        """The calls around each node that they are known of; () at the root."""
        self.metas = dict(pairs)
        self.numbers: list[int] = []
        self.by_number: dict[int, torch.fx.Node] = {}
        """The forward node of each number."""
        self.behind: set[torch.fx.Node] = set()
        """Those before which autograd ran: it makes nodes of autograd, too, which numbers before theirs may be of."""
        self.backward: set[torch.fx.Node] = set()
        self.sums: list[torch.fx.Node] = []
        """Nodes of the backward that no forward node is known of."""

    def placed(self) -> Traced:
        """Return what is known of all nodes."""
        is_behind = False
        for node, meta in self.pairs:
            if self.is_backward(node, meta):
                is_behind = True
                continue
            self.calls[node] = self.own(meta)
            # Of several nodes with one number the first made the node of autograd; no gradients are of the others.
            number = meta.get("seq_nr")
            if type(number) is int and self.by_number.setdefault(number, node) is node:
                self.behind.update([node] if is_behind else [])
                is_behind = False
        self.numbers = sorted(self.by_number)
        for node, meta in self.pairs:
            if node in self.backward:
                forward = self.forward_of(meta)
                calls = self.own(meta) or (self.calls.get(forward) if forward is not None else None)
                if calls is None:
                    self.sums.append(node)
                else:
                    self.calls[node] = calls
        self.place_sums()
        stacks = {node: dict(calls) for node, calls in self.calls.items() if calls}
        return Traced(stacks, frozenset([node.name for node in self.backward]))

    def forward_of(self, meta: Mapping[str, Any]) -> torch.fx.Node | None:
        """Return the forward node that a backward node with this meta is for, where its number says so."""
        of_node = "autograd_backward" in meta and "is_gradient_acc" not in meta  # else the number is of another node
        number = meta.get("seq_nr")
        if not of_node or type(number) is not int:
            return None
        # An operator that makes several nodes of autograd (under ``torch.func.grad``, one for each level) has the last number.
        place = bisect_left(self.numbers, number)
        found = self.by_number[self.numbers[place]] if place < len(self.numbers) else None
        return None if found in self.behind and self.numbers[place] != number else found

    def is_backward(self, node: torch.fx.Node, meta: Mapping[str, Any]) -> bool:
        """Return whether a node is of the backward: autograd made it, or it adds what autograd made, outside of all modules."""
        added = node.all_input_nodes if node.target is torch.ops.aten.add.Tensor and not self.own(meta) else []
        if is_backward(meta) or (len(added) == 2 and self.backward.issuperset(added)):
            self.backward.add(node)
            return True
        return False

    def own(self, meta: Mapping[str, Any]) -> Calls:
        """Return the calls that the meta of a node says."""
        for key in ("fwd_nn_module_stack", "nn_module_stack"):
            stack = meta.get(key)
            if isinstance(stack, Mapping) and stack:
                return tuple(stack.items())
        return ()

    def place_sums(self) -> None:
        """Place the sums of gradients, and what else nothing is known of.

        A sum is the gradient to a value that was used several times: it is in the innermost call that holds these uses, which
        need not be where what is added was computed (``x + f(x)`` hands one gradient through).  Where that value is not known the
        sum is in the innermost call that holds what is added, or one of that and what the sum goes to.
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
            guessed = [common_prefix(before), *[common_prefix([one, other]) for one in before for other in after]]
            self.calls[node] = common_prefix(uses) if uses else max(guessed, key=len)

    def uses(self, behind: Sequence[torch.fx.Node]) -> list[Calls]:
        """Return the calls in which the value is used that a sum is the gradient to; none if that is not known.

        Args:
            behind: the nodes that the sum goes to, of which any may tell.
        """
        value = next((made for one in behind if (made := self.forward_of(self.metas.get(one, {}))) is not None), None)
        while value is not None:
            users = [user for user in _users(value) if user not in self.backward]
            if len(users) > 1:
                return [self.calls.get(user, ()) for user in users]
            # What is used once has no sum: its user handed the gradient through, as an addition does.
            value = next(iter(users), None)
        return []

    def known(self, nodes: Iterable[torch.fx.Node]) -> list[Calls]:
        """Return the calls around those of some nodes that they are known of."""
        return [self.calls[node] for node in nodes if node in self.calls]


def _users(node: torch.fx.Node) -> list[torch.fx.Node]:
    # Those of a result of several through the projections; a copy that autograd saved is no use.
    users = [one for user in node.users for one in (user.users if user.target is operator.getitem else (user,))]
    return [user for user in users if user.target is not torch.ops.aten.detach.default]


def with_backward_calls(graph: Graph, backward: frozenset[str]) -> Graph:
    """Return the root graph with the backward nodes in calls of their own, and said to be backward in their meta.

    A module that the forward calls n times is called n times more: call ``n + k`` is the gradient of call ``k``.

    Args:
        graph: the flat root; its backward nodes are in the calls that they are the gradients of.
        backward: the names of those nodes.
    """
    if not backward:
        return graph
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.name not in backward:
            for frame in node.stack:
                counts[frame.path] = max(counts.get(frame.path, 0), frame.call + 1)
    moved: list[Node] = []
    for node in graph.nodes:
        if node.name in backward:
            stack = tuple([Frame(frame.path, counts.get(frame.path, 0) + frame.call) for frame in node.stack])
            node = evolve(node, stack=stack, meta=MappingProxyType({**node.meta, PHASE: "backward"}))
        moved.append(node)
    return evolve(graph, nodes=tuple(moved))


@contextmanager
def module_calls(module: torch.nn.Module) -> Generator[None]:
    """Let ``make_fx`` note, while this is open, in which call of which module each operator is, those of the backward included.

    ``import_fx`` reads it, and ``outline`` makes a forward and a backward body for each module of it.

    Args:
        module: what the traced function calls, also through ``torch.func.functional_call``; it is not changed.

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
    MODULE.taken(module, "module_calls")
    with torch.fx.traceback.preserve_node_meta(), noted_calls(module), backward_numbered():
        yield


@contextmanager
def noted_calls(root: torch.nn.Module) -> Generator[None]:
    """Note the module calls around each node that is traced while this is open.

    Args:
        root: the module that is traced; calls of it begin anew, calls of modules that it does not hold are not noted.

    >>> with noted_calls(torch.nn.ReLU()):
    ...     y = torch.nn.ReLU()(torch.ones(2))
    """
    with calls_wrapped(_Noted(root).around):
        yield


class _Again(torch.fx.Interpreter):
    """Runs a graph that a tracer made while another one traces it: the nodes stay in the calls that they are in."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.stacks = traced_backward(module.graph).stacks

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node, with what is known of it as the meta of what is traced."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        with torch.fx.traceback.set_current_meta(n):
            if n in self.stacks:
                torch.fx.traceback.get_current_meta()["nn_module_stack"] = dict(self.stacks[n])
            return getattr(self, n.op)(n.target, args, kwargs)


def _plain_graph(module: torch.nn.Module) -> torch.fx.GraphModule | None:
    # The module as a graph that shows all that a call of it does, while a tracer preserves meta.
    if not isinstance(module, torch.fx.GraphModule) or type(module).__bases__ != (torch.fx.GraphModule,):
        return None
    shown = not hooks_of(module) and "forward" not in vars(module)
    return module if shown and torch.fx.traceback.has_preserved_node_meta() else None


def _spelled(path: str) -> str:
    # As Dynamo does, because names need not be identifiers.
    parts = path.split(".") if path else []
    return "L['self']" + "".join([f".{part}" if part.isidentifier() else f"[{part!r}]" for part in parts])


class _Noted:
    """The calls of modules that are running."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.thread = threading.get_ident()
        self.paths = {id(module): path for path, module in reversed(list(root.named_modules(remove_duplicate=False)))}
        """The first path of each module."""
        self.counts: dict[str, int] = {}
        self.outside: dict[str, tuple[Any, ...]] = {}
        """The calls around the first call of each module."""
        self.running: list[tuple[Any, ...]] = []
        """Of each call that is running all calls around what it runs, as entries of a module stack."""

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls a module as another one does, and notes it.

        Args:
            call: what calls a module.
        """

        def noted(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():  # the body of an operator, of which the tracer learns nothing
                return call(module, *args, **kwargs)
            here = threading.get_ident() == self.thread
            path = self.paths.get(id(module)) if here else None
            if path is None:
                graph = _plain_graph(module) if here and not kwargs else None
                return call(module, *args, **kwargs) if graph is None else _Again(graph).run(*args)
            self.running.append(self.calls(path, module))
            self.tell()
            try:
                return call(module, *args, **kwargs)
            finally:
                self.running.pop()
                self.tell()

        return noted

    def calls(self, path: str, module: torch.nn.Module) -> tuple[Any, ...]:
        """Return the calls around what a module runs that is called now."""
        if module is self.root and not self.running:
            self.counts.clear()  # torch runs the module once before it traces it
        # What autograd calls was called before, in the same modules: it is computed again for the backward.
        outside = self.running[-1] if self.running else self.outside.get(path, ())
        self.outside.setdefault(path, outside)
        number = self.counts[path] = self.counts.get(path, -1) + 1
        return (*outside, (f"{path}@{number}", (_spelled(path), class_name(type(module)))))

    def tell(self) -> None:
        """Write the calls into the meta of what is traced next."""
        meta = torch.fx.traceback.get_current_meta()
        if self.running:
            meta["nn_module_stack"] = dict(self.running[-1])
        else:
            meta.pop("nn_module_stack", None)
