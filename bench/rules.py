"""Rewrite rules: ours, ``torch.fx.replace_pattern``, and the ``PatternMatcherPass`` of torch's inductor, on equal rules.

Each starts from a copy of what it works on, a program or the graph module of the exported program, and ends with it rewritten.
Not timed: making the copy (of ours, nothing that is worked out of a graph once, as who uses what, is there yet; a graph of fx
keeps its users with its nodes), making the rule, the exporter and the import.  What they do besides differs: fx leaves new nodes
without values and compiles the module's code anew, inductor runs the replacement on fake tensors for each match, and ours
decides by the effects of operators, infers what is new and what follows from it, and walks the result once more.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import fx, nn
from torch._inductor import pattern_matcher as inductor
from torch._subclasses import FakeTensorMode
from torch.nn import functional

import purefx as px
from bench.measure import alternate
from bench.workloads import Workload, workload

__all__ = ["HEADER", "chain_of_hits", "layers", "line", "rules"]

ATEN = torch.ops.aten

HEADER = (
    f"{'rules':<14} {'rule':<12} {'nodes':>6} {'hits':>5} {'ours ms':>8} {'fx ms':>9} {'ratio':>7} {'inductor ms':>11} "
    f"{'ratio':>7} {'us a hit':>8}  equal"
)


@frozen
class Rewriting:
    """One rule, written for all three: in torch's words for us, in operators for the others."""

    name: str
    ours: px.Rule
    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    found: Any
    """The pattern for inductor."""
    target: Any
    """What all hits have become."""


def _rule(pattern: Callable[..., Any], replacement: Callable[..., Any]) -> px.Rule:
    made: px.Rule = px.rule(pattern)
    return made.becomes(replacement)


def activation() -> Rewriting:
    """GELU becomes ReLU."""
    return Rewriting(
        "gelu",
        _rule(lambda x: functional.gelu(x), lambda m, x: torch.relu(x)),
        lambda x: ATEN.gelu.default(x),
        lambda x: ATEN.relu.default(x),
        inductor.CallFunction(ATEN.gelu.default, inductor.KeywordArg("x")),
        ATEN.relu.default,
    )


def behind_linear(old: str) -> Rewriting:
    """The activation of a linear layer becomes ReLU."""
    overload = getattr(ATEN, old).default
    if old == "gelu":
        return Rewriting(
            "linear, gelu",
            _rule(
                lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
                lambda m, x, w, b: torch.relu(functional.linear(x, w, b)),
            ),
            lambda x, w, b: overload(ATEN.linear.default(x, w, b)),
            lambda x, w, b: ATEN.relu.default(ATEN.linear.default(x, w, b)),
            _call(overload, _call(ATEN.linear.default, *map(inductor.KeywordArg, "xwb"))),
            ATEN.relu.default,
        )
    return Rewriting(
        f"linear, {old}",
        _rule(
            lambda x, w: functional.silu(functional.linear(x, w)),
            lambda m, x, w: torch.relu(functional.linear(x, w)),
        ),
        lambda x, w: overload(ATEN.linear.default(x, w)),
        lambda x, w: ATEN.relu.default(ATEN.linear.default(x, w)),
        _call(overload, _call(ATEN.linear.default, *map(inductor.KeywordArg, "xw"))),
        ATEN.relu.default,
    )


def _call(target: Any, *args: Any) -> Any:
    return inductor.CallFunction(target, *args)


def rules(load: Workload, rewriting: Rewriting, rounds: int) -> dict[str, Any]:
    """Time one rule on one flat workload.

    Args:
        load: what is rewritten.
        rewriting: the rule.
        rounds: of timing.
    """
    return _timed(load.name, px.import_ep(load.ep), load.ep.graph_module, rewriting, rounds)


def chain_of_hits(nodes: int, hits: int, rounds: int) -> dict[str, Any]:
    """Time 1,000 hits, say, in a chain of 20,000 nodes that was built without the exporter.

    Args:
        nodes: how long the chain is.
        hits: how many of its nodes a rule matches, evenly spread.
        rounds: of timing.
    """
    graph = fx.Graph()
    with FakeTensorMode():
        value = torch.empty(2, 3)
    last = graph.placeholder("x")
    last.meta["val"] = value
    for number in range(nodes):
        last = graph.call_function(
            ATEN.gelu.default if number % (nodes // hits) == 0 else ATEN.neg.default, (last,)
        )
        last.meta["val"] = value
    graph.output((last,))
    module = fx.GraphModule(nn.Module(), graph)
    return _timed(f"chain-{nodes}", px.import_fx(module), module, activation(), rounds)


def layers(counts: list[int], rounds: int) -> dict[str, float]:
    """Time a rule on decoders whose equal layers share one body, by the number of layers, and print the times.

    Args:
        counts: numbers of layers.
        rounds: of timing.
    """
    rewriting = activation()
    trees = {
        f"gpt-{count}": px.transform(px.import_ep(workload(f"gpt-{count}").ep)) for count in counts
    }
    copies = {name: partial(_copy, tree) for name, tree in trees.items()}
    times = alternate(dict.fromkeys(trees, rewriting.ours), rounds=rounds, calls=1, fresh=copies)
    said = ", ".join([f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items()])
    print(f"gelu in trees whose layers share one body: {said}")
    return times


def line(figures: dict[str, Any]) -> str:
    """Return the line of the table for one rule on one workload."""
    times = {who: seconds * 1e3 for who, seconds in figures["seconds"].items()}
    return (
        f"{figures['name']:<14} {figures['rule']:<12} {figures['nodes']:>6} {figures['hits']:>5} {times['ours']:>8.1f} "
        f"{times['fx']:>9.1f} {times['fx'] / times['ours']:>6.1f}x {times['inductor']:>11.1f} "
        f"{times['inductor'] / times['ours']:>6.1f}x {times['ours'] * 1e3 / figures['hits']:>8.0f}  {figures['equal']}"
    )


def _timed(
    name: str, program: px.Program, module: fx.GraphModule, rewriting: Rewriting, rounds: int
) -> dict[str, Any]:
    def fresh() -> fx.GraphModule:
        # Tensors and fake values are shared; nodes are what a rewriter changes.
        graph = fx.Graph()
        graph.output(graph.graph_copy(module.graph, {}))
        return fx.GraphModule(module, graph)

    theirs = {"fx": _by_fx(rewriting), "inductor": _by_inductor(rewriting)}
    copies: dict[str, Callable[[], Any]] = {
        "ours": lambda: _copy(program),
        **dict.fromkeys(theirs, fresh),
    }
    times = alternate({"ours": rewriting.ours, **theirs}, rounds=rounds, fresh=copies)
    counted = [_count(rewriting.ours(program), rewriting.target)]
    for run in theirs.values():
        made = fresh()
        run(made)
        counted.append(sum(node.target is rewriting.target for node in made.graph.nodes))
    return {
        "name": name,
        "rule": rewriting.name,
        "nodes": len(module.graph.nodes),
        "hits": counted[0] - sum(node.target is rewriting.target for node in module.graph.nodes),
        "seconds": times,
        "equal": len(set(counted)) == 1,
    }


def _count(program: px.Program, target: Any) -> int:
    return sum(
        isinstance(node.do, px.Op) and node.do.target is target for _, node in program.nodes()
    )


def _copy(program: px.Program) -> px.Program:
    # Equal, and nothing has been asked of it.
    graphs = {
        name: px.Graph(graph.inputs, graph.nodes, graph.output)
        for name, graph in program.graphs.items()
    }
    return program.evolve(graphs=px.ir.pmap(graphs))


def _by_fx(rewriting: Rewriting) -> Callable[[fx.GraphModule], Any]:
    return lambda module: fx.replace_pattern(module, rewriting.pattern, rewriting.replacement)


def _by_inductor(rewriting: Rewriting) -> Callable[[fx.GraphModule], Any]:
    passes: Any = inductor.PatternMatcherPass()

    def replace(match: Any, **given: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match.replace_by_example(rewriting.replacement, list(given.values()))

    inductor.register_graph_pattern(rewriting.found, pass_dict=passes)(replace)

    def run(module: fx.GraphModule) -> None:
        value: Any = next(
            found
            for node in module.graph.nodes
            if isinstance(found := node.meta.get("val"), torch.Tensor)
        )
        with value.fake_mode:
            passes.apply(module.graph)
        module.recompile()

    return run
