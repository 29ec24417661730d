"""Replay finds a result that is another one, and nothing where nothing changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import purefx as px
from tests import replay


@pytest.fixture(name="recorded")
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(replay, "AT_ONCE", {"toy": 3, "aten": 2})
    monkeypatch.setattr(replay, "ENTRIES", {key: entry for key, entry in replay.ENTRIES.items() if "sink_state" in key})
    counts = replay.record(tmp_path, 1)
    assert counts["results"] >= 8
    assert counts["not stored"] == 0
    return tmp_path


def test_nothing_changed(recorded: Path) -> None:
    assert list(replay.differences(recorded)) == []


def test_a_result_that_is_another_one_is_shown(recorded: Path) -> None:
    results = json.loads((recorded / "results.json").read_text())
    key, name = "sink_state at flat", next(name for name in results["sink_state at flat"] if name.endswith(".txt"))
    results[key][name] = str(px.parse((recorded / "programs" / name).read_text())).replace("toy.", "aten.", 1)
    (recorded / "results.json").write_text(json.dumps(results))
    (shown,) = replay.differences(recorded)
    assert shown.startswith(f"{key}, {name}:")
    assert "\n+" in shown
    assert "\n-" in shown
