"""Rules whose patterns are decomposed on an example: which operands are like it, and which numbers stand for variables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

import purefx as px
from tests.transforms.test_rules_by_hand import given, text_of

PAIR = torch.ones(2)


def _largest(x: Any) -> Any:
    return tuple(torch.max(x, 0))


RULES: dict[str, Callable[[], px.Rule]] = {
    "sized": lambda: px.rule(lambda x: x / x.numel(), example=[PAIR]).becomes(lambda m, x: torch.tan(x)),
    "number": lambda: px.rule(lambda x, n: x * n + 3.0, example=[PAIR, 3]).becomes(lambda m, x, n: torch.tan(x) - n),
    "several": lambda: px.rule(_largest, example=[PAIR]).becomes(lambda m, x: (x.amax(0), x.argmax(0))),
}
"""Each pattern is exported twice, so a rule is made when it is asked for."""

made_rule = cache(lambda name: RULES[name]())

CASES = [
    ("sized", "a = aten.div.Tensor(x, 2); n = aten.neg.default(a); n", "tan = aten.tan.default(x); n = aten.neg.default(tan); n"),
    ("sized", "s = aten.unsqueeze.default(x, 0); a = aten.div.Tensor(s, 2); n = aten.neg.default(a); n", ""),
    ("sized", "s = aten.cat.default([x, z]); a = aten.div.Tensor(s, 2); n = aten.neg.default(a); n", ""),
    ("number", "a = aten.mul.Tensor(x, 7); b = aten.add.Tensor(a, 3.0); n = aten.neg.default(b); n",
     "tan = aten.tan.default(x); sub = aten.sub.Tensor(tan, 7); n = aten.neg.default(sub); n"),
    ("number", "a = aten.mul.Tensor(x, 7); b = aten.add.Tensor(a, 4.0); n = aten.neg.default(b); n", ""),
    ("number", "a = aten.mul.Tensor(x, 7); b = aten.add.Tensor(a, 7); n = aten.neg.default(b); n", ""),
    ("several", "m = aten.max.dim(x, 0); a = operator.getitem(m, 0); b = operator.getitem(m, 1); a, b",
     "amax = aten.amax.default(x, [0]); argmax = aten.argmax.default(x, 0); amax, argmax"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_is_like_the_example(number: int) -> None:
    name, nodes, wanted = CASES[number]
    program = given(nodes)
    made = made_rule(name)(program)
    assert ("" if made is program else text_of(made)) == wanted
