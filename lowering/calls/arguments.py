"""Bind the arguments of a call to the flat inputs of the root, check guards, run adapters, and build results.

Guards are conditions on types, dtypes, shapes, baked-in values, ranges and relations of the flat inputs.  Each is one line of
code with a message; one generated function runs all lines.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import Factory, define, field, frozen
from torch.fx.immutable_collections import immutable_dict, immutable_list

from ...ir.analysis.numbers import NUMBERS, SYMBOLIC
from ...ir.arguments import same_arg
from ...ir.callables import Parameter, plain_parameters
from ...ir.calls.argument_tree import ArgumentTree
from ...ir.errors import InputError, InputValueError
from ...ir.expression import (
    OPERATORS,
    UNCOMPUTABLE,
    Apply,
    Expr,
    InputDim,
    InputValue,
    Sym,
    inputs_in,
    leaves_in,
    write,
)
from ...ir.names import is_identifier
from ...ir.own_operators import pack
from ...ir.program import Program
from ...ir.signature import (
    ArgumentType,
    Constraints,
    LiteralType,
    NumberType,
    ObjectType,
    Range,
    RestType,
    TensorType,
)
from ...ir.torch_private import pytree


def adapted(root: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the checked flat inputs of a call to a root with an adapter.

    Args:
        root: a lowered root; its ``flat_args_adapter`` is a ``torch.export.FlatArgsAdapter``.
        args: the positional arguments of the caller.
        kwargs: the keyword arguments of the caller.

    Raises:
        InputError: the adapter returned a wrong number of leaves.
        InputValueError: a leaf has a wrong type, shape, dtype or value.
    """
    plan, adapter = root.purefx_plan, root.flat_args_adapter
    try:
        return list(plan.leaves(args, kwargs))
    except InputError:
        pass
    known = {
        name: kwargs[name] for name in plan.tree.keyword if name in kwargs
    }  # in the order of the program, as for torch
    leaves, spec = pytree.tree_flatten((args, {**known, **kwargs}))
    metadata = {**root.meta, "unflattened_module": root}
    found = adapter.adapt(
        target_spec=plan.in_spec, input_spec=spec, input_args=leaves, metadata=metadata, obj=args
    )
    count = plan.checks.count
    if not isinstance(found, list | tuple) or len(found) != count:
        got = f"{len(found)}" if isinstance(found, list | tuple) else f"a {type(found).__name__}"
        name = type(adapter).__name__
        raise InputError(
            f"the program takes {count} flat arguments ({', '.join(plan.checks.paths)}); {name} returned {got}"
        )
    return list(plan.checked(found))


class CallPlan:
    """How one lowered root is called."""

    def __init__(self, program: Program) -> None:
        signature = program.signature
        self.in_spec = signature.in_spec
        self.tree = ArgumentTree.of(self.in_spec, signature.arg_names)
        self.checks = LeafChecks(program)
        self.plain = plain_parameters(signature)
        """The parameters of the original ``forward`` if its defaults are known; exports have none."""
        self.unchecked = False
        """Whether checks of values are off."""
        self.result: Callable[[Sequence[Any]], Any] = result_builder(signature.out_spec)
        self.signature = _python_signature(self)
        """The signature of the original ``forward``, as far as known."""

    def __deepcopy__(self, memo: dict[int, Any]) -> CallPlan:
        # A copied module may be converted separately, so its checks are copied; specs are immutable (and torch warns about its
        # own class when it copies one).
        new = copy.copy(self)
        new.checks = copy.copy(self.checks)
        return new

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the checked flat inputs for a call.

        Raises:
            InputError: too many, too few, unknown or differently nested arguments.
            InputValueError: an argument has a wrong type, shape, dtype or value.
        """
        return self.checked(self.bound(args, kwargs))

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the unchecked flat inputs for a call.

        Raises:
            InputError: too many, too few, unknown or differently nested arguments.
        """
        if self.in_spec is None:
            if kwargs or len(args) != self.checks.count:
                got = f"{len(args)} positional and {len(kwargs)} keyword arguments"
                raise InputError(f"this module takes {self.checks.count} flat inputs, got {got}")
            return args
        return self.tree.bind(args, kwargs, self.plain)

    def checked(self, values: Sequence[Any]) -> Sequence[Any]:
        """Check types, shapes, dtypes and values of flat inputs, and return them.

        Raises:
            InputValueError: one is wrong.
        """
        (self.checks.only_data if self.unchecked else self.checks.run)(values)
        return values


def _python_signature(plan: CallPlan) -> inspect.Signature | None:
    # None if a name is not a valid parameter name.
    parameters = [Parameter("self"), *(plan.plain or plan.tree.parameters)]
    names = [parameter.name for parameter in parameters]
    if plan.in_spec is None or len(set(names)) < len(names) or not all(map(is_identifier, names)):
        return None
    try:
        return inspect.Signature([*map(_python_parameter, parameters)])
    except ValueError:  # invalid order of defaults
        return None


def _python_parameter(parameter: Parameter) -> inspect.Parameter:
    if parameter.rest is not None:
        kind = (
            inspect.Parameter.VAR_KEYWORD
            if parameter.rest.keywords
            else inspect.Parameter.VAR_POSITIONAL
        )
        return inspect.Parameter(parameter.name, kind)
    default = parameter.default[0] if parameter.default else inspect.Parameter.empty
    kind = (
        inspect.Parameter.KEYWORD_ONLY
        if parameter.by_name
        else inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    return inspect.Parameter(parameter.name, kind, default=default)


def result_builder(spec: Any) -> Callable[[Sequence[Any]], Any]:
    """Return a function that builds a result from its leaves.

    >>> result_builder(pytree.tree_structure({"y": 0}))([3])
    {'y': 3}
    """
    if spec is None:
        return tuple
    if spec.is_leaf():
        return _only
    if spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return tuple
    return lambda leaves: pack(leaves, spec)


def _only(leaves: Sequence[Any]) -> Any:
    return leaves[0]


INFIX = frozenset({"-", "//", "/", "%", "==", "!=", "<", "<=", ">", ">="})
"""Operators that Python writes infix; others are called."""

Got = Callable[[Any, Any], str]
"""Describes a wrong input from its value and the value that its line of code returned."""


@frozen
class _Message:
    """The parts of an error message about a condition; its text is built when an input is wrong."""

    index: int = 0
    """The input that is wrong."""
    got: Got | None = None
    expr: Expr | None = None
    """The expression of the condition, which may be undefined for some inputs; without ``got`` it is a guard."""
    text: str = ""
    """The expectation, unless it follows from the type of the input."""


@define
class _Writer:
    """Writes the conditions on the inputs of one program."""

    paths: Sequence[str]
    types: Sequence[ArgumentType]
    lines: list[str] = Factory(list)
    messages: list[_Message] = Factory(list)
    """One for each condition."""
    table: dict[str, Any] = field(
        factory=lambda: {"Tensor": torch.Tensor, "NUMBERS": NUMBERS, "UNCOMPUTABLE": UNCOMPUTABLE}
    )
    symbols: dict[Sym, str] = Factory(dict)
    sizes: dict[Expr, int] = Factory(dict)
    """The first input with a size equal to the expression."""
    computed: list[tuple[int, str, Expr]] = Factory(list)
    """Sizes computed from symbols that later inputs may bind: the input, the size, the expected value."""

    def must(self, condition: str, message: _Message, *, shown: str = "None") -> None:
        """Add a condition."""
        number = len(self.messages)
        line = f"if not ({condition}): return {number}, {shown}"
        if isinstance(message.expr, Apply | InputDim):
            self.lines += [
                "try:",
                f"    {line}",
                f"except UNCOMPUTABLE as error: return {number}, error",
            ]
        else:
            self.lines.append(line)
        self.messages.append(message)

    def entry(self, value: Any) -> str:
        name = f"t{len(self.table)}"
        self.table[name] = value
        return name

    def plain(self, index: int, kind: ArgumentType) -> None:
        """Check the type of an input, and its sizes unless they are symbolic."""
        match kind:
            case TensorType():
                self.must(
                    f"isinstance(v{index}, Tensor)",
                    _Message(index, lambda value, _: f"got {_describe(value)}"),
                )
                dtype = f"v{index}.dtype is {self.entry(kind.dtype)}"
                if kind.dtype.is_floating_point:
                    dtype += f" or (floating and v{index}.is_floating_point())"
                self.must(dtype, _Message(index, lambda value, _: f"got dtype {value.dtype}"))
                if not _has_symbols(kind):
                    self.must(
                        f"v{index}.shape == {self.entry(kind.shape)}", _Message(index, _got_sizes)
                    )
            case LiteralType(value=literal):
                condition = (
                    f"v{index} is None"
                    if literal is None
                    else f"{self.entry(same_arg)}({self.entry(literal)}, v{index})"
                )
                text = other_literal(self.paths[index], literal)
                self.must(
                    condition,
                    _Message(index, lambda value, _: f"got {_describe(value)}", text=text),
                )
            case NumberType():
                self.must(
                    f"isinstance(v{index}, NUMBERS)",
                    _Message(index, lambda value, _: f"got {_describe(value)}"),
                )
            case _:
                pass

    def symbolic(self, index: int, kind: ArgumentType) -> None:
        """Check the symbolic sizes of an input, and bind their symbols."""
        if isinstance(kind, NumberType) and kind.expr is not None:
            self.size(index, f"v{index}", kind.expr)
        elif isinstance(kind, TensorType):
            sizes = [f"v{index}_{dim}" for dim in range(len(kind.shape))]
            self.must(f"v{index}.dim() == {len(sizes)}", _Message(index, _got_sizes))
            self.lines.append(f"{', '.join(sizes)}, = v{index}.shape")
            for name, expected in sorted(
                zip(sizes, kind.shape, strict=True), key=lambda pair: not isinstance(pair[1], int)
            ):
                self.size(index, name, expected)

    def size(self, index: int, name: str, expected: Expr) -> None:
        if isinstance(expected, int):
            self.must(f"{name} == {expected:d}", _Message(index, _got_sizes))
            return
        self.sizes.setdefault(expected, index)
        if not isinstance(expected, Sym):
            self.computed.append((index, name, expected))
        elif expected in self.symbols:
            earlier = f"but {expected.name} is {{}} in an earlier argument"
            message = _Message(
                index, lambda value, known: f"{_got_sizes(value)}, {earlier.format(known)}"
            )
            self.must(f"{name} == {self.symbols[expected]}", message, shown=self.symbols[expected])
        else:
            self.symbols[expected] = name

    def constraints(self, constraints: Constraints) -> None:
        for index, name, expected in self.computed:
            if self.knows(expected):
                message = _Message(index, functools.partial(_got_computed, expected), expected)
                self.must(f"{name} == {self.text(expected)}", message, shown=self.text(expected))
        for bounds in constraints.ranges:
            if (bounds.low is not None or bounds.high is not None) and self.knows(bounds.expr):
                self.range(bounds)
        for guard in constraints.guards:
            if guard is not True:
                self.must(self.text(guard), _Message(expr=guard))

    def range(self, bounds: Range) -> None:
        # The exporter assumes a lower bound of 2 for each dynamic size (0/1 specialization); sizes 0 and 1 still run.
        low = bounds.low if bounds.low is not None and bounds.low > 2 else -math.inf
        high = bounds.high if bounds.high is not None else math.inf
        wanted = (
            f"at least {low}"
            if high == math.inf
            else f"at most {high}"
            if low == -math.inf
            else f"between {low} and {high}"
        )
        text = write(bounds.expr)
        index, size = self.sizes.get(bounds.expr), self.text(bounds.expr)
        if index is not None:
            message = _Message(
                index,
                lambda value, _: f"{_got_sizes(value)}, where {text} must be {wanted}",
                bounds.expr,
            )
        else:
            message = _Message(
                0, lambda _, size: f"got {size}", bounds.expr, f"{text} must be {wanted}"
            )
        self.must(f"{self.entry(low)} <= {size} <= {self.entry(high)}", message, shown=size)

    def knows(self, expr: Expr) -> bool:
        return all(leaf in self.symbols for leaf in leaves_in(expr) if isinstance(leaf, Sym))

    def text(self, expr: Expr) -> str:
        match expr:
            case Sym():
                return self.symbols[expr]
            case InputDim(index=index, dim=dim, of=of):
                return f"v{index}.{'size' if of == 'size' else 'stride'}({dim:d})"
            case InputValue(index=index):
                return f"v{index}"
            case Apply(op=op, args=(left, right)) if op in INFIX:
                return f"({self.text(left)} {op} {self.text(right)})"
            case Apply(op=op, args=args):
                return f"{self.entry(OPERATORS[op])}({', '.join(self.text(arg) for arg in args)})"
            case _:
                return self.entry(expr)

    def made(self) -> Callable[[Sequence[Any], bool], tuple[int, Any] | None]:
        names = "".join(f"v{index}, " for index in range(len(self.paths)))
        body = [f"{names}= values"] if names else []
        source = "\n".join(
            [
                "def check(values, floating):",
                *(f"    {line}" for line in [*body, *self.lines, "return None"]),
            ]
        )
        exec(compile(source, "<purefx checks>", "exec"), self.table)  # noqa: S102  no user text: values are in the table
        return self.table["check"]


class LeafChecks:
    """Checks the flat inputs of one program; ``floating`` is set when the module is converted to another dtype."""

    def __init__(self, program: Program) -> None:
        specs = list(program.signature.users.values())
        self.count = len(specs)
        self.floating = False
        self.paths = [spec.argument or f"input {index}" for index, spec in enumerate(specs)]
        self.only = [
            (index, spec.only)
            for index, spec in enumerate(specs)
            if spec.only is not None and type(spec.type) in (ObjectType, RestType, LiteralType)
        ]
        """Otherwise unchecked arguments of untrusted programs, each with the classes accepted besides data."""
        self.writer = writer = _Writer(self.paths, [spec.type for spec in specs])
        for index, kind in enumerate(writer.types):
            writer.plain(index, kind)
        for index, kind in enumerate(writer.types):
            if _has_symbols(kind):
                writer.symbolic(index, kind)
        writer.constraints(program.constraints)
        self.first_wrong = writer.made()
        """Returns the number of the first condition that fails, with the value to show; None if all hold."""

    def run(self, values: Sequence[Any]) -> None:
        """Check the inputs of one call.

        Raises:
            InputValueError: an input is wrong; names the first one, and the expected value.
        """
        if self.only:
            self.only_data(values)
        wrong = self.first_wrong(values, self.floating)
        if wrong is not None:
            raise InputValueError(self._explained(values, *wrong)) from None

    def only_data(self, values: Sequence[Any]) -> None:
        """Check that a program from an untrusted source gets only data, not objects whose methods it could call.

        Raises:
            InputValueError: an argument of unspecified type is, or contains, such an object.
        """
        for index, kinds in self.only:
            kind = foreign_class(values[index], kinds)
            if kind is not None:
                name = f"{kind.__module__}.{kind.__qualname__}"
                raise InputValueError(
                    f"argument {self.paths[index]}: a program from a file or text accepts only data here (tensors, numbers, "
                    f"strings and containers of them), got a {name}; load(..., types=[{kind.__name__}]) lets it call its methods"
                )

    def _explained(self, values: Sequence[Any], number: int, shown: Any) -> str:
        message, expr = self.writer.messages[number], self.writer.messages[number].expr
        failed = isinstance(shown, UNCOMPUTABLE)
        if expr is not None and (failed or message.got is None):
            read = (
                ", ".join(dict.fromkeys(self.paths[index] for index in inputs_in(expr))) or "sizes"
            )
            more = f", which is undefined here ({shown})" if failed else ""
            return f"argument {read}: the program was exported for inputs with {write(expr, self.paths)}{more}"
        assert message.got is not None
        name, kind = self.paths[message.index], self.writer.types[message.index]
        text = message.text or f"argument {name}: expected {_expected(kind)}"
        return f"{text}, {message.got(values[message.index], shown)}"


def _has_symbols(kind: Any) -> bool:
    sizes = (
        kind.shape
        if isinstance(kind, TensorType)
        else (kind.expr,)
        if isinstance(kind, NumberType)
        else ()
    )
    return any(size is not None and not isinstance(size, int) for size in sizes)


def _got_sizes(value: Any, _: Any = None) -> str:
    return (
        f"got shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"got {value!r}"
    )


def _got_computed(expected: Expr, value: Any, wanted: Any) -> str:
    return f"{_got_sizes(value)}, where {write(expected)} is {wanted}"


def _describe(value: Any) -> str:
    return (
        f"{value!r}"
        if isinstance(value, int | float | str | bool | type(None))
        else f"a {type(value).__name__}"
    )


def other_literal(path: str, literal: Any) -> str:
    """Return the expectation on an argument that was exported with a literal, for messages.

    >>> other_literal("mask", None), other_literal("causal", True)
    ('argument mask: expected None, which the program was exported with', 'argument causal: expected the value True that the program was exported with')
    """  # noqa: E501
    if literal is None:
        return f"argument {path}: expected None, which the program was exported with"
    return f"argument {path}: expected the value {literal!r} that the program was exported with"


def _expected(kind: Any) -> str:
    match kind:
        case TensorType(dtype=dtype, shape=shape):
            sizes = ", ".join(write(size) for size in shape)
            return f"a tensor of shape ({sizes}{',' * (len(shape) == 1)}) and dtype {dtype}"
        case NumberType(kind=name):
            return f"a number ({name})"
        case _:
            return "the exported value"


SCALARS = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip

SEQUENCES = frozenset({tuple, list, torch.Size, immutable_list, set, frozenset})

MAPPINGS = frozenset({dict, OrderedDict, immutable_dict})

TORCHS = (torch.Tensor, torch.Generator, torch.ScriptObject, torch.fx.Proxy, *SYMBOLIC)


OF_NAMED_TUPLES = frozenset({
    "__module__", "__doc__", "__slots__", "__new__", "__repr__", "__getnewargs__", "__match_args__", "__annotations__",
    "__orig_bases__", "__replace__",
})  # fmt: skip
"""Names that named tuples define besides fields; functions on data call none of them."""


def foreign_class(value: Any, also: tuple[type, ...]) -> type | None:
    """Return the class of the first object in a value that is not data, or None.

    Args:
        value: an argument.
        also: further accepted classes.

    >>> foreign_class(([1, torch.ones(2)], {"a": None}), ()), foreign_class([object()], ()), foreign_class(object(), (object,))
    (None, <class 'object'>, None)
    """
    todo = [value]
    while todo:
        part = todo.pop()
        kind: Any = type(part)
        if kind in SCALARS or isinstance(part, TORCHS) or kind.__module__ == "numpy":
            continue
        if kind in MAPPINGS:
            todo += [*part.keys(), *part.values()]
        elif (
            kind in SEQUENCES
            or kind.__module__ == "torch.return_types"
            or (isinstance(part, tuple) and _is_plain(kind))
        ):
            todo.extend(part)
        elif not isinstance(part, also):
            return kind
    return None


@functools.lru_cache(maxsize=256)
def _is_plain(kind: type) -> bool:
    names = {
        name
        for part in kind.__mro__[: -len(tuple.__mro__)]
        for name in vars(part)
        if name.startswith("__")
    }
    return names <= OF_NAMED_TUPLES
