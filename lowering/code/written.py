"""Literals, tensors and operators as Python code that needs only torch.

Every literal is written by its type, and everything else is refused: nothing that a program says becomes code by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.arguments import CONTAINERS, Arg, Items, Record, children_of
from ...ir.callables import op_name
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Node, Op, place_of
from ...ir.names import is_identifier
from ...ir.torch_private import OpOverload

__all__ = ["LITERAL_UP_TO", "code_of", "contents_code", "target_code"]

LITERAL_UP_TO = 64
"""Numbers of a tensor that are written one by one; larger tensors are drawn."""

PLAIN = (type(None), bool, int, str, bytes, range, type(Ellipsis))

NAMED = (torch.dtype, torch.layout, torch.memory_format)


def _nothing(arg: Arg) -> None:  # noqa: ARG001
    return None


def code_of(arg: Arg, leaf: Callable[[Arg], str | None] = _nothing) -> str:
    """Return an argument as code.

    Args:
        arg: any argument.
        leaf: gives the code of what stands for something of the program, a reference or a body; None for a literal.

    Raises:
        UnsupportedProgram: a literal cannot be written.

    >>> code_of(Items([1, (torch.float32, float("inf"))]))
    "[1, (torch.float32, float('inf'))]"
    """
    known = leaf(arg)
    if known is not None:
        return known
    kind = type(arg)
    if kind not in CONTAINERS:
        return _literal(arg)
    parts = [code_of(part, leaf) for part in children_of(arg)]
    if kind is Record:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(parts[::2], parts[1::2], strict=True)) + "}"
    if kind is slice:
        return f"slice({', '.join(parts)})"
    inside = ", ".join(parts)
    return f"[{inside}]" if kind is Items else f"({inside},)" if len(parts) == 1 else f"({inside})"


def _literal(value: Any) -> str:
    if type(value) in PLAIN:
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) is complex:
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if isinstance(value, NAMED):
        return str(value)
    if type(value) is torch.device:
        return f"torch.device({str(value)!r})"
    raise UnsupportedProgram(
        f"a {type(value).__name__} among the arguments cannot be written into a script: reduce the program first"
    )


def contents_code(tensor: torch.Tensor) -> str:
    """Return code that makes a tensor of a type; its contents are the same if there are not many, and drawn otherwise.

    Args:
        tensor: strided, on any device.

    >>> contents_code(torch.tensor([[1.0, 0.1]])), contents_code(torch.ones(5, 20, dtype=torch.float16))
    ('torch.tensor([[1.0, 0.10000000149011612]], dtype=torch.float32)', 'drawn([5, 20], torch.float16, draw)')
    """
    sizes = list(tensor.shape)
    device = "" if tensor.device.type in ("cpu", "meta") else f".to({str(tensor.device)!r})"
    if tensor.numel() > LITERAL_UP_TO or tensor.is_meta or 0 in sizes:
        return f"drawn({sizes}, {tensor.dtype}, draw){device}"
    return f"torch.tensor({_numbers(tensor.detach().cpu().tolist())}, dtype={tensor.dtype}){device}"


def _numbers(value: Any) -> str:
    return f"[{', '.join(map(_numbers, value))}]" if isinstance(value, list) else _literal(value)


def target_code(node: Node) -> str:
    """Return how a script names the operator of a node.

    Args:
        node: calls an operator.

    Raises:
        UnsupportedProgram: it is no operator that torch finds by name.

    >>> from purefx.ir.operators import op_of
    >>> target_code(Node("y", op_of(torch.ops.aten.add.Tensor)))
    'torch.ops.aten.add.Tensor'
    """
    assert type(node.do) is Op
    target, name = node.do.target, node.do.name
    known = isinstance(target, OpOverload) or name.startswith("higher_order.")
    code = f"torch.ops.{name}" if known else name
    if target is None or not all(map(is_identifier, code.split("."))) or _found(code) is not target or op_name(target) != name:
        raise UnsupportedProgram(
            f"{name} at {place_of(node)} is nothing that a script finds by name in torch or in the standard library"
        )
    return code


def _found(code: str) -> Any:
    import builtins
    import operator

    module, *way = code.split(".")
    found: Any = {"torch": torch, "operator": operator, "math": math, "builtins": builtins}.get(module)
    for part in way:
        found = getattr(found, part, None)
    return found
