"""``op_of`` and ``op_name``: the ``Op`` that calls a torch operator or a plain function.

One idea: an operator has one name and one set of effects, both asked of the operator itself.  Looking an operator up
by its name is the business of ``text/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .effects.declared import Effects
from .effects.libraries import check_said, overloads_in, said_of_one
from .effects.schema import effects_of
from .methods import Method
from .node import Op
from .torch_private import HigherOrderOperator, OpOverload

__all__ = ["op_name", "op_of", "said_of"]

Said = Mapping[Callable[..., Any], Effects]
"""What operators of other libraries are said to do."""


def op_of(target: Any, said: Said | None = None) -> Op:
    """Return the op that calls an operator.

    Args:
        target: an operator overload, a higher-order operator or a plain function.
        said: what ``said_of`` gives: effects that stand in place of those that are registered or declared.

    >>> import torch
    >>> op_of(torch.ops.aten.add_.Tensor).effects.writes[0].name
    'self'
    """
    known = said.get(target) if said else None
    return Op(op_name(target), effects_of(target) if known is None else known, target)


def said_of(effects: Said | None) -> Said:
    """Return what was said of operators by overload, checked as ``declare`` does.

    Args:
        effects: what operators, with all of their overloads, and functions do.

    Raises:
        EffectsError: it is an operator of torch, or its schema says that it does more.

    >>> said_of(None), list(said_of({print: Effects()}))
    ({}, [<built-in function print>])
    """
    found: dict[Callable[..., Any], Effects] = {}
    for op, said in (effects or {}).items():
        for target in overloads_in(op):
            check_said(target, said)
            found[target] = said_of_one(target, said)
    return found


def op_name(target: Any) -> str:
    """Return the name under which an operator is compared and printed.

    >>> import operator, torch
    >>> op_name(torch.ops.aten.add.Tensor), op_name(operator.getitem), op_name(torch.ops.higher_order.cond)
    ('aten.add.Tensor', 'operator.getitem', 'higher_order.cond')
    """
    if isinstance(target, OpOverload):
        return str(target)
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, Method):
        return str(target)
    module = _text(target, "__module__") or "builtins"
    name = _text(target, "__qualname__") or _text(target, "__name__") or type(target).__name__
    name = name.removeprefix("_VariableFunctionsClass.")  # where torch keeps the functions that it calls torch.relu ...
    return f"{'operator' if module == '_operator' else module}.{name}"


def _text(target: Any, name: str) -> str | None:
    # A callable may be any object, and what it calls its name anything.
    found = getattr(target, name, None)
    return found if type(found) is str else None
