"""A folder with a saved model, as the examples of the command line and of docs/command.md call its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import purefx as px
from purefx.__main__ import main
from tests.models import Tower, exported

Run = Callable[..., tuple[int, str, str]]


@px.rule
def soften(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


@soften.becomes
def _(m: px.Match, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three blocks: as a .pt2, flat, as a tree, and before and after a rule."""
    folder = tmp_path_factory.mktemp("files")
    ep = exported(Tower(3), torch.ones(2, 4))
    torch.export.save(ep, folder / "model.pt2")
    torch.save({"w": torch.ones(1)}, folder / "weights.pt")
    flat = px.import_ep(ep)
    tree = px.transform(flat)
    px.save(flat, folder / "flat.purefx")
    px.save(tree, folder / "model.purefx")
    px.save(tree, folder / "before.purefx")
    px.save(soften(tree), folder / "after.purefx")
    return folder


@pytest.fixture
def run(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return what runs the command line in a copy of that folder: its status, stdout and stderr."""
    monkeypatch.chdir(shutil.copytree(files, tmp_path / "copy"))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def ran(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([str(one) for one in arguments])
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return status, said.out, said.err

    return ran
