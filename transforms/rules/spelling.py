"""Spelling: which operators Python's operators, and attributes and methods of tensors, are in the programs that torch exports.

Tables alone: what they name is applied where terms are (``terms.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["ATTRIBUTES", "CASTS", "DEVICES", "EQUIVALENT", "NEVER_WRITTEN", "OF_PYTHON", "TURNED"]

OF_PYTHON: Mapping[str, str] = {
    "truediv": "div", "mod": "remainder", "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "invert": "bitwise_not", "pos": "positive", "lshift": "__lshift__", "rshift": "__rshift__",
    "radd": "add", "rmul": "mul", "rsub": "rsub", "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor",
    **{name: name for name in ("add", "sub", "mul", "matmul", "pow", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip
"""The operator that each operator of Python is; ``x - 2`` and ``2 - x`` are two."""

TURNED: Mapping[str, str] = {
    "rpow": "pow", "rmod": "remainder", "rfloordiv": "floor_divide", "rlshift": "bitwise_left_shift",
    "rrshift": "bitwise_right_shift", "rmatmul": "matmul",
}  # fmt: skip
"""Operators of Python whose left operand is no value, and which torch computes with it in front: ``2 ** x``."""

EQUIVALENT: Mapping[str, str] = {f"bitwise_{name}": f"__{name}__" for name in ("and", "or", "xor")}
"""Other names for the same computation: ``x & y`` is exported as ``aten.__and__``, ``torch.bitwise_and(x, y)`` under its name."""

CASTS: Mapping[str, torch.dtype] = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "int": torch.int32,
    "long": torch.int64, "bool": torch.bool, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "cfloat": torch.complex64, "cdouble": torch.complex128,
}  # fmt: skip
"""Methods that are ``to``, with the type."""

DEVICES = frozenset({"cpu", "cuda"})
"""Methods that are ``to``, with the device of their name."""

ATTRIBUTES: Mapping[str, str] = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "real": "real", "imag": "imag"}
"""The operators that attributes of tensors are."""

NEVER_WRITTEN = frozenset({
    "dim", "ndim", "ndimension", "stride", "storage_offset", "element_size", "is_contiguous", "is_floating_point", "is_complex",
    "is_signed", "is_nonzero", "is_same_size", "get_device", "layout", "requires_grad", "is_sparse", "is_quantized",
})  # fmt: skip
"""What a tensor is asked for and no exported program computes: the answer was a number, or chose between two ways."""
