"""``python -m bench``: the tables of the README, measured here and now.

One idea: one process, ours and ``torch.export.unflatten`` in turn, results as ratios; ``--json FILE`` keeps them.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import purefx as px
from bench.measure import alternate, exponent
from bench.workloads import Decoder, chain


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="purefx against torch.export.unflatten, in one run")
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 32, 96], help="decoder sizes")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="chain sizes, in nodes")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each candidate")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, medians of {options.rounds} alternating rounds, collector on\n")
    print("decoder      nodes  modules  ours ms  torch ms   ratio  with first forward  equal to eager")
    figures = {
        "decoder": [decoder(layers, options.rounds) for layers in options.layers],
        "stages": stages(max(options.layers), options.rounds),
        "chain": growth(options.sizes, options.rounds),
    }
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")


def decoder(layers: int, rounds: int) -> dict[str, Any]:
    """Time the main job on a decoder, with and without the first forward."""
    model, args = Decoder(layers).eval(), Decoder.example()
    ep = torch.export.export(model, args)

    def ours() -> torch.nn.Module:
        return px.lower(px.transform(px.import_ep(ep)))

    same = torch.equal(ours()(*args), model(*args))
    times = alternate(
        {
            "ours": ours,
            "torch": lambda: torch.export.unflatten(ep),
            "ours, first forward": lambda: ours()(*args),
            "torch, first forward": lambda: torch.export.unflatten(ep)(*args),
        },
        rounds=rounds,
    )
    figures = {
        "layers": layers,
        "nodes": len(ep.graph.nodes),
        "modules": sum(1 for _ in model.modules()),
        "equal": same,
        "seconds": times,
        "ratio": times["torch"] / times["ours"],
        "ratio with the first forward": times["torch, first forward"] / times["ours, first forward"],
    }
    print(
        f"gpt-{layers:<6} {figures['nodes']:>7} {figures['modules']:>8} {times['ours'] * 1e3:>8.1f} {times['torch'] * 1e3:>9.1f} "
        f"{figures['ratio']:>6.1f}x {figures['ratio with the first forward']:>18.1f}x  {same}"
    )
    return figures


def stages(layers: int, rounds: int) -> dict[str, float]:
    """Time each stage of the main job beside the verification of its result."""
    ep = torch.export.export(Decoder(layers).eval(), Decoder.example())
    print(f"\nstages of gpt-{layers}               ms    verify its result, ms")
    found: dict[str, float] = {}
    program = px.import_ep(ep)
    found |= stage("read and verify (import_ep)", lambda: px.import_ep(ep), program, rounds)
    for step in px.DEFAULT:
        before, program = program, step(program)
        found |= stage(step.name, functools.partial(step, before), program, rounds)
    found |= stage("lower", functools.partial(px.lower, program), None, rounds)
    return found


def stage(name: str, run: Callable[[], Any], result: px.Program | None, rounds: int) -> dict[str, float]:
    """Time one stage and the verification of its result, and print both."""
    candidates: dict[str, Callable[[], Any]] = {name: run}
    if result is not None:
        candidates[f"verify after {name}"] = functools.partial(px.verify, result)
    times = alternate(candidates, rounds=rounds)
    print(f"{name:<28}" + "".join(f"{seconds * 1e3:>9.1f}" for seconds in times.values()))
    return times


def growth(sizes: list[int], rounds: int) -> dict[str, Any]:
    """Time transform and lower on chains of growing size, built without the exporter."""
    print("\nchain nodes   transform ms   us a node    lower ms   us a node")
    transforms: list[float] = []
    lowers: list[float] = []
    for size in sizes:
        flat = chain(size)
        program = px.transform(flat)
        candidates = {"transform": functools.partial(px.transform, flat), "lower": functools.partial(px.lower, program)}
        times = alternate(candidates, rounds=rounds)
        transforms.append(times["transform"])
        lowers.append(times["lower"])
        print(
            f"{size:>11} {times['transform'] * 1e3:>14.1f} {times['transform'] / size * 1e6:>11.2f} "
            f"{times['lower'] * 1e3:>11.1f} {times['lower'] / size * 1e6:>11.2f}"
        )
        gc.collect()
    slopes = {"transform": exponent(sizes, transforms), "lower": exponent(sizes, lowers)}
    print(f"growth: transform size^{slopes['transform']:.2f}, lower size^{slopes['lower']:.2f} (1 is linear)")
    return {"sizes": sizes, "transform": transforms, "lower": lowers, "exponents": slopes}


if __name__ == "__main__":
    main()
