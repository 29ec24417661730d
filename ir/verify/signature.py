"""Rules about the signature: position by position it speaks of the root's inputs and outputs, and of state that exists.

One idea: names of values play no role here, so there are only lengths, kinds and positions to check.  Tensors are looked
at in ``state.py``, guards in ``constraints.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..arguments import Ref
from ..graph import Input
from ..node import Node
from ..signature import (
    InputGradient,
    InputMutation,
    LossOutput,
    StateGradient,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from .kinds import short
from .rule import INPUTS, Finding
from .survey import Survey
from .tensors import disagreement, misfit, value_in

__all__ = [
    "check_contents", "check_inputs", "check_leaves", "check_mutations", "check_outputs", "check_slots", "check_types",
    "specs_of",
]  # fmt: skip

INPUT_SPECS: tuple[type, ...] = (UserInput, StateInput, Token)
OUTPUT_SPECS: tuple[type, ...] = (
    UserOutput, StateMutation, InputMutation, Token, LossOutput, StateGradient, InputGradient,
)  # fmt: skip


def specs_of(specs: Any) -> tuple[Any, ...]:
    """Return the specs of a signature, or () where they are garbage."""
    return specs if type(specs) is tuple else ()


def check_inputs(survey: Survey) -> Iterator[Finding]:
    """Find that the input specs are not one for each input of the root."""
    specs, root = survey.signature.inputs, survey.main
    yield from _spec_faults("inputs", specs, INPUT_SPECS)
    if root is not None and type(specs) is tuple and type(root.inputs) is tuple and len(specs) != len(root.inputs):
        text = f"the signature has {len(specs)} inputs, the root graph {len(root.inputs)}"
        yield Finding(text, survey.root, INPUTS)


def check_outputs(survey: Survey) -> Iterator[Finding]:
    """Find that the root does not give back a tuple with one value for each output spec."""
    specs, root = survey.signature.outputs, survey.main
    yield from _spec_faults("outputs", specs, OUTPUT_SPECS)
    if root is None:
        return
    end = len(root.nodes) if type(root.nodes) is tuple else 0
    if type(root.output) is not tuple:
        yield Finding(f"the root graph gives back {short(root.output)}, not a tuple", survey.root, end, "output")
    elif type(specs) is tuple and len(specs) != len(root.output):
        text = f"the signature has {len(specs)} outputs, the root graph {len(root.output)}"
        yield Finding(text, survey.root, end, "output")


def _spec_faults(what: str, specs: Any, kinds: tuple[type, ...]) -> Iterator[Finding]:
    if type(specs) is not tuple:
        yield Finding(f"signature.{what} is {short(specs)}, not a tuple", node=f"signature.{what}")
    for number, spec in enumerate(specs_of(specs)):
        if type(spec) not in kinds:
            names = ", ".join(kind.__name__ for kind in kinds)
            yield Finding(f"signature.{what}[{number}] is {short(spec)}, none of {names}", node=f"signature.{what}[{number}]")


def check_slots(survey: Survey) -> Iterator[Finding]:
    """Find state inputs and mutations of slots that do not exist."""
    slots = survey.slots
    for what in ("inputs", "outputs"):
        for number, spec in enumerate(specs_of(getattr(survey.signature, what))):
            if type(spec) in (StateInput, StateMutation) and (type(spec.slot) is not str or spec.slot not in slots):
                yield Finding(f"it is the state {spec.slot!r}, and there is no such slot", node=f"signature.{what}[{number}]")
        yield from _doubles(specs_of(getattr(survey.signature, what)), f"signature.{what}") if what == "inputs" else ()
    lifted: Any = survey.signature.lifted
    yield from _doubles(specs_of(lifted), "signature.lifted")
    if type(lifted) is not tuple:
        yield Finding(f"signature.lifted is {short(lifted)}, not a tuple", node="signature.lifted")
    for number, place in enumerate(specs_of(lifted)):
        if not _is_place(place):
            text = f"it is {short(place)}, not a SunkInput with a slot and the number of user inputs before it"
            yield Finding(text, node=f"signature.lifted[{number}]")
        elif place.slot not in slots:
            yield Finding(f"it was the state {place.slot!r}, and there is no such slot", node=f"signature.lifted[{number}]")


def _doubles(specs: tuple[Any, ...], where: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for number, spec in enumerate(specs):
        if type(spec) in (StateInput, SunkInput) and type(spec.slot) is str:
            if spec.slot in seen:
                yield Finding(f"it is the state {spec.slot!r} for the second time", node=f"{where}[{number}]")
            seen.add(spec.slot)


def _is_place(place: Any) -> bool:
    if type(place) is not SunkInput or type(place.slot) is not str or type(place.used) is not bool:
        return False
    return type(place.behind) is int and place.behind >= 0


def check_mutations(survey: Survey) -> Iterator[Finding]:
    """Find mutations of inputs that are not the user's, second mutations, and mutations that give no value."""
    inputs, outputs = specs_of(survey.signature.inputs), specs_of(survey.signature.outputs)
    values = survey.main.output if survey.main is not None else ()
    done: set[tuple[type, Any]] = set()
    for number, spec in enumerate(outputs):
        if type(spec) is InputMutation:
            target: Any = spec.index
            if type(target) is not int or not 0 <= target < len(inputs) or type(inputs[target]) is not UserInput:
                yield Finding(f"it mutates input {target!r}, which is no user input", node=f"signature.outputs[{number}]")
        elif type(spec) is StateMutation and type(spec.slot) is str:
            target = spec.slot
        else:
            continue
        if type(target) in (int, str) and (type(spec), target) in done:
            yield Finding(f"it is the second mutation of {target!r}", node=f"signature.outputs[{number}]")
        elif type(target) in (int, str):
            done.add((type(spec), target))
        if type(values) is tuple and number < len(values) and type(values[number]) is not Ref:
            text = f"the new contents of {target!r} are {short(values[number])}, not a value of the graph"
            yield Finding(text, node=f"signature.outputs[{number}]")


def check_contents(survey: Survey) -> Iterator[Finding]:
    """Find mutations whose new contents have another shape or dtype than what they are written to."""
    root, specs = survey.main, specs_of(survey.signature.outputs)
    if root is None or type(root.output) is not tuple or type(root.nodes) is not tuple or type(root.inputs) is not tuple:
        return
    mutations = [
        (number, spec, value.name)
        for number, (spec, value) in enumerate(zip(specs, root.output, strict=False))
        if type(spec) in (StateMutation, InputMutation) and type(value) is Ref and type(value.name) is str
    ]
    if not mutations:
        return
    wanted = {name for _, _, name in mutations}
    makers = [part for part in (*root.nodes, *root.inputs) if getattr(part, "name", None) in wanted]
    metas = {part.name: part.meta for part in makers if type(part) in (Node, Input)}
    for number, spec, name in mutations:
        difference = disagreement(value_in(metas.get(name)), _target_of(survey, root.inputs, spec))
        if difference is not None:
            text = f"the new contents {name!r} are {difference.replace('the slot', 'what it is written to')}"
            yield Finding(text, node=f"signature.outputs[{number}]")


def _target_of(survey: Survey, inputs: tuple[Any, ...], spec: Any) -> Any:
    if type(spec) is StateMutation:
        slot = survey.slots.get(spec.slot) if type(spec.slot) is str else None
        return slot.value if slot is not None else None
    formal: Any = inputs[spec.index] if type(spec.index) is int and 0 <= spec.index < len(inputs) else None
    return value_in(formal.meta) if type(formal) is Input else None


def check_types(survey: Survey) -> Iterator[Finding]:
    """Find user inputs that were traced with another shape or dtype than the signature promises to the caller."""
    inputs: Any = survey.main.inputs if survey.main is not None else ()
    for formal, spec in zip(inputs if type(inputs) is tuple else (), specs_of(survey.signature.inputs), strict=False):
        if type(spec) is UserInput and type(formal) is Input and type(spec.type) is TensorType:
            difference = misfit(spec.type, value_in(formal.meta))
            if difference is not None:
                yield Finding(f"the argument {spec.argument!r} is {difference}", survey.root, INPUTS, formal.name)


def check_leaves(survey: Survey) -> Iterator[Finding]:
    """Find that the numbers of user inputs or outputs are not those of the pytrees that the caller passes and gets."""
    signature = survey.signature
    for what, kind, spec in (("inputs", UserInput, signature.in_spec), ("outputs", UserOutput, signature.out_spec)):
        if spec is None:
            continue
        count = sum(type(entry) is kind for entry in specs_of(getattr(signature, what)))
        leaves: Any = getattr(spec, "num_leaves", None)
        if type(leaves) is not int:
            yield Finding(f"the pytree of the {what} is {short(spec)}, not a TreeSpec", node=f"signature.{what}")
        elif leaves != count:
            yield Finding(f"the signature has {count} user {what}, their pytree {leaves} leaves", node=f"signature.{what}")
