"""The memo of inference changes no result: what operators return is remembered only where that follows from descriptions."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings

import purefx as px
from purefx.ir.inference.memo import Memo
from purefx.ir.torch_private import storage_key
from purefx.laws.strategies import Exported, exported_programs
from tests.programs import Block, Branches, Counter, exported, parent


class Layer(parent(norm=lambda: torch.nn.LayerNorm(8), qkv=lambda: torch.nn.Linear(8, 24), out=lambda: torch.nn.Linear(8, 8))):
    """Attention, with several results of one operator, views, casts that are none, and numbers of several types."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).split(8, -1)
        mixed = torch.nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        weight, where = torch.softmax(x, -1).topk(8)
        mean, spread = torch.var_mean(x, -1, keepdim=True)
        mixed = mixed.squeeze(1).contiguous() + weight.to(torch.float64).float().to(torch.float32)
        turned = x.unflatten(1, (2, 4)).mT.reshape(x.shape)
        return x + self.out(mixed) * 0.5 + where.argmax(-1, keepdim=True) * 2 + turned * True - mean / spread


class Layers(torch.nn.Module):
    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*[Layer() for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Odd(torch.nn.Module):
    """Random, in place, in regions, on contents, and on tensors that are known."""

    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        y = torch.nn.functional.dropout(x, 0.5).add_(1).add_(1)
        with torch.autocast("cpu", torch.bfloat16):
            low = (x @ x) @ (x @ x)
        found = (x > 0).nonzero().float().sin() + (y > 0).nonzero().float().sin()[:1]
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), low, found, torch.tensor([1, 2]) + 1, x.conj().expand(2, 4, 4)


class Pooled(parent(conv=lambda: torch.nn.Conv2d(3, 3, 3), norm=lambda: torch.nn.BatchNorm2d(3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.max_pool2d(self.norm(self.conv(x)), 2)


def bare(program: px.Program) -> px.Program:
    """Return a program without the values of its nodes."""
    graphs = {
        key: graph.with_nodes([evolve(node, meta=MappingProxyType({})) for node in graph.nodes])
        for key, graph in program.graphs.items()
    }
    return program.evolve(graphs=px.ir.pmap(graphs))


def told(program: px.Program) -> list[Any]:
    """Return all that can be seen of the values of a program, and which of them share memory."""
    found, memory = list[Any](), dict[int, int]()
    for graph, node in program.nodes():
        value = node.meta.get("val")
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, torch.Tensor):
                # Values that were there before have been asked for contents and remember it; the sizes that follow are new ones.
                sizes = [size if type(size) is int else "?" for size in (*part.shape, *part.stride())]
                shared = memory.setdefault(storage_key(part), len(memory))
                flags = (part.requires_grad, part.is_conj(), part.is_neg())
                part = (part.dtype, *sizes, part.device, part.layout, str(part.storage_offset()), flags, shared)
            found.append((graph, node.name, part if isinstance(part, tuple) else type(part)))
    return found


def without_memo(program: px.Program) -> px.Program:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Memo, "question", lambda *_: None)
        return px.infer(program)


MODELS: list[tuple[torch.nn.Module, tuple[torch.Tensor, ...], Any]] = [
    (Layers(), (torch.ones(4, 8),), None),
    (Layers(), (torch.ones(4, 8),), ({0: torch.export.Dim("rows", min=2)},)),
    (Odd(), (torch.ones(4, 4),), None),
    (Block(), (torch.ones(3, 4),), None),
    (Branches(), (torch.ones(3, 4),), None),
    (Counter(), (torch.ones(4, 4),), None),
    (torch.nn.Sequential(*[Pooled() for _ in range(2)]), (torch.ones(2, 3, 20, 20),), None),
]  # fmt: skip


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize(("model", "args", "sizes"), MODELS)
def test_values_are_those_without_a_memo(model: torch.nn.Module, args: Any, sizes: Any, decomposed: bool) -> None:
    program = px.import_ep(exported(model, *args, decomposed=decomposed, dynamic_shapes=sizes))
    for each in (bare(program), bare(px.transform(program))):
        assert told(px.infer(each)) == told(without_memo(each))


@settings(max_examples=60, deadline=None)
@given(exported_programs())
def test_values_of_drawn_programs_are_those_without_a_memo(drawn: Exported) -> None:
    program = bare(px.import_ep(drawn.ep))
    assert told(px.infer(program)) == told(without_memo(program))


class Lifted(torch.nn.Module):
    """An operator that returns its operand, and whose schema does not say so."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = x + 1, x + 2
        return torch.ops.aten.lift(first).add_(1), torch.ops.aten.lift(second) * 2


def test_operators_that_return_their_operand_do_so_whatever_ran_before() -> None:
    """torch remembers what operators gave in this process, and forgets that this one shares memory."""
    program = bare(px.import_ep(exported(Lifted(), torch.ones(3, 7))))
    for _ in range(3):
        values = {node.name: node.meta["val"] for _, node in px.infer(program).nodes()}
        assert storage_key(values["lift"]) == storage_key(values["add"])
        assert storage_key(values["lift_1"]) == storage_key(values["add_1"])


def test_equal_layers_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    keep = Memo.keep

    def counted(self: Memo, question: Any, *rest: Any) -> None:
        asked.append("asked")
        keep(self, question, *rest)

    monkeypatch.setattr(Memo, "keep", counted)
    linear = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(9)]
    px.infer(bare(px.import_ep(exported(torch.nn.Sequential(*linear), torch.ones(2, 4)))))
    assert len(asked) == 2
