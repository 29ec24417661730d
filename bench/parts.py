"""The parts of the benchmark, each a function of the options that prints its table and returns its figures.

Each part runs in a separate process, because the garbage collector would walk what an earlier part leaves in memory.
"""

from __future__ import annotations

import argparse
import gc
import warnings
from typing import Any

import torch

from bench import (
    device,
    edits,
    forward,
    growth,
    importing,
    limits,
    making,
    memory,
    rules,
    split,
    steps,
    training,
)
from bench.measure import exponent
from bench.workloads import workload

__all__ = ["PARTS", "run"]

CHAINS = (5_000, 10_000, 20_000)
"""Nodes of the chains that rules rewrite; each twentieth matches, so that it and its user are touched."""

LIMITED = ("gpt-96", "llama", "flatseq-2000", "shared-256")


def run(part: str, options: argparse.Namespace) -> Any:
    """Run one part with the options of ``python -m bench``, and return its figures."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return RUN[part](options)


def _making(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(making.HEADER)
    found: list[dict[str, Any]] = []
    for name in options.workloads:
        found.append(making.making(workload(name), options.rounds, alone=options.alone))
        print(making.line(found[-1]), flush=True)
        gc.collect()
    decoders = [
        figures
        for figures in found
        if figures["name"].startswith("gpt-") and figures["nodes"] > 1_000
    ]
    if len(decoders) > 1:
        sizes = [figures["nodes"] for figures in decoders]
        slopes = {
            who: exponent(sizes, [figures["seconds"][who] for figures in decoders])
            for who in ("ours", "torch")
        }
        print(
            f"growth over the decoders: ours size^{slopes['ours']:.2f}, torch size^{slopes['torch']:.2f}"
        )
    return found


def _forward(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"\n{forward.HEADER}")
    found: list[dict[str, Any]] = []
    for load in (workload("gpt-32"), workload("llama"), forward.many_inputs(100)):
        found.append(
            forward.forward(load, 4 * options.rounds)
        )  # milliseconds each: noise is larger
        print(forward.line(found[-1]), flush=True)
    return found


def _split(options: argparse.Namespace) -> dict[str, Any]:
    found = split.splitting(workload("gpt-64"), 200, options.rounds)
    print(f"\n{split.HEADER}\n{split.line(found)}")
    return found


def _rules(options: argparse.Namespace) -> dict[str, Any]:
    print(f"\n{rules.HEADER}")
    found: list[dict[str, Any]] = []
    for name, rule in (
        ("gpt-96", rules.activation()),
        ("gpt-96", rules.behind_linear("gelu")),
        ("llama", rules.behind_linear("silu")),
    ):
        found.append(rules.rules(workload(name), rule, options.rounds))
        print(rules.line(found[-1]), flush=True)
    for nodes in CHAINS:
        found.append(rules.chain_of_hits(nodes, nodes // 20, options.rounds))
        print(rules.line(found[-1]), flush=True)
    grown = exponent(list(CHAINS), [each["seconds"]["ours"] for each in found[-len(CHAINS) :]])
    print(
        f"chains: size^{grown:.2f}, {found[-1]['seconds']['ours'] * 1e6 / (2 * found[-1]['hits']):.0f} us a touched node"
    )
    return {"flat": found, "growth": grown, "layers": rules.layers([8, 32, 96], options.rounds)}


def _training(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"\n{training.HEADER}")
    found: list[dict[str, Any]] = []
    for name in ("gpt2-4", "llama-4", "llama-16"):
        rows = training.partitions(name, options.rounds)
        print("\n".join(map(training.line, rows)), flush=True)
        found += rows
    print(f"\n{steps.HEADER}")
    for name in ("gpt2-4", "llama-4"):
        rows = steps.steps(name, options.rounds)
        print("\n".join(map(steps.line, rows)), flush=True)
        found += rows
    return found


RUN = {
    "making": _making,
    "forward": _forward,
    "memory": lambda _: memory.memory(workload("gpt-96")),
    "stages": lambda options: growth.stages(workload("gpt-96"), options.rounds),
    "growth": lambda options: growth.growth(options.sizes, options.rounds),
    "limits": lambda options: {
        name: limits.limits(workload(name), options.rounds) for name in LIMITED
    },
    "import": lambda options: importing.importing(options.rounds),
    "device": lambda options: device.devices(options.device, options.rounds),
    "split": _split,
    "rules": _rules,
    "training": _training,
    "edits": lambda options: edits.edits(options.bodies, options.variants, options.rounds),
}

PARTS = tuple(RUN)
