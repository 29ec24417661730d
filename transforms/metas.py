"""What the meta of values says, when a body moves to another place.

One idea: a fake value holds for the shapes that it was traced with; where other ones come in it is dropped, because none
is better than a wrong one.  Symbolic sizes are compared as text: comparing them would install guards.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from ..ir.fakes import likely, plainly_alike
from ..ir.meta import EMPTY_META, Meta
from ..ir.numbers import SYMBOLIC

__all__ = ["alike", "common_meta", "value_only", "without_values"]

VALUES = ("val", "tensor_meta")

OF_A_CALL = (*VALUES, "example_value", "unbacked_bindings", "custom")
"""What meta says of one call.  The rest (stack traces, where a node came from) tells how the node came about."""


def alike(left: Any, right: Any) -> bool:
    """Say whether two fake values are known to have one dtype, shape and device.

    >>> alike(torch.ones(2), torch.zeros(2)), alike(torch.ones(2), torch.ones(3)), alike(None, None)
    (True, False, False)
    """
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left is right or _facts(left) == _facts(right)
    if isinstance(left, SYMBOLIC):
        return type(left) is type(right) and str(left) == str(right)
    return type(left) is type(right) and isinstance(left, int | float) and left == right


def _facts(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.dtype, tensor.device, tuple([size if type(size) is int else str(size) for size in tensor.shape]))


def common_meta(meta: Meta, others: Sequence[Meta]) -> Meta:
    """Return meta without what it says of one call and others do not say; the same object where they say all of it.

    >>> dict(common_meta({"val": 1, "custom": {"of": "a"}, "stack_trace": "a"}, [{"val": 1, "custom": {"of": "b"}}]))
    {'val': 1, 'stack_trace': 'a'}
    """
    told = [key for key in OF_A_CALL if key in meta]
    if told and told[0] == "val" and plainly_alike(meta["val"], [other.get("val") for other in others]):
        # What else is said of the tensor follows, and costs more to compare.
        follows = "tensor_meta" in meta and _is_said_of_alike(meta["tensor_meta"], others)
        told = told[2:] if follows else told[1:]
    gone: set[str] = set()
    for other in others if told else ():
        if other is not meta:
            gone.update([key for key in told if key not in gone and not likely(meta[key], other.get(key, UNSAID))])
            if len(gone) == len(told):
                break  # nothing is left that another could contradict
    return MappingProxyType({key: value for key, value in meta.items() if key not in gone}) if gone else meta


def _is_said_of_alike(shown: Any, others: Sequence[Meta]) -> bool:
    if type(shown) is not TensorMetadata:
        return False
    said = [other.get("tensor_meta") for other in others]
    return {*map(type, said)} <= {TensorMetadata} and all(one.requires_grad is shown.requires_grad for one in said)


UNSAID = object()


def without_values(meta: Meta) -> Meta:
    """Return meta without what depends on shapes; the same object where it has nothing of that.

    >>> dict(without_values({"val": 1, "stack_trace": "here"}))
    {'stack_trace': 'here'}
    """
    if not any(_told(meta.get(key)) for key in VALUES):
        return meta
    return MappingProxyType({key: value for key, value in meta.items() if key not in VALUES})


def value_only(meta: Meta) -> Meta:
    """Return what the meta of a value says of the value alone, for those that hand it on.

    >>> dict(value_only({"val": 1, "stack_trace": "here"}))
    {'val': 1}
    """
    return MappingProxyType({"val": meta["val"]}) if "val" in meta else EMPTY_META


def _told(value: object) -> bool:
    # A call that gives back nothing, or only what is not known, has a value that fits any shapes.
    parts: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
    return any(part is not None for part in parts)
