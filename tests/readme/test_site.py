"""The site (``make docs``): every page is in its contents, every public name in its reference, and what is broken fails."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import purefx
from purefx import errors, ir, laws, rules, training
from purefx._front import HOMES

ROOT = Path(__file__).parents[2]

DOCS = ROOT / "docs"

NEEDS_SPHINX = pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None, reason="needs the extra docs"
)


def contents(page: Path) -> list[Path]:
    """Return the pages that the contents of a page list."""
    entries: list[Path] = []
    for block in re.findall(
        r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            name = line.rstrip(">").rpartition("<")[2]
            if name and not line.startswith(":"):
                found = sorted(page.parent.glob(f"{name}.md"))
                assert found, f"{page.name} lists {name}"
                entries += [each.resolve() for each in found]
    return entries


def described() -> Counter[str]:
    """Return the names that the pages of the reference describe."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    return Counter(re.findall(r"^\.\. auto\w+:: (\S+)$", text, re.MULTILINE))


def sphinx(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Sphinx with the settings of the site, warnings as errors."""
    # It makes a million objects and leaves no garbage.
    run = "import gc, runpy; gc.disable(); runpy.run_module('sphinx', run_name='__main__', alter_sys=True)"
    command = [
        sys.executable,
        "-c",
        run,
        "-q",
        "-W",
        "--keep-going",
        "-E",
        "-c",
        str(DOCS / "site"),
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_every_page_is_in_the_contents() -> None:
    listed = {*contents(DOCS / "index.md"), *contents(DOCS / "api" / "index.md")}
    assert set(DOCS.glob("**/*.md")) - listed == {DOCS / "index.md"}


def test_every_public_name_is_described_once() -> None:
    names = described()
    assert [name for name, count in names.items() if count > 1] == []
    homes = {
        "purefx": purefx, "purefx.errors": errors, "purefx.rules": rules, "purefx.training": training, "purefx.laws": laws,
        "purefx.ir": ir,
    }  # fmt: skip
    values = [
        (f"{path}.{name}", getattr(home, name))
        for path, home in homes.items()
        for name in home.__all__ or HOMES
    ]
    there = {id(value) for name, value in values if name in names}
    assert [name for name, value in values if id(value) not in there] == [], (
        "a public name has a line in docs/api"
    )
    moved = {name for name in names if name.count(".") == 1} - {name for name, _ in values}
    assert moved == set(), "docs/api describes what the front door does not have"


@NEEDS_SPHINX
@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    made = sphinx(
        "-b", "dummy", "-d", str(tmp_path / "doctrees"), str(ROOT), str(tmp_path / "site")
    )
    assert made.stderr == ""
    assert made.returncode == 0
