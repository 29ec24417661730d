"""The page of ``report`` in a browser, by clicking: the tree, a node, search, two steps, a fragment, names that want to run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from tests.front.reports import PAYLOADS, hostile, soften
from tests.models import Tower

COMPARE = "document.getElementById('compare')"


EVERYTHING = """
const each = (selector, visit) => { for (const one of [...document.querySelectorAll(selector)]) visit(one); };
each(".fold", (one) => one.click());
each(".row", (one) => one.click());
each(".node", (one) => one.dispatchEvent(new MouseEvent("click", {bubbles: true})));
each("#search", (one) => { one.value = "toy"; one.dispatchEvent(new Event("input")); });
"""
"""Clicks whatever there is."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = soften(px.transform(px.capture(Tower(3), (torch.ones(2, 4),))))
    return px.report(program, tmp_path_factory.mktemp("page") / "tower.html")


class Page:
    """An open page: what a user sees and clicks."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser = browser
        browser.get_log("browser")
        browser.get("about:blank")
        browser.get(address)
        assert self.asks("return document.body.dataset.ready") == "yes"

    def asks(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        return "\n".join([each.text for each in self.all(selector)])

    def node(self, name: str) -> Any:
        (found,) = [
            each
            for each in self.all(".pane:last-child .node")
            if each.text.splitlines()[:1] == [name]
        ]
        return found

    def shown(self) -> list[str]:
        """Return the rows of the tree that can be seen."""
        return [
            each.text.strip("\u25b8\u25be ") for each in self.all(".row") if each.is_displayed()
        ]

    def row(self, text: str) -> Any:
        return next(each for each in self.all(".row") if each.is_displayed() and text in each.text)

    def fold(self, text: str) -> None:
        self.row(text).find_element("css selector", ".fold").click()

    def beside(self, step: int) -> None:
        """Choose what stands beside."""
        self.asks(f"{COMPARE}.value = '{step}'; {COMPARE}.dispatchEvent(new Event('change'))")

    def actions(self) -> Any:
        """Return a new chain of what a mouse does."""
        chains: Any = pytest.importorskip("selenium.webdriver")
        return chains.ActionChains(self.browser, duration=20)

    def complaints(self) -> list[str]:
        return [
            each["message"]
            for each in self.browser.get_log("browser")
            if each["level"] in {"SEVERE", "WARNING"}
        ]


def test_bodies_fold_and_a_node_says_what_it_is(browser: Any, file: Path) -> None:
    page = Page(browser, file.as_uri())
    assert "15 operators" in page.text("#totals")
    first = page.shown()
    assert sum("\u00d73" in row for row in first) == 1, "three equal blocks are one body"
    page.fold("\u00d73")
    assert set(page.shown()) < set(first)
    page.fold("\u00d73")
    assert page.shown() == first
    page.row("\u00d73").click()
    page.node("tanh").click()
    told = page.text("#details")
    said = ("aten.tanh.default", "f32[2, 8] cpu", "64 bytes", "effects\nnone", "tests/models.py:")
    assert [each for each in said if each not in told] == []
    assert browser.current_url.endswith("/tanh")
    page.all("#details button")[0].click()
    assert page.text("#details h3") != "tanh"
    assert page.complaints() == []


def test_two_steps_side_by_side(browser: Any, file: Path) -> None:
    page = Page(browser, file.as_uri())
    assert [each.text.splitlines()[0] for each in page.all(".step")] == [
        "imported",
        "1 sink_state()",
        "2 outline()",
        "3 deduplicate()",
        "4 soften()",
    ]
    page.beside(3)
    assert len(page.all(".pane")) == 2
    page.all("#changes-list button.added")[0].click()
    rows = page.text("#changes-list")
    assert "+ tanh tanh in " in rows
    assert "\u2212 relu relu in " in rows
    assert [each.text.splitlines()[0] for each in page.all(".pane:first-child .node.removed")] == [
        "relu"
    ]
    assert "tanh" in [
        each.text.splitlines()[0] for each in page.all(".pane:last-child .node.added")
    ]
    page.all(".pane:first-child .node.removed")[0].click()
    assert page.text("#details h3") == "relu"
    page.all(".step")[2].click()
    assert len(page.all(".pane")) == 1
    assert browser.current_url.endswith(";step=2")
    assert page.complaints() == []


def test_names_run_nothing(browser: Any, tmp_path: Path) -> None:
    for number, payload in enumerate(PAYLOADS):
        file = px.report(hostile(payload), tmp_path / f"{number}.html", before=hostile("plain"))
        page = Page(browser, file.as_uri())
        page.asks(EVERYTHING)
        page.beside(1)
        page.asks(
            "for (const one of [...document.querySelectorAll('#changes button')]) one.click()"
        )
        assert page.asks(
            "return [window.hacked === undefined, document.images.length, document.scripts.length]"
        ) == [True, 0, 3]
        assert page.complaints() == []


def test_nothing_else_may_run(browser: Any, file: Path) -> None:
    page = Page(browser, file.as_uri())
    page.asks(
        "const made = document.createElement('img'); made.src = 'http://127.0.0.1:9/x.png'; document.body.append(made)"
    )
    assert (
        page.asks(
            "try { document.body.innerHTML = '<b>x</b>'; return 'markup' } catch (error) { return error.name }"
        )
        == "TypeError"
    )
    time.sleep(0.1)
    assert any("Content Security Policy" in each for each in page.complaints())
