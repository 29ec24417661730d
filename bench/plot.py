"""Nodes against time, both on logarithmic axes: ours, the peer's and the floor.

The plot is drawn from the figures of the tables; nothing is measured here.  It needs matplotlib, the extra ``bench``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.measure import exponent

__all__ = ["draw"]

WHO = {
    "ours": ("purefx", "o", "#1b6ca8"),
    "torch": ("torch.export.unflatten", "s", "#b5533c"),
    "floor": ("floor", ".", "#888888"),
}


def draw(figures: dict[str, Any], path: Path) -> None:
    """Draw what was made, and the chains built without the exporter, and write the picture.

    Args:
        figures: of the parts ``making`` and ``growth``, either may be missing.
        path: where to; the suffix chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
    """
    picture = importlib.import_module("matplotlib.figure").Figure(
        figsize=(8, 5), layout="constrained"
    )
    axes = picture.add_subplot(xscale="log", yscale="log", xlabel="nodes", ylabel="milliseconds")
    made = figures.get("making", [])
    for who, (label, marker, colour) in WHO.items():
        line = sorted(
            (row["nodes"], row["seconds"][who]) for row in made if row["name"].startswith("gpt-")
        )
        others = [
            (row["nodes"], row["seconds"][who])
            for row in made
            if not row["name"].startswith("gpt-")
        ]
        label = (
            f"{label}, size^{exponent([n for n, _ in line], [s for _, s in line]):.2f}"
            if len(line) > 1
            else label
        )
        axes.plot(
            [n for n, _ in line],
            [s * 1e3 for _, s in line],
            marker=marker,
            color=colour,
            label=label,
        )
        axes.plot(
            [n for n, _ in others], [s * 1e3 for _, s in others], marker, color=colour, alpha=0.4
        )
    if "growth" in figures:
        chains = figures["growth"]
        total = [(a + b) * 1e3 for a, b in zip(chains["transform"], chains["lower"], strict=True)]
        axes.plot(
            chains["sizes"],
            total,
            "^--",
            color=WHO["ours"][2],
            label="purefx: transform and lower a chain",
        )
    axes.set_title("making a module hierarchy (lines: decoders; points: other workloads)")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    picture.savefig(path)
