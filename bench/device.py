"""Running on a device, CUDA where there is one: forward, ``torch.compile`` of what was made, capture as a CUDA graph.

The same four ways to run one model are timed alternately, each after the device has synchronised; what a device does not
support (graph capture on a CPU) is reported as such.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

import purefx as px
from bench.measure import alternate
from bench.workloads import Workload, workload
from purefx.ir.torch_private import pytree

__all__ = ["devices"]

HEADER = (
    f"{'device':<8} {'model':<12} {'eager us':>9} {'ours':>6} {'compiled ours':>13} {'CUDA graph':>10}"
    f"   {'compile, s: ours':>16} {'torch':>6} {'eager':>6}  equal"
)


def devices(name: str, rounds: int) -> list[dict[str, Any]]:
    """Time gpt-8, gpt-32 and a block of a Llama on a device, and print a line for each.

    Args:
        name: of the device; ``"auto"`` is CUDA where it is at hand, and nothing is timed where it is not.
        rounds: of timing, ten calls each.
    """
    if name == "auto" and not torch.cuda.is_available():
        print("\nno CUDA device is at hand; --device cpu runs this part on the CPU")
        return []
    device = torch.device("cuda" if name == "auto" else name)
    print(f"\n{HEADER}")
    _compiled(
        nn.Linear(2, 2).to(device), (torch.ones(1, 2, device=device),), {}, device
    )  # what torch.compile itself needs once
    found: list[dict[str, Any]] = []
    for load in (workload("gpt-8"), workload("gpt-32"), _llama_block()):
        found.append(_on_device(load, device, rounds))
        print(line(found[-1]), flush=True)
    return found


def _llama_block() -> Workload:
    config = transformers.LlamaConfig(
        vocab_size=1_024, hidden_size=512, intermediate_size=1_376, num_attention_heads=8, num_key_value_heads=2,
        num_hidden_layers=1, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    kwargs = {"input_ids": torch.arange(256).reshape(2, 128)}
    return Workload(
        "llama block", model, (), kwargs, torch.export.export(copy.deepcopy(model), (), kwargs)
    )


@torch.no_grad()
def _on_device(load: Workload, device: torch.device, rounds: int) -> dict[str, Any]:
    args = tuple(value.to(device) for value in load.args)
    kwargs = {key: value.to(device) for key, value in load.kwargs.items()}
    eager = copy.deepcopy(load.model).to(device)
    ours = px.lower(px.transform(px.import_ep(load.ep)), device=device)
    expected = _leaves(eager(*args, **kwargs))
    equal = _same(expected, _leaves(ours(*args, **kwargs)))
    compiled, seconds = _compiled(ours, args, kwargs, device)
    captured = _captured(ours, args, kwargs, expected) if device.type == "cuda" else None
    runs = {"eager": eager, "ours": ours, "compiled": compiled}
    candidates: dict[str, Callable[[], Any]] = {
        who: _finished(module, args, kwargs, device) for who, module in runs.items()
    }
    if captured is not None:
        candidates["graph"] = captured
    return {
        "name": load.name,
        "device": str(device),
        "seconds": alternate(candidates, rounds=rounds, calls=10),
        "equal": equal,
        "compile seconds": {"ours": seconds, **_compile_others(load, device, args, kwargs)},
    }


def _finished(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> Callable[[], None]:
    def run() -> None:
        module(*args, **kwargs)
        _wait(device)

    return run


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _compiled(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> tuple[Any, float]:
    # Without a graph break, or it raises; the seconds are those of the first call, and no kernel comes from a cache.
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True)
    config: Any = torch.compiler.config
    with config.patch(force_disable_caches=True):
        start = time.perf_counter()
        compiled(*args, **kwargs)
        _wait(device)
    return compiled, time.perf_counter() - start


def _compile_others(
    load: Workload, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, float]:
    found: dict[str, float] = {}
    peers: dict[str, Callable[[], nn.Module]] = {
        "torch": lambda: torch.export.unflatten(load.ep),
        "eager": lambda: copy.deepcopy(load.model),
    }
    for who, make in peers.items():
        try:
            found[who] = _compiled(make().to(device), args, kwargs, device)[1]
        except Exception as error:  # what the peer cannot do is a figure too
            print(
                f"torch.compile of {who}: {type(error).__name__}: {str(error).strip().splitlines()[0][:90]}"
            )
            found[who] = math.nan
    return found


def _captured(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], expected: list[torch.Tensor]
) -> Callable[[], None]:
    # Capture raises where something on the path synchronises; the replay is compared with eager.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*args, **kwargs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(*args, **kwargs)
    graph.replay()
    torch.cuda.synchronize()
    if not _same(expected, _leaves(result)):
        raise AssertionError("the replayed CUDA graph gives something else than eager")

    def run() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return run


def _leaves(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _same(expected: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    return len(expected) == len(given) and all(map(torch.equal, expected, given))


def line(figures: dict[str, Any]) -> str:
    """Return the line of the table for one model."""
    times, compile_ = figures["seconds"], figures["compile seconds"]
    eager = times["eager"]
    graph = f"{times['graph'] / eager:.2f}x" if "graph" in times else "-"
    return (
        f"{figures['device']:<8} {figures['name']:<12} {eager * 1e6:>9.0f} {times['ours'] / eager:>5.2f}x "
        f"{times['compiled'] / eager:>12.2f}x {graph:>10}   {compile_['ours']:>16.1f} {compile_['torch']:>6.1f} "
        f"{compile_['eager']:>6.1f}  {figures['equal']}"
    )
