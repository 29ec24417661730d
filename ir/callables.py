"""The callables of a graph: functions, operators and methods of values (``Method``), their names, and ``bind``.

``op_name`` returns the unique name of each; ``bind`` assigns arguments to parameters as Python does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from .arguments import thawed
from .errors import InputError
from .signature import RestType, Signature
from .torch_private import HigherOrderOperator, OpOverload


@frozen
class Method:
    """Calls a method of its first argument.

    >>> Method("upper")("a"), str(Method("upper")), str(Method("relu", of_tensor=True))
    ('A', 'method.upper', 'tensor.relu')
    """

    name: str
    of_tensor: bool = False
    """Whether the first argument is known to be a tensor, so that the method is the operator with its name."""

    def __call__(self, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method of a value.

        Raises:
            TypeError: it should be a tensor and is not; lists and strings have methods of the same names.
        """
        if self.of_tensor and not hasattr(type(value), "__torch_function__"):
            raise TypeError(f"{self} is called on a {type(value).__name__}, which is not a tensor")
        return getattr(value, self.name)(*args, **kwargs)

    def __str__(self) -> str:
        return f"{'tensor' if self.of_tensor else 'method'}.{self.name}"


def op_name(target: Any) -> str:
    """Return the name under which an operator is compared and printed.

    >>> import operator, torch
    >>> op_name(torch.ops.aten.add.Tensor), op_name(operator.getitem), op_name(torch.ops.higher_order.cond)
    ('aten.add.Tensor', 'operator.getitem', 'higher_order.cond')
    """
    if isinstance(target, OpOverload | Method):
        return str(target)
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = _text(target, "__module__") or "builtins"
    name = _text(target, "__qualname__") or _text(target, "__name__") or type(target).__name__
    name = name.removeprefix(
        "_VariableFunctionsClass."
    )  # torch's internal holder of torch.relu ...
    return f"{'operator' if module == '_operator' else module}.{name}"


def _text(target: Any, name: str) -> str | None:
    # A callable may be any object with any ``__name__``.
    found = getattr(target, name, None)
    return found if type(found) is str else None


@frozen
class Parameter:
    """A parameter of a plain function.

    >>> Parameter("x").rest is None
    True
    """

    name: str
    default: tuple[Any, ...] = ()
    """Its default, as a tuple of one; empty if it has none."""
    rest: RestType | None = None
    """Which of the remaining arguments it collects, if it is ``*args`` or ``**kwargs``."""
    by_name: bool = False
    """Whether it is keyword-only."""


def plain_parameters(signature: Signature) -> list[Parameter] | None:
    """Return the parameters of a program that takes defaults or remaining arguments; None for any other program.

    >>> from .signature import LiteralType, ObjectType, UserInput
    >>> plain_parameters(Signature((UserInput(ObjectType(), "x", LiteralType(2)),), ()))
    [Parameter(name='x', default=(2,), rest=None, by_name=False)]
    """
    specs = signature.users.values()
    if all(spec.default is None and type(spec.type) is not RestType for spec in specs):
        return None
    found: list[Parameter] = []
    for spec in specs:
        default = () if spec.default is None else (thawed(spec.default.value),)
        found.append(
            Parameter(spec.argument, default, spec.type if type(spec.type) is RestType else None)
        )
    return found


def bind(
    parameters: Sequence[Parameter],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes: str = "takes",
) -> dict[str, Any]:
    """Return the value of each parameter, by name and in their order.

    Args:
        parameters: those of the function.
        args: the positional arguments.
        kwargs: the keyword arguments.
        takes: the verb of the message, such as "takes".

    Raises:
        InputError: too many, too few or unknown arguments; the message names them.

    >>> bind([Parameter("x"), Parameter("y", (2,)), Parameter("more", rest=RestType())], [1], {})
    {'x': 1, 'y': 2, 'more': ()}
    """
    plain = [parameter.name for parameter in parameters if parameter.rest is None]
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.rest is None and not parameter.by_name
    ]
    by_name = dict(zip(positional, args, strict=False))
    unknown: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in by_name:
            raise InputError(f"got argument {name!r} twice, by position and by name")
        (by_name if name in plain else unknown)[name] = value
    rests = {False: tuple(args[len(positional) :]), True: unknown}
    for parameter in parameters:
        if parameter.rest is not None:
            by_name[parameter.name] = rests.pop(parameter.rest.keywords)
        elif parameter.name not in by_name and parameter.default:
            by_name[parameter.name] = parameter.default[0]
    if rests.get(False):
        # Arguments that were exported by keyword may be in another order than the parameters of the original.
        others = [name for name in plain if name not in positional]
        more = f" and {', '.join(others)} by keyword" if others else ""
        taken = f"{len(positional)} argument{'s' * (len(positional) != 1)} ({', '.join(positional)}){more}"
        raise InputError(f"takes {taken}, got {len(args)} positional ones")
    if rests.get(True):
        raise InputError(
            f"unexpected argument {next(iter(unknown))!r}; this program takes {', '.join(plain) or 'none'}"
        )
    missing = [name for name in plain if name not in by_name]
    if missing:
        named = ", ".join(map(repr, missing))
        raise InputError(
            f"missing argument{'s' * (len(missing) > 1)} {named}; the program {takes} ({', '.join(plain)})"
        )
    return {parameter.name: by_name[parameter.name] for parameter in parameters}


def class_name(kind: Any) -> str:
    """Return the qualified name of a class; a name is returned as it is.

    >>> class_name("a.B"), class_name(int)
    ('a.B', 'builtins.int')
    """
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
