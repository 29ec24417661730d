"""Which releases of torch and Python purefx supports: said in several places, and another torch is warned of once."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from purefx.ir.torch_private import SUPPORTED, check_release
from tests.versions import ROWS

ROOT = Path(__file__).parents[2]


def test_all_places_name_the_same_releases() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (oldest, newest), readme = SUPPORTED, (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"torch>=2.{oldest[1]},<2.{newest[1] + 1}" in project["dependencies"]
    assert f"torch 2.{oldest[1]} to 2.{newest[1]}" in readme
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert (
        project["requires-python"] == f">={pythons[0]}, <3.{int(pythons[-1].partition('.')[2]) + 1}"
    )
    assert f"Python {pythons[0]} to {pythons[-1]}" in readme
    assert {row.torch.rpartition(".")[0] for row in ROWS} == {
        f"2.{minor}" for minor in range(oldest[1], newest[1] + 1)
    }
    assert {row.python for row in ROWS} == set(pythons)


@pytest.mark.parametrize("version", ["2.12.1", "2.16.0a0+git1234", "3.0.0"])
def test_another_torch_is_warned_of(version: str) -> None:
    with pytest.warns(
        UserWarning,
        match=f"supports torch 2.13 to 2.15 and is not .* torch {re.escape(version)}; .*pip install",
    ):
        check_release(version)


def test_the_warning_comes_once_and_before_anything_else() -> None:
    """With the first import that needs torch, whichever name that is."""
    code = "import torch; torch.__version__ = '2.12.1'; import purefx as px; px.import_ep, px.lower, px.errors, px.declare"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("UserWarning") == 1
