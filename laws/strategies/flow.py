"""``Flow``: a graph under construction, and the ``Kind`` of each of its values.

A kind is a fake value, known without computation.  A flow writes an fx graph; subclasses run the nodes or
write a program of toy operators.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from attrs import frozen
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...ir.graph import Uncopied
from ...ir.inference import ASSUMED
from ...ir.names import is_below
from ...ir.torch_private import FakeTensor, FakeTensorMode


@frozen(eq=False)
class Kind(Uncopied):
    """The fake value of a node, and the properties that the menu reads.

    >>> tensor_kind(torch.float32, 3, 4).dims
    ('3', '4')
    """

    text: str
    val: Any
    dims: tuple[str, ...] = ()
    """The sizes as text: comparing symbolic ones would install guards."""
    dtype: torch.dtype | None = None
    """None for a number."""
    is_plain: bool = True
    """Whether its elements do not overlap, so that it can be written."""
    is_contiguous: bool = True


REFUSED = Kind("refused", None)
"""The result of an operator that does not accept its operands."""


@cache
def fake_mode() -> Any:
    """Return the mode of all fake values."""
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)


@cache
def size() -> torch.SymInt:
    """Return the only dynamic size, with the exporter's name."""
    return fake_mode().from_tensor(torch.empty(7), static_shapes=False).shape[0]


_KINDS: dict[str, Kind] = {}


def tensor_kind(dtype: torch.dtype, *sizes: Any, requires_grad: bool = False) -> Kind:
    """Return the kind of a contiguous tensor.

    >>> tensor_kind(torch.float32, 4) is tensor_kind(torch.float32, 4)
    True
    """
    text = f"{dtype}{[*map(str, sizes)]}{'!' if requires_grad else ''}"
    if text not in _KINDS:
        with fake_mode():
            _KINDS[text] = _kind(torch.empty(sizes, dtype=dtype, requires_grad=requires_grad))
    return _KINDS[text]


@cache
def nth_fake(kind: Kind, number: int, is_body: bool) -> Any:  # noqa: ARG001, FBT001  a cache key
    """Return one of the fake values of a kind, each with separate memory."""
    like = kind.val
    with fake_mode() as mode, mode.shape_env.error_on_new_guards():
        return torch.empty_strided(
            like.shape, like.stride(), dtype=like.dtype, requires_grad=like.requires_grad
        )


def number_kind(value: Any) -> Kind:
    """Return the kind of a number, symbolic or not."""
    text = f"{type(value).__name__} {value}"
    return _KINDS.setdefault(text, Kind(text, value))


def _kind(value: Any) -> Kind:
    if not isinstance(value, FakeTensor):
        return number_kind(value)
    dims, strides = tuple(map(str, value.shape)), [*map(str, value.stride())]
    text = f"{value.dtype}{dims}{strides}{value.requires_grad}"
    is_plain = all(stride != "0" or dim == "1" for dim, stride in zip(dims, strides, strict=True))
    return _KINDS.setdefault(
        text, Kind(text, value, dims, value.dtype, is_plain, bool(value.is_contiguous()))
    )


_INFERRED: dict[object, Any] = {}


def infer(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the kind of an operator's result: a tuple for several results, None without one, ``REFUSED`` for an error.

    Args:
        target: the operator.
        args: kinds of values, and literals.
        kwargs: keyword arguments.

    >>> infer(torch.ops.aten.add.Tensor, (tensor_kind(torch.float32, 3, 4), tensor_kind(torch.int64, 4)), {}).dims
    ('3', '4')
    """
    key = (target, _key(args), _key(tuple(kwargs.items())))
    if key not in _INFERRED:
        _INFERRED[key] = _inferred(target, args, kwargs)
    return _INFERRED[key]


def _inferred(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # Use meta tensors of plain sizes first: torch logs errors of fake tensors, and installs guards on symbolic sizes.
    try:
        with torch.no_grad():
            target(*_each(args, Kind, _sample), **_each(kwargs, Kind, _sample))
        # A guard would affect all programs, which share the dynamic size.
        with fake_mode() as mode, mode.shape_env.error_on_new_guards(), torch.no_grad():
            result = target(
                *_each(args, Kind, attrgetter("val")), **_each(kwargs, Kind, attrgetter("val"))
            )
    except (RuntimeError, TypeError, ValueError, IndexError):
        return REFUSED
    if result is None:
        return None
    return tuple(map(_kind, result)) if isinstance(result, tuple | list) else _kind(result)


def _key(arg: Any) -> object:
    if isinstance(arg, tuple | list):
        return tuple([_key(part) for part in arg])
    return arg.text if type(arg) is Kind else (type(arg), str(arg))


def _sample(kind: Kind) -> Any:
    if not isinstance(kind.val, FakeTensor):
        return _plain(kind.val)
    sizes, strides = [*map(_plain, kind.val.shape)], [*map(_plain, kind.val.stride())]
    return torch.empty_strided(sizes, strides, dtype=kind.dtype, device="meta")


def _plain(value: Any) -> Any:
    return (
        int(value.node.expr.subs(size().node.expr, 7)) if isinstance(value, torch.SymInt) else value
    )


def combine(left: Kind, right: Kind) -> bool:
    """Return whether two kinds can be broadcast together without comparing symbolic sizes.

    >>> combine(tensor_kind(torch.float32, 3, 4), tensor_kind(torch.float32, 4))
    True
    >>> combine(tensor_kind(torch.float32, 3), tensor_kind(torch.float32, 4))
    False
    """
    pairs = zip(reversed(left.dims), reversed(right.dims), strict=False)
    return all(a == b or "1" in (a, b) for a, b in pairs)


TOKEN = tensor_kind(torch.float32, 0)


Frames = tuple[tuple[str, int], ...]
"""The module calls around a node: path and call number, the outermost first."""


@frozen(eq=False)
class Value:
    """A node's result, and its memory: values of one memory may overlap."""

    node: Any
    """Its node; in a running flow, the tensor."""
    kind: Kind
    memory: object
    slot: str | None = None
    """Its state, if it is one."""
    is_writable: bool = True
    """Whether it may be written; parameters, constants and values outside a region may not."""


@frozen
class Style:
    """The options of the exporter."""

    is_functional: bool
    """After ``run_decompositions``: new contents are returned, and ordered operators pass a token."""
    is_strict: bool
    """Whether stacks are keyed by numbers."""


@cache
def stack_meta(frames: Frames, *, is_strict: bool) -> dict[str, tuple[str, str]]:
    """Return the ``nn_module_stack`` of module calls with the exporter's keys.

    >>> stack_meta((("a", 0), ("a.c", 1)), is_strict=False)
    {'L__self__': ('', 'toy.Root'), 'L__self__a': ('a', 'toy.A'), 'L__self__a.c@1': ('a.c', 'toy.C')}
    """
    found = {"L__self__": ("", "toy.Root")}
    for path, call in frames:
        head = str(int.from_bytes(path.encode(), "big")) if is_strict else f"L__self__{path}"
        found[f"{head}@{call}" if call else head] = (path, f"toy.{path.rpartition('.')[2].upper()}")
    return found


class Flow:
    """The values so far, and their graph."""

    def __init__(self, graph: torch.fx.Graph, style: Style, *, is_body: bool = False) -> None:
        self.graph = graph
        self.is_body = is_body
        self.style = style
        self.frames: Frames = ()
        self.smallest = ASSUMED
        """The lower bound of the dynamic size."""
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
        self.fakes: Counter[str] = Counter()
        """The number of used fake values of each kind: each node of an exported graph has a separate one."""

    def fake(self, kind: Any) -> Any:
        """Return an unused fake value of a kind; numbers and None are returned unchanged."""
        if type(kind) is not Kind or kind.dtype is None:
            return kind.val if type(kind) is Kind else kind
        self.fakes[kind.text] += 1
        return nth_fake(kind, self.fakes[kind.text], self.is_body)

    def placeholder(self, name: str, val: Any) -> torch.fx.Node:
        """Add an input."""
        node = self.graph.placeholder(name)
        node.meta["val"] = val
        return node

    def run(self, items: Sequence[Any]) -> None:
        """Write the nodes and calls of a recipe, in order."""
        for item in items:
            if hasattr(item, "frames"):
                self.call(item)
            else:
                self.item(item)

    def call(self, visit: Any) -> None:
        """Write the contents of a call, with its frames."""
        outside, self.frames = self.frames, visit.frames
        self.run(visit.items)
        self.frames = outside

    def item(self, node: Any) -> None:
        """Write the operators of one drawn node."""
        raise NotImplementedError

    def emit(
        self, target: Callable[..., Any], *args: Any, of: Value | None = None, **kwargs: Any
    ) -> Any:
        """Add a node; return its value or values, or None if it has no result or refuses its operands.

        Args:
            target: the operator.
            args: values and literals; lists of them.
            of: the value whose memory the result aliases; by default it has separate memory.
            kwargs: keyword arguments.
        """
        result = infer(target, *_each((args, kwargs), Value, attrgetter("kind")))
        if result is REFUSED:
            return None
        made = self.node(target, args, kwargs, result)
        if type(result) is Kind:
            return self.keep(_result(made, result, of))
        return result and self.parts(made, result, [of] * len(result))

    def parts(
        self, made: torch.fx.Node, kinds: Sequence[Kind], owners: Sequence[Value | None]
    ) -> list[Value]:
        """Add the projections of a node with several results, each with separate memory or that of its owner."""
        found: list[Value] = []
        for index, (kind, owner) in enumerate(zip(kinds, owners, strict=True)):
            node = self.node(operator.getitem, (made, index), {}, kind)
            found.append(self.keep(_result(node, kind, owner)))
        return found

    def node(
        self, target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> torch.fx.Node:
        """Add a node with the exporter's meta."""
        operands = _each((tuple(args), kwargs), Value, attrgetter("node"))
        made = self.graph.create_node(
            "call_function", target, *operands, name=target.__name__.partition(".")[0]
        )
        made.meta["nn_module_stack"] = stack_meta(self.frames, is_strict=self.style.is_strict)
        made.meta["torch_fn"] = (f"{made.name}_1", f"OpOverload.{made.name}")
        made.meta["val"] = (
            tuple(map(self.fake, result)) if isinstance(result, tuple) else self.fake(result)
        )
        return made

    def body(self, name: str, module: torch.fx.GraphModule) -> Any:
        """Store the body of a higher-order operator; return the argument that refers to it."""
        self.modules[name] = module
        return self.graph.get_attr(name)

    def is_used(self, value: Value) -> bool:
        """Return whether another node uses a value."""
        return bool(value.node.users)

    def order(self, target: Any, text: str) -> None:
        """Add an operator with observable order; a functional program threads a token through it."""
        if self.token is None:
            self.node(target, (text,), {}, None)
            return
        made = self.node(
            torch.ops.higher_order.with_effects, (self.token, target, text), {}, (TOKEN, None)
        )
        self.token = self.node(operator.getitem, (made, 0), {}, TOKEN)

    def keep(self, value: Value) -> Value:
        """Store a result for use by later nodes."""
        if value.kind.dtype is None:
            self.numbers.append(value)
        elif value.kind.dtype is not torch.bool:
            # Few operators accept booleans, so these are used where they are made.
            self.values.append(value)
        return value

    def value(self, number: int) -> Value:
        """Return one of the latest results (below 6), or one of the inputs."""
        if number < 6 and self.values:
            return self.values[-1 - number % len(self.values)]
        return self.now(self.given[-1 - (number - 6) % len(self.given)])

    def find(self, number: int, fits: Callable[[Value], bool]) -> Value | None:
        """Return a value that fits, selected by a number."""
        return next(
            (value for value in map(self.value, range(number, number + 12)) if fits(value)), None
        )

    def like(self, number: int, other: Value) -> Value | None:
        """Return a value that can be broadcast with another, selected by a number."""
        return self.find(number, lambda value: combine(value.kind, other.kind))

    def own(self, number: int, dims: tuple[str, ...] | None = None) -> Value | None:
        """Return a piece of state of the current module, or of one below it."""
        path = self.frames[-1][0] if self.frames else ""
        mine = [
            value for value in self.given if value.slot is not None and is_below(value.slot, path)
        ]
        found = [value for value in mine if dims in (None, value.kind.dims)]
        return self.now(found[number % len(found)]) if found else None

    def now(self, given: Value) -> Value:
        """Return the new contents of an input, if any."""
        return self.latest.get(given, given)

    def write(self, target: Value, value: Value) -> None:
        """Record new contents of an input in a functional program."""
        for given in self.given:
            if (
                self.now(given) is target
                and given.is_writable
                and value.kind.text == given.kind.text
            ):
                self.latest[given] = value
                return


def _result(node: torch.fx.Node, kind: Kind, owner: Value | None) -> Value:
    return (
        Value(node, kind, object())
        if owner is None
        else Value(node, kind, owner.memory, None, owner.is_writable)
    )


def _each(arg: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    if type(arg) is dict:
        return {key: _each(value, kind, function) for key, value in arg.items()}
    if type(arg) in (tuple, list):
        return type(arg)([_each(part, kind, function) for part in arg])
    return function(arg) if type(arg) is kind else arg
