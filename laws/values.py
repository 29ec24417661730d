"""Laws of fake values: what meta says agrees with what runs, and ``infer`` works out again what was taken away.

The first holds for every transformation.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ..ir.analysis.numbers import SYMBOLIC
from ..ir.arguments import Ref, thawed
from ..ir.graph import Graph, Node, Op
from ..ir.inference.values import running
from ..ir.persistent import pmap
from ..ir.program import Program
from ..ir.torch_private import FakeTensor, OpOverload, UnsupportedOperatorException, device_of, schema_of
from .evaluate import evaluate
from .law import Case, Transform, law
from .purity import seeded
from .toy import TensorMachine

__all__ = ["INFERRED", "described", "false_values", "said_values", "without_some_values"]

NUMBERS = frozenset({int, bool})
"""Types of results that are compared exactly; of a float only the type is said by a tracer."""


def false_values(program: Program, calls: Sequence[Sequence[Any]], *, seed: int = 0) -> list[str]:
    """Return what meta says that is not what runs: a sentence for each value and kind of mistake.

    Args:
        program: a program of real operators at any stage, on the CPU; its state is not changed.
        calls: the leaves of the user inputs, for each call.
        seed: of torch's generator, which is put back afterwards.

    >>> from attrs import evolve
    >>> from purefx.ir.importing import import_ep
    >>> program = import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1),)))
    >>> false_values(program, [(torch.ones(1),)])
    []
    >>> node = evolve(program.main.nodes[0], meta={"val": torch.ones(2)})
    >>> false_values(program.with_main(evolve(program.main, nodes=(node,))), [(torch.ones(1),)])
    ['the root / relu: it says torch.float32 (2,) (1,), and torch.float32 (1,) (1,) runs']
    """
    found: dict[str, None] = {}
    for leaves in calls:
        sizes: dict[str, Any] = {}

        def seen(graph: str, part: Any, value: Any, sizes: dict[str, Any] = sizes) -> None:
            if "val" in part.meta:
                differences = _differences(part.meta["val"], value, sizes)
                found.update(dict.fromkeys(f"{graph or 'the root'} / {part.name}: {said}" for said in differences))

        with seeded(seed), torch.no_grad():
            evaluate(program, [leaves], TensorMachine(), seen=seen)
    return list(found)


def _differences(said: Any, real: Any, sizes: dict[str, Any]) -> Iterator[str]:
    todo = [(said, real)]
    while todo:
        mine, runs = todo.pop()
        if isinstance(mine, tuple | list) and isinstance(runs, tuple | list):
            if len(mine) != len(runs):
                yield f"it says {len(mine)} values, and {len(runs)} run"
            else:
                todo += zip(mine, runs, strict=True)
        elif isinstance(mine, torch.Tensor):
            if not isinstance(runs, torch.Tensor):
                yield f"it says a tensor, and a {type(runs).__name__} runs"
            elif not _is_tensor(mine, runs, sizes):
                yield f"it says {_shown(mine)}, and {_shown(runs)} runs"
        elif _is_number(mine, runs) and not _is_size(mine, runs, sizes):
            yield f"it says {mine}, which is {sizes.get(str(mine), mine)}, and {runs} runs"


def _is_number(said: Any, real: Any) -> bool:
    return type(real) in NUMBERS and (isinstance(said, SYMBOLIC) or type(said) in NUMBERS)


def _is_tensor(said: torch.Tensor, real: torch.Tensor, sizes: dict[str, Any]) -> bool:
    if (said.dtype, device_of(said).type, said.dim()) != (real.dtype, real.device.type, real.dim()):
        return False
    pairs = list(zip(said.shape, real.shape, strict=True))
    if said.layout is torch.strided and real.layout is torch.strided:
        # Where there is one element or none, torch is free to say any stride.
        strides = zip(said.stride(), real.stride(), real.shape, strict=True)
        pairs += [(mine, runs) for mine, runs, size in strides if size > 1 and real.numel()]
    return all(_is_size(mine, runs, sizes) for mine, runs in pairs)


def _is_size(said: Any, real: Any, sizes: dict[str, Any]) -> bool:
    known = sizes.setdefault(str(said), real) if isinstance(said, SYMBOLIC) else said
    return bool(known == real)


def _shown(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride() if tensor.layout is torch.strided else tensor.layout}"


@law("where a value has a fake value, that is what runs, in every call")
def said_values(transform: Transform, case: Case) -> list[str]:
    if case.false_values is None:
        raise ValueError("the law 'said values' needs a case that can ask: Case(program, false_values=...)")
    if case.false_values(case.program):
        return []  # it says something wrong already, as exporters do of what runs under autocast
    return case.false_values(transform(case.program))


Place = tuple[str, str]

PART_UNKNOWN = "NoneType"


def without_some_values(program: Program, *, seed: int = 0) -> tuple[Program, frozenset[Place]]:
    """Return a program without the values of some nodes, and which: graph and name.

    Args:
        program: a program at any stage.
        seed: chooses the nodes; about one in three.  Values of operators without a fake kernel stay: nothing else says them.

    >>> node = Node("y", Op("toy.neg"), meta={"val": 1})
    >>> taken = [without_some_values(Program.of({"": Graph((), (node,), ())}), seed=seed)[1] for seed in range(9)]
    >>> frozenset({("", "y")}) in taken, frozenset() in taken
    (True, True)
    """
    found: set[Place] = set()
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        drawn = [node for index, node in enumerate(graph.nodes) if "val" in node.meta and _is_drawn(seed, name, index)]
        gone = {node.name for node in drawn if not _says_alone(graph, node)}
        found.update((name, node) for node in gone)
        nodes = [_without_value(node) if node.name in gone else node for node in graph.nodes]
        graphs[name] = evolve(graph, nodes=tuple(nodes)) if gone else graph
    return (program.evolve(graphs=pmap(graphs)), frozenset(found)) if found else (program, frozenset())


def _is_drawn(seed: int, name: str, index: int) -> bool:
    return zlib.crc32(repr((seed, name, index)).encode()) % 3 == 0


def _says_alone(graph: Graph, node: Node) -> bool:
    # Whether only the meta of a node says its value: the operator has no fake kernel, and a tracer ran the real one on zeros.
    target: Any = node.do.target if type(node.do) is Op else None
    if not isinstance(target, OpOverload):
        return False
    values = {part.name: part.meta["val"] for parts in (graph.inputs, graph.nodes) for part in parts if "val" in part.meta}
    modes = [value.fake_mode for name in node.refs() if isinstance(value := values.get(name), FakeTensor)]
    changes = schema_of(target).is_mutable
    if not modes or not values.keys() >= set(node.refs()):
        return changes  # it cannot be asked; few operators that write say a value of their own

    def given(leaf: Any) -> Any:
        value = values[leaf.name] if type(leaf) is Ref else leaf
        return torch.empty_like(value) if changes and isinstance(value, FakeTensor) else value

    try:
        with running(modes[0]):
            target(*thawed(node.args, given), **{key: thawed(part, given) for key, part in node.kwargs})
    except UnsupportedOperatorException:
        return True
    except Exception:  # noqa: BLE001  there is a kernel, and whatever it has to say `infer` is to hear
        return False
    return False


def _without_value(node: Node) -> Node:
    return evolve(node, meta=MappingProxyType({key: value for key, value in node.meta.items() if key != "val"}))


def described(program: Program) -> dict[Place, str]:
    """Return the values of a program as text, by graph and name.

    >>> described(Program.of({"": Graph((), (Node("y", Op("toy.neg"), meta={"val": torch.ones(2)}),), ())}))
    {('', 'y'): 'torch.float32 cpu (2) (1)'}
    """
    names: dict[str, str] = {}
    return {place: _text(node.meta["val"], names) for place, node in _nodes(program) if "val" in node.meta}


def _nodes(program: Program) -> Iterator[tuple[Place, Node]]:
    return (((graph, node.name), node) for graph, node in program.nodes())


def _text(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join([_text(part, names) for part in value])}]"
    if isinstance(value, torch.Tensor):
        sizes, strides = (", ".join([_size(size, names) for size in of]) for of in (value.shape, value.stride()))
        return f"{value.dtype} {device_of(value)} ({sizes}) ({strides})"
    return _size(value, names) if isinstance(value, int | torch.SymInt) else f"{type(value).__name__}"


def _size(size: Any, names: dict[str, str]) -> str:
    text = str(size)
    return names.setdefault(text, f"unknown {len(names)}") if text.startswith("u") else text


@law("values that were taken away come back as they were, where the operator has a fake kernel")
def values_back(transform: Transform, case: Case) -> list[str]:
    bare, taken = without_some_values(case.program, seed=case.seed)
    before, result = described(case.program), transform(bare)
    after = described(result)
    found = [
        f"{graph or 'the root'} / {name} was {before[graph, name]} and is {after[graph, name]}"
        for graph, name in before
        if after.get((graph, name), before[graph, name]) != before[graph, name] and PART_UNKNOWN not in before[graph, name]
    ]
    lost = [place for place in before if place not in after]
    found += [f"{name} has lost its value" for graph, name in lost if (graph, name) not in taken]
    for graph, name in lost:
        node = result.graphs[graph].by_name[name]
        if _can_be_asked(node) and _has_all(result.graphs[graph], node):
            found.append(f"the value of {name} was not worked out")
    return found


def _can_be_asked(node: Node) -> bool:
    return type(node.do) is Op and isinstance(node.do.target, OpOverload) and bool(schema_of(node.do.target).returns)


def _has_all(graph: Graph, node: Node) -> bool:
    known = {formal.name for formal in graph.inputs if "val" in formal.meta}
    known.update(other.name for other in graph.nodes if "val" in other.meta)
    return known.issuperset(node.refs())


@law("what does not depend on a missing value keeps its meta")
def other_values_same(transform: Transform, case: Case) -> list[str]:
    bare, taken = without_some_values(case.program, seed=case.seed)
    after = transform(bare).main.by_name
    touched = {name for graph, name in taken if graph == bare.root}
    touched.update(formal.name for formal in bare.main.inputs if "val" not in formal.meta)
    found: list[str] = []
    for node in bare.main.nodes:
        if "val" not in node.meta or not touched.isdisjoint(node.refs()) or node_bodies(node):
            touched.add(node.name)
        elif after[node.name].meta is not node.meta:
            found.append(f"{node.name} does not depend on what was taken away, and has other meta")
    return found


def node_bodies(node: Node) -> list[str]:
    """Return the graphs that a node calls or gives to an operator.

    >>> node_bodies(Node("y", Op("toy.neg")))
    []
    """
    return list(Graph((), (node,), ()).callees)


@law("only meta changes")
def meta_only(transform: Transform, case: Case) -> list[str]:
    bare, _ = without_some_values(case.program, seed=case.seed)
    return [] if transform(bare) == bare else ["more than meta has changed"]


INFERRED = (values_back, other_values_same, meta_only)
