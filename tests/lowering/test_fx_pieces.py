"""Passes of others are stopped by node: what they changed is taken apart, and fuel says how much of it is kept."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import pytest
import torch
from torch.fx.passes.dialect.common.cse_pass import CSEPass
from torch.fx.passes.tools_common import legalize_graph

import purefx as px
from purefx.laws.evaluate import meaning_differences
from purefx.laws.tiers import drawn_cases, share
from purefx.laws.toy import tensor_meaning
from purefx.lowering.fx.pieces import rewrites

aten: Any = torch.ops.aten
CALL = (torch.linspace(-2, 2, 6).reshape(2, 3),)


class Layers(torch.nn.Module):
    """Four times the same, and something written."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(4)])
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        for lin in self.lin:
            x = torch.relu(lin(x)) * self.seen
        return x


@cache
def program() -> px.Program:
    return px.remove_effect_tokens(px.import_ep(torch.export.export(Layers(), CALL)))


def in_place(module: torch.fx.GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=aten.relu.default):
        node.target = aten.tanh.default


def by_new_nodes(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in module.graph.find_nodes(op="call_function", target=aten.relu.default):
        with module.graph.inserting_before(node):
            zero = module.graph.call_function(aten.zeros_like.default, node.args)
            new = module.graph.call_function(aten.maximum.default, (node.args[0], zero))
            new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        module.graph.erase_node(node)
    module.recompile()
    return module


def names(of: px.Program) -> list[str]:
    return [node.do.name for node in of.main.nodes if isinstance(node.do, px.Op)]


@pytest.mark.parametrize(("a_pass", "made"), [(in_place, "aten.tanh.default"), (by_new_nodes, "aten.maximum.default")])
def test_fuel_counts_places(a_pass: Any, made: str) -> None:
    given, step = program(), px.from_fx_pass(a_pass)
    assert [names(step(given, fuel=fuel)).count(made) for fuel in range(6)] == [0, 1, 2, 3, 4, 4]
    assert step(given, fuel=0) is given
    assert step(given, fuel=4) == step(given)
    for fuel in range(5):
        assert px.verify(step(given, fuel=fuel), infer=True) == ()
        assert list(step(given, fuel=fuel).state) == list(given.state)


def test_the_wrong_place_of_a_pass_is_named() -> None:
    def wrong_once(module: torch.fx.GraphModule) -> None:
        by_new_nodes(module)
        third = module.graph.find_nodes(op="call_function", target=aten.maximum.default)[2]
        third.target = aten.minimum.default

    expected = tensor_meaning(program(), [CALL])

    def is_bad(result: px.Program) -> bool:
        return bool(meaning_differences(tensor_meaning(result, [CALL]), expected))

    found = px.bisect(program(), px.from_fx_pass(wrong_once), is_bad)
    assert str(found) == "rewrite 3 (wrong_once): replace relu_2 by zeros_like_default_2, maximum_default_2"
    in_pipeline = px.bisect(program(), (px.eliminate_dead_code, px.from_fx_pass(wrong_once)), is_bad)
    assert in_pipeline is not None
    assert in_pipeline.label == "replace relu_2 by zeros_like_default_2, maximum_default_2"


def test_what_only_makes_sense_together_is_one_rewrite() -> None:
    def transposed(module: torch.fx.GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=aten.t.default):
            (user,) = node.users
            node.target, node.args = aten.alias.default, node.args
            user.target = operator.matmul

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mm(x, x.t()) + torch.mm(x + 1, x.t())

    given = px.import_ep(torch.export.export(Two(), (torch.ones(2, 2),)))
    found = rewrites(given, px.from_fx_pass(transposed)(given))
    assert [sorted(group) for group in found] == [["mm", "t"], ["mm_1", "t_1"]]


def test_a_pass_that_reorders_or_writes_to_state_is_one_rewrite() -> None:
    def other_weights(module: torch.fx.GraphModule) -> None:
        in_place(module)
        for name, tensor in list(module.named_parameters()):
            owner, _, last = name.rpartition(".")
            setattr(module.get_submodule(owner), last, torch.nn.Parameter(tensor * 2))

    def reversed_adds(module: torch.fx.GraphModule) -> None:
        first, last = module.graph.find_nodes(op="call_function", target=aten.add.Tensor)
        last.append(first)

    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, x + 2

    adds = px.import_ep(torch.export.export(Adds(), CALL))
    for given, a_pass in ((program(), other_weights), (adds, reversed_adds)):
        step = px.from_fx_pass(a_pass)
        assert step(given, fuel=0) is given
        assert step(given, fuel=1) == step(given) != given
        assert len(rewrites(given, step(given))) == 1


def without_dead_code(module: torch.fx.GraphModule) -> None:
    module.graph.eliminate_dead_code()


def negated_sums(module: torch.fx.GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        with module.graph.inserting_after(node):
            new = module.graph.call_function(aten.neg.default, (node,))
            node.replace_all_uses_with(new, delete_user_cb=lambda user, new=new: user is not new)


@pytest.mark.parametrize("a_pass", [without_dead_code, negated_sums, CSEPass(), legalize_graph])
def test_any_fuel_gives_a_valid_program_on_drawn_ones(a_pass: Any) -> None:
    step, several = px.from_fx_pass(a_pass), 0
    for case in drawn_cases("aten", "flat", share(30), 3):
        try:
            whole = step(case.program)
        except px.errors.PurefxError:
            continue
        fuel = px.Fuel(10**6)
        assert step.spend(case.program, fuel) == whole
        for limit in range(fuel.burnt):
            some = px.Fuel(limit)
            result = step.spend(case.program, some)
            assert px.verify(result) == ()
            assert (some.burnt, some.refused) == (limit, True)
            assert (result is case.program) is (limit == 0)
        several += fuel.burnt > 1
    assert several or a_pass is legalize_graph
