"""Transformations, import, digests and text give the same in processes with different hash seeds.

The programs are drawn here and handed over as text, so only what the transformations do can differ; one process for
each seed runs all of them on all programs, imports a model and prints what holds sets and maps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from purefx.laws.tiers import share
from tests.laws.registry import REGISTRY
from tests.programs import drawn

EXAMPLES = min(share(5), 20)  # one process does all of them

SEEDS = ("1", "2")

ROOT = Path(__file__).parents[2]

SCRIPT = """
import hashlib, json, sys
import torch
import purefx as px
from tests.laws.registry import REGISTRY
from tests.programs import Shared, exported

transformations = {entry.transformation.name: entry.transformation for entry in REGISTRY}
jobs = json.load(open(sys.argv[1]))
found = {}
for name, texts in jobs.items():
    digest = hashlib.sha256()
    for text in texts:
        program = px.parse(text, allow={'aten._print.default'})
        try:
            result = transformations[name](program)
        except px.errors.UnsupportedProgram as error:
            digest.update(str(error).encode())
            continue
        for shown in (result, px.diff(program, result), px.digest(result), px.verify(result)):
            digest.update(str(shown).encode())
    found[name] = digest.hexdigest()
torch.manual_seed(0)
imported = px.transform(px.import_ep(exported(Shared(), torch.ones(3, 4))))
found["import"] = [px.digest(imported), imported.order, imported.text()]
bodies = {f"m.{i}": px.Graph((), ()) for i in range(20)}
calls = tuple(px.Node(f"c{i}", px.Call(px.Frame(f"m.{i}"), f"m.{i}")) for i in range(10))
printed = px.Program.of({**bodies, "": px.Graph((), calls)}, facts=frozenset(map(str, range(20)))).text()
assert printed.count("graph @") == 21
found["print"] = printed
print(json.dumps({"hash": hash("a"), "found": found}))
"""


def test_the_same_text_in_every_process(tmp_path: Path) -> None:
    jobs: dict[str, list[str]] = {}
    for entry in REGISTRY:
        texts = [program.text() for stage in entry.stages for program, _ in drawn(stage, EXAMPLES)]
        jobs.setdefault(entry.transformation.name, []).extend(texts)
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs), encoding="utf-8")
    running = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", SCRIPT, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in SEEDS
    ]
    first, second = (json.loads(process.communicate(timeout=250)[0]) for process in running)
    assert all(process.returncode == 0 for process in running)
    assert first["hash"] != second["hash"], "the seeds had no effect, so nothing was tested"
    assert [name for name in first["found"] if first["found"][name] != second["found"][name]] == []
    assert first["found"].keys() == {*jobs, "import", "print"}
