"""The pipeline example: real processes, over gloo on CPUs, give what eager gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples import pipeline

ROOT = Path(__file__).parents[2]


WORLDS = [
    (2, ["llama", "gemma2"]),
    pytest.param(3, [*pipeline.MODELS], marks=pytest.mark.deep),
]
"""Numbers of processes, with their models: three have a first, a middle and a last stage; two have no other."""


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize(("processes", "models"), WORLDS, ids=["two", "three"])
def test_processes_train_as_eager(processes: int, models: list[str]) -> None:
    """Llama, Qwen3 and Gemma2, which ties its embeddings; GPipe and 1F1B, forward and training."""
    works = f"works({models!r}, {processes}, {processes})"
    program = f"from examples.pipeline import start, works; print(start({processes}, {works}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "0", done.stdout + done.stderr
    assert f"{processes} processes over gloo" in lines
    told = [line for line in lines if "equal to eager bit for bit" in line]
    schedules, ranks = 2, processes * len(models)
    assert len(told) == schedules * (ranks + len(models)), (
        "each rank says what it trained, the last one also what it computed"
    )
    assert [line for line in told if "nearly" in line and "gemma2" not in line] == []


@pytest.mark.slow
@pytest.mark.models
def test_one_process_under_torchrun_has_several_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What torchrun says of a process is in its environment; two stages on one rank are an interleaved schedule."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        "RANK": 0,
        "LOCAL_RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_WORLD_SIZE": 1,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert pipeline.main(["--stages", "2", "--layers", "2"]) == 0
    assert (
        "llama, interleaved 1F1B, rank 0: training: 26 of 26 equal to eager bit for bit"
        in capsys.readouterr().out
    )


def test_it_says_how_to_start_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(SystemExit):
        pipeline.main([])
    assert "start it with torchrun --nproc-per-node 2" in capsys.readouterr().err


def test_a_difference_is_said() -> None:
    one = torch.ones(2)
    assert pipeline.told("forward", {"y": (one, one), "z": (one, one + 1)}) == [
        "forward: DIFFERENT: z"
    ]
    assert pipeline.told("training", {"w": (None, one)}) == ["training: DIFFERENT: w"]
    assert pipeline.told("training", {"w": (one, one + 1e-6)}) == ["training: DIFFERENT: w"]
    assert pipeline.told("training", {"w": (one, one + 1e-6)}, about={"w"})[0].endswith(
        "the others nearly"
    )
