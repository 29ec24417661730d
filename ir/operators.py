"""``op_of``: the ``Op`` that calls a torch operator or a plain function.

An operator has one name and one set of effects, both derived from the operator itself.  Lookup by name is in ``text/``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from .callables import op_name
from .effects.declared import Effects
from .effects.registered import check_said, effects_of, overloads_in, said_of_one
from .graph import Op

__all__ = ["GETITEM", "op_of", "said_of"]

Said = Mapping[Callable[..., Any], Effects]
"""What operators of other libraries are declared to do."""


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


GETITEM = op_of(operator.getitem)
"""Takes one of several results."""


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
