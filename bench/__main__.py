"""``python -m bench``: measure and print the tables of docs/performance.md.

purefx and its peers run alternately in one process, and results are ratios; ``--json FILE`` saves them.  The measurements
themselves are in ``parts.py``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from bench import edits, plot
from bench.parts import PARTS, run
from bench.workloads import DEFAULT, SLOW


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="purefx against torch.export.unflatten, in one run"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    parser.add_argument(
        "--workloads",
        nargs="+",
        default=DEFAULT,
        help=f"what is made; besides the default {', '.join(SLOW)}",
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[1_000, 10_000, 100_000],
        help="chain sizes, in nodes",
    )
    parser.add_argument(
        "--bodies",
        type=int,
        nargs="+",
        default=list(edits.SIZES),
        help="trees of which one body is edited",
    )
    parser.add_argument(
        "--variants",
        type=int,
        default=10_000,
        help="how many versions of the first of them are searched",
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each candidate")
    parser.add_argument(
        "--device", default="auto", help="where the part `device` runs; auto is CUDA or nothing"
    )
    parser.add_argument(
        "--alone", action="store_true", help="of making, only making: no forward and no looking"
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument(
        "--plot",
        help="draw nodes against time into this .svg or .png; needs what was made, and matplotlib",
    )
    options = parser.parse_args()
    print(
        f"torch {torch.__version__}, medians of {options.rounds} alternating rounds, collector on, one thread\n",
        flush=True,
    )
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as processes:
        figures = {
            part: processes.submit(run, part, options).result()
            for part in PARTS
            if part in options.parts
        }
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    if options.plot:
        plot.draw(figures, Path(options.plot))


if __name__ == "__main__":
    main()
