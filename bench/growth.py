"""How time grows: each stage of the main job beside verification, and chains of growing size built without the exporter."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import purefx as px
from bench.chain import chain
from bench.edits import anew
from bench.measure import alternate, exponent
from bench.workloads import Workload
from purefx.transforms.pipeline import outlined_and_deduplicated

__all__ = ["growth", "stages"]


def stages(load: Workload, rounds: int) -> dict[str, float]:
    """Time each stage of the main job beside the verification of its result."""
    ep = load.ep
    print(f"\n{'stages of ' + load.name:<28}{'ms':>9}   verify its result, ms")
    found: dict[str, float] = {}
    program = px.import_ep(ep)
    found |= stage("read and verify (import_ep)", lambda: px.import_ep(ep), program, rounds)
    results = [program]
    for step in px.DEFAULT:
        results.append(step(results[-1]))
        found |= stage(step.name, functools.partial(step, results[-2]), results[-1], rounds)
    before = results[px.DEFAULT.index(px.outline)]
    found |= stage(
        "those two as transform does",
        functools.partial(outlined_and_deduplicated, before),
        None,
        rounds,
    )
    program = results[-1]
    found |= stage("lower", functools.partial(px.lower, program), None, rounds)
    return found


def stage(
    name: str, run: Callable[[], Any], result: px.Program | None, rounds: int
) -> dict[str, float]:
    """Time one stage and the verification of its result, and print both."""
    candidates: dict[str, Callable[[], Any]] = {name: run}
    if result is not None:
        candidates[f"verify after {name}"] = lambda: px.verify(anew(result))
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
        candidates = {
            "transform": functools.partial(px.transform, flat),
            "lower": functools.partial(px.lower, program),
        }
        times = alternate(candidates, rounds=rounds)
        transforms.append(times["transform"])
        lowers.append(times["lower"])
        print(
            f"{size:>11} {times['transform'] * 1e3:>14.1f} {times['transform'] / size * 1e6:>11.2f} "
            f"{times['lower'] * 1e3:>11.1f} {times['lower'] / size * 1e6:>11.2f}"
        )
        gc.collect()
    slopes = {"transform": exponent(sizes, transforms), "lower": exponent(sizes, lowers)}
    print(
        f"growth: transform size^{slopes['transform']:.2f}, lower size^{slopes['lower']:.2f} (1 is linear)"
    )
    return {"sizes": sizes, "transform": transforms, "lower": lowers, "exponents": slopes}
