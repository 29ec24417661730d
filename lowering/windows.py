"""``Windows``: tensors made anew on memory that is copied, or moved, once.

One idea: the whole memory of a storage goes over as bytes; each tensor then looks at it with its own dtype, offset and
strides, so views stay views, and elements that overlap stay one.
"""

from __future__ import annotations

import torch
from attrs import define, field

from ..ir.torch_private import storage_key, window_on

__all__ = ["Windows"]


@define
class Windows:
    """What became of memory that several tensors look at.

    >>> a, windows = torch.ones(4), Windows(copy=True, device=None)
    >>> windows.window(a).zero_() is a, windows.window(a[1:]).tolist(), a.tolist()
    (False, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """

    copy: bool
    device: torch.device | None
    memories: dict[int, torch.Tensor] = field(factory=dict)
    """The new memory, by the key of the old."""

    def window(self, plain: torch.Tensor) -> torch.Tensor:
        """Return what stands for a tensor, which is strided and needs no gradient."""
        key = storage_key(plain)
        memory = self.memories.get(key)
        if memory is None:
            whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
            moves = self.device is not None and plain.device != self.device
            memory = self.memories[key] = whole.to(self.device) if moves else whole.clone() if self.copy else whole
        return window_on(memory.untyped_storage(), plain)
