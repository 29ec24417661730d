"""The quick check of inputs and the one that explains: they agree on every plain input.

One idea: types, bounds, guards and inputs are drawn together, often right and often nearly right.  What the quick check
accepts must be right; what is right must be accepted quickly, unless it is of an unusual type.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import purefx as px
from purefx.ir import Apply, Constraints, LiteralType, NumberType, Range, Sym, TensorType
from purefx.ir.expression import InputDim, InputValue
from purefx.lowering.calls.guards import LeafChecks

N, M = Sym("n"), Sym("m")
SIZES = (2, 3, N, M, Apply("*", (2, N)), Apply("+", (N, M)), Apply("//", (M, 2)), Apply("max", (N, 3)))
DTYPES = (torch.float32, torch.int64)
LITERALS = (None, True, 1, 1.0, "a", -0.0)

tensors = st.builds(TensorType, st.sampled_from(DTYPES), st.lists(st.sampled_from(SIZES), max_size=3).map(tuple))
numbers = st.builds(NumberType, st.just("int"), st.sampled_from([None, 3, N, M, Apply("-", (N, 1))]))
types = st.one_of(tensors, tensors, numbers, st.sampled_from(LITERALS).map(LiteralType))
bounds = st.builds(Range, st.sampled_from([N, M, SIZES[4]]), st.sampled_from([None, 2, 3]), st.sampled_from([None, 4, 9]))


@st.composite
def guards(draw: st.DrawFn, kinds: list[Any]) -> Any:
    """Draw a comparison of sizes and numbers among the inputs."""
    shaped = [(index, kind.shape) for index, kind in enumerate(kinds) if type(kind) is TensorType]
    sizes = [InputDim(index, dim) for index, shape in shaped for dim in range(len(shape))]
    values = [InputValue(index) for index, kind in enumerate(kinds) if type(kind) is NumberType]
    sides = [draw(st.sampled_from([*sizes, *values, 2, 4])) for _ in "ab"]
    left = Apply("%", (sides[0], 2)) if draw(st.booleans()) else sides[0]
    plain = Apply(draw(st.sampled_from(["==", "<=", "!="])), (left, sides[1]))
    return Apply("not", (plain,)) if draw(st.booleans()) else plain


def size_of(expr: Any, known: dict[Any, int]) -> int:
    """Return a size, taking any number for a symbol that is not known."""
    match expr:
        case Sym():
            return known[expr]
        case Apply(op=op, args=(left, right)):
            a, b = size_of(left, known), size_of(right, known)
            return {"*": a * b, "+": a + b, "//": a // b, "max": max(a, b), "-": a - b}[op]
        case _:
            return expr


@st.composite
def inputs(draw: st.DrawFn, kinds: list[Any]) -> list[Any]:
    """Draw inputs that fit some types, or do not in one place."""
    known = {N: draw(st.integers(1, 6)), M: draw(st.integers(1, 6))}
    values: list[Any] = []
    for kind in kinds:
        match kind:
            case TensorType(dtype=dtype, shape=shape):
                values.append(torch.zeros([size_of(size, known) for size in shape], dtype=dtype))
            case NumberType(expr=expr):
                values.append(5 if expr is None else size_of(expr, known))
            case _:
                values.append(kind.value)
    if values and draw(st.booleans()):
        wrong = (torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64), torch.zeros(()), 1, 2.0, True, None, "a", 0.0, [1])
        values[draw(st.integers(0, len(values) - 1))] = draw(st.sampled_from(wrong))
    return values


@settings(max_examples=600)
@given(st.data())
def test_both_checks_agree(data: st.DataObject) -> None:
    """The quick check says yes exactly where the explaining one says nothing."""
    kinds = data.draw(st.lists(types, min_size=1, max_size=4))
    rules = Constraints(tuple(data.draw(st.lists(bounds, max_size=2))), tuple(data.draw(st.lists(guards(kinds), max_size=1))))
    formals = tuple(px.Input(f"x{index}") for index in range(len(kinds)))
    signature = px.Signature(tuple(px.UserInput(kind, formal.name) for kind, formal in zip(kinds, formals, strict=True)), ())
    program = px.Program.of({"": px.Graph(formals, (), ())}, signature=signature, constraints=rules)
    checks, values = LeafChecks(program), data.draw(inputs(kinds))
    try:
        checks.look(values)
    except (px.InputValueError, TypeError, AttributeError, IndexError, ZeroDivisionError):
        assert not checks.quick(values)
    else:
        assert checks.quick(values)


def test_unusual_tensors_are_looked_at() -> None:
    """A parameter is as plain as a tensor; another subclass, and a converted module, are left to the explaining check."""

    class Own(torch.Tensor):
        pass

    program = px.Program.of(
        {"": px.Graph((px.Input("x"),), (), ())},
        signature=px.Signature((px.UserInput(TensorType(torch.float32, (2,)), "x"),), ()),
    )
    checks = LeafChecks(program)
    assert checks.quick([torch.nn.Parameter(torch.ones(2))])
    assert not checks.quick([torch.ones(2).as_subclass(Own)])
    checks.run([torch.ones(2).as_subclass(Own)])
    checks.floating = True
    checks.run([torch.ones(2, dtype=torch.float64)])
