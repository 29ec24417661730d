"""What importing takes: torch alone, the package after it, and the names of the main job when they are first asked for.

Fresh processes, one after another; processor time, minima, since a process that waits for the disk says nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys

__all__ = ["importing"]

CODE = """
import json, sys, time
times = [time.process_time()]
def done(): times.append(time.process_time())
import torch; done()
if len(sys.argv) > 1: torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
done()
import purefx as px; done()
px.import_ep, px.transform, px.lower; done()
for name in px._front.HOMES: getattr(px, name)
done()
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""

STEPS = (
    "import torch",
    "export a module",
    "import purefx",
    "import_ep, transform, lower",
    "all other names",
)


def importing(rounds: int) -> dict[str, dict[str, float]]:
    """Time fresh processes that import, with and without an export before, and print milliseconds.

    Args:
        rounds: how many processes of each kind; one more is not counted, which may have to compile files.
    """
    found = {
        "alone": [_asked() for _ in range(rounds + 1)][1:],
        "after an export": [_asked("export") for _ in range(rounds)],
    }
    minima: dict[str, dict[str, float]] = {
        how: dict(zip(STEPS, map(min, zip(*times, strict=True)), strict=True))
        for how, times in found.items()
    }
    print(f"\nimport, ms{'':<18}" + "".join(f"{how:>18}" for how in minima))
    for step in STEPS:
        print(f"{step:<28}" + "".join(f"{steps[step] * 1e3:>18.1f}" for steps in minima.values()))
    return minima


def _asked(*how: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, *how],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
