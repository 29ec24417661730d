"""Sizes 0 and 1 of programs that accept them, although torch traces an open size as if it were at least 2."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import purefx as px
from purefx import rules
from purefx.ir.inference import ExampleValues, borders_of, described
from tests.tables import table

MOST = 9


class Model(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


@cache
def imported(function: Callable[..., Any], low: int) -> px.Program:
    rows = Dim("rows", min=low, max=MOST)
    operands = (torch.randn(5, 4), torch.randn(5, 4))
    shapes = {"x": {0: rows}, "y": {0: rows}}
    return px.import_ep(torch.export.export(Model(function), operands, dynamic_shapes=shapes))


def assert_same_at_all_sizes(function: Callable[..., Any], program: px.Program, low: int) -> None:
    lowered, eager = px.lower(program), Model(function)
    for size in (*range(low, 4), 5, MOST):
        operands = torch.randn(size, 4), torch.randn(size, 4)
        expected = eager(*copy.deepcopy(operands))
        result = lowered(*copy.deepcopy(operands))
        assert result.shape == expected.shape, size
        assert torch.equal(result, expected), size


# ruff: noqa: E731
SQUEEZED: dict[str, Callable[..., Any]] = {
    "reshape": lambda x, y: x.exp().squeeze(0).reshape(-1, 4) * 2,
    "view to the sizes of the input": lambda x, y: x.exp().squeeze(0).view(x.shape[0], 4) + 1,
    "expand": lambda x, y: x.exp().squeeze(0).expand(x.shape[0], 4) * 2,
    "squeeze all": lambda x, y: x.exp().squeeze().reshape(x.shape[0], 4) * 2,
    "squeeze several": lambda x, y: x.exp().squeeze((0,)).reshape(x.shape[0], 4) * 2,
    "expand_as": lambda x, y: x.exp().squeeze(0).expand_as(x) * 2,
    "view_as": lambda x, y: x.exp().squeeze(0).view_as(x) * 2,
    "squeeze of a product": lambda x, y: x.exp().flatten().squeeze(0).reshape(-1, 4) * 2,
    "a sum of both": lambda x, y: (x.squeeze(0) + y.squeeze(0)).reshape(-1, 4).neg(),
}
PASSES: dict[str, Callable[[px.Program], px.Program]] = {
    "remove_noops": px.remove_noops,
    "algebra": rules.algebra,
    "transform and remove_noops": lambda program: px.remove_noops(px.transform(program)),
}


@table(case=list(SQUEEZED), name=list(PASSES), low={"0": 0, "1": 1})
def test_a_view_of_a_squeezed_value_stays_where_it_does_something(
    case: str, name: str, low: int
) -> None:
    function = SQUEEZED[case]
    program = imported(function, low)
    assert_same_at_all_sizes(function, PASSES[name](program), low)


def test_it_goes_where_the_range_starts_at_two() -> None:
    program = imported(SQUEEZED["reshape"], 2)
    assert px.remove_noops(program) is not program


def test_a_view_that_does_nothing_at_any_size_goes() -> None:
    function = lambda x, y: (x.exp().reshape(-1, 4).reshape(x.shape[0], 4) * 1).clone().neg()
    program = imported(function, 0)
    result = px.remove_noops(program)
    names = [node.do.name for node in result.main.nodes if isinstance(node.do, px.Op)]
    assert_same_at_all_sizes(function, result, 0)
    assert "aten.reshape.default" not in names
    assert "aten.clone.default" not in names


def test_a_squeeze_of_a_size_that_is_known_at_run_time_only() -> None:
    function = lambda x, y: x.flatten().nonzero().squeeze(0).reshape(-1, 1) * 2
    program = px.import_ep(torch.export.export(Model(function), (torch.ones(2), torch.ones(2))))
    lowered = px.lower(px.remove_noops(program))
    for numbers in ([0.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
        operands = torch.tensor(numbers), torch.ones(2)
        assert torch.equal(lowered(*operands), function(*operands))


RELU = lambda x, y: x.exp().relu() + y
TURNED = lambda x, y: (x + y).t().relu()


def rewritten(where: Callable[[Any], bool] | None, replacement: Callable[..., Any]) -> Any:
    return px.rule(lambda x: torch.relu(x), where=where).becomes(replacement)


def clamped(m: Any, x: Any) -> Any:
    return torch.clamp_min(x, 0)


@pytest.mark.parametrize(
    ("where", "function", "proven_from"),
    [
        pytest.param(lambda m: m.shape("x")[0] > 0, RELU, 1, id="is not empty"),
        pytest.param(lambda m: m.shape("x")[0] != 1, RELU, 2, id="is not one row"),
        pytest.param(lambda m: m.shape("x")[0] >= 2, RELU, 2, id="has two rows"),
        pytest.param(lambda m: 0 not in m.shape("x"), RELU, 1, id="no size is zero"),
        pytest.param(lambda m: m.val("x").numel() >= 8, RELU, 2, id="has eight elements"),
        pytest.param(lambda m: m.val("x").stride(0) == 4, RELU, 0, id="a stride"),
        pytest.param(lambda m: m.val("x").is_contiguous(), RELU, 0, id="is contiguous"),
        pytest.param(lambda m: not m.val("x").is_contiguous(), TURNED, 2, id="is not contiguous"),
        pytest.param(lambda m: m.shape("x") == m.val("x").shape, RELU, 0, id="equal sizes"),
    ],
)
def test_a_condition_is_proven_for_all_sizes_of_the_range(
    where: Any, function: Any, proven_from: int
) -> None:
    for low in (0, 1, 2):
        program = imported(function, low)
        result = rewritten(where, clamped)(program)
        assert (result is not program) == (low >= proven_from), low
        assert_same_at_all_sizes(function, result, low)


@pytest.mark.parametrize(
    ("replacement", "proven_from"),
    [
        pytest.param(
            lambda m, x: torch.clamp_min(x, 0) if x.shape[0] != 1 else torch.clamp_min(x, 0.5),
            2,
            id="another operator for one row",
        ),
        pytest.param(lambda m, x: torch.clamp_min(x, 0).squeeze(0), 2, id="a squeeze"),
        pytest.param(lambda m, x: torch.clamp_min(x, 0).reshape(-1, 4), 0, id="a reshape"),
        pytest.param(
            lambda m, x: torch.clamp_min(x, 0).reshape(x.shape[0], -1), 1, id="a size to guess"
        ),
        pytest.param(
            lambda m, x: torch.clamp_min(x, 0) * (x.shape[0] / x.shape[0]), 1, id="a quotient"
        ),
    ],
)
def test_a_replacement_is_the_same_for_all_sizes_of_the_range(
    replacement: Any, proven_from: int
) -> None:
    for low in (0, 1, 2):
        program = imported(RELU, low)
        result = rewritten(None, replacement)(program)
        assert (result is not program) == (low >= proven_from), low
        assert_same_at_all_sizes(RELU, result, low)


def test_the_size_that_is_not_proven_is_named() -> None:
    rule = rewritten(lambda m: m.shape("x")[0] != 1, clamped)
    (left,) = rule.explain(imported(RELU, 0)).left
    assert "= 1, which the program accepts" in left.why
    assert "min=2" in left.why


def test_a_match_on_nodes_of_the_same_walk_is_found_in_the_next_walk() -> None:
    function = lambda x, y: x.exp().neg().neg().relu().relu().relu() + y
    program = imported(function, 0)
    result = rules.algebra(program)
    names = [node.do.name for node in result.main.nodes if isinstance(node.do, px.Op)]
    assert names == ["aten.exp.default", "aten.relu.default", "aten.add.Tensor"]
    assert_same_at_all_sizes(function, result, 0)


def test_a_pattern_with_sizes_matches_only_sizes_that_are_always_equal() -> None:
    function = lambda x, y: x.squeeze(0).exp().reshape(y.shape[0], 4) + y
    rule = px.rule(lambda x: x.exp().reshape(x.shape[0], 4)).becomes(lambda m, x: torch.exp(x))
    for low in (0, 1, 2):
        program = imported(function, low)
        result = rule(program)
        assert (result is not program) == (low == 2)
        assert_same_at_all_sizes(function, result, low)


def test_two_open_sizes_are_looked_at_together() -> None:
    class Both(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.exp().flatten(0, 1).squeeze(0).reshape(-1, 4) * 2

    a, b = Dim("a", min=1, max=9), Dim("b", min=1, max=9)
    ep = torch.export.export(Both(), (torch.randn(3, 5, 4),), dynamic_shapes=({0: a, 1: b},))
    lowered = px.lower(px.remove_noops(px.import_ep(ep)))
    for sizes in ((1, 1, 4), (1, 2, 4), (2, 1, 4), (3, 3, 4)):
        x = torch.randn(sizes)
        assert torch.equal(lowered(x), Both()(x))


def test_new_state_is_drawn_once() -> None:
    def scaled(m: Any, x: Any) -> Any:
        return torch.clamp_min(x, 0) * m.buffer("scale", torch.rand(4))

    drawn = []
    for low in (0, 2):
        torch.manual_seed(3)
        program = rewritten(None, scaled)(imported(RELU, low))
        drawn.append((program.state["scale"].value, torch.rand(1)))
    assert all(map(torch.equal, *drawn))


class Child(nn.Module):
    def forward(self, z: Any, rows: Any) -> Any:
        return z.neg().reshape(rows, -1) * 2


class ReadsOutside(nn.Module):
    """Its children use the number of rows; one operand has another size for one row."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Child(), Child()

    def forward(self, x: Any) -> Any:
        rows, z = x.shape[0], x.exp().squeeze(0)
        return self.a(z, rows) + self.b(z + 1, rows).reshape(rows, -1)


@pytest.mark.parametrize("low", [0, 1])
def test_a_size_is_read_only_from_tensors_that_always_have_it(low: int) -> None:
    model = ReadsOutside()
    rows = Dim("rows", min=low, max=MOST)
    ep = torch.export.export(model, (torch.randn(5, 4),), dynamic_shapes=({0: rows},))
    lowered = px.lower(px.transform(px.import_ep(ep)))
    for size in (1, 2, 3, 5):
        x = torch.randn(size, 4)
        assert torch.equal(lowered(x), model(x)), size


class ThreeCasts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp().transpose(0, 1).neg().to(torch.float32).neg().view(4, -1).cos()


def _cast_program() -> px.Program:
    sizes = ({0: Dim("rows")},)
    return px.import_ep(
        torch.export.export(ThreeCasts(), (torch.randn(3, 4),), dynamic_shapes=sizes)
    )


def test_a_later_version_of_a_program_runs_only_new_operators_at_a_border(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, ran = _cast_program(), list[str]()
    run = ExampleValues.run

    def counted(self: Any, node: Any, *rest: Any) -> Any:
        ran.append(node.name)
        return run(self, node, *rest)

    def values(borders: Any, of: px.Program) -> list[Any]:
        names = [node.name for node in of.main.nodes]
        return [described(each.value(of.root, name)) for each in borders for name in names]

    monkeypatch.setattr(ExampleValues, "run", counted)
    before = borders_of(program)
    values(before, program)
    later = px.remove_noops(program)
    assert len(later.main.nodes) < len(program.main.nodes)
    changed = {node.name for node in later.main.nodes} - {
        node.name for node in later.main.nodes if node is program.main.by_name.get(node.name)
    }
    ran.clear()
    reused = values(borders_of(later, before), later)
    # The results of the changed `neg` are known: other ones had such operands.
    assert set(ran) == {"cos"} < changed
    assert reused == values(borders_of(later), later)


def test_a_plain_dimension_accepts_no_rows() -> None:
    # torch's range of Dim("rows") starts at 0, so most dynamic programs have borders.
    borders = borders_of(_cast_program())
    assert [[*border.sizes.values()] for border in borders] == [[0], [1]]


def inferred_from_text(program: px.Program) -> px.Program:
    return px.infer(px.parse(program.text()))


@table(case=list(SQUEEZED), low={"0": 0, "1": 1}, high={"2": 2, "any": None})
def test_inferred_values_are_those_of_the_exporter(case: str, low: int, high: int | None) -> None:
    rows = Dim("rows", min=low, max=high)
    operands, shapes = (torch.randn(2, 4), torch.randn(2, 4)), {"x": {0: rows}, "y": {0: rows}}
    program = px.import_ep(
        torch.export.export(Model(SQUEEZED[case]), operands, dynamic_shapes=shapes)
    )
    result = inferred_from_text(program)
    values, expected = (
        [described(node.meta.get("val")) for node in one.main.nodes] for one in (result, program)
    )
    assert values == expected
    assert result.constraints == program.constraints


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "an operator": clamped,
    "a sum of rows": lambda m, x: torch.clamp_min(x, 0) + x.sum(0) * 0,
    "the first row": lambda m, x: torch.clamp_min(x, 0) + torch.zeros_like(x[:1]),
    "a reshape": lambda m, x: torch.clamp_min(x, 0).reshape(-1).reshape(x.shape),
    "a choice": lambda m, x: torch.where(x > 0, x, torch.zeros_like(x)),
}


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_a_rule_rewrites_a_program_from_text_as_an_imported_one(replacement: str, low: int) -> None:
    rule = rewritten(None, REPLACEMENTS[replacement])
    program = imported(RELU, low)
    from_text = inferred_from_text(program)
    assert rule(from_text) is not from_text
    assert rule(program) is not program
    assert [node.do for node in rule(from_text).main.nodes] == [
        node.do for node in rule(program).main.nodes
    ]
    assert_same_at_all_sizes(RELU, px.infer(rule(from_text)), low)


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("high", [2, MOST, None])
def test_the_range_of_an_inferred_program_stays_that_of_the_program(
    low: int, high: int | None
) -> None:
    bounds = Dim("rows", min=low, max=high)
    shapes = {"x": {0: bounds}, "y": {0: bounds}}
    ep = torch.export.export(
        Model(RELU), (torch.randn(2, 4), torch.randn(2, 4)), dynamic_shapes=shapes
    )
    again = px.to_ep(inferred_from_text(px.import_ep(ep)))
    assert {str(one): span for one, span in again.range_constraints.items()} == {
        str(one): span for one, span in ep.range_constraints.items()
    }
    for size in (*range(low, 3), *([] if high == 2 else [MOST])):
        operands = torch.randn(size, 4), torch.randn(size, 4)
        assert torch.equal(again.module()(*operands), Model(RELU)(*operands)), size


@pytest.mark.parametrize("low", [0, 1])
def test_a_size_of_at_most_one_keeps_its_range_in_fake_values(low: int) -> None:
    text = imported(RELU, low).text().replace(f"to {MOST}", "to 1")
    program = px.infer(px.parse(text))
    assert {span.high for span in program.constraints.ranges} == {1}
    lowered = px.lower(program)
    for size in range(low, 2):
        operands = torch.randn(size, 4), torch.randn(size, 4)
        assert torch.equal(lowered(*operands), Model(RELU)(*operands)), size
