"""Regions of operators: programs that were once imported or called wrongly."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import parent

# The body of a vmap stays between the functions that open and close it, and in the module that it was written in.


class Mapped(parent(linear=lambda: nn.Linear(3, 3))):
    def forward(self, x: Any) -> Any:
        y = torch.vmap(lambda row: torch.vmap(lambda item: item * 2)(row) + row.sum())(x)
        return self.linear(y)


class Twice(parent(child=Mapped)):
    def forward(self, x: Any) -> Any:
        return self.child(self.child(x)) + 1


def test_a_vmap_in_a_child_that_is_called_twice() -> None:
    module, x = Twice(), torch.randn(4, 3)
    program = px.transform(px.import_ep(torch.export.export(module, (x,), strict=True)))
    lowered = px.lower(program)
    for number in range(3):
        given = x + number
        assert torch.equal(lowered(given), module(given))
    assert torch.randn(2).shape == (2,), "no vmap was left open"
    assert len([node for node in program.main.nodes if isinstance(node.do, px.Call)]) == 2
    assert len(program.order) == 3, "both calls of the child have one body"


# A module with a preserved signature was called alone in a region and again outside, and the second call ran the first body.


REGIONS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


class Child(parent(w=lambda: nn.Parameter(torch.tensor([[2.0]])))):
    """Does something else under ``no_grad``, with a flag, and with a keyword."""

    def forward(self, x: torch.Tensor, flag: bool = False, *, y: Any = 0.0) -> torch.Tensor:
        x = x.float()
        value = x @ self.w if torch.is_grad_enabled() else x @ self.w + 100
        return value - y if flag else value + y


class Root(nn.Module):
    """Calls the child alone in a region as often as is said, and then outside as often as is said."""

    def __init__(
        self, region: Callable[[], Any], inside: int, outside: int, options: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.c = Child()
        self.region, self.inside, self.outside, self.options = region, inside, outside, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = [x]
        args, kwargs = self.options
        for _ in range(self.inside):
            with self.region():
                values.append(self.c(values[-1], *args, **kwargs))
        for _ in range(self.outside):
            values.append(self.c(values[-1], *[not flag for flag in args], **kwargs).float())
        return torch.cat(values[1:])


def gradients(module: nn.Module, x: torch.Tensor) -> tuple[Any, ...]:
    """Return what a module gives, and the gradients to its parameters."""
    result = module(x)
    result.float().sum().backward()
    return result.detach(), tuple(parameter.grad for parameter in module.parameters())


OPTIONS: dict[str, tuple[Any, ...]] = {
    "plain": ((), {}),
    "flag": ((True,), {}),
    "keyword": ((), {"y": 3.0}),
}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize(
    ("calls", "options"),
    list(zip([(1, 1), (2, 1), (1, 2)], OPTIONS.values(), strict=True)),
    ids=OPTIONS,
)
def test_each_call_runs_its_own_body(
    region: str, calls: tuple[int, int], options: tuple[Any, ...]
) -> None:
    module, x = Root(REGIONS[region], *calls, options), torch.tensor([[3.0]])
    eager = copy.deepcopy(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strict = (
            calls == (1, 1) and region == "no_grad"
        )  # under autocast what a strict export gives does not run in torch either
        ep = torch.export.export(module, (x,), preserve_module_call_signature=("c",), strict=strict)
    program = px.transform(px.import_ep(ep))
    lowered = [
        px.lower(program),
        px.lower(program, to="interpreter"),
        px.lower(px.dispatch(px.deduplicate(program))),
    ]
    lowered.append(
        px.lower(px.transform(px.import_ep(ep), px.dispatch))
    )  # before anything is outlined
    for made in lowered:
        for _ in range(2):
            expected = gradients(copy.deepcopy(eager), x)
            torch.testing.assert_close(gradients(copy.deepcopy(made), x), expected, rtol=0, atol=0)


def test_calls_that_keep_their_signature_share_a_callable_all_the_same() -> None:
    class Other(parent(c=Child)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                first = (
                    self.c(x) + 1
                )  # something else in the region: nothing calls the module there
            return self.c(self.c(first))

    x = torch.tensor([[3.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ep = torch.export.export(
            copy.deepcopy(Other()), (x,), preserve_module_call_signature=("c",)
        )
    program = px.transform(px.import_ep(ep))
    assert all(program.call_signatures[frame].shared for frame in program.call_signatures)
    made = px.lower(program)
    assert torch.equal(cast(Any, made)(x), Other()(x))
