"""Bodies that several modules share: their ids, and reads of state, metadata and names that hold for every instance.

``deduplicate.py`` and ``outline/merged.py`` find the equal bodies.
"""

from __future__ import annotations

import builtins
import keyword
import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch
from attrs import evolve, frozen

from ..ir.arguments import Ref
from ..ir.calls.call_graph import Instance, called_at, inner_instances, reaching
from ..ir.graph import Call, Get, Graph, Input, Node, Op
from ..ir.inference import all_agree, described
from ..ir.meta import EMPTY_META, OF_A_VALUE, Meta
from ..ir.names import Names, is_identifier, last_name, stem_of, word_of
from ..ir.origins import with_origins_of
from ..ir.persistent import grouped
from ..ir.program import Program
from ..ir.verify import check


def placed(program: Program) -> frozenset[str]:
    """Return the graphs that read state or call modules, directly or through others: they depend on their module path.

    Args:
        program: any program.

    >>> from purefx.ir import Get, Graph, Node
    >>> sorted(placed(Program.of({"": Graph((), (Node("w", Get("weight")),))})))
    ['']
    """
    graphs = program.graphs
    own = [
        name for name in program.order if any(type(do) is not Op for do in graphs[name].distinct)
    ]
    return reaching(program, own)


def bodies_before_callers(program: Program) -> dict[str, int]:
    """Return the number of each graph reachable from the root, in an order in which callees precede their callers.

    Raises:
        InvalidProgram: a body calls itself, or a body that does not exist.

    >>> bodies_before_callers(Program.of({"": Graph((), ())}))
    {'': 0}
    """
    rank = {name: index for index, name in enumerate(program.bottom_up)}
    if any(
        rank.get(inner, math.inf) >= number
        for name, number in rank.items()
        for inner in program.graphs[name].callees
    ):
        check(program)
    return rank


OF_A_CALL = (*OF_A_VALUE, "custom")
"""Metadata that holds for one call.  Other entries (stack traces, origins) describe the history of the node."""


def alike(left: Any, right: Any) -> bool:
    """Return whether two fake values have the same dtype, shape and device.

    >>> alike(torch.ones(2), torch.zeros(2)), alike(torch.ones(2), torch.ones(3)), alike(torch.ones(2), None)
    (True, False, False)
    """
    mine, theirs = cast("Any", described(left)), cast("Any", described(right))
    return (
        mine[:4] == theirs[:4] if isinstance(left, torch.Tensor) else mine == theirs
    )  # without strides


def common_meta(meta: Meta, others: Sequence[Meta]) -> Meta:
    """Return metadata without the entries of one call that differ in others; the same object if no entry differs.

    Its node replaces the others, and the origin records that.

    >>> dict(common_meta({"val": 1, "custom": {"of": "a"}, "stack_trace": "a"}, [{"val": 1, "custom": {"of": "b"}}]))
    {'val': 1, 'stack_trace': 'a'}
    """
    return common_values(with_origins_of(meta, others, is_body=True), others)


def common_values(meta: Meta, others: Sequence[Meta]) -> Meta:
    """Return metadata without the entries of one call that differ in others; unlike in ``common_meta``, the origin stays.

    >>> dict(common_values({"val": 1, "stack_trace": "a"}, [{"val": 2}]))
    {'stack_trace': 'a'}
    """
    kept = [key for key in OF_A_CALL if key in meta and (key != "tensor_meta" or "val" not in meta)]
    gone = {
        key
        for key in kept
        if not all_agree(meta[key], [other.get(key, ABSENT) for other in others])
    }
    if "tensor_meta" in meta and "val" in meta:  # it describes the value, except for this
        grads = {
            getattr(each.get("tensor_meta"), "requires_grad", None) for each in (meta, *others)
        }
        gone |= {"tensor_meta"} if "val" in gone or len(grads) > 1 else set()
    return (
        MappingProxyType({key: value for key, value in meta.items() if key not in gone})
        if gone
        else meta
    )


ABSENT = object()


def value_only(meta: Meta) -> Meta:
    """Return metadata with the fake value only, for nodes that pass the value on.

    >>> dict(value_only({"val": 1, "stack_trace": "here"}))
    {'val': 1}
    """
    return MappingProxyType({"val": meta["val"]}) if "val" in meta else EMPTY_META


RESERVED = frozenset([*keyword.kwlist, *dir(builtins)])
"""Names that fx does not use for values: a sum is ``sum_1``."""

NEUTRAL_INPUT = "arg"
NEUTRAL_BODY = "shared"


@frozen
class EqualBody:
    """The inputs and nodes of an equal body, or other values with their names and metadata."""

    inputs: Sequence[Input | Node]
    nodes: Sequence[Input | Node]


AnyBody = EqualBody | Graph


def with_common_names(graph: Graph, others: Sequence[AnyBody]) -> Graph:
    """Return a body with names that fit all bodies that it replaces; the same object if it has them.

    A value is named after its operator, or by the name common to all of the bodies; an input without a common name is ``arg``.

    Args:
        graph: the kept body.
        others: the equal bodies that it replaces.

    >>> from purefx.ir import Input
    >>> neg = Op("toy.neg")
    >>> one, other = (Graph((Input(x),), (Node(y, neg, (Ref(x),)),), Ref(y)) for x, y in (("x_1", "neg"), ("x_4", "neg_3")))
    >>> named = with_common_names(one, [other])
    >>> named.inputs[0].name, named.nodes[0].name, with_common_names(named, [other]) is named
    ('x', 'neg', True)
    """
    names = Names(RESERVED)
    known: dict[str, Ref] = {}
    for place, formal in enumerate(graph.inputs):
        common = _common_stem(formal.name, [other.inputs[place].name for other in others])
        known[formal.name] = Ref(names.fresh(common or NEUTRAL_INPUT))
    for place, node in enumerate(graph.nodes):
        known[node.name] = Ref(
            names.fresh(_wanted(node, [other.nodes[place].name for other in others]))
        )
    return graph.renamed({old: new for old, new in known.items() if new.name != old})


def _wanted(node: Node, others: Sequence[str]) -> str:
    do = node.do
    if type(do) is Get:
        return word_of(do.slot)
    what = word_of_operator(do.name) if type(do) is Op else stem_of(word_of(do.instance.path))
    return _common_stem(node.name, others) or what


def _common_stem(name: str, others: Sequence[str]) -> str | None:
    stem = stem_of(name)
    return stem if all(stem_of(other) == stem for other in others) else None


@lru_cache(maxsize=1024)
def word_of_operator(name: str) -> str:
    """Return the name of a value of an operator: without namespace and overload.

    >>> word_of_operator("aten.add_.Tensor"), word_of_operator("torch.relu")
    ('add_', 'relu')
    """
    parts = name.split(".")
    return stem_of(word_of(parts[1] if len(parts) == 3 else parts[-1]))


def common_id(paths: Iterable[str], types: Mapping[str, str | None]) -> str | None:
    """Return the id of a body that modules share: their class, or ``shared``; None if a class is unknown.

    Args:
        paths: of the modules.
        types: the classes of the modules that the program lists, by path.

    >>> types = {"layers.0": "model.Layer", "layers.1": "model.Layer", "act": "torch.nn.ReLU", "b.act": "torch.nn.GELU"}
    >>> common_id(["layers.0", "layers.1"], types), common_id(["act", "b.act"], types), common_id(["layers.0", "act"], types)
    ('Layer', 'act', 'shared')
    """
    found = {types.get(path) for path in paths}
    if None in found:
        return None
    for names in (found, paths):
        lasts = {last_name(str(one)) for one in names}
        if len(lasts) == 1 and is_identifier(word := lasts.pop()):
            return word
    return NEUTRAL_BODY


def is_named_after(name: str, slot: str) -> bool:
    """Return whether a read has the name of its slot, with or without a number.

    >>> is_named_after("weight_1", "weight"), is_named_after("p_lin_weight", "weight"), is_named_after("weight_scale", "weight")
    (True, False, False)
    """
    word, rest = word_of(slot), name.removeprefix(word_of(slot))
    return name == word or (rest != name and rest.startswith("_") and rest[1:].isdecimal())


def with_names(graph: Graph, wanted: Mapping[str, str]) -> Graph:
    """Return a graph with some nodes renamed, numbered if names clash; the same object if no name changes.

    Args:
        graph: a body.
        wanted: the new names, by old name.

    >>> nodes = (Node("p_a_w", Get("w")), Node("w", Op("toy.neg"), (Ref("p_a_w"),)))
    >>> with_names(Graph((), nodes, Ref("w")), {"p_a_w": "w"}).nodes[1].args
    (Ref(name='w_1'),)
    """
    wanted = {name: new for name, new in wanted.items() if new != name}
    if not wanted:
        return graph
    names = Names([name for name in graph.metas if name not in wanted])
    return graph.renamed({old: Ref(names.fresh(new)) for old, new in wanted.items()})


def specialised(
    program: Program,
    keys: Mapping[Instance, Hashable],
    rewritten: Callable[[Instance], Graph],
    names: Names,
) -> tuple[dict[str, Graph], dict[str, str]]:
    """Make one version of each body for each class of its instances.

    Args:
        program: any valid program.
        keys: the class of each instance; None if its body stays as it is.
        rewritten: returns the body of an instance, with calls of the old bodies.
        names: makes ids of graphs.

    Returns:
        The bodies by id, with calls of the new ones, and the old id of each.  Unchanged bodies keep their ids.

    >>> from purefx.ir import Frame
    >>> body = Graph((Input("a"),), (), Ref("a"))
    >>> calls = [Node(name, Call(Frame(name), "f"), (Ref("x"),)) for name in "yzw"]
    >>> program = Program.of({"": Graph((Input("x"),), tuple(calls), Ref("w")), "f": body})
    >>> keys = {("", ""): None, ("f", "y"): 0, ("f", "z"): 1, ("f", "w"): 0}
    >>> graphs, sources = specialised(program, keys, lambda place: program.graphs[place[0]], Names(program.graphs))
    >>> [node.do.graph for node in graphs[""].nodes], sources
    (['f', 'f_1', 'f'], {'f': 'f', 'f_1': 'f', '': ''})
    """
    version: dict[Instance, str] = {}
    graphs, sources = dict[str, Graph](), dict[str, str]()
    places = grouped([(place[0], place) for place in keys])
    for name in [name for name in program.bottom_up if name in places]:
        groups: dict[Hashable, list[Instance]] = {}
        for place in places[name]:
            called = [version.get(inner, inner[0]) for inner in inner_instances(program, place)]
            groups.setdefault((keys[place], *called), []).append(place)
        unchanged = None, *[inner for inner, _ in inner_instances(program, (name, ""))]
        for number, key in enumerate(sorted(groups, key=lambda key: key != unchanged)):
            new = names.fresh(name) if number else name
            version.update(dict.fromkeys(groups[key], new))
            first = groups[key][0]
            graphs[new], sources[new] = _calling(rewritten(first), first[1], version), name
    return graphs, sources


def _calling(graph: Graph, path: str, version: Mapping[Instance, str]) -> Graph:
    def called(node: Node) -> Node:
        paths = dict(called_at(node, path))
        return node.calling(lambda body: version.get((body, paths[body]), body))

    return graph.with_callers(called)


Item = TypeVar("Item", Node, Input)


def ids_of(
    members: Mapping[Hashable, Mapping[str, Sequence[str]]],
    types: Mapping[str, str | None],
    called: Container[str],
) -> dict[Hashable, str]:
    """Return the ids of the kept bodies, by class of equal bodies.

    A body that several modules share is named after their class, or ``shared``; the others keep their ids.

    Args:
        members: for each class its equal bodies, in calling order, with the paths of the modules that run them.
        types: the classes of the modules by path.
        called: the bodies of module calls; other bodies are passed to operators.

    >>> ids_of({0: {"": [""]}, 1: {"a": ["a"], "b": ["b"]}}, {"a": "m.Block", "b": "m.Block"}, ["a", "b"])
    {0: '', 1: 'Block'}
    """
    names, ids, shared = Names(()), dict[Hashable, str](), dict[Hashable, str]()
    for key, found in members.items():
        first = next(iter(found))
        paths = {path for mine in found.values() for path in mine} if len(found) > 1 else ()
        common = common_id(paths, types) if len(paths) > 1 and first in called else None
        if common is not None:
            shared[key] = common
        ids[key] = names.fresh(first) if common is None else ""
    names = Names([*types, *ids.values()])
    ids.update({key: names.fresh(wanted) for key, wanted in shared.items()})
    return ids


def shared_body(
    graph: Graph, others: Sequence[AnyBody], *, renamed: bool = True, raw: bool = False
) -> Graph:
    """Return a body with names and metadata that hold for all bodies that it replaces.

    Args:
        graph: the kept body.
        others: the equal bodies that it replaces; without any, only its reads are named after their slots.
        renamed: whether values are renamed; inside parts all names stay as they were.
        raw: whether the inputs and calls of the others have the metadata of the outside values.

    >>> from purefx.ir import Node, Op
    >>> one, other = (Graph((), (Node("y", Op("toy.one"), meta={"val": val, "custom": 1}),)) for val in (1, 2))
    >>> dict(shared_body(one, [other]).nodes[0].meta)
    {'custom': 1}
    >>> shared_body(Graph((), (Node("p_a_w", Get("w")),), Ref("p_a_w")), []).nodes[0].name
    'w'
    """
    if others:
        shared = _with_common_meta(graph, others, raw=raw)
        return with_common_names(shared, others) if renamed else shared
    reads = graph.reads.items() if renamed else ()
    return with_names(
        graph, {name: word_of(slot) for name, slot in reads if not is_named_after(name, slot)}
    )


def _with_common_meta(graph: Graph, others: Sequence[AnyBody], *, raw: bool) -> Graph:
    # Equal bodies have their values in the same order.
    def common(
        merge: Callable[[Meta, Sequence[Meta]], Meta], item: Item, *same: Input | Node
    ) -> Item:
        meta = merge(item.meta, [other.meta for other in same])
        return item if meta is item.meta else evolve(item, meta=meta)

    outside = common_values if raw else common_meta
    inputs = [
        common(outside, *column)
        for column in zip(graph.inputs, *[other.inputs for other in others], strict=True)
    ]
    nodes = [
        common(outside if type(node.do) is Call else common_meta, node, *column)
        for node, *column in zip(graph.nodes, *[other.nodes for other in others], strict=True)
    ]
    return graph.with_nodes(nodes, inputs=tuple(inputs))
