"""Transformations, import, digests and text give the same in processes with different hash seeds.

The programs are drawn here and handed over as text, so only what the transformations do can differ; this process and another
one run all of them on all programs, import a model and print what holds sets and maps.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import purefx as px
from purefx.laws.tiers import share
from tests.laws.registry import REGISTRY
from tests.models import Shared, drawn, exported

EXAMPLES = min(share(2), 16)  # one process does all of them

SEED = "1"

ROOT = Path(__file__).parents[2]


def found(jobs: dict[str, list[str]]) -> dict[str, Any]:
    """Return what transformations make of programs, what is imported and printed, and a hash."""
    transformations = {entry.transformation.name: entry.transformation for entry in REGISTRY}
    known: dict[str, Any] = {"hash": hash("a")}
    for name, texts in jobs.items():
        digest = hashlib.sha256()
        for text in texts:
            program = px.parse(text, allow={"aten._print.default"})
            try:
                result = transformations[name](program)
            except px.errors.UnsupportedProgram as error:
                digest.update(str(error).encode())
                continue
            for shown in (result, px.diff(program, result), px.digest(result), px.verify(result)):
                digest.update(str(shown).encode())
        known[name] = digest.hexdigest()
    torch.manual_seed(0)
    imported = px.transform(px.import_ep(exported(Shared(), torch.ones(3, 4))))
    known["import"] = [px.digest(imported), list(imported.order), imported.text()]
    bodies = {f"m.{i}": px.Graph((), ()) for i in range(20)}
    calls = tuple(px.Node(f"c{i}", px.Call(px.Frame(f"m.{i}"), f"m.{i}")) for i in range(10))
    known["print"] = px.Program.of(
        {**bodies, "": px.Graph((), calls)}, facts=frozenset(map(str, range(20)))
    ).text()
    return known


SCRIPT = """
import json, sys
from tests.laws.test_hash_seed import found
print(json.dumps(found(json.load(open(sys.argv[1])))))
"""


def test_the_same_text_in_every_process(tmp_path: Path) -> None:
    jobs: dict[str, list[str]] = {}
    for entry in REGISTRY:
        texts = [program.text() for stage in entry.stages for program, _ in drawn(stage, EXAMPLES)]
        jobs.setdefault(entry.transformation.name, []).extend(texts)
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs), encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", SCRIPT, str(path)],
        env={**os.environ, "PYTHONHASHSEED": SEED, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    here = found(jobs)
    there = json.loads(running.communicate(timeout=250)[0])
    assert running.returncode == 0
    assert here.pop("hash") != there.pop("hash"), "the seeds had no effect, so nothing was tested"
    assert here["print"].count("graph @") == 21
    assert here.keys() == {*jobs, "import", "print"} == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
