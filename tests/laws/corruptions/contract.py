"""Corruptors of the contract: signature, constraints and facts.

The signature refers to positions, so whatever shifts or swaps a position breaks it; where both sides of a swap
look alike, nothing but the meaning can tell, and ``values.py`` has the corruptor.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from attrs import evolve

from purefx.ir.arguments import Ref
from purefx.ir.expression import Apply, InputDim
from purefx.ir.graph import Call, Frame, Get
from purefx.ir.own_operators import is_boundary
from purefx.ir.program import Program
from purefx.ir.signature import (
    InputGradient,
    InputMutation,
    NumberType,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from purefx.ir.torch_private import pytree
from tests.laws.corruptions.corruptor import (
    Corruptor,
    Place,
    changed,
    corrupts,
    fresh_name,
    geometry,
    nodes,
    replaced,
    swapped,
    with_graph,
    with_item,
    with_specs,
)

__all__ = ["IN_CONTRACT", "inputs_of", "known_geometry", "mutations"]

Spec = TypeVar("Spec")


def inputs_of(program: Program, kind: type[Spec]) -> list[tuple[int, Spec]]:
    """Return the inputs of the root that are of a kind, each with its number."""
    return [(index, spec) for index, spec in enumerate(program.signature.inputs) if type(spec) is kind]


def outputs_of(program: Program, *kinds: type) -> list[int]:
    """Return which outputs of the root are of some kinds."""
    return [index for index, spec in enumerate(program.signature.outputs) if type(spec) in kinds]


def mutations(program: Program) -> list[int]:
    """Return which outputs of the root are new contents of state or of an input."""
    return outputs_of(program, StateMutation, InputMutation)


def known_geometry(program: Program) -> dict[str, tuple[object, ...] | None]:
    """Return dtype and sizes of the values of the root, as far as meta says them."""
    return {value.name: geometry(value.meta.get("val")) for value in (*program.main.inputs, *program.main.nodes)}


def _input_geometry(program: Program) -> list[tuple[object, ...] | None]:
    return [geometry(formal.meta.get("val")) for formal in program.main.inputs]


def _differ(left: tuple[object, ...] | None, right: tuple[object, ...] | None) -> bool:
    # An open size may be any number, so only plain ones can differ.
    if left is None or right is None:
        return False
    return len(left) != len(right) or any(a != b for a, b in zip(left, right, strict=True) if a is not None and b is not None)


@corrupts("signature-inputs", "the signature has an input less than the root", at=lambda p: range(len(p.signature.inputs)))
def input_lost(program: Program, index: int) -> Program:
    return with_specs(program, inputs=with_item(program.signature.inputs, index))


@corrupts("signature-outputs", "the root returns a value less than the signature says", at=lambda p: range(len(p.main.output)))
def output_lost(program: Program, index: int) -> Program:
    return with_graph(program, program.root, output=with_item(program.main.output, index))


def _naming_slots(program: Program) -> list[tuple[str, int]]:
    # Where a signature names state: in its inputs and outputs, or else in what it remembers of sunk inputs.
    found = [("inputs", index) for index, _ in inputs_of(program, StateInput)]
    found += [("outputs", index) for index in outputs_of(program, StateMutation)]
    return found or [("lifted", 0)]


@corrupts("signature-slots", "the signature refers to state that does not exist", at=_naming_slots)
def unknown_slot(program: Program, at: tuple[str, int]) -> Program:
    what, index = at
    if what == "lifted":
        return with_specs(program, lifted=(*program.signature.lifted, SunkInput("nowhere")))
    specs = getattr(program.signature, what)
    return with_specs(program, **{what: with_item(specs, index, evolve(specs[index], slot="nowhere"))})


@corrupts(
    "mutations",
    "an output is the new contents of an input that does not exist",
    at=lambda program: range(len(program.signature.outputs)),
)
def mutation_of_nothing(program: Program, index: int) -> Program:
    nothing = InputMutation(len(program.signature.inputs))
    return with_specs(program, outputs=with_item(program.signature.outputs, index, nothing))


@corrupts("mutations", "one piece of state or one input gets new contents twice", at=mutations)
def mutated_twice(program: Program, index: int) -> Program:
    specs, output = program.signature.outputs, program.main.output
    twice = with_graph(program, program.root, output=(output[index], *output))
    return with_specs(twice, outputs=(specs[index], *specs))


def _unlike_outputs(program: Program) -> list[tuple[int, int]]:
    known = known_geometry(program)
    shapes = [known.get(value.name) if type(value) is Ref else None for value in program.main.output]
    targets = [index for index in mutations(program) if _target(program, program.signature.outputs[index])]
    return [(i, j) for i in targets for j, shape in enumerate(shapes) if shape and shapes[i] and _differ(shape, shapes[i])]


def _target(program: Program, spec: Any) -> tuple[object, ...] | None:
    if type(spec) is StateMutation:
        return geometry(program.state[spec.slot].value)
    return geometry(program.main.inputs[spec.index].meta.get("val"))


@corrupts("mutations", "two outputs of different shape or dtype change places", at=_unlike_outputs)
def outputs_swapped(program: Program, pair: tuple[int, int]) -> Program:
    return with_graph(program, program.root, output=swapped(program.main.output, *pair))


def _counts_with_outputs(program: Program) -> tuple[int, ...]:
    # A program that gives gradients first is a backward, and takes other arguments than those that its gradients are to.
    return (1, 2, 3) if any(type(spec) is UserOutput for spec in program.signature.outputs) else ()


@corrupts("gradients", "an output is the gradient to an argument that does not exist", at=_counts_with_outputs)
def gradient_of_nothing(program: Program, count: int) -> Program:
    gradients = [InputGradient(len(program.signature.inputs) + number) for number in range(count)]
    more = with_graph(program, program.root, output=(*program.main.output, *[None for _ in gradients]))
    return with_specs(more, outputs=(*program.signature.outputs, *gradients))


def _unlike_users(program: Program) -> list[tuple[int, int]]:
    known = _input_geometry(program)
    users = [index for index, spec in inputs_of(program, UserInput) if type(spec.type) is TensorType]
    return [(i, j) for i in users for j in users if i < j and _differ(known[i], known[j])]


@corrupts("signature-types", "two user inputs of different shape or dtype change places in the signature", at=_unlike_users)
def user_inputs_swapped(program: Program, pair: tuple[int, int]) -> Program:
    return with_specs(program, inputs=swapped(program.signature.inputs, *pair))


def _known_users(program: Program) -> list[tuple[int, UserInput]]:
    known = _input_geometry(program)
    return [(index, spec) for index, spec in inputs_of(program, UserInput) if known[index] and type(spec.type) is TensorType]


@corrupts("signature-types", "the signature has another shape for an argument than the graph", at=_known_users)
def wrong_promise(program: Program, at: tuple[int, UserInput]) -> Program:
    index, spec = at
    assert type(spec.type) is TensorType
    larger = evolve(spec.type, shape=(1, *spec.type.shape))
    return with_specs(program, inputs=with_item(program.signature.inputs, index, evolve(spec, type=larger)))


@corrupts("signature-arguments", "an argument is a number of no known kind", at=lambda program: inputs_of(program, UserInput))
def argument_without_type(program: Program, at: tuple[int, UserInput]) -> Program:
    return with_specs(program, inputs=with_item(program.signature.inputs, at[0], UserInput(NumberType("complex"), "x")))


@corrupts("signature-leaves", "the pytree has a leaf more than there are inputs or outputs", at=lambda _: ("in_spec", "out_spec"))
def leaf_more(program: Program, name: str) -> Program:
    count = len(inputs_of(program, UserInput) if name == "in_spec" else outputs_of(program, UserOutput))
    more = (0,) * (count + 1)
    return with_specs(program, **{name: pytree.tree_structure((more, {}) if name == "in_spec" else more)})


@corrupts("pytrees", "the pytree of the arguments is not that of (args, kwargs)", at=lambda _: (tuple, list))
def arguments_without_keywords(program: Program, around: type) -> Program:
    leaves = (0,) * len(inputs_of(program, UserInput))
    return with_specs(program, in_spec=pytree.tree_structure(leaves if around is tuple else [leaves]))


@corrupts("boundaries", "a preserved call names a leaf less than its pytree has", at=nodes(is_boundary))
def leaf_lost(program: Program, place: Place) -> Program:
    return changed(program, place, args=place.node.args[:-1])


@corrupts("boundaries", "a preserved call says twice what it takes or gives", at=nodes(is_boundary))
def boundary_twice(program: Program, place: Place) -> Program:
    again = evolve(place.node, name=fresh_name(program.graphs[place.graph]))
    return replaced(program, place, place.node, again)


def _called_alike(program: Program) -> list[Frame]:
    calls = Counter(frame.path for frame in program.call_signatures)
    return sorted([frame for frame in program.call_signatures if calls[frame.path] > 1], key=str)


@corrupts("shared-signatures", "one call of a module shares a callable, or one of them does not", at=_called_alike)
def sharing_halved(program: Program, frame: Frame) -> Program:
    signatures = program.call_signatures
    return program.evolve(call_signatures=signatures.set(frame, evolve(signatures[frame], shared=not signatures[frame].shared)))


@corrupts("constraints", "a guard refers to an input that does not exist", at=lambda _: range(7))
def guard_of_nothing(program: Program, beyond: int) -> Program:
    guard = Apply("==", (InputDim(len(program.signature.inputs) + beyond, 0), 3))
    return program.evolve(constraints=evolve(program.constraints, guards=(*program.constraints.guards, guard)))


@corrupts("well-formed", "a fact is not a word", at=lambda _: ("",))
def fact_unnamed(program: Program, fact: Any) -> Program:
    return program.evolve(facts=program.facts | {fact})


def _false_facts(program: Program) -> list[str]:
    specs = {type(spec) for spec in (*program.signature.inputs, *program.signature.outputs)}
    false = {
        "flat": any(type(node.do) is Call for _, node in program.nodes()),
        "state as inputs": any(type(node.do) is Get for node in program.main.nodes),
        "state sunk": StateInput in specs,
        "mutations in place": bool(specs & {StateMutation, InputMutation}),
        "token free": Token in specs,
    }
    return [fact for fact, is_false in false.items() if is_false]


@corrupts(
    "tangents",
    "an argument is the tangent of an output that does not exist",
    at=lambda program: [index for index, _ in inputs_of(program, UserInput)],
)
def tangent_of_nothing(program: Program, index: int) -> Program:
    specs = program.signature.inputs
    nothing = evolve(specs[index], tangent_of=len(outputs_of(program, UserOutput)))
    return with_specs(program, inputs=with_item(specs, index, nothing))


@corrupts("facts", "a fact is claimed that does not hold", at=_false_facts)
def fact_invented(program: Program, fact: str) -> Program:
    return program.evolve(facts=program.facts | {fact})


IN_CONTRACT: tuple[Corruptor, ...] = (
    input_lost, output_lost, unknown_slot, mutation_of_nothing, mutated_twice, outputs_swapped, gradient_of_nothing,
    tangent_of_nothing, user_inputs_swapped, wrong_promise, argument_without_type, leaf_more, arguments_without_keywords,
    leaf_lost, boundary_twice, sharing_halved, guard_of_nothing, fact_unnamed, fact_invented,
)  # fmt: skip
