"""Operators by name, from the allow-list and from what a reader gives; types by name.

A name in a text is only looked up, never resolved through modules and never imported; a name that is neither on the allow-list
nor given by the reader has no callable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from ..allowed import allowed, registered
from ..torch_private import pytree

Target = Callable[..., Any]


def resolve(name: str) -> Target | None:
    """Return the operator that a name in a text stands for, or None.

    Args:
        name: as ``Op.name`` has it.

    >>> import operator, torch
    >>> resolve("aten.add.Tensor") is torch.ops.aten.add.Tensor, resolve("operator.getitem") is operator.getitem
    (True, True)
    >>> resolve("os.system") is None
    True
    """
    return allowed(name)


@frozen
class Known:
    """What a reader gives beside the allow-list: operators and types that a text may name, and the contents of slots.

    >>> Known({"toy.neg": abs}).operator("toy.neg") is abs, Known().operator("os.system") is None
    (True, True)
    """

    operators: Mapping[str, Target] = MappingProxyType({})
    types: Mapping[str, type] = MappingProxyType({})
    allow: frozenset[str] = frozenset()
    """Names of registered operators that are not on the allow-list, and that the reader accepts all the same."""
    state: Mapping[str, Any] = MappingProxyType({})
    """Tensors and other values of slots, by name."""

    def operator(self, name: str) -> Target | None:
        """Return the operator that a name stands for, or None."""
        if name in self.operators:
            return self.operators[name]
        return registered(name) if name in self.allow else resolve(name)

    def type(self, name: str) -> Any:
        """Return the type of a pytree node that a name stands for, or None: one that is given, or registered as a node."""
        if name in self.types:
            return self.types[name]
        # The last one: a notebook defines and registers a class of one name again and again.
        registered = (kind for kind in reversed(pytree.SUPPORTED_NODES) if isinstance(kind, type))
        return next((kind for kind in registered if type_name(kind) == name), None)


NOTHING_MORE = Known()
"""The allow-list alone."""


def type_name(kind: type) -> str:
    """Return the name under which a type is written.

    >>> import torch
    >>> type_name(torch.return_types.max)
    'torch.return_types.max'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def named_types(types: Iterable[type]) -> Mapping[str, type]:
    """Return types by name.

    Raises:
        TypeError: one is not a type.

    >>> dict(named_types([dict]))
    {'builtins.dict': <class 'dict'>}
    """
    found = list(types)
    for kind in found:
        if not isinstance(kind, type):
            raise TypeError(f"types holds classes, not a {type(kind).__name__}")
    return {type_name(kind): kind for kind in found}


def names_of(allow: Iterable[str]) -> frozenset[str]:
    """Return names of operators that a reader or writer allows.

    Raises:
        TypeError: it is a string, or holds something else than strings.

    >>> names_of({"builtins.getattr"})
    frozenset({'builtins.getattr'})
    """
    found = [allow] if isinstance(allow, str) else list(allow)
    if isinstance(allow, str) or not all(isinstance(name, str) for name in found):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("allow holds names of operators: allow={'builtins.getattr'}")
    return frozenset(found)
