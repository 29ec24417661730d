"""Does a replacement fit a call: the arguments of a module's ``forward``, the pytrees and types of a program.

One idea: what a call passes is known but for the values, so the signature of the replacement can be asked now.  What a module
gives back is only known when it runs, and asked then.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import SwapError
from ..graph import Graph
from ..program import CallSignature, Program
from ..text.trees import print_tree
from ..torch_private import uncompiled
from .sites import Site
from .sizes import misfits

__all__ = ["check_module", "check_program", "check_structure", "leaves_for"]


def check_module(site: Site, module: torch.nn.Module) -> None:
    """Refuse a module whose ``forward`` does not take what a call passes.

    Raises:
        SwapError: it takes other arguments, or has no ``forward``.
    """
    module = uncompiled(module)  # what is compiled takes anything, and hands it on
    kind = type(module).__name__
    if getattr(type(module), "forward", None) is torch.nn.Module.forward and "forward" not in module.__dict__:
        raise SwapError(f"module {site.path!r}: a {kind} has no forward, so it can not be called; give one that has")
    try:
        taken = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return  # a forward that does not say what it takes
    spec = site.convention.signature.in_spec
    args_spec, kwargs_spec = spec.children()
    keys = list(kwargs_spec.context or ())
    try:
        taken.bind(*[None] * len(args_spec.children()), **dict.fromkeys(keys))
    except TypeError as error:
        given = [f"{len(args_spec.children())} positional", *(f"{key}=" for key in keys)]
        raise SwapError(
            f"module {site.path!r}: the call {site.node.name} passes {', '.join(given)}, and {kind}.forward{taken} does not "
            f"take that ({error}); wrap it in a module that does"
        ) from error


def check_program(site: Site, program: Program, outer: Program, callers: Sequence[Graph]) -> tuple[int, ...]:
    """Refuse a program that takes or gives something else than a call does.

    Args:
        site: the call.
        program: what stands in; its inputs and outputs are the user's only.
        outer: the program of the call.
        callers: the caller with the fake values of each of its own calls, which need not be of one size.

    Returns:
        For each input of the program, the leaf of the call's arguments that it is.

    Raises:
        SwapError: pytrees, types or sizes differ.
    """
    order = check_structure(site, program)
    leaves = [site.leaves[leaf] for leaf in order]
    faults: dict[str, None] = {}
    for caller in callers:
        values = {each.name: each.meta.get("val") for each in (*caller.inputs, *caller.nodes)}
        faults.update(dict.fromkeys(misfits(program, leaves, values, outer)))
    if faults:
        raise SwapError(f"module {site.path!r}: the program does not fit the call {site.node.name}: {'; '.join(faults)}")
    return order


def check_structure(site: Site, program: Program) -> tuple[int, ...]:
    """Refuse a program whose arguments or results are structured otherwise than those of a call.

    Args:
        site: the call.
        program: what stands in; its inputs and outputs are the user's only.

    Returns:
        For each input of the program, the leaf of the call's arguments that it is.

    Raises:
        SwapError: pytrees differ.
    """
    signature, theirs = site.convention.signature, program.signature
    where = f"module {site.path!r}: "
    order = leaves_for(signature, program)
    if order is None or len(order) != len(theirs.inputs):
        raise SwapError(
            f"{where}the call {site.node.name} passes {_spelled(signature.in_spec)}, the program takes "
            f"{_spelled(theirs.in_spec)}; export it with arguments that are structured and passed like those"
        )
    mine, given = signature.out_spec, theirs.out_spec
    if len(theirs.outputs) != mine.num_leaves if given is None else given != mine:
        said = "flat values" if given is None else print_tree(given)
        raise SwapError(f"{where}its result is {print_tree(mine)}, the program's {said}; let it give the same structure")
    return order


def leaves_for(signature: CallSignature, program: Program) -> tuple[int, ...] | None:
    """Return the leaves of a call in the order in which a program takes them; None where the pytrees differ.

    Keyword arguments are told by name, so their order says nothing.
    """
    theirs = program.signature.in_spec
    if theirs is None:
        return tuple(range(signature.in_spec.num_leaves))
    mine, start = {}, 0
    for key, spec in _parts(signature.in_spec):
        mine[key] = (spec, start)
        start += spec.num_leaves
    found: list[int] = []
    parts = _parts(theirs)
    for key, spec in parts:
        if key not in mine or mine[key][0] != spec:
            return None
        found += range(mine[key][1], mine[key][1] + spec.num_leaves)
    return tuple(found) if len(parts) == len(mine) else None


def _parts(in_spec: Any) -> list[tuple[Any, Any]]:
    args_spec, kwargs_spec = in_spec.children()
    return [*enumerate(args_spec.children()), *zip(kwargs_spec.context or (), kwargs_spec.children(), strict=True)]


def _spelled(in_spec: Any) -> str:
    if in_spec is None:
        return "flat arguments"
    args_spec, kwargs_spec = in_spec.children()
    positional = [print_tree(spec) for spec in args_spec.children()]
    named = [f"{key}={print_tree(spec)}" for key, spec in zip(kwargs_spec.context or (), kwargs_spec.children(), strict=True)]
    return f"({', '.join([*positional, *named])})"
