"""Patterns: torch code that ``torch.fx`` traces, and the role of each node of the traced graph.

A part of a pattern is a node of its graph, a list of parts, or a literal.  ``matching`` finds parts in programs.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import CellType, FunctionType
from typing import Any, cast

import torch
from attrs import Factory, field, frozen
from torch import fx
from torch.fx.proxy import GraphAppendingTracer, TraceError

from ...ir.arguments import Ref, same_arg
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.names import did_you_mean, join, parent_of
from ...ir.persistent import closure
from ...ir.program import Program
from ...ir.torch_private import (
    OpOverload,
    OpOverloadPacket,
    Parameter,
    overload_of,
    overloads_of,
    parameters_of,
    schema_of,
)  # fmt: skip

Part = Any

PYTHON: Mapping[str, str] = {
    "truediv": "div", "mod": "remainder", "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "invert": "bitwise_not", "pos": "positive", "lshift": "__lshift__", "rshift": "__rshift__",
}  # fmt: skip
"""Python operators that have another name in aten."""

ATTRIBUTES: Mapping[str, str] = {
    "T": "numpy_T",
    "mT": "mT",
    "H": "matrix_H",
    "mH": "mH",
    "real": "real",
    "imag": "imag",
}

FACTS = frozenset({"shape", "dtype", "device", "ndim", "size", "numel", "nelement", "dim"})
"""Properties of a value that are known where the pattern matches."""


# -- pattern functions -----------------------------------------------------------------------------------------------------------


class Value(fx.Proxy):
    """A value of a pattern; it records torch functions, methods and Python operators."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Record a torch function; run one that is written in Python, and record the functions that it calls."""
        if isinstance(function, FunctionType):
            return _followed(function, args, kwargs or {})
        return super().__torch_function__(function, types, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return a method or the value of an attribute."""
        if name in ATTRIBUTES:
            return getattr(torch.ops.aten, ATTRIBUTES[name])(self)
        if isinstance(dtype := getattr(torch, name, None), torch.dtype):  # x.float()
            return lambda: self.to(dtype)
        if name in ("shape", "dtype", "device", "ndim"):
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        if (
            name.startswith("__") or name == "norm" or not (name in FACTS or overloads_of(name))
        ):  # torch exports another operator
            raise AttributeError(
                f"a value of a pattern has no {name!r}: it is not an operator of torch; use `where=`"
            )
        return lambda *args, **kwargs: self.tracer.create_proxy(
            "call_method", name, (self, *args), kwargs
        )

    def __getitem__(self, index: Any) -> Any:
        """Return one of several results, or the operators that torch exports for an index."""
        kind = role(self.node)
        is_operator = kind in ("operator", "arithmetic")
        returns = (
            [schema_of(one).returns for one in operator_of(self.node).overloads]
            if is_operator
            else []
        )
        are_lists = {len(each) > 1 or "List" in str(each[0].type) for each in returns} or {
            True,
            False,
        }
        if kind != "fact" and (type(index) is not int or are_lists == {False}):
            return _indexed(self, index if isinstance(index, tuple) else (index,))
        item = self.tracer.create_proxy("call_function", operator.getitem, (self, index), {})
        return (
            any_of(item, _indexed(self, (index,)))
            if kind != "fact" and False in are_lists
            else item
        )

    def __rtruediv__(self, number: Any) -> Any:
        is_fact = role(self.node) == "fact"
        return (
            cast("Any", super()).__rtruediv__(number) if is_fact else self.reciprocal() * number
        )  # as torch computes it

    def __rsub__(self, number: Any) -> Any:
        is_fact = role(self.node) == "fact"
        return (
            cast("Any", super()).__rsub__(number)
            if is_fact
            else torch.rsub(cast("Any", self), number)
        )

    def __len__(self) -> int:
        raise TypeError(
            "the length of a value is known only at a match; write x.size(0), or a variable"
        )


def _followed(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    # torch's Python functions pass other values than tensors to their class; here their bodies run.
    try:
        return _without_overrides(function)(*args, **kwargs)
    except (AttributeError, TypeError, TraceError) as error:
        raise RuleError(
            f"{function.__name__} depends on facts that a pattern does not know; write the operators that it exports to"
        ) from error


def _without_overrides(function: FunctionType) -> Callable[..., Any]:
    plain = {
        name: lambda *_: False
        for name in function.__globals__
        if name.startswith("has_torch_function")
    }
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    closure = (
        tuple(
            [
                CellType(_without_overrides(one) if isinstance(one, FunctionType) else one)
                for one in inner
            ]
        )
        or None
    )
    globals_ = {**function.__globals__, **plain}
    same = FunctionType(
        function.__code__, globals_, function.__name__, function.__defaults__, closure
    )
    same.__kwdefaults__ = function.__kwdefaults__
    return same


def _indexed(value: Value, items: Sequence[Any]) -> Any:
    # One operator for each index but full slices.  Dimensions behind `...` are counted from the last one.
    aten, found, dim = torch.ops.aten, cast("Any", value), cast("Any", 0)
    for number, each in enumerate(items):
        if each is Ellipsis:
            dim = found.ndim - sum(one is not None for one in items[number + 1 :])
        elif each is None:
            found, dim = aten.unsqueeze.default(found, dim), dim + 1
        elif isinstance(each, slice):
            if any(one is not None for one in (each.start, each.stop, each.step)):
                found = aten.slice.Tensor(
                    found, dim, each.start, each.stop, 1 if each.step is None else each.step
                )
            dim = dim + 1
        elif type(each) is int or (
            isinstance(each, fx.Proxy) and role(each.node) in ("variable", "fact")
        ):
            found = aten.select.int(found, dim, each)
        else:
            raise RuleError(
                "a pattern cannot index with a tensor: write torch.ops.aten.index.Tensor(x, [index])"
            )
    return found


def any_of(*parts: Any) -> Any:
    """Return a value that matches any of several; called with tensors, return the first.

    Args:
        parts: the alternatives, tried in this order.

    Raises:
        RuleError: an alternative is a function.

    >>> Pattern.of(lambda x: any_of(torch.relu(x), x.clamp(0)))
    any_of(relu(x), clamp(x, 0))
    """
    value = next((part for part in parts if isinstance(part, fx.Proxy)), None)
    if functions := [
        part for part in parts if callable(part) and not isinstance(part, fx.Proxy | torch.Tensor)
    ]:
        raise RuleError(
            f"any_of takes values, and {functions[0]!r} is a function: call it with variables"
        )
    return (
        parts[0] if value is None else value.tracer.create_proxy("call_function", any_of, parts, {})
    )


def through(part: Any, chain: Any = None, *, views: bool = True, casts: bool = False) -> Any:
    """Return a value that matches another one, or any chain of views and casts of it.

    Args:
        part: the value at the end of the chain.
        chain: a variable for the chain: in the replacement, ``chain(y)`` applies the same views and casts to ``y``.
        views: look through operators that return all elements in another order or shape (``view``, ``transpose``,
            ``expand``, ``contiguous``).
        casts: look through casts to another dtype.

    Raises:
        RuleError: the chain is not a variable.

    >>> Pattern.of(lambda x, shape: torch.exp(through(torch.relu(x), shape)))
    exp(through(relu(x), shape, True, False))
    """
    if not isinstance(part, fx.Proxy):
        return part  # a pattern called with tensors
    if chain is not None and not (isinstance(chain, fx.Proxy) and chain.node.op == "placeholder"):
        raise RuleError(f"the chain of px.through must be a variable of the pattern, not {chain!r}")
    return part.tracer.create_proxy("call_function", through, (part, chain, views, casts), {})


def _rest(*_: Any) -> Any:
    # Any number of list items: `[x, *rest]`.
    raise AssertionError("never called: only the target of a pattern node")


@frozen
class ModuleCall:
    """A call of a module, with any arguments."""

    glob: str | None
    type_name: str | None

    def is_at(self, node: Node, path: str, program: Program) -> bool:
        """Return whether a node calls a matching module; ``path`` is the module of the node."""
        assert type(node.do) is Call
        called = join(path, node.do.instance.path)
        if self.glob is not None:
            return fnmatchcase(called, self.glob)
        return any(
            each.path == called and each.type_name == self.type_name for each in program.modules
        )


def module(where: Any) -> ModuleCall:
    """Return the ``at=`` of a rule that matches calls of modules (apply ``outline`` first).

    Args:
        where: the path of a module from the root, in which ``*`` and ``?`` are wildcards; or a module class.

    Raises:
        RuleError: ``where`` is neither.

    >>> module("layers.*.mlp").glob, module(torch.nn.Linear).type_name
    ('layers.*.mlp', 'torch.nn.modules.linear.Linear')
    """
    if isinstance(where, type) and issubclass(where, torch.nn.Module):
        return ModuleCall(None, f"{where.__module__}.{where.__qualname__}")
    if not isinstance(where, str):
        raise RuleError(
            f"px.module takes the path of a module, with * as a wildcard, or a module class, not {where!r}"
        )
    return ModuleCall(where, None)


# -- tracing ---------------------------------------------------------------------------------------------------------------------


class _Tracer(GraphAppendingTracer):
    def proxy(self, node: fx.Node) -> Value:
        return Value(node, self)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        if role(obj.node) not in ("variable", "fact"):
            return super().iter(obj)  # raises
        return iter([self.create_proxy("call_function", _rest, (obj,), {})])

    def create_arg(self, a: Any) -> Any:
        return a if isinstance(a, torch.Tensor) else super().create_arg(a)


@frozen(eq=False)
class Pattern:
    """A traced pattern: its results and variables.

    >>> Pattern.of(lambda x: torch.relu(x + 1))
    relu(add(x, 1))
    """

    variables: tuple[str, ...]
    results: tuple[Part, ...]
    is_tuple: bool = False
    graph: fx.Graph = field(factory=fx.Graph, repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Pattern:
        """Trace a function.

        Raises:
            RuleError: the function depends on facts that are known only at run time, or calls an unknown operator.
        """
        name, tracer = getattr(function, "__name__", "the pattern"), _Tracer(fx.Graph())
        variables = variables_of(function)
        values = [tracer.create_proxy("placeholder", one, (), {}) for one in variables]
        try:
            made = function(*values)
        except TraceError as error:
            raise RuleError(
                f"{name}: a pattern cannot branch on a value or iterate over it; test matched values in `where=`,\n"
                "write parts[0], or a, b = parts, for one of several results, and [x, *rest] with a variable for any number"
            ) from error
        for node in tracer.graph.nodes:
            role(node)  # checks its operator
        is_tuple = isinstance(made, list | tuple) and len(made) > 0
        results = tuple(
            [
                each.node if isinstance(each, fx.Proxy) else each
                for each in (made if is_tuple else [made])
            ]
        )
        return cls(tuple(variables), results, is_tuple, tracer.graph)

    @property
    def parts(self) -> list[fx.Node]:
        """The nodes that the results need."""
        return [*nodes_of(*self.results)]

    def __repr__(self) -> str:
        return ", ".join(map(shown, self.results))


def pattern_at(operators: Any) -> Pattern:
    """Return a pattern that matches calls of any of some operators or modules, with any arguments.

    >>> pattern_at([torch.relu, torch.ops.aten.gelu.default])
    any_of(relu(), gelu())
    """
    graph, calls = fx.Graph(), list[fx.Node]()
    for each in operators if isinstance(operators, list | tuple) else [operators]:
        name, overloads = (
            ("module", [Call]) if isinstance(each, ModuleCall) else operator_named(each)
        )
        calls.append(graph.call_function(pattern_at, ()))
        calls[-1].meta.update(
            role="operator", operator=Operator(name, {one: [{}] for one in overloads}), at=each
        )
    return Pattern(
        (),
        (calls[0] if len(calls) == 1 else graph.call_function(any_of, tuple(calls)),),
        graph=graph,
    )


def variables_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function: its variables.

    Raises:
        RuleError: the function has ``*args``, ``**kwargs`` or defaults.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:  # many functions that are written in C
        name = getattr(function, "__name__", "it")
        raise RuleError(
            f"{name} has no signature that Python can read; call it in a function: lambda x: {name}(x)"
        ) from error
    if any(
        one.kind is not one.POSITIONAL_OR_KEYWORD or one.default is not one.empty
        for one in parameters
    ):
        raise RuleError(
            "each parameter of a rule is a variable: remove defaults and *args; a variable also matches a list"
        )
    return [one.name for one in parameters]


# -- roles of nodes --------------------------------------------------------------------------------------------------------------


@frozen(eq=False)
class Operator:
    """An operator, with each overload that accepts its arguments."""

    name: str
    overloads: Mapping[Any, Sequence[Mapping[Any, Part]]]
    """The argument of each parameter of an overload, in each order of commutative operands."""
    orders: Mapping[int, Sequence[Mapping[Any, Part]]] = field(
        default=Factory(
            lambda one: {id(key): each for key, each in one.overloads.items()}, takes_self=True
        )
    )
    """The same by the id of the overload: the hash of an operator of torch is slow."""


def role(part: Part) -> str:
    """Return the role of a part: a variable, an operator, an item, a fact, a literal ..."""
    if not isinstance(part, fx.Node):
        return (
            "list"
            if isinstance(part, list | tuple)
            else "tensor"
            if isinstance(part, torch.Tensor)
            else "literal"
        )
    if "role" not in part.meta:
        part.meta["role"] = _role(part)
        if part.meta["role"] in ("operator", "arithmetic", "item"):
            part.meta["operator"] = _operator(part)
    return part.meta["role"]  # type: ignore[no-any-return]


def operator_of(part: Part) -> Operator:
    """Return the operator of a part that may match the result of one."""
    return part.meta["operator"]  # type: ignore[no-any-return]


SPECIAL: Mapping[Any, str] = {any_of: "any_of", through: "through", _rest: "rest", getattr: "fact"}


def _role(part: fx.Node) -> str:
    if part.op == "placeholder":
        return "variable"
    if part.target in SPECIAL or (part.op == "call_method" and part.target in FACTS):
        return SPECIAL.get(part.target, "fact")
    is_python = getattr(part.target, "__module__", "") in ("_operator", "math")
    operands = set(map(role, part.args)) if is_python else set[str]()
    if operands & {"fact"} and operands <= {"fact", "literal"}:
        return "fact"
    if part.target is operator.getitem:
        return "item"
    # A number that is computed from variables, as in `x.reshape(n * 2, -1)`, or an operator of tensors.
    return (
        "arithmetic"
        if operands and operands <= {"variable", "fact", "arithmetic", "literal"}
        else "operator"
    )


def _operator(part: fx.Node) -> Operator:
    target = part.target
    if target is operator.getitem:
        return Operator("getitem", {target: [dict(enumerate(part.args))]})
    if getattr(target, "__module__", "") == "_operator":
        target = target.__name__.strip("_")  # type: ignore[union-attr]
        target = PYTHON.get(target, target)
    name, overloads = operator_named(target)
    found = {
        one: compared(given)
        for one in overloads
        if (given := arranged(one, part.args, part.kwargs)) is not None
    }
    if not found:
        call = ", ".join(map(shown, [*part.args, *part.kwargs.values()]))
        raise RuleError(
            f"no overload of {name} takes ({call}):\n  "
            + "\n  ".join(str(schema_of(one)) for one in overloads)
        )
    return Operator(name, {one: _orders(name, given) for one, given in found.items()})


COMMUTING: Mapping[str, tuple[str, str]] = {"transpose": ("dim0", "dim1"), **dict.fromkeys((
    "add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
    "bitwise_xor", "__and__", "__or__", "__xor__", "logaddexp", "logaddexp2", "hypot", "fmax", "fmin", "gcd", "lcm",
), ("self", "other"))}  # fmt: skip
"""Operators that commute in two parameters."""


def is_commutative(do: Op) -> bool:
    """Return whether the first two arguments of an operator commute.

    >>> from ...ir.operators import op_of
    >>> is_commutative(op_of(torch.ops.aten.add.Tensor)), is_commutative(op_of(torch.ops.aten.sub.Tensor))
    (True, False)
    """
    one, _ = COMMUTING.get(do.name.split(".")[1], ("", "")) if "." in do.name else ("", "")
    return one == "self" and do.name.startswith("aten.")


def _orders(name: str, parts: Mapping[str, Part]) -> list[Mapping[str, Part]]:
    # The arguments in each order of the operands; numbers first, which differ sooner than operators.
    one, other = COMMUTING.get(name, ("", ""))
    orders = [parts]
    if (
        one in parts
        and other in parts
        and parts[one] is not parts[other]
        and same_arg(parts.get("alpha", 1), 1)
    ):
        orders.append({**parts, one: parts[other], other: parts[one]})
    return [
        dict(sorted(order.items(), key=lambda pair: role(pair[1]) != "literal")) for order in orders
    ]


def nodes_of(*parts: Part) -> dict[fx.Node, None]:
    """Return the nodes of parts, and those of all their operands."""
    nodes = [each for each in parts if isinstance(each, fx.Node)]
    return closure(nodes, lambda each: reversed(each.all_input_nodes))


def shown(part: Part, depth: int = 6) -> str:
    """Return a part as text, for messages."""
    if isinstance(part, list | tuple):
        return f"[{', '.join([shown(each, depth) for each in part])}]"
    if not isinstance(part, fx.Node):
        return repr(part)
    if not depth or role(part) == "variable":
        return str(part.target) if depth else "..."
    name = (
        part.meta["operator"].name
        if "operator" in part.meta
        else getattr(part.target, "__name__", part.target)
    )
    return f"{name}({', '.join([shown(each, depth - 1) for each in [*part.args, *part.kwargs.values()]])})"


# -- operators and arguments by schema ------------------------------------------------------------------------------------------

INSTEAD = "compute a new value (x + 1 for x.add_(1), torch.where or index_put for x[i] = y)"


def operator_named(function: Any) -> tuple[str, Sequence[Any]]:
    """Return the name of an operator, and its overloads that do not write.

    Raises:
        RuleError: no such operator exists.

    >>> operator_named(torch.relu)
    ('relu', [<OpOverload(op='aten.relu', overload='default')>])
    """
    function = overload_of(function.target if type(function) is Op else function)
    whole = str(getattr(function, "__name__", function))
    name = whole.partition(".")[0]
    if isinstance(function, OpOverload):
        overloads = [function]
    elif isinstance(function, OpOverloadPacket):
        overloads = [getattr(function, overload) for overload in function.overloads()]
    else:
        several = [
            *overloads_of(name),
            *overloads_of(f"__{name.removeprefix('bitwise_')}__"),
        ]  # `x & y` is `aten.__and__`
        overloads = [one for one in several if "Tensor" in str(schema_of(one)).partition("->")[2]]
    if not overloads:
        advice = f"{did_you_mean(whole, dir(torch.ops.aten))}; write torch.ops.<library>.<operator>, or px.module(path or class)"
        raise RuleError(f"{whole!r} is not an operator of aten{advice}")
    found = [one for one in overloads if not any(each.is_written for each in parameters_of(one))]
    if not found:
        raise RuleError(f"{name} writes into its arguments, and rules cannot write: {INSTEAD}")
    return name, found


def arranged(overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the argument of each parameter, defaults included; None if there are too few, too many or unknown ones.

    >>> arranged(torch.ops.aten.relu.default, ("anything",), {}), arranged(torch.ops.aten.relu.default, (), {})
    ({'self': 'anything'}, None)
    >>> arranged(torch.ops.aten.conv2d.default, ("x", "w", None, 2), {})["stride"]
    [2, 2]
    """
    parameters = parameters_of(overload)
    plain = [one for one in parameters if not one.kwarg_only]
    if len(args) > len(plain) == 2 and plain[1].kind == "List[int]" and plain[1].size is None:
        args = args[0], [*args[1:]]  # x.reshape(2, 3) is x.reshape([2, 3])
    named = dict(zip([one.name for one in plain], args, strict=False)) | kwargs
    if len(named) < len(args) + len(kwargs):
        return None
    known = [one for one in parameters if one.name in named or one.has_default]
    found = {one.name: _converted(named.pop(one.name, one.default), one) for one in known}
    return None if named or len(known) < len(parameters) else found


def _converted(value: Any, parameter: Parameter) -> Any:
    # Expand a number that abbreviates a list, and convert integers to floats and names to devices.
    if type(value) is str and "Device" in parameter.kind:
        return torch.device(value)
    if type(value) is not int:
        return value
    if parameter.kind in ("float", "Optional[float]"):
        return float(value)
    return [value] * (parameter.size or 1) if "List[int]" in parameter.kind else value


WITHOUT_MEANING = frozenset({"cudnn_enable", "cudnn_enabled"})
"""Parameters that choose a kernel: torch sets them from a global switch, which the exporter turns off."""

LEFT_OUT = {
    "pin_memory": False,
    "layout": torch.strided,
    "device": torch.device("cpu"),
    "start": 0,
    "end": 2**63 - 1,
}
"""Torch writes these values for missing arguments; the default in the schema is None."""


def compared(arguments: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the arguments that must match, with what torch writes for those left out.

    >>> compared({"self": "x", "dim": 0, "start": None, "cudnn_enabled": True})
    {'self': 'x', 'dim': 0, 'start': 0}
    """
    return {
        name: LEFT_OUT.get(name) if each is None else each
        for name, each in arguments.items()
        if name not in WITHOUT_MEANING
    }


# -- views and casts -------------------------------------------------------------------------------------------------------------

VIEWS = frozenset([f"aten.{name}" for name in (
    "_reshape_alias", "_unsafe_view", "alias", "clone", "contiguous", "expand", "expand_as", "flatten", "mT", "moveaxis",
    "movedim", "numpy_T", "permute", "ravel", "reshape", "reshape_as", "squeeze", "swapaxes", "swapdims", "t", "transpose",
    "unflatten", "unsqueeze", "view", "view_as",
)])  # fmt: skip
"""Operators that return all elements of their operand in another order or shape: no selection, no conjugate."""

CASTING = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default"})


def looks_through(part: fx.Node, node: Node) -> bool:
    """Return whether a node is a view or a cast that a part looks through."""
    if not node.args or type(node.args[0]) is not Ref:
        return False
    _, _, views, casts = part.args
    if node.op_name in CASTING:
        return bool(casts) and dict(node.kwargs).get("device") is None
    return bool(views) and parent_of(node.op_name) in VIEWS


@frozen(repr=False)
class Through:
    """The views and casts that a pattern looked through; call it to apply them to another value."""

    nodes: tuple[Node, ...] = field(
        eq=lambda nodes: tuple([(node.do, node.args[1:], node.kwargs) for node in nodes])
    )
    """The outermost first."""
    value: Callable[[Any], Any] = field(eq=False, default=lambda arg: arg)
    """Returns the operand for an argument of the program."""

    def __call__(self, value: Any) -> Any:
        """Apply the same views and casts to another value."""
        for node in reversed(self.nodes):
            args = [self.value(arg) for arg in node.args[1:]]
            value = node.target(value, *args, **{key: self.value(arg) for key, arg in node.kwargs})
        return value
