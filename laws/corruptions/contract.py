"""Corruptors of the contract: signature, constraints and facts.

The signature refers to positions, so whatever shifts or swaps a position breaks it; where both sides of a swap
look alike, nothing but the meaning can tell, and ``values.py`` has the corruptor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from ...ir.arguments import Ref
from ...ir.expression import Apply, InputDim
from ...ir.graph import Call, Get
from ...ir.names import Names
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.signature import (
    InputGradient,
    InputMutation,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from ...ir.torch_private import pytree
from .corruptor import Corruptor, choose, geometry, with_graph, with_specs

__all__ = ["IN_CONTRACT", "swapped"]


def swapped(values: Sequence[Any], left: int, right: int) -> tuple[Any, ...]:
    """Return values with two of them in each other's place.

    >>> swapped("abc", 0, 2)
    ('c', 'b', 'a')
    """
    changed = list(values)
    changed[left], changed[right] = changed[right], changed[left]
    return tuple(changed)


def _input_lost(program: Program, seed: int) -> Program | None:
    specs = program.signature.inputs
    index = choose(range(len(specs)), seed)
    return with_specs(program, inputs=specs[:index] + specs[index + 1 :]) if index is not None else None


def _output_lost(program: Program, seed: int) -> Program | None:
    output = program.main.output
    index = choose(range(len(output)), seed)
    return with_graph(program, program.root, output=output[:index] + output[index + 1 :]) if index is not None else None


def _unknown_slot(program: Program, seed: int) -> Program:
    signature = program.signature
    options = [("inputs", index) for index, spec in enumerate(signature.inputs) if type(spec) is StateInput]
    options += [("outputs", index) for index, spec in enumerate(signature.outputs) if type(spec) is StateMutation]
    chosen = choose(options, seed)
    if chosen is None:
        return with_specs(program, lifted=(*signature.lifted, SunkInput("nowhere")))
    what, index = chosen
    specs = list(getattr(signature, what))
    specs[index] = evolve(specs[index], slot="nowhere")
    return with_specs(program, **{what: tuple(specs)})


def _mutation_of_nothing(program: Program, seed: int) -> Program | None:
    specs = list(program.signature.outputs)
    index = choose(range(len(specs)), seed)
    if index is None:
        return None
    specs[index] = InputMutation(len(program.signature.inputs))
    return with_specs(program, outputs=tuple(specs))


def _mutated_twice(program: Program, seed: int) -> Program | None:
    specs, output = program.signature.outputs, program.main.output
    index = choose([i for i, spec in enumerate(specs) if type(spec) in (StateMutation, InputMutation)], seed)
    if index is None:
        return None
    twice = with_graph(program, program.root, output=(output[index], *output))
    return with_specs(twice, outputs=(specs[index], *specs))


def _outputs_swapped(program: Program, seed: int) -> Program | None:
    graph, specs = program.main, program.signature.outputs
    known = {part.name: geometry(part.meta.get("val")) for part in (*graph.inputs, *graph.nodes)}
    shapes = [known.get(value.name) if type(value) is Ref else None for value in graph.output]
    mutations = [i for i, spec in enumerate(specs) if type(spec) in (StateMutation, InputMutation) and _target(program, spec)]
    pairs = [(i, j) for i in mutations for j, shape in enumerate(shapes) if shape and shapes[i] and _differ(shape, shapes[i])]
    chosen = choose(pairs, seed)
    return with_graph(program, program.root, output=swapped(graph.output, *chosen)) if chosen is not None else None


def _target(program: Program, spec: Any) -> tuple[object, ...] | None:
    if type(spec) is StateMutation:
        return geometry(program.state[spec.slot].value)
    return geometry(program.main.inputs[spec.index].meta.get("val"))


def _differ(left: tuple[object, ...] | None, right: tuple[object, ...] | None) -> bool:
    # An open size may be any number, so only plain ones can differ.
    if left is None or right is None:
        return False
    return len(left) != len(right) or any(a != b for a, b in zip(left, right, strict=True) if a is not None and b is not None)


def _gradient_of_nothing(program: Program, seed: int) -> Program:
    gradients = [InputGradient(len(program.signature.inputs) + number) for number in range(1 + seed % 3)]
    more = with_graph(program, program.root, output=(*[None for _ in gradients], *program.main.output))
    return with_specs(more, outputs=(*gradients, *program.signature.outputs))


def _users_swapped(program: Program, seed: int) -> Program | None:
    specs, inputs = program.signature.inputs, program.main.inputs
    users = [
        (index, geometry(formal.meta.get("val")))
        for index, (spec, formal) in enumerate(zip(specs, inputs, strict=True))
        if type(spec) is UserInput and type(spec.type) is TensorType
    ]
    chosen = choose([(i, j) for i, mine in users for j, other in users if i < j and _differ(mine, other)], seed)
    return with_specs(program, inputs=swapped(specs, *chosen)) if chosen is not None else None


def _wrong_promise(program: Program, seed: int) -> Program | None:
    specs = list(program.signature.inputs)
    known = [geometry(formal.meta.get("val")) for formal in program.main.inputs]
    index = choose([i for i, spec in enumerate(specs) if type(spec) is UserInput and known[i]], seed)
    if index is None:
        return None
    spec: Any = specs[index]
    if type(spec.type) is not TensorType:
        return None
    specs[index] = evolve(spec, type=evolve(spec.type, shape=(1, *spec.type.shape)))
    return with_specs(program, inputs=tuple(specs))


def _leaf_more(program: Program, seed: int) -> Program:
    what, kind = (("inputs", UserInput), ("outputs", UserOutput))[seed % 2]
    count = sum(type(spec) is kind for spec in getattr(program.signature, what))
    more = (0,) * (count + 1)
    name, structure = ("in_spec", (more, {})) if what == "inputs" else ("out_spec", more)
    return with_specs(program, **{name: pytree.tree_structure(structure)})


def _guard_of_nothing(program: Program, seed: int) -> Program:
    number = len(program.signature.inputs) + seed % 7
    guards = (*program.constraints.guards, Apply("==", (InputDim(number, 0), 3)))
    return program.evolve(constraints=evolve(program.constraints, guards=guards))


def _fact_unnamed(program: Program, seed: int) -> Program:
    return program.evolve(facts=program.facts | {("", seed)[seed % 2]})


def _fact_invented(program: Program, seed: int) -> Program | None:
    specs = {type(spec) for spec in (*program.signature.inputs, *program.signature.outputs)}
    false = {
        "flat": any(type(node.do) is Call for _, node in program.nodes()),
        "state as inputs": any(type(node.do) is Get for node in program.main.nodes),
        "outlined": any(node.stack for node in program.main.nodes),
        "state sunk": StateInput in specs,
        "mutations in place": bool(specs & {StateMutation, InputMutation}),
        "token free": Token in specs,
    }
    fact = choose([fact for fact, wrong in false.items() if wrong], seed)
    return program.evolve(facts=program.facts | {fact}) if fact is not None else None


def _boundaries(program: Program) -> list[tuple[str, int]]:
    return [(name, index) for name in program.order for index, node in enumerate(program.graphs[name].nodes) if is_boundary(node)]


def _leaf_lost(program: Program, seed: int) -> Program | None:
    place = choose(_boundaries(program), seed)
    if place is None:
        return None
    nodes = list(program.graphs[place[0]].nodes)
    nodes[place[1]] = evolve(nodes[place[1]], args=nodes[place[1]].args[:-1])
    return with_graph(program, place[0], nodes=tuple(nodes))


def _boundary_twice(program: Program, seed: int) -> Program | None:
    place = choose(_boundaries(program), seed)
    if place is None:
        return None
    nodes = list(program.graphs[place[0]].nodes)
    names = Names(node.name for node in nodes)
    nodes.insert(place[1] + 1, evolve(nodes[place[1]], name=names.fresh("boundary")))
    return with_graph(program, place[0], nodes=tuple(nodes))


def _sharing_halved(program: Program, seed: int) -> Program | None:
    signatures = program.call_signatures
    calls = Counter(frame.path for frame in signatures)
    frame = choose(sorted([frame for frame in signatures if calls[frame.path] > 1], key=str), seed)
    if frame is None:
        return None
    other = evolve(signatures[frame], shared=not signatures[frame].shared)
    return program.evolve(call_signatures=signatures.set(frame, other))


IN_CONTRACT: tuple[Corruptor, ...] = (
    Corruptor("input lost", "verify:signature-inputs", "the signature has an input less than the root", _input_lost),
    Corruptor("output lost", "verify:signature-outputs", "the root returns a value less than the signature says",
              _output_lost),
    Corruptor("unknown slot", "verify:signature-slots", "the signature refers to state that does not exist", _unknown_slot),
    Corruptor("mutation of nothing", "verify:mutations", "an output is the new contents of an input that does not exist",
              _mutation_of_nothing),
    Corruptor("mutated twice", "verify:mutations", "one piece of state or one input gets new contents twice", _mutated_twice),
    Corruptor("outputs swapped", "verify:mutation-contents", "two outputs of different shape or dtype change places",
              _outputs_swapped),
    Corruptor("gradient of nothing", "verify:gradients", "an output is the gradient to an argument that does not exist",
              _gradient_of_nothing),
    Corruptor("user inputs swapped", "verify:signature-types",
              "two user inputs of different shape or dtype change places in the signature",
              _users_swapped),
    Corruptor("wrong promise", "verify:signature-types", "the signature has another shape for an argument than the graph",
              _wrong_promise),
    Corruptor("leaf more", "verify:signature-leaves", "the pytree has a leaf more than there are inputs or outputs", _leaf_more),
    Corruptor("leaf lost", "verify:boundaries", "a preserved call names a leaf less than its pytree has", _leaf_lost),
    Corruptor("boundary twice", "verify:boundaries", "a preserved call says twice what it takes or gives", _boundary_twice),
    Corruptor("sharing halved", "verify:shared-signatures", "one call of a module shares a callable, or one of them does not",
              _sharing_halved),
    Corruptor("guard of nothing", "verify:constraints", "a guard refers to an input that does not exist", _guard_of_nothing),
    Corruptor("fact unnamed", "verify:known-facts", "a fact is not a word", _fact_unnamed),
    Corruptor("fact invented", "verify:facts", "a fact is claimed that does not hold", _fact_invented),
)  # fmt: skip
