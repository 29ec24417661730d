"""Recurrent operators with dropout between their layers, run layer by layer: torch's decomposition (2.13) forgets the dropout.

Its condition on the number of the layer is never true, so what AOTAutograd traces would train without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["LayerByLayer"]

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")

REST = ("has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


class LayerByLayer(TorchFunctionMode):
    """Runs recurrent operators that drop something one layer after the other, with ``torch.dropout`` in between, as eager does.

    >>> layer, x = torch.nn.GRU(2, 2, num_layers=2, dropout=0.5), torch.ones(3, 1, 2)
    >>> seeds = [torch.manual_seed(0)]
    >>> eager = layer(x)[0]
    >>> seeds += [torch.manual_seed(0)]
    >>> with LayerByLayer():
    ...     torch.allclose(layer(x)[0], eager)
    True
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = MappingProxyType({})
    ) -> Any:
        """Call the function, or what it does."""
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in KINDS and func in _operators(name):
            packed = len(args) > 3 and isinstance(args[3], list | tuple)
            names = (*(("data", "batch_sizes") if packed else ("input",)), "hx", "params", *REST)
            given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            if given["train"] and given["dropout"] and given["num_layers"] > 1:
                return _layers(func, [given[name] for name in names if name in given], hx=names.index("hx"))
        return func(*args, **(kwargs or {}))


def _operators(name: str) -> tuple[Any, ...]:
    packet = getattr(torch.ops.aten, name)
    return getattr(torch, name), packet, packet.input, packet.data


def _layers(func: Any, given: Sequence[Any], hx: int) -> tuple[torch.Tensor, ...]:
    """Return what a recurrent operator gives.

    Args:
        func: the operator.
        given: its arguments, in order.
        hx: which of them is the hidden state; parameters, biases, layers, dropout and so on come behind it.
    """
    x, *sizes = given[:hx]
    state, params, biases, layers, dropout, train, both, *rest = given[hx:]
    states = state if isinstance(state, list | tuple) else [state]
    ways, each = 2 if both else 1, len(params) // layers
    found: list[tuple[torch.Tensor, ...]] = []
    for layer in range(layers):
        own = [part[layer * ways : (layer + 1) * ways] for part in states]
        weights = params[layer * each : (layer + 1) * each]
        x, *ends = func(x, *sizes, own if states is state else own[0], weights, biases, 1, 0.0, train, both, *rest)
        found.append(tuple(ends))
        if layer < layers - 1:
            x = torch.dropout(x, dropout, train)
    return (x, *[torch.cat(ends) for ends in zip(*found, strict=True)])
