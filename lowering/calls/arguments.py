"""From the arguments of the caller to the flat inputs of the root, and from outputs to results: binding, pytrees, adapters.

Arguments are checked in ``guards.py``.
"""

from __future__ import annotations

import copy
import inspect
import keyword
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx.immutable_collections

from ...ir.arguments import thawed
from ...ir.callables import Parameter, bind
from ...ir.errors import InputError, InputValueError
from ...ir.own_operators import pack
from ...ir.program import Program
from ...ir.signature import RestType, UserInput
from ...ir.torch_private import pytree
from .guards import LeafChecks

__all__ = ["CallPlan", "adapted"]


def adapted(root: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the flat inputs of a call of a root with an adapter, checked.

    Args:
        root: a lowered root; its ``flat_args_adapter`` is a ``torch.export.FlatArgsAdapter``.
        args: as the caller gave them.
        kwargs: as the caller gave them.

    Raises:
        InputError: the adapter gave another number of leaves than the program takes.
        InputValueError: a leaf has a wrong type, shape, dtype or value, or the adapter gave another number of paths.
    """
    plan, adapter = root.purefx_plan, root.flat_args_adapter
    try:
        values = plan.bound(args, kwargs)
    except InputError:
        values = None
    if values is not None:
        return list(plan.checked(values))
    leaves, spec = pytree.tree_flatten((args, _ordered(kwargs, plan)))
    found = adapter.adapt(
        target_spec=plan.in_spec,
        input_spec=spec,
        input_args=leaves,
        metadata={**root.meta, "unflattened_module": root},
        obj=args,
    )
    count = plan.checks.count
    if not isinstance(found, list | tuple) or len(found) != count:
        got = f"{len(found)} of them" if isinstance(found, list | tuple) else f"a {type(found).__name__}"
        raise InputError(
            f"the program takes {count} flat arguments ({', '.join(plan.checks.paths)}); {_name(adapter)} gave {got}"
        )
    return list(_checked(root, found))


def _checked(root: torch.nn.Module, leaves: Any) -> Any:
    plan: Any = root.purefx_plan
    paths = list(getattr(root.flat_args_adapter, "get_flat_arg_paths", list)())
    if not paths:
        return plan.checked(leaves)
    if len(paths) != len(leaves):
        adapter = _name(root.flat_args_adapter)
        raise InputValueError(f"{adapter}.get_flat_arg_paths() gave {len(paths)} paths for {len(leaves)} flat arguments")
    checks = copy.copy(plan.checks)
    checks.paths = paths
    return plan.checked(leaves, checks)


def _ordered(kwargs: Mapping[str, Any], plan: Any) -> dict[str, Any]:
    # Keyword arguments that the program knows come in its order, as for the peer.
    known = {name: kwargs[name] for name in plan.keyword if name in kwargs} if plan.in_spec is not None else {}
    return {**known, **kwargs}


def _name(adapter: Any) -> str:
    return type(adapter).__name__


class CallPlan:
    """How one lowered root is called."""

    def __init__(self, program: Program) -> None:
        signature = program.signature
        self.in_spec = signature.in_spec
        self.out_spec = signature.out_spec
        self.names = signature.arg_names
        self.checks = LeafChecks(program)
        self.parameters = _parameters(program)
        """What a plain ``forward`` says beyond names: defaults, and which take the rest; None if it says nothing."""
        self.unchecked = False
        """Whether values are taken as they are."""
        self.result: Callable[[Sequence[Any]], Any] = _result_builder(self.out_spec)
        if self.in_spec is not None:
            args_spec, kwargs_spec = self.in_spec.children()
            self.positional: tuple[Any, ...] = tuple(args_spec.children())
            self.keyword: dict[str, Any] = dict(zip(kwargs_spec.context or (), kwargs_spec.children(), strict=True))
            self.simple = all(spec.is_leaf() for spec in (*self.positional, *self.keyword.values()))
            self.leaf_names = [self._name(index) for index in range(len(self.positional))] + list(self.keyword)
        self.signature = _python_signature(self)
        """The signature of the original ``forward``, as far as the program has it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> CallPlan:
        # A copied module may be converted by itself, so the checks are its own; specs are values (and torch warns of its
        # own class when it copies one).
        new = copy.copy(self)
        new.checks = copy.copy(self.checks)
        return new

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the flat inputs for a call, checked.

        Raises:
            InputError: too many, too few, unknown or differently nested arguments.
            InputValueError: an argument has a wrong type, shape, dtype or value.
        """
        return self.checked(self.bound(args, kwargs))

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the flat inputs for a call as they are.

        Raises:
            InputError: too many, too few, unknown or differently nested arguments.
        """
        if self.in_spec is None:
            return self._flat(args, kwargs)
        if self.simple and not kwargs and not self.keyword and len(args) == len(self.positional) and self.parameters is None:
            return args
        return self._bound(args, kwargs)

    def checked(self, values: Sequence[Any], checks: LeafChecks | None = None) -> Sequence[Any]:
        """Return flat inputs after a check of their types, shapes, dtypes and values.

        Raises:
            InputValueError: one is wrong.
        """
        found = checks or self.checks
        if self.unchecked:
            found.only_data(values)
        else:
            found.run(values)
        return values

    def _flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        if kwargs or len(args) != self.checks.count:
            given = f"{len(args)} positional and {len(kwargs)} keyword arguments"
            raise InputError(f"this module takes {self.checks.count} flat inputs, got {given}")
        return args

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        by_name = self._by_name(args, kwargs)
        if self.simple:
            return [by_name[name] for name in self.leaf_names]
        values: list[Any] = []
        for index, spec in enumerate(self.positional):
            name = self._name(index)
            values += flatten(by_name[name], spec, name)
        for name, spec in self.keyword.items():
            values += flatten(by_name[name], spec, name)
        return values

    def _name(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else f"args[{index}]"

    def _by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self.parameters is not None:
            return bind(self.parameters, args, kwargs)
        expected = [*(self._name(index) for index in range(len(self.positional))), *self.keyword]
        if len(args) > len(self.positional):
            # What was exported by keyword has an order of its own, which need not be that of the original's parameters.
            by_keyword = f" and {', '.join(self.keyword)} by keyword" if self.keyword else ""
            taken = f"{len(self.positional)} arguments ({', '.join(expected[: len(self.positional)])}){by_keyword}"
            raise InputError(f"takes {taken}, got {len(args)} positional ones")
        bound = dict(zip(expected, args, strict=False))
        for name, value in kwargs.items():
            if name in bound:
                raise InputError(f"got argument {name!r} twice, by position and by name")
            if name not in expected:
                raise InputError(f"unexpected argument {name!r}; this program takes {', '.join(expected) or 'none'}")
            bound[name] = value
        missing = [name for name in expected if name not in bound]
        if missing:
            raise InputError(f"missing argument{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}; {self._exported()}")
        return bound

    def _exported(self) -> str:
        return f"the program was exported with ({', '.join([*map(self._name, range(len(self.positional))), *self.keyword])})"


FX_CONTAINERS = (torch.fx.immutable_collections.immutable_list, torch.fx.immutable_collections.immutable_dict)
"""What fx makes of the lists and dicts among the arguments of a node."""


def flatten(value: Any, spec: Any, path: str) -> list[Any]:
    """Return the leaves of a value in the order of a pytree spec; dict keys may come in any order.

    Raises:
        InputError: the value is nested differently; the message has the path and what was expected.

    >>> spec = pytree.tree_structure({"a": 1, "b": [2]})
    >>> flatten({"b": [20], "a": 10}, spec, "x")
    [10, 20]
    """
    if spec.is_leaf():
        return [value]
    if spec.type is not _node_type(value) and not (isinstance(value, FX_CONTAINERS) and isinstance(value, spec.type)):
        raise InputError(f"argument {path}: expected a {_type_name(spec)}, got a {type(value).__name__}")
    if isinstance(value, dict):
        keys = list(spec.context[1] if spec.type.__name__ == "defaultdict" else spec.context)
        if set(keys) != set(value):
            raise InputError(f"argument {path}: expected the keys {keys}, got {list(value)}")
        parts = [(value[key], f"{path}[{key!r}]") for key in keys]
    else:
        children, context = pytree.SUPPORTED_NODES[spec.type].flatten_fn(value)
        parts = [(child, f"{path}[{index}]") for index, child in enumerate(children)]
        if len(parts) != spec.num_children or (context != spec.context and spec.context is not None):
            wanted = f"a {_type_name(spec)} of {spec.num_children} parts like the exported one"
            raise InputError(f"argument {path}: expected {wanted}, got {len(parts)}")
    return [leaf for (part, where), inner in zip(parts, spec.children(), strict=True) for leaf in flatten(part, inner, where)]


def _node_type(value: Any) -> Any:
    # All namedtuples are one type to pytree; which one it is, is in the context.
    return namedtuple if pytree.is_namedtuple_instance(value) else type(value)  # noqa: PYI024  # only its identity is used


def _parameters(program: Program) -> list[Parameter] | None:
    specs = [spec for spec in program.signature.inputs if type(spec) is UserInput]
    if all(spec.default is None and type(spec.type) is not RestType for spec in specs):
        return None
    return [
        Parameter(
            spec.argument,
            () if spec.default is None else (thawed(spec.default.value),),
            spec.type if type(spec.type) is RestType else None,
        )
        for spec in specs
    ]


def _python_signature(plan: CallPlan) -> inspect.Signature | None:
    # Names only: which defaults the original had is not exported. None if a name cannot be a parameter's.
    if plan.in_spec is None:
        return None
    names = ["self", *plan.leaf_names]
    if len(set(names)) < len(names) or not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        return None
    count = 1 + len(plan.positional)
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * count + [inspect.Parameter.KEYWORD_ONLY] * (len(names) - count)
    found = [inspect.Parameter(name, kind) for name, kind in zip(names, kinds, strict=True)]
    if plan.parameters is not None:
        found[1:] = map(_python_parameter, plan.parameters)
    try:
        return inspect.Signature(found)
    except ValueError:  # an order of defaults that no function can have
        return None


def _python_parameter(parameter: Parameter) -> inspect.Parameter:
    if parameter.rest is not None:
        kind = inspect.Parameter.VAR_KEYWORD if parameter.rest.keywords else inspect.Parameter.VAR_POSITIONAL
        return inspect.Parameter(parameter.name, kind)
    default = parameter.default[0] if parameter.default else inspect.Parameter.empty
    return inspect.Parameter(parameter.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _type_name(spec: Any) -> str:
    kind = spec.context if spec.type is namedtuple else spec.type  # noqa: PYI024  # only its identity is used
    return getattr(kind, "__name__", str(kind))


def _result_builder(spec: Any) -> Callable[[Sequence[Any]], Any]:
    if spec is None:
        return tuple
    if spec.is_leaf():
        return _only
    if spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return tuple
    return lambda leaves: pack(leaves, spec)


def _only(leaves: Sequence[Any]) -> Any:
    return leaves[0]
