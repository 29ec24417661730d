"""``Flow``: the fx graph that is being built, and what exists in it so far.

One idea: one method adds a node, with the meta that the exporter writes, and says what came out; a number chooses among
the values that exist at that point.  Which operators there are is in ``menu.py``; inputs and outputs in ``build.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from attrs import frozen

from .kinds import REFUSED, Kind, combine, infer, tensor_kind

TOKEN = tensor_kind(torch.float32, 0)

__all__ = ["Flow", "Frames", "Style", "Value", "stack_meta"]

Frames = tuple[tuple[str, int], ...]
"""The module calls that a node is in: path and call number, the outermost first."""


@frozen(eq=False)
class Value:
    """A node's result, and the memory it lives in: values of one memory may overlap."""

    node: torch.fx.Node
    kind: Kind
    memory: object
    slot: str | None = None
    """The state that it is."""
    is_writable: bool = True
    """Parameters and constants are not written, nor are values that the operators of a region may not touch."""


@frozen
class Style:
    """How the exporter was called."""

    is_functional: bool
    """After ``run_decompositions``: new contents are returned, and ordered operators pass a token."""
    is_strict: bool
    """Stacks are keyed by numbers."""


@cache
def stack_meta(frames: Frames, *, is_strict: bool) -> dict[str, tuple[str, str]]:
    """Return the ``nn_module_stack`` of module calls, keyed as the exporter keys it.

    >>> stack_meta((("a", 0), ("a.c", 1)), is_strict=False)
    {'L__self__': ('', 'toy.Root'), 'L__self__a': ('a', 'toy.A'), 'L__self__a.c@1': ('a.c', 'toy.C')}
    """
    found = {"L__self__": ("", "toy.Root")}
    for path, call in frames:
        head = str(int.from_bytes(path.encode(), "big")) if is_strict else f"L__self__{path}"
        found[f"{head}@{call}" if call else head] = (path, f"toy.{path.rpartition('.')[2].upper()}")
    return found


class Flow:
    """What exists so far."""

    def __init__(self, graph: torch.fx.Graph, style: Style) -> None:
        self.graph = graph
        self.style = style
        self.frames: Frames = ()
        self.values: list[Value] = []
        """Results that are tensors, the latest last."""
        self.given: list[Value] = []
        """State and user inputs that are tensors."""
        self.numbers: list[Value] = []
        """Symbolic sizes."""
        self.latest: dict[Value, Value] = {}
        """In a functional program, the new contents of state and inputs so far."""
        self.modules: dict[str, torch.fx.GraphModule] = {}
        """The bodies of higher-order operators, by attribute."""
        self.token: torch.fx.Node | None = None

    def emit(self, target: Callable[..., Any], *args: Any, of: Value | None = None, **kwargs: Any) -> Any:
        """Add a node; return its value, a tuple of values, None where it gives nothing, or where it can not be.

        Args:
            target: the operator.
            args: values and literals; lists of them.
            of: the value whose memory the result lives in; it has its own by default.
            kwargs: the same by name.
        """
        result = infer(target, _kinds(args), {key: _kind(value) for key, value in kwargs.items()})
        if result is REFUSED:
            return None
        made = self.node(target, args, kwargs, result)
        if type(result) is Kind:
            return self.keep(_result(made, result, of))
        return result and self.parts(made, result, [of] * len(result))

    def parts(self, made: torch.fx.Node, kinds: Sequence[Kind], owners: Sequence[Value | None]) -> list[Value]:
        """Add the projections of a node that gives several results, each in memory of its own or in its owner's."""
        found: list[Value] = []
        for index, (kind, owner) in enumerate(zip(kinds, owners, strict=True)):
            node = self.node(operator.getitem, (made, index), {}, kind)
            found.append(self.keep(_result(node, kind, owner)))
        return found

    def node(self, target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> torch.fx.Node:
        """Add a node with the meta that the exporter writes."""
        given = {key: _nodes(value) for key, value in kwargs.items()}
        made = self.graph.create_node("call_function", target, _nodes(tuple(args)), given, name=_name(target))
        made.meta["nn_module_stack"] = stack_meta(self.frames, is_strict=self.style.is_strict)
        made.meta["torch_fn"] = (f"{made.name}_1", f"OpOverload.{made.name}")
        made.meta["val"] = tuple(part and part.val for part in result) if isinstance(result, tuple) else result and result.val
        return made

    def order(self, target: Any, text: str) -> None:
        """Add an operator whose order can be seen; a functional program threads a token through it."""
        if self.token is None:
            self.node(target, (text,), {}, None)
            return
        made = self.node(torch.ops.higher_order.with_effects, (self.token, target, text), {}, (TOKEN, None))
        self.token = self.node(operator.getitem, (made, 0), {}, TOKEN)

    def keep(self, value: Value) -> Value:
        """Remember a result, so that later nodes choose it."""
        if value.kind.dtype is None:
            self.numbers.append(value)
        elif value.kind.dtype is not torch.bool:
            # Few operators take truth values; those that do are handed them where they are made.
            self.values.append(value)
        return value

    def value(self, number: int) -> Value:
        """Return one of the latest results (below 6), or one of the inputs, however many results there are."""
        if number < 6 and self.values:
            return self.values[-1 - number % len(self.values)]
        return self.now(self.given[-1 - (number - 6) % len(self.given)])

    def like(self, number: int, other: Value) -> Value | None:
        """Return a value that can be broadcast with another, the one that a number chooses first."""
        return next((value for value in map(self.value, range(number, number + 12)) if combine(value.kind, other.kind)), None)

    def same(self, number: int, other: Value) -> Value | None:
        """Return a value of the same shape and dtype as another, the one that a number chooses first."""
        return next((value for value in map(self.value, range(number, number + 12)) if value.kind.text == other.kind.text), None)

    def own(self, number: int, dims: tuple[str, ...] | None = None) -> Value | None:
        """Return a piece of state of the module at hand, or of one below it."""
        path = self.frames[-1][0] if self.frames else ""
        found = [
            value
            for value in self.given
            if value.slot is not None and is_below(value.slot, path) and dims in (None, value.kind.dims)
        ]
        return self.now(found[number % len(found)]) if found else None

    def now(self, given: Value) -> Value:
        """Return the new contents of an input, if there are any."""
        return self.latest.get(given, given)

    def write(self, target: Value, value: Value) -> None:
        """Note that a functional program has new contents for an input."""
        for given in self.given:
            if self.now(given) is target and given.is_writable and value.kind.text == given.kind.text:
                self.latest[given] = value
                return


def is_below(name: str, path: str) -> bool:
    """Say whether state belongs to a module or to one below it.

    >>> is_below("a.c.w", "a"), is_below("ab.w", "a"), is_below("w", "")
    (True, False, True)
    """
    return not path or name.startswith(f"{path}.")


def _result(node: torch.fx.Node, kind: Kind, owner: Value | None) -> Value:
    return Value(node, kind, object()) if owner is None else Value(node, kind, owner.memory, None, owner.is_writable)


@cache
def _name(target: Any) -> str:
    return str(target.__name__).partition(".")[0]


def _kind(arg: Any) -> Any:
    return arg.kind if type(arg) is Value else _kinds(arg) if type(arg) in (tuple, list) else arg


def _kinds(args: Any) -> Any:
    return type(args)([_kind(arg) for arg in args])


def _nodes(arg: Any) -> Any:
    if type(arg) is Value:
        return arg.node
    return type(arg)([_nodes(part) for part in arg]) if type(arg) in (tuple, list) else arg
