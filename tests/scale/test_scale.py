"""Size: long programs, deep nestings, many calls; no recursion over nodes or modules, and no quadratic step.

One idea: programs are built directly as values, since the exporter gives up long before.  Growth is asserted by
counting what is made, never by a clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

import purefx as px
from bench.chain import chain
from bench.making import looked_at
from purefx.ir.verify import verify
from tests.programs import NEG, flat


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


def test_the_recursion_limit_is_the_default() -> None:
    """The tests below would prove nothing under a raised limit."""
    assert sys.getrecursionlimit() <= 1_000


def test_a_chain_of_100_000_nodes() -> None:
    """Verify, outline, deduplicate, digest, lower, run."""
    program = chain(100_000)
    assert verify(program) == ()
    result = px.transform(program)
    assert len(result.order) == 3
    assert len(px.digest(result)) == 32
    x = torch.randn(2)
    for lowered in (px.lower(result), px.lower(result, to="interpreter"), px.lower(program)):
        assert torch.equal(lowered(x)[0], x)


def test_the_text_of_a_long_program_is_read_back() -> None:
    """Printing and parsing are linear and keep everything."""
    program = chain(20_000)
    assert px.parse(str(program)) == program


@pytest.mark.parametrize("depth", [100, 1_000])
@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_deep_nestings_run(depth: int, to: str) -> None:
    """A thousand modules inside one another, at the default recursion limit."""
    program = px.transform(nested(depth))
    assert verify(program) == ()
    module = px.lower(program, to=to)  # type: ignore[arg-type]
    x = torch.randn(2)
    assert torch.equal(module(x)[0], x)
    assert str(program).count("\n") > depth / 2
    assert px.digest(program) == px.digest(px.transform(nested(depth)))


def test_a_wide_call_tree() -> None:
    """One body called from ten thousand modules."""
    nodes = [
        px.Node(f"n{index}", NEG, (px.Ref(f"n{index - 1}" if index else "x"),), (), (px.Frame(f"m{index}"),))
        for index in range(10_000)
    ]
    program = px.transform(flat(nodes, px.Ref("n9999"), "x"))
    assert program.order == ("", "m0")
    assert torch.equal(px.lower(program)(torch.ones(2))[0], torch.ones(2))


def test_interleaved_calls_are_gathered_in_linear_work() -> None:
    """Two hundred calls whose nodes alternate: gathering makes each one run."""
    calls, rounds = 200, 50
    nodes = [
        px.Node(f"n{turn}_{call}", NEG, (px.Ref(f"n{turn - 1}_{call}" if turn else "x"),), (), (px.Frame(f"m{call}"),))
        for turn in range(rounds)
        for call in range(calls)
    ]
    program = px.outline(flat(nodes, px.Ref(f"n{rounds - 1}_0"), "x"))
    assert len(program.order) == calls + 1


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
    paths = {frame.path: None for step in program.trail[:1] for node in step.before.main.nodes for frame in node.stack}
    return program.evolve(modules=(px.Module(""), *(px.Module(path, "torch.nn.Module") for path in paths)))


@pytest.mark.parametrize("what", ["transform", "lower", "verify", "print", "digest", "look"])
def test_work_grows_linearly(what: str) -> None:
    """Four times the nodes, at most 4.4 times the calls."""
    work: list[int] = []
    for size in (1_000, 4_000):
        program = chain(size)
        result = px.transform(program)
        module = px.lower(with_modules(result))
        runs: dict[str, Callable[[], object]] = {
            "transform": lambda program=program: px.transform(program),
            "lower": lambda result=result: px.lower(result),
            "verify": lambda program=program: verify(program),
            "print": lambda program=program: str(program),
            "digest": lambda result=result: px.digest(result),
            "look": lambda module=module: looked_at(module),
        }
        work.append(count_calls(runs[what]))
    assert work[1] <= 4.4 * work[0], work
