"""Decompositions lose draws and writes silently: whatever draws or writes in training does the same in a joint program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import purefx as px

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:TF32 acceleration on top of oneDNN"
    ),  # torch, of the flag that the LSTM needs
    pytest.mark.filterwarnings(
        "ignore:The tensor attributes self.layer._flat_weights"
    ),  # torch.export, of recurrent layers
]


class Model(nn.Module):
    """A weight, and what is done behind it; ``inner`` is a module that it may use."""

    def __init__(
        self, behind: Callable[[Any, torch.Tensor], torch.Tensor], inner: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.inner = inner
        self.behind = behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.inner, x @ self.weight)


class Recurrent(nn.Module):
    """A recurrent layer whose hidden state counts too."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer = kind(4, 4, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, state = self.layer(x)
        states = state if isinstance(state, tuple) else (state,)
        return y * sum([part.sum() for part in states])


X2, X3, X4 = (
    torch.arange(float(torch.Size(size).numel())).reshape(size).sin()
    for size in ((4, 4), (2, 3, 4), (2, 4, 4, 4))
)
Case = tuple[Callable[[], nn.Module], torch.Tensor]

OPTIONS: dict[str, dict[str, Any]] = {
    "two layers": {"num_layers": 2},
    "both ways, batch first": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no bias": {"num_layers": 2, "bias": False},
}

RECURRENT: Mapping[str, Case] = {
    f"{kind.__name__}, {name}": (partial(Recurrent, kind, dropout=0.5, **options), X3)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for name, options in OPTIONS.items()
} | {
    "RNN, relu": (lambda: Recurrent(nn.RNN, num_layers=2, dropout=0.5, nonlinearity="relu"), X3),
    "LSTM, projected": (lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.5, proj_size=2), X3),
    "LSTM, no batch": (lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.5), X2),
    "LSTM, no dropout": (lambda: Recurrent(nn.LSTM, num_layers=2), X3),
}


def _of(
    behind: Callable[[Any, torch.Tensor], torch.Tensor],
    inner: Callable[[], nn.Module] | None = None,
) -> Callable[[], nn.Module]:
    return lambda: Model(behind, inner() if inner else None)


def _called(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module(x)


OTHERS: dict[str, Case] = {
    "dropout": (_of(lambda _, x: functional.dropout(x)), X2),
    "dropout in place": (_of(lambda _, x: functional.dropout(x, inplace=True)), X2),
    "alpha dropout": (_of(lambda _, x: functional.alpha_dropout(x, training=True)), X2),
    "feature alpha dropout": (
        _of(lambda _, x: functional.feature_alpha_dropout(x, training=True)),
        X4,
    ),
    "dropout of channels": (_of(lambda _, x: functional.dropout2d(x)), X4),
    "rrelu": (_of(lambda _, x: functional.rrelu(x, training=True)), X2),
    "fractional pool": (
        _of(lambda _, x: functional.fractional_max_pool2d(x, 2, output_size=2)),
        X4,
    ),
    "gumbel": (_of(lambda _, x: functional.gumbel_softmax(x, hard=True)), X2),
    "bernoulli": (_of(lambda _, x: x * torch.bernoulli(torch.full((4, 4), 0.5))), X2),
    "multinomial": (_of(lambda _, x: x * torch.multinomial(x.detach().abs(), 2).sum()), X2),
    "drawn in place": (_of(lambda _, x: x + torch.empty(4, 4).normal_()), X2),
    "permutation": (_of(lambda _, x: x[torch.randperm(4)]), X2),
    "attention": (
        _of(lambda _, x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)),
        X4,
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.5), X3),
    "batch norm": (_of(_called, lambda: nn.BatchNorm2d(4)), X4),
    "instance norm": (_of(_called, lambda: nn.InstanceNorm2d(4, track_running_stats=True)), X4),
    "spectral norm": (
        _of(_called, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))),
        X2,
    ),
}


DEEP = tuple([f"{kind}, {name}" for kind in ("GRU", "LSTM") for name in list(OPTIONS)[1:]])
"""Options that an RNN has as well, of which there is least to trace: ``make test`` trains the others with two layers only."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.deep] if name in DEEP else [])
        for name in (*RECURRENT, *OTHERS)
    ],
)
def test_training_draws_and_writes_as_eager_does(name: str) -> None:
    make, x = (RECURRENT | OTHERS)[name]
    torch.manual_seed(0)
    eager = make().train()
    with torch.backends.mkldnn.flags(enabled=False):
        joint = px.training.capture_joint(copy.deepcopy(eager), (x,))
        _same_training(eager, px.training_module(joint), x)


def _same_training(eager: nn.Module, module: nn.Module, x: torch.Tensor) -> None:
    for call in range(2):
        torch.manual_seed(call)
        expected = eager(x)
        state = torch.get_rng_state()
        torch.manual_seed(call)
        given = module(x)
        assert torch.equal(torch.get_rng_state(), state)
        torch.testing.assert_close(given, expected)
        for result in (expected, given):
            (result * result).sum().backward()
    parameters = dict(module.named_parameters())
    for key, parameter in eager.named_parameters():
        torch.testing.assert_close(parameters[key].grad, parameter.grad, msg=key)
    torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))


def test_a_lowered_program_with_the_operator_of_an_export() -> None:
    torch.manual_seed(0)
    eager = Recurrent(nn.LSTM, num_layers=2, dropout=0.5).train()
    module = px.lower(px.capture(eager, (X3,)))
    with torch.backends.mkldnn.flags(enabled=False):
        _same_training(eager, px.training_module(px.training.capture_joint(module, (X3,))), X3)
