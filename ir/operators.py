"""``op_of`` and ``op_name``: the ``Op`` that calls a torch operator or a plain function.

One idea: an operator has one name and one set of effects, both asked of the operator itself.  Looking an operator up
by its name is the business of ``text/``.
"""

from __future__ import annotations

from typing import Any

from .effects.schema import effects_of
from .node import Op
from .torch_private import HigherOrderOperator, OpOverload

__all__ = ["op_name", "op_of"]


def op_of(target: Any) -> Op:
    """Return the op that calls an operator.

    Args:
        target: an operator overload, a higher-order operator or a plain function.

    >>> import torch
    >>> op_of(torch.ops.aten.add_.Tensor).effects.writes[0].name
    'self'
    """
    return Op(op_name(target), effects_of(target), target)


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
    module = getattr(target, "__module__", None) or "builtins"
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__name__
    return f"{'operator' if module == '_operator' else module}.{name}"
