"""What may stand in the code of an fx graph: operators of torch, and literals that print as themselves.

One idea: fx writes code from targets, literals and keywords and runs it, so only what is known to be harmless gets there.
What torch's verifier says about operators is left to it.
"""

from __future__ import annotations

import keyword
from typing import Any

import torch

from ...ir.arguments import CONTAINERS, Arg
from ...ir.errors import UnsupportedProgram
from ...ir.node import Node, Op
from ...ir.numbers import SYMBOLIC
from ...ir.opaque import is_module_call
from ...ir.places import place_of
from ...ir.torch_private import HigherOrderOperator, OpOverload

__all__ = ["check_literal", "check_target", "is_plain_name"]

LITERALS = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), range, torch.dtype, torch.device, torch.layout,
        torch.memory_format, torch.Size,
    }
)  # fmt: skip

OPERATORS: tuple[Any, ...] = (OpOverload, HigherOrderOperator)

MODULES = ("_operator", "math", "builtins", "torch")
"""Where the plain functions live that torch's exporter writes: arithmetic of sizes, modes, levels of vmap."""


RESERVED = frozenset({"self", "torch", "device", "inf", "nan", "NoneType", "pytree", "fx_pytree"})
"""What generated code means something by."""


def is_plain_name(name: str) -> bool:
    """Say whether an input or an attribute can have a name in generated code.

    >>> is_plain_name("input"), is_plain_name("self"), is_plain_name("class"), is_plain_name("a b")
    (True, False, False, False)
    """
    return name.isidentifier() and not keyword.iskeyword(name) and name not in RESERVED


def check_target(node: Node) -> Any:
    """Return the callable of a node that exported programs can have.

    Raises:
        UnsupportedProgram: it has none, or it is a function of the user's.
    """
    assert type(node.do) is Op
    target: Any = node.do.target
    known = isinstance(target, OPERATORS) or str(getattr(target, "__module__", "")).partition(".")[0] in MODULES
    if target is None or not known:
        what = "has no callable behind it" if target is None else "is no operator of torch"
        advice = "register it with torch.library.custom_op and call that, or lower the program instead"
        if is_module_call(node):
            advice = "export what the module does with px.capture(px.lower(program), args), or lower the program instead"
        raise UnsupportedProgram(f"{place_of(node)}: {node.do.name} {what}, and exported programs hold nothing else; {advice}")
    if node.do.name == "operator.getitem" and node.args and type(node.args[0]) in CONTAINERS:
        raise UnsupportedProgram(f"{place_of(node)}: it takes an item of a literal, and exported programs take items of values")
    for key, _ in node.kwargs:
        if not key.isidentifier() or keyword.iskeyword(key):
            raise UnsupportedProgram(f"{place_of(node)}: the keyword {key!r} is none in Python")
    return target


def check_literal(arg: Arg) -> Any:
    """Return a literal that fx can write.

    Raises:
        UnsupportedProgram: it is an object whose text is its own business.
    """
    if type(arg) in LITERALS or isinstance(arg, (*OPERATORS, *SYMBOLIC)):
        return arg
    said = f"{type(arg).__module__}.{type(arg).__qualname__}"
    raise UnsupportedProgram(
        f"an argument of type {said} can not stand in an exported program; make it an input, or state of the program"
    )
