"""The main job on a real model: ``make demo``, or ``python -m examples.demo --layers 32``.

One run shows the flat program and the restored hierarchy, checks that it computes what eager computes, and compares the time
with ``torch.export.unflatten``.  The width is small, the depth is real, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

import purefx as px
from examples.zoo import Example, llama
from purefx.laws import behaviour_differences, gradient_differences, structure_differences

ROUNDS = 3
"""How often each side is timed, in turns."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: those of the command line, without the program's name.

    Returns:
        The exit status: 0 when the module that came back is the same as eager.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description="Llama: exported, imported, lowered, compared."
    )
    parser.add_argument(
        "--layers", type=int, default=32, help="decoder layers (default: 32, as published)"
    )
    layers: int = parser.parse_args(arguments).layers
    torch.set_num_threads(1)
    warnings.filterwarnings(
        "ignore", message=".*LeafSpec", category=FutureWarning
    )  # torch copies its own specs
    return show(llama(layers), layers)


def show(example: Example, layers: int) -> int:
    """Export a model, bring its hierarchy back, and say what happened; return the exit status."""
    model = example.build()
    say(
        f"Llama with {layers} layers, {count(model.parameters())} parameters, {sum(1 for _ in model.modules())} modules"
    )
    start = time.perf_counter()
    ep = example.export(model)
    say(
        f"  torch.export.export        {seconds(start)}   {len(ep.graph.nodes):6} fx nodes in one list"
    )
    flat = px.import_ep(ep)
    program = px.transform(flat)
    module = px.lower(program)
    bodies = [name for name in program.order if name != program.root]
    say("\npx.lower(px.transform(px.import_ep(ep)))")
    say(
        f"  flat program               {len(flat.main.nodes):6} operators, {len(flat.state)} pieces of state"
    )
    say(
        f"  hierarchy                  {sum(1 for _ in module.modules()):6} modules, {len(bodies)} distinct bodies"
    )
    say("\n".join(["", *tree(module), ""]))
    same = compare(module, model, example)
    race(ep)
    return 0 if same else 1


def compare(module: torch.nn.Module, model: torch.nn.Module, example: Example) -> bool:
    """Compare with eager in all that a user can see, say it, and return whether it is the same."""
    calls = [example.inputs(seed) for seed in range(1, 4)]
    same = True
    for what, differences in (
        (
            "outputs of 3 calls, and state after them, bit by bit",
            behaviour_differences(module, model, calls),
        ),
        ("gradients of all parameters, bit by bit", gradient_differences(module, model, calls)),
        ("state_dict keys and order, ties, module tree", structure_differences(module, model)),
    ):
        same = same and not differences
        say(f"  {'equal to eager' if not differences else 'DIFFERENT':16} {what}")
        say(
            "\n".join(f"      {difference}" for difference in differences[:5]),
            end="\n" if differences else "",
        )
    return same


def race(ep: torch.export.ExportedProgram) -> None:
    """Time both ways, in turns, and say the medians."""
    ways: dict[str, Callable[[], object]] = {
        "purefx": lambda: px.lower(px.transform(px.import_ep(ep))),
        "torch.export.unflatten": lambda: torch.export.unflatten(ep),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            gc.collect()
            start = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    ours, theirs = medians.values()
    say(f"\nFrom the exported program to modules, median of {ROUNDS}, in turns")
    for name, median in medians.items():
        say(f"  {name:24} {median * 1e3:8.0f} ms")
    say(f"  {theirs / ours:.1f} times faster")


def tree(module: torch.nn.Module) -> list[str]:
    """Return the module tree as lines; neighbours that look alike are one line.

    >>> tree(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)))
    ['  Sequential', '  └─ 0-1  Linear  x2']
    """
    return [f"  {kind(module)}", *(f"  {line}" for line in _branches(module))]


def _branches(module: torch.nn.Module) -> Iterator[str]:
    runs: list[tuple[list[str], torch.nn.Module, list[str]]] = []
    for name, child in module.named_children():
        inner = list(_branches(child))
        if runs and name.isdigit() and kind(runs[-1][1]) == kind(child) and runs[-1][2] == inner:
            runs[-1][0].append(name)
        else:
            runs.append(([name], child, inner))
    for place, (names, child, inner) in enumerate(runs, 1):
        last = place == len(runs)
        name = names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
        times = f"  x{len(names)}" if len(names) > 1 else ""
        yield f"{'└─' if last else '├─'} {name}  {kind(child)}{times}"
        yield from ((("   " if last else "│  ") + line) for line in inner)


def kind(module: torch.nn.Module) -> str:
    """Return the class name of the original module."""
    told = (
        module.type_name()
        if isinstance(module, torch.fx.GraphModule) and hasattr(module, "type_name")
        else None
    )
    return str(told or type(module).__name__).rpartition(".")[2]


def count(tensors: Iterator[torch.nn.Parameter]) -> str:
    """Return how many numbers some tensors hold, with separators."""
    return f"{sum(tensor.numel() for tensor in tensors):,}"


def seconds(start: float) -> str:
    """Return the time since a start, for a column."""
    return f"{time.perf_counter() - start:6.1f} s"


def say(text: str, *, end: str = "\n") -> None:
    """Print at once: a demo that is piped should show where it is."""
    print(text, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
