"""``bind``: the arguments of a call, given to parameters as Python does.

One idea: a parameter has a name, perhaps a default, and may take all arguments that no other one takes.  What the values are
is not looked at, so that values of a running program and references in a graph are bound alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from .errors import InputError
from .signature import RestType

__all__ = ["Parameter", "bind"]


@frozen
class Parameter:
    """A parameter of a plain function.

    >>> Parameter("x").rest is None
    True
    """

    name: str
    default: tuple[Any, ...] = ()
    """Its default in a tuple of one; empty where it has none."""
    rest: RestType | None = None
    """Which arguments it takes, if it takes the rest of them."""


def bind(parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter, by name and in their order.

    Args:
        parameters: what the function takes.
        args: the positional arguments.
        kwargs: those that are given by name.

    Raises:
        InputError: too many, too few or unknown arguments; the message names them.

    >>> bind([Parameter("x"), Parameter("y", (2,)), Parameter("more", rest=RestType())], [1], {})
    {'x': 1, 'y': 2, 'more': ()}
    """
    plain = [parameter.name for parameter in parameters if parameter.rest is None]
    by_name = dict(zip(plain, args, strict=False))
    unknown: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in by_name:
            raise InputError(f"got argument {name!r} twice, by position and by name")
        (by_name if name in plain else unknown)[name] = value
    rests = {False: tuple(args[len(plain) :]), True: unknown}
    for parameter in parameters:
        if parameter.rest is not None:
            by_name[parameter.name] = rests.pop(parameter.rest.keywords)
        elif parameter.name not in by_name and parameter.default:
            by_name[parameter.name] = parameter.default[0]
    _check(plain, by_name, rests, len(args))
    return {parameter.name: by_name[parameter.name] for parameter in parameters}


def _check(plain: Sequence[str], by_name: Mapping[str, Any], rests: Mapping[bool, Any], count: int) -> None:
    if rests.get(False):
        raise InputError(f"takes {len(plain)} arguments ({', '.join(plain)}), got {count} positional ones")
    if rests.get(True):
        name = next(iter(rests[True]))
        raise InputError(f"unexpected argument {name!r}; this program takes {', '.join(plain) or 'none'}")
    missing = [name for name in plain if name not in by_name]
    if missing:
        named = ", ".join(map(repr, missing))
        raise InputError(f"missing argument{'s' * (len(missing) > 1)} {named}; the program takes ({', '.join(plain)})")
