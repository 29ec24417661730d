"""What the tests of lowered modules as users treat them share: models, and the programs that they are exported to."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import purefx as px
from tests.models import Block, exported

FORMS = ("plain", "decomposed", "strict", "dynamic", "strict dynamic", "decomposed dynamic")
"""How a model may have been exported."""
KINDS = ("graph_module", "interpreter")


class Mixed(nn.Module):
    """Blocks, batch norm called twice, tied weights, a constant, a buffer that counts, keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()
        self.second.up.weight = self.first.up.weight
        self.norm = nn.BatchNorm1d(4)
        self.shift = torch.full((4,), 0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        x = self.norm(self.first(x)) + self.shift
        return self.norm(self.second(x)) * scale + self.calls


def mixed_args(rows: int = 3) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments for ``Mixed``."""
    return (torch.randn(rows, 4),), {"scale": torch.randn(rows, 4)}


@functools.cache
def mixed(form: str) -> tuple[Mixed, Any]:
    """Return a model and its exported program in one of the forms, made once; the model is run on copies only."""
    torch.manual_seed(0)
    model = Mixed()
    args, kwargs = mixed_args()
    return model, export(model, form, args, kwargs)


def export(
    model: nn.Module, form: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> Any:
    """Export a deep copy of a model in one of the forms; the first dimension is dynamic where the form says so."""
    kwargs = kwargs or {}
    shapes: Any = None
    if "dynamic" in form:
        first = {0: torch.export.Dim.DYNAMIC}
        shapes = (
            [first for _ in args]
            if not kwargs
            else {**_named(model, args, first), **dict.fromkeys(kwargs, first)}
        )
    options: Any = {"dynamic_shapes": shapes, "strict": "strict" in form}
    return exported(model, *args, decomposed="decomposed" in form, kwargs=kwargs, **options)


def _named(model: nn.Module, args: tuple[Any, ...], first: Any) -> dict[str, Any]:
    return dict.fromkeys(model.forward.__code__.co_varnames[1 : 1 + len(args)], first)


def lowered(ep: Any, to: str = "graph_module", **options: Any) -> Any:
    """Return the lowered module after the default pipeline."""
    return px.lower(px.transform(px.import_ep(ep)), to=to, **options)  # type: ignore[arg-type]


def agree(
    module: Callable[..., Any],
    model: nn.Module,
    calls: Iterator[tuple[tuple[Any, ...], dict[str, Any]]] | Any,
) -> None:
    """Assert that three calls in a row and the state after them are eager's, to the last bit."""
    model = copy.deepcopy(model)
    for args, kwargs in calls:
        torch.testing.assert_close(module(*args, **kwargs), model(*args, **kwargs), rtol=0, atol=0)
    mine: Any = module
    if isinstance(mine, nn.Module):
        expected = model.state_dict()
        assert list(mine.state_dict()) == list(expected)
        for name, value in mine.state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def three(
    make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return three calls."""
    return [make() for _ in range(3)]
