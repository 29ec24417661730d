"""Rule sets that come with the library: attention, identities of algebra, fusions; one file each."""

from __future__ import annotations

from .attention import attention

__all__ = ["attention"]
