"""Issue 4, ``dispatch``: several calls of one preserved module go to one callable, and nothing is kept between calls.

One idea: whatever happens to a module between two forwards of the root, or inside one, the next forward is right.
"""

from __future__ import annotations

import copy
import threading
from typing import Any, cast

import pytest
import torch
from torch import nn

import purefx as px
from tests.unflatten.harness import LOWERED, Case, compare, export

BOTH = pytest.mark.parametrize("to", LOWERED)


class Foo(nn.Module):
    """Has three bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any, *, kind: Any = 0) -> Any:
        if kind == 1:
            return x * 2
        return self.linear(x).relu() if kind else self.linear(x)


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.foo = Foo()

    def forward(self, x: Any) -> Any:
        return self.foo(self.foo(self.foo(x, kind=2), kind=1) - 1, kind=0)


CASE = Case(Root, [(torch.randn(4, 3),)] * 2)


def pair(to: Any, case: Case = CASE, preserve: tuple[str, ...] = ("foo",)) -> tuple[nn.Module, nn.Module]:
    """Return eager and the lowered module."""
    eager = case.make()
    return eager, px.lower(px.transform(px.import_ep(export(eager, case.calls[0], preserve=preserve))), to=to)


class Tripled(nn.Module):
    def forward(self, x: Any, *, kind: Any = 0) -> Any:
        return x * 3 + kind


@BOTH
def test_probing_a_module_leaves_the_next_forward_right(to: Any) -> None:
    eager, u = pair(to)
    x = torch.randn(4, 3)
    for _ in range(4):
        assert torch.equal(u.foo(x, kind=2), eager.foo(x, kind=2))  # from outside it answers as its first call
        compare(u, eager, CASE)


@BOTH
def test_an_exception_half_way_leaves_the_next_forward_right(to: Any) -> None:
    eager, u = pair(to)
    seen: list[int] = []

    def fail(*_: Any) -> None:
        seen.append(1)
        if len(seen) == 2:
            raise ArithmeticError("half way")

    handle = cast(Any, u.foo).register_forward_hook(fail)
    with pytest.raises(ArithmeticError, match="half way"):
        u(*CASE.calls[0])
    handle.remove()
    compare(u, eager, CASE)


@BOTH
def test_two_threads_at_once(to: Any) -> None:
    eager, u = pair(to)
    both = threading.Barrier(2)

    def meet(*_: Any) -> None:
        both.wait(timeout=60)

    cast(Any, u.foo).register_forward_pre_hook(meet)
    inputs = [torch.randn(4, 3) for _ in range(2)]
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: u(inputs[n])})) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, x in enumerate(inputs):
        assert torch.equal(found[number], eager(x))


@BOTH
def test_a_hook_that_calls_the_root(to: Any) -> None:
    eager, u = pair(to)
    other = torch.randn(4, 3)
    found: list[Any] = []

    def again(*_: Any) -> None:
        if not found:
            found.append(None)
            found.append(u(other))

    cast(Any, u.foo).register_forward_hook(again)
    compare(u, eager, CASE)
    assert torch.equal(found[1], eager(other))


@BOTH
@pytest.mark.parametrize("how", ["assigned", "set_submodule"])
def test_a_replacement_replaces_all_calls(to: Any, how: str) -> None:
    eager, u = pair(to)
    for module in (eager, u):
        if how == "assigned":
            module.foo = Tripled()
        else:
            module.set_submodule("foo", Tripled())
    compare(u, eager, CASE)
    assert [name for name, _ in u.named_modules()] == ["", "foo"]


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Root()

    def forward(self, x: Any) -> Any:
        return self.inner(self.inner(x)) + self.inner.foo(x, kind=1)


@BOTH
@pytest.mark.parametrize("preserve", [("inner.foo",), ("inner", "inner.foo")])
def test_a_replacement_below_a_module_that_is_called_twice(to: Any, preserve: tuple[str, ...]) -> None:
    case = Case(Deep, CASE.calls)
    eager, u = pair(to, case, preserve)
    compare(u, eager, case)
    for module in (eager, u):
        cast(Any, module.inner).foo = Tripled()
    compare(u, eager, case)


@BOTH
def test_a_copy_dispatches_by_itself(to: Any) -> None:
    eager, u = pair(to)
    other = copy.deepcopy(u)
    other.foo = Tripled()
    compare(u, eager, CASE)
    eager.foo = Tripled()
    compare(other, eager, CASE)
