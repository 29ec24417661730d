"""What stands in the nodes of a traced graph: operators, arguments and meta.

One idea: what can be an argument of a value stays one; what can not is made by a node (a named tuple) or kept in the state (a
tensor, any other object), so that nothing of a graph is ever written as code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from attrs import frozen

from ..arguments import Arg, Items, Record, Ref
from ..callables import Method, op_name
from ..effects.registered import effects_of
from ..meta import Meta, freeze_meta
from ..node import Op
from ..numbers import SYMBOLIC
from ..operators import Said
from ..torch_private import pytree
from ..verify.kinds import PLAIN

__all__ = ["Literals", "Operators", "is_tensor", "meta_of", "value_of"]

VALUES = (torch.Tensor, int, float, bool, complex, str, *SYMBOLIC, type(None))


class Operators:
    """One ``Op`` for each function and method; functions of one name get different ones.

    >>> operators = Operators()
    >>> operators.function(lambda: 1).name == operators.function(lambda: 2).name
    False
    """

    def __init__(self, said: Said | None = None) -> None:
        self._said = said or {}
        self._known: dict[int, tuple[Any, Op]] = {}
        self._methods: dict[Method, Op] = {}
        self._bearers: dict[str, Any] = {}

    def function(self, target: Any) -> Op:
        """Return the op that calls a function."""
        found = self._known.get(id(target))
        if found is None:
            found = self._known[id(target)] = (target, self._made(target))
        return found[1]

    def method(self, name: str, *, of_tensor: bool) -> Op:
        """Return the op that calls a method."""
        method = Method(name, of_tensor)
        if of_tensor and effects_of(method).unknown:
            method = Method(name)
        if method not in self._methods:
            self._methods[method] = self._made(method)
        return self._methods[method]

    def _made(self, target: Any) -> Op:
        name, number = op_name(target), 1
        wanted = name
        while self._bearers.setdefault(name, target) is not target:
            number += 1
            name = f"{wanted}#{number}"
        said = self._said.get(target) if self._said and type(target).__hash__ is not None else None
        return Op(name, effects_of(target) if said is None else said, target)


@frozen
class Literals:
    """Converts the arguments of fx nodes; objects that no argument can be stay, until ``constants.py`` makes them state.

    Args:
        known: what stands for each fx node.
        build: adds a node that calls a class, and returns its use.
    """

    known: Mapping[Any, Arg]
    build: Callable[[Any, tuple[Arg, ...], Any], Ref]

    def convert(self, arg: Any, at: Any) -> Arg:
        """Return an argument of a node as a value."""
        kind = type(arg)
        if kind is torch.fx.Node:
            return self.known[arg] if arg in self.known else Ref(arg.name)
        if kind in PLAIN:
            return arg
        if isinstance(arg, list):
            return Items([self.convert(part, at) for part in arg])
        if isinstance(arg, dict):
            return Record(tuple([(self.convert(key, at), self.convert(part, at)) for key, part in arg.items()]))
        if kind is slice:
            return slice(*[self.convert(part, at) for part in (arg.start, arg.stop, arg.step)])
        if isinstance(arg, tuple):
            return self._tuple(arg, at)
        return arg

    def _tuple(self, arg: tuple[Any, ...], at: Any) -> Arg:
        # fx keeps named tuples, and makes plain ones of all others.
        parts = tuple([self.convert(part, at) for part in arg])
        return self.build(type(arg), parts, at) if pytree.is_namedtuple_instance(arg) else parts

    def packed(self, value: Any) -> Arg:
        """Return what was bound to a parameter as a value: the dict of the rest of the keywords becomes a ``Record``."""
        return Record(tuple(value.items())) if type(value) is dict else value


def meta_of(fx_node: Any, values: Mapping[Any, Any]) -> Meta:
    """Return the meta of a node: what its tracer wrote, ``val`` where it can be known, and ``tag``."""
    meta: dict[str, Any] = dict(fx_node.meta)
    if "val" not in meta:
        value = value_of(fx_node, values)
        if value is not None:
            meta["val"] = value
    tag = getattr(fx_node, "tag", None)
    if tag is not None:
        meta["tag"] = tag
    return freeze_meta(meta)


def value_of(fx_node: Any, values: Mapping[Any, Any]) -> Any:
    """Return the fake value of a node, as its tracer or an example tells it; None where nobody does."""
    for found in (fx_node.meta.get("val"), fx_node.meta.get("example_value"), values.get(fx_node)):
        if found is not None and _is_value(found):
            return found
    return None


def _is_value(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_value, value))
    return isinstance(value, VALUES)


def is_tensor(arg: Any, values: Mapping[Any, Any]) -> bool:
    """Say whether an argument is known to be a tensor."""
    return isinstance(arg, torch.fx.Node) and (
        isinstance(value_of(arg, values), torch.Tensor) or type(arg.meta.get("tensor_meta")).__name__ == "TensorMetadata"
    )
