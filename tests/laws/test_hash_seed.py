"""Every transformation gives the same text in processes with different hash seeds.

One idea: the programs are drawn here and handed over as text, so only what the transformations do can differ; one process for
each seed runs all of them on all programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from purefx.laws.checking import drawn
from purefx.laws.registry import REGISTRY

EXAMPLES = 40

SEEDS = ("1", "2")

SCRIPT = """
import hashlib, json, sys
import purefx as px
from purefx.laws.registry import REGISTRY

transformations = {entry.transformation.name: entry.transformation for entry in REGISTRY}
jobs = json.load(open(sys.argv[1]))
found = {}
for name, texts in jobs.items():
    digest = hashlib.sha256()
    for text in texts:
        program = px.parse(text)
        try:
            result = transformations[name](program)
        except px.UnsupportedProgram as error:
            digest.update(str(error).encode())
            continue
        for shown in (result, px.diff(program, result), px.digest(result), px.verify(result)):
            digest.update(str(shown).encode())
    found[name] = digest.hexdigest()
print(json.dumps({"hash": hash("a"), "found": found}))
"""


def test_the_same_text_in_every_process(tmp_path: Path) -> None:
    jobs = {
        entry.transformation.name: [str(program) for stage in entry.stages for program, _ in drawn(stage, EXAMPLES)]
        for entry in REGISTRY
    }
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs), encoding="utf-8")
    running = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", SCRIPT, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in SEEDS
    ]
    first, second = (json.loads(process.communicate(timeout=250)[0]) for process in running)
    assert all(process.returncode == 0 for process in running)
    assert first["hash"] != second["hash"], "the seeds had no effect, so nothing was tested"
    assert [name for name in jobs if first["found"][name] != second["found"][name]] == []
