"""``op_of``: the ``Op`` that calls a torch operator or a plain function.

The name and the effects are derived from the operator itself.  Lookup by name is in ``text/``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from .callables import op_name
from .effects.declared import Effects
from .effects.registered import check_declaration, effects_of, only_overload, overloads_in, with_body_effects
from .errors import ArgumentError, NamingError
from .graph import Op

Declared = Mapping[Callable[..., Any], Effects]
"""Declared effects of operators of other libraries."""


def op_of(target: Any, said: Declared | None = None) -> Op:
    """Return the op that calls an operator.

    Args:
        target: an operator overload, an operator with one overload, a higher-order operator or a plain function.
        said: the result of ``checked_declarations``: effects that override the registered or declared ones.

    >>> import torch
    >>> op_of(torch.ops.aten.add_.Tensor).effects.writes[0].name
    'self'
    """
    target = only_overload(target)
    known = said.get(target) if said else None
    return Op(op_name(target), effects_of(target) if known is None else known, target)


def op(target: Callable[..., Any] | Op) -> Op:
    """Return the operation that calls an operator of torch: ``px.op(torch.ops.aten.relu.default)``.

    Its name and effects are those of the operator.

    Args:
        target: an overload; an operator that has one overload; a higher-order operator, or a plain function.

    Raises:
        NamingError: the operator has several overloads, is passed by name, or is not callable.

    >>> import torch
    >>> op(torch.ops.aten.relu.default)
    Op(name='aten.relu.default')
    >>> op(torch.ops.aten.relu_.default).effects.writes[0].name
    'self'
    >>> op(torch.ops.aten.relu)
    Traceback (most recent call last):
        ...
    purefx.ir.errors.NamingError: aten.relu has several overloads; pass one of them: default, out
    """
    if isinstance(target, Op):
        return target
    if isinstance(target, str):
        raise NamingError(f"op takes the operator itself, such as torch.ops.aten.relu.default, and not its name, {target!r}")
    if not callable(target):
        raise NamingError(f"op takes an operator or a function, such as torch.ops.aten.relu.default, not {target!r}")
    found = overloads_in(target)
    if len(found) != 1:
        names = ", ".join(op_name(each).rpartition(".")[2] for each in found)
        raise NamingError(f"{op_name(found[0]).rpartition('.')[0]} has several overloads; pass one of them: {names}")
    return op_of(found[0])


GETITEM = op_of(operator.getitem)
"""Selects one of several results."""


def checked_declarations(effects: Declared | None) -> Declared:
    """Return declared effects by overload, checked as by ``declare``.

    Args:
        effects: the effects of functions and of operators with all overloads.

    Raises:
        EffectsError: it is an operator of torch, or its schema has more effects.

    >>> checked_declarations(None), list(checked_declarations({print: Effects()}))
    ({}, [<built-in function print>])
    """
    if effects is not None and not isinstance(effects, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"effects is a dict, such as {{torch.ops.mylib.gelu: px.PURE}}, not {type(effects).__name__}")
    found: dict[Callable[..., Any], Effects] = {}
    for op, said in (effects or {}).items():
        for target in overloads_in(op):
            check_declaration(target, said)
            found[target] = with_body_effects(target, said)
    return found
