"""The list of packages, the wheel and the pins agree with the folders."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import LAYERS, ROOT, project, sources


def packages(root: Path) -> list[str]:
    """Return the packages that the folders of the library hold, by the names under which they are installed."""
    found = [
        path.parent.relative_to(root).parts
        for layer in LAYERS
        for path in (root / layer).rglob("__init__.py")
    ]
    return sorted(
        ".".join(parts if parts[0] == "purefx" else ("purefx", *parts)) for parts in found
    )


DATA: dict[str, list[str]] = project()["tool"]["setuptools"]["package-data"]


def test_data_is_listed() -> None:
    held = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "purefx").rglob("*") if path.is_file()
    }
    listed = {f"{name.replace('.', '/')}/{file}" for name, files in DATA.items() for file in files}
    assert {path for path in held if not path.endswith((".py", ".pyc"))} == listed


def test_list_of_packages() -> None:
    assert sorted(project()["tool"]["setuptools"]["packages"]) == packages(ROOT)


def test_every_folder_is_mapped() -> None:
    places: dict[str, str] = project()["tool"]["setuptools"]["package-dir"]
    assert places == {layer if layer == "purefx" else f"purefx.{layer}": layer for layer in LAYERS}


def test_modules_are_in_packages() -> None:
    # A folder of modules without __init__.py would be left out of the wheel without a word.
    known = set(packages(ROOT))
    assert [source.path for source in sources(*LAYERS) if source.package not in known] == []


def test_pins() -> None:
    # A pin is exact, and every direct requirement has one.
    lines = [line.strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()]
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {name.lower().replace("_", "-") for name in pins}
    table = project()["project"]
    wanted = [*table["dependencies"], *project()["build-system"]["requires"]]
    wanted += [one for extra in table["optional-dependencies"].values() for one in extra]
    assert {re.split(r"[\[<>=! ]", one)[0].lower() for one in wanted} <= pinned
    assert pins["torch"] == "2.13.0"


@pytest.mark.slow
def test_wheel(tmp_path: Path) -> None:
    for name in (*LAYERS, "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, tmp_path / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-qq",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "out",
        ".",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {
        f"{source.module.replace('.', '/')}.py"
        for source in sources(*LAYERS)
        if "__init__" not in source.path
    } | {f"{name.replace('.', '/')}/__init__.py" for name in packages(ROOT)} | {
        f"{name.replace('.', '/')}/{file}" for name, files in DATA.items() for file in files
    }
