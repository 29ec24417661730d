"""The workloads by name: a model, what it is called with, and its exported program.

A workload is exported on demand; the time of the exporter is not part of any figure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import nn

from bench.defects import Chain
from bench.models import Decoder, ResNet, Shared
from examples.zoo import by_name, gpt2_xl, llama

__all__ = ["DEFAULT", "SLOW", "Workload", "workload"]


@frozen
class Workload:
    """One exported model."""

    name: str
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    ep: torch.export.ExportedProgram


DEFAULT = (
    "gpt-2", "gpt-8", "gpt-32", "gpt-96", "shared-16", "shared-64", "shared-256", "shareddist-256", "flatseq-2000",
    "preserve-128", "preserve-512", "resnet-64", "bert", "qwen3", "llama", "gpt2_xl",
)  # fmt: skip

SLOW = ("gpt-256", "flatseq-10000")
"""Minutes each, most of them the peer's and the exporter's."""


def workload(name: str) -> Workload:
    """Return a workload by its name, exported now."""
    kind, _, number = name.partition("-")
    if not number.isdigit():
        example = {"llama": llama, "gpt2_xl": gpt2_xl}.get(name, lambda: by_name(name))()
        model = example.build()
        return Workload(name, model, *example.inputs(), example.export(model))
    model, args, options = KINDS[kind](int(number))
    ep = torch.export.export(model, args, **options)
    return Workload(name, model, args, {}, ep.run_decompositions({}) if options else ep)


def _flat(layers: int) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    return nn.Sequential(*[nn.Linear(2, 2) for _ in range(layers)]), (torch.randn(2, 2),), {}


def _preserved(layers: int) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    # Every child reads and writes one buffer of its parent, and has a preserved call signature; decomposed.
    preserve = tuple(f"layers.{number}" for number in range(layers))
    return Chain(layers), (torch.ones(2, 3),), {"preserve_module_call_signature": preserve}


KINDS: dict[str, Callable[[int], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]] = {
    "gpt": lambda layers: (Decoder(layers).eval(), Decoder.example(), {}),
    "shared": lambda times: (Shared(times).eval(), Shared.example(), {}),
    "shareddist": lambda times: (Shared(times, distinct=True).eval(), Shared.example(), {}),
    "flatseq": _flat,
    "preserve": _preserved,
    "resnet": lambda blocks: (ResNet(blocks).train(), (torch.randn(2, 4, 8, 8),), {}),
}
