"""What is timed: a decoder made of real modules, and a chain built directly as a value.

One idea: generators, not files; widths are tiny so that making programs is timed and not multiplying matrices.
"""

from __future__ import annotations

import math

import torch
from torch import nn

import purefx as px
from purefx.ir.operators import op_of

__all__ = ["Decoder", "chain"]


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

    def __init__(self, layers: int, *, width: int = 8, heads: int = 2, vocabulary: int = 32, length: int = 16) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.positions(torch.arange(length))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))

    @staticmethod
    def example() -> tuple[torch.Tensor]:
        """Return arguments for one call."""
        return (torch.arange(16).reshape(2, 8) % 32,)


def chain(nodes: int, *, per_call: int = 5, calls: int = 10) -> px.Program:
    """Return a flat program of ``nodes`` negations in a two-level hierarchy, built without the exporter."""
    neg = op_of(torch.ops.aten.neg.default)
    made: list[px.Node] = []
    previous = "x"
    for index in range(nodes):
        block, layer = index // (calls * per_call), index // per_call % calls
        stack = (px.Frame(f"block{block}"), px.Frame(f"block{block}.layer{layer}"))
        made.append(px.Node(f"n{index}", neg, (px.Ref(previous),), (), stack))
        previous = f"n{index}"
    graph = px.Graph((px.Input("x"),), tuple(made), (px.Ref(previous),))
    signature = px.Signature((px.UserInput(px.TensorType(torch.float32, (2,)), "x"),), (px.UserOutput(),))
    return px.Program.of({"": graph}, signature=signature, facts=frozenset({"flat"}))
