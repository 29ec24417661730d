"""Rules about the signature, position by position, and about the pytrees that a program is called with.

The signature refers to inputs, outputs and state that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..arguments import TREES, Ref
from ..expression import OPERATORS, Apply, Sym
from ..graph import Frame, Input, Node
from ..program import CallSignature
from ..signature import (
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    RestType,
    StateGradient,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from ..tensors import disagreement, misfit, value_in
from .findings import INPUTS, PLAIN, Finding, depth_fault, is_argument, leaves, short
from .survey import Survey
from .well_formed import MAP_TYPE

__all__ = [
    "check_arguments",
    "check_contents",
    "check_inputs",
    "check_leaves",
    "check_mutations",
    "check_outputs",
    "check_pytrees",
    "check_slots",
    "check_types",
    "specs_of",
]

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
    """Find that the root does not return a tuple with one value for each output spec."""
    specs, root = survey.signature.outputs, survey.main
    yield from _spec_faults("outputs", specs, OUTPUT_SPECS)
    if root is None:
        return
    end = len(root.nodes) if type(root.nodes) is tuple else 0
    if type(root.output) is not tuple:
        yield Finding(f"the root graph returns {short(root.output)}, not a tuple", survey.root, end, "output")
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
                yield Finding(f"it mutates input {target!r}, which is not a user input", node=f"signature.outputs[{number}]")
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


NUMBERS = frozenset({"int", "float", "bool"})

LIMIT = 1 << 63


def check_arguments(survey: Survey) -> Iterator[Finding]:
    """Find user inputs whose type is none, or whose defaults do not fit how the program is called."""
    users = [(number, spec) for number, spec in enumerate(specs_of(survey.signature.inputs)) if type(spec) is UserInput]
    rests: set[bool] = set()
    for number, spec in users:
        place = f"signature.inputs[{number}]"
        fault = _type_fault(spec)
        if fault is not None:
            yield Finding(fault, node=place)
        elif type(spec.type) is RestType:
            if spec.type.keywords in rests:
                yield Finding("it is the second argument that takes the rest", node=place)
            rests.add(spec.type.keywords)
    if rests or any(spec.default is not None for _, spec in users):
        yield from _unbound(survey.signature, [spec.argument for _, spec in users])


def _type_fault(spec: UserInput) -> str | None:
    kind: Any = spec.type
    if type(spec.argument) is not str:
        return f"the name of the argument is {short(spec.argument)}, not text"
    if spec.default is not None and not (type(spec.default) is LiteralType and _is_literal(spec.default.value)):
        return f"the argument {spec.argument!r} has the default {short(spec.default)}, not a literal"
    match kind:
        case TensorType():
            sizes = type(kind.shape) is tuple and all(_is_size(size) for size in kind.shape)
            fits = type(kind.dtype) is torch.dtype and sizes and _is_device(kind.device)
        case NumberType():
            fits = kind.kind in NUMBERS and (kind.expr is None or _is_size(kind.expr, low=-LIMIT))
        case LiteralType():
            fits = _is_literal(kind.value)
        case RestType():
            fits = type(kind.keywords) is bool
        case _:
            fits = type(kind) is ObjectType and type(kind.description) is str
    return None if fits else f"the argument {spec.argument!r} is said to be {short(kind, width=90)}, which is not a type"


def _is_literal(value: Any) -> bool:
    return depth_fault(value) is None and all(
        is_argument(leaf) and type(leaf).__name__ not in ("Ref", "Body") for leaf in leaves(value)
    )


def _is_size(size: Any, *, low: int = 0) -> bool:
    if type(size) is int:
        return low <= size < LIMIT
    todo = [size]
    while todo:
        part = todo.pop()
        if type(part) is Apply and type(part.args) is tuple and part.op in OPERATORS:
            todo.extend(part.args)
        elif type(part) not in (Sym, int, float, bool):
            return False
    return type(size) in (Sym, Apply)


def _is_device(name: Any) -> bool:
    try:
        return type(name) is str and bool(torch.device(name))
    except RuntimeError:
        return False


def _unbound(signature: Any, arguments: list[str]) -> Iterator[Finding]:
    # With defaults the arguments are bound by their names, each to one leaf.
    spec = signature.in_spec
    if spec is None or _shape_fault(spec) is not None:
        return
    positional, named = spec.children()
    names = [*signature.arg_names[: positional.num_children], *named.context]
    if not all(child.is_leaf() for part in (positional, named) for child in part.children()) or names != arguments:
        text = f"some arguments have defaults, so each is one leaf; they are {arguments}, and those of the pytree {names}"
        yield Finding(text, node="signature.in_spec")


def check_pytrees(survey: Survey) -> Iterator[Finding]:
    """Find pytrees that are not of positional arguments and arguments by name, keys that are not literals, and odd names."""
    signature = survey.signature
    yield from _call_faults("signature", signature.in_spec, signature.out_spec, signature.arg_names)
    calls: Any = survey.program.call_signatures
    for frame, found in calls.items() if type(calls) is MAP_TYPE else ():
        if type(frame) is Frame and type(found) is CallSignature:
            yield from _call_faults(f"call_signatures[{frame}]", found.in_spec, found.out_spec, found.arg_names)


def _call_faults(where: str, in_spec: Any, out_spec: Any, names: Any) -> Iterator[Finding]:
    if type(names) is not tuple or not all(type(name) is str for name in names):
        yield Finding(f"the names of the arguments are {short(names)}, not a tuple of strings", node=f"{where}.arg_names")
    elif len(set(names)) < len(names):
        yield Finding(f"two arguments have one name: {', '.join(names)[:200]}", node=f"{where}.arg_names")
    deep = [(name, fault) for name, spec in (("in_spec", in_spec), ("out_spec", out_spec)) if (fault := depth_fault(spec))]
    yield from (Finding(fault, node=f"{where}.{name}") for name, fault in deep)
    if deep:
        return
    fault = _shape_fault(in_spec) if isinstance(in_spec, TREES) else None
    if fault is not None:
        yield Finding(fault, node=f"{where}.in_spec")
    for name, spec in (("in_spec", in_spec), ("out_spec", out_spec)):
        key_fault = _key_fault(spec) if isinstance(spec, TREES) and fault is None else None
        if key_fault is not None:
            yield Finding(key_fault, node=f"{where}.{name}")


def _shape_fault(spec: Any) -> str | None:
    children = [] if spec.is_leaf() else spec.children()
    if spec.type is not tuple or [child.type for child in children] != [tuple, dict]:
        return f"the pytree is {short(spec)}, not that of a tuple and a dict: (args, kwargs)"
    odd = next((key for key in children[1].context if type(key) is not str), None)
    return None if odd is None else f"the keyword {short(odd)} is not text"


def _key_fault(spec: Any) -> str | None:
    todo = [spec]
    while todo:
        part = todo.pop()
        todo.extend(part.children())
        if part.type is dict:
            keys = part.context
            odd = [key for key in keys if any(type(leaf) not in PLAIN for leaf in leaves(key))]
            if odd:
                return f"a dict has the key {short(odd[0])}, which is not a literal"
            if len(set(keys)) < len(keys):
                return "a dict has one key twice"
    return None
