"""Bindings: the Python functions that torch generates, which run an operator in half the time of its overload.

If schema and arguments determine the meaning of a call (``operands``), the code has a binding beside the overload.  The binding
runs if the operands are plain tensors and, when the body starts, no mode intercepts functions; other operands, modes,
tracers and compilers get the overload.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...ir.arguments import Arg, Items, Ref
from ...ir.graph import Node, Op
from ...ir.torch_private import NEURAL_FUNCTIONS, device_of, is_undisturbed, schema_of

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""The classes of plain tensors; subclasses may override ``__torch_function__``."""

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


def _holders() -> Iterator[tuple[str, tuple[Any, type]]]:
    function, method = type(torch.relu), type(torch.Tensor.view)
    for names, holder, kind in (
        (FUNCTIONS, torch, function), (NEURAL, NEURAL_FUNCTIONS, function), (METHODS, torch.Tensor, method)
    ):  # fmt: skip
        for name in names.split():
            yield f"aten.{name}" if "." in name else f"aten.{name}.default", (holder, kind)


BINDINGS = dict(_holders())
"""The namespace of each operator's binding, and the type of the callable; each is functional and returns one tensor.

``tests/lowering/test_bindings.py`` tests them.
"""

NUMBERS = frozenset({"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"})
"""Operators whose binding accepts a number in place of a tensor, as the overload does."""

BY_POSITION = {"aten.to.dtype": 4}
"""The number of positional arguments of a binding, where it accepts fewer than the operator."""

LITERALS: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "float": (float,), "number": (int, float), "str": (str,), "ScalarType": (torch.dtype,),
    "MemoryFormat": (torch.memory_format,),
}  # fmt: skip
"""The Python types of literals by the type of the parameter in the schema."""

AT_MOST = 8
"""The most operands that are checked: with more, the operator runs so long that its binding saves little."""

ASSERTION, ASSERTED = "aten._assert_tensor_metadata.default", ("dtype", "device", "layout")


@functools.cache
def binding_of(operator: Any) -> Callable[..., Any] | None:
    """Return the binding of an operator; None if it has none, or another library has replaced it.

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
    # The schema types of the positional parameters, and of the keyword parameters by name.
    parameters = [
        (one.name, str(one.real_type), one.kwarg_only) for one in schema_of(operator).arguments
    ]
    return tuple([kind for _, kind, named in parameters if not named]), {
        name: kind for name, kind, named in parameters if named
    }


def operands(node: Node) -> dict[Ref, type] | None:
    """Return the type that each value must have for the binding of an operator to do the same as its overload.

    Args:
        node: a call of an operator with a binding.

    Returns:
        None if the arguments do not determine that.

    >>> from purefx.ir.operators import op_of
    >>> add, x = op_of(torch.ops.aten.add.Tensor), Ref("x")
    >>> operands(Node("y", add, (x, 1))) == {x: torch.Tensor}, operands(Node("y", add, (x, "1")))
    (True, None)
    """
    assert type(node.do) is Op
    by_position, by_name = _parameters(node.do.target)
    if len(node.args) > BY_POSITION.get(node.do.name, len(by_position)):
        return None
    arguments = [
        *zip(node.args, by_position, strict=False),
        *[(arg, by_name.get(key, "")) for key, arg in node.kwargs],
    ]
    found: dict[Ref, type] = {}
    for arg, kind in arguments:
        if kind == "Tensor" and node.do.name in NUMBERS and type(arg) in LITERALS["number"]:
            kind = "number"
        for value, wanted in _values(arg, kind):
            if wanted is None or found.setdefault(value, wanted) is not wanted:
                return None
    return found if len(found) <= AT_MOST else None


def _values(arg: Arg, kind: str) -> Iterator[tuple[Any, type | None]]:
    # The values in an argument with their required types; None if the argument is ambiguous.
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
    """Return the arguments of ``has_metadata`` that replace an assertion; an empty tuple for other nodes.

    Args:
        node: a call of an operator.
    """
    kwargs = dict(node.kwargs)
    is_one = node.op_name == ASSERTION and len(node.args) == 1 and tuple(kwargs) == ASSERTED
    return (*node.args, *kwargs.values()) if is_one else ()


def has_metadata(tensor: Any, dtype: Any, device: Any, layout: Any) -> bool:
    """Return whether an assertion about a tensor holds, and skipping it is unobservable where no mode sees functions.

    >>> has_metadata(torch.ones(2), torch.float32, torch.device("cpu"), torch.strided)
    True
    """
    return (
        type(tensor) in PLAIN
        and tensor.dtype is dtype
        and device_of(tensor) == device
        and tensor.layout is layout
        and is_undisturbed()
    )
