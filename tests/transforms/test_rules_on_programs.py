"""Rules on generated modules, drawn around what the rules look for: writes in between, views, other users, modules called twice.

Each program runs three times beside eager; outputs, mutated inputs, state, and what shares memory are compared.  A mistake in
what decides about a match is found by the same programs.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor, nn

import purefx as px
from purefx.transforms.rules.legality import Legality
from tests.transforms.test_rules import of

# A pattern in several modules is left to them here (tests/transforms/test_rules_with_state.py).

PROGRAMS = 24
ARGS = (torch.arange(9.0).reshape(3, 3) - 4, torch.ones(3, 3) / 2)


neg = torch.neg
CANCELLED = of(lambda x: neg(neg(x)), lambda m, x: x)
COPIED = of(lambda x: neg(neg(x)), lambda m, x: x.clone())
EVEN = of(lambda x: torch.abs(neg(x)), lambda m, x: torch.abs(x))
EVEN_BESIDE = of(lambda x: torch.abs(neg(x)), lambda m, x: torch.abs(x), keeps_inner=True)
TOLD_APART = of(lambda x, y: neg(x + y), lambda m, x, y: torch.sub(neg(x), y))
SELECTED = of(lambda x, d, i: neg(x.select(d, i)), lambda m, x, d, i: neg(x).select(d, i))
RESHAPED = of(lambda x, size: neg(x.reshape(size)), lambda m, x, size: neg(x).reshape(size))
TURNED = of(lambda x: x.transpose(0, 1).transpose(0, 1), lambda m, x: x)
UNCLONED = of(lambda x: neg(x.clone()), lambda m, x: neg(x))
NEVER_CLONED = of(lambda x: x.clone(), lambda m, x: x)
RULES = [
    CANCELLED, COPIED, EVEN, EVEN_BESIDE, TOLD_APART, SELECTED, RESHAPED, TURNED, UNCLONED, NEVER_CLONED,
    CANCELLED + EVEN_BESIDE + UNCLONED, NEVER_CLONED + CANCELLED,
    (CANCELLED + EVEN_BESIDE + UNCLONED).top_down(), (NEVER_CLONED + TOLD_APART + RESHAPED + EVEN).top_down(),
]  # fmt: skip


class Block(nn.Module):
    """Steps over two inputs and two buffers, drawn from a seed."""

    b: Tensor
    c: Tensor

    def __init__(self, seed: int, *, inner: bool) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("b", torch.arange(9.0).reshape(3, 3) - 3)
        self.register_buffer("c", torch.ones(3, 3) * 2)
        if inner:
            self.blocks = nn.ModuleList([Block(seed + number + 1, inner=False) for number in range(2)])

    def forward(self, x: Tensor, y: Tensor) -> Any:
        draw = random.Random(self.seed)
        values = [x, y, self.b, self.c]
        for _ in range(draw.randint(4, 11)):
            made = self._step(draw, values)
            values += [] if made is None else [made]
        return (draw.choice(values), draw.choice(values), values[-1]) if hasattr(self, "blocks") else values[-1]

    def _step(self, draw: random.Random, values: list[Tensor]) -> Tensor | None:
        def one() -> Tensor:
            return draw.choice(values[-5:] if draw.random() < 0.7 else values)

        steps = ["neg"] * 6 + ["even", "add", "late", "twice", "turned", "select", "clone", "reshape"] + ["write"] * 3
        match draw.choice([*steps, "call", "call"] if hasattr(self, "blocks") else steps):
            case "neg":
                return neg(one())
            case "even":
                return torch.abs(neg(one()) if draw.random() < 0.5 else one())
            case "add":
                return one() + one()
            case "twice":
                return neg(neg(one()))
            case "turned":
                return one().transpose(0, 1).transpose(0, 1)
            case "select":
                return neg(one().select(0, 1)).expand(3, 3)
            case "clone":
                return one().clone()
            case "reshape":
                return neg(one().reshape(9)).reshape(3, 3)
            case "late":
                into, other = one(), one()
                made = into + other if draw.random() < 0.5 else into.clone()
                self._write(draw, into, other)
                return neg(made)
            case "call":
                return self.blocks[draw.randint(0, 1)](one(), one())
            case _:
                return self._write(draw, one(), one())

    def _write(self, draw: random.Random, into: Tensor, other: Tensor) -> None:
        match draw.randint(0, 2):
            case 0:
                into.add_(1)
            case 1:
                into.select(0, 0).mul_(2)
            case _:
                into.copy_(other)


@frozen(eq=False)
class Case:
    """A generated program, what it means, and which tensors share memory."""

    program: px.Program
    runs: list[list[Tensor]]
    memory: list[int]


def runs(module: nn.Module) -> list[list[Tensor]]:
    module = copy.deepcopy(module)
    found: list[list[Tensor]] = []
    for _ in range(3):
        args = [arg.clone() for arg in ARGS]
        found.append([one.clone() for one in (*module(*args), *args)])
    return [*found, [one.clone() for one in module.state_dict().values()]]


def memory(module: nn.Module) -> list[int]:
    module, args = copy.deepcopy(module), [arg.clone() for arg in ARGS]
    places = [one.untyped_storage().data_ptr() for one in (*module(*args), *args, *module.state_dict().values())]
    return [places.index(place) for place in places]


def drawn() -> Iterator[Case]:
    for seed in range(0, 10 * PROGRAMS, 10):
        model = Block(seed, inner=True)
        try:
            wanted, ep = runs(model), torch.export.export(copy.deepcopy(model), ARGS)
        except RuntimeError:
            continue  # a write into an expanded tensor: eager refuses it too
        flat = px.import_ep(ep)
        for program in (flat, px.transform(flat)):
            yield Case(program, wanted, memory(px.lower(program)))


@cache
def cases() -> list[Case]:
    return list(drawn())


def wrong(rule: px.RuleSet, case: Case) -> str | None:
    """Return what is wrong about a rule on a program; empty if nothing is, None if it did not match."""
    result = rule(case.program)
    if result is case.program:
        return None
    module = px.lower(result)
    try:
        torch.testing.assert_close(runs(module), case.runs, equal_nan=True)
    except AssertionError as error:
        return f"it means something else: {error}"
    found = [str(each) for each in px.verify(result, infer=True)]
    if memory(module) != case.memory:
        found.append("memory is shared otherwise")
    if rule(result) is not result:
        found.append("it matches again")
    return "; ".join(found)


@pytest.mark.parametrize("rule", RULES, ids=[str(number) for number in range(len(RULES))])
def test_the_meaning_is_kept(rule: px.RuleSet) -> None:
    found = [(wrong(rule, case), case) for case in cases()]
    broken = [f"{said}\n{case.program.text()}" for said, case in found if said]
    assert not broken, broken[0]
    assert sum(said is not None for said, _ in found) >= 3, "no program has what the rule looks for"


# A value inside that others use would only be computed twice (tests/transforms/test_rules.py).
@pytest.mark.parametrize("condition", ["_is_movable", "shares_alike"])
def test_a_condition_left_out_is_found(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Legality, condition, lambda *_: True)

    def breaks(rule: px.RuleSet, case: Case) -> bool:
        try:
            return bool(wrong(rule, case))
        except (px.PurefxError, RuntimeError, KeyError):
            return True

    assert any(breaks(rule, case) for rule in RULES for case in cases())
