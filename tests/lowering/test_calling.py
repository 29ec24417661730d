"""How a lowered program is called, and how its inputs are checked."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import purefx as px
from purefx.ir import Apply, Constraints, LiteralType, NumberType, Range, Sym, TensorType
from purefx.ir.arguments import same_arg
from purefx.ir.expression import UNCOMPUTABLE, InputDim, InputValue, evaluate, leaves_in
from purefx.ir.torch_private import pytree
from purefx.lowering.calls.arguments import LeafChecks
from tests.models import Block, exported, module_class

# Calling a lowered module: pytrees, names, checks, and errors that teach.


class Pytrees(nn.Module):
    """Takes and gives nested containers, a constant and keyword arguments."""

    def forward(
        self,
        x: torch.Tensor,
        batch: dict[str, Any],
        scale: int = 2,
        *,
        bias: torch.Tensor,
        skip: None = None,
    ) -> dict[str, Any]:
        first, (second, third) = batch["a"], batch["b"]
        return {
            "y": [x * scale + first, None],
            "z": (second - third + bias, "text", 3),
            "batch": batch,
        }


BATCH = {"a": torch.ones(2), "b": (torch.full((2,), 2.0), torch.full((2,), 3.0))}
BIAS = torch.full((2,), 5.0)


@pytest.fixture(scope="module", params=["graph_module", "interpreter"])
def pytrees(request: pytest.FixtureRequest) -> Any:
    """The lowered module, both kinds."""
    ep = torch.export.export(Pytrees(), (torch.ones(2), BATCH), {"bias": BIAS, "scale": 2})
    return px.lower(px.transform(px.import_ep(ep)), to=request.param)


def test_pytrees_and_keywords_in_any_order(pytrees: Any) -> None:
    """Positional or by name, keywords and dict keys in any order."""
    x = torch.randn(2)
    expected = Pytrees()(x, BATCH, bias=BIAS)
    backwards = dict(reversed(BATCH.items()))
    for result in (
        pytrees(x, BATCH, bias=BIAS, scale=2),
        pytrees(x, BATCH, scale=2, bias=BIAS),
        pytrees(bias=BIAS, batch=backwards, scale=2, x=x),
    ):
        leaves, spec = pytree.tree_flatten(result)
        wanted, same = pytree.tree_flatten(expected)
        assert spec == same
        for mine, theirs in zip(leaves, wanted, strict=True):
            assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs
        assert list(result) == ["y", "z", "batch"]
        assert isinstance(result["z"], tuple)
        assert isinstance(result["y"], list)


ONES, CALL = torch.ones(2), {"bias": BIAS, "scale": 2}


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((ONES,), CALL, TypeError, "missing argument 'batch'"),
        (
            (ONES, BATCH, ONES),
            CALL,
            TypeError,
            r"takes 2 arguments \(x, batch\) and bias, scale by keyword, got 3",
        ),
        ((ONES, BATCH), CALL | {"extra": 1}, TypeError, "unexpected argument 'extra'"),
        ((ONES, BATCH), CALL | {"x": 1}, TypeError, "'x' twice"),
        ((ONES, {"a": ONES}), CALL, ValueError, r"batch: expected the keys \['a', 'b'\]"),
        (
            (ONES, {**BATCH, "b": [BIAS, BIAS]}),
            CALL,
            TypeError,
            r"batch\['b'\]: expected a tuple, got a list",
        ),
        (
            (torch.ones(3), BATCH),
            CALL,
            RuntimeError,
            r"argument x: expected a tensor of shape \(2,\).*got shape \(3,\)",
        ),
        (
            (ONES.double(), BATCH),
            CALL,
            RuntimeError,
            "argument x: expected .*float32, got dtype torch.float64",
        ),
        (
            (ONES, {**BATCH, "a": 1.0}),
            CALL,
            ValueError,
            r"argument batch\['a'\]: expected a tensor.*got 1.0",
        ),
        (
            (ONES, BATCH),
            CALL | {"scale": 3},
            AssertionError,
            "argument scale: expected the value 2 .*got 3",
        ),
        (
            (ONES, BATCH),
            CALL | {"scale": 2.0},
            ValueError,
            "argument scale: expected the value 2 .*got 2.0",
        ),
    ],
)
def test_wrong_arguments_are_named(
    pytrees: Any, args: Any, kwargs: Any, error: type[Exception], message: str
) -> None:
    """A purefx error that is also the builtin a caller would catch; it names the argument and what was expected."""
    with pytest.raises(px.PurefxError, match=message) as caught:
        pytrees(*args, **kwargs)
    assert isinstance(caught.value, error)


class Masked(nn.Module):
    """Computes something else where it is passed a mask, in any place."""

    def forward(
        self,
        x: torch.Tensor,
        mask: Any = None,
        batch: Any = None,
        *,
        masks: Any = (None,),
        scale: int = 1,
    ) -> torch.Tensor:
        for each in (mask, batch["mask"], masks[0]):
            x = x if each is None else x * each
        return x * scale


# Calls it.
Outer = module_class(
    "Outer", lambda self, *args, **kwargs: self.inner(*args, **kwargs), inner=Masked
)
NOTHING = {"mask": None, "batch": {"mask": None}, "masks": [None], "scale": 1}
VALUES = {"mask": torch.ones(2), "batch": {"mask": torch.ones(2)}, "masks": [False], "scale": 2}


def _whole(x: torch.Tensor) -> nn.Module:
    return px.lower(
        px.transform(px.capture(Masked(), (x, None, {"mask": None}), {"masks": [None], "scale": 1}))
    )


def _inner(x: torch.Tensor) -> nn.Module:
    call = ((x, None, {"mask": None}), {"masks": [None], "scale": 1})
    ep = torch.export.export(Outer(), *call, preserve_module_call_signature=("inner",))
    return px.lower(px.transform(px.import_ep(ep))).inner  # type: ignore[return-value]


def _joint(x: torch.Tensor) -> nn.Module:
    call = ((x, None, {"mask": None}), {"masks": [None], "scale": 1})
    joint = px.lower(px.training.capture_joint(Masked(), *call))
    return joint.register_forward_pre_hook(_with_tangents, with_kwargs=True) and joint


def _with_tangents(_: Any, args: Any, kwargs: Any) -> Any:
    return args, kwargs | {"tangents": (torch.ones(2),)}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("lowered", [_whole, _inner, _joint])
def test_what_was_none_or_a_number_stays_so(lowered: Any, name: str) -> None:
    """A value in place of None is refused as another number is: positional, in a dict, in a list, by keyword."""
    x = torch.ones(2, requires_grad=True)
    module = lowered(x)

    def call(changed: dict[str, Any]) -> Any:
        values = NOTHING | changed
        return module(
            x, values["mask"], values["batch"], masks=values["masks"], scale=values["scale"]
        )

    call({})
    with pytest.raises(px.errors.InputValueError) as caught:
        call({name: VALUES[name]})
    wanted = (
        "the value 1 that the program was exported with"
        if name == "scale"
        else "expected None, which the program was exported with, got"
    )
    assert wanted in str(caught.value)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_errors_inside_name_the_place(to: Any) -> None:
    """An error in an operator is noted with module, node, operator and the user's line."""
    ep = exported(Block(), torch.ones(2, 4))
    module = px.lower(px.transform(px.import_ep(ep)), to=to)
    module.down.weight = nn.Parameter(torch.ones(3, 3))  # type: ignore[union-attr]
    with pytest.raises(RuntimeError) as caught:
        module(torch.ones(2, 4))
    notes = "\n".join(caught.value.__notes__)
    assert "while running down / linear (aten.linear.default)" in notes
    assert "models.py" in notes and "in forward: return x + self.down(self.up(x).relu())" in notes
    assert len(caught.value.__notes__) == 1


# The checks of inputs: what is generated against what types, ranges and guards say.


N, M = Sym("n"), Sym("m")
SIZES = (
    2,
    3,
    N,
    M,
    Apply("*", (2, N)),
    Apply("+", (N, M)),
    Apply("//", (M, 2)),
    Apply("max", (N, 3)),
)
DTYPES = (torch.float32, torch.int64)
LITERALS = (None, True, 1, 1.0, "a", -0.0)
tensors = st.builds(
    TensorType, st.sampled_from(DTYPES), st.lists(st.sampled_from(SIZES), max_size=3).map(tuple)
)
numbers = st.builds(
    NumberType, st.just("int"), st.sampled_from([None, 3, N, M, Apply("-", (N, 1))])
)
types = st.one_of(tensors, tensors, numbers, st.sampled_from(LITERALS).map(LiteralType))
bounds = st.builds(
    Range,
    st.sampled_from([N, M, SIZES[4]]),
    st.sampled_from([None, 2, 3]),
    st.sampled_from([None, 4, 9]),
)


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


@st.composite
def inputs(draw: st.DrawFn, kinds: list[Any]) -> list[Any]:
    """Draw inputs that fit some types, or do not in one place."""
    known = {N: draw(st.integers(1, 6)), M: draw(st.integers(1, 6))}
    values: list[Any] = []
    for kind in kinds:
        match kind:
            case TensorType(dtype=dtype, shape=shape):
                values.append(torch.zeros([evaluate(size, known) for size in shape], dtype=dtype))
            case NumberType(expr=expr):
                values.append(5 if expr is None else evaluate(expr, known))
            case _:
                values.append(kind.value)
    if values and draw(st.booleans()):
        wrong = (
            torch.zeros(2, 3),
            torch.zeros(4, dtype=torch.int64),
            torch.zeros(()),
            1,
            2.0,
            True,
            None,
            "a",
            0.0,
            [1],
        )
        values[draw(st.integers(0, len(values) - 1))] = draw(st.sampled_from(wrong))
    return values


def fits(kinds: list[Any], rules: Constraints, values: list[Any]) -> bool:
    """Return whether inputs are what a program was exported for, read off its types, ranges and guards."""
    pairs: list[tuple[Any, Any]] = []
    for kind, value in zip(kinds, values, strict=True):
        match kind:
            case TensorType(dtype=dtype, shape=shape):
                if (
                    not isinstance(value, torch.Tensor)
                    or value.dtype is not dtype
                    or value.dim() != len(shape)
                ):
                    return False
                pairs += zip(shape, value.shape, strict=True)
            case LiteralType(value=literal):
                if not same_arg(literal, value):
                    return False
            case NumberType(expr=expr):
                if not isinstance(value, int | float):
                    return False
                pairs += [(expr, value)] if isinstance(expr, Sym | Apply) else []
            case _:
                raise AssertionError(kind)
    known = {expr: size for expr, size in reversed(pairs) if isinstance(expr, Sym)}
    leaves = {InputValue(at): value for at, value in enumerate(values)}
    tensors = [
        (at, value.shape) for at, value in enumerate(values) if isinstance(value, torch.Tensor)
    ]
    leaves |= {InputDim(at, dim): size for at, shape in tensors for dim, size in enumerate(shape)}

    def holds(expr: Any, said: Any) -> bool:
        try:
            return any(leaf not in known for leaf in symbols_of(expr)) or said(
                evaluate(expr, known | leaves)
            )
        except UNCOMPUTABLE:
            return False

    def symbols_of(expr: Any) -> list[Any]:
        return [leaf for leaf in leaves_in(expr) if isinstance(leaf, Sym)]

    def within(found: Range) -> Any:
        low = -math.inf if found.low is None or found.low <= 2 else found.low
        return lambda size: low <= size <= (math.inf if found.high is None else found.high)

    return (
        all(holds(expr, lambda value, size=size: value == size) for expr, size in pairs)
        and all(holds(found.expr, within(found)) for found in rules.ranges)
        and all(holds(guard, bool) for guard in rules.guards)
    )


@settings(max_examples=300)
@given(st.data())
def test_inputs_are_taken_exactly_where_they_fit(data: st.DataObject) -> None:
    """The generated code refuses what the types, ranges and guards of a program say does not fit, and nothing else."""
    kinds = data.draw(st.lists(types, min_size=1, max_size=4))
    rules = Constraints(
        tuple(data.draw(st.lists(bounds, max_size=2))),
        tuple(data.draw(st.lists(guards(kinds), max_size=1))),
    )
    formals = tuple(px.Input(f"x{index}") for index in range(len(kinds)))
    signature = px.ir.Signature(
        tuple(
            px.ir.UserInput(kind, formal.name) for kind, formal in zip(kinds, formals, strict=True)
        ),
        (),
    )
    program = px.Program.of({"": px.Graph(formals, (), ())}, signature=signature, constraints=rules)
    checks, values = LeafChecks(program), data.draw(inputs(kinds))
    if fits(kinds, rules, values):
        checks.run(values)
    else:
        with pytest.raises(px.errors.InputValueError):
            checks.run(values)


def test_any_kind_of_tensor_is_a_tensor() -> None:
    """Parameters and tensors of other classes are taken, and after a conversion tensors of the other floating dtypes."""

    class Own(torch.Tensor):
        pass

    program = px.Program.of(
        {"": px.Graph((px.Input("x"),), (), ())},
        signature=px.ir.Signature((px.ir.UserInput(TensorType(torch.float32, (2,)), "x"),), ()),
    )
    checks = LeafChecks(program)
    checks.run([torch.nn.Parameter(torch.ones(2))])
    checks.run([torch.ones(2).as_subclass(Own)])
    with pytest.raises(px.errors.InputValueError, match="got dtype"):
        checks.run([torch.ones(2, dtype=torch.float64)])
    checks.floating = True
    checks.run([torch.ones(2, dtype=torch.float64)])
    with pytest.raises(px.errors.InputValueError, match="got dtype"):
        checks.run([torch.ones(2, dtype=torch.int64)])
