"""Steps in torch's structured trace: what is written where somebody reads it, and that nothing is where nobody does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    assert reader.artifacts["purefx_0_program"] == str(program)
    assert px.parse(reader.artifacts["purefx_7_dispatch" if program is result else "purefx_6_deduplicate"]) == px.parse(
        str(result)
    )
    assert reader.artifacts["purefx_7_dispatch"] == "nothing to do\n"
    steps = {step.name: step.before for step in result.trail}
    assert reader.artifacts["purefx_4_insert_ivals"] in {"nothing to do\n", str(steps["outline"])}


def test_nothing_is_written_and_nothing_is_installed_where_nobody_reads() -> None:
    program = flat()
    before, level = list(TRACE.handlers), TRACE.level
    torch_private.write_artifact("x", lambda: pytest.fail("nobody reads it"))
    px.transform(program)
    assert (TRACE.handlers, TRACE.level) == (before, level)
