"""Rules about the signature, position by position, and about the pytrees that a program is called with.

The signature refers to inputs, outputs and state that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..arguments import TREES, Body, Ref
from ..expression import ARITIES, DEEPEST, LARGEST, OPERATORS, UNCOMPUTABLE, Apply, InputDim, InputValue, Sym, evaluate
from ..graph import Call, Node
from ..persistent import derived
from ..signature import (
    GIVEN,
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
    Range,
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
from ..state import SlotKind
from ..tensors import disagreement, misfit, value_in
from .findings import INPUTS, PLAIN, Finding, depth_fault, is_argument, leaves, short
from .survey import Census, Survey


def check_constraints(survey: Survey) -> Iterator[Finding]:
    """Find ranges, guards and sizes over inputs, sizes or operators that do not exist, or that have no value."""
    users = [spec for spec in survey.program.signature.inputs if type(spec) is UserInput]
    for what, faults in (("ranges", _range_faults), ("guards", _guard_faults)):
        for number, part in enumerate(getattr(survey.program.constraints, what)):
            yield from [Finding(fault, node=f"constraints.{what}[{number}]") for fault in faults(part, users)]
    for number, user in enumerate(users):
        for size in _sizes(user.type):
            yield from [Finding(fault, node=f"user input {number}") for fault in _size_faults(size, users)]


def _range_faults(span: Range, users: list[UserInput]) -> Iterator[str]:
    if span.low is not None and span.high is not None and span.low > span.high:
        yield f"nothing is in the range from {_number(span.low)} to {_number(span.high)}"
    for end in (span.low, span.high):
        if end is not None and not -LARGEST <= end <= LARGEST:
            yield f"it ends at an integer of {end.bit_length()} bits, and sizes have 64"
    yield from _all_faults(span.expr, users)


def _guard_faults(guard: Any, users: list[UserInput]) -> Iterator[str]:
    yield from _all_faults(guard, users, over=InputDim)


def _number(number: object) -> str:
    # Python refuses to write integers of very many digits.
    if type(number) is int and not -LARGEST <= number <= LARGEST:
        return f"of {number.bit_length()} bits"
    return repr(number) if type(number) is int else short(number)


def _sizes(kind: Any) -> tuple[Any, ...]:
    if type(kind) is TensorType:
        return kind.shape
    return (kind.expr,) if type(kind) is NumberType and kind.expr is not None else ()


def _size_faults(size: Any, users: list[UserInput]) -> Iterator[str]:
    if type(size) is int and not 0 <= size < LARGEST:
        yield f"it has the size {_number(size)}, and sizes are whole numbers of 64 bits"
    elif type(size) not in (int, Sym, Apply):
        yield f"it has the size {short(size)}, and sizes are whole numbers"
    else:
        yield from _all_faults(size, users, over=Sym)


def _all_faults(expr: Any, users: list[UserInput], *, over: type = object) -> Iterator[str]:
    if type(expr) is not Apply:
        yield from _faults(expr, users, over=over)
        return
    found = list(_faults(expr, users, over=over))
    yield from found or _valueless(expr)


def _faults(expr: Any, users: list[UserInput], *, over: type = object) -> Iterator[str]:
    todo: list[tuple[Any, int]] = [(expr, 0)]
    deepest = 0
    while todo:
        part, depth = todo.pop()
        deepest = max(deepest, depth)
        match part:
            case bool() | Sym(name=str()):
                if type(part) is Sym and over is InputDim:
                    yield f"it refers to the symbol {part.name[:80]!r}; a guard refers to sizes of user inputs"
            case int() | float():
                if type(part) is int and not -LARGEST <= part <= LARGEST:
                    yield f"it holds an integer of {part.bit_length()} bits, and sizes have 64"
            case Apply(op=str() as op, args=tuple() as args) if op in OPERATORS:
                low, high = ARITIES[op]
                if not low <= len(args) <= high:
                    yield f"it hands {len(args)} operands to {op!r}, which takes {low if low == high else f'at least {low}'}"
                todo.extend((arg, depth + 1) for arg in reversed(args))
            case InputDim(index=int() as index) | InputValue(index=int() as index):
                if over is Sym:
                    yield f"it refers to user input {_number(index)}; a size is of symbols"
                elif not 0 <= index < len(users):
                    yield f"it refers to user input {_number(index)}, and there are {len(users)}"
                elif type(part) is InputDim:
                    yield from _dim_faults(part, users[index])
                elif type(users[index].type) is TensorType:
                    yield f"it takes {users[index].argument or f'user input {index}'} for a number, which is a tensor"
            case _:
                yield f"it holds {short(part)}, which is not an expression"
    if deepest > DEEPEST:
        yield f"it nests {deepest} levels deep, and {DEEPEST} are read"


def _valueless(expr: Any) -> Iterator[str]:
    """Find parts that say the same for all inputs and have no value: a division by zero, a power that is too large."""
    done: dict[int, bool] = {}
    todo = [(expr, False)]
    while todo:
        part, closing = todo.pop()
        if type(part) is not Apply:
            done[id(part)] = isinstance(part, int | float)
        elif not closing:
            todo += [(part, True), *[(arg, False) for arg in part.args]]
        else:
            done[id(part)] = all(done[id(arg)] for arg in part.args)
            divisor = part.args[-1] if part.op in DIVISIONS else None
            try:
                if divisor is not None and done[id(divisor)] and evaluate(divisor, {}) == 0:
                    yield f"it divides by zero: {part.op!r}"
                elif done[id(part)]:
                    evaluate(part, {})
            except UNCOMPUTABLE as error:
                yield f"a part of it has no value: {error}"
                done[id(part)] = False


DIVISIONS = frozenset({"/", "//", "%", "ceildiv"})


def _dim_faults(part: InputDim, user: UserInput) -> Iterator[str]:
    if type(user.type) is not TensorType:
        yield f"it refers to a size of {user.argument or f'user input {part.index}'}, which is not a tensor"
    elif type(part.dim) is not int or not 0 <= part.dim < len(user.type.shape):
        yield f"it refers to dimension {_number(part.dim)} of {user.argument or part.index}, which has {len(user.type.shape)}"
    elif part.of not in ("size", "stride"):
        yield f"it refers to {short(part.of)} of {user.argument or part.index}, which is neither size nor stride"


THREADING = "higher_order.with_effects"


def check_facts(survey: Survey) -> Iterator[Finding]:
    """Find facts that are claimed and do not hold."""
    facts = survey.program.facts
    if "flat" in facts:
        for census in survey.censuses.values():
            for index, _, _ in census.calls:
                yield census.at(index, "the program is said to be 'flat', but this is a call", "flat")
    if "state as inputs" in facts:
        for index, _, _ in survey.main.gets:
            text = "the program is said to have its 'state as inputs', but this reads state"
            yield survey.main.at(index, text, "state as inputs")
    if "state sunk" in facts:
        yield from _specs(survey, "inputs", (StateInput,), "state sunk")
    if "mutations in place" in facts:
        yield from _specs(survey, "outputs", (StateMutation, InputMutation), "mutations in place")
    if "token free" in facts:
        yield from _specs(survey, "inputs", (Token,), "token free")
        yield from _specs(survey, "outputs", (Token,), "token free")
        for op, census, index in survey.ops.values():
            if op.name == THREADING:
                text = "the program is said to be 'token free', but this threads a token"
                yield census.at(index, text, "token free")


def _specs(survey: Survey, what: str, kinds: tuple[type, ...], fact: str) -> Iterator[Finding]:
    for number, spec in enumerate(getattr(survey.program.signature, what)):
        if type(spec) in kinds:
            text = f"the program is said to be {fact!r}, but this is a {type(spec).__name__}"
            yield Finding(text, node=f"signature.{what}[{number}]", cause=fact)


def _of_output(number: int, text: str) -> Finding:
    return Finding(text, node=f"signature.outputs[{number}]")


def check_inputs(survey: Survey) -> Iterator[Finding]:
    """Find that the input specs are not one for each input of the root."""
    specs, main = survey.program.signature.inputs, survey.main
    if len(specs) != len(main.graph.inputs):
        yield Finding(f"the signature has {len(specs)} inputs, the root graph {len(main.graph.inputs)}", main.name, INPUTS)


def check_outputs(survey: Survey) -> Iterator[Finding]:
    """Find that the root does not return a tuple with one value for each output spec."""
    specs, main = survey.program.signature.outputs, survey.main
    output, end = main.graph.output, len(main.graph.nodes)
    if type(output) is not tuple:
        yield main.at(end, f"the root graph returns {short(output)}, not a tuple")
    elif len(specs) != len(output):
        yield main.at(end, f"the signature has {len(specs)} outputs, the root graph {len(output)}")


def check_slots(survey: Survey) -> Iterator[Finding]:
    """Find state in the signature that is not a slot, and inputs that are one slot twice."""
    signature, slots = survey.program.signature, survey.slots
    for what, specs, said in (
        ("inputs", signature.inputs, "is"), ("outputs", signature.outputs, "is"), ("lifted", signature.lifted, "was"),
    ):  # fmt: skip
        seen: set[object] = set()
        for number, spec in enumerate(specs):
            slot = None
            if type(spec) is StateInput or type(spec) is StateMutation or type(spec) is SunkInput:
                slot = spec.slot
            if slot is not None and slot not in slots:
                yield Finding(f"it {said} the state {slot!r}, and there is no such slot", node=f"signature.{what}[{number}]")
            if slot is not None and slot in seen and what != "outputs":  # the rule "mutations" tells those
                yield Finding(f"it is the state {slot!r} for the second time", node=f"signature.{what}[{number}]")
            seen.add(slot)


def check_mutations(survey: Survey) -> Iterator[Finding]:
    """Find mutations of inputs that are not the user's, second mutations, and mutations that give no value."""
    inputs = survey.program.signature.inputs
    done: set[tuple[type, Any]] = set()
    for number, (spec, value) in enumerate(_outputs(survey)):
        if type(spec) is InputMutation:
            target: Any = spec.index
            if not 0 <= target < len(inputs) or type(inputs[target]) is not UserInput:
                yield _of_output(number, f"it mutates input {target!r}, which is not a user input")
        elif type(spec) is StateMutation:
            target = spec.slot
        else:
            continue
        if (type(spec), target) in done:
            yield _of_output(number, f"it is the second mutation of {target!r}")
        done.add((type(spec), target))
        given = _followed(survey, value)
        if type(given) is not Ref:
            yield _of_output(number, f"the new contents of {target!r} are {short(given)}, not a value of the graph")


def _followed(survey: Survey, arg: Any) -> Any:
    # What the root returns, followed into the bodies that return it and out of those that were given it.
    census, calls = survey.main, list[tuple[Census, Node]]()
    while type(arg) is Ref:
        node = census.graph.by_name.get(arg.name)
        whole, index = (node and node.projection) or (arg.name, None)
        maker = census.graph.by_name.get(whole)
        if node is None and calls:
            place = [formal.name for formal in census.graph.inputs].index(arg.name)
            census, call = calls.pop()
            arg = call.args[place]
        elif maker is not None and type(maker.do) is Call:
            calls.append((census, maker))
            census = survey.censuses[maker.do.graph]
            output: Any = census.graph.output
            if index is not None and not (isinstance(output, tuple) and -len(output) <= index < len(output)):
                break  # the rule "projections" speaks of that
            arg = output if index is None else output[index]
        else:
            break
    return arg


def _outputs(survey: Survey) -> Iterator[tuple[Any, Any]]:
    # The specs of the outputs with what the root returns there.
    output: Any = survey.main.graph.output
    return zip(survey.program.signature.outputs, output, strict=True)


@derived
def _values(survey: Survey) -> dict[str, Any]:
    graph = survey.main.graph
    return {part.name: value_in(part.meta) for part in (*graph.inputs, *graph.nodes)}


def check_contents(survey: Survey) -> Iterator[Finding]:
    """Find mutations whose new contents have another shape or dtype than what they are written to."""
    for number, (spec, value) in enumerate(_outputs(survey)):
        if type(spec) in (StateMutation, InputMutation) and type(value) is Ref:
            difference = disagreement(_values(survey)[value.name], _target_of(survey, spec))
            if difference is not None:
                text = f"the new contents {value.name!r} are {difference.replace('the slot', 'what it is written to')}"
                yield _of_output(number, text)


def _target_of(survey: Survey, spec: Any) -> Any:
    if type(spec) is StateMutation:
        slot = survey.slots.get(spec.slot)
        return slot.value if slot is not None else None
    inputs = survey.main.graph.inputs
    return value_in(inputs[spec.index].meta) if 0 <= spec.index < len(inputs) else None


def check_gradients(survey: Survey) -> Iterator[Finding]:
    """Find gradients of nothing, second gradients, gradients of another shape, and gradients without one loss or tangents.

    A program that gives gradients first is the backward of another one, or half of that, with what it hands to the other half
    behind the gradients: what its gradients and tangents count is there.
    """
    outputs = list(_outputs(survey))
    losses = sum(type(spec) is LossOutput for spec, _ in outputs)
    gradients = [(number, *pair) for number, pair in enumerate(outputs) if type(pair[0]) in (StateGradient, InputGradient)]
    tangents = len(_tangents(survey))
    if losses > 1 or (gradients and not losses and not tangents and not _is_backward(survey)) or (losses and tangents):
        said = f"there are {len(gradients)} gradients, {losses} losses and {tangents} tangents"
        yield Finding(said, node="signature.outputs")
    done: set[str] = set()
    for number, spec, value in gradients:
        known, wanted, what = _differentiated(survey, spec)
        if not known:
            yield _of_output(number, f"it is the gradient to {what}, and there is none")
        elif what in done:
            yield _of_output(number, f"it is the second gradient to {what}")
        elif type(value) is Ref:
            difference = disagreement(_values(survey)[value.name], wanted)
            if difference is not None:
                yield _of_output(number, f"the gradient is {difference.replace('the slot', what)}")
        done.add(what)


def _differentiated(survey: Survey, spec: Any) -> tuple[bool, Any, str]:
    # Whether what a gradient is for exists, a tensor of its shape, and how to call it.
    if type(spec) is StateGradient:
        slot = survey.slots.get(spec.slot)
        known = slot is not None and (slot.kind is SlotKind.PARAMETER or getattr(slot.value, "requires_grad", False))
        return known, slot.value if slot is not None else None, f"the parameter {spec.slot!r}"
    if _is_backward(survey):
        return spec.leaf >= 0, None, f"the leaf {spec.leaf!r} of the arguments"
    users = [(formal, user) for formal, user in survey.program.inputs if type(user) is UserInput and user.tangent_of is None]
    if not 0 <= spec.leaf < len(users):
        return False, None, f"the leaf {spec.leaf!r} of the arguments"
    formal, user = users[spec.leaf]
    return True, value_in(formal.meta), f"the argument {user.argument!r}"


def _is_backward(survey: Survey) -> bool:
    given = [type(spec) for spec in survey.program.signature.outputs if type(spec) in GIVEN]
    return given[:1] in ([StateGradient], [InputGradient]) and LossOutput not in given


def _tangents(survey: Survey) -> list[tuple[int, Any, UserInput]]:
    # The inputs that are tangents: their numbers, formals and specs.
    pairs = enumerate(survey.program.inputs)
    return [(number, formal, spec) for number, (formal, spec) in pairs if type(spec) is UserInput and spec.tangent_of is not None]


def check_tangents(survey: Survey) -> Iterator[Finding]:
    """Find tangents of no user output, second tangents, tangents of another shape, and arguments behind tangents."""
    given = [value for spec, value in _outputs(survey) if type(spec) is UserOutput]
    done: set[Any] = set()
    tangents = _tangents(survey)
    for number, formal, spec in tangents:
        of: Any = spec.tangent_of
        place = f"signature.inputs[{number}]"
        if of < 0 or (of >= len(given) and not _is_backward(survey)):
            yield Finding(f"it is the tangent of the user output {short(of)}, and there is none", node=place)
            continue
        if of in done:
            yield Finding(f"it is the second tangent of the user output {of}", node=place)
        done.add(of)
        output = given[of] if of < len(given) and not _is_backward(survey) else None
        wanted = _values(survey)[output.name] if type(output) is Ref else None
        difference = disagreement(value_in(formal.meta), wanted)
        if difference is not None:
            yield Finding(f"the tangent is {difference.replace('the slot', f'the user output {of}')}", node=place)
    specs = survey.program.signature.inputs
    for number in range(tangents[0][0] + 1, len(specs)) if tangents else ():
        behind = specs[number]
        if type(behind) is UserInput and behind.tangent_of is None:
            yield Finding("an argument stands behind the tangents", node=f"signature.inputs[{number}]")


def check_types(survey: Survey) -> Iterator[Finding]:
    """Find user inputs that were traced with another shape or dtype than the signature promises to the caller."""
    main = survey.main
    for formal, spec in survey.program.inputs:
        if type(spec) is UserInput and type(spec.type) is TensorType:
            difference = misfit(spec.type, value_in(formal.meta))
            if difference is not None:
                yield Finding(f"the argument {spec.argument!r} is {difference}", main.name, INPUTS, formal.name)


def check_leaves(survey: Survey) -> Iterator[Finding]:
    """Find that the numbers of user inputs or outputs are not those of the pytrees that the caller passes and gets."""
    signature = survey.program.signature
    for what, kinds, spec in (("inputs", (UserInput,), signature.in_spec), ("outputs", GIVEN, signature.out_spec)):
        count = sum(type(entry) in kinds for entry in getattr(signature, what))
        if spec is not None and spec.num_leaves != count:
            said = f"the signature has {count} user {what}, their pytree {spec.num_leaves} leaves"
            yield Finding(said, node=f"signature.{what}")


def check_arguments(survey: Survey) -> Iterator[Finding]:
    """Find user inputs whose type is none, or whose defaults do not fit how the program is called."""
    users = [(number, spec) for number, spec in enumerate(survey.program.signature.inputs) if type(spec) is UserInput]
    rests: set[bool] = set()
    for number, spec in users:
        fault = _type_fault(spec)
        if fault is not None:
            yield Finding(fault, node=f"signature.inputs[{number}]")
        elif type(spec.type) is RestType:
            if spec.type.keywords in rests:
                yield Finding("it is the second argument that takes the rest", node=f"signature.inputs[{number}]")
            rests.add(spec.type.keywords)
    if rests or any(spec.default is not None for _, spec in users):
        yield from _unbound(survey.program.signature, [spec.argument for _, spec in users])


def _type_fault(spec: UserInput) -> str | None:
    kind = spec.type
    if spec.default is not None and not _is_literal(spec.default.value):
        return f"the argument {spec.argument!r} has the default {short(spec.default)}, not a literal"
    match kind:
        case TensorType(device=device):
            fits = _is_device(device)
        case NumberType(kind=number):
            fits = number in ("int", "float", "bool")
        case LiteralType(value=value):
            fits = _is_literal(value)
        case _:
            fits = True
    return None if fits else f"the argument {spec.argument!r} is said to be {short(kind, width=90)}, which is not a type"


def _is_literal(value: Any) -> bool:
    return depth_fault(value) is None and all(is_argument(leaf) and type(leaf) not in (Ref, Body) for leaf in leaves(value))


def _is_device(name: str) -> bool:
    try:
        return bool(torch.device(name))
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
    signature = survey.program.signature
    yield from _call_faults("signature", signature.in_spec, signature.out_spec, signature.arg_names)
    for frame, found in survey.program.call_signatures.items():
        yield from _call_faults(f"call_signatures[{frame}]", found.in_spec, found.out_spec, found.arg_names)


def _call_faults(where: str, in_spec: Any, out_spec: Any, names: Any) -> Iterator[Finding]:
    if len(set(names)) < len(names):
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
