"""``FakeValues``: the fake values in the meta of a program, and new symbols for programs without fake values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from ..analysis.numbers import SYMBOLIC, too_much_work
from ..arguments import thawed
from ..errors import UnsupportedProgram
from ..expression import UNCOMPUTABLE, Apply, Expr, InputDim, InputValue, Sym, evaluate, symbols_in
from ..forks import cached_property, new_lock
from ..graph import Input, Node, Op
from ..meta import Meta, freeze
from ..own_operators import is_boundary
from ..program import Program
from ..signature import (
    InputSpec,
    LiteralType,
    NumberType,
    ObjectType,
    StateInput,
    TensorType,
    Token,
    UserInput,
)
from ..torch_private import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    autocast_is_on,
    device_of,
    enable_python_dispatcher,
    fake_of,
    fake_state,
    forkable,
    fresh_bindings,
    has_fixed_sizes,
    new_shape_env,
    new_symbol,
    pytree,
    schema_of,
    silence,
    size_number,
    symbols_of,
    without_cache,
    without_kernels,
    without_overrides,
)

UNKNOWN: Any = object()
"""The unknown value."""

NAMESPACES = frozenset({"aten", "prims"})
"""The namespaces whose operators depend on descriptions of their operands only; those of other libraries may not."""

BY_CONTENTS = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
"""Tags of operators whose result sizes or numbers depend on the contents of tensors."""

LITERALS = frozenset(
    {
        int,
        float,
        bool,
        complex,
        str,
        type(None),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    }
)

RESULTS: dict[Hashable, tuple[Any, ...]] = {}
"""The dtype, shape, strides and device of operator results, by the operator and the descriptions of its operands: running an
operator on fake tensors takes 5x as long as a look-up, and layers repeat operators."""

LARGEST = 20_000
"""The maximum number of these results: a search over sizes runs any number of operators."""


@cache
def depends_on_contents(target: Any) -> bool:
    """Return whether result sizes or numbers of an operator depend on the contents of tensors.

    >>> depends_on_contents(torch.ops.aten.nonzero.default), depends_on_contents(len)
    (True, False)
    """
    return isinstance(target, OpOverload) and not BY_CONTENTS.isdisjoint(target.tags)


@cache
def _is_determined(target: Any) -> bool:
    return (
        isinstance(target, OpOverload)
        and target.namespace in NAMESPACES
        and not depends_on_contents(target)
    )


def has_fake_value(value: Any) -> bool:
    """Return whether a piece of state has a fake value: torch makes none of nested and quantized tensors.

    >>> has_fake_value(torch.eye(2)), has_fake_value("a string")
    (True, True)
    """
    return not isinstance(value, torch.Tensor) or not (value.is_nested or value.is_quantized)


ASSUMED = 2
"""The smallest size that torch assumes when it traces an open one, also where the range starts at 0 or 1."""

ATTEMPTS = 256
"""The number of values to try for a symbol; most guards are about remainders and bounds."""


def fresh_mode() -> Any:
    """Return a new fake mode with a shape environment."""
    return FakeTensorMode(shape_env=new_shape_env())


LOCK = new_lock()
"""Locked while operators run on fake values: all programs of one export share a mode and its environment."""


class FakeValues:
    """The fake values of one program.

    >>> from purefx.ir import Graph, Program
    >>> FakeValues(Program.of({"": Graph((), (), ())})).is_ours(torch.ones(2))
    True
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.bindings: dict[str, Any] = {}
        """The places of new symbols of data-dependent sizes in the inferred values of nodes."""

    def doubts(self, graph: str, name: str) -> bool:  # noqa: ARG002
        """Return whether to infer a value although the meta has it."""
        return False

    @cached_property
    def mode(self) -> Any:
        """The fake mode of the program's values; a new one if it has no values."""
        found = _mode_of(self.program)
        return (
            fresh_mode()
            if found is None or (found.shape_env is None and _has_symbols(self.program))
            else found
        )

    @cached_property
    def device(self) -> str:
        """The device of the first tensor argument of the program."""
        kinds = [spec.type for spec in self.program.signature.inputs if type(spec) is UserInput]
        return next((kind.device for kind in kinds if type(kind) is TensorType), "cpu")

    def of_input(self, formal: Input, spec: InputSpec) -> Any:
        """Return the fake value of an input of the root: from its meta, its type or the state.

        Args:
            formal: the input.
            spec: its entry in the signature.

        Raises:
            UnsupportedProgram: the input has no value, and its type does not determine one.
        """
        if (recorded := self.recorded(formal)) is not UNKNOWN:
            return recorded
        match spec:
            case StateInput(slot=slot):
                return self.of_state(self.program.state[slot].value)
            case Token():
                with LOCK, forkable(self.mode), self.mode:
                    return torch.empty(0)
            case UserInput(type=LiteralType(value=value)):
                return freeze(thawed(value))  # as in the meta: a dict, not a Record
            case UserInput(type=TensorType(dtype=dtype, shape=shape, device=device)):
                sizes = [self.number(size) for size in shape]
                with LOCK, forkable(self.mode), self.mode:
                    return torch.empty(sizes, dtype=dtype, device=device)
            case UserInput(type=NumberType(kind="int", expr=expr)) if expr is not None:
                return self.number(expr)
            case UserInput(type=kind):
                description = (
                    kind.description
                    if isinstance(kind, ObjectType)
                    else f"any {getattr(kind, 'kind', 'rest')}"
                )
                raise UnsupportedProgram(
                    f"the input {formal.name!r} ({description}) has no fake value, and its type does not determine one; "
                    "set its meta['val'], as import_fx does with example_inputs="
                )

    def of_state(self, value: Any, recorded: Any = None) -> Any:
        """Return the fake value of the contents of a slot: a tensor of static sizes, or another object itself.

        Args:
            value: the contents.
            recorded: the value in the meta of the read.

        Raises:
            UnsupportedProgram: it is a tensor that has no fake value.
        """
        if not isinstance(value, torch.Tensor):
            return value
        if not has_fake_value(value):
            raise UnsupportedProgram(
                "the sizes of a nested tensor are unknown: read its values and offsets instead"
                if value.is_nested
                else "torch has no fake values of quantized tensors: dequantize them before the export"
            )
        stays = isinstance(recorded, torch.Tensor) and device_of(recorded).type == "meta"
        if value.is_meta and value.layout is torch.strided and not stays:
            # The program was loaded without weights: use the device of the inputs.
            with LOCK, forkable(self.mode), self.mode:
                return torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device=self.device
                )
        with LOCK:
            return fake_state(self.mode, value)

    def known_value(self, node: Node) -> tuple[bool, Any]:
        """Return whether the meta of a node has a fake value of the program's mode, and the value."""
        if "val" not in node.meta:
            return has_no_result(node), None
        value, target = node.meta["val"], _overload_of(node)
        is_list = (
            type(value) is tuple and target is not None and len(schema_of(target).returns) == 1
        )
        return self.is_ours(value), list(value) if is_list else value

    def run(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of an operator for fake arguments, within ``running``; errors of the operator propagate.

        Args:
            node: the node of the operator.
            target: its callable.
            args: fake values and literals.
            kwargs: keyword arguments.
        """
        do = node.do
        assert type(do) is Op
        if (work := too_much_work(target, args)) is not None:
            raise UnsupportedProgram(
                f"node {node.name} computes {work}, which is too expensive to run"
            )
        key = self._key(do, args, kwargs)
        if (known := RESULTS.get(key)) is not None:
            return fake_of(self.mode, *known)
        if do.effects.writes:
            # It may change the shape of its operand, which later operators use.
            args, kwargs = pytree.tree_map_only(FakeTensor, _copied, (args, kwargs))
        is_view = getattr(
            target, "is_view", True
        )  # other operators may return their operand, which the cache does not repeat
        with nullcontext() if is_view or not do.effects.aliases else without_cache(self.mode):
            value = target(*args, **kwargs)
        bindings = fresh_bindings(self.mode.shape_env, value)
        if bindings:
            self.bindings[node.name] = bindings
        elif (
            key is not None
            and type(value) is FakeTensor
            and plain_strides(value) is not None
            and value.storage_offset() == 0
        ):
            if len(RESULTS) >= LARGEST:
                RESULTS.clear()
            RESULTS[key] = value.dtype, value.shape, value.stride(), value.fake_device
        return value

    def _key(self, do: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
        # A key for the result of an operator; None if the result is not one new tensor that its operands determine.
        if not _is_determined(do.target) or do.effects.acts or do.effects.aliases:
            return None
        # Gradients and autocast of an operator change the values of its bodies.
        strides = list(
            map(plain_strides, pytree.tree_leaves((args, kwargs)))
        )  # with sizes of 1, they choose memory formats
        if torch.is_grad_enabled() or autocast_is_on() or None in strides:
            return None
        # The results of factories and promotions depend on these modes too.
        return (
            do.target,
            torch.get_default_dtype(),
            torch.is_inference_mode_enabled(),
            *strides,
            described((args, kwargs)),
        )

    @cached_property
    def _symbols(self) -> dict[str, Any]:
        return symbols_of(self.mode.shape_env)

    def number(self, expr: Expr) -> Any:
        """Return the value of a size: an integer or a symbolic integer.

        Args:
            expr: an expression of integers and symbols.
        """
        names = symbols_in(expr)
        for name in names:
            if name not in self._symbols:
                low, high = self._assumed(name)
                self._symbols[name] = new_symbol(
                    self.mode.shape_env, name, self._guessed[name], low, high
                )
        return (
            evaluate(expr, {Sym(name): self._symbols[name] for name in names})
            if isinstance(expr, Apply | Sym)
            else expr
        )

    def example_number(self, expr: Expr) -> Any:
        """Return an example of a size: that of the export, or one that satisfies bounds and guards; None if data-dependent.

        Args:
            expr: an expression of integers and symbols.
        """
        number = self.number(expr)
        return size_number(number) if isinstance(number, SYMBOLIC) else number

    @cached_property
    def _bounds(self) -> Mapping[str, tuple[int | None, int | None]]:
        ranges = self.program.constraints.ranges
        return {
            span.expr.name: (span.low, span.high) for span in ranges if isinstance(span.expr, Sym)
        }

    @cached_property
    def _sizes(self) -> set[str]:
        # The symbols in the shapes of inputs; the others are numbers that are no sizes.
        places = sizes_of_inputs(self.program).items()
        return {
            name for place, size in places if type(place) is InputDim for name in symbols_in(size)
        }

    def _assumed(self, name: str) -> tuple[int | None, int | None]:
        # The bounds of a new symbol, as the exporter assumes them: operators on a size that may be 1 would need guards.
        low, high = self._bounds.get(name, (None, None))
        is_assumed = name in self._sizes and (high is None or high >= ASSUMED)
        return max(low or 0, ASSUMED) if is_assumed else low, high

    @cached_property
    def _guessed(self) -> dict[str, int]:
        # The first numbers that satisfy the bounds and the guards.
        sizes = sizes_of_inputs(self.program)
        names = list(dict.fromkeys(name for size in sizes.values() for name in symbols_in(size)))
        for step in range(ATTEMPTS):
            numbers = {name: self._allowed(name, step + place) for place, name in enumerate(names)}
            known = {Sym(name): number for name, number in numbers.items()}
            with suppress(KeyError, *UNCOMPUTABLE):
                places = {place: evaluate(size, known) for place, size in sizes.items()}
                if all(evaluate(guard, places) for guard in self.program.constraints.guards):
                    return numbers
        return {name: self._allowed(name, place) for place, name in enumerate(names)}

    def _allowed(self, name: str, step: int) -> int:
        # A number within the bounds of a symbol, at least 2 if possible: torch specializes 0 and 1.
        low, high = self._bounds.get(name, (None, None))
        least = max(2 if low is None else low, 2 if high is None or high >= 2 else low or 0)
        return least + step if high is None else min(least + step, high)

    def recorded(self, value: Node | Input) -> Any:
        """Return the value in the meta; ``UNKNOWN`` if it has none of the program's mode."""
        return (
            value.meta["val"]
            if "val" in value.meta and self.is_ours(value.meta["val"])
            else UNKNOWN
        )

    def is_ours(self, value: Any) -> bool:
        """Return whether a value belongs to the program's mode and environment, or to no mode."""
        if type(value) is FakeTensor:
            return value.fake_mode is self.mode  # nearly all are
        return all(
            part.fake_mode is self.mode
            if isinstance(part, FakeTensor)
            else part.node.shape_env is self.mode.shape_env
            for part in _parts(value)
        )


class ExampleValues(FakeValues):
    """The domain of fake values at the sizes of the export, in a separate mode, to compare with the meta.

    Args:
        program: the program.
        sizes: other numbers for some symbols, by name.

    >>> from purefx.ir import Graph, Program
    >>> ExampleValues(Program.of({"": Graph((), (), ())})).example((1, None))
    (1, None)
    """

    def __init__(self, program: Program, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__(program)
        self.sizes = sizes
        self._made: dict[Any, Any] = {}
        self._numbers: dict[Any, Any] = {}
        """The numbers of symbolic sizes, by environment and expression."""

    @cached_property
    def mode(self) -> Any:
        """A new fake mode."""
        return FakeTensorMode()

    @cached_property
    def fake(self) -> Callable[..., Any]:
        """Returns the fake tensor of a dtype, sizes, strides and a device; equal layers have the same values."""
        return cache(partial(fake_of, self.mode))

    def doubts(self, graph: str, name: str) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def of_input(self, formal: Input, spec: InputSpec) -> Any:  # noqa: ARG002
        """Return the recorded value of an input."""
        return self.recorded(formal)

    def run(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of an operator for fake arguments."""
        if type(node.do) is Op and "autocast" in node.do.name:
            raise NotImplementedError  # torch (2.13) ignores this in the meta of strict exports
        return super().run(node, target, args, kwargs)

    def recorded(self, value: Node | Input) -> Any:
        """Return the value in the meta at the sizes of the export, or ``UNKNOWN``."""
        return self.example(value.meta["val"]) if value.meta.get("val") is not None else UNKNOWN

    def example(self, value: Any) -> Any:
        """Return a value at the sizes of the export; ``UNKNOWN`` if a part of it is data-dependent."""
        if type(value) is FakeTensor:
            return self._leaf(value)  # nearly all are
        leaves, spec = pytree.tree_flatten(value)
        made = [self._leaf(leaf) for leaf in leaves]
        return (
            UNKNOWN if any(leaf is UNKNOWN for leaf in made) else pytree.tree_unflatten(made, spec)
        )

    def _leaf(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return self._number(value)
        if value not in self._made:
            if value.layout is not torch.strided or value.is_quantized:
                return UNKNOWN
            numbers = [*map(self._number, value.shape), *map(self._number, value.stride())]
            if any(number is UNKNOWN for number in numbers):
                return UNKNOWN
            if min(numbers, default=0) < 0:
                return UNKNOWN  # the recorded sizes are wrong there: x[1:] of no rows has no rows
            sizes, strides = numbers[: value.dim()], numbers[value.dim() :]
            made = value.dtype, tuple(sizes), tuple(strides), device_of(value)
            self._made[value] = self.fake(*made)
        return self._made[value]

    def _number(self, value: Any) -> Any:
        if not isinstance(value, SYMBOLIC):
            return value
        key = type(value), value.node.shape_env, value.node.expr
        if key not in self._numbers:
            self._numbers[key] = UNKNOWN
            with suppress(*UNCOMPUTABLE):
                number = size_number(value, self.sizes)
                self._numbers[key] = UNKNOWN if number is None else number
        return self._numbers[key]


def sizes_of_inputs(program: Program) -> dict[Expr, Expr]:
    """Return the size that each place of the user inputs has, such as ``InputDim(0, 1)``; guards refer to these places.

    >>> from purefx.ir import Graph
    >>> sizes_of_inputs(Program.of({"": Graph((), (), ())}))
    {}
    """
    sizes: dict[Expr, Expr] = {}
    specs = [spec for spec in program.signature.inputs if isinstance(spec, UserInput)]
    for index, spec in enumerate(specs):
        if isinstance(spec.type, TensorType):
            sizes.update((InputDim(index, dim), size) for dim, size in enumerate(spec.type.shape))
        elif isinstance(spec.type, NumberType) and spec.type.expr is not None:
            sizes[InputValue(index)] = spec.type.expr
    return sizes


def _copied(arg: Any) -> Any:
    return torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.fake_device)


def plain_strides(value: Any) -> tuple[int, ...] | None:
    """Return the strides of an operand; None if its description is incomplete: contents are known, or a conjugate is pending.

    >>> plain_strides(torch.ones(2)) is None, plain_strides(2)
    (True, ())
    """
    if type(value) is not FakeTensor:
        return () if type(value) in LITERALS else None
    with without_overrides():
        is_plain = (
            value.constant is None and value.layout is torch.strided and has_fixed_sizes(value)
        )
        return value.stride() if is_plain and not (value.is_conj() or value.is_neg()) else None


def described(value: Any, *, exactly: bool = False) -> Hashable:
    """Return a description of a fake value: its type, sizes, device, and strides.

    Args:
        value: a fake tensor, a number, or a container of them.
        exactly: include the stride of a dimension of size 1; for a tensor outside a container.

    >>> described(torch.ones(2, 3))
    (torch.float32, device(type='cpu'), torch.strided, torch.Size([2, 3]), (3, 1))
    >>> described([1, 2]) == described((1, 2)), described({"a": 1}) == described({"a": True})
    (True, False)
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        with without_overrides():
            sizes, strides = value.shape, value.stride() if value.layout is torch.strided else ()
            if not has_fixed_sizes(value):  # a comparison of symbolic sizes would install a guard
                sizes, strides = (
                    tuple([n if type(n) is int else described(n) for n in each])
                    for each in (sizes, strides)
                )
            if (
                1 in sizes and not exactly
            ):  # such a stride has no meaning, and fake kernels differ from real ones in it
                strides = tuple(
                    [
                        1 if size == 1 else stride
                        for size, stride in zip(sizes, strides, strict=False)
                    ]
                )
            return value.dtype, device_of(value), value.layout, sizes, strides
    if kind in LITERALS or (
        kind is TensorMetadata and {int}.issuperset(map(type, (*value.shape, *value.stride)))
    ):
        return kind, value
    if isinstance(value, SYMBOLIC):
        return kind, str(value)
    if isinstance(value, tuple | list):
        return tuple, *map(described, value)
    if isinstance(value, Mapping):
        return Mapping, *[(key, described(value[key])) for key in sorted(value, key=repr)]
    parts, spec = pytree.tree_flatten(
        value
    )  # a user's container, among the arguments or results of a preserved call
    return (kind, id(value)) if pytree.tree_is_leaf(value) else (spec, *map(described, parts))


@contextmanager
def running(mode: Any) -> Generator[None, None, None]:
    """Run operators on fake values: one thread at a time, without guards, gradients, autocast or kernels.

    Args:
        mode: the fake mode.

    >>> with running(fresh_mode()):
    ...     torch.ones(2) + 1
    FakeTensor(..., size=(2,))
    """
    guards = nullcontext() if mode.shape_env is None else mode.shape_env.suppress_guards()
    # The kernels of some operators take no symbolic sizes; torch has Python ones for these.
    with (
        LOCK,
        forkable(mode),
        silence(),
        torch.no_grad(),
        without_autocast(),
        guards,
        without_kernels(mode),
        enable_python_dispatcher(),
        mode,
    ):
        yield


def without_autocast() -> AbstractContextManager[Any]:
    """Return a context without autocast.

    >>> with torch.autocast("cpu"), without_autocast():
    ...     torch.is_autocast_enabled("cpu")
    False
    """
    stack = ExitStack()
    for device in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack


def clone_value(meta: Meta) -> Meta:
    """Return meta with the fake value of a clone: the value itself, unless the clone has other strides.

    Args:
        meta: of the cloned value.

    >>> with running(fresh_mode()):
    ...     columns = torch.empty(3, 4)[:, 1:3]
    >>> columns.stride(), clone_value({"val": columns})["val"].stride()
    ((4, 1), (2, 1))
    """
    value = meta.get("val")
    if isinstance(value, FakeTensor):
        with running(value.fake_mode):
            made = value.clone()
        value = value if list(map(str, made.stride())) == list(map(str, value.stride())) else made
    return MappingProxyType({"val": value} if "val" in meta else {})


def has_no_result(node: Node) -> bool:
    """Return whether a node has no result.  Inference skips these nodes: they may print, or fail an assertion.

    >>> from purefx.ir.operators import op_of
    >>> has_no_result(Node("a", op_of(torch.ops.aten._assert_scalar.default), (True, "m")))
    True
    """
    target = _overload_of(node)
    return is_boundary(node) or (target is not None and not schema_of(target).returns)


def _overload_of(node: Node) -> Any:
    return (
        node.do.target if type(node.do) is Op and isinstance(node.do.target, OpOverload) else None
    )


def _parts(value: Any) -> Iterator[Any]:
    # The fake tensors and the symbolic numbers in a value.
    return (part for part in pytree.tree_leaves(value) if isinstance(part, (FakeTensor, *SYMBOLIC)))


def has_open_sizes(value: Any) -> bool:
    """Return whether a fake value is, or has, a symbolic number.

    >>> has_open_sizes((torch.ones(2), 3))
    False
    """
    if type(value) is FakeTensor:
        return not has_fixed_sizes(value)
    return any(not isinstance(part, FakeTensor) or has_open_sizes(part) for part in _parts(value))


def _has_symbols(program: Program) -> bool:
    types = [spec.type for spec in program.signature.inputs if type(spec) is UserInput]
    return any(
        not isinstance(size, int)
        for kind in types
        if type(kind) is TensorType
        for size in kind.shape
    )


def _mode_of(program: Program) -> Any:
    # The mode of the user inputs, which have the dynamic sizes; else that of any value.
    formals = [formal for formal, spec in program.inputs if type(spec) is UserInput]
    for value in chain(formals, program.main.inputs, (node for _, node in program.nodes())):
        for part in _parts(value.meta.get("val")):
            if isinstance(part, FakeTensor):
                return part.fake_mode
    return None
