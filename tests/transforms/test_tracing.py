"""Steps in torch's structured trace: what is written where somebody reads it, and that nothing is where nobody does."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir import torch_private
from tests.programs import Tower

TRACE = logging.getLogger("torch.__trace")


class Reader(logging.Handler):
    """Somebody who reads the trace."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: Any) -> None:
        self.records.append(record)

    @property
    def artifacts(self) -> dict[str, str]:
        return {record.metadata["artifact"]["name"]: record.payload for record in self.records if "artifact" in record.metadata}


@pytest.fixture
def reader() -> Iterator[Reader]:
    before = list(TRACE.handlers)
    found = Reader()
    TRACE.addHandler(found)
    yield found
    TRACE.removeHandler(found)
    for handler in before:  # torch's own goes with the first record if it has no folder
        TRACE.addHandler(handler)


def flat() -> px.Program:
    return px.capture(Tower(2), (torch.ones(2, 4),))


def test_each_step_is_an_artifact_and_reads_back(reader: Reader) -> None:
    program = flat()
    assert not reader.artifacts, "what is imported is written when it is transformed"
    result = px.transform(program)
    names = [f"purefx_{number}_{name}" for number, name in enumerate(["program", *[step.name for step in px.DEFAULT]])]
    assert list(reader.artifacts) == names
    assert reader.artifacts["purefx_0_program"] == program.text()
    assert px.parse(reader.artifacts["purefx_7_dispatch" if program is result else "purefx_6_deduplicate"]) == px.parse(
        result.text()
    )
    assert reader.artifacts["purefx_7_dispatch"] == "nothing to do\n"
    steps = {step.name: step.before for step in result.trail}
    assert reader.artifacts["purefx_4_insert_ivals"] in {"nothing to do\n", steps["outline"].text()}


def test_names_of_steps_are_words(reader: Reader) -> None:
    def same(program: px.Program) -> px.Program:
        return program

    for name in ("../../etc/passwd", "\x1b[2J", "a b\n", "<script>", "é\ud800", "x" * 10**6, ""):
        same.__name__ = name
        px.transform(flat(), same)
    assert all(name.isascii() and name.replace("_", "a").isalnum() and len(name) < 80 for name in reader.artifacts)


def test_a_step_that_fails_leaves_those_before_it(reader: Reader) -> None:
    def broken(program: px.Program) -> px.Program:
        return program.evolve(root="nowhere")

    with pytest.raises(px.errors.InvalidProgram):
        px.transform(flat(), px.sink_state, broken)
    assert list(reader.artifacts) == ["purefx_0_program", "purefx_1_sink_state"]


def test_nothing_is_written_and_nothing_is_installed_where_nobody_reads() -> None:
    program = flat()
    before, level = list(TRACE.handlers), TRACE.level
    torch_private.write_artifact("x", lambda: pytest.fail("nobody reads it"))
    px.transform(program)
    assert (TRACE.handlers, TRACE.level) == (before, level)


@pytest.mark.slow
def test_tlparse_lists_the_steps(tmp_path: Path) -> None:
    tlparse = shutil.which("tlparse", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if tlparse is None:
        pytest.skip("no tlparse: pip install tlparse")
    code = "import torch, purefx as px; px.transform(px.capture(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),)))"
    trace = tmp_path / "trace"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TORCH_TRACE": str(trace)}, check=True)
    (log,) = trace.iterdir()
    subprocess.run([tlparse, str(log), "-o", str(tmp_path / "out"), "--no-browser", "--strict"], check=True, capture_output=True)
    index = (tmp_path / "out" / "index.html").read_text("utf-8")
    for number, step in enumerate(px.DEFAULT, 1):
        assert f"purefx_{number}_{step.name}" in index
    (outlined,) = (tmp_path / "out").rglob("purefx_5_outline_*.txt")
    assert "call @" in outlined.read_text("utf-8")
