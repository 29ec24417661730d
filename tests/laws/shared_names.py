"""The law of ``infer``, which computes removed values again, and the bodies that became one.

Both programs are walked side by side.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from purefx.ir.arguments import Ref, thawed
from purefx.ir.graph import Graph, Node, Op
from purefx.ir.inference.values import running
from purefx.ir.persistent import pmap
from purefx.ir.program import Program
from purefx.ir.torch_private import (
    FakeTensor,
    OpOverload,
    UnsupportedOperatorException,
    device_of,
    schema_of,
)
from purefx.laws.law import Case, Transform, law


def became(before: Program, after: Program) -> dict[str, set[str]]:
    """Return for each body of a result the bodies that became it."""
    found: dict[str, set[str]] = {}
    todo = [(before.root, after.root)]
    while todo:
        old, new = todo.pop()
        if old in found.setdefault(new, set()):
            continue
        found[new].add(old)
        for mine, theirs in zip(before.graphs[old].nodes, after.graphs[new].nodes, strict=True):
            todo += zip(mine.callees, theirs.callees, strict=True)
    return found


# -- inferred --------------------------------------------------------------------------------------------------------------------


Place = tuple[str, str]

PART_UNKNOWN = "NoneType"


def without_some_values(program: Program, *, seed: int = 0) -> tuple[Program, frozenset[Place]]:
    """Return a program without the values of some nodes, and which: graph and name."""
    found: set[Place] = set()
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        drawn = [
            node
            for index, node in enumerate(graph.nodes)
            if "val" in node.meta and _is_drawn(seed, name, index)
        ]
        gone = {node.name for node in drawn if not _says_alone(graph, node)}
        found.update((name, node) for node in gone)
        nodes = [_without_value(node) if node.name in gone else node for node in graph.nodes]
        graphs[name] = evolve(graph, nodes=tuple(nodes)) if gone else graph
    return (
        (program.evolve(graphs=pmap(graphs)), frozenset(found)) if found else (program, frozenset())
    )


def _is_drawn(seed: int, name: str, index: int) -> bool:
    return zlib.crc32(repr((seed, name, index)).encode()) % 3 == 0


def _says_alone(graph: Graph, node: Node) -> bool:
    # Whether only the meta of a node says its value: the operator has no fake kernel, and a tracer ran the real one on zeros.
    target: Any = node.do.target if type(node.do) is Op else None
    if not isinstance(target, OpOverload):
        return False
    values = {
        part.name: part.meta["val"]
        for parts in (graph.inputs, graph.nodes)
        for part in parts
        if "val" in part.meta
    }
    modes = [
        value.fake_mode for name in node.refs() if isinstance(value := values.get(name), FakeTensor)
    ]
    changes = schema_of(target).is_mutable
    if not modes or not values.keys() >= set(node.refs()):
        return changes  # it cannot be asked; few operators that write say a value of their own

    def given(leaf: Any) -> Any:
        value = values[leaf.name] if type(leaf) is Ref else leaf
        return torch.empty_like(value) if changes and isinstance(value, FakeTensor) else value

    try:
        with running(modes[0]):
            target(
                *thawed(node.args, given), **{key: thawed(part, given) for key, part in node.kwargs}
            )
    except UnsupportedOperatorException:
        return True
    except Exception:
        return False
    return False


def _without_value(node: Node) -> Node:
    return evolve(
        node,
        meta=MappingProxyType({key: value for key, value in node.meta.items() if key != "val"}),
    )


def described(program: Program) -> dict[Place, str]:
    """Return the values of a program as text, by graph and name."""
    names: dict[str, str] = {}
    return {
        place: _text(node.meta["val"], names)
        for place, node in _nodes(program)
        if "val" in node.meta
    }


def _nodes(program: Program) -> Iterator[tuple[Place, Node]]:
    return (((graph, node.name), node) for graph, node in program.nodes())


def _text(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join([_text(part, names) for part in value])}]"
    if isinstance(value, torch.Tensor):
        sizes, strides = (
            ", ".join([_size(size, names) for size in of]) for of in (value.shape, value.stride())
        )
        return f"{value.dtype} {device_of(value)} ({sizes}) ({strides})"
    return (
        _size(value, names) if isinstance(value, int | torch.SymInt) else f"{type(value).__name__}"
    )


def _size(size: Any, names: dict[str, str]) -> str:
    text = str(size)
    return names.setdefault(text, f"unknown {len(names)}") if text.startswith("u") else text


@law("removed values are inferred again, equal to before, where the operator has a fake kernel")
def values_back(transform: Transform, case: Case) -> list[str]:
    bare, taken = without_some_values(case.program, seed=case.seed)
    before, result = described(case.program), transform(bare)
    after = described(result)
    found = [
        f"{graph or 'the root'} / {name} was {before[graph, name]} and is {after[graph, name]}"
        for graph, name in before
        if after.get((graph, name), before[graph, name]) != before[graph, name]
        and PART_UNKNOWN not in before[graph, name]
    ]
    lost = [place for place in before if place not in after]
    found += [f"{name} has lost its value" for graph, name in lost if (graph, name) not in taken]
    for graph, name in lost:
        node = result.graphs[graph].by_name[name]
        if _can_be_asked(node) and _has_all(result.graphs[graph], node):
            found.append(f"the value of {name} was not worked out")
    return found


def _can_be_asked(node: Node) -> bool:
    return (
        type(node.do) is Op
        and isinstance(node.do.target, OpOverload)
        and bool(schema_of(node.do.target).returns)
    )


def _has_all(graph: Graph, node: Node) -> bool:
    known = {formal.name for formal in graph.inputs if "val" in formal.meta}
    known.update(other.name for other in graph.nodes if "val" in other.meta)
    return known.issuperset(node.refs())


INFERRED = (values_back,)
