"""Work is bounded: numbers, sizes, guards and nesting in a program from outside are refused, or computed under a bound."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir import (
    Apply,
    InputDim,
    InputValue,
    Items,
    LiteralType,
    Range,
    Record,
    Ref,
    Sym,
    UserInput,
)
from purefx.ir.torch_private import pytree
from tests.models import flat
from tests.security.test_allowed import USES, signed

WORK = {
    "power": " n = operator.pow(10, 1000000000)", "builtin power": " n = builtins.pow(10, 1000000000)",
    "shift": " n = operator.lshift(1, 100000000000)", "text": ' n = operator.mul("a", 4000000000)',
    "list": " n = operator.mul([0], 10000000000)", "tuple": " n = operator.mul((0,), 10000000000)",
    "pattern": ' n = operator.mod("%09999999999d", 5)', "star": ' n = operator.mod("%*d", (9999999999, 5))',
    "round": " n = builtins.round(1, -1000000000)", "factorial": " n = math.factorial(100000000)",
    "comb": " n = math.comb(100000000, 50000000)", "perm": " n = math.perm(100000000)",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    start = time.process_time()
    yield
    assert time.process_time() - start < 20


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("allow", [(), ("math.factorial", "math.comb", "math.perm")])
def test_work_that_grows_with_a_number_is_refused(name: str, allow: tuple[str, ...]) -> None:
    """As literals: by lower before anything runs, and by everything that works out fake values."""
    program = px.parse(signed(WORK[name] + "\n y = aten.relu.default(x)"), allow=allow)
    with pytest.raises(px.PurefxError):
        px.lower(program)
    for use in USES.values():
        try:
            use(program)
        except px.PurefxError:
            continue


def test_a_huge_tensor_takes_no_memory_before_it_runs() -> None:
    program = px.parse(signed(" z = aten.zeros.default([100000000000])\n y = aten.relu.default(x)"))
    px.stats(px.infer(program))
    assert px.verify(program, infer=True) == ()


def constrained(
    *,
    guards: tuple[object, ...] = (),
    ranges: tuple[Range, ...] = (),
    shape: tuple[object, ...] = (2,),
) -> px.Program:
    program = px.parse(signed(" y = aten.relu.default(x)"))
    kind = px.ir.TensorType(torch.float32, shape)  # type: ignore[arg-type]
    signature = program.signature.__class__(
        (px.ir.UserInput(kind, "x"),),
        program.signature.outputs,
        program.signature.in_spec,
        program.signature.out_spec,
        ("x",),
    )
    return program.evolve(signature=signature, constraints=px.ir.Constraints(ranges, guards))  # type: ignore[arg-type]


def nested(depth: int) -> object:
    found: object = InputDim(0, 0)
    for _ in range(depth):
        found = Apply("neg", (found,))  # type: ignore[arg-type]
    return found


X = InputDim(0, 0)
GUARDS: dict[str, tuple[object, str]] = {
    "zero": (Apply("==", (Apply("//", (X, 0)), 1)), "divides by zero"),
    "remainder": (Apply("==", (Apply("%", (X, Apply("-", (3, 3)))), 1)), "divides by zero"),
    "true division": (Apply("<", (Apply("/", (1, 0)), X)), "divides by zero"),
    "power": (Apply("<", (Apply("**", (10, 10**9)), X)), "a power is too large"),
    "tower": (Apply("<", (Apply("**", (9, Apply("**", (9, 9)))), X)), "a power is too large"),
    "digits": (Apply("<", (X, 10**5000)), "an integer of 16610 bits"),
    "symbol": (Apply("==", (Sym("s0"), 4)), "refers to the Sym"),
    "input": (Apply("==", (InputDim(1, 0), 4)), "refers to the InputDim"),
    "stride": (Apply("==", (InputDim(0, 0, "__class__"), 4)), "refers to the InputDim"),
    "tensor": (Apply("==", (InputValue(0), 4)), "refers to the InputValue"),
    "operands": (Apply("==", (X,)), "applies the str '==' to a wrong number of operands"),
    "operands of max": (Apply("<", (Apply("max", (X,)), 3)), "applies the str 'max'"),
    "if": (Apply("if", (True, X)), "applies the str 'if'"),
    "deep": (Apply("==", (nested(100_000), 1)), "levels deep"),
    "imaginary": (Apply("<", (Apply("**", (Apply("neg", (2,)), 0.5)), 1)), "has no value"),
}


@pytest.mark.parametrize("name", GUARDS)
def test_guards_without_a_value_are_findings(name: str) -> None:
    """``verify`` says it, and ``lower``, ``to_ep`` and ``save`` refuse for that reason."""
    guard, said = GUARDS[name]
    program = constrained(guards=(guard,))
    found = px.verify(program)
    assert [violation.rule for violation in found] == ["constraints"], found
    assert said in str(found[0])
    for use in (px.lower, px.to_ep, px.transform):
        with pytest.raises(px.errors.InvalidProgram, match="constraints"):
            use(program)


SIZES: dict[str, tuple[px.Program, str]] = {
    "a size": (constrained(shape=(2**64,)), "an integer of 65 bits"),
    "a negative size": (constrained(shape=(-2,)), "the size -2"),
    "a computed size": (constrained(shape=(Apply("//", (Sym("s0"), 0)),)), "divides by zero"),
    "a range": (constrained(ranges=(Range(Apply("%", (Sym("s0"), 0)), 1, 2),)), "divides by zero"),
    "an end": (
        constrained(ranges=(Range(Sym("s0"), 10**5000, None),)),
        "one of its ends needs more than 64 bits",
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_without_a_value_are_findings(name: str) -> None:
    program, said = SIZES[name]
    found = px.verify(program)
    assert any(said in str(violation) for violation in found), found
    with pytest.raises(px.errors.InvalidProgram):
        px.lower(program)


CALLS: dict[str, tuple[object, Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
    "division": (
        Apply("<", (Apply("//", (4, Apply("-", (X, 2)))), 9)),
        lambda: torch.ones(2),
        lambda: torch.ones(5),
    ),
    "power": (
        Apply("<", (Apply("**", (X, Apply("**", (X, X)))), 99)),
        lambda: torch.ones(30),
        lambda: torch.ones(2),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_guard_that_has_no_value_for_an_argument_names_itself(name: str) -> None:
    """What only a call can tell is an error of ours that quotes the guard."""
    guard, make, right = CALLS[name]
    module = px.lower(constrained(guards=(guard,), shape=(Sym("s0"),)))
    with pytest.raises(
        px.errors.InputValueError,
        match=r"argument x: the program was exported for inputs with .*undefined here",
    ):
        module(make())
    assert module(right()).shape == right().shape


DEEP = 5000


@pytest.mark.parametrize(
    ("opening", "closing"),
    ["[]", "()", ("{1: ", "}"), ("tree(" + "(" * 99, ")"), ("slice(", ")"), ("({[", "]})")],
)
def test_deep_texts_are_refused(opening: str, closing: str) -> None:
    with pytest.raises(px.errors.ParseError, match="nested more than"):
        px.parse(signed(f" y = aten.relu.default(x, {opening * DEEP}1{closing * DEEP})"))
    for before in ("out_spec ", "guards {\n ", "guards {\n abs"):
        with pytest.raises(px.errors.ParseError):
            px.parse(f"program {{\n {before}{opening * 20 * DEEP}")


def wrapped(value: object, depth: int, wrap: Callable[[object], object]) -> object:
    for _ in range(depth):
        value = wrap(value)
    return value


LEAF = pytree.tree_structure(0)
NESTED: dict[str, Callable[[int], px.Program]] = {
    "items": lambda depth: taking(wrapped(Ref("x"), depth, lambda part: Items([part]))),
    "tuple": lambda depth: taking(wrapped(Ref("x"), depth, lambda part: (part,))),
    "record": lambda depth: taking(wrapped(1, depth, lambda part: Record((("key", part),)))),
    "key": lambda depth: taking(wrapped(1, depth, lambda part: Record(((part, 1),)))),
    "spec": lambda depth: taking(
        wrapped(LEAF, depth, lambda part: pytree.TreeSpec(tuple, None, [part]))
    ),
    "context": lambda depth: taking(
        pytree.TreeSpec(deque, wrapped(1, depth, lambda part: [part]), [])
    ),
    "output": lambda depth: flat([], (wrapped(Ref("x"), depth, lambda part: (part,)),), "x"),
    "in_spec": lambda depth: specified(
        in_spec=pytree.TreeSpec(tuple, None, [deep_spec(depth), pytree.TreeSpec(dict, [], [])])
    ),
    "out_spec": lambda depth: specified(out_spec=deep_spec(depth)),
    "literal": lambda depth: specified(
        inputs=(UserInput(LiteralType(wrapped(1, depth, lambda part: (part,))), "x"),)
    ),
    "guard": lambda depth: constrained(guards=(nested(depth),)),
    "size": lambda depth: constrained(shape=(nested(depth),)),
}


def taking(argument: object) -> px.Program:
    return flat(
        [px.Node("y", px.Op("toy.take", target=lambda x, _: x), (px.Ref("x"), argument))],
        Ref("y"),
        "x",
    )


def deep_spec(depth: int) -> object:
    return wrapped(LEAF, depth, lambda part: pytree.TreeSpec(tuple, None, [part]))


def specified(**changes: object) -> px.Program:
    program = taking(1)
    return program.evolve(signature=evolve(program.signature, **changes))


DOORS: dict[str, Callable[[px.Program, px.Program], object]] = {
    "verify": lambda program, _: px.verify(program, infer=True),
    "lower": lambda program, _: px.lower(program),
    "str": lambda program, _: program.text(),
    "repr": lambda program, _: (repr(program), repr(program.signature), repr(program.constraints)),
    "save": lambda program, _: px.save(program, "nowhere/p", allow=program.foreign_operators),
    "digest": lambda program, _: px.digest(program),
    "==": lambda program, other: program == other,
    "hash": lambda program, _: (
        hash(program),
        list(map(hash, program.main.nodes)),
        hash(program.constraints),
    ),
    "pickle": lambda program, _: pickle.dumps(px.lower(program)),
    "transform": lambda program, _: px.transform(program),
    "infer": lambda program, _: px.infer(program),
    "to_ep": lambda program, _: px.to_ep(program),
    "stats": lambda program, _: str(px.stats(program)),
    "diff": lambda program, other: (px.diff(program, other), str(px.diff(program, taking(2)))),
    "mermaid": lambda program, _: px.mermaid(program),
}


@pytest.mark.parametrize("kind", NESTED)
def test_programs_that_nest_too_deep_are_told_at_every_door(kind: str) -> None:
    """Hand-built, so that no parser bounds them: 128 levels are valid, and more are a finding and never a dead process."""
    program, other = NESTED[kind](1_000), NESTED[kind](1_000)
    assert px.verify(program)
    for name, door in DOORS.items():
        try:
            found = door(program, other)
        except px.PurefxError:
            continue
        except RecursionError:  # comparing and printing values is Python's own recursion
            assert name in ("==", "hash", "repr", "diff", "str"), name
            continue
        assert name not in ("lower", "save", "pickle", "transform", "to_ep"), name
        assert found is not False, name


@pytest.mark.parametrize("kind", ["items", "key", "spec", "out_spec", "guard"])
def test_100_000_levels_are_no_dead_process(kind: str) -> None:
    program, other = NESTED[kind](100_000), NESTED[kind](100_000)
    for name in ("==", "repr", "hash"):
        with suppress(RecursionError):
            DOORS[name](program, other)
    with pytest.raises(px.errors.InvalidProgram):
        px.lower(program)
