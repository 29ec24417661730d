"""``python -m tests.mutants FILES``: mutants of some files, and the share of them that the tests find."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from tests.mutants.report import read, report
from tests.mutants.tree import ROOT, TREE, make_tree

FILES = ("transforms", "ir/effects", "ir/analysis/digest.py", "lowering")


def main() -> int:
    """Return 0 if enough mutants of transforms/ are found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Run mutants, and say which ones no test finds."
    )
    parser.add_argument(
        "files", nargs="*", default=FILES, help="files or folders from the root of the repository"
    )
    parser.add_argument(
        "--budget", type=float, default=20, help="seconds of tests that a mutant may take"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the order in which mutants are asked"
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=0,
        help="how many mutants are asked, drawn by the seed; else all",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=(),
        help="tests that are asked; else those of the layers of the files",
    )
    chosen = parser.parse_args()
    (TREE / "asked.json").write_text(
        json.dumps({"files": make_tree(chosen.files), "tests": chosen.tests})
    )
    options = [
        str(option) for option in (chosen.budget, chosen.workers, chosen.seed, chosen.sample)
    ]
    command = [sys.executable, "-m", "tests.mutants.session", *options]
    # Plugins of other packages, ours too, would be imported before the copy can be; one thread, because it forks.
    alone = {
        "PYTHONPATH": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    subprocess.run(command, cwd=TREE, env={**os.environ, **alone}, check=True)
    return report(*read(TREE, ROOT))


if __name__ == "__main__":
    sys.exit(main())
