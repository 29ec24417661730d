"""Files that the documentation cites exist, and so do the pages and headings that it links to, and the names of purefx.

In prose a path stands between backticks and begins with a folder of the repository, so a file that moves takes its
mentions along; a name begins with ``px.``.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import purefx

ROOT = Path(__file__).parents[2]

PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs")
    for page in folder.glob("**/*.md" if folder != ROOT else "*.md")
)

FOLDERS = "ir|transforms|lowering|laws|purefx|tests|bench|examples|docs"

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

CITED = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)(?:::\w+)?`")

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def missing(page: Path, text: str) -> Iterator[str]:
    """Iterate over what a page cites or links to and is not there."""
    prose = FENCED.sub("", text)
    for path in CITED.findall(prose):
        if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists():
            yield path
    for link in LINK.findall(prose):
        name, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / name
        if name and not target.exists():
            yield link
            continue
        there = (
            anchors(target.read_text(encoding="utf-8") if name else text) if heading else set[str]()
        )
        if heading and heading not in there:
            yield link


def unknown(text: str) -> Iterator[str]:
    """Iterate over the names of purefx in the prose of a page that are not there, or have moved."""
    for code in re.findall(r"`([^`\n]+)`", FENCED.sub("", text)):
        for path in re.findall(r"\bpx((?:\.[A-Za-z_]\w*)+)", code):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    reduce(part_of, path[1:].split("."), purefx)
                except (AttributeError, ImportError, DeprecationWarning):
                    yield f"px{path}"


def part_of(home: Any, name: str) -> Any:
    """Return an attribute of a value, or a module in a package."""
    return (
        getattr(home, name)
        if hasattr(home, name)
        else importlib.import_module(f"{home.__name__}.{name}")
    )


def anchors(text: str) -> set[str]:
    """Return what the headings of a page are called in links to them."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_cites_exists(page: Path) -> None:
    if page.name != "CHANGELOG.md":  # it tells of files as they were
        assert list(missing(page, page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_that_a_page_says_are_there(page: Path) -> None:
    if page.name != "CHANGELOG.md":  # it tells of names as they were
        assert list(unknown(page.read_text(encoding="utf-8"))) == []


def test_policies_in_the_page_on_training_are_there() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    calls = re.findall(r"^\| `(\w+)\(", text, re.MULTILINE)
    assert {"save_all", "budget"} <= {*calls}
    assert [name for name in calls if not hasattr(purefx.training, name)] == []
