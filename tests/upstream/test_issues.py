"""Failures reported against the peers, each as the smallest program of our own that shows it, right here.

A number, a module, eager's answer.  Several are mended in torch by now; they stay as laws.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.users import agree, lowered
from tests.programs import Block, exported, parent


def same_as_eager(module: nn.Module, *inputs: torch.Tensor, decomposed: bool = False, calls: int = 3) -> Any:
    """Lower, call several times beside a deep copy of the module, compare outputs and state, and return the lowered module."""
    made = lowered(exported(module, *inputs, decomposed=decomposed))
    agree(made, module, [(inputs, {})] * calls)
    return made


BOTH = pytest.mark.parametrize("decomposed", [False, True])


@BOTH
def test_132993_two_calls_back_to_back(decomposed: bool) -> None:
    """Two consecutive calls of one submodule were merged into one."""

    class Twice(parent(block=Block)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(self.block(x))

    module = Twice()
    same_as_eager(module, torch.randn(2, 4), decomposed=decomposed)
    program = px.outline(px.import_ep(exported(module, torch.randn(2, 4), decomposed=decomposed)))
    assert [str(node.do.instance) for node in program.main.nodes if isinstance(node.do, px.Call)] == ["block", "block@1"]


@BOTH
def test_127643_a_buffer_of_the_root_used_in_a_child(decomposed: bool) -> None:
    """A buffer owned by the root and mutated there was passed down wrongly."""

    class Child(nn.Module):
        def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
            count.add_(1)
            return x * count

    class Owner(parent(child=Child, count=lambda: torch.zeros(()))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.child(x, self.count)
            self.count.mul_(2)
            return self.child(x, self.count)

    same_as_eager(Owner(), torch.randn(3), decomposed=decomposed)


def test_160937_one_module_in_two_parents() -> None:
    """A module shared by two parents, with a buffer that both update.

    (torch 2.13's ``run_decompositions`` itself fails on it with an assertion.)
    """

    class Counting(parent(count=lambda: torch.zeros(()))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    class Holder(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shared = Counting()
            self.a, self.b = Holder(shared), Holder(shared)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    module = same_as_eager(Root(), torch.randn(3))
    assert module.a.inner.count is module.b.inner.count


@BOTH
def test_a_read_after_a_legal_reorder(decomposed: bool) -> None:
    """A buffer is read, then updated from something that does not need the read: the write must not overtake it."""

    class Lagged(parent(last=lambda: torch.zeros(3))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + self.last
            self.last.copy_(x * 2)
            return y + self.last

    same_as_eager(Lagged(), torch.randn(3), decomposed=decomposed)


@BOTH
def test_130931_an_input_that_is_written(decomposed: bool) -> None:
    """The caller's tensor is written exactly when eager writes it."""

    class Writes(parent(inner=lambda: nn.Linear(3, 3))):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(y)
            return self.inner(x) + y

    module = Writes()
    eager = copy.deepcopy(module)
    lowered = px.lower(px.transform(px.import_ep(exported(module, torch.ones(2, 3), torch.ones(2, 3), decomposed=decomposed))))
    for _ in range(3):
        mine, theirs, y = torch.ones(2, 3), torch.ones(2, 3), torch.randn(2, 3)
        assert torch.equal(lowered(mine, y), eager(theirs, y))
        assert torch.equal(mine, theirs)


@BOTH
def test_batch_norm_in_training(decomposed: bool) -> None:
    """The statistics move as in eager, also when one BatchNorm is called twice."""

    class Norms(parent(norm=lambda: nn.BatchNorm2d(2), conv=lambda: nn.Conv2d(2, 2, 1))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(self.norm(x)))

    same_as_eager(Norms(), torch.randn(4, 2, 3, 3), decomposed=decomposed)


@BOTH
def test_one_child_through_three_calls_of_its_parent(decomposed: bool) -> None:
    """Eager counts 3 and adds 1 + 2 + 3; a peer loses an update."""

    class Inner(parent(n=lambda: torch.zeros(()))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.n.add_(1)
            return x + self.n

    class Outer(parent(inner=Inner)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    class Root(parent(outer=Outer)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(self.outer(self.outer(x)))

    module = same_as_eager(Root(), torch.zeros(2), decomposed=decomposed)
    assert module.outer.inner.n == 9


def test_115364_many_calls_are_linear() -> None:
    """256 calls of one stateful module: one body, one copy of its state, eager's numbers."""

    class Root(parent(linear=lambda: nn.Linear(2, 2))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(256):
                x = self.linear(x).tanh()
            return x

    module = Root()
    same_as_eager(module, torch.randn(1, 2), calls=1)
    assert px.transform(px.import_ep(exported(module, torch.randn(1, 2)))).order == ("", "linear")
