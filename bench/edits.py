"""What an edit costs: one body of a tree of many is edited, and the new version is verified, digested, lowered and run.

Times are processor times, the least of several rounds: others use the machine, and an edit takes microseconds.  The tree is made
of values, because the exporter would take hours for ten thousand blocks; each block has a body of its own.
"""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch import nn

import purefx as px
from bench.measure import exponent
from purefx.ir.graph import Call
from purefx.ir.program import Module
from purefx.ir.state import Slot, SlotKind, State

__all__ = ["SIZES", "anew", "edits", "tree"]

SIZES = (96, 100, 1_000, 10_000)
"""How many bodies there are; the first is the tree of the issue."""

WIDTH = 8

MILLI = 1e3


class Block(nn.Module):
    """One block, of which the others are copies with another number."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale, add and squash: numbers stay small however many blocks there are."""
        return torch.tanh(x + torch.nn.functional.gelu(self.lin(x)) * 0.5)


def tree(blocks: int) -> px.Program:
    """Return a tree of blocks, each of which is a body of its own.

    Args:
        blocks: how many.
    """
    example = torch.export.export(nn.Sequential(Block(), Block()), (torch.ones(2, WIDTH),))
    made = px.transform(px.import_ep(example))
    body = next(
        graph for graph in made.graphs.values() if any(_is_scale(node) for node in graph.nodes)
    )
    (lin,) = [node.do.graph for node in body.nodes if type(node.do) is Call]
    call = made.main.nodes[0]
    nodes = [
        px.Node(
            f"block_{number}",
            Call(px.Frame(f"{number}"), f"block {number}"),
            (_value(number, made),),
            meta=call.meta,
        )
        for number in range(blocks)
    ]
    graphs = {
        "": px.Graph(made.main.inputs, tuple(nodes), (px.Ref(nodes[-1].name),)),
        lin: made.graphs[lin],
    }
    graphs |= {f"block {number}": scaled(body, 0.1 + number / blocks) for number in range(blocks)}
    slots = {
        f"{number}.lin.{name}": value
        for number in range(blocks)
        for name, value in Block().lin.named_parameters()
    }
    state = {
        name: Slot(SlotKind.PARAMETER, value, cell, cell)
        for cell, (name, value) in enumerate(slots.items())
    }
    kinds = {module.path: module.type_name for module in made.modules}
    modules = [Module("", kinds[""])]
    for number in range(blocks):
        modules += [Module(f"{number}", kinds["0"]), Module(f"{number}.lin", kinds["0.lin"])]
    return px.Program.of(
        graphs,
        state=State(tuple(state), px.ir.pmap(state)),
        signature=evolve(made.signature, lifted=()),
        modules=tuple(modules),
    )


def _value(number: int, made: px.Program) -> px.Ref:
    return px.Ref(f"block_{number - 1}") if number else px.Ref(made.main.inputs[0].name)


def _is_scale(node: px.Node) -> bool:
    return isinstance(node.do, px.Op) and node.do.name == "aten.mul.Tensor"


def scaled(graph: px.Graph, by: float) -> px.Graph:
    """Return a body that multiplies by another number."""
    nodes = [
        node.evolve(args=(node.args[0], by)) if _is_scale(node) else node for node in graph.nodes
    ]
    return evolve(graph, nodes=tuple(nodes))


def silent(program: px.Program) -> px.Program:
    """Return a version in which one body does not say the value of one node, which three others follow from."""
    graph = program.graphs["block 1"]
    nodes = [
        evolve(node, meta={}) if isinstance(node.do, px.Op) and "gelu" in node.do.name else node
        for node in graph.nodes
    ]
    return program.evolve(graphs=program.graphs.set("block 1", evolve(graph, nodes=tuple(nodes))))


def anew(program: px.Program) -> px.Program:
    """Return a copy of new graphs and of a new state, of which nothing is known."""
    graphs = {
        name: px.Graph(graph.inputs, graph.nodes, graph.output)
        for name, graph in program.graphs.items()
    }
    return evolve(
        program, graphs=px.ir.pmap(graphs), state=State(program.state.order, program.state.slots)
    )


@frozen
class Variants:
    """Versions of a program, each with one body edited, none twice the same."""

    base: px.Program
    numbers: Iterator[int] = field(factory=partial(itertools.count, 1))

    def next(self) -> px.Program:
        """Return a version that nobody has asked anything."""
        number = next(self.numbers)
        name = f"block {number % (len(self.base.graphs) - 2)}"
        return self.base.evolve(
            graphs=self.base.graphs.set(name, scaled(self.base.graphs[name], float(number)))
        )


def least(run: Callable[[Any], Any], given: Callable[[], Any], rounds: int) -> float:
    """Return the least processor seconds that a function takes, each time for something else."""
    found: list[float] = []
    gc.collect()
    for _ in range(rounds + 2):
        value = given()
        start = time.process_time()
        run(value)
        found.append(time.process_time() - start)
    return min(found[2:])


def of_size(blocks: int, rounds: int) -> dict[str, float]:
    """Return what an edit costs in a tree, in seconds.

    Args:
        blocks: how many blocks it has.
        rounds: how often each is timed.
    """
    base = tree(blocks)
    variants, x = Variants(base), torch.ones(2, WIDTH)
    px.lower(tree(2))  # what is imported once
    found: dict[str, float] = {}
    for name, ask in (
        ("verify", px.verify),
        ("digest", px.digest),
        ("infer", px.infer),
        ("deduplicate", px.deduplicate),
    ):
        start = time.process_time()
        ask(base)
        found[f"{name}, from nothing"] = time.process_time() - start
    start = time.process_time()
    lowered = px.lower(base, state="share")
    found["lower, from nothing"] = time.process_time() - start
    lowered(x)
    few = max(2, min(rounds, 40_000 // blocks))
    found["verify"] = least(px.verify, variants.next, rounds)
    found["digest"] = least(px.digest, variants.next, rounds)
    found["deduplicate"] = least(px.deduplicate, variants.next, rounds)
    found["transform"] = least(px.transform, variants.next, rounds)
    found["infer"] = least(px.infer, lambda: silent(variants.next()), rounds)
    found["infer, of known operands"] = least(px.infer, lambda: silent(base), rounds)
    found["verify and digest"] = least(
        lambda program: (px.verify(program), px.digest(program)), variants.next, rounds
    )
    found["lower"] = least(lambda program: px.lower(program, state="share"), variants.next, few)
    found["forward"] = least(lambda module: module(x), lambda: lowered, few)
    found["lower, forward"] = least(
        lambda program: px.lower(program, state="share")(x), variants.next, few
    )
    return found


def many(blocks: int, count: int) -> dict[str, float]:
    """Return what a search over variants costs: each is edited, verified, digested, and compared by its digest.

    Args:
        blocks: how many blocks the tree has.
        count: how many variants.
    """
    base = tree(blocks)
    px.verify(base)
    seen, variants = set[bytes](), Variants(base)

    def search(number: int) -> None:
        for _ in range(number):
            program = variants.next()
            assert not px.verify(program)
            seen.add(bytes.fromhex(px.digest(program)))

    search(50)
    start = time.process_time()
    search(count)
    seconds = (time.process_time() - start) / count
    assert len(seen) == count + 50
    seen.clear()
    tracemalloc.start()
    search(200)
    gc.collect()
    seen.clear()
    before = tracemalloc.get_traced_memory()[0]
    search(400)
    seen.clear()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {"seconds": seconds, "bytes kept": kept / 400}


def edits(sizes: Sequence[int], count: int, rounds: int) -> dict[str, Any]:
    """Print and return the table: what an edit costs by number of bodies, and a search over variants.

    Args:
        sizes: how many bodies.
        count: how many variants are searched.
        rounds: how often each is timed.
    """
    found = {size: of_size(size, 4 * rounds) for size in sizes}
    names = list(next(iter(found.values())))
    print(
        f"\n{'one body edited, ms':<26}"
        + "".join(f"{size:>10}" for size in sizes)
        + f"{'growth':>12}"
    )
    grown = sorted(sizes)[1:] if len(sizes) > 2 else sorted(sizes)
    for name in names:
        times = [found[size][name] for size in sizes]
        slope = (
            exponent(list(grown), [found[size][name] for size in grown]) if len(grown) > 1 else 0.0
        )
        print(
            f"{name:<26}"
            + "".join(f"{each * MILLI:>10.3f}" for each in times)
            + f"{f'size^{slope:.2f}':>12}"
        )
    searched = many(sizes[0], count)
    print(
        f"{count} variants of {sizes[0]} bodies: {searched['seconds'] * MILLI:.3f} ms each to edit, verify, digest and "
        f"compare; {searched['bytes kept']:.0f} bytes kept of each"
    )
    return {"sizes": {str(size): each for size, each in found.items()}, "variants": searched}
