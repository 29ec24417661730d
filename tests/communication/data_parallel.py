"""A user's script, run by both processes of ``Pair``: a small model is trained on data of two processes.

A whole step is traced, forward, backward and one collective for each gradient, as one writes it by hand; the trace is imported,
its collectives are joined and moved, and the lowered module takes the steps.  DDP takes the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import purefx as px

__all__ = ["train"]

STEPS = 4

Step = Callable[..., tuple[torch.Tensor, list[torch.Tensor]]]

WAYS: dict[str, Callable[[px.Program], px.Program]] = {
    "as it is": lambda program: program,
    "in buckets": px.training.bucket_collectives,
    "in small buckets": px.training.bucket_collectives.bind(bytes=3000),
    "overlapped": px.training.overlap_communication,
    "in small buckets, overlapped": lambda program: px.training.overlap_communication(
        px.training.bucket_collectives(program, bytes=3000)
    ),
}


def model() -> nn.Sequential:
    """Return a small model; every parameter can be cut in two."""
    torch.manual_seed(0)
    hidden = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.ReLU())
    return nn.Sequential(nn.Embedding(50, 16), hidden, nn.Linear(32, 50))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the data of this process."""
    draw = partial(torch.randint, 50, (4, 6), generator=torch.Generator().manual_seed(dist.get_rank()))
    return [(draw(), draw()) for _ in range(STEPS)]


def replicated(module: nn.Module) -> tuple[Step, list[torch.Tensor]]:
    """Return a step that reduces each gradient, in the order in which the backward makes them, and what it begins with."""
    names = [name for name, _ in module.named_parameters()]

    def step(params: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        leaves = {name: param.detach().requires_grad_() for name, param in zip(names, params, strict=True)}
        loss = cross_entropy(torch.func.functional_call(module, leaves, (x,)).flatten(0, 1), y.flatten())
        grads = torch.autograd.grad(loss, list(leaves.values()))
        reduced = [collectives.all_reduce(grad, "sum", dist.group.WORLD) / 2 for grad in reversed(grads)]
        return loss.detach(), reduced[::-1]

    return step, [param.detach().clone() for param in module.parameters()]


def sharded(module: nn.Module) -> tuple[Step, list[torch.Tensor]]:
    """Return a step that gathers each parameter and scatters each gradient, and the half that this process begins with."""
    whole, world = replicated(module)[1], dist.group.WORLD
    names = [name for name, _ in module.named_parameters()]

    def step(shards: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        params = [collectives.all_gather_tensor(shard, 0, world) for shard in shards]
        leaves = {name: (param * 1).detach().requires_grad_() for name, param in zip(names, params, strict=True)}
        loss = cross_entropy(torch.func.functional_call(module, leaves, (x,)).flatten(0, 1), y.flatten())
        grads = torch.autograd.grad(loss, list(leaves.values()))
        reduced = [collectives.reduce_scatter_tensor(grad, "sum", 0, world) / 2 for grad in reversed(grads)]
        return loss.detach(), reduced[::-1]

    return step, [param.chunk(2)[dist.get_rank()].clone() for param in whole]


def with_ddp(module: nn.Module) -> tuple[list[float], list[torch.Tensor]]:
    """Train with DDP, and return the losses and the parameters."""
    ddp, losses = DistributedDataParallel(module), []
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9)
    for x, y in batches():
        loss = cross_entropy(ddp(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [param.detach() for param in module.parameters()]


def by_hand(step: Step, params: Sequence[torch.Tensor]) -> tuple[list[float], list[torch.Tensor]]:
    """Train with a function that gives the loss and the gradients."""
    leaves, losses = [nn.Parameter(param.clone()) for param in params], []
    optimizer = torch.optim.SGD(leaves, 0.1, momentum=0.9)
    for x, y in batches():
        loss, grads = step([leaf.detach() for leaf in leaves], x, y)
        for leaf, grad in zip(leaves, grads, strict=True):
            leaf.grad = grad
        optimizer.step()
        losses.append(loss.item())
    return losses, [leaf.detach() for leaf in leaves]


def train(how: str) -> list[tuple[str, int, list[float], bool]]:
    """Return for each way how many collectives a step has, the losses, and whether the parameters are those of DDP."""
    losses, expected = with_ddp(model())
    step, params = {"replicated": replicated, "sharded": sharded}[how](model())
    if how == "sharded":
        expected = [param.chunk(2)[dist.get_rank()] for param in expected]
    program = px.import_fx(make_fx(step)(params, *batches()[0]))
    found: list[tuple[str, int, list[float], bool]] = [("DDP", 0, losses, True)]
    for name, way in WAYS.items():
        changed = way(program)
        its_losses, its = by_hand(px.lower(changed), params)
        same = all(torch.equal(mine, theirs) for mine, theirs in zip(its, expected, strict=True))
        found.append((name, _collectives(changed), its_losses, same))
    return found


def _collectives(program: px.Program) -> int:
    return sum(isinstance(node.do, px.Op) and node.do.effects.domain == "communication" for _, node in program.nodes())


def captured_by_dynamo(_: Any) -> list[tuple[int, int, bool]]:
    """Return how many collectives a function has that Dynamo captured, before and after, and whether its numbers stay."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    def several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = x * 2, y + 1
        dist.all_reduce(a)
        dist.all_reduce(b)
        gathered = torch.empty(8)
        dist.all_gather_into_tensor(gathered, a)  # pyright: ignore[reportDeprecated]  as users have it
        return gathered[:4] + b

    args = torch.full((4,), 1.5 + dist.get_rank()), torch.arange(4.0)
    expected = torch.compile(several, backend=backend, fullgraph=True)(*args)
    program = px.import_fx(graphs[0])
    changed = px.training.overlap_communication(px.training.bucket_collectives(program))
    return [(_collectives(program), _collectives(changed), torch.equal(px.lower(changed)(*args)[0], expected))]


class Mlp(nn.Module):
    """A part of a decoder that is cut over two processes: the first layer by columns, the second by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reduce once, in the second layer; the backward does in the first."""
        return x + self.down(self.up(self.norm(x)).relu())


def tensor_parallel(_: Any) -> list[tuple[list[int], bool]]:
    """Return how many collectives a compiled forward and backward have, and whether results and gradients are eager's."""
    from torch._dynamo.backends.common import aot_autograd
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    module, mesh = nn.Sequential(Mlp(), Mlp(), Mlp()), init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for part in module:
        parallelize_module(part, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    counts: list[int] = []

    def through(graph: torch.fx.GraphModule, _: Any) -> Any:
        program = px.training.overlap_communication(px.training.bucket_collectives(px.import_fx(graph)))
        counts.append(_collectives(program))
        lowered = px.lower(program)

        def boxed(args: list[Any]) -> Any:
            return lowered(*args)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    backend: Any = aot_autograd(fw_compiler=through, bw_compiler=through)
    ran = [_with_gradients(each) for each in (module, torch.compile(module, backend=backend))]
    return [(counts, all(map(torch.equal, *ran)))]


def _with_gradients(module: Any) -> list[Any]:
    x = torch.arange(32.0).view(4, 8).div(7).requires_grad_()
    module.zero_grad()
    result = module(x)
    result.pow(2).sum().backward()
    grads: list[Any] = [param.grad for param in module.parameters()]
    return [result.detach(), x.grad, *[getattr(grad, "to_local", lambda grad=grad: grad)().clone() for grad in grads]]
