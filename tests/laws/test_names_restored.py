"""The law of names that come back: which of its names a tensor is read by is lost with them, and which tensor is read is not."""

from __future__ import annotations

import torch

import purefx as px
from purefx.laws.law import Case
from tests.laws.cleaning import names_restored, restore_own_names

TEXT = """program {
  facts (flat, "state sunk")
  modules {
    "": toy.Module
  }
  state {
    buffer s0: i64[]
    buffer s1: i64[] tied s0
    buffer s2: i64[] tied s0
    buffer u: i64[]
  }
  lifted {
    s0 unused
    s2
    u
  }
  graph @""() {
    s2 = get s2
    u = get u
    add = aten.add.Tensor(s2, u)
    return ()
  }
}"""


def test_a_tied_tensor_may_be_read_by_another_name_and_another_tensor_may_not() -> None:
    tied = torch.tensor(3)
    state = {"s0": tied, "s1": tied, "s2": tied, "u": torch.tensor(4)}
    case = Case(px.parse(TEXT, state=state))

    def reads_another(program: px.Program) -> px.Program:
        return px.parse(restore_own_names(program).text().replace("u = get u", "u = get s1"), state=state)

    assert names_restored.check(restore_own_names, case) == []
    assert names_restored.check(reads_another, case) == ["the program reads other state than it did"]
