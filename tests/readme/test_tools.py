"""Blocks of the documentation that need a compiler or a package that not every machine has; marked ``python no-run`` there."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"

BLOCKS = re.compile(r"^```(python(?: no-run)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NEEDED = {
    ("passes.md", "post_grad_custom_pre_pass"): "g++",
    ("export.md", "aoti_compile_and_package"): "g++",
    ("export.md", "torch.onnx.export"): "onnxscript",
    ("export.md", "torchao"): "torchao",
}
"""What a block needs, by its page and a text in it."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("page", "text"), NEEDED)
def test_a_block_that_needs_a_tool_runs(page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = NEEDED[page, text]
    if not (shutil.which(tool) or (tool != "g++" and importlib.util.find_spec(tool))):
        pytest.skip(f"needs {tool}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = BLOCKS.findall((DOCS / page).read_text("utf-8"))
    [block] = [code for kind, code in blocks if kind == "python no-run" and text in code]
    if "import purefx" not in block:
        exec(next(code for kind, code in blocks if kind == "python"), namespace)
    exec(block, namespace)


def test_no_other_block_is_left_out() -> None:
    found = [
        (page, text)
        for page in {page for page, _ in NEEDED}
        for kind, code in BLOCKS.findall((DOCS / page).read_text("utf-8"))
        if kind == "python no-run"
        for text in [each for name, each in NEEDED if name == page and each in code] or [code]
    ]
    assert sorted(found) == sorted(NEEDED)
