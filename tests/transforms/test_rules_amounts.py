"""Numbers that are known only where a pattern matches: arithmetic on sizes, lists of any length, parts behind ``...``.

Each pattern is exported as it stands, with sizes that are fixed and with one that only a run knows, and has to be found there;
and a program that differs in a number has to be left alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.test_rules_spelling import exported, finds, matches

Function = Callable[..., Any]

X, Z = torch.randn(4, 6), torch.randn(4, 2, 6)


def _unpacked(x: Tensor) -> Tensor:
    batch, width = x.shape
    return x.reshape(batch * 2, width // 2)


def _rotated(x: Tensor) -> Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


FOUND: list[tuple[str, Function, Tensor]] = [
    ("a product", lambda x: x.reshape(x.shape[0] * 2, -1), X),
    ("the rest of a division", lambda x: x * (x.shape[0] % 3 + 6), X),
    ("a sum and a difference", lambda x: x.reshape(x.shape[0] + 3 - 3, -1), X),
    ("all elements", lambda x: x.reshape(x.numel() // 2, 2), X),
    ("a root", lambda x: x * x.shape[-1] ** -0.5, X),
    ("all sizes", lambda x: x.exp().reshape(x.shape), X),
    ("all but the last", lambda x: x.view(*x.shape[:-1], 2, 3), X),
    ("all but the first", lambda x: x.view(-1, *x.shape[1:]), Z),
    ("added in front", lambda x: x[None].expand((3,) + x.shape), X),  # noqa: RUF005
    ("unpacked", _unpacked, X),
    ("the last two", lambda x: x.reshape(-1, *x.shape[-2:]), Z),
    ("parts", lambda x: torch.cat([x.split(x.shape[1] // 2, dim=-1)[1], x.split(x.shape[1] // 2, dim=-1)[0]]), X),
    ("a slice as it is", lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), Z),
    ("[..., 0]", lambda x: x[..., 0], X),
    ("[..., -1, :]", lambda x: x[..., -1, :], Z),
    ("[0, ..., 1]", lambda x: x[0, ..., 1], Z),
    ("[..., ::2]", lambda x: x[..., ::2], X),
    ("[..., None, :]", lambda x: x[..., None, :], X),
    ("[:, 1::2]", lambda x: x[:, 1::2], X),
    ("rotated", _rotated, X),
    ("made", lambda x: x + torch.zeros([x.shape[0], 1]), X),
]


@pytest.mark.parametrize(("name", "function", "x"), FOUND, ids=[case[0] for case in FOUND])
def test_what_is_computed_of_sizes_is_found(name: str, function: Function, x: Tensor) -> None:
    for dynamic in (False, True):
        assert finds(function, function, x, dynamic=dynamic)


OTHER: list[tuple[str, Function, Function, Tensor]] = [
    ("another factor", lambda x: x.reshape(x.shape[0] * 2, -1), lambda x: x.reshape(x.shape[0] * 3, -1), X),
    ("another size", lambda x: x.reshape(-1, x.shape[0], 1), lambda x: x.reshape(-1, x.shape[1], 1), X),
    ("sizes of another", lambda x: x.exp().reshape(x.shape), lambda x: x.exp().reshape(x.shape[0], 3, 2), X),
    ("another dimension", lambda x: x[..., 0], lambda x: x[0], X),
    ("as many as are unpacked", _unpacked, lambda x: x.reshape(x.shape[0] * 2, x.shape[1] // 2, -1), Z),
    ("half", lambda x: x[..., : x.shape[-1] // 2], lambda x: x[..., : x.shape[-1] // 3], X),
]


@pytest.mark.parametrize(("name", "pattern", "function", "x"), OTHER, ids=[case[0] for case in OTHER])
def test_other_numbers_are_others(name: str, pattern: Function, function: Function, x: Tensor) -> None:
    for dynamic in (False, True):
        assert not finds(pattern, function, x, dynamic=dynamic)


def test_a_number_in_two_places_is_asked_in_both() -> None:
    def pattern(x: Any) -> Any:
        n = x.shape[0]
        return x.reshape(n, n, -1)

    square = torch.randn(4, 4, 2)
    assert finds(pattern, pattern, square)
    assert not finds(pattern, lambda x: x.reshape(2, 4, 4), square)
    assert not finds(pattern, lambda x: x.reshape(4, 2, 4), square)


def test_a_tensor_in_two_places_is_asked_in_both() -> None:
    one, five = torch.tensor(1.0), torch.tensor(5.0)
    assert finds(lambda x: (x + one) * one, lambda x: (x + one) * one, X)
    for other in (lambda x: (x + five) * one, lambda x: (x + one) * five):
        assert not finds(lambda x: (x + one) * one, other, X)


def test_numbers_that_are_variables_can_be_computed_with() -> None:
    pattern = lambda x, n: x.reshape(n, -1).repeat(n * 2, 1)  # noqa: E731
    for dynamic in (False, True):
        assert finds(pattern, lambda x: x.reshape(x.shape[0], -1).repeat(x.shape[0] * 2, 1), X, dynamic=dynamic)
        assert not finds(pattern, lambda x: x.reshape(x.shape[0], -1).repeat(x.shape[0] * 3, 1), X, dynamic=dynamic)
    assert finds(lambda x, n: x[:, :n], lambda x: x[:, :3], X)
    assert finds(lambda x, n: x[:, n], lambda x: x[:, 3], X)
    assert finds(lambda x, n: x[:, n], lambda x, i: x[:, i], X, torch.tensor([0, 1]))
    assert finds(lambda x: x[0], lambda x: x[0], X)
    assert finds(lambda x: x.relu()[0], lambda x: x.relu()[0], X)


def test_what_computes_sizes_goes_with_the_match() -> None:
    program = exported(lambda x: x.reshape(x.shape[0] * 2, -1).exp() + 1, X, dynamic=True)
    rule = px.rule(lambda x: x.reshape(x.shape[0] * 2, -1).exp()).becomes(lambda m, x: x.exp().view(-1, x.shape[1] // 2))
    made = rule(program)
    assert [node.do.name for node in made.main.nodes if type(node.do) is px.Op] == [
        "aten.exp.default", "aten.view.default", "aten.add.Tensor",
    ]  # fmt: skip
    shared = exported(lambda x: x.reshape(x.shape[0] * 2, -1).exp() + x.shape[0] * 2, X, dynamic=True)
    names = [node.do.name for node in rule(shared).main.nodes if type(node.do) is px.Op]
    assert names == ["aten.sym_size.int", "operator.mul", "aten.exp.default", "aten.view.default", "aten.add.Tensor"]
    for each, function in ((program, lambda x: x.exp().view(-1, 3) + 1), (shared, lambda x: x.exp().view(-1, 3) + 2 * len(x))):
        assert not px.verify(rule(each), infer=True)
        for x in (X, torch.randn(7, 6)):
            torch.testing.assert_close(px.lower(rule(each))(x), function(x))


# -- lists -----------------------------------------------------------------------------------------------------------------------


def _checked(rule: px.Rule, function: Function, *args: Tensor) -> px.Program:
    program = exported(function, *args)
    made = rule(program)
    assert not px.verify(made, infer=True)
    torch.testing.assert_close(px.lower(made)(*copy.deepcopy(args)), function(*copy.deepcopy(args)))
    return program if made is program else made


def _names(program: px.Program) -> list[str]:
    return [node.do.name.split(".")[1] for node in program.main.nodes if type(node.do) is px.Op]


def test_the_rest_of_a_list() -> None:
    rule = px.rule(lambda x, rest: torch.relu(torch.cat([x.exp(), *rest], 1)))
    rule.becomes(lambda m, x, rest: torch.cat([x.exp(), *[torch.relu(each) for each in rest]], 1))
    tails: list[Function] = [lambda x: [], lambda x: [x], lambda x: [x, x.abs(), x.neg()]]
    for tail, names in zip(tails, ("", "relu", "relu abs relu neg relu"), strict=True):
        made = _checked(rule, lambda x, tail=tail: torch.relu(torch.cat([x.exp(), *tail(x)], 1)) + 1, X)
        assert sorted(_names(made)) == sorted(["exp", *names.split(), "cat", "add"])


def test_the_rest_may_stand_in_front_or_between() -> None:
    for pattern in (
        lambda xs, y: torch.cat([*xs, y.exp()]),
        lambda x, xs, y: torch.cat([x.sin(), *xs, y.exp()]),
        lambda xs, y: torch.cat((*xs, y.exp())),
    ):
        assert finds(pattern, lambda x: torch.cat([x.sin(), x, x.neg(), x.exp()]), X)
        assert not finds(pattern, lambda x: torch.cat([x.sin(), x, x.neg()]), X)
    assert not finds(lambda x, xs, y: torch.cat([x, *xs, y]), lambda x: torch.cat([x]), X)
    assert finds(lambda xs: torch.cat([*xs]).relu() + torch.stack([*xs]).sum(), lambda x, y: torch.cat([x, y]).relu()
                 + torch.stack([x, y]).sum(), X, X)  # fmt: skip
    assert not finds(lambda xs: torch.cat([*xs]).relu() + torch.stack([*xs]).sum(), lambda x, y: torch.cat([x, y]).relu()
                     + torch.stack([y, x]).sum(), X, X + 1)  # fmt: skip


class Gated(nn.Module):
    """Two halves."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return nn.functional.silu(a) * b + 1


def test_results_are_unpacked_as_python_unpacks_them() -> None:
    def pattern(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return nn.functional.silu(a) * b

    program = px.import_ep(torch.export.export(Gated(), (X,)))
    assert matches(pattern, program) == 1

    def three(x: Any) -> Any:
        a, b, c = x.chunk(3, -1)
        return a * b * c

    assert matches(three, program) == 0
    swapped = px.rule(pattern, once=True)

    @swapped.becomes
    def _(m: Any, x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return b * nn.functional.silu(a)

    torch.testing.assert_close(px.lower(swapped(program))(X), Gated()(X))


# -- replacements and laws -------------------------------------------------------------------------------------------------------


def test_indices_and_sizes_in_replacements() -> None:
    def fits(m: Any, x: Any) -> Any:
        y = x.exp()
        turned = torch.cat([y[..., y.shape[-1] // 2 :], y[..., : y.shape[-1] // 2]], -1)
        return turned * x[0][None] + x[..., 0, None] + x[..., -1:] + y[..., None, :].sum(-2) + y.reshape(y.shape[0] * 1, -1)

    for dynamic in (False, True):
        program = exported(lambda x: x.relu() + 1, X, dynamic=dynamic)
        made = px.rule(lambda x: x.relu()).becomes(fits)(program)
        assert not px.verify(made, infer=True)
        assert not any(node.do.name == "_operator.getitem" for node in made.main.nodes if type(node.do) is px.Op)
        for x in (X, torch.randn(5, 6)) if dynamic else (X,):
            torch.testing.assert_close(px.lower(made)(x), fits(None, x) + 1)


def test_laws() -> None:
    doubled = px.rule(lambda x: x.exp().reshape(x.shape[0] * 2, -1)).becomes(lambda m, x: x.reshape(x.shape[0] * 2, -1).exp())
    assert check_rule(doubled, examples=share(20)).matched
    joined = px.rule(lambda x, rest: torch.cat([x, *rest], 0).neg(), where=lambda m: {*map(m.dtype, m["rest"])} <= {m.dtype("x")})
    joined.becomes(lambda m, x, rest: torch.cat([x.neg(), *[each.neg() for each in rest]], 0))
    assert check_rule(joined, examples=share(20)).matched
    wrong = px.rule(lambda x: x[..., : x.shape[-1] // 2].neg()).becomes(lambda m, x: x[..., x.shape[-1] // 2 :].neg())
    with pytest.raises(AssertionError, match="breaks the law"):
        check_rule(wrong, examples=share(20))
