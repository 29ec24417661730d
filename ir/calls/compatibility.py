"""Signature compatibility: check that a module or a program can replace another in a call.

Compares the parameters of ``forward``, pytrees, types and exported sizes; nothing is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..arguments import Arg, Ref, same_arg
from ..errors import SwapError
from ..expression import Expr, InputDim, InputValue, Sym, evaluate, write
from ..graph import Graph, Node
from ..program import CallSignature, Program
from ..signature import ArgumentType, LiteralType, NumberType, TensorType, UserInput
from ..text.arguments import print_tree
from ..torch_private import uncompiled
from .argument_tree import ArgumentTree, leaf_ranges
from .call_sites import CallSite


def misfits(
    program: Program, leaves: Sequence[Arg], values: Mapping[str, Any], outer: Program
) -> Iterator[str]:
    """Yield the requirements of a program on its inputs that the arguments of a call do not satisfy.

    Symbolic sizes of the call satisfy only symbols, ranges that contain theirs, and guards that hold for all sizes.

    Args:
        program: a program whose inputs are all user inputs.
        leaves: for each input, the argument of the call.
        values: the fake values of the caller, by name.
        outer: the program of the call, with the ranges of its symbols.
    """
    bounds = {
        found.expr.name: (found.low, found.high)
        for found in outer.constraints.ranges
        if type(found.expr) is Sym
    }
    known: dict[Any, Any] = {}
    """The values of the program's symbols and sizes at this call: numbers, or the text of a symbolic size."""
    for index, (spec, leaf) in enumerate(zip(program.signature.inputs, leaves, strict=True)):
        if type(spec) is UserInput:
            value = values.get(leaf.name) if type(leaf) is Ref else leaf
            faults = _type_faults(spec.type, leaf, value) or _size_faults(
                index, spec.type, value, known
            )
            yield from (f"its input {spec.argument or index} {fault}" for fault in faults)
    for span in program.constraints.ranges:
        found: Any = known.get(span.expr)
        low, high = (found, found) if type(found) is int else bounds.get(found, (None, None))
        # Exporters always write 2 as the lower bound of a dynamic size.
        below = (
            span.low is not None
            and (span.low > 2 or type(found) is int)
            and (low is None or low < span.low)
        )
        if found is not None and (
            below or (span.high is not None and (high is None or high > span.high))
        ):
            yield f"it was exported for sizes {f'from {span.low} on' if below else f'up to {span.high}'}, and one is {found} here"
    yield from ("it was exported under a guard that cannot be proven here" for guard in program.constraints.guards
                if _value(guard, known) is not True)  # fmt: skip


def _type_faults(kind: ArgumentType, leaf: Arg, value: Any) -> list[str]:
    is_value, here = type(leaf) is Ref, "a value" if type(leaf) is Ref else repr(leaf)
    match kind:
        case LiteralType(value=expected) if is_value or not same_arg(expected, leaf):
            return [f"was exported as the constant {expected!r}, and is {here} here"]
        case TensorType() if not is_value:
            return [f"is a tensor, and the constant {leaf!r} here"]
        case TensorType(dtype=dtype, shape=shape) if isinstance(value, torch.Tensor):
            faults = [f"is a {dtype}, and a {value.dtype} here"] if dtype is not value.dtype else []
            return faults + (
                [f"has {len(shape)} dimensions, and {value.dim()} here"]
                if len(shape) != value.dim()
                else []
            )
        case NumberType(kind=number) if not is_value and type(leaf).__name__ != number:
            return [f"is a number ({number}), and {here} here"]
        case _:
            return []


def _size_faults(index: int, kind: ArgumentType, value: Any, known: dict[Any, Any]) -> list[str]:
    # Bind the symbols of one input.
    sizes: list[tuple[Any, Expr | None, Any, str]] = []
    if isinstance(kind, TensorType) and isinstance(value, torch.Tensor):
        pairs = enumerate(zip(kind.shape, value.shape, strict=True))
        sizes = [
            (InputDim(index, dim), size, found, f"in dimension {dim} ")
            for dim, (size, found) in pairs
        ]
    elif isinstance(kind, NumberType):
        sizes = [(InputValue(index), kind.expr, value, "")]
    faults: list[str] = []
    for key, size, found, where in sizes:
        here = known[key] = found if type(found) is int or found is None else str(found)
        expected = (
            here
            if size is None
            else known.setdefault(size, here)
            if type(size) is Sym
            else _value(size, known)
        )
        if expected != here:
            more = (
                "; export it with that dimension dynamic"
                if type(size) is int and type(here) is str
                else ""
            )
            exported = expected if size is None or type(size) is Sym else write(size)
            faults.append(
                f"{where}was exported for the size {exported}, and that is {here} here{more}"
            )
    return faults


def _value(expr: Expr, known: Mapping[Any, Any]) -> Any:
    try:
        return evaluate(expr, known)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def check_module(site: CallSite, module: torch.nn.Module) -> None:
    """Raise if the ``forward`` of a module does not accept the arguments of a call.

    Raises:
        SwapError: it accepts other arguments, or has no ``forward``.
    """
    tree = ArgumentTree.of(site.convention.signature.in_spec)
    check_forward(
        site.path, site.node, module, (None,) * len(tree.positional), dict.fromkeys(tree.keyword)
    )


def check_forward(
    path: str, call: Node, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise if the ``forward`` of a module does not accept these arguments.

    Args:
        path: the module that is replaced.
        call: a call of it.
        module: the replacement.
        args: the positional arguments; their values do not matter.
        kwargs: the keyword arguments.

    Raises:
        SwapError: it accepts other arguments, or has no ``forward``.

    >>> from purefx.ir import Op
    >>> check_forward("a", Node("y", Op("toy.neg")), torch.nn.ReLU(), (1,), {})
    """
    module = uncompiled(module)  # a compiled module forwards any arguments
    kind = type(module).__name__
    if (
        getattr(type(module), "forward", None) is torch.nn.Module.forward
        and "forward" not in module.__dict__
    ):
        raise SwapError(
            f"module {path!r}: a {kind} has no forward, so it cannot be called; pass a module with one"
        )
    try:
        taken = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return  # a forward without a signature
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        given = [f"{len(args)} positional", *(f"{key}=" for key in kwargs)]
        raise SwapError(
            f"module {path!r}: the call {call.name} passes {', '.join(given)}, and {kind}.forward{taken} does not "
            f"accept that ({error}); wrap it in a module that does"
        ) from error


def check_program(
    site: CallSite, program: Program, outer: Program, callers: Sequence[Graph]
) -> tuple[int, ...]:
    """Raise if the inputs or outputs of a program differ from the arguments or results of a call.

    Args:
        site: the call.
        program: the replacement; all its inputs and outputs are user inputs and outputs.
        outer: the program of the call.
        callers: the caller, once for each of its calls, with the fake values of that call.

    Returns:
        For each input of the program, its leaf in the arguments of the call.

    Raises:
        SwapError: pytrees, types or sizes differ.
    """
    order = check_structure(site, program)
    leaves = [site.leaves[leaf] for leaf in order]
    faults: dict[str, None] = {}
    for caller in callers:
        values = {each.name: each.val for each in (*caller.inputs, *caller.nodes)}
        faults.update(dict.fromkeys(misfits(program, leaves, values, outer)))
    if faults:
        raise SwapError(
            f"module {site.path!r}: the program does not fit the call {site.node.name}: {'; '.join(faults)}"
        )
    return order


def check_structure(site: CallSite, program: Program) -> tuple[int, ...]:
    """Raise if the pytrees of a program differ from those of a call.

    Args:
        site: the call.
        program: the replacement; all its inputs and outputs are user inputs and outputs.

    Returns:
        For each input of the program, its leaf in the arguments of the call.

    Raises:
        SwapError: pytrees differ.
    """
    signature, theirs = site.convention.signature, program.signature
    where = f"module {site.path!r}: "
    order = leaves_for(signature, program)
    if order is None or len(order) != len(theirs.inputs):
        raise SwapError(
            f"{where}the call {site.node.name} passes {spelled(signature.in_spec)}, the program takes "
            f"{spelled(theirs.in_spec)}; export it with arguments that are structured and passed like those"
        )
    mine, given = signature.out_spec, theirs.out_spec
    if len(theirs.outputs) != mine.num_leaves if given is None else given != mine:
        said = "flat values" if given is None else print_tree(given)
        raise SwapError(
            f"{where}its result is {print_tree(mine)}, the program's {said}; return the same structure"
        )
    return order


def leaves_for(signature: CallSignature, program: Program) -> tuple[int, ...] | None:
    """Return the leaves of a call in the order of a program's inputs; None if the pytrees differ.

    Keyword arguments are matched by name, in any order.
    """
    theirs = program.signature.in_spec
    if theirs is None:
        return tuple(range(signature.in_spec.num_leaves))
    tree, wanted = ArgumentTree.of(signature.in_spec), _by_key(theirs)
    if _by_key(signature.in_spec) != wanted:
        return None
    numbers = dict(zip(tree.keys, leaf_ranges(tree.specs), strict=True))
    return tuple([number for key in wanted for number in numbers[key]])


def _by_key(in_spec: Any) -> dict[int | str, Any]:
    tree = ArgumentTree.of(in_spec)
    return dict(zip(tree.keys, tree.specs, strict=True))


def described_call(path: str, signature: CallSignature, module: torch.nn.Module) -> str:
    """Return the exported signature of a module and its current class, for errors about its result.

    >>> from ..torch_private import pytree
    >>> signature = CallSignature(pytree.tree_structure(((1,), {})), pytree.tree_structure(1))
    >>> described_call("act", signature, torch.nn.ReLU())
    "module 'act' was exported as (*) -> * and is now ReLU(input), which"
    """
    module = uncompiled(module)
    try:
        takes = ", ".join(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        takes = "..."
    old = f"{spelled(signature.in_spec)} -> {print_tree(signature.out_spec)}"
    return (
        f"module {path!r} was exported as {old} and is now {type(module).__name__}({takes}), which"
    )


def spelled(in_spec: Any) -> str:
    """Return the arguments of a call in Python notation, a star for each value.

    Args:
        in_spec: their pytree, ``((positional, ...), {keyword: ...})``; None for flat arguments.

    >>> from ..torch_private import pytree
    >>> spelled(pytree.tree_structure(((1, {"a": 2}), {"flag": 3})))
    '(*, {"a": *}, flag=*)'
    """
    if in_spec is None:
        return "flat arguments"
    written = [
        print_tree(spec) if isinstance(key, int) else f"{key}={print_tree(spec)}"
        for key, spec in _by_key(in_spec).items()
    ]
    return f"({', '.join(written)})"
