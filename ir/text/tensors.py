"""What a tensor is apart from its contents, and stand-ins on the meta device that are just that.

One idea: stand-ins of one cell are one object and those of one storage share memory, so a program read without tensors
still has its ties.  Nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen

from ..errors import UnsupportedProgram
from .arguments import CONSTANTS
from .lexer import Cursor

__all__ = ["TensorFacts", "facts_of", "make_tensors", "print_dtype", "read_dtype"]

SHORT: Mapping[str, torch.dtype] = {
    "f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "c64": torch.complex64,
    "c128": torch.complex128, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip

SHORT_OF = {dtype: name for name, dtype in SHORT.items()}


def print_dtype(dtype: torch.dtype) -> str:
    """Return a data type as text, short for the common ones.

    >>> print_dtype(torch.float32), print_dtype(torch.float8_e5m2)
    ('f32', 'torch.float8_e5m2')
    """
    return SHORT_OF.get(dtype) or str(dtype)


def read_dtype(cursor: Cursor) -> torch.dtype:
    """Read a data type.

    >>> read_dtype(Cursor("bf16"))
    torch.bfloat16
    """
    found = SHORT.get(cursor.text) or CONSTANTS.get(cursor.text)
    if not isinstance(found, torch.dtype):
        raise cursor.expected("a data type such as f32")
    cursor.advance()
    return found


@frozen
class TensorFacts:
    """A tensor without its contents; ``stride`` is None where it is the usual one, or means nothing."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int
    layout: torch.layout
    device: str
    is_parameter: bool
    requires_grad: bool

    def fits(self, value: Any) -> bool:
        """Say whether a value is a tensor of this shape and dtype."""
        return isinstance(value, torch.Tensor) and value.dtype is self.dtype and tuple(value.shape) == self.shape

    def strides(self) -> tuple[int, ...]:
        """Return the strides, written or usual."""
        return usual_stride(self.shape) if self.stride is None else self.stride

    def bytes_needed(self) -> int:
        """Return how much memory holds the tensor, from the start of its storage."""
        reach = sum((size - 1) * step for size, step in zip(self.shape, self.strides(), strict=True))
        return (self.offset + (reach + 1 if 0 not in self.shape else 0)) * self.dtype.itemsize


def usual_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a freshly made tensor.

    >>> usual_stride((2, 3, 4))
    (12, 4, 1)
    """
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def facts_of(tensor: torch.Tensor) -> TensorFacts:
    """Return what a tensor is.

    >>> facts_of(torch.ones(2, 3)).shape, facts_of(torch.ones(2, 3).t()).stride
    ((2, 3), (1, 3))
    """
    shape = tuple(int(size) for size in tensor.shape)
    strided = tensor.layout is torch.strided
    stride = tuple(tensor.stride()) if strided else None
    return TensorFacts(
        tensor.dtype,
        shape,
        None if stride == usual_stride(shape) else stride,
        int(tensor.storage_offset()) if strided else 0,
        tensor.layout,
        str(tensor.device),
        isinstance(tensor, torch.nn.Parameter),
        tensor.requires_grad,
    )


def make_tensors(wanted: Mapping[str, tuple[int, int, TensorFacts]]) -> dict[str, torch.Tensor]:
    """Return stand-ins on the meta device.

    Args:
        wanted: for each name the cell, the storage and the facts.

    Raises:
        UnsupportedProgram: torch can not make such a tensor; the message names it.

    >>> fact = facts_of(torch.ones(2))
    >>> made = make_tensors({"a": (0, 0, fact), "b": (0, 0, fact)})
    >>> made["a"] is made["b"], made["a"].device.type
    (True, 'meta')
    """
    sizes: dict[int, int] = {}
    for _, storage, facts in wanted.values():
        sizes[storage] = max(sizes.get(storage, 0), facts.bytes_needed())
    storages: dict[int, torch.UntypedStorage] = {}
    cells: dict[int, torch.Tensor] = {}
    for name, (cell, storage, facts) in wanted.items():
        try:
            if storage not in storages:
                storages[storage] = torch.empty(sizes[storage], dtype=torch.uint8, device="meta").untyped_storage()
            if cell not in cells:
                cells[cell] = _make(facts, storages[storage])
        except (RuntimeError, TypeError, OverflowError) as error:
            raise UnsupportedProgram(f"no stand-in can be made for {name!a}; give it in `state`: {error}") from error
    return {name: cells[cell] for name, (cell, _, _) in wanted.items()}


def _make(facts: TensorFacts, storage: torch.UntypedStorage) -> torch.Tensor:
    if facts.layout is torch.strided:
        tensor = torch.empty(0, dtype=facts.dtype, device="meta").set_(storage, facts.offset, facts.shape, facts.strides())
    else:
        tensor = torch.empty(facts.shape, dtype=facts.dtype, layout=facts.layout, device="meta")
    if facts.is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=facts.requires_grad)
    return tensor.requires_grad_(facts.requires_grad)
