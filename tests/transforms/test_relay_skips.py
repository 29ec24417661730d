"""What crosses more than one boundary, and the effects of parts."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

import purefx as px
from tests.transforms.small import lines, shown
from tests.transforms.split_by_hand import split_tree

# What crosses more than one boundary is handed on, once, by each part between; as text before and after.


NEG = """
    graph @{name}(a) {{
      b = aten.neg.default(a)
      return b
    }}"""

ADD = """
    graph @{name}(a, b) {{
      c = aten.add.Tensor(a, b)
      return c
    }}"""


def program(root: str, *bodies: str) -> px.Program:
    return split_tree('graph @""(x) {' + root + "}" + "".join(bodies))


def three_parts(*end: str) -> px.Program:
    """Return a program that begins with two parts, each negating what the one before gives; a third part adds."""
    root = "\n".join(["", "a = call @s0(x) as s0", "b = call @s1(a) as s1", *end, ""])
    third = [ADD.format(name="s2")] if "@s2" in root else []
    return program(root, NEG.format(name="s0"), NEG.format(name="s1"), *third)


def test_a_user_input_is_taken_by_the_first_part_and_handed_on() -> None:
    given = three_parts("c = call @s2(b, x) as s2", "return (c,)")
    result = px.relay_skips(given)
    assert px.verify(result) == ()
    assert lines(result) == [
        "s0 = call @s0(x) as s0",
        "a = operator.getitem(s0, 0)",
        "x_1 = operator.getitem(s0, 1)",
        "s1 = call @s1(a, x_1) as s1",
        "b = operator.getitem(s1, 0)",
        "x_2 = operator.getitem(s1, 1)",
        "c = call @s2(b, x_2) as s2",
        "return (c,)",
    ]
    assert shown(result, "s0").splitlines()[-2].strip() == "return (b, a)", "what is taken already is not taken twice"
    assert result.graphs["s2"] is given.graphs["s2"]
    assert px.relay_skips(result) is result
    assert px.alpha_equal(px.join(result), px.join(given))


def test_a_result_of_an_early_part_reaches_the_caller_from_the_last() -> None:
    given = three_parts("return (a,)")
    assert lines(px.relay_skips(given))[-3:] == [
        "b = operator.getitem(s1, 0)",
        "a_1 = operator.getitem(s1, 1)",
        "return (a_1,)",
    ]


def test_a_body_that_others_call_is_left_to_them() -> None:
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s0(a) as s1
        c = call @s2(b, a) as s2
        d = call @s0(c) as s3
        return (d,)
        """,
        NEG.format(name="s0"),
        ADD.format(name="s2"),
    )
    result = px.relay_skips(given)
    assert [part.graph for part in px.parts(result)] == ["s0", "s0_1", "s2", "s0"]
    assert result.graphs["s0"] is given.graphs["s0"]


def test_a_result_that_was_taken_twice_is_taken_once() -> None:
    given = program(
        """
        p = call @s0(x) as s0
        a = operator.getitem(p, 0)
        b = operator.getitem(p, 1)
        again = operator.getitem(p, 0)
        c = call @s1(b) as s1
        d = call @s2(c, again) as s2
        return (d,)
        """,
        """
        graph @s0(a) {
          b = aten.neg.default(a)
          c = aten.abs.default(a)
          return (b, c)
        }""",
        NEG.format(name="s1"),
        ADD.format(name="s2"),
    )
    result = px.relay_skips(given)
    assert px.verify(result) == ()
    assert [line for line in lines(result) if "getitem(p, 0)" in line] == ["a = operator.getitem(p, 0)"]
    assert px.relay_skips(result) is result


# Drawn programs of operators whose schema says too little, split along drawn tags: numbers, state and draws are those of fx.


aten: Any = torch.ops.aten

GIVEN = frozenset({"x", "y"})


class Drawn:
    """Draws a graph of steps on tensors of one shape."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.graph = fx.Graph()
        self.values = [self.graph.placeholder("x"), self.graph.placeholder("y")]
        self.state = {name: self.graph.get_attr(name) for name in ("mean", "var")}

    def some(self) -> fx.Node:
        return self.dice.choice(self.values[-5:])

    def call(self, target: Any, *args: Any) -> fx.Node:
        return self.graph.call_function(target, args)

    def first(self, target: Any, *args: Any) -> fx.Node:
        return self.graph.call_function(getitem, (self.call(target, *args), 0))

    def write(self) -> fx.Node:
        target = self.dice.choice(self.values[-5:])
        if target.name in GIVEN:  # what the caller holds stays as it is
            return self.call(aten.clone.default, target)
        return self.call(aten.add_.Tensor, target, self.dice.choice((1, self.some())))

    def statistics(self) -> fx.Node:
        mean, var = self.state.values()
        step = self.dice.randrange(3)
        if step == 0:
            self.call(aten.batch_norm_update_stats.default, self.some(), mean, var, 0.5)
        elif step == 1:
            norm = (self.some(), None, None, mean, var, self.dice.random() < 0.7, 0.3, 1e-5)
            return self.first(aten.native_batch_norm.default, *norm)
        return self.call(aten.add.Tensor, self.some(), self.dice.choice((mean, var)))

    def step(self) -> fx.Node:
        alias = self.dice.choice((aten.data.default, aten.lift.default, aten.detach.default))
        unflatten = aten.unflatten_dense_tensors.default
        pieces = self.dice.choice((aten.atleast_1d.Sequence, aten.atleast_2d.Sequence))
        steps: list[Callable[[], fx.Node]] = [
            self.write,
            self.write,
            self.statistics,
            lambda: self.call(alias, self.some()),
            lambda: self.first(pieces, [self.some(), self.some()]),
            lambda: self.first(unflatten, self.call(aten.view.default, self.some(), [6]), [self.some()]),
            lambda: self.call(aten.mul.Tensor, self.some(), self.dice.choice((0.5, self.some()))),
            lambda: self.call(aten.bernoulli.p, self.some(), self.dice.choice((0.0, 0.5))),
            lambda: self.first(aten.native_dropout.default, self.some(), self.dice.choice((0.0, 0.5)), self.dice.random() < 0.7),
            lambda: self.call(aten.dropout.default, self.some(), self.dice.choice((0.0, 0.5)), self.dice.random() < 0.7),
            lambda: self.call(aten.bernoulli_.float, self.call(aten.clone.default, self.some()), self.dice.choice((0.0, 0.5))),
            lambda: self.call(aten._sample_dirichlet.default, self.call(aten.sigmoid.default, self.some())),
            lambda: self.call(aten.rrelu.default, self.some(), 0.1, 0.3, self.dice.random() < 0.5),
        ]
        return self.dice.choice(steps)()

    def module(self) -> fx.GraphModule:
        for _ in range(14):
            self.values.append(self.step())
        self.graph.output((*self.values[-4:], self.call(aten.add.Tensor, *self.state.values())))
        root = torch.nn.Module()
        root.register_buffer("mean", torch.zeros(3))
        root.register_buffer("var", torch.ones(3))
        return fx.GraphModule(root, self.graph)


def getitem(whole: Any, index: int) -> Any:
    """Stands for ``operator.getitem`` until the graph is complete."""
    return whole[index]


def runs(module: torch.nn.Module) -> list[torch.Tensor]:
    """Return what two calls give, the buffers, and what is drawn next."""
    torch.manual_seed(7)
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    found = [each.clone() for _ in range(2) for each in module(x.clone(), y.clone())]
    state = {name.rpartition(".")[2]: value for name, value in module.state_dict().items()}  # each part lists what it reads
    return [*found, *[state[name].clone() for name in ("mean", "var") if name in state], torch.rand(1)]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_tags_change_nothing(seed: int) -> None:
    """Parts that come back, and nodes that go where they can."""
    import operator

    drawn = Drawn(seed)
    traced = drawn.module()
    for node in traced.graph.nodes:
        if node.target is getitem:
            node.target = operator.getitem
    traced.recompile()
    program = px.import_fx(copy.deepcopy(traced))
    dice = random.Random(seed)
    wanted = {node.name: dice.choice(("a", "b", "c", None)) for node in program.main.nodes}
    split = px.split_by_tags(program, ("a", "b", "c"), tag_of=lambda node: wanted[node.name], allow_reuse=True)
    assert px.verify(split) == ()
    want, got = runs(copy.deepcopy(traced)), runs(px.lower(split))
    same = [torch.equal(torch.nan_to_num(one, 7.5), torch.nan_to_num(other, 7.5)) for one, other in zip(want, got, strict=True)]
    assert same == [True] * len(want)
