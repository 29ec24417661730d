"""Patterns: what the function of a rule is called with, and the term of a rule that looks for operators alone.

The terms themselves are in ``terms.py``; nothing here looks at a program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ...ir.errors import RuleError
from ...ir.state import same_contents
from .matching import key_of
from .overloads import operator_named
from .terms import AnyCall, AnyOf, Known, Var, subterms
from .writing import Number

__all__ = ["any_call", "knowledge_in", "tensors_in", "variables_of"]


def any_call(operators: Any) -> AnyOf:
    """Return a term that matches wherever one of some operators is called.

    Args:
        operators: one, or several: operators, overloads, functions of torch.

    >>> import torch
    >>> any_call([torch.relu, torch.ops.aten.gelu.default])
    any_of(relu(...), gelu(...))
    """
    several = operators if isinstance(operators, list | tuple) else [operators]
    return AnyOf([AnyCall(name, tuple(overloads)) for name, overloads in map(operator_named, several)])


def variables_of(function: Callable[..., Any], *, skip: int = 0) -> list[Var]:
    """Return a variable for each parameter of a function.

    Args:
        function: what a rule was written as.
        skip: how many parameters at the front are not variables.

    Raises:
        RuleError: it collects arguments, or has defaults.

    >>> variables_of(lambda x, y: x + y)
    [x, y]
    """
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD or one.default is not one.empty for one in parameters):
        raise RuleError("each parameter of a rule is a variable: no defaults, no *args; a variable matches a list as well")
    return [Var(one.name) for one in parameters]


def tensors_in(term: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that the tensors of a pattern are constants of the program; none where it has no tensors.

    Args:
        term: what a rule looks for.

    >>> import torch
    >>> tensors_in(torch.add(Var("x"), 1)), len(tensors_in(torch.add(Var("x"), torch.tensor(1.0))))
    ((), 1)
    """
    tensors = {key_of(each): each for each in subterms(term) if isinstance(each, torch.Tensor)}

    def are_constants(m: Any) -> bool:
        values = m.found.values
        found = [(m.constant(values[key]), tensor) for key, tensor in tensors.items() if key in values]
        return all(held is not None and same_contents(held, tensor) for held, tensor in found)

    return (are_constants,) if tensors else ()


def knowledge_in(term: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that what a pattern says to be known of values is so; none where it says nothing of that kind.

    Args:
        term: what a rule looks for.

    >>> x = Var("x")
    >>> knowledge_in(x * 2), len(knowledge_in(x / x.size(0)))
    ((), 1)
    """
    several = [each for each in subterms(term) if isinstance(each, Known)]

    def are_known(m: Any) -> bool:
        return all(_is_known(m, each, m.found.values.get(key_of(each))) for each in several)

    return (are_known,) if several else ()


def _is_known(m: Any, term: Known, found: Any) -> bool:
    if found is None:
        return True  # in an alternative that is not there
    whole = m[term.whole.name] if isinstance(term.whole, Var) else m.found.node_of(term.whole)
    tensor = None if whole is None else m.val(whole)
    if not isinstance(tensor, torch.Tensor):
        return False
    known, value = term.of(tensor), m.val(found)
    if isinstance(known, int | Number):
        return (type(value) is int or isinstance(value, Number)) and bool(known == value)
    return known is value
