"""Rules about the signature and the pytrees of the arguments and results: they must fit the inputs, outputs and state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import torch
from attrs import evolve

from ..arguments import Body, Ref
from ..expression import (
    ARITIES,
    DEEPEST,
    LARGEST,
    UNCOMPUTABLE,
    Apply,
    InputDim,
    InputValue,
    Sym,
    evaluate,
)
from ..graph import Input, Node
from ..signature import (
    GIVEN,
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
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
from ..state import SlotKind, reads_value
from ..tensors import disagreement, misfit, value_in
from .calls import origins
from .findings import INPUTS, PLAIN, Finding, depth_fault, is_argument, leaves, part_fault, short
from .index import ProgramIndex


def check_constraints(whole: ProgramIndex) -> Iterator[Finding]:
    """Find ranges, guards and sizes that refer to missing inputs, sizes or operators, or have no value."""
    constraints = whole.program.constraints
    users = list(whole.program.signature.users.values())
    expressions: list[tuple[str, Any, tuple[type, ...]]] = []
    for number, span in enumerate(constraints.ranges):
        place = f"constraints.ranges[{number}]"
        expressions.append((place, span.expr, (Sym, InputDim, InputValue)))
        ends = [end for end in (span.low, span.high) if end is not None]
        if any(abs(end) > LARGEST for end in ends) or ends != sorted(ends):
            yield Finding(
                "the range is empty, or one of its ends needs more than 64 bits", node=place
            )
    expressions += [
        (f"constraints.guards[{n}]", guard, (InputDim, InputValue))
        for n, guard in enumerate(constraints.guards)
    ]
    for number, user in enumerate(users):
        for size in _sizes(user.type):
            expressions.append((f"user input {number}", size, (Sym,)))
            if type(size) not in (int, Sym, Apply) or (type(size) is int and size < 0):
                yield Finding(
                    f"it has the size {size!r:.99}, but sizes are non-negative integers",
                    node=f"user input {number}",
                )
    for place, expr, kinds in expressions:
        fault = _fault(expr, users, kinds)
        if fault is not None:
            yield Finding(fault, node=place)


def _sizes(kind: Any) -> tuple[Any, ...]:
    if type(kind) is TensorType:
        return kind.shape
    return (kind.expr,) if type(kind) is NumberType and kind.expr is not None else ()


DIVISIONS = frozenset({"/", "//", "%", "ceildiv"})


def _fault(expr: Any, users: list[UserInput], kinds: tuple[type, ...]) -> str | None:
    # The fault of an expression whose leaves are numbers or of some kinds.
    applied: list[Apply] = []
    todo: list[tuple[Any, int]] = [(expr, 0)]
    while todo:
        part, depth = todo.pop()
        if depth > DEEPEST:
            return f"it nests more than {DEEPEST} levels deep"
        if type(part) is Apply:
            low, high = (
                ARITIES.get(part.op, (0, -1))
                if type(part.op) is str and type(part.args) is tuple
                else (0, -1)
            )
            if high < 0 or not low <= len(part.args) <= high:
                return f"it applies {short(part.op)} to a wrong number of operands"
            applied.append(part)
            todo.extend((arg, depth + 1) for arg in reversed(part.args))
        elif type(part) in (int, float, bool):
            if type(part) is int and abs(part) > LARGEST:
                return f"it contains an integer of {part.bit_length()} bits, but sizes have 64"
        elif (
            type(part) not in kinds
            or part_fault(part, type(part), set()) is not None
            or not _is_there(part, users)
        ):
            known = " or ".join(kind.__name__ for kind in kinds)
            return f"it refers to {short(part, width=90)}; it may refer to an existing {known}"
    for part in reversed(applied):
        try:
            if part.op in DIVISIONS and evaluate(part.args[-1], {}) == 0:
                return f"it divides by zero: {part.op!r}"
            evaluate(part, {})
        except KeyError:
            continue  # it depends on inputs
        except UNCOMPUTABLE as error:
            return f"a part of it has no value: {error}"
    return None


def _is_there(part: Any, users: list[UserInput]) -> bool:
    if type(part) is Sym:
        return True
    kind = users[part.index].type if 0 <= part.index < len(users) else None
    if kind is None or type(part) is InputValue:
        return kind is not None and type(kind) is not TensorType
    return (
        type(kind) is TensorType
        and 0 <= part.dim < len(kind.shape)
        and part.of in ("size", "stride")
    )


def check_facts(whole: ProgramIndex) -> Iterator[Finding]:
    """Find claimed facts that do not hold."""
    for fact in FACTS.keys() & whole.program.facts:
        for finding in _against(fact, whole):
            yield evolve(
                finding,
                message=f"the program claims the fact {fact!r}, but has {finding.message}",
                cause=fact,
            )


FACTS: dict[str, tuple[type, ...]] = {
    "flat": (), "state as inputs": (), "state sunk": (StateInput,), "token free": (Token,),
    "mutations in place": (StateMutation, InputMutation),
}  # fmt: skip
"""Facts that can be checked, with the specs that contradict them."""


def _against(fact: str, whole: ProgramIndex) -> Iterator[Finding]:
    # The nodes that contradict a fact.
    if fact == "flat":
        yield from [
            scope.at(index, "a call")
            for scope in whole.graphs.values()
            for index, _, _ in scope.calls
        ]
    elif fact == "state as inputs":
        state = whole.program.state
        reads = [index for index, _, do, _ in whole.main.gets if reads_value(state, do)]
        yield from [whole.main.at(index, "a read of state") for index in reads]
    elif fact == "token free":
        tokens = [
            (scope, index)
            for op, scope, index in whole.ops.values()
            if op.name == "higher_order.with_effects"
        ]
        yield from [scope.at(index, "an operator with a token") for scope, index in tokens]
    for what in ("inputs", "outputs"):
        for number, spec in enumerate(getattr(whole.program.signature, what)):
            if type(spec) in FACTS[fact]:
                yield Finding(f"a {type(spec).__name__}", node=f"signature.{what}[{number}]")


def check_inputs(whole: ProgramIndex) -> Iterator[Finding]:
    """Check that each input of the root has one input spec."""
    specs, main = whole.program.signature.inputs, whole.main
    if len(specs) != len(main.graph.inputs):
        yield Finding(
            f"the signature has {len(specs)} inputs, the root graph {len(main.graph.inputs)}",
            main.name,
            INPUTS,
        )


def check_outputs(whole: ProgramIndex) -> Iterator[Finding]:
    """Check that the root returns a tuple with one value for each output spec."""
    specs, main = whole.program.signature.outputs, whole.main
    output = main.graph.output
    if type(output) is not tuple or len(specs) != len(output):
        returned = (
            f"{len(output)} values" if type(output) is tuple else f"{short(output)}, not a tuple"
        )
        yield main.at(
            len(main.graph.nodes),
            f"the signature has {len(specs)} outputs, the root graph returns {returned}",
        )


SLOTTED = frozenset({StateInput, StateMutation, SunkInput})


def check_slots(whole: ProgramIndex) -> Iterator[Finding]:
    """Find state in the signature that is not a slot, and slots that are two inputs."""
    for what in ("inputs", "outputs", "lifted"):
        seen: set[str] = set()
        specs: Any = enumerate(getattr(whole.program.signature, what))
        for number, slot in [
            (number, spec.slot) for number, spec in specs if type(spec) in SLOTTED
        ]:
            fault = "which is not a slot of program.state" if slot not in whole.slots else None
            if slot in seen and what != "outputs":  # the rule "mutations" finds repeated outputs
                fault = "for the second time"
            seen.add(slot)
            if fault is not None:
                yield Finding(
                    f"it is the state {slot!r}, {fault}", node=f"signature.{what}[{number}]"
                )


def _outputs(whole: ProgramIndex) -> list[tuple[str, Any, Any]]:
    # The places of the output specs, the specs, and the values that the root returns for them.
    output: Any = whole.main.graph.output
    return [
        (f"signature.outputs[{number}]", spec, output[number])
        for number, spec in enumerate(whole.program.signature.outputs)
    ]


Claim = tuple[str, str, bool, Any, Any]
"""The place of a spec, the slot, input or output that it refers to, whether that exists and can have one, the value of the spec,
and the tensor or fake value of the same shape and dtype."""


def _faults_of(whole: ProgramIndex, kind: str, claims: Iterable[Claim]) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, of, exists, value, held in claims:
        value = value_in(whole.main.graph.metas[value.name]) if type(value) is Ref else value
        difference = disagreement(value, held)
        if not exists:
            yield Finding(
                f"it is the {kind} of {of}, which does not exist or cannot have one", node=place
            )
        elif of in seen:
            yield Finding(f"it is the second {kind} of {of}", node=place)
        elif difference is not None:
            yield Finding(f"the {kind} of {of} is {difference.replace('the slot', of)}", node=place)
        seen.add(of)


def check_mutations(whole: ProgramIndex) -> Iterator[Finding]:
    """Find mutations without a target, repeated ones, and new contents that are not a value, or of another shape or dtype."""
    pairs, claims = whole.program.inputs, list[Claim]()
    for place, spec, value in _outputs(whole):
        if type(spec) is StateMutation:
            slot = whole.slots.get(spec.slot)  # the rule "signature-slots" finds missing slots
            claims.append((place, f"the slot {spec.slot!r}", True, value, slot and slot.value))
        elif type(spec) is InputMutation:
            is_user = 0 <= spec.index < len(pairs) and type(pairs[spec.index][1]) is UserInput
            held = value_in(pairs[spec.index][0].meta) if is_user else None
            claims.append((place, f"the user input {spec.index}", is_user, value, held))
    yield from _faults_of(whole, "mutation", claims)
    for place, of, _, value, _ in claims:
        if not all(type(origin) in (Node, Input) for origin in origins(whole, whole.main, value)):
            yield Finding(f"the new contents of {of} are not a value of the graph", node=place)


def check_gradients(whole: ProgramIndex) -> Iterator[Finding]:
    """Find gradients without a target, repeated ones, ones of another shape, and ones without a loss or tangents.

    A program whose first outputs are gradients is the backward of another one, whose values its gradients and tangents number.
    """
    specs, is_backward = whole.program.signature.outputs, _is_backward(whole)
    users = whole.program.user_inputs
    arguments = [formal for formal, spec in users if spec.tangent_of is None]
    claims: list[Claim] = []
    for place, spec, value in _outputs(whole):
        if type(spec) is StateGradient:
            slot = whole.slots.get(spec.slot)
            needs = slot is not None and (
                slot.kind is SlotKind.PARAMETER or getattr(slot.value, "requires_grad", False)
            )
            claims.append(
                (place, f"the parameter {spec.slot!r}", needs, value, slot and slot.value)
            )
        elif type(spec) is InputGradient:
            is_own = not is_backward and 0 <= spec.leaf < len(arguments)
            held = value_in(arguments[spec.leaf].meta) if is_own else None
            exists = is_own or (is_backward and spec.leaf >= 0)
            claims.append((place, f"the leaf {spec.leaf} of the arguments", exists, value, held))
    losses, tangents = sum(type(spec) is LossOutput for spec in specs), len(users) - len(arguments)
    if losses > 1 or (losses and tangents) or (claims and not (losses or tangents or is_backward)):
        text = f"there are {len(claims)} gradients, {losses} losses and {tangents} tangents"
        yield Finding(text, node="signature.outputs")
    yield from _faults_of(whole, "gradient", claims)


def _is_backward(whole: ProgramIndex) -> bool:
    kinds = [type(spec) for spec in whole.program.signature.outputs if type(spec) in GIVEN]
    return kinds[:1] in ([StateGradient], [InputGradient]) and LossOutput not in kinds


def check_tangents(whole: ProgramIndex) -> Iterator[Finding]:
    """Find tangents without a user output, repeated ones, ones of another shape, and arguments after tangents."""
    results = [value for _, spec, value in _outputs(whole) if type(spec) is UserOutput]
    is_backward, claims = _is_backward(whole), list[Claim]()
    for number, (formal, spec) in enumerate(whole.program.inputs):
        of = spec.tangent_of if type(spec) is UserInput else None
        if of is not None:
            result = results[of] if 0 <= of < len(results) and not is_backward else None
            exists = of >= 0 and (of < len(results) or is_backward)
            held = value_in(whole.main.graph.metas[result.name]) if type(result) is Ref else None
            place = f"signature.inputs[{number}]"
            claims.append((place, f"the user output {of}", exists, value_in(formal.meta), held))
        elif claims and type(spec) is UserInput:
            yield Finding(
                "an argument comes after the tangents", node=f"signature.inputs[{number}]"
            )
    yield from _faults_of(whole, "tangent", claims)


def check_types(whole: ProgramIndex) -> Iterator[Finding]:
    """Find user inputs that were traced with another shape or dtype than in the signature."""
    main = whole.main
    for formal, spec in whole.program.user_inputs:
        if type(spec.type) is TensorType and (wrong := misfit(spec.type, value_in(formal.meta))):
            yield Finding(
                f"the argument {spec.argument!r} is {wrong}", main.name, INPUTS, formal.name
            )


def check_arguments(whole: ProgramIndex) -> Iterator[Finding]:
    """Find user inputs with an unknown type, or with defaults that do not fit the pytrees."""
    signature = whole.program.signature
    users = signature.users
    rests = [spec.type for spec in users.values() if type(spec.type) is RestType]
    if len(set(rests)) < len(rests):
        yield Finding("two arguments collect the rest", node="signature.inputs")
    for number, spec in users.items():
        if not _is_type(spec):
            fault = f"the argument {spec.argument!r} has an unknown type or default, or sizes that no tensor has"
            yield Finding(fault, node=f"signature.inputs[{number}]")
    if signature.in_spec is None or not (
        rests or any(spec.default is not None for spec in users.values())
    ):
        return
    # With defaults, arguments are bound by name, each to one leaf.
    arguments = [spec.argument for spec in users.values()]
    if _spec_fault(signature.in_spec, None, ()) is None:
        positional, named = signature.in_spec.children()
        names = [*signature.arg_names[: positional.num_children], *named.context]
        if names != arguments or not all(
            child.is_leaf() for part in (positional, named) for child in part.children()
        ):
            text = f"some arguments have defaults, so each is one leaf; they are {arguments}, and those of the pytree {names}"
            yield Finding(text, node="signature.in_spec")


def _is_type(spec: UserInput) -> bool:
    if spec.default is not None and not _is_literal(spec.default.value):
        return False
    match spec.type:
        case TensorType(dtype=dtype, shape=shape, device=device):
            sizes = [size for size in shape if type(size) is int]
            fits = prod([max(size, 1) for size in sizes]) * dtype.itemsize < LARGEST
            try:
                return fits and min(sizes, default=0) >= 0 and bool(torch.device(device))
            except RuntimeError:
                return False
        case NumberType(kind=number):
            return number in ("int", "float", "bool")
        case LiteralType(value=value):
            return _is_literal(value)
        case _:
            return True


def _is_literal(value: Any) -> bool:
    return depth_fault(value) is None and all(
        is_argument(leaf) and type(leaf) not in (Ref, Body) for leaf in leaves(value)
    )


def check_pytrees(whole: ProgramIndex) -> Iterator[Finding]:
    """Find pytrees other than (args, kwargs), keys that are not literals, and invalid names."""
    signature = whole.program.signature
    calls: dict[str, Any] = {
        f"call_signatures[{frame}]": found for frame, found in whole.program.call_signatures.items()
    }
    for where, found in {"signature": signature, **calls}.items():
        fault = _spec_fault(found.in_spec, found.out_spec, found.arg_names)
        if fault is not None:
            yield Finding(fault, node=where)


def check_leaves(whole: ProgramIndex) -> Iterator[Finding]:
    """Check that the numbers of user inputs and outputs are those of the leaves of their pytrees."""
    signature = whole.program.signature
    for what, kinds, spec in (
        ("inputs", (UserInput,), signature.in_spec),
        ("outputs", GIVEN, signature.out_spec),
    ):
        count = sum(type(entry) in kinds for entry in getattr(signature, what))
        if spec is not None and spec.num_leaves != count:
            message = (
                f"the signature has {count} user {what}, their pytree {spec.num_leaves} leaves"
            )
            yield Finding(message, node=f"signature.{what}")


def _spec_fault(in_spec: Any, out_spec: Any, names: tuple[str, ...]) -> str | None:
    if len(set(names)) < len(names):
        return f"two arguments have the same name: {', '.join(names)[:200]}"
    specs = [spec for spec in (in_spec, out_spec) if spec is not None]
    if (deep := [fault for spec in specs if (fault := depth_fault(spec)) is not None]) != []:
        return deep[0]
    if in_spec is not None:
        children = [] if in_spec.is_leaf() else in_spec.children()
        if in_spec.type is not tuple or [child.type for child in children] != [tuple, dict]:
            return (
                f"in_spec is {short(in_spec)}, not the pytree of a tuple and a dict: (args, kwargs)"
            )
        if any(type(key) is not str for key in children[1].context):
            return f"the keywords {short(children[1].context)} are not strings"
    while specs:
        part = specs.pop()
        specs.extend(part.children())
        if part.type is dict:
            literal = all(type(leaf) in PLAIN for key in part.context for leaf in leaves(key))
            if not literal or len(set(part.context)) < len(part.context):
                return f"a dict has the keys {short(part.context)}; use distinct literals"
    return None
