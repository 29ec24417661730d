"""What operators cost to run again, about: which are products of matrices, convolutions or attention, and how much they move.

Only the order of costs matters, for policies that choose among values; nothing here says what a value is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from ...ir.arguments import refs_in
from ...ir.graph import Node, Op
from ...ir.meta import Meta
from .sizes import example_bytes, example_number

__all__ = ["base_name", "is_heavy", "work_of"]

HEAVY = frozenset({
    "mm", "bmm", "addmm", "addbmm", "baddbmm", "matmul", "linear", "bilinear", "einsum", "mv", "addmv", "dot", "vdot",
    "tensordot", "inner", "chain_matmul", "convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution",
    "cudnn_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution_backward", "scaled_dot_product_attention", "_grouped_mm", "_scaled_mm", "_scaled_grouped_mm", "_int_mm",
    "_weight_int8pack_mm", "cdist", "_cdist_forward", "_pdist_forward", "lstm", "gru", "rnn_tanh", "rnn_relu",
    "_thnn_fused_lstm_cell", "_cudnn_rnn", "mkldnn_rnn_layer", "sort", "topk", "argsort", "kthvalue", "median", "unique_dim",
    "_unique2", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "grid_sampler_2d", "grid_sampler_3d",
    "matrix_exp", "cholesky", "lu_unpack",
})  # fmt: skip
"""Operators of torch that take more than a walk over their operands and results."""

HEAVY_PARTS = ("attention", "linalg", "_fft_", "fft_", "conv")
"""What the name of such an operator may hold."""


def base_name(operator: str) -> str:
    """Return the name of an operator without namespace and overload.

    >>> base_name("aten.mm.default"), base_name("operator.getitem")
    ('mm', 'getitem')
    """
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator


def is_heavy(operator: str) -> bool:
    """Return whether an operator takes more than a walk over its operands and results; one that is not of torch counts as such.

    >>> is_heavy("aten.mm.default"), is_heavy("aten._scaled_dot_product_flash_attention.default"), is_heavy("aten.gelu.default")
    (True, True, False)
    """
    name = base_name(operator)
    if not operator.startswith(("aten.", "prims.", "operator.", "math.", "builtins.", "torch.")):
        return True
    return name in HEAVY or any(part in name for part in HEAVY_PARTS)


def work_of(node: Node, metas: Mapping[str, Meta]) -> float:
    """Return what running a node costs, about: bytes that it moves, and more for products of matrices.

    Args:
        node: a node of a graph.
        metas: what is known of the values of the graph.

    >>> from purefx.ir import Ref
    >>> x = {"val": torch.ones(4, 4)}
    >>> [work_of(Node("y", Op(name), (Ref("x"), Ref("x")), meta=x), {"x": x}) for name in ("aten.mul.Tensor", "aten.mm.default")]
    [192.0, 704.0]
    """
    operands = [metas[name].get("val") for name in refs_in(node.args, node.kwargs) if name in metas]
    given = node.meta.get("val")
    moved = float(example_bytes(given) + sum(map(example_bytes, operands)))
    if type(node.do) is not Op or not is_heavy(node.do.name):
        return moved
    return moved + 8.0 * _multiplied(given, operands)


def _multiplied(given: Any, operands: list[Any]) -> float:
    # Each element of the result is a sum of about so many products.
    tensors = [value for value in operands if isinstance(value, torch.Tensor) and value.dim()]
    results = [part for part in (given if isinstance(given, tuple | list) else [given]) if isinstance(part, torch.Tensor)]
    if not tensors or not results:
        return 0.0
    elements = prod([example_number(size) for size in results[0].shape])
    return float(elements * max(example_number(tensors[0].shape[-1]), 1))
