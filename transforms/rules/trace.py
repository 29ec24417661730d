"""Replacements: torch code that torch traces on the fake values at a match.

``torch.export`` records operators in the same way, so overloads, defaults, Python functions and casts are torch's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Hashable, Sequence
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
from ...ir.inference import FakeValues
from ...ir.meta import Meta
from ...ir.names import Names, stem_of, word_of
from ...ir.operators import op_of
from ...ir.torch_private import FakeTensor, OpOverload, Recorder, assuming_sizes, schema_of, without_kernels

__all__ = ["KEPT", "Operands", "Template", "Unknown", "described"]

KEPT = "m.value"
"""Stands for the root of the match as it was."""

Source = Any
"""What an operand is in the program: a ``Ref``, a ``Get``, a constant tensor, or ``KEPT``."""


class Unknown(RuleError):
    """A value of the program has no fake value."""


@frozen(eq=False)
class _Operand:
    """Stands in a template for an operand, by number, or for the value of an earlier node, by name."""

    of: int | str


@frozen
class Template:
    """The operators of a replacement, over its operands."""

    nodes: tuple[tuple[str, str, Any, Any, Any, Any], ...]
    """Of each node its key, its name, its operator, arguments by position and by name, and its fake value."""
    results: tuple[Arg, ...]
    sources: tuple[Source, ...]
    values_are_known: bool

    def at(
        self, root: Node, stack: Stack, operands: Sequence[Source], names: Names, meta: Meta
    ) -> tuple[list[Node], tuple[Ref, ...]]:
        """Return the nodes with fresh names, and the results.

        Args:
            root: of the match.
            stack: of the new nodes.
            operands: in place of the sources.
            names: those that are taken.
            meta: of the new nodes.
        """
        known: dict[int | str, Arg] = {}
        made: list[Node] = []

        def put(arg: Any) -> Any:
            if isinstance(arg, _Operand):
                if arg.of not in known:
                    assert isinstance(arg.of, int)
                    known[arg.of] = _read(operands[arg.of], root, stack, names, meta, made)
                return known[arg.of]
            return type(arg)([put(part) for part in arg]) if isinstance(arg, tuple) else arg

        for of, word, do, args, kwargs, value in self.nodes:
            given, named = put(args), tuple([(key, put(arg)) for key, arg in kwargs])
            new = names.fresh(word)
            known[of] = Ref(new)
            made.append(Node(new, do, given, named, stack, MappingProxyType({**meta, "val": value})))
        return made, tuple(map(put, self.results))


def _read(source: Source, root: Node, stack: Stack, names: Names, meta: Meta, made: list[Node]) -> Arg:
    # An operand as an argument; new state is read, and the root is computed, by a node.
    if source is KEPT:
        made.append(root.evolve(name=names.fresh(stem_of(root.name))))
    elif type(source) is Get:
        there = next((node for node in made if node.do == source), None)
        if there is not None:
            return Ref(there.name)
        made.append(Node(names.fresh(word_of(source.slot)), source, (), (), stack, meta))
    else:
        return source
    return Ref(made[-1].name)


class Operands:
    """The values that a replacement computes with; each knows what it is in the program.

    Args:
        values: the fake values of the program.
    """

    def __init__(self, values: FakeValues) -> None:
        self.values = values
        self.sources: list[Source] = []
        self._given: list[Any] = []
        self._by_source: dict[Any, Any] = {}
        self._by_id: dict[int, Source] = {}
        self._recorder: Recorder | None = None
        self._placeholders: dict[str, int] = {}
        self.is_called = False
        """Whether an operator is called that draws, or makes a tensor, when the program runs."""

    def of(self, source: Source, value: Any) -> Any:
        """Return a value that stands for a source: a fake tensor of its own, or the number itself.

        Args:
            source: what it is in the program.
            value: its fake value.
        """
        key = id(source) if isinstance(source, torch.Tensor) else source
        if key not in self._by_source:
            with self.paused():
                given = _copy(value)
            self._by_source[key] = given
            self._given.append(given)
            self.sources.append(source)
            for each in given if isinstance(given, list | tuple) else [given]:
                self._by_id[id(each)] = source
            self._track(given)
        return self._by_source[key]

    def of_state(self, source: Source, tensor: torch.Tensor) -> Any:
        """Return a value that stands for a tensor."""
        with self.paused():
            value = self.values.of_state(tensor.detach())
        return self.of(source, value)

    @property
    def are_recorded(self) -> bool:
        """Whether a replacement is computed with them now."""
        return self._recorder is not None

    def source_of(self, value: Any) -> Source:
        """Return what a value is in the program; None if it is not an operand."""
        return self._by_id.get(id(value))

    def paused(self) -> Any:
        """Run operators without recording them."""
        return nullcontext() if self._recorder is None else self._recorder.paused()

    def _track(self, given: Any) -> None:
        if self._recorder is not None:
            before = len(self._recorder.graph.nodes)
            self._recorder.operand(given)
            placeholder = [*self._recorder.graph.nodes][before]
            self._placeholders[placeholder.name] = len(self._placeholders)

    def traced(self, function: Callable[[], Any], count: int, *, may_leave: bool) -> Template | None:
        """Return what a function computes of operands; None if it returns None.

        Args:
            function: torch code.
            count: how many results it has; 0 for one that is not in a tuple.
            may_leave: whether None means that the match stays as it is.

        Raises:
            RuleError: it returns something else.
        """
        self._recorder = Recorder()
        try:
            with without_kernels(self.values.mode), self._recorder.recording():
                for given in self._given:
                    self._track(given)
                with _Apart(self):
                    made = function()
            if made is None and may_leave:
                return None
            if count and (not isinstance(made, list | tuple) or len(made) != count):
                raise RuleError(f"a replacement of {count} results returns a tuple of as many, not {made!r}")
            return self._template([self._result(each) for each in (cast("Any", made) if count else [made])])
        finally:
            self._recorder = None

    def _result(self, value: Any) -> fx.Node:
        assert self._recorder is not None
        node = self._recorder.node_of(value)
        if node is None and isinstance(value, list | tuple) and value:  # all results of one operator
            nodes = [self._recorder.node_of(each) for each in value]
            wholes = [one.args[0] for one in nodes if one is not None and one.target is operator.getitem]
            if len(wholes) == len(value) and len(set(wholes)) == 1:
                node = wholes[0]  # type: ignore[assignment]
        if node is None:
            raise RuleError(f"a replacement returns one value that it computes or was given, not {value!r}")
        return cast("fx.Node", node)

    def _template(self, results: Sequence[fx.Node]) -> Template:
        assert self._recorder is not None
        used, todo = set[fx.Node](), [*results]
        while todo:
            node = todo.pop()
            if node not in used:
                used.add(node)
                todo += node.all_input_nodes
        nodes = [node for node in self._recorder.calls() if node in used]
        written = []
        for node in nodes:
            kwargs = tuple([(key, self._args(arg)) for key, arg in node.kwargs.items()])
            value = node.meta.get("val")
            written.append((node.name, _word(node.target), op_of(node.target), self._args(node.args), kwargs, value))
        return Template(
            tuple(written), tuple([self._args(one) for one in results]), tuple(self.sources), not any(map(_makes_sizes, nodes))
        )

    def _args(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return _Operand(self._placeholders[arg.name] if arg.op == "placeholder" else arg.name)
        if isinstance(arg, list | tuple):
            return (Items if isinstance(arg, list) else tuple)([self._args(part) for part in arg])
        return arg

    @contextmanager
    def called(self) -> Generator[None]:
        """Record operators that make a tensor, which otherwise run at once and give a constant."""
        self.is_called = True
        try:
            yield
        finally:
            self.is_called = False


class _Apart(TorchFunctionMode):
    """Runs what computes with real tensors alone at once, and makes constants of real tensors beside fake ones."""

    def __init__(self, operands: Operands) -> None:
        super().__init__()
        self.operands = operands

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, operands = kwargs or {}, self.operands
        leaves = [each for arg in (*args, *kwargs.values()) for each in (arg if isinstance(arg, list | tuple) else [arg])]
        is_fake = any(isinstance(each, FakeTensor) for each in leaves)
        is_sized = any(isinstance(each, torch.SymInt | torch.SymFloat) for each in leaves)
        if not is_fake and not is_sized and not operands.is_called:
            with operands.paused():
                return function(*args, **kwargs)
        if any(isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor) for each in leaves):
            args, kwargs = self._constants(args), {key: self._constants(arg) for key, arg in kwargs.items()}
        with operands.values.mode, assuming_sizes(operands.values.mode.shape_env):
            return function(*args, **kwargs)

    def _constants(self, arg: Any) -> Any:
        if isinstance(arg, list | tuple):
            return type(arg)([self._constants(each) for each in arg])
        if isinstance(arg, torch.Tensor) and not isinstance(arg, FakeTensor):
            return self.operands.of_state(arg, arg)
        return arg


def _copy(value: Any) -> Any:
    # Several values of a program may have one fake value; operands are told apart by identity.
    if isinstance(value, list | tuple):
        return [_copy(each) for each in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


def _word(target: Any) -> str:
    return word_of(schema_of(target).name.rpartition("::")[2] if isinstance(target, OpOverload) else target.__name__)


def _makes_sizes(node: fx.Node) -> bool:
    # Whether torch makes symbols of new sizes for a value.
    tags = getattr(node.target, "tags", ())
    return torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags


def described(value: Any) -> Hashable:
    """Return what decides how operators treat a value: equal for operands that are alike."""
    if isinstance(value, FakeTensor):
        return value.dtype, tuple(map(str, value.shape)), tuple(map(str, value.stride())), value.fake_device
    if isinstance(value, list | tuple):
        return type(value), tuple(map(described, value))
    return type(value), str(value)
