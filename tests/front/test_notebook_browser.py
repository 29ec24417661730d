"""Pages of notebooks in a browser: legible in light and dark notebooks, names that want to run, things that fold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from tests.front.reports import PAYLOADS, hostile, soften
from tests.programs import Tower

HOSTS = {
    "plain": ("white", "black", ""),
    "dark": ("#121212", "#e0e0e0", ""),
    "JupyterLab light": ("#ffffff", "black", "--jp-content-font-color1: rgba(0,0,0,0.87)"),
    "JupyterLab dark": ("#111111", "black", "--jp-content-font-color1: rgba(255,255,255,0.87)"),
    "VS Code dark": ("#1e1e1e", "#cccccc", "--vscode-editor-foreground: #d4d4d4"),
    "VS Code light": ("#ffffff", "#3b3b3b", "--vscode-editor-foreground: #3b3b3b"),
}
"""Background, colour of text and variables of the page around: what these notebooks give to outputs."""

CONTRAST = """
const background = getComputedStyle(document.body).backgroundColor;
const canvas = document.createElement("canvas").getContext("2d");
const seen = (color) => {
  for (const one of [background, color]) { canvas.fillStyle = one; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (color) => {
  const [high, low] = [light(seen(color)), light(seen("transparent"))].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const all = [...document.querySelectorAll(".purefx, .purefx :not(style)")];
return Object.fromEntries(all.map((one) => [one.tagName + "." + one.className, ratio(getComputedStyle(one).color)]));
"""
"""The contrast of each kind of text with what is behind it, as the guidelines of accessibility count it."""


def pages() -> list[Any]:
    program = px.transform(px.capture(Tower(3), (torch.ones(2, 4),)))
    broken = program.evolve(root="nowhere")
    return [program, program.main, px.diff(program, soften(program)), px.stats(program), px.verify(broken)[0]]


def opened(browser: Any, folder: Path, values: list[Any], host: str = "plain") -> None:
    background, color, variables = HOSTS[host]
    body = "\n".join([value._repr_html_() for value in values])
    file = folder / "page.html"
    style = f"background: {background}; color: {color}; {variables}"
    file.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">{body}</body>', "utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())


@pytest.mark.parametrize("host", HOSTS)
def test_texts_are_legible(browser: Any, tmp_path: Path, host: str) -> None:
    opened(browser, tmp_path, pages(), host)
    found = browser.execute_script(CONTRAST)
    assert {"SPAN.add", "SPAN.gone", "SPAN.dim", "SPAN.operator", "SPAN.rule", "SPAN.defined"} <= set(found)
    assert not {kind: ratio for kind, ratio in found.items() if ratio < 4.5}


def test_names_stay_text(browser: Any, tmp_path: Path) -> None:
    programs = [hostile(payload) for payload in PAYLOADS]
    opened(browser, tmp_path, [*programs, *[px.diff(one, px.Program.of({})) for one in programs]])
    assert browser.execute_script("return window.hacked ?? document.querySelectorAll('script, img, a, iframe').length") == 0
    assert not browser.get_log("browser")


def test_bodies_fold(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, pages()[:1])
    shown = "return [...document.querySelectorAll('details')].map((one) => one.open)"
    before = browser.execute_script(shown)
    assert before[0] is True, "the root is open"
    assert not any(before[1:])
    browser.find_elements("css selector", "summary")[1].click()
    assert browser.execute_script(shown)[1] is True
