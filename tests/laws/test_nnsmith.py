"""Programs of another generator; without it, what is missing is said."""

from __future__ import annotations

import random
import sys
from importlib.util import find_spec

import pytest
import torch

import purefx as px
from purefx._command import main
from purefx.laws.arguments import cases_of
from purefx.laws.fx_passes import survey_pass
from purefx.laws.strategies.nnsmith import NnsmithMissing, nnsmith_programs


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "nnsmith.materialize", None)
    monkeypatch.setitem(sys.modules, "nnsmith", None)
    with pytest.raises(NnsmithMissing, match=r"pip install 'purefx\[nnsmith\]'"):
        next(nnsmith_programs(1))
    assert main(["check", "purefx:eliminate_dead_code", "--tier", "nnsmith", "--minutes", "0", "--hash-seeds", "0"]) == 2
    assert "purefx[nnsmith]" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("nnsmith") is None, reason="needs nnsmith: pip install purefx[nnsmith]")
def test_programs_of_nnsmith_are_cases_of_the_same_laws() -> None:
    before = (random.getstate(), torch.get_rng_state())
    drawn = list(nnsmith_programs(12))
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert len(drawn) == len({px.digest(px.import_ep(ep)) for ep, _ in drawn}) == 12
    names = {node.do.name for case in cases_of(drawn) for _, node in case.program.nodes() if isinstance(node.do, px.Op)}
    assert len(names) > 15
    ours = px.as_fx_pass(px.eliminate_common_subexpressions, over="graph")
    assert survey_pass(lambda module: ours(module.graph), programs=drawn, examples=0).right == len(drawn)
