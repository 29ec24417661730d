"""Aims: what makes of a drawn program one that a law speaks of, where few drawn programs are such.

A law with an aim (``law(..., aim=...)``) is asked of two programs of three after its aim.  An aim keeps a program valid; what the
program means may become something else, since the law is asked of the new program alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from purefx.ir.arguments import Items, Ref, bodies_in
from purefx.ir.calls.parts import with_listed
from purefx.ir.effects.declared import PURE, NodeEffects
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.resolved import (
    node_effects,
    program_effects,
    slot_storage,
    storages,
    views_of,
)
from purefx.ir.errors import PartitionError
from purefx.ir.graph import Do, Frame, Get, Graph, Input, Node, Op, Stack
from purefx.ir.names import Names
from purefx.ir.operators import op_of
from purefx.ir.own_operators import GIVES, TAKES, is_boundary
from purefx.ir.program import CallSignature, Program
from purefx.ir.rewriter import Rewriter
from purefx.ir.signature import StateGradient, StateInput, StateMutation
from purefx.ir.state import SlotKind
from purefx.ir.torch_private import pytree
from purefx.laws.toy import CLONE
from purefx.transforms import Transformation, infer, inline, join, regions_to_bodies, split_by_tags
from purefx.transforms.modes.modes import SET_GRAD
from purefx.transforms.partition.cut import joined_flat
from purefx.transforms.partition.placement import found_units

COPY = op_of(torch.ops.aten.copy_.default)
TO = op_of(torch.ops.aten.to.dtype)
SIZE, ADD = op_of(torch.ops.aten.sym_size.int), op_of(torch.ops.aten.add.Scalar)


def without_writes(program: Program) -> Program:
    """Return a program that gives copies where it wrote in place, and has no region.

    What writes in some other way than giving back what it wrote stays as it is.
    """
    effects = program_effects(program)
    return program.with_graphs(
        {name: _without_writes(program.graphs[name], effects[name]) for name in program.order}
    )


def _without_writes(graph: Graph, effects: Sequence[NodeEffects]) -> Graph:
    edit = Rewriter(graph)
    used = {*graph.users, *graph.output_refs()}
    pairs = [
        (node, does) for node, does in zip(graph.nodes, effects, strict=True) if type(node.do) is Op
    ]
    regions = {node.name for node, does in pairs if does.scope != (0, 0)}
    for number, (node, does) in enumerate(zip(graph.nodes, effects, strict=True)):
        changed = {*does.writes, *does.completes}.intersection(node.refs())
        ends = node.name in regions and node.name not in graph.output_refs()
        if ends and regions.issuperset(graph.users.get(node.name, ())):
            edit.erase(node.name)
        elif type(node.do) is not Op or len(changed) != 1 or any(bodies_in(node.args, node.kwargs)):
            continue
        elif node.name not in used:
            edit.erase(node.name)
        elif node.do.effects.returns or does.completes:
            edit.put(number, Node(node.name, CLONE, (Ref(*changed),), (), node.stack, node.meta))
    return edit.graph()


def split_across_sizes(program: Program) -> Program:
    """Return a split program without writes and regions, split anew, in which late operators are given sizes of early values."""
    flat = without_writes(inline(join(program)))
    edit, sizes = Rewriter(flat.main), list[str]()
    has_values = any(isinstance(node.meta.get("val"), torch.Tensor) for node in flat.main.nodes)
    nodes = [
        (number, node)
        for number, node in enumerate(flat.main.nodes)
        if type(node.do) is Op and _is_tensor(node, has_values)
    ]
    for (number, early), (place, late) in list(zip(nodes, reversed(nodes), strict=True))[
        : min(3, len(nodes) // 2)
    ]:
        size = Node(
            edit.names.fresh("size"), SIZE, (Ref(early.name), 0), (), early.stack, {"val": 1}
        )
        edit.after(number, size)
        total = Node(
            edit.names.fresh(late.name),
            ADD,
            (Ref(late.name), Ref(size.name)),
            (),
            late.stack,
            late.meta,
        )
        edit.after(place, total)
        sizes.append(size.name)
    sized = flat if edit.idle else flat.with_main(edit.graph())
    order = [node.name for node in sized.main.nodes]
    behind = {name for size in sizes[:1] for name in order[order.index(size) + 1 :]}
    try:
        return split_by_tags(
            sized, ("t0", "t1"), tag_of=lambda node: "t1" if node.name in behind else "t0"
        )
    except PartitionError:  # a preserved call would be cut
        return split_by_tags(sized, ("t0",), tag_of=lambda _: "t0")


def _is_tensor(node: Node, has_values: bool) -> bool:
    value = node.meta.get("val")
    if has_values:
        return isinstance(value, torch.Tensor) and value.dim() > 0
    if type(node.do) is not Op or value is not None or node.projection is not None:
        return False
    return node.do.effects == PURE and node.do != SIZE and not is_boundary(node)


def crossing(program: Program) -> Program:
    """Return a program with two preserved calls and a plain one, which use what their signatures do not name.

    Both preserved calls have one buffer: the second makes its new contents of those that the first one made, which the root uses
    too.  The root also uses what the first call converts to the dtype that it has, and the plain call is given a size.  A
    program without values that they could take, or with outlined calls, stays.
    """
    given = _operand(program)
    if given is None or "outlined" in program.facts:
        return program
    path = Names(module.path for module in program.modules).fresh("aimed")
    first, second, plain = (Frame(path),), (Frame(path, 1),), (Frame(f"{path}.plain"),)
    value = given.meta.get("val")
    rows: list[_Row] = [
        ("size", SIZE, ("given", 0), ()),
        ("takes", TAKES, ("given",), first),
        ("n", Get(f"{path}.n"), (), first),
        ("made", ADD, ("n", 1), first),
        ("same", TO, ("given", getattr(value, "dtype", None)), first),
        ("result", ADD, ("given", 1), first),
        ("gives", GIVES, ("result",), first),
        ("outside", ADD, ("made", 1), ()),
        ("converted", ADD, ("same", 1), ()),
        ("takes", TAKES, ("result",), second),
        ("next", ADD, ("made", 1), second),
        ("gives", GIVES, ("next",), second),
        ("copy", COPY, ("n", "next"), ()),
        ("here", ADD, ("given", 1), plain),
        ("sized", ADD, ("here", "size"), plain),
    ]
    has_values = isinstance(value, torch.Tensor)
    return _with_rows(
        _with_calls(program, path, first + second, has_values=has_values),
        [
            row
            for row in rows
            if has_values or row[0] not in ("size", "same", "converted", "here", "sized")
        ],
        given.name,
    )


def with_markers(program: Program) -> Program:
    """Return a program of which the root runs the middle third of its nodes without gradients, between markers."""
    edit, count = Rewriter(program.main), len(program.main.nodes)
    for number, enabled in ((count // 3, False), (count - count // 3, True)):
        edit.before(number, Node(edit.names.fresh("_set_grad_enabled"), SET_GRAD, (enabled,)))
    return program.with_main(edit.graph())


def with_wrappers(program: Program) -> Program:
    """Return a program of which the root runs the middle third of its nodes in the body of an operator, where it can."""
    made = regions_to_bodies(with_markers(program))
    return (
        program
        if any(type(node.do) is Op and node.do.name == SET_GRAD.name for node in made.main.nodes)
        else made
    )


_Row = tuple[str, Do, tuple[Any, ...], Stack]
"""A name, what is done, operands (strings are names of rows) and the stack."""


def _operand(program: Program) -> Input | Node | None:
    values = [value for value in (*program.main.inputs, *program.main.nodes) if _is_operand(value)]
    with_sizes = [value for value in values if isinstance(value.meta["val"].shape[0], torch.SymInt)]
    if not values and not any(node.meta.get("val") is not None for node in program.main.nodes):
        values = list(program.main.inputs)
    return next(reversed(with_sizes or values), None)


def _is_operand(value: Input | Node) -> bool:
    told = value.meta.get("val")
    return isinstance(told, torch.Tensor) and told.dtype is torch.float32 and told.dim() > 0


def _with_calls(program: Program, path: str, frames: Stack, *, has_values: bool) -> Program:
    taken, given = pytree.tree_structure(((0,), {})), pytree.tree_structure(0)
    kept = program.call_signatures.update(dict.fromkeys(frames, CallSignature(taken, given)))
    read = program.evolve(facts=program.facts - {"state as inputs"})
    made = read.with_state(add={f"{path}.n": torch.zeros(2 if has_values else ())})
    return made.evolve(call_signatures=kept, modules=with_listed(made.modules, [f"{path}.plain"]))


def _with_rows(program: Program, rows: Sequence[_Row], given: str) -> Program:
    edit, known = Rewriter(program.main), {"given": given}
    made: list[Node] = []
    for name, do, args, stack in rows:
        refs = tuple(Ref(known[arg]) if type(arg) is str else arg for arg in args)
        known[name] = edit.names.fresh(name)
        made.append(Node(known[name], do, refs, (), stack))
    edit.before(edit.end, *made)
    result = program.with_main(edit.graph())
    return infer(result, changed=[node.name for node in made]) if "size" in known else result


# -- untidy ----------------------------------------------------------------------------------------------------------------------


MADE = "copied_by_the_law"
"""The meta of what was put in."""

VIEW = op_of(torch.ops.aten.view.default)


def with_repetitions(program: Program) -> Program:
    """Return a program in which every second use of what nobody writes or hands out is of a copy, computed where it is used."""
    return program.with_graphs(
        {name: _with_each_again(program, program.graphs[name]) for name in program.order}
    )


def _with_each_again(program: Program, graph: Graph) -> Graph:
    effects = node_effects(program, graph)
    acts = any(
        does.writes or does.writes_slots or does.scope != (0, 0) or does.completes
        for does in effects
    )
    if acts:
        return graph
    memory = storages(program, graph, effects)
    given = {memory.find(name) for name in graph.output_refs()}
    pure = {
        node.name: node for node in graph.nodes if type(node.do) is Op and node.do.effects == PURE
    }
    pure = {name: node for name, node in pure.items() if memory.find(name) not in given}
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        for name in dict.fromkeys(node.refs()):
            if name in pure and graph.users[name][0] != node.name:
                copy = pure[name].evolve(name=edit.names.fresh(name))
                edit.before(number, copy)
                edit.use(number, name, Ref(copy.name))
    return edit.graph()


def repeated(program: Program) -> Program:
    """Return a program without writes, with repetitions."""
    return with_repetitions(without_writes(program))


def repeated_for_nobody(program: Program) -> Program:
    """Return a program without writes, with repetitions; in each graph something is computed once more that nobody uses."""
    program = repeated(program)
    return program.with_graphs(
        {name: _with_one_again(program.graphs[name]) for name in program.order}
    )


def _with_one_again(graph: Graph) -> Graph:
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        if type(node.do) is Op and node.do.effects == PURE and not is_boundary(node):
            edit.after(number, node.evolve(name=edit.names.fresh(node.name)))
            break
    return edit.graph()


def with_views(program: Program) -> Program:
    """Return a program whose root uses views to the same sizes, of values that nobody writes or hands out."""
    graph, effects = program.main, node_effects(program, program.main)
    memory = storages(program, graph, effects)
    if any(
        does.scope != (0, 0)
        for of in program.order
        for does in node_effects(program, program.graphs[of])
    ):
        return program
    seen = {memory.find(name) for does in effects for name in (*does.writes, *does.completes)}
    seen.update(memory.find(name) for name in graph.output_refs())
    seen.update(
        memory.find(slot_storage(program, slot)) for does in effects for slot in does.writes_slots
    )
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        value = node.meta.get("val")
        plain = isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)
        known = any(is_boundary(graph.by_name[user]) for user in graph.users.get(node.name, ()))
        if (
            plain
            and not known
            and memory.find(node.name) not in seen
            and isinstance(value, torch.Tensor)
        ):
            meta = MappingProxyType({**node.meta, MADE: True})
            view = Node(
                edit.names.fresh(node.name),
                VIEW,
                (Ref(node.name), Items(value.shape)),
                (),
                node.stack,
                meta,
            )
            edit.after(number, view)
            edit.replace(node.name, Ref(view.name))
    return program.with_graphs({program.root: edit.graph()})


def viewed(program: Program) -> Program:
    """Return a program without writes, with repetitions and views."""
    return with_views(repeated(program))


def with_copies(program: Program) -> Program:
    """Return a program in which users of constants of the root that nothing writes use copies of them.

    Not of those of which a value may be a view that may be one of something else as well: that is as good as handed out.
    """
    graph, effects = program.main, node_effects(program, program.main)
    memory = storages(program, graph, effects)
    if any(
        does.writes or does.writes_slots or does.scope != (0, 0) or does.completes
        for does in effects
    ):
        return program
    slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
    slots.update(
        {formal.name: spec.slot for formal, spec in program.inputs if type(spec) is StateInput}
    )
    written = {
        spec.slot
        for spec in program.signature.outputs
        if isinstance(spec, StateMutation | StateGradient)
    }
    cells = {program.state[slot].storage for slot in written}
    # What is a parameter under another name is trained.
    cells.update(
        [state.storage for _, state in program.state.pairs if state.kind is SlotKind.PARAMETER]
    )
    given = {memory.find(name) for name in graph.output_refs()}
    mixed = {
        one for views in views_of(program, effects).values() if len(views) > 1 for one in views
    }
    edit = Rewriter(graph)
    for name, slot in slots.items():
        state = program.state[slot]
        free = state.kind in (SlotKind.BUFFER, SlotKind.CONSTANT) and state.storage not in cells
        inside = memory.find(name) not in given and slot_storage(program, slot) not in mixed
        if free and inside and isinstance(state.value, torch.Tensor):
            meta = MappingProxyType(
                {**graph.metas[name], "val": graph.metas[name].get("val", state.value), MADE: True}
            )
            users = [
                number
                for number, node in enumerate(graph.nodes)
                if name in node.refs() and not is_boundary(node)
            ]
            copy = Node(edit.names.fresh(name), CLONE, (Ref(name),), (), (), meta)
            for number in users:
                edit.use(number, name, Ref(copy.name))
            edit.after(edit.position[name], *([copy] if users else []))
    return program.with_graphs({program.root: edit.graph()})


def copied(program: Program) -> Program:
    """Return a program without writes, with copies of constants."""
    return with_copies(without_writes(program))


def legal_tags(
    program: Program, *, seed: int = 0
) -> tuple[tuple[str, ...], Callable[[Node], str | None]]:
    """Return tags for splitting a program with sunk state, and the tag of each node, which depends on operators only."""
    flat, _ = joined_flat(program)
    nodes, before, units = flat.main.nodes, dependencies(flat, flat.main), found_units(flat)
    tags, least = tuple([f"t{number}" for number in range(1 + _draw(seed) % 4)]), [0] * len(nodes)
    while True:
        labels: list[int] = []
        for number, (node, earlier) in enumerate(zip(nodes, before, strict=True)):
            start = max([labels[other] for other in earlier], default=0)
            up = type(node.do) is not Get and _draw(seed, start, _what(node)) % 3 == 0
            labels.append(max(min(start + up, len(tags) - 1), least[number]))
        before_units = [*least]
        for _, members in units:  # such a preserved call is in one part
            for number in members:
                least[number] = max(labels[other] for other in members)
        if least == before_units:
            break
    pairs = zip(nodes, labels, strict=True)
    of = {
        node.name: tags[label] if _draw(seed, _what(node), "untagged") % 5 else None
        for node, label in pairs
    }
    return tags, lambda node: of[node.name]


def _what(node: Node) -> str:
    return f"{node.do.name if type(node.do) is Op else ''} {' '.join(map(str, node.stack))}"


def _draw(*what: object) -> int:
    return zlib.crc32(repr(what).encode())


def _split_somewhere(program: Program) -> Program:
    flat, _ = joined_flat(program)
    tags, tag_of = legal_tags(program, seed=_draw(sorted(map(_what, flat.main.nodes))))
    return split_by_tags.apply(program, tags, tag_of=tag_of)


split_somewhere: Transformation = evolve(split_by_tags, apply=_split_somewhere)
