"""``ArgumentTree``: the arguments of a function as leaves of pytrees, in order, with their names.

The root, calls with a preserved signature and guards flatten arguments and name leaves with it.
Nothing here unflattens, because registered pytree classes may check their parts.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import torch.fx.immutable_collections
from attrs import frozen

from ..callables import Parameter, bind
from ..errors import InputError
from ..torch_private import fields_of, pytree

EMPTY = pytree.tree_structure(((), {}))

DICTS = (dict, OrderedDict, defaultdict)
"""The dicts that pytree flattens by key; the context of a registered subclass may be anything."""


@frozen(eq=False)
class ArgumentTree:
    """The pytrees of the positional arguments and of the keyword arguments of a function.

    >>> tree = ArgumentTree.of(pytree.tree_structure(((1, [2, 3]), {"k": 4})), ("x",))
    >>> tree.labels, tree.paths
    (('x', 'args[1]', 'k'), ['x', 'args[1][0]', 'args[1][1]', 'k'])
    >>> tree.flatten([1, [2, 3], 4])
    [1, 2, 3, 4]
    """

    positional: tuple[Any, ...]
    keyword: Mapping[str, Any]
    """By name, in the order of the leaves."""
    specs: tuple[Any, ...]
    """The pytrees of all arguments, the positional ones first."""
    labels: tuple[str, ...]
    """The name of each argument, in messages and for callers that pass it by name."""
    parameters: tuple[Parameter, ...]
    """The arguments as parameters without defaults."""
    is_flat: bool
    """Whether each argument is one leaf."""
    examples: tuple[Any, ...]
    """An example of each argument; None if unknown."""

    @classmethod
    def of(cls, in_spec: Any, names: Sequence[str] = (), example: Any = None) -> Self:
        """Return the tree of a pytree of ``(args, kwargs)``.

        Args:
            in_spec: the pytree; None if unknown, for a tree without arguments.
            names: the known argument names of the ``forward``.
            example: ``(args, kwargs)`` of a call, if any: some classes name the parts of values only.
        """
        args, kwargs = EMPTY.children() if in_spec is None else in_spec.children()
        positional = tuple(args.children())
        keyword: dict[str, Any] = dict(zip(kwargs.context or (), kwargs.children(), strict=True))
        by_place = [
            names[at] if at < len(names) else f"args[{at}]" for at in range(len(positional))
        ]
        labels = (*by_place, *map(str, keyword))
        parameters = tuple(
            [Parameter(label, by_name=at >= len(positional)) for at, label in enumerate(labels)]
        )
        specs = (*positional, *keyword.values())
        is_flat = all(spec.is_leaf() for spec in specs)
        first, named = example or ((), {})
        examples = (
            *[first[at] if at < len(first) else None for at in range(len(positional))],
            *map(named.get, keyword),
        )
        return cls(
            positional, MappingProxyType(keyword), specs, labels, parameters, is_flat, examples
        )

    @property
    def keys(self) -> tuple[int | str, ...]:
        """How each argument is passed: by its position, or by its name."""
        return (*range(len(self.positional)), *self.keyword)

    @property
    def places(self) -> list[tuple[int, tuple[Any, ...]]]:
        """For each leaf, the number of its argument and its keys in the pytree."""
        pairs = enumerate(zip(self.specs, self.examples, strict=True))
        return [
            (number, path) for number, (spec, example) in pairs for path in key_paths(spec, example)
        ]

    @property
    def paths(self) -> list[str]:
        """Each leaf as a caller writes it: ``x``, ``batch['ids'][0]``."""
        return [self.labels[number] + pytree.keystr(rest) for number, rest in self.places]

    def bind(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        plain: Sequence[Parameter] | None = None,
    ) -> Sequence[Any]:
        """Return the leaves of a call.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            plain: the parameters of the function with their defaults, if they are known.

        Raises:
            InputError: too many, too few, unknown or differently nested arguments.

        >>> ArgumentTree.of(pytree.tree_structure(((1,), {"k": 4}))).bind((1,), {"k": 2})
        [1, 2]
        """
        if (
            self.is_flat
            and plain is None
            and not self.keyword
            and not kwargs
            and len(args) == len(self.positional)
        ):
            return args
        found = bind(
            plain or self.parameters, args, kwargs, takes="takes" if plain else "was exported with"
        )
        return self.flatten([found[label] for label in self.labels])

    def flatten(self, values: Sequence[Any]) -> list[Any]:
        """Return the leaves of the arguments of a call.

        Args:
            values: one for each argument.

        Raises:
            InputError: one has another structure; the message has the path and the expected type.
        """
        if self.is_flat:
            return list(values)
        pairs = zip(values, self.specs, self.labels, strict=True)
        return [
            leaf
            for value, spec, label in pairs
            for leaf in ([value] if spec.is_leaf() else flatten(value, spec, label))
        ]


def key_paths(spec: Any, value: Any = None) -> list[tuple[Any, ...]]:
    """Return the keys that lead to each leaf of a pytree.

    The key of a part of a registered class comes from the class if there is a value, else from the spec (dataclasses,
    classes like dicts), else it is a number.

    Args:
        spec: the pytree.
        value: the flattened value, if available.

    >>> [pytree.keystr(path) for path in key_paths(pytree.tree_structure({"a": (1, 2), "b": 3}))]
    ["['a'][0]", "['a'][1]", "['b']"]
    """
    if spec.is_leaf():
        return [()]
    registered = pytree.SUPPORTED_NODES.get(spec.type)
    pairs: list[tuple[Any, Any]] = []
    if registered is not None and _node_type(value) is spec.type:
        if registered.flatten_with_keys_fn is not None:
            pairs = list(registered.flatten_with_keys_fn(value)[0])
        else:
            pairs = list(zip(_keys(spec), registered.flatten_fn(value)[0], strict=False))
    if len(pairs) != spec.num_children:  # no value, or one with another structure
        pairs = [(key, None) for key in _keys(spec)]
    inside = zip(pairs, spec.children(), strict=True)
    return [(key, *rest) for (key, part), child in inside for rest in key_paths(child, part)]


def _keys(spec: Any) -> list[Any]:
    kind, context, count = spec.type, spec.context, spec.num_children
    if kind in DICTS:
        return [pytree.MappingKey(key) for key in (context[1] if kind is defaultdict else context)]
    if kind is namedtuple:  # noqa: PYI024  # only its identity is used
        return [pytree.GetAttrKey(field) for field in fields_of(context)]
    kept = (context, *context) if isinstance(context, list | tuple) else ()
    for names in kept:
        if (
            isinstance(names, list | tuple)
            and len(names) == count
            and all(type(name) is str for name in names)
        ):
            return [
                (pytree.GetAttrKey if dataclasses.is_dataclass(kind) else pytree.MappingKey)(name)
                for name in names
            ]
    return [pytree.SequenceKey(number) for number in range(count)]


def leaf_ranges(specs: Iterable[Any]) -> list[range]:
    """Return the range of leaf numbers of each pytree, counted across all.

    >>> leaf_ranges([pytree.tree_structure(0), pytree.tree_structure([1, 2])])
    [range(0, 1), range(1, 3)]
    """
    found: list[range] = []
    at = 0
    for spec in specs:
        found.append(range(at, at := at + spec.num_leaves))
    return found


FX_CONTAINERS = (
    torch.fx.immutable_collections.immutable_list,
    torch.fx.immutable_collections.immutable_dict,
)
"""The containers that fx uses for lists and dicts among the arguments of a node."""


def flatten(value: Any, spec: Any, path: str) -> list[Any]:
    """Return the leaves of a value in the order of a pytree spec; dict keys may come in any order.

    Raises:
        InputError: the value has another structure; the message has the path and the expected type.

    >>> spec = pytree.tree_structure({"a": 1, "b": [2]})
    >>> flatten({"b": [20], "a": 10}, spec, "x")
    [10, 20]
    """
    if spec.is_leaf():
        return [value]
    if spec.type is not _node_type(value) and not (
        isinstance(value, FX_CONTAINERS) and isinstance(value, spec.type)
    ):
        raise InputError(
            f"argument {path}: expected a {_type_name(spec)}, got a {type(value).__name__}"
        )
    if spec.type in DICTS:
        keys = list(spec.context[1] if spec.type is defaultdict else spec.context)
        if set(keys) != set(value):
            raise InputError(f"argument {path}: expected the keys {keys}, got {list(value)}")
        parts = [(value[key], f"{path}[{key!r}]") for key in keys]
    else:
        children, context = pytree.SUPPORTED_NODES[spec.type].flatten_fn(value)
        parts = [(child, f"{path}[{index}]") for index, child in enumerate(children)]
        if len(parts) != spec.num_children or context != spec.context:
            wanted, found = (
                _described(spec.num_children, spec.context),
                _described(len(parts), context),
            )
            raise InputError(
                f"argument {path}: expected a {_type_name(spec)} of {wanted} as it was exported, got {found}"
            )
    return [
        leaf
        for (part, where), inner in zip(parts, spec.children(), strict=True)
        for leaf in flatten(part, inner, where)
    ]


def _node_type(value: Any) -> Any:
    # All namedtuples are one type to pytree; the context has the class.
    return namedtuple if pytree.is_namedtuple_instance(value) else type(value)  # noqa: PYI024  # only its identity is used


def _described(count: int, context: Any) -> str:
    parts = f"{count} part{'s' * (count != 1)}"
    return parts if context is None else f"{parts} and {context!r}"[:200]


def _type_name(spec: Any) -> str:
    return (spec.context if spec.type is namedtuple else spec.type).__name__  # noqa: PYI024  # only its identity is used
