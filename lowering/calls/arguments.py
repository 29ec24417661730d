"""From the arguments of the caller to the flat inputs of the root, and from outputs to results: binding, pytrees, adapters.

Arguments are checked in ``guards.py``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...ir.callables import Parameter, bind, plain_parameters
from ...ir.calls.argument_tree import ArgumentTree
from ...ir.errors import InputError, InputValueError
from ...ir.names import is_identifier
from ...ir.own_operators import pack
from ...ir.program import Program
from ...ir.torch_private import pytree
from .guards import LeafChecks

__all__ = ["CallPlan", "adapted", "result_builder"]


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
    known = {name: kwargs[name] for name in plan.tree.keyword if name in kwargs}
    return {**known, **kwargs}


def _name(adapter: Any) -> str:
    return type(adapter).__name__


class CallPlan:
    """How one lowered root is called."""

    def __init__(self, program: Program) -> None:
        signature = program.signature
        self.in_spec = signature.in_spec
        self.tree = tree = ArgumentTree.of(self.in_spec, signature.arg_names)
        self.checks = LeafChecks(program)
        plain = plain_parameters(signature)
        self.parameters = plain or [
            Parameter(label, by_name=type(key) is not int) for label, key in zip(tree.labels, tree.keys, strict=True)
        ]
        """What the original ``forward`` takes, as far as the program knows it: exports have no defaults."""
        self.takes = "takes" if plain else "was exported with"
        self.passes_on = plain is None and tree.is_flat and not tree.keyword
        """Whether positional arguments are the flat inputs."""
        self.unchecked = False
        """Whether values are taken as they are."""
        self.result: Callable[[Sequence[Any]], Any] = result_builder(signature.out_spec)
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
        tree = self.tree
        if self.passes_on and not kwargs and len(args) == len(tree.positional):
            return args
        found = bind(self.parameters, args, kwargs, takes=self.takes)
        return tree.flatten([found[label] for label in tree.labels])

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


def _python_signature(plan: CallPlan) -> inspect.Signature | None:
    # None if a name cannot be a parameter's.
    names = ["self", *[parameter.name for parameter in plan.parameters]]
    if plan.in_spec is None or len(set(names)) < len(names) or not all(map(is_identifier, names)):
        return None
    try:
        return inspect.Signature([_python_parameter(Parameter("self")), *map(_python_parameter, plan.parameters)])
    except ValueError:  # an order of defaults that no function can have
        return None


def _python_parameter(parameter: Parameter) -> inspect.Parameter:
    if parameter.rest is not None:
        kind = inspect.Parameter.VAR_KEYWORD if parameter.rest.keywords else inspect.Parameter.VAR_POSITIONAL
        return inspect.Parameter(parameter.name, kind)
    default = parameter.default[0] if parameter.default else inspect.Parameter.empty
    kind = inspect.Parameter.KEYWORD_ONLY if parameter.by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(parameter.name, kind, default=default)


def result_builder(spec: Any) -> Callable[[Sequence[Any]], Any]:
    """Return a function from the leaves of a result to the result.

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
