"""Effects read off an operator: from its schema, its tags, torch's registries, and tables of what none of these says.

One idea: the operator is asked, never its name guessed at.  The exceptions are operators whose schema is known to be silent
(``silent.py``), communication (``communication.py``) and operators of other libraries (``libraries.py``).  Nothing here looks
at a graph.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve

from ..borders import gives, takes
from ..opaque import CALL_GUARDS, call_guards
from ..torch_private import HigherOrderOperator, OpOverload, is_effectful, schema_of, side_effectful
from ..trees import PACK, UNPACK, pack, unpack
from .communication import effects_of_communication, is_communication
from .declared import ANYTHING, LIBRARIES, PURE, ArgAt, Effects, Unless
from .functions import effects_of_function
from .libraries import declared_effects, is_foreign
from .silent import DRAWS_NOTHING, SILENT_ALIASES, SILENT_DRAWS, SILENT_WRITES, UNKNOWN

__all__ = ["effects_of", "registered_effects"]

ORDERED_HIGHER_ORDER = frozenset({"with_effects", "call_torchbind", "print"})

FOREIGN_HIGHER_ORDER = evolve(ANYTHING, through_bodies=True)
"""What a higher-order operator of another library is taken to do, unless it is declared."""

PURE_HIGHER_ORDER = frozenset({"out_dtype", "auto_functionalized", "auto_functionalized_v2", "triton_kernel_wrapper_functional"})

WRITING_FUNCTIONS = frozenset(
    {
        "setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow",
        "irshift", "isub", "itruediv", "ixor", "call",
    }
)  # fmt: skip
"""Functions of ``operator`` that change an operand, or do whatever an operand does."""

SCOPES = {
    "torch._functorch.predispatch._vmap_increment_nesting": 1,
    "torch._functorch.predispatch._vmap_decrement_nesting": -1,
}
"""Plain functions that a strict export writes around the body of a vmap."""


def effects_of(target: Callable[..., Any]) -> Effects:
    """Return the effects of a callable that stands in a graph: what was declared, otherwise what is registered.

    Args:
        target: an ``OpOverload``, a higher-order operator, or a plain function.

    >>> effects_of(torch.ops.aten.relu.default) is PURE
    True
    """
    said = declared_effects(target)
    return registered_effects(target) if said is None else said


def registered_effects(target: Callable[..., Any]) -> Effects:
    """Return the effects of a callable as torch has them and our tables complete them, whatever was declared.

    Args:
        target: an ``OpOverload``, a higher-order operator, or a plain function.

    Returns:
        Its effects; ``ANYTHING`` where nothing is known.

    >>> registered_effects(torch.ops.aten.add_.Tensor).writes
    (ArgAt(index=0, name='self'),)
    """
    if isinstance(target, OpOverload):
        return _of_foreign(target) if is_foreign(target) else _of_schema(target)
    if isinstance(target, HigherOrderOperator):
        return _of_higher_order(target)
    if target is takes or target is gives:
        return PURE
    if target is call_guards:
        return CALL_GUARDS.effects
    if target in (pack, unpack):
        return PACK.effects if target is pack else UNPACK.effects
    if target is operator.getitem:
        return PROJECTION
    known = effects_of_function(target)
    if known is not None:
        return known
    if is_scalar_function(target):
        return PURE
    scope = SCOPES.get(f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', '')}")
    return evolve(ANYTHING, scope=scope) if scope is not None else ANYTHING


PROJECTION = Effects(aliases=(ArgAt(0, "a"),))


def is_scalar_function(target: Callable[..., Any]) -> bool:
    """Say whether a plain function computes on sizes and other numbers, and does nothing else.

    >>> is_scalar_function(operator.add), is_scalar_function(print)
    (True, False)
    >>> is_scalar_function(operator.iadd)
    False
    """
    module = getattr(target, "__module__", None)
    if module in ("_operator", "math"):
        return getattr(target, "__name__", "") not in WRITING_FUNCTIONS
    if module == "torch" and getattr(target, "__name__", "").startswith(("sym_", "_sym_")):
        return True
    return any(target is known for known in (builtins.max, builtins.min, builtins.abs, builtins.round, math.floor))


def _of_higher_order(target: Any) -> Effects:
    name = target.name()
    if name in ORDERED_HIGHER_ORDER:
        return Effects(ordered=True, unknown=name == "call_torchbind", through_bodies=True)
    if name in PURE_HIGHER_ORDER:
        return PURE
    if is_foreign(target):  # it has no schema: nothing is known of what it does to its operands
        return FOREIGN_HIGHER_ORDER
    return Effects(through_bodies=True, ordered=is_effectful(target))


def _of_foreign(target: Any) -> Effects:
    # Asked each time: a library may register an operator, and only then its effect.
    found = evolve(_of_schema(target), domain=LIBRARIES)
    return evolve(found, ordered=True) if is_effectful(target) or target in side_effectful() else found


@functools.cache
def _of_schema(target: Any) -> Effects:
    schema = schema_of(target)
    arguments = schema.arguments
    places = tuple(ArgAt(index, argument.name) for index, argument in enumerate(arguments))
    if is_communication(schema):
        return effects_of_communication(schema, places)
    writes = tuple(
        at for at, arg in zip(places, arguments, strict=True) if arg.alias_info is not None and arg.alias_info.is_write
    )
    silent, unless = _silent_writes(schema, places)
    tagged = torch.Tag.maybe_aliasing_or_mutating in target.tags
    may_alias = schema.name in SILENT_ALIASES or (tagged and not silent)
    random = torch.Tag.nondeterministic_seeded in target.tags or schema.name in SILENT_DRAWS
    effects = Effects(
        writes=tuple(dict.fromkeys((*writes, *silent))),
        writes_unless=() if writes else unless,
        returns=_returned_arguments(schema, places),
        aliases=_aliased_arguments(schema, places, may_alias=may_alias),
        random=random,
        random_unless=_no_draw(schema, places) if random else (),
        ordered=not schema.returns or is_effectful(target) or _is_kept(target, writes),
        unknown=schema.name in UNKNOWN,
    )
    return PURE if effects == PURE else effects


def _is_kept(target: Any, writes: tuple[ArgAt, ...]) -> bool:
    # What torch.fx never removes does something; where that is a write, order follows from it.
    return not writes and target in side_effectful()


def _silent_writes(schema: Any, places: tuple[ArgAt, ...]) -> tuple[tuple[ArgAt, ...], tuple[Unless, ...]]:
    names, flag = SILENT_WRITES.get(schema.name, ((), None))
    unless = tuple(Unless(at, value=False, default=None) for at in places if at.name == flag)
    return tuple(at for at in places if at.name in names), unless


def _returned_arguments(schema: Any, places: tuple[ArgAt, ...]) -> tuple[ArgAt | None, ...]:
    # `Tensor(a!) self -> Tensor(a!)`: the dispatcher hands back the very tensor that it was given.
    found: list[ArgAt | None] = []
    for result in schema.returns:
        info = result.alias_info
        same: ArgAt | None = None
        if info is not None and info.is_write:
            for at, argument in zip(places, schema.arguments, strict=True):
                if argument.alias_info is not None and argument.alias_info.before_set == info.before_set:
                    same = at
        found.append(same)
    return tuple(found) if any(at is not None for at in found) else ()


def _aliased_arguments(schema: Any, places: tuple[ArgAt, ...], *, may_alias: bool) -> tuple[ArgAt, ...]:
    found: list[ArgAt] = []
    shared: set[str] = set()
    for result in schema.returns:
        if result.alias_info is not None:
            shared |= result.alias_info.before_set | result.alias_info.after_set
    for at, argument in zip(places, schema.arguments, strict=True):
        info = argument.alias_info
        # `split(Tensor(a -> *) self) -> Tensor(a)[]`: what the items of a list share is not told of the result, only by the star.
        declared = info is not None and ("*" in info.after_set or bool(shared & (info.before_set | info.after_set)))
        if declared or (may_alias and any(word in str(argument.type) for word in ("Tensor", "Any"))):
            found.append(at)
    return tuple(found)


def _no_draw(schema: Any, places: tuple[ArgAt, ...]) -> tuple[Unless, ...]:
    by_name = {at.name: (at, argument) for at, argument in zip(places, schema.arguments, strict=True)}
    found: list[Unless] = []
    for name, value in DRAWS_NOTHING.get(schema.name, ()):
        if name in by_name:
            at, argument = by_name[name]
            default = argument.default_value if argument.has_default_value() else None
            found.append(Unless(at, value, default))
    return tuple(found)
