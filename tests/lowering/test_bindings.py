"""The law of bindings: each does to the last bit what its operator does, and nobody below Python sees a difference."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from purefx.ir import Items, Node, Ref
from purefx.ir.operators import op_of
from purefx.ir.torch_private import resolve_operator, schema_of
from purefx.laws.tiers import share
from purefx.lowering.code.bindings import AT_MOST, BINDINGS, binding_of, operands

Given = tuple[tuple[Any, ...], dict[str, Any]]


def x(*sizes: int) -> torch.Tensor:
    """Draw a tensor that wants a gradient."""
    return torch.randn(sizes, requires_grad=True)


def of(*args: Any, **kwargs: Any) -> Given:
    """Return arguments."""
    return args, kwargs


@functools.cache
def examples() -> dict[str, list[Given]]:
    """Return arguments for each operator, by its name; those that have no others take one tensor."""
    torch.manual_seed(0)
    two, mask, whole = (
        (x(2, 3), x(3)),
        torch.tensor([[True, False, True]] * 2),
        torch.tensor([[0, 2, 1]] * 2),
    )
    with_number = [of(*two), of(x(2, 3), 1e-6), of(x(2, 3), 2)]
    heads = (x(1, 2, 3, 4), x(1, 2, 3, 4), x(1, 2, 3, 4))
    image, kernel = x(1, 2, 4, 4), x(3, 2, 3, 3)
    normal = (x(4), x(4), torch.zeros(4), torch.ones(4))
    reduced = [of(x(2, 3), [-1], True), of(x(2, 3), [0])]
    found: dict[str, list[Given]] = {
        "add.Tensor": [*with_number, of(*two, alpha=2)], "sub.Tensor": with_number, "mul.Tensor": with_number,
        "div.Tensor": with_number, "rsub.Scalar": [of(x(2, 3), 1.5)], "pow.Tensor_Scalar": [of(x(2, 3), 2), of(x(2, 3), 0.5)],
        "addcmul": [of(*two, x(2, 1)), of(*two, x(2, 1), value=0.5)], "lerp.Tensor": [of(x(2, 3), x(2, 3), x(2, 3))],
        "clamp": [of(x(2, 3), 0.0, 1.0), of(x(2, 3), 0)], "clamp_min": [of(x(2, 3), 0.0)], "where.self": [of(mask, *two)],
        "bitwise_and.Tensor": [of(whole, whole)], "logical_and": [of(whole, mask)],
        "softmax.int": [of(x(2, 3), -1), of(x(2, 3), -1, torch.float64)], "_softmax": [of(x(2, 3), -1, False)],
        "log_softmax.int": [of(x(2, 3), -1), of(x(2, 3), 0, None)], "matmul": [of(x(2, 3), x(3, 4)), of(x(5, 2, 3), x(3))],
        "mm": [of(x(2, 3), x(3, 4))], "bmm": [of(x(2, 2, 3), x(2, 3, 4))], "addmm": [of(x(4), x(2, 3), x(3, 4), beta=2)],
        "outer": [of(x(3), x(2))], "embedding": [of(x(5, 3), whole), of(x(5, 3), whole, 0), of(x(5, 3), whole, 1, True, False)],
        "layer_norm": [of(x(2, 3), [3], x(3), x(3), 1e-5, False), of(x(2, 3), [3], None, None)],
        "group_norm": [of(x(2, 4, 3), 2, x(4), x(4), 1e-5, False)], "rms_norm": [of(x(2, 3), [3], x(3), 1e-5)],
        "batch_norm": [of(x(2, 4, 3), *normal, False, 0.1, 1e-5, False), of(x(2, 4, 3), *normal, True, 0.1, 1e-5, False)],
        "dropout": [of(x(2, 3), 0.5, False), of(x(2, 3), 0.5, True)], "conv1d": [of(x(1, 2, 5), x(3, 2, 3), x(3), [1], [1])],
        "conv2d": [of(image, kernel, x(3), [1, 1], [1, 1]), of(image, kernel, None, [2, 1], [0, 1], [1, 1], 1)],
        "conv3d": [of(x(1, 2, 4, 4, 4), x(3, 2, 3, 3, 3))], "max_pool2d": [of(image, [2, 2], [2, 2])],
        "reshape": [of(x(2, 3), [3, 2]), of(x(2, 3).t(), [-1])], "permute": [of(x(2, 3, 4), [2, 0, 1])],
        "transpose.int": [of(x(2, 3), 0, -1)], "unsqueeze": [of(x(2, 3), 1)], "squeeze.dim": [of(x(2, 1), 1)],
        "squeeze.dims": [of(x(2, 1), [1])], "flatten.using_ints": [of(x(2, 3, 4), 1), of(x(2, 3, 4), 0, 1)],
        "select.int": [of(x(2, 3), 1, 0)], "narrow": [of(x(2, 3), 1, 0, 2)],
        "cat": [of([x(2, 3), x(2, 3)], -1), of([x(1), x(2)])], "stack": [of([x(2, 3), x(2, 3)], 1)],
        "mean.dim": [*reduced, of(x(2, 3), [0], dtype=torch.float64)],
        "sum.dim_IntList": [*reduced, of(x(2, 3), None, False)], "amax": reduced, "amin": reduced,
        "argmax": [of(x(2, 3), -1), of(x(2, 3), None, False)], "cumsum": [of(x(2, 3), -1)],
        "masked_fill.Scalar": [of(x(2, 3), mask, -1.5), of(x(2, 3), mask, float("-inf"))], "triu": [of(x(3, 3), 1)],
        "tril": [of(x(3, 3))], "gather": [of(x(2, 3), 1, whole)], "index_select": [of(x(2, 3), 1, torch.tensor([0, 1]))],
        "clone": [of(x(2, 3)), of(x(2, 3).t(), memory_format=torch.contiguous_format)], "diagonal": [of(x(3, 3)), of(x(3, 3), 1)],
        "flip": [of(x(2, 3), [0])], "roll": [of(x(2, 3), [1], [0])],
        "var.correction": [of(x(2, 3), [1], correction=0, keepdim=True)],
        "pixel_shuffle": [of(x(1, 4, 2, 2), 2)],
        "linear": [of(x(2, 3), x(4, 3)), of(x(2, 3), x(4, 3), x(4)), of(x(3), x(4, 3), None)],
        "gelu": [of(x(2, 3)), of(x(2, 3), approximate="tanh")], "leaky_relu": [of(x(2, 3), 0.1)],
        "elu": [of(x(2, 3)), of(x(2, 3), 0.5, 2, 1)], "hardtanh": [of(x(2, 3), 0.0, 6.0)], "softplus": [of(x(2, 3), 2, 20)],
        "glu": [of(x(2, 4), -1)], "avg_pool2d": [of(image, [2, 2])], "adaptive_avg_pool2d": [of(image, [1, 1])],
        "scaled_dot_product_attention": [
            of(*heads), of(*heads, mask[:1].expand(3, 3), scale=0.5), of(*heads, None, 0.0, True, scale=None, enable_gqa=False),
        ],
        "pad": [of(x(2, 3), [1, 1]), of(x(2, 3), [1, 0], "constant", 2.0), of(x(2, 3), [1, 0], "reflect", None)],
        "view": [of(x(2, 3), [3, 2]), of(x(2, 3), [-1])], "expand": [of(x(2, 1), [2, 4]), of(x(2, 1), [3, -1, 4])],
        "repeat": [of(x(2, 3), [2, 1])], "to.dtype": [of(x(2, 3), torch.float64), of(x(2, 3), torch.float32)],
        "type_as": [of(x(2, 3), x(2)), of(x(2, 3), whole)], "view_as": [of(x(2, 3), x(3, 2))],
        "expand_as": [of(x(2, 1), x(2, 3))], "maximum": [of(*two)], "minimum": [of(*two)],
    }  # fmt: skip
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        found |= {
            f"{name}.Scalar": [of(x(2, 3), 1), of(x(2, 3), 0.5)],
            f"{name}.Tensor": [of(*two)],
        }
    return {
        f"aten.{name}" if "." in name else f"aten.{name}.default": given
        for name, given in found.items()
    }


def odd(value: Any) -> list[Any]:
    """Return what may stand in the place of an argument."""
    match value:
        case torch.Tensor():
            whole = torch.ones(2, 3, dtype=torch.int64)
            return [
                x(7, 5), whole, whole.bool(), whole.double().requires_grad_(), x(), whole.to(torch.complex64), x(0),
                x(2, 3, 1, 1), whole.float().to_sparse(), whole.bfloat16(), torch.nn.Parameter(torch.ones(3, 2)), None,
            ]  # fmt: skip
        case bool():
            return [not value]
        case int():
            return [0, 1, -1, 5, -7, 2**40, 2**70, True]
        case float():
            return [0.0, -1.5, float("nan"), float("inf"), 1e300, 1]
        case str():
            return ["none", "nothing of the kind"]
        case [int(), *_]:
            return [[], [0], [7], [-1], [-1, -1], [2, 3, 4], [1] * 5, [2**40], [True], 1, None]
        case [torch.Tensor(), *_]:
            return [
                [],
                [x(7, 5), x(2, 3)],
                [x(2, 3), torch.ones(2, 3, dtype=torch.int64)],
                [x(2, 3)] * (AT_MOST + 1),
            ]
        case torch.dtype():
            return [torch.int64, torch.bool, torch.complex64, torch.bfloat16, None]
        case _:
            return [None]


def filled(operator: Any, given: Given) -> Iterator[Given]:
    """Iterate over arguments, with more and more of the others by position, and with each by name: the defaults of the schema."""
    args, kwargs = given
    yield given
    rest = schema_of(operator).arguments[len(args) :]
    for one in rest:
        if one.kwarg_only:
            yield args, {one.name: one.default_value, **kwargs}
        else:
            args = (*args, one.default_value)
            yield args, kwargs


def variants(given: Given) -> Iterator[Given]:
    """Iterate over arguments, and those with one of them replaced."""
    args, kwargs = given
    yield given
    for index, value in enumerate(args):
        yield from (((*args[:index], other, *args[index + 1 :]), kwargs) for other in odd(value))
    for key, value in kwargs.items():
        yield from ((args, {**kwargs, key: other}) for other in odd(value))


def node(operator: Any, given: Given) -> Node:
    """Return a node that calls an operator so: its tensors are values."""
    args, kwargs = given
    names = iter(range(100))

    def arg(value: Any) -> Any:
        if isinstance(value, list):
            return Items(map(arg, value))
        return Ref(f"x{next(names)}") if isinstance(value, torch.Tensor) else value

    return Node(
        "y",
        op_of(operator),
        tuple(map(arg, args)),
        tuple([(key, arg(value)) for key, value in kwargs.items()]),
    )


def told(value: Any) -> Any:
    """Return what a value is, but not its numbers."""
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout is torch.strided else ()
        return tuple(value.shape), strides, value.dtype, value.layout, value.requires_grad
    if isinstance(value, tuple | list):
        return type(value).__name__, *map(told, value)
    return type(value).__name__, repr(value)


class Log(TorchDispatchMode):
    """Writes down the operators below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Any] = []

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.lines.append(
            (
                str(function),
                told(args),
                sorted((key, told(value)) for key, value in (kwargs or {}).items()),
            )
        )
        return function(*args, **(kwargs or {}))


def backward(value: torch.Tensor) -> list[str]:
    """Return the classes of the autograd nodes behind a value."""
    found: list[str] = []
    todo: list[Any] = [value.grad_fn]
    while todo:
        each = todo.pop()
        found.append(type(each).__name__)
        todo += [behind for behind, _ in each.next_functions] if each is not None else []
    return found


def bits(value: torch.Tensor | None) -> Any:
    """Return the numbers of a tensor as bytes."""
    if value is None:
        return None
    return (
        value.detach()
        .to_dense()
        .clone(memory_format=torch.contiguous_format)
        .untyped_storage()
        .tolist()
    )


def outcome(function: Callable[..., Any], given: Given) -> Any:
    """Return all that a call gives: numbers, memory, gradients and how they come; or the error."""
    args, kwargs = given
    tensors = [
        part
        for arg in args
        for part in (arg if isinstance(arg, list) else [arg])
        if isinstance(part, torch.Tensor)
    ]
    torch.manual_seed(0)
    try:
        value = function(*args, **kwargs)
        wanting = [tensor for tensor in tensors if tensor.requires_grad]
        grads = (
            torch.autograd.grad(value.sum(), wanting, allow_unused=True)
            if value.requires_grad
            else ()
        )
    except Exception as error:
        return type(error), str(error)
    same = [(value is tensor, value._is_view() and value._base is tensor) for tensor in tensors]
    return told(value), bits(value), backward(value), same, list(map(bits, grads))


def logged(function: Callable[..., Any], given: Given) -> list[Any]:
    """Return the operators of a call below autograd."""
    args, kwargs = given
    with Log() as log:
        try:
            function(*args, **kwargs)
        except Exception as error:
            log.lines.append((type(error), str(error)))
    return log.lines


def traced(function: Callable[..., Any], given: Given) -> list[str]:
    """Return what tracers write of a call: above autograd, and TorchScript's."""
    args, kwargs = given
    parts = [part for arg in args for part in (arg if isinstance(arg, list) else [arg])]
    tensors = [part.detach() for part in parts if isinstance(part, torch.Tensor)]

    def run(*values: torch.Tensor) -> Any:
        rest = iter(values)
        filled = [
            [next(rest) if isinstance(part, torch.Tensor) else part for part in arg] if isinstance(arg, list)
            else next(rest) if isinstance(arg, torch.Tensor) else arg
            for arg in args
        ]  # fmt: skip
        return function(*filled, **kwargs)

    script: Any = torch.jit.trace(run, tuple(tensors), check_trace=False)
    return [make_fx(run, pre_dispatch=True)(*tensors).code, re.sub(" #.*", "", str(script.graph))]


STEP = max(1, 2 // share(1))
"""``make test`` replaces operands by every second odd one, ``make deep`` by each."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BINDINGS)
def test_a_binding_does_what_its_operator_does(name: str) -> None:
    """Values, memory, autograd, errors, and what modes and tracers below Python see are the same, also where operands are odd."""
    operator: Any = resolve_operator(*name.split("."))
    binding = binding_of(operator)
    if binding is None:
        pytest.skip("this torch has none")
    for place, given in enumerate(examples().get(name, [of(x(2, 3))])):
        assert operands(node(operator, given)) is not None
        assert isinstance(operator(*given[0], **given[1]), torch.Tensor)
        assert traced(binding, given) == traced(operator, given)
        odd_ones = [*variants(given)][place % STEP :: STEP]
        for variant in [*filled(operator, given), *odd_ones]:
            if operands(node(operator, variant)) is not None:
                assert logged(binding, variant) == logged(operator, variant), variant
                assert outcome(binding, variant) == outcome(operator, variant), variant


def test_most_bindings_are_there() -> None:
    """Each has its operator; a torch may lack some."""
    assert not {name for name in BINDINGS if resolve_operator(*name.split(".")) is None}
    assert sum(
        binding_of(resolve_operator(*name.split("."))) is not None for name in BINDINGS
    ) > 0.9 * len(BINDINGS)
    assert set(examples()) <= set(BINDINGS)


X, N = Ref("x"), Ref("n")


@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "expected"),
    [
        (torch.ops.aten.view.default, (X, Items([N, 2])), (), {X: torch.Tensor, N: int}),
        (torch.ops.aten.view.default, (X, Items([X, 2])), (), None),  # a value cannot be both
        (torch.ops.aten.view.default, (X, Items([True, 2])), (), None),
        (torch.ops.aten.view.default, (X, (3, 2)), (), None),
        (torch.ops.aten.add.Tensor, (X, True), (), None),
        (torch.ops.aten.add.Tensor, (X, 2**63), (), None),
        (torch.ops.aten.add.Tensor, (X, X), (("alpha", N),), None),
        (torch.ops.aten.add.Tensor, (X, X), (("beta", 1),), None),
        (
            torch.ops.aten.add.Tensor,
            (X,),
            (("other", X),),
            None,
        ),  # the binding might call it otherwise
        (torch.ops.aten.add.Tensor, (X, X, 1), (), None),  # to the binding that is another overload
        (torch.ops.aten.matmul.default, (X, 2), (), None),
        (torch.ops.aten.to.dtype, (X, 6), (), None),  # to the binding the number of a device
        (torch.ops.aten.clamp.default, (X, None, 1.0), (), None),
        (
            torch.ops.aten.cat.default,
            (Items([Ref(f"x{number}") for number in range(9)]),),
            (),
            None,
        ),
    ],
)
def test_arguments_that_leave_something_open_have_no_binding(
    operator: Any, args: Any, kwargs: Any, expected: Any
) -> None:
    """What is not of the type that the schema says, by Python's own types, is left to the operator."""
    assert operands(Node("y", op_of(operator), args, kwargs)) == expected


def test_a_function_in_the_place_of_a_binding_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries patch ``torch.add``; the operator is what a program says."""
    binding_of.cache_clear()
    monkeypatch.setattr(torch, "add", lambda x, _: x)
    assert binding_of(torch.ops.aten.add.Tensor) is None
    binding_of.cache_clear()
