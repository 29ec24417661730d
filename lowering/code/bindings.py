"""Bindings: the functions that torch generates for Python, which run an operator in half of the time that its overload takes.

One stands beside the overload in the code of a body where the schema and the arguments leave it one meaning (``operands``), and
runs where those are plain tensors and no mode sees functions: other operands, modes, tracers and compilers meet the overload.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...ir.arguments import Arg, Items, Ref
from ...ir.graph import Node, Op
from ...ir.torch_private import (
    NEURAL_FUNCTIONS,
    device_of,
    is_undisturbed,
    schema_of,
    sees_functions,
)

__all__ = ["BINDINGS", "PLAIN", "asserted", "binding_of", "has_metadata", "operands"]

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""The classes of plain tensors: no subclass, so none that sees which function is called."""

FUNCTIONS = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac isnan log log1p log2 logical_not neg reciprocal relu "
    "round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc add.Tensor sub.Tensor mul.Tensor div.Tensor rsub.Scalar "
    "pow.Tensor_Scalar maximum minimum addcmul lerp.Tensor clamp clamp_min eq.Scalar ne.Scalar lt.Scalar le.Scalar "
    "gt.Scalar ge.Scalar eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor bitwise_and.Tensor logical_and "
    "where.self softmax.int log_softmax.int _softmax matmul mm bmm addmm outer embedding layer_norm group_norm batch_norm "
    "rms_norm dropout conv1d conv2d conv3d max_pool2d reshape permute transpose.int t unsqueeze squeeze.dim squeeze.dims "
    "flatten.using_ints select.int narrow cat stack mean mean.dim sum sum.dim_IntList amax amin argmax cumsum "
    "masked_fill.Scalar triu tril gather index_select clone detach diagonal flip roll var.correction pixel_shuffle"
)

NEURAL = (
    "linear silu gelu leaky_relu elu hardtanh hardswish hardsigmoid mish softplus log_sigmoid glu scaled_dot_product_attention "
    "avg_pool2d adaptive_avg_pool2d pad"
)

METHODS = "view expand repeat to.dtype type_as view_as expand_as"


def _doors() -> Iterator[tuple[str, tuple[Any, type]]]:
    function, method = type(torch.relu), type(torch.Tensor.view)
    for names, holder, kind in (
        (FUNCTIONS, torch, function), (NEURAL, NEURAL_FUNCTIONS, function), (METHODS, torch.Tensor, method)
    ):  # fmt: skip
        for name in names.split():
            yield f"aten.{name}" if "." in name else f"aten.{name}.default", (holder, kind)


BINDINGS = dict(_doors())
"""Where the binding of an operator is, and what kind of callable; each is functional and gives one tensor.

``tests/lowering/test_bindings.py`` has their law.
"""

NUMBERS = frozenset({"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"})
"""Operators whose binding takes a number for a tensor, as the overload does."""

BY_POSITION = {"aten.to.dtype": 4}
"""How many arguments a binding takes by position, where that is fewer than the operator does."""

LITERALS: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "float": (float,), "number": (int, float), "str": (str,), "ScalarType": (torch.dtype,),
    "MemoryFormat": (torch.memory_format,),
}  # fmt: skip
"""What a literal is for a parameter, by its type in the schema."""

AT_MOST = 8
"""How many operands are looked at: an operator on more takes so long that its binding saves little."""

ASSERTION, ASSERTED = "aten._assert_tensor_metadata.default", ("dtype", "device", "layout")


@functools.cache
def binding_of(operator: Any) -> Callable[..., Any] | None:
    """Return the binding of an operator; None if it has none, or another library has put something else in its place.

    Args:
        operator: an overload.

    >>> binding_of(torch.ops.aten.add.Tensor) is torch.add, binding_of(torch.ops.aten.add_.Tensor)
    (True, None)
    """
    holder, kind = BINDINGS.get(str(operator), (None, None))
    found = getattr(holder, operator.overloadpacket.__name__, None)
    return found if type(found) is kind else None


@functools.cache
def _parameters(operator: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    # The types of its parameters, as its schema has them: by position, and of those that are given by name.
    given = [(one.name, str(one.real_type), one.kwarg_only) for one in schema_of(operator).arguments]
    return tuple([kind for _, kind, named in given if not named]), {name: kind for name, kind, named in given if named}


def operands(node: Node) -> dict[Ref, type] | None:
    """Return of what type each value must be for the binding of an operator to do what the operator does with such arguments.

    Args:
        node: calls an operator that has a binding.

    Returns:
        None where an argument leaves open what the binding does.

    >>> from purefx.ir.operators import op_of
    >>> add, x = op_of(torch.ops.aten.add.Tensor), Ref("x")
    >>> operands(Node("y", add, (x, 1))) == {x: torch.Tensor}, operands(Node("y", add, (x, "1")))
    (True, None)
    """
    assert type(node.do) is Op
    by_position, by_name = _parameters(node.do.target)
    if len(node.args) > BY_POSITION.get(node.do.name, len(by_position)):
        return None
    given = [*zip(node.args, by_position, strict=False), *[(arg, by_name.get(key, "")) for key, arg in node.kwargs]]
    found: dict[Ref, type] = {}
    for arg, kind in given:
        if kind == "Tensor" and node.do.name in NUMBERS and type(arg) in LITERALS["number"]:
            kind = "number"
        for value, wanted in _values(arg, kind):
            if wanted is None or found.setdefault(value, wanted) is not wanted:
                return None
    return found if len(found) <= AT_MOST else None


def _values(arg: Arg, kind: str) -> Iterator[tuple[Any, type | None]]:
    # The values in an argument with the type that each must have; None for what does not settle anything.
    optional = kind.startswith("Optional[")
    kind = kind[len("Optional[") : -1] if optional else kind
    if optional and arg is None and kind != "number":
        return
    if kind.startswith("List[") and type(arg) is Items:
        for part in arg:
            yield from _values(part, kind[len("List[") : -1])
    elif type(arg) is Ref:
        yield arg, {"Tensor": torch.Tensor, "int": int}.get(kind)
    elif type(arg) is int and kind in ("int", "number"):
        if not -(2**63) <= arg < 2**63:
            yield arg, None
    elif type(arg) not in LITERALS.get(kind, ()):
        yield arg, None


def asserted(node: Node) -> tuple[Arg, ...]:
    """Return what ``has_metadata`` is asked in the place of an assertion; nothing where a node is no such assertion.

    Args:
        node: calls an operator.
    """
    assert type(node.do) is Op
    given = dict(node.kwargs)
    is_one = node.do.name == ASSERTION and len(node.args) == 1 and tuple(given) == ASSERTED
    return (*node.args, *given.values()) if is_one else ()


def has_metadata(tensor: Any, dtype: Any, device: Any, layout: Any) -> bool:
    """Return whether an assertion about a tensor holds, and nobody would see that it was asked.

    >>> has_metadata(torch.ones(2), torch.float32, torch.device("cpu"), torch.strided)
    True
    """
    return (
        type(tensor) in PLAIN
        and tensor.dtype is dtype
        and device_of(tensor) == device
        and tensor.layout is layout
        and not sees_functions()
        and is_undisturbed()
    )
