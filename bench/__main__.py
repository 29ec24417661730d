"""``python -m bench``: the tables of the README and of docs/performance.md, measured here and now.

One idea: one process, ours and the peers in turn, results as ratios; ``--json FILE`` keeps them.
"""

from __future__ import annotations

import argparse
import gc
import json
import warnings
from pathlib import Path
from typing import Any

import torch

from bench import device, forward, growth, limits, making, memory, plot, split
from bench.measure import exponent
from bench.workloads import DEFAULT, SLOW, workload

LIMITED = ("gpt-96", "llama", "flatseq-2000")

PARTS = ("making", "forward", "memory", "stages", "growth", "limits", "split", "device")


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="purefx against torch.export.unflatten, in one run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    parser.add_argument("--workloads", nargs="+", default=DEFAULT, help=f"what is made; besides the default {', '.join(SLOW)}")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="chain sizes, in nodes")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each candidate")
    parser.add_argument("--device", default="auto", help="where the part `device` runs; auto is CUDA or nothing")
    parser.add_argument("--alone", action="store_true", help="of making, only making: no forward and no looking")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--plot", help="draw nodes against time into this .svg or .png; needs what was made, and matplotlib")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, medians of {options.rounds} alternating rounds, collector on, one thread\n")
    figures = {part: RUN[part](options) for part in PARTS if part in options.parts}
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    if options.plot:
        plot.draw(figures, Path(options.plot))


def _making(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(making.HEADER)
    found: list[dict[str, Any]] = []
    for name in options.workloads:
        found.append(making.making(workload(name), options.rounds, alone=options.alone))
        print(making.line(found[-1]), flush=True)
        gc.collect()
    decoders = [figures for figures in found if figures["name"].startswith("gpt-") and figures["nodes"] > 1_000]
    if len(decoders) > 1:
        sizes = [figures["nodes"] for figures in decoders]
        slopes = {who: exponent(sizes, [figures["seconds"][who] for figures in decoders]) for who in ("ours", "torch")}
        print(f"growth over the decoders: ours size^{slopes['ours']:.2f}, torch size^{slopes['torch']:.2f}")
    return found


def _forward(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"\n{forward.HEADER}")
    found: list[dict[str, Any]] = []
    for load in (workload("gpt-32"), workload("llama"), forward.many_inputs(100)):
        found.append(forward.forward(load, 4 * options.rounds))  # milliseconds each: noise is larger
        print(forward.line(found[-1]), flush=True)
    return found


def _split(options: argparse.Namespace) -> dict[str, Any]:
    found = split.splitting(workload("gpt-64"), 200, options.rounds)
    print(f"\n{split.HEADER}\n{split.line(found)}")
    return found


RUN = {
    "making": _making,
    "forward": _forward,
    "memory": lambda _: memory.memory(workload("gpt-96")),
    "stages": lambda options: growth.stages(workload("gpt-96"), options.rounds),
    "growth": lambda options: growth.growth(options.sizes, options.rounds),
    "limits": lambda options: {name: limits.limits(workload(name), options.rounds) for name in LIMITED},
    "device": lambda options: device.devices(options.device, options.rounds),
    "split": _split,
}

if __name__ == "__main__":
    main()
