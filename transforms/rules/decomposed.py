"""Patterns for decomposed programs: what torch makes of a pattern on an example, as a term over the operators that are left.

What an operator is decomposed into depends on the types and the numbers of dimensions of its operands, and sometimes on sizes: so
a pattern is exported and decomposed on an example, and matches operands that are like it.  Programs are not decomposed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...ir.arguments import Ref
from ...ir.errors import RuleError
from ...ir.graph import Op
from ...ir.importing import import_ep
from ...ir.program import Program
from ...ir.signature import StateInput
from .terms import Item, Var, applied

__all__ = ["decomposed"]


def decomposed(
    function: Callable[..., Any], variables: Sequence[Var], example: Sequence[Any]
) -> tuple[Any, Callable[[Any], bool]]:
    """Return what a pattern is in decomposed programs, and the condition that operands are like those of the example.

    Args:
        function: the pattern.
        variables: its parameters.
        example: what they may be: tensors, and numbers or lists of numbers that stand for a variable wherever they occur.

    >>> x = Var("x")
    >>> decomposed(torch.nn.functional.silu, [x], [torch.ones(2, 3)])[0]
    mul(x, sigmoid(x))

    Raises:
        RuleError: the example has not as many values as there are variables, or torch cannot export the pattern on it.
    """
    name = getattr(function, "__name__", repr(function))
    if len(example) != len(variables):
        raise RuleError(f"{name} has {len(variables)} variables, and its example {len(example)} values")
    program = _exported(name, function, example)
    try:
        grown = list(map(_grown, example))
        is_sized = _code(program, variables, example) != _code(_exported(name, function, grown), variables, grown)
    except RuleError:
        is_sized = True  # other sizes do not fit together, so what depends on them is not known

    def fits(m: Any) -> bool:
        return all(
            _is_like(m, one.name, like, is_sized=is_sized)
            for one, like in zip(variables, example, strict=True)
            if isinstance(like, torch.Tensor)
        )

    return _term(program, variables, example), fits


def _is_like(m: Any, name: str, like: torch.Tensor, *, is_sized: bool) -> bool:
    shape = m.shape(name)
    if shape is None or m.dtype(name) is not like.dtype or len(shape) != like.dim():
        return False
    return not is_sized or shape == tuple(like.shape)


class _Pattern(torch.nn.Module):
    """A pattern as a module, whose inputs are the tensors of the example."""

    def __init__(self, function: Callable[..., Any], example: Sequence[Any]) -> None:
        super().__init__()
        self.function = function
        self.example = [None if isinstance(one, torch.Tensor) else one for one in example]
        self.places = [place for place, one in enumerate(example) if isinstance(one, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Run the pattern."""
        given = list(self.example)
        for place, tensor in zip(self.places, tensors, strict=True):
            given[place] = tensor
        return self.function(*given)


def _exported(name: str, function: Callable[..., Any], example: Sequence[Any]) -> Program:
    tensors = tuple([one.detach().clone() for one in example if isinstance(one, torch.Tensor)])  # no two are one tensor
    try:
        with torch.no_grad():
            return import_ep(torch.export.export(_Pattern(function, example), tensors).run_decompositions())
    except Exception as error:
        raise RuleError(f"torch cannot export {name} on its example: {error}") from error


def _grown(value: Any) -> Any:
    # The same with other sizes, all of them.
    if isinstance(value, torch.Tensor):
        return value.new_ones([size + 1 if size > 1 else size for size in value.shape])
    return [_grown_size(one) for one in value] if isinstance(value, list | tuple) else value


def _grown_size(value: Any) -> Any:
    return value + 1 if type(value) is int and value > 1 else value


def _code(program: Program, variables: Sequence[Var], example: Sequence[Any]) -> str:
    # What is computed, as text in which no size stands that a variable is.
    numbers, names = _numbers(variables, example), {name: Var(name) for name in program.main.metas}
    nodes = program.main.nodes
    return repr(
        [(node.name, node.do, _value(node.args, names, numbers), _value(tuple(node.kwargs), names, numbers)) for node in nodes]
    )


def _numbers(variables: Sequence[Var], example: Sequence[Any]) -> list[tuple[Var, Any]]:
    return [(one, like) for one, like in zip(variables, example, strict=True) if not isinstance(like, torch.Tensor)]


def _term(program: Program, variables: Sequence[Var], example: Sequence[Any]) -> Any:
    users = [one for one, like in zip(variables, example, strict=True) if isinstance(like, torch.Tensor)]
    numbers = _numbers(variables, example)
    rest, known = iter(users), dict[str, Any]()
    for formal, spec in program.inputs:
        known[formal.name] = program.state[spec.slot].value if type(spec) is StateInput else next(rest)
    for node in program.main.nodes:
        args = [_value(arg, known, numbers) for arg in node.args]
        if node.projection is not None:
            known[node.name] = Item(args[0], args[1])
        elif type(node.do) is Op:
            known[node.name] = applied(node.do.target, args, {key: _value(arg, known, numbers) for key, arg in node.kwargs})
    found = _value(program.main.output, known, [])
    return found[0] if len(found) == 1 else tuple(found)


def _value(arg: Any, known: Mapping[str, Any], numbers: Sequence[tuple[Var, Any]]) -> Any:
    if type(arg) is Ref:
        return known[arg.name]
    is_list = isinstance(arg, list | tuple)
    for one, like in numbers:
        if list(arg) == list(like) if is_list and isinstance(like, list | tuple) else type(arg) is type(like) and arg == like:
            return one
    return [_value(each, known, numbers) for each in arg] if is_list else arg
