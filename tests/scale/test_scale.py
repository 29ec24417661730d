"""Large programs, deep modules and many calls: time, depth and memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache

import pytest
import torch

import purefx as px
from bench.chain import chain
from bench.making import looked_at
from purefx.ir.verify import verify
from tests.models import NEG, exported, flat, parent


def nested(depth: int) -> px.Program:
    """Return a program whose modules nest ``depth`` deep, one operator in each."""
    nodes: list[px.Node] = []
    stack: tuple[px.Frame, ...] = ()
    previous = "x"
    for index in range(depth):
        stack = (*stack, px.Frame(f"{stack[-1].path}.m" if stack else "m"))
        nodes.append(px.Node(f"n{index}", NEG, (px.Ref(previous),), (), stack))
        previous = f"n{index}"
    return flat(nodes, px.Ref(previous), "x")


def test_a_chain_of_30_000_nodes() -> None:
    """Verify, outline, deduplicate, digest, lower, run."""
    program = chain(30_000)
    assert verify(program) == ()
    result = px.transform(program)
    assert len(result.order) == 3
    assert len(px.digest(result)) == 32
    x = torch.randn(2)
    for lowered in (px.lower(result), px.lower(result, to="interpreter"), px.lower(program)):
        assert torch.equal(lowered(x)[0], x)


def test_the_text_of_a_long_program_is_read_back() -> None:
    """Printing and parsing are linear and keep everything."""
    program = chain(10_000)
    assert px.parse(program.text()) == program


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_deep_nestings_run(to: str) -> None:
    """A hundred modules inside one another, at the default recursion limit; a thousand only after they were inlined."""
    depth = 100
    program = px.transform(nested(depth))
    assert verify(program) == ()
    module = px.lower(program, to=to)  # type: ignore[arg-type]
    x = torch.randn(2)
    assert torch.equal(module(x)[0], x)
    assert program.text().count("\n") > depth / 2
    assert px.digest(program) == px.digest(px.transform(nested(depth)))
    deep = px.transform(nested(1_000))
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"modules nest 1000 deep, at most 100 can run: lower px.inline\(program\)",
    ):
        px.lower(deep, to=to)  # type: ignore[arg-type]
    assert torch.equal(px.lower(px.inline(deep), to=to)(x)[0], x)  # type: ignore[arg-type]


def count_calls(run: Callable[[], object]) -> int:
    """Return how many Python functions of purefx a run calls: a measure of work that no machine disturbs."""
    calls = 0

    def trace(frame: object, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(trace)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def with_modules(program: px.Program) -> px.Program:
    """Return a program of ``chain`` that lists its modules, as exported ones do."""
    paths = {
        frame.path: None
        for step in program.trail[:1]
        for node in step.before.main.nodes
        for frame in node.stack
    }
    return program.evolve(
        modules=(px.ir.Module(""), *(px.ir.Module(path, "torch.nn.Module") for path in paths))
    )


@cache
def made(size: int) -> tuple[px.Program, px.Program, torch.nn.Module]:
    """Return a chain, what the default pipeline makes of it, and the module."""
    program = chain(size)
    result = px.transform(program)
    return program, result, px.lower(with_modules(result))


@pytest.mark.parametrize("what", ["transform", "lower", "verify", "print", "digest", "look"])
def test_work_grows_linearly(what: str) -> None:
    """Four times the nodes, at most 4.4 times the calls."""
    work: list[int] = []
    for size in (1_000, 4_000):
        program, result, module = made(size)
        runs: dict[str, Callable[[], object]] = {
            "transform": lambda program=program: px.transform(program),
            "lower": lambda result=result: px.lower(result),
            "verify": lambda program=program: verify(program),
            "print": lambda program=program: program.text(),
            "digest": lambda result=result: px.digest(result),
            "look": lambda module=module: looked_at(module),
        }
        work.append(count_calls(runs[what]))
    assert work[1] <= 4.4 * work[0], work


LOWERINGS = 1_000
ALLOWED = 1_024
"""Bytes a lowering."""


class Two(
    parent(
        first=lambda: torch.nn.Linear(2, 2),
        second=lambda: torch.nn.Linear(2, 2),
        third=torch.nn.ReLU,
    )
):
    """Two layers with one body, and one with another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x)))


@pytest.mark.usefixtures("quick_collection")
@pytest.mark.slow
def test_a_thousand_lowerings_leave_nothing() -> None:
    """Nothing is kept of modules that are gone; a tenth of them are read as well, because fx registers what it generates."""
    x = torch.ones(1, 2)
    program = px.transform(px.import_ep(exported(Two(), x)))

    def lower(number: int) -> None:
        module = px.lower(program, to="interpreter" if number % 2 else "graph_module")
        module(x)
        for inner in () if number % 10 else module.modules():
            assert not isinstance(inner, torch.fx.GraphModule) or "forward" in inner.code

    for number in range(20):
        lower(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(LOWERINGS):
            lower(number)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept <= ALLOWED * LOWERINGS, f"{kept / LOWERINGS:.0f} bytes are kept of each lowering"
