"""A program was said to be on the meta device while another thread ran an operator on the same fake mode.

Cause: ``FakeTensor.device`` says ``meta`` for every fake tensor of a mode while a kernel of that mode runs, on any thread.
Now ``device_of`` asks for the device that a fake tensor stands for, and a mode is only entered under the lock.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.torch_private import FakeTensor

WAITING, GO_ON = threading.Event(), threading.Event()


def _kernel(x: torch.Tensor) -> torch.Tensor:
    WAITING.set()
    assert GO_ON.wait(60)
    return torch.empty_like(x)


LIBRARY = torch.library.Library("purefx_waiting", "DEF")


LIBRARY.define("waits(Tensor x) -> Tensor")
LIBRARY.impl("waits", _kernel, "Meta")


@contextmanager
def another_thread_runs(value: FakeTensor) -> Generator[None]:
    """Within the block, another thread is inside a kernel that computes what an operator gives for a fake value."""
    WAITING.clear()
    GO_ON.clear()

    def run() -> None:
        with value.fake_mode:
            torch.ops.purefx_waiting.waits(value)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert WAITING.wait(60)
        yield
    finally:
        GO_ON.set()
        thread.join()


def exported() -> Any:
    return torch.export.export(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)), (torch.ones(2, 4),)
    )


def saved(program: px.Program) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        px.save(program, Path(folder) / "program.purefx")
        return (Path(folder) / "program.purefx").read_bytes()


READERS: list[Callable[[Any], Any]] = [
    px.import_ep,
    lambda ep: px.transform(px.import_ep(ep)),
    lambda ep: px.deduplicate(px.outline(px.import_ep(ep))),
    lambda ep: saved(px.import_ep(ep)),
    lambda ep: px.verify(px.import_ep(ep)),
    lambda ep: px.eliminate_common_subexpressions(px.import_ep(ep)),
    lambda ep: px.to_device(px.import_ep(ep), "meta"),
    lambda ep: px.import_ep(ep).text(),
]


def test_a_fake_tensor_says_meta_while_another_thread_runs() -> None:
    value = next(node.meta["val"] for node in exported().graph.nodes if "val" in node.meta)
    with another_thread_runs(value):
        assert value.device.type == "meta", "torch says the device now: device_of need not"
    assert value.device.type == "cpu"


@pytest.mark.parametrize("number", range(len(READERS)))
def test_a_program_is_read_as_it_is(number: int) -> None:
    read, ep = READERS[number], exported()
    expected = read(ep)
    value = next(node.meta["val"] for node in ep.graph.nodes if "val" in node.meta)
    with another_thread_runs(value):
        found = read(ep)
    assert found == expected
