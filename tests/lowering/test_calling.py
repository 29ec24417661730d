"""Calling a lowered module: pytrees, names, checks, and errors that teach."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import purefx as px
from purefx.ir.torch_private import pytree
from tests.programs import Block, exported


class Pytrees(nn.Module):
    """Takes and gives nested containers, a constant and keyword arguments."""

    def forward(
        self, x: torch.Tensor, batch: dict[str, Any], scale: int = 2, *, bias: torch.Tensor, skip: None = None
    ) -> dict[str, Any]:
        first, (second, third) = batch["a"], batch["b"]
        return {"y": [x * scale + first, None], "z": (second - third + bias, "text", 3), "batch": batch}


BATCH = {"a": torch.ones(2), "b": (torch.full((2,), 2.0), torch.full((2,), 3.0))}
BIAS = torch.full((2,), 5.0)


@pytest.fixture(scope="module", params=["graph_module", "interpreter"])
def pytrees(request: pytest.FixtureRequest) -> Any:
    """The lowered module, both kinds."""
    ep = torch.export.export(Pytrees(), (torch.ones(2), BATCH), {"bias": BIAS, "scale": 2})
    return px.lower(px.transform(px.import_ep(ep)), to=request.param)


def test_pytrees_and_keywords_in_any_order(pytrees: Any) -> None:
    """Positional or by name, keywords and dict keys in any order."""
    x = torch.randn(2)
    expected = Pytrees()(x, BATCH, bias=BIAS)
    backwards = dict(reversed(BATCH.items()))
    for result in (
        pytrees(x, BATCH, bias=BIAS, scale=2),
        pytrees(x, BATCH, scale=2, bias=BIAS),
        pytrees(bias=BIAS, batch=backwards, scale=2, x=x),
    ):
        leaves, spec = pytree.tree_flatten(result)
        wanted, same = pytree.tree_flatten(expected)
        assert spec == same
        for mine, theirs in zip(leaves, wanted, strict=True):
            assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs
        assert list(result) == ["y", "z", "batch"]
        assert isinstance(result["z"], tuple)
        assert isinstance(result["y"], list)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((torch.ones(2),), {"bias": BIAS, "scale": 2}, TypeError, "missing argument 'batch'"),
        ((torch.ones(2), BATCH), {"bias": BIAS, "scale": 2, "extra": 1}, TypeError, "unexpected argument 'extra'"),
        ((torch.ones(2), BATCH), {"bias": BIAS, "scale": 2, "x": 1}, TypeError, "'x' twice"),
        ((torch.ones(2), {"a": torch.ones(2)}), {"bias": BIAS, "scale": 2}, ValueError, r"batch: expected the keys \['a', 'b'\]"),
        ((torch.ones(2), [torch.ones(2)]), {"bias": BIAS, "scale": 2}, TypeError, "batch: expected a dict, got a list"),
        (
            (torch.ones(2), {**BATCH, "b": [BIAS, BIAS]}),
            {"bias": BIAS, "scale": 2},
            TypeError,
            r"batch\['b'\]: expected a tuple, got a list",
        ),
        (
            (torch.ones(3), BATCH),
            {"bias": BIAS, "scale": 2},
            RuntimeError,
            r"argument x: expected a tensor of shape \(2,\).*got shape \(3,\)",
        ),
        (
            (torch.ones(2).double(), BATCH),
            {"bias": BIAS, "scale": 2},
            RuntimeError,
            "argument x: expected .*float32, got dtype torch.float64",
        ),
        (
            (torch.ones(2), {**BATCH, "a": 1.0}),
            {"bias": BIAS, "scale": 2},
            ValueError,
            r"argument batch\['a'\]: expected a tensor.*got 1.0",
        ),
        ((torch.ones(2), BATCH), {"bias": BIAS, "scale": 3}, AssertionError, "argument scale: expected the value 2 .*got 3"),
        ((torch.ones(2), BATCH), {"bias": BIAS, "scale": 2.0}, ValueError, "argument scale: expected the value 2 .*got 2.0"),
    ],
)
def test_wrong_arguments_are_named(pytrees: Any, args: Any, kwargs: Any, error: type[Exception], message: str) -> None:
    """A purefx error that is also the builtin a caller would catch; it names the argument and what was expected."""
    with pytest.raises(px.PurefxError, match=message) as caught:
        pytrees(*args, **kwargs)
    assert isinstance(caught.value, error)


class Related(nn.Module):
    """Two sizes that depend on each other, and one that is bounded."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x]) + y


@pytest.fixture(scope="module")
def related() -> Any:
    """The lowered module with dynamic sizes."""
    size = Dim("size", min=3, max=64)
    ep = torch.export.export(Related(), (torch.ones(4, 2), torch.ones(8, 2)), dynamic_shapes={"x": {0: size}, "y": {0: 2 * size}})
    return px.lower(px.transform(px.import_ep(ep)))


@pytest.mark.parametrize("size", [3, 5, 64])
def test_dynamic_sizes_run(related: Any, size: int) -> None:
    """Any size within the bounds."""
    x, y = torch.randn(size, 2), torch.randn(2 * size, 2)
    assert torch.equal(related(x, y), Related()(x, y))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((2, 2), (4, 2), "argument x: .*got shape .2, 2.*must be between 3 and 64"),
        ((65, 2), (130, 2), "argument x: .*must be between 3 and 64"),
        ((5, 2), (11, 2), "argument y: .*got shape .11, 2.*2 \\* s"),
        ((5, 3), (10, 3), "argument x: .*got shape .5, 3"),
        ((5,), (10,), "argument x: .*got shape .5,"),
    ],
)
def test_dynamic_sizes_out_of_bounds(related: Any, first: tuple[int, ...], second: tuple[int, ...], message: str) -> None:
    """What ep.module() refuses is refused, by name."""
    with pytest.raises(px.InputValueError, match=message):
        related(torch.ones(first), torch.ones(second))


def test_guards_are_enforced() -> None:
    """A guard that the exporter found in the code (divisible by 4) is enforced like in ep.module()."""

    class Fourths(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(x.shape[0] // 4, 4).sum(0)

    ep = torch.export.export(Fourths(), (torch.ones(8),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})
    module, reference = px.lower(px.transform(px.import_ep(ep))), ep.module()
    for size in (4, 8, 12, 6, 7):
        try:
            expected = reference(torch.ones(size))
        except (AssertionError, RuntimeError):
            with pytest.raises((px.InputValueError, RuntimeError)):
                module(torch.ones(size))
        else:
            assert torch.equal(module(torch.ones(size)), expected)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_errors_inside_name_the_place(to: Any) -> None:
    """An error in an operator is noted with module, node, operator and the user's line."""
    ep = exported(Block(), torch.ones(2, 4))
    module = px.lower(px.transform(px.import_ep(ep)), to=to)
    module.down.weight = nn.Parameter(torch.ones(3, 3))  # type: ignore[union-attr]
    with pytest.raises(RuntimeError) as caught:
        module(torch.ones(2, 4))
    notes = "\n".join(caught.value.__notes__)
    assert "while running down / linear (aten.linear.default)" in notes
    assert "linear.py" in notes
    assert len(caught.value.__notes__) == 1
