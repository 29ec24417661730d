"""The models that are timed.

They are generated, not stored; widths are tiny, so that what is timed is the making of programs and not matrix products.
"""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["Decoder", "ResNet", "Shared"]


class Attention(nn.Module):
    """Causal self-attention, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))


class Feed(nn.Module):
    """The feed-forward part of a block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    """A pre-norm decoder block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.feed = nn.LayerNorm(width), Feed(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.feed(self.norm2(x))


class Decoder(nn.Module):
    """A GPT-like decoder of ``layers`` blocks; 96 of them export to about 4,000 nodes in 1,000 modules."""

    def __init__(
        self, layers: int, *, width: int = 8, heads: int = 2, vocabulary: int = 32, length: int = 16
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        x = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))

    @staticmethod
    def example() -> tuple[torch.Tensor]:
        """Return arguments for one call."""
        return (torch.arange(16).reshape(2, 8) % 32,)


class Shared(nn.Module):
    """One block that is called ``times`` times; with ``distinct``, each call has a body of its own."""

    def __init__(self, times: int, *, distinct: bool = False) -> None:
        super().__init__()
        self.block = Scaled(8, 2) if distinct else Block(8, 2)
        self.factors = (
            [1 + number / times**2 for number in range(times)] if distinct else [None] * times
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for factor in self.factors:
            x = self.block(x, mask) if factor is None else self.block(x, mask, factor)
        return x

    @staticmethod
    def example() -> tuple[torch.Tensor, torch.Tensor]:
        """Return arguments for one call."""
        return torch.randn(2, 8, 8), torch.ones(8, 8, dtype=torch.bool).triu(1)


class Scaled(Block):
    """A block whose result is scaled by a number, which the exporter writes into the program."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return super().forward(x, mask) * factor


class Residual(nn.Module):
    """A residual block of convolutions with batch norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, width, 3, padding=1),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm2(self.second(self.norm1(self.first(x)).relu()))


class ResNet(nn.Module):
    """Residual blocks in a row; in training mode every call writes the statistics of all norms."""

    def __init__(self, blocks: int, width: int = 4) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean((2, 3)))
