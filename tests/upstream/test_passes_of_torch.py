"""What is wrong in passes of torch is found and made small; ``make audit`` asks all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import purefx as px
from purefx.laws.fx_passes import survey_pass

from . import audit_passes
from .passes import PASSES

KNOWN = {
    "CSEPass": "it merges two draws, and reads before and after a write",
    "legalize_graph": "it moves operators across writes, and some behind the output",
    "CapabilityBasedPartitioner": "it moves operators across writes",
    "split_module": "it moves operators across writes",
}


@pytest.mark.deep
@pytest.mark.parametrize("name", KNOWN)
def test_known_mistakes_are_found_and_made_small(name: str) -> None:
    published = next(one for one in PASSES if one.name == name)
    report = survey_pass(
        published.run, contract=published.contract, examples=150, seed=0, seconds=30.0
    )
    found = [
        each.program for each in report.findings if each.law in ("meaning", "effects", "graph")
    ]
    assert found, report
    sizes = [sum(type(node.do) is px.Op for _, node in program.nodes()) for program in found]
    assert min(sizes) <= 6, [str(program) for program in found]


def test_passes_that_are_asked() -> None:
    assert len(PASSES) >= 25
    assert len({one.where for one in PASSES}) == len(PASSES)
    for one in PASSES:
        assert one.why
        assert callable(one.run)


def test_a_mistake_is_confirmed_by_torch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_passes, "SCRIPTS", tmp_path)
    published = next(one for one in PASSES if one.name == "NormalizeArgs")
    audited = audit_passes.audited(published, 12, 0, 1.0)
    assert "graph" in audited.confirmed, audited.report
    assert "missing value for argument 'self'" in audited.confirmed["graph"]
    script = (tmp_path / "normalizeargs_graph.py").read_text("utf-8")
    assert "purefx" not in script
    assert "def the_pass(module" in script
    assert "| `torch.fx.experimental.normalize.NormalizeArgs` | any graph |" in audit_passes.page(
        [audited], 12, 0
    )


def test_the_page_and_its_scripts_agree() -> None:
    page = audit_passes.PAGE.read_text("utf-8")
    scripts = {path.name for path in audit_passes.SCRIPTS.glob("*.py")}
    assert scripts
    assert {name for name in scripts if f"](audit/{name})" in page} == scripts
    assert f"torch {torch.__version__.split('.')[0]}." in page
    for published in PASSES:
        assert f"`{published.where}`" in page
