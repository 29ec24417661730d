"""``to_dtype``: what ``module.to(dtype)`` computes, for modules of every kind, and what a trace cannot tell."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

import purefx as px
from tests.models import Shared, exported, parent
from tests.tables import in_turns

BF16 = torch.bfloat16


def cast(value: Any, dtype: torch.dtype) -> Any:
    def one(leaf: Any) -> Any:
        return (
            leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
        )

    return pytree.tree_map(one, value)


def converted(
    module: nn.Module, *args: Any, dtype: torch.dtype = BF16, tree: bool = False, **options: Any
) -> px.Program:
    program = px.import_ep(exported(module, *args))
    result = px.to_dtype(px.transform(program) if tree else program, dtype, **options)
    assert px.verify(result, infer=True) == ()
    return result


def same_as_eager(module: nn.Module, *args: Any, dtype: torch.dtype = BF16, **options: Any) -> None:
    """Compare results and state with those of the converted module over three calls, to the last bit."""
    for tree in (False, True):
        lowered = px.lower(converted(module, *args, dtype=dtype, tree=tree, **options))
        eager = copy.deepcopy(module).to(dtype)
        for factor in (1, -2, 3):
            given = cast(pytree.tree_map(lambda leaf, factor=factor: leaf * factor, args), dtype)
            results = [pytree.tree_leaves(each(*copy.deepcopy(given))) for each in (lowered, eager)]
            for mine, theirs in zip(*results, strict=True):
                assert mine.dtype is theirs.dtype
                assert torch.equal(mine, theirs)
        mine, theirs = lowered.state_dict(), eager.state_dict()
        assert list(mine) == list(theirs)
        assert all(
            mine[name].dtype is theirs[name].dtype and torch.equal(mine[name], theirs[name])
            for name in theirs
        )


class Norms(
    parent(
        embed=lambda: nn.Embedding(8, 4),
        batch=lambda: nn.BatchNorm1d(4),
        layer=lambda: nn.LayerNorm(4),
    )
):
    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.batch(x) + self.embed(ids % 8))


class Root(parent(weight=lambda: nn.Parameter(torch.rand(4)))):
    """The norm of Llama: up to single precision and back, with a residual around it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(given)


class Residual(parent(norm=Root, linear=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x))


class Twice(parent(first=Residual, second=Residual)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)).float()


class Masked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(x > 0, torch.finfo(x.dtype).min), -1)


class Asserts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_tensor_metadata(x, None, None, x.dtype)
        return x + 1


class Conditional(parent(linear=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: self.linear(y), lambda y: y.sin(), (x,))


X = torch.linspace(-2, 2, 12).reshape(3, 4)

CASES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "linear": (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (X,)),
    "shared": (Shared(), (X,)),
    "cond": (Conditional(), (X,)),
    "norms": (Norms(), (X, torch.arange(3))),
    "up and back": (Residual(), (X,)),
    "twice up and back": (Twice(), (X,)),
    "a mask": (Masked(), (X,)),
    "an assertion": (Asserts(), (X,)),
    "attention": (
        nn.MultiheadAttention(4, 2, batch_first=True).eval(),
        (X[None], X[None], X[None]),
    ),
}


@in_turns(case=list(CASES), dtype={str(each): each for each in (BF16, torch.float64)})
def test_it_computes_what_the_converted_module_does(case: str, dtype: torch.dtype) -> None:
    module, args = CASES[case]
    torch.manual_seed(0)
    same_as_eager(module, *args, dtype=dtype)


def test_keep() -> None:
    """A norm may have wider parameters than what it is given; a linear layer may not."""
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    program = converted(module, X, keep="1")
    types = {name: slot.value.dtype for name, slot in program.state.pairs}
    assert types == {
        "0.weight": BF16,
        "0.bias": BF16,
        "1.weight": torch.float32,
        "1.bias": torch.float32,
    }
    eager = copy.deepcopy(module).to(BF16)
    eager[1].float()
    assert torch.equal(px.lower(program)(X.to(BF16)), eager(X.to(BF16)))
    with pytest.raises(px.errors.UnsupportedProgram, match="or keep the module that uses it"):
        converted(module, X, keep="0.weight")


def test_follow_says_what_a_trace_does_not() -> None:
    """Nothing behind this cast minds: it stays unless it is named."""

    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32) * 2

    assert px.lower(converted(Wide(), X))(X.to(BF16)).dtype is torch.float32
    assert px.lower(converted(Wide(), X, follow="to"))(X.to(BF16)).dtype is BF16


class Scaled(parent(weight=lambda: nn.Parameter(torch.ones(4)))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


class Normed(parent(norm=Scaled, linear=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
def test_a_refusal_names_the_kept_state_the_cast_and_the_module(tree: bool) -> None:
    with pytest.raises(px.errors.UnsupportedProgram) as caught:
        converted(Normed(), X, keep="norm", tree=tree)
    message = str(caught.value)
    words = ("linear would get", "keep= keeps 'norm.weight'", "`y.to(x.dtype)`", "'linear'")
    assert all(each in message for each in words), message
    assert "eager" not in message


def test_a_refusal_names_a_constant_of_the_forward() -> None:
    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.tensor([1.0, 2.0, 3.0, 4.0])

    with pytest.raises(px.errors.UnsupportedProgram, match="makes the constant 'lifted_tensor_0'"):
        converted(Constant(), X)


def test_a_mask_of_attention_may_keep_single_precision() -> None:
    class Attention(parent(mask=lambda: torch.zeros(3, 3).tril())):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, self.mask)

    module = Attention()
    program = converted(module, X[None], keep="mask")
    eager = copy.deepcopy(module).to(BF16)
    eager.mask = module.mask
    x = X[None].to(BF16)
    torch.testing.assert_close(px.lower(program)(x), eager(x))


class Views(nn.Module):
    """Writes to a view of another buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(4.0))
        self.register_buffer("b", self.get_buffer("a")[1::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("b").add_(1)
        return x + self.get_buffer("a") + self.get_buffer("b").sum()


def test_tensors_that_share_memory_are_converted_together() -> None:
    with pytest.raises(px.errors.UnsupportedProgram, match="'a', 'b' share memory"):
        converted(Views(), X, keep="b")


def test_tensors_that_share_memory_share_it_after_they_are_converted() -> None:
    lowered, eager = px.lower(converted(Views(), X, dtype=torch.float64)), Views()
    for _ in range(3):
        assert torch.equal(lowered(X.double()), eager(X.double()))
    for name, value in lowered.state_dict().items():
        assert value.dtype is torch.float64
        assert torch.equal(value, eager.get_buffer(name).double())


class Scanned(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return scan(lambda last, row: (last + row, last * row), torch.zeros(2), x)


class Looped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        def goes_on(count: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
            return count < 3

        def step(count: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, last + x[0]

        return while_loop(goes_on, step, (torch.tensor(0), torch.zeros(2)))


class Branched(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: torch.zeros(3, 2), (x,))


@pytest.mark.parametrize(
    "model", [Scanned(), Looped(), Branched()], ids=lambda each: type(each).__name__
)
def test_bodies_of_two_dtypes_are_refused_as_eager_mode_does(model: torch.nn.Module) -> None:
    """Tensors that forward makes keep their dtype, so a loop or a branch would mix two."""
    program = px.capture(model, (torch.ones(3, 2),))
    with pytest.raises(Exception, match="dtype"):
        model.double()(torch.ones(3, 2, dtype=torch.float64))
    for stage in (program, px.transform(program)):
        with pytest.raises(px.errors.UnsupportedProgram, match="bodies of two dtypes") as caught:
            px.to_dtype(stage, torch.float64)
        advice = (
            "Cast the other value in the model to the dtype of its operand, as in x.to(y.dtype)"
        )
        assert str(caught.value).endswith(f". {advice}")


def test_a_loop_whose_carry_has_the_dtype_of_its_input_is_converted() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return scan(lambda last, row: (last + row, last * row), torch.zeros_like(x[0]), x)

    x = torch.rand(3, 2, dtype=torch.float64)
    made = px.to_dtype(px.capture(Model(), (torch.ones(3, 2),)), torch.float64)
    for expected, actual in zip(Model()(x), px.lower(made)(x), strict=True):
        assert torch.equal(expected, actual)
