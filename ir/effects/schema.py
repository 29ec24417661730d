"""Effects read off an operator overload: from its schema, its tags, and tables of what neither says.

One idea: the operator is asked, never its name guessed at.  The exceptions are operators whose schema is known to be silent
(``silent.py``) and communication (``communication.py``).  What has no schema is in ``registered.py``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..torch_private import is_effectful, schema_of, side_effectful
from .communication import effects_of_communication, is_communication
from .declared import PURE, ArgAt, Effects, Unless
from .silent import DRAWS_NOTHING, SILENT_ALIASES, SILENT_DRAWS, SILENT_WRITES, UNKNOWN

__all__ = ["effects_of_schema"]


@functools.cache
def effects_of_schema(target: Any) -> Effects:
    """Return what the schema and the tags of an operator overload say, completed by our tables.

    >>> effects_of_schema(torch.ops.aten.add_.Tensor).writes
    (ArgAt(index=0, name='self'),)
    """
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
