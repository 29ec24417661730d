"""Modules with a backward, and what a joint program of one is compared with: eager, with ``torch.autograd.grad``."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.utils.checkpoint import checkpoint

import purefx as px
from purefx.ir.torch_private import pytree
from tests.models import parent


def linear(*, bias: bool = True) -> nn.Linear:
    """Return a layer of four features."""
    return nn.Linear(4, 4, bias=bias)


class Block(
    parent(norm=lambda: nn.LayerNorm(4), up=linear, down=linear, drop=lambda: nn.Dropout(0.25))
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(self.up(self.norm(x)).relu()))


class Blocks(
    parent(embed=linear, blocks=lambda: nn.ModuleList([Block(), Block(), Block()]), head=linear)
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Normed(parent(conv=lambda: nn.Conv2d(2, 4, 3), norm=lambda: nn.BatchNorm2d(4))):
    """Running statistics, which a call in training mode writes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu().mean((2, 3))


class Tied(nn.Module):
    """One weight under two names, and one that needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.frozen = linear().requires_grad_(requires_grad=False)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.frozen(self.embed(ids)).tanh())


class Unused(parent(used=linear, unused=linear)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Nested(parent(layer=linear)):
    """Arguments that are no tensors, or lie in a dict; results that are views of one another, of arguments, or no tensors."""

    def forward(
        self, x: torch.Tensor, scale: float, *, more: dict[str, Any], flag: bool = False
    ) -> dict[str, Any]:
        y = self.layer(x) * scale + more["shift"]
        return {
            "y": y if flag else -y,
            "views": (y.view(-1), y.t(), x, more["shift"]),
            "rest": [y.argmax(), 3, None, "text"],
        }


class Again(parent(layer=linear)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x).relu())


class Constants(nn.Module):
    """Tensors that are neither parameters nor buffers, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.mask = torch.tensor([1.0, 0.0, 2.0, 3.0])
        self.register_buffer("unsaved", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.mask + self.unsaved + torch.tensor([1.0, 2.0, 3.0, 4.0])


class Writes(parent(layer=linear, count=lambda: torch.zeros(4), mean=lambda: torch.zeros(4))):
    """A buffer that is written, one that is assigned anew, and an argument that is written."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.mean = self.mean * 0.5 + x.mean(0)
        x.mul_(2)
        return self.layer(x) * self.count + self.mean


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Give three times the gradient, not two."""
        (x,) = ctx.saved_tensors
        return 3 * grad * x


class Own(parent(layer=linear)):
    """Gradients of the author's own: a function's, and a hook's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = Square.apply(self.layer(x))
        y.register_hook(lambda grad: grad * 2)
        return y + 1


class Recomputed(
    parent(first=linear, rest=lambda: nn.Sequential(linear(), nn.Tanh(), nn.Dropout(0.5)))
):
    """What is not saved but computed again, with the same random numbers."""

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.rest, self.first(x), use_reentrant=False)


class Modes(parent(still=linear, layer=linear)):
    """A layer without gradients, and one in another dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.still(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x)


class Caught(parent(bad=lambda: nn.Linear(3, 3), layer=linear)):
    """A module that raises, and is over."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bad is not None:
            try:
                x = self.raising(x)
            except ValueError:
                pass
        return self.layer(x)

    def raising(self, x: torch.Tensor) -> torch.Tensor:
        """Raise inside of a module."""
        return nn.Module.__call__(Raises(), x)


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape)


def joint_graph(module: Any, *args: Any, **kwargs: Any) -> torch.fx.GraphModule:
    """Return the joint graph that torch makes of a module."""
    with ExitStack() as stack:
        return aot_export_joint_with_descriptors(stack, module, args, kwargs).graph_module


def drawn(*shape: int, grad: bool = False) -> torch.Tensor:
    """Return a tensor by chance, for one shape always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_(grad)


class Aliased(nn.Module):
    """A module with several paths, beside one that shares a parameter and a buffer with it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm, self.other = (
            linear(),
            linear(),
            nn.BatchNorm1d(4),
            nn.BatchNorm1d(4),
        )
        self.b.weight, self.other.running_mean = self.a.weight, self.norm.running_mean
        self.again, self.listed, self.renormed = self.b, nn.ModuleList([self.a, self.b]), self.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.renormed(self.again(self.other(self.listed[0](x).tanh())))


CASES: dict[str, tuple[type[nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "blocks": (Blocks, (drawn(2, 4, grad=True),), {}),
    "batch-norm": (Normed, (drawn(2, 2, 5, 5),), {}),
    "tied": (Tied, (torch.tensor([[0, 3], [4, 1]]),), {}),
    "unused": (Unused, (drawn(2, 4),), {}),
    "nested": (
        Nested,
        (drawn(2, 4, grad=True), 0.5),
        {"more": {"shift": drawn(4, grad=True), "n": 2}, "flag": True},
    ),
    "again": (Again, (drawn(2, 4),), {}),
    "constants": (Constants, (drawn(2, 4),), {}),
    "writes": (Writes, (drawn(2, 4),), {}),
    "own": (Own, (drawn(2, 4),), {}),
    "recomputed": (Recomputed, (drawn(2, 4),), {}),
    "modes": (Modes, (drawn(2, 4),), {}),
    "aliased": (Aliased, (drawn(3, 4),), {}),
}
"""The module and the arguments of an example call, by name."""


def calls_of(args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> Any:
    """Return other arguments like these: other floating numbers, the same everything else."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    torch.manual_seed(seed)
    return pytree.tree_unflatten([_like(leaf) for leaf in leaves], spec)


def _like(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
        return leaf
    return torch.randn_like(leaf).requires_grad_(leaf.requires_grad)


def differences(
    program: px.Program,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    calls: int = 3,
) -> list[str]:
    """Return what a joint program gives otherwise than eager, in several calls of a copy of the module."""
    eager = copy.deepcopy(module)
    lowered = px.lower(program)
    found: list[str] = []
    for seed in range(calls):
        a, k = calls_of(args, kwargs, seed)
        found += [
            f"call {seed}: {said}"
            for said in _differences(program, lowered, eager, copy.deepcopy((a, k)), (a, k))
        ]
    return found


def _differences(
    program: px.Program, lowered: nn.Module, eager: nn.Module, ours: Any, theirs: Any
) -> list[str]:
    torch.manual_seed(0)
    result = eager(*theirs[0], **theirs[1])
    results, spec = pytree.tree_flatten(result)
    of = [
        found
        for one in program.signature.inputs
        if (found := getattr(one, "tangent_of", None)) is not None
    ]
    tangents = tuple([torch.randn_like(results[number]) for number in of])
    gradients = [
        one
        for one in program.signature.outputs
        if isinstance(one, px.ir.StateGradient | px.ir.signature.InputGradient)
    ]
    wanted = torch.autograd.grad(
        [results[number] for number in of],
        [_target(one, eager, pytree.tree_leaves(theirs)) for one in gradients],
        tangents,
        allow_unused=True,
    )
    torch.manual_seed(0)
    given, got = lowered(*ours[0], **ours[1], tangents=tangents)
    found = [] if pytree.tree_structure(given) == spec else ["the result is nested otherwise"]
    pairs = zip(pytree.tree_leaves(given), results, strict=True)
    found += [
        f"result {number}" for number, (one, other) in enumerate(pairs) if not _same(one, other)
    ]
    found += [
        str(spec)
        for spec, one, other in zip(gradients, got, wanted, strict=True)
        if not _same(one, other)
    ]
    state = eager.state_dict()
    found += [name for name, value in lowered.state_dict().items() if not _same(value, state[name])]
    leaves = zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True)
    return found + [
        f"argument {number}" for number, (one, other) in enumerate(leaves) if not _same(one, other)
    ]


def _target(spec: Any, module: nn.Module, leaves: list[Any]) -> torch.Tensor:
    if isinstance(spec, px.ir.signature.InputGradient):
        return leaves[spec.leaf]
    owner, _, name = spec.slot.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other) and one == other
    return isinstance(other, torch.Tensor) and one.dtype is other.dtype and torch.equal(one, other)


def inside(program: px.Program) -> float:
    """Return how many of the nodes of a flat program stand in a module call."""
    nodes = program.main.nodes
    return sum(bool(node.stack) for node in nodes) / len(nodes)


def tree_of(program: px.Program) -> dict[tuple[str, int], str]:
    """Return the body of each call of a tree, by the path from the module that calls it and the number of the call."""
    pairs = [node.do for _, node in program.nodes() if type(node.do) is px.Call]
    return {(do.instance.path, do.instance.call): do.graph for do in pairs}
