"""fx nodes for calls of modules with a preserved signature, and for the borders of their bodies.

One idea: what a reader of the graph sees is what the peers show: ``_positional_arg_0`` and the original's keywords, taken
apart into leaves, and a result put together again; a call passes the original's arguments.  Pytrees of plain containers
are written out, others go through ``tree_unflatten``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch.fx

from ..ir.arguments import Ref
from ..ir.conventions import Convention
from ..ir.torch_private import pytree, tree_flatten_spec
from .preserved import CallSite

__all__ = ["add_inputs", "add_output", "call_module"]

Attach = Callable[[Any], str]
"""Puts a pytree on the owner of the graph and returns the attribute's name."""


def add_inputs(made: torch.fx.Graph, convention: Convention, formals: Sequence[str], attach: Attach) -> dict[str, torch.fx.Node]:
    """Add the placeholders of a body with a preserved signature, and return the fx node of each of its inputs.

    Args:
        made: an empty graph.
        convention: how the body is called; nothing may travel beside the arguments.
        formals: the names of the body's inputs.
        attach: puts a pytree on the owner of the graph.
    """
    args_spec, kwargs_spec = convention.signature.in_spec.children()
    args = tuple([made.placeholder(f"_positional_arg_{index}") for index in range(len(args_spec.children()))])
    kwargs = {key: made.placeholder(key) for key in kwargs_spec.context or ()}
    spec = made.get_attr(attach(convention.signature.in_spec))
    flat = made.call_function(tree_flatten_spec, ((args, kwargs), spec))
    found: dict[str, torch.fx.Node] = {}
    for index, leaf in enumerate(convention.takes):
        name = leaf.name if type(leaf) is Ref else f"_constant_{index}"
        node = made.create_node("call_function", operator.getitem, (flat, index), name=name)
        if type(leaf) is Ref:
            found.setdefault(leaf.name, node)
    return {name: found[name] for name in formals}


def add_output(made: torch.fx.Graph, convention: Convention, leaves: Sequence[Any], attach: Attach) -> torch.fx.Node:
    """Add the output of a body with a preserved signature: its leaves, put together."""
    spec = made.get_attr(attach(convention.signature.out_spec))
    return made.output(made.call_function(pytree.tree_unflatten, (list(leaves), spec)))


def call_module(
    made: torch.fx.Graph, site: CallSite, leaves: Sequence[Any], *, target: str, name: str, attach: Attach
) -> tuple[torch.fx.Node, Any]:
    """Add a call of a module as the original was called.

    Args:
        made: the graph.
        site: the call.
        leaves: the leaves of the arguments, as fx nodes and literals.
        target: the attribute path of the module.
        name: the name of the node.
        attach: puts a pytree on the owner of the graph.

    Returns:
        The node of the call, and what its caller uses of the result.
    """
    convention = site.convention
    args_spec, kwargs_spec = convention.signature.in_spec.children()
    rest = iter(leaves)
    args = tuple([_packed(made, spec, rest, attach) for spec in args_spec.children()])
    pairs = zip(kwargs_spec.context or (), kwargs_spec.children(), strict=True)
    kwargs = {key: _packed(made, spec, rest, attach) for key, spec in pairs}
    called = made.create_node("call_module", target, args, cast(Any, kwargs), name=name)
    if convention.signature.out_spec.is_leaf():
        flat: Any = (called,)
    else:
        spec = made.get_attr(attach(convention.signature.out_spec))
        parts = made.call_function(tree_flatten_spec, (called, spec))
        flat = {leaf: made.call_function(operator.getitem, (parts, leaf)) for leaf in convention.outputs}
    values = tuple([flat[leaf] for leaf in convention.outputs])
    return called, values[0] if convention.single else values


def _packed(made: torch.fx.Graph, spec: Any, leaves: Iterator[Any], attach: Attach) -> Any:
    # Nesting is what a caller of the original wrote, so it is shallow.
    if spec.is_leaf():
        return next(leaves)
    if spec.type not in (tuple, list, dict):
        inside = [next(leaves) for _ in range(spec.num_leaves)]
        return made.call_function(pytree.tree_unflatten, (inside, made.get_attr(attach(spec))))
    parts = [_packed(made, child, leaves, attach) for child in spec.children()]
    return dict(zip(spec.context, parts, strict=True)) if spec.type is dict else spec.type(parts)
