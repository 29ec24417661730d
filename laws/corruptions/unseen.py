"""Corruptors that give another valid program: ``verify`` must accept it, and only its meaning tells.

One idea: two parameters of one shape, two outputs, a write more or less: a program in which they are exchanged is as
well-formed as the right one.  These corruptors say so (``refused_by="meaning"``), and a law that compares meanings must
find them.  A change that happens not to matter (both outputs are equal) is no corruption; who uses them looks first.
"""

from __future__ import annotations

from attrs import evolve

from ...ir.arguments import Ref
from ...ir.node import Get, Node, Op
from ...ir.program import Program
from ...ir.signature import InputMutation, StateInput, StateMutation, UserOutput
from .contract import swapped
from .corruptor import MEANING, Corruptor
from .places import changed, choose, geometry, places, replaced, with_graph, with_specs

__all__ = ["UNSEEN"]

COPY = "aten.copy_.default"


def _mutation_dropped(program: Program, seed: int) -> Program | None:
    # The node that makes the new contents stays; they are just not written back.
    specs, output = program.signature.outputs, program.main.output
    index = choose([i for i, spec in enumerate(specs) if type(spec) in (StateMutation, InputMutation)], seed)
    if index is None:
        return None
    fewer = with_graph(program, program.root, output=output[:index] + output[index + 1 :])
    return with_specs(fewer, outputs=specs[:index] + specs[index + 1 :])


def _copy_dropped(program: Program, seed: int) -> Program | None:
    graph = program.main
    used = {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())

    def is_copy(node: Node) -> bool:
        return type(node.do) is Op and node.do.name == COPY and node.name not in used

    return replaced(program, choose(places(program, is_copy, graph=program.root), seed))


def _outputs_swapped(program: Program, seed: int) -> Program | None:
    graph = program.main
    known = {part.name: geometry(part.meta.get("val")) for part in (*graph.inputs, *graph.nodes)}
    users = [i for i, spec in enumerate(program.signature.outputs) if type(spec) is UserOutput]
    pairs = [(i, j) for i in users for j in users if i < j and _alike(graph.output[i], graph.output[j], known)]
    chosen = choose(pairs, seed)
    return with_graph(program, program.root, output=swapped(graph.output, *chosen)) if chosen is not None else None


def _alike(left: object, right: object, known: dict[str, tuple[object, ...] | None]) -> bool:
    return type(left) is Ref and type(right) is Ref and left != right and known[left.name] == known[right.name]


def _parameters_swapped(program: Program, seed: int) -> Program | None:
    specs, state = program.signature.inputs, program.state
    takes = [(i, state[spec.slot]) for i, spec in enumerate(specs) if type(spec) is StateInput]
    pairs = [
        (i, j)
        for i, mine in takes
        for j, other in takes
        if i < j and mine.cell != other.cell and geometry(mine.value) == geometry(other.value) is not None
    ]
    chosen = choose(pairs, seed)
    return with_specs(program, inputs=swapped(specs, *chosen)) if chosen is not None else None


def _other_slot_read(program: Program, seed: int) -> Program | None:
    state = program.state
    options = [
        (place, name)
        for place in places(program, lambda node: type(node.do) is Get, graph=program.root)
        for name, slot in state.pairs
        if type(place.node.do) is Get
        and slot.cell != state[place.node.do.slot].cell
        and geometry(slot.value) == geometry(state[place.node.do.slot].value) is not None
    ]
    chosen = choose(options, seed)
    return changed(program, chosen[0], do=Get(chosen[1])) if chosen is not None else None


def _number_changed(program: Program, seed: int) -> Program | None:
    def has_number(node: Node) -> bool:
        return type(node.do) is Op and node.do.name in ("toy.mul", "toy.add_") and type(node.args[-1]) is int

    place = choose(places(program, has_number), seed)
    if place is None:
        return None
    return replaced(program, place, evolve(place.node, args=(*place.node.args[:-1], place.node.args[-1] + 1)))


UNSEEN: tuple[Corruptor, ...] = (
    Corruptor("mutation dropped", MEANING, "new contents are computed and not written back", _mutation_dropped),
    Corruptor("copy dropped", MEANING, "a write of new contents is gone", _copy_dropped),
    Corruptor("equal outputs swapped", MEANING, "two outputs of one shape and dtype change places", _outputs_swapped),
    Corruptor("equal parameters swapped", MEANING, "two pieces of state of one shape and dtype change places in the signature",
              _parameters_swapped),
    Corruptor("other slot read", MEANING, "a read comes to another slot of the same shape and dtype", _other_slot_read),
    Corruptor("number changed", MEANING, "an operator gets another number", _number_changed),
)  # fmt: skip
