"""Signature compatibility: whether a module or a program can be called as another one is.

Parameters of ``forward``, pytrees, types and the sizes that a program was exported for are compared; nothing is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field

from ..arguments import Arg, Ref, same_arg
from ..errors import SwapError
from ..expression import Expr, InputDim, InputValue, Sym, evaluate
from ..graph import Graph, Node
from ..program import CallSignature, Program
from ..signature import ArgumentType, LiteralType, NumberType, TensorType, UserInput
from ..text.arguments import print_tree
from ..torch_private import uncompiled
from .argument_tree import ArgumentTree, leaf_ranges
from .call_sites import CallSite

Bounds = tuple[int | None, int | None]


def misfits(program: Program, leaves: Sequence[Arg], values: Mapping[str, Any], outer: Program) -> Iterator[str]:
    """Yield what of a program's inputs does not hold for some arguments.

    Args:
        program: what is put in place of a module; it has user inputs only.
        leaves: the arguments, one for each input.
        values: fake values of the caller, by name, where known.
        outer: the program of the caller, whose sizes have ranges.

    >>> from purefx.ir import Program
    >>> list(misfits(Program.of({}), (), {}, Program.of({})))
    []
    """
    bounds = {found.expr.name: (found.low, found.high) for found in outer.constraints.ranges if type(found.expr) is Sym}
    work = _Binding(bounds)
    for index, (spec, leaf) in enumerate(zip(program.signature.inputs, leaves, strict=True)):
        if type(spec) is UserInput:
            known = values.get(leaf.name) if type(leaf) is Ref else leaf
            said = work.leaf(index, spec.type, leaf, known)
            yield from (f"its input {spec.argument or index} {fault}" for fault in said)
    for found in program.constraints.ranges:
        yield from work.range(found.expr, found.low, found.high)
    for guard in program.constraints.guards:
        yield from work.guard(guard)


@define
class _Binding:
    bounds: Mapping[str, Bounds]
    known: dict[Any, Any] = field(factory=dict)
    """The values of the program's symbols and sizes here: numbers, or the text of a symbolic size."""

    def leaf(self, index: int, kind: ArgumentType, leaf: Arg, value: Any) -> Iterator[str]:
        match kind:
            case LiteralType(value=expected):
                if type(leaf) is Ref or not same_arg(expected, leaf):
                    yield f"was exported as the constant {expected!r}, and is {_said(leaf)} here"
            case TensorType():
                if type(leaf) is not Ref:
                    yield f"is a tensor, and the constant {leaf!r} here"
                elif isinstance(value, torch.Tensor):
                    yield from self._tensor(index, kind, value)
            case NumberType(kind=number, expr=expr):
                if type(leaf) is not Ref and type(leaf).__name__ != number:
                    yield f"is a number ({number}), and {_said(leaf)} here"
                self.known[InputValue(index)] = _size(value)
                if expr is not None:
                    yield from self._bind(expr, _size(value), "")
            case _:
                pass

    def _tensor(self, index: int, kind: TensorType, value: torch.Tensor) -> Iterator[str]:
        if kind.dtype is not value.dtype:
            yield f"is a {kind.dtype}, and a {value.dtype} here"
        if len(kind.shape) != value.dim():
            yield f"has {len(kind.shape)} dimensions, and {value.dim()} here"
            return
        for dim, (expected, found) in enumerate(zip(kind.shape, value.shape, strict=True)):
            self.known[InputDim(index, dim)] = _size(found)
            yield from self._bind(expected, _size(found), f"in dimension {dim} ")

    def _bind(self, expected: Expr, found: Any, where: str) -> Iterator[str]:
        if type(expected) is Sym:
            before = self.known.setdefault(expected, found)
            if before != found:
                yield f"{where}has the size of another one, {before}, and {found} here"
        elif type(expected) is int and expected != found:
            more = "; export it with that dimension dynamic" if type(found) is str else ""
            yield f"{where}was exported for the size {expected}, and that is {found} here{more}"
        elif type(expected) is not int and self._value(expected) != found:
            yield f"{where}is not known to have the size that it was exported for"

    def _value(self, expr: Expr) -> Any:
        try:
            return evaluate(expr, self.known)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    def range(self, expr: Expr, low: int | None, high: int | None) -> Iterator[str]:
        found = self.known.get(expr)
        if found is None:
            return
        mine = (found, found) if type(found) is int else self.bounds.get(found, (None, None))
        below = low is not None and low > 2 and (mine[0] is None or mine[0] < low)
        if below or (type(found) is int and low is not None and found < low):
            yield f"it was exported for sizes from {low} on, and one is {found} here"
        if high is not None and (mine[1] is None or mine[1] > high):
            yield f"it was exported for sizes up to {high}, and one is {found} here"

    def guard(self, guard: Expr) -> Iterator[str]:
        held = self._value(guard)
        if held is not True:
            yield f"it was exported under a guard that {'does not hold' if held is False else 'is not known to hold'} here"


def _size(value: Any) -> Any:
    return value if type(value) is int or value is None else str(value)


def _said(leaf: Arg) -> str:
    return "a value" if type(leaf) is Ref else repr(leaf)


def check_module(site: CallSite, module: torch.nn.Module) -> None:
    """Raise if the ``forward`` of a module does not accept the arguments of a call.

    Raises:
        SwapError: it takes other arguments, or has no ``forward``.
    """
    tree = ArgumentTree.of(site.convention.signature.in_spec)
    check_forward(site.path, site.node, module, (None,) * len(tree.positional), dict.fromkeys(tree.keyword))


def check_forward(path: str, call: Node, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if the ``forward`` of a module does not accept as many arguments, under such names.

    Args:
        path: the module that is replaced.
        call: a call of it.
        module: what is put there.
        args: the positional arguments; their values do not matter.
        kwargs: the keyword arguments.

    Raises:
        SwapError: it takes other arguments, or has no ``forward``.

    >>> from purefx.ir import Op
    >>> check_forward("a", Node("y", Op("toy.neg")), torch.nn.ReLU(), (1,), {})
    """
    module = uncompiled(module)  # what is compiled takes anything, and hands it on
    kind = type(module).__name__
    if getattr(type(module), "forward", None) is torch.nn.Module.forward and "forward" not in module.__dict__:
        raise SwapError(f"module {path!r}: a {kind} has no forward, so it cannot be called; give one that has")
    try:
        taken = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return  # a forward that does not say what it takes
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        given = [f"{len(args)} positional", *(f"{key}=" for key in kwargs)]
        raise SwapError(
            f"module {path!r}: the call {call.name} passes {', '.join(given)}, and {kind}.forward{taken} does not "
            f"take that ({error}); wrap it in a module that does"
        ) from error


def check_program(site: CallSite, program: Program, outer: Program, callers: Sequence[Graph]) -> tuple[int, ...]:
    """Raise if the inputs or outputs of a program differ from the arguments or results of a call.

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


def check_structure(site: CallSite, program: Program) -> tuple[int, ...]:
    """Raise if the pytrees of a program differ from those of a call.

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
            f"{where}the call {site.node.name} passes {spelled(signature.in_spec)}, the program takes "
            f"{spelled(theirs.in_spec)}; export it with arguments that are structured and passed like those"
        )
    mine, given = signature.out_spec, theirs.out_spec
    if len(theirs.outputs) != mine.num_leaves if given is None else given != mine:
        said = "flat values" if given is None else print_tree(given)
        raise SwapError(f"{where}its result is {print_tree(mine)}, the program's {said}; let it give the same structure")
    return order


def leaves_for(signature: CallSignature, program: Program) -> tuple[int, ...] | None:
    """Return the leaves of a call in the order in which a program takes them; None if the pytrees differ.

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
    """Return how a module was called when it was exported, and the module that is there now, for errors about its result.

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
    return f"module {path!r} was exported as {old} and is now {type(module).__name__}({takes}), which"


def spelled(in_spec: Any) -> str:
    """Return the arguments of a call as people write them, a star for each value.

    Args:
        in_spec: their pytree, ``((positional, ...), {keyword: ...})``; None where they are flat.

    >>> from ..torch_private import pytree
    >>> spelled(pytree.tree_structure(((1, {"a": 2}), {"flag": 3})))
    '(*, {"a": *}, flag=*)'
    """
    if in_spec is None:
        return "flat arguments"
    written = [
        print_tree(spec) if isinstance(key, int) else f"{key}={print_tree(spec)}" for key, spec in _by_key(in_spec).items()
    ]
    return f"({', '.join(written)})"
