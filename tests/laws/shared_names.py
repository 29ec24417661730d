"""Laws of names of bodies that several modules share, and of ``infer``, which works out again the values that were taken away.

Both programs are walked side by side, so each body of the result is held against all that became it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from purefx.ir.arguments import Ref, bodies_in, thawed
from purefx.ir.calls.parts import part_names
from purefx.ir.graph import Call, Get, Graph, Node, Op
from purefx.ir.inference.values import running
from purefx.ir.names import join, stem_of, word_of
from purefx.ir.persistent import pmap
from purefx.ir.program import Program
from purefx.ir.torch_private import FakeTensor, OpOverload, UnsupportedOperatorException, device_of, schema_of
from purefx.laws.law import Case, Transform, law

__all__ = ["INFERRED", "became", "described", "named_for_all", "other_values_same", "values_back", "without_some_values"]


@law("a body that others become is called after none of its modules, and a value in it after what all call it or what it is")
def named_for_all(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    classes = {module.path: module.type_name for module in before.modules}
    found: list[str] = []
    for name, places in _places(before, after).items():
        users = [before.graphs[user] for user in dict.fromkeys(user for user, _, _ in places)]
        paths = {path for _, path, _ in places}
        is_known = all(classes.get(path) for path in paths) and any(is_called for _, _, is_called in places)
        if len(users) > 1 and len(paths) > 1 and is_known and name.partition("@")[0] in paths:
            found.append(f"the body of {sorted(paths)} is called {name}")
        if not part_names(before) and not all(_names(user) == _names(users[0]) for user in users):
            found += [f"in {name}, which {sorted(paths)} share, {line}" for line in _strange(after.graphs[name], users)]
    return found


def became(before: Program, after: Program) -> dict[str, set[str]]:
    """Return for each body of a result the bodies that became it."""
    return {name: {user for user, _, _ in places} for name, places in _places(before, after).items()}


def _places(before: Program, after: Program) -> dict[str, set[tuple[str, str, bool]]]:
    # For each body of the result the bodies that became it, the modules that they stand in, and whether calls run them.
    found: dict[str, set[tuple[str, str, bool]]] = {}
    todo = [(before.root, after.root, "", False)]
    while todo:
        old, new, path, is_called = todo.pop()
        known = found.setdefault(new, set())
        if (old, path, is_called) in known:
            continue
        known.add((old, path, is_called))
        for mine, theirs in zip(before.graphs[old].nodes, after.graphs[new].nodes, strict=True):
            if type(mine.do) is Call and type(theirs.do) is Call:
                todo.append((mine.do.graph, theirs.do.graph, join(path, mine.do.instance.path), True))
            else:
                bodies = zip(bodies_in(mine.args, mine.kwargs), bodies_in(theirs.args, theirs.kwargs), strict=True)
                todo.extend((left, right, path, False) for left, right in bodies)
    return found


def _names(graph: Graph) -> list[str]:
    return [value.name for value in (*graph.inputs, *graph.nodes) if type(value) is not Node or type(value.do) is not Get]


def _strange(graph: Graph, users: list[Graph]) -> list[str]:
    found: list[str] = []
    numbers: dict[str, int] = {}
    for place, value in enumerate((*graph.inputs, *graph.nodes)):
        stem, called = stem_of(value.name), [(*user.inputs, *user.nodes)[place].name for user in users]
        stems = [stem_of(name) for name in called]
        is_what_all_say = all(name == stem or name.endswith(f"_{stem.removeprefix('_')}") for name in stems)
        if not is_what_all_say and stem not in _what_it_is(value.do if type(value) is Node else None):
            found.append(f"a value is called {value.name}, and not {called}")
        last, number = numbers.get(stem), value.name.removeprefix(stem).removeprefix("_")
        numbers[stem] = int(number or 0)
        if numbers[stem] not in ((0, 1) if last is None else (last + 1,)):
            found.append(f"{value.name} is not the next number")
    return found


def _what_it_is(do: Op | Get | Call | None) -> list[str]:
    match do:
        case Op(name=name):
            return [stem_of(word_of(part)) for part in name.split(".")]
        case Get(slot=slot):
            return [stem_of(word_of(slot))]
        case Call(instance=instance):
            return [stem_of(word_of(instance.path))]
        case None:
            return ["arg"]


# -- inferred --------------------------------------------------------------------------------------------------------------------


Place = tuple[str, str]

PART_UNKNOWN = "NoneType"


def without_some_values(program: Program, *, seed: int = 0) -> tuple[Program, frozenset[Place]]:
    """Return a program without the values of some nodes, and which: graph and name."""
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
    except Exception:
        return False
    return False


def _without_value(node: Node) -> Node:
    return evolve(node, meta=MappingProxyType({key: value for key, value in node.meta.items() if key != "val"}))


def described(program: Program) -> dict[Place, str]:
    """Return the values of a program as text, by graph and name."""
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
    """Return the graphs that a node calls or gives to an operator."""
    return list(Graph((), (node,), ()).callees)


@law("only meta changes")
def meta_only(transform: Transform, case: Case) -> list[str]:
    bare, _ = without_some_values(case.program, seed=case.seed)
    return [] if transform(bare) == bare else ["more than meta has changed"]


INFERRED = (values_back, other_values_same, meta_only)
