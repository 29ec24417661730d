"""Replacements: torch code that torch traces on the fake values at a match.

``torch.export`` records operators in the same way, so overloads, defaults, Python functions and casts are torch's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, cast

import torch
from attrs import frozen
from torch import fx
from torch.overrides import TorchFunctionMode

from ...ir.arguments import Arg, Items, Ref
from ...ir.errors import RuleError
from ...ir.graph import Get, Node, Stack
from ...ir.inference import FakeValues, described
from ...ir.inference.values import depends_on_contents, plain_strides, without_autocast
from ...ir.meta import Meta
from ...ir.names import Names, stem_of, word_of
from ...ir.operators import op_of
from ...ir.torch_private import (
    FakeTensor,
    Recorder,
    assuming_sizes,
    autocast_is_on,
    fake_of,
    pytree,
    times_written,
    without_kernels,
)
from .pattern import nodes_of

KEPT = "m.value"
"""The root of the match as it was."""

READING_SIZES = frozenset(
    [
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten.sym_stride.int,
        torch.ops.aten.sym_storage_offset.default,
    ]
)
"""The operators that torch records for open sizes of an operand."""

Source = Any
"""An operand in the program: a ``Ref``, a ``Get``, a constant tensor, or ``KEPT``."""


@frozen(eq=False)
class Template:
    """The recorded operators of a replacement, over its operands."""

    nodes: Sequence[tuple[fx.Node, str, Any]]
    """The recorded nodes, each with a name and its operator."""
    results: Sequence[fx.Node]
    numbers: Mapping[fx.Node, int]
    """The number of the operand of each placeholder."""
    sources: Sequence[Source]
    makes_sizes: bool
    """Whether its values have new symbols, so they are inferred in the program."""
    reads_sizes: bool
    """Whether it reads an open size of an operand."""

    def at(
        self,
        root: Node,
        stack: Stack,
        operands: Sequence[Source],
        names: Names,
        meta: Meta,
        *,
        has_values: bool,
    ) -> tuple[list[Node], tuple[Ref, ...]]:
        """Return nodes with fresh names, and the results.

        Args:
            root: the root of the match.
            stack: the stack of the new nodes.
            operands: replace the recorded sources.
            names: the used names.
            meta: the meta of the new nodes.
            has_values: whether the new nodes have the recorded values.
        """
        known: dict[fx.Node, Arg] = {}
        made: list[Node] = []

        def put(one: fx.Node) -> Arg:
            if one not in known:
                known[one] = _read(
                    operands[self.numbers[one]], one.meta.get("val"), root, stack, names, meta, made
                )
            return known[one]

        for node, word, do in self.nodes:
            args, kwargs = (
                _frozen(node.args, put),
                tuple([(key, _frozen(arg, put)) for key, arg in node.kwargs.items()]),
            )
            known[node] = Ref(names.fresh(word))
            value = {"val": node.meta["val"]} if has_values and "val" in node.meta else {}
            made.append(
                Node(known[node].name, do, args, kwargs, stack, MappingProxyType({**meta, **value}))
            )
        return made, tuple(map(put, self.results))


def _frozen(arg: Any, put: Callable[[fx.Node], Arg]) -> Any:
    if isinstance(arg, list | tuple):
        return (Items if isinstance(arg, list) else tuple)([_frozen(part, put) for part in arg])
    return put(arg) if isinstance(arg, fx.Node) else arg


def _read(
    source: Source, value: Any, root: Node, stack: Stack, names: Names, meta: Meta, made: list[Node]
) -> Arg:
    # An operand as an argument; reading new state and computing the root each add a node.
    if source is KEPT:
        made.append(root.evolve(name=names.fresh(stem_of(root.name))))
    elif type(source) is Get:
        existing = next((node for node in made if node.do == source), None)
        if existing is not None:
            return Ref(existing.name)
        made.append(
            Node(
                names.fresh(word_of(source.slot)),
                source,
                (),
                (),
                stack,
                MappingProxyType({**meta, "val": value}),
            )
        )
    else:
        return source
    return Ref(made[-1].name)


class Operands:
    """The values that a replacement computes with, each with its source in the program.

    Args:
        values: the fake values of the program.
    """

    def __init__(self, values: FakeValues) -> None:
        self.values = values
        self.by_source: dict[Source, Any] = {}
        """The operand of each source."""
        self.by_id: dict[int, Source] = {}
        """The source of each operand, by the ``id`` of the operand."""
        self.recorder: Recorder | None = None
        """Records a replacement while it runs."""
        self.is_called = False
        """Whether ``m.call`` is running: its operators are recorded even without fake operands."""

    def of(self, source: Source, value: Any) -> Any:
        """Return the operand for a source: a separate fake tensor, or the number itself.

        Args:
            source: the operand in the program.
            value: its fake value.
        """
        if source not in self.by_source:
            with self.paused():  # several values of a program may share a fake value, but operands are distinct by identity
                operand = pytree.tree_map_only(torch.Tensor, _separate, value)
            self.by_source[source] = operand
            for each in operand if isinstance(operand, list | tuple) else [operand]:
                self.by_id[id(each)] = source
            if self.recorder is not None:
                with self.paused():
                    self.recorder.operand(operand)
        return self.by_source[source]

    def of_state(self, source: Source, tensor: torch.Tensor) -> Any:
        """Return the operand for a tensor."""
        with self.paused():
            value = self.values.of_state(tensor.detach())
        return self.of(source, value)

    def called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Record a call of an operator, even without fake operands."""
        self.is_called = True
        try:
            return function(*args, **kwargs)
        finally:
            self.is_called = False

    @contextmanager
    def paused(self) -> Generator[None]:
        """Run operators without recording them, also within ``called``."""
        is_called, self.is_called = self.is_called, False
        try:
            with nullcontext() if self.recorder is None else self.recorder.paused():
                yield
        finally:
            self.is_called = is_called

    def traced(self, function: Callable[[], Any], count: int) -> Template:
        """Record the operators that a function calls on operands.

        Args:
            function: torch code.
            count: the number of results; 0 for one result outside a tuple.

        Raises:
            RuleError: the function returns anything else.
        """
        self.recorder = Recorder()
        try:
            for operand in self.by_source.values():
                self.recorder.operand(operand)
            with (
                without_kernels(self.values.mode),
                without_autocast(),
                self.recorder.recording(),
                _Apart(self) as apart,
            ):
                made = apart.recorded(function())
            if count and (not isinstance(made, list | tuple) or len(made) != count):
                raise RuleError(
                    f"a replacement of {count} results returns a tuple of {count} values, not {made!r}"
                )
            return self._template(
                [self._result(each) for each in (cast("Any", made) if count else [made])]
            )
        finally:
            self.recorder = None

    def _result(self, value: Any) -> fx.Node:
        assert self.recorder is not None
        node = self.recorder.node_of(value)
        if (
            node is None and isinstance(value, list | tuple) and value
        ):  # all results of one operator
            nodes = [self.recorder.node_of(each) for each in value]
            wholes = [
                one.args[0] for one in nodes if one is not None and one.target is operator.getitem
            ]
            node = (
                cast("Any", wholes[0])
                if len(wholes) == len(value) and len(set(wholes)) == 1
                else None
            )
        if node is None:
            raise RuleError(
                f"a replacement returns an operand or a value that it computes, not {value!r}"
            )
        return cast("fx.Node", node)

    def _template(self, results: Sequence[fx.Node]) -> Template:
        assert self.recorder is not None
        used, recorded = nodes_of(*results), self.recorder.calls()
        calls = [node for node in recorded if node in used]
        for node in recorded:
            if (
                node not in used
                and (effects := op_of(node.target).effects).acts
                and not effects.random
            ):
                raise RuleError(
                    f"the replacement calls {node.target}, but returns another value: its effect would be lost"
                )
        nodes = [
            (node, word_of(cast("Any", node.target).__name__.partition(".")[0]), op_of(node.target))
            for node in calls
        ]
        constants = self.recorder.graph.find_nodes(
            op="get_attr"
        )  # torch makes a tensor of [1, 2] in x[:, [1, 2]]
        numbers = {
            one: n
            for n, one in enumerate([*self.recorder.graph.find_nodes(op="placeholder"), *constants])
        }
        sources = [*self.by_source, *[getattr(self.recorder.root, one.target) for one in constants]]
        return Template(
            nodes,
            results,
            numbers,
            sources,
            any(depends_on_contents(node.target) for node in calls),
            any(node.target in READING_SIZES for node in calls),
        )


def _separate(value: Any) -> Any:
    # A new fake tensor like it takes a twentieth of the time of a detached one.
    if (strides := plain_strides(value)) is None or value.storage_offset():
        return value.detach()
    return fake_of(value.fake_mode, value.dtype, value.shape, strides, value.fake_device)


@frozen(eq=False)
class _Factory:
    """A call that made a real tensor, which must not be written since."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    value: torch.Tensor
    written: int


FROM_DATA = frozenset(
    {torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.frombuffer}
)
"""Functions that make a tensor of contents, which are a constant."""


class _Apart(TorchFunctionMode):
    """Runs functions of real tensors at once, and turns real tensors beside fake ones into constants."""

    def __init__(self, operands: Operands) -> None:
        super().__init__()
        self.operands = operands
        self.factories: dict[int, _Factory] = {}
        """The calls that made real tensors without operands, by the ``id`` of the tensor."""

    def recorded(self, made: Any) -> Any:
        """Return the results of a replacement with recorded values in place of real tensors.

        What a factory such as ``torch.arange`` made is its operator; another tensor is a constant, as it is beside operands.
        """
        if isinstance(made, list | tuple):
            return type(made)([self.recorded(each) for each in made])
        if not isinstance(made, torch.Tensor) or isinstance(made, FakeTensor):
            return made
        factory = self.factories.get(id(made))
        if factory is None or times_written(made) != factory.written:
            constant = self._constant(made)
            return torch.ops.aten.lift_fresh_copy.default(constant)  # no result is the state itself
        return self.operands.called(factory.function, *factory.args, **factory.kwargs)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, operands = kwargs or {}, self.operands
        leaves = pytree.tree_leaves((args, kwargs))
        if (
            not any(isinstance(each, FakeTensor | torch.SymInt | torch.SymFloat) for each in leaves)
            and not operands.is_called
        ):
            with operands.paused():
                value = function(*args, **kwargs)
            has_operands = any(isinstance(each, torch.Tensor) for each in leaves)
            if type(value) is torch.Tensor and not has_operands and function not in FROM_DATA:
                written = times_written(value)
                self.factories[id(value)] = _Factory(function, args, kwargs, value, written)
            return value
        if autocast_is_on():
            raise RuleError(
                "a replacement sets autocast, but its operators run in the modes of the match"
            )
        if any(
            isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor) for each in leaves
        ):
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._constant, (args, kwargs))
        with operands.values.mode, assuming_sizes(operands.values.mode.shape_env):
            return function(*args, **kwargs)

    def _constant(self, tensor: torch.Tensor) -> Any:
        if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad:
            raise RuleError(
                "a replacement uses a parameter of your own, which would not be trained: add it with m.parameter"
            )
        return tensor if isinstance(tensor, FakeTensor) else self.operands.of_state(tensor, tensor)


def operands_key(value: Any, refs: Sequence[str], value_of: Callable[[Ref], Any]) -> Hashable:
    """Return a key for the replacement on some operands: their types, exact strides, and which operands are the same value.

    Args:
        value: the operands.
        refs: the values of the program that they use.
        value_of: returns the fake value of one of them.

    >>> operands_key((Ref("x"), 2), ["x"], lambda ref: None)
    (<class 'tuple'>, ((0, (<class 'NoneType'>, 'None')), (<class 'int'>, '2')))
    """
    if type(value) is Ref:
        return refs.index(value.name), operands_key(value_of(value), refs, value_of)
    if isinstance(value, FakeTensor):  # strides of dimensions of size 1 choose memory formats
        return described(value, exactly=True)
    if isinstance(value, list | tuple):
        return type(value), tuple([operands_key(each, refs, value_of) for each in value])
    return type(value), str(value)
