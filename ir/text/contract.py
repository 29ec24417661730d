"""The signature, the preserved call signatures and the constraints as text, written and read.

One idea: one line for each input and output, in order, which is all that the signature says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never

from torch.export import graph_signature

from ..node import Frame
from ..persistent import PMap
from ..program import CallSignature
from ..signature import (
    ArgumentType,
    Constraints,
    InputMutation,
    InputSpec,
    LiteralType,
    NumberType,
    ObjectType,
    OutputSpec,
    Range,
    StateInput,
    StateMutation,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from .arguments import print_arg, read_arg
from .expressions import print_expr, print_shape, read_expr, read_shape
from .frames import print_frame, read_frame
from .lexer import Cursor
from .spelling import quoted, spell_path, spell_value
from .tensors import print_dtype, read_dtype
from .trees import print_tree, read_tree

__all__ = [
    "print_call_signatures", "print_constraints", "print_input", "print_names", "print_output", "read_call_signature",
    "read_constraints", "read_input", "read_names", "read_output",
]  # fmt: skip


def print_input(spec: InputSpec) -> str:
    """Return what an input of the root graph is for, as text.

    >>> print_input(StateInput("lin.weight")), print_input(UserInput(LiteralType(None), "mask"))
    ('state lin.weight', 'user mask: literal None')
    """
    match spec:
        case StateInput(slot):
            return f"state {spell_path(slot)}"
        case UserInput(kind, argument):
            return f"user {spell_path(argument)}: {_print_type(kind)}"
        case Token():
            return "token"
        case _:
            assert_never(spec)


def _print_type(kind: ArgumentType) -> str:
    match kind:
        case TensorType(dtype, shape, device):
            place = "" if device == "cpu" else f" on {quoted(device)}"
            return f"{print_dtype(dtype)}[{print_shape(shape)}]{place}"
        case NumberType(name, expr):
            return f"number {spell_path(name)}" + ("" if expr is None else f" {print_expr(expr)}")
        case LiteralType(value):
            return f"literal {print_arg(value)}"
        case ObjectType(description):
            return f"object {quoted(description)}"
        case _:
            assert_never(kind)


def read_input(cursor: Cursor) -> InputSpec:
    """Read what an input of the root graph is for.

    >>> read_input(Cursor("user x: f32[s77, 3]")).type.shape
    (Sym(name='s77'), 3)
    """
    match cursor.take("state", "user", "token"):
        case "state":
            return StateInput(cursor.path("the name of a slot"))
        case "user":
            argument = cursor.path("the name of an argument")
            cursor.take(":")
            return UserInput(_read_type(cursor), argument)
        case _:
            return Token()


def _read_type(cursor: Cursor) -> ArgumentType:
    if cursor.skip("literal"):
        return LiteralType(read_arg(cursor))
    if cursor.skip("object"):
        return ObjectType(cursor.string("a description"))
    if cursor.skip("number"):
        name = cursor.path("int, float or bool")
        return NumberType(name, None if cursor.kind in ("newline", "end") else read_expr(cursor))
    dtype = read_dtype(cursor)
    shape = read_shape(cursor)
    return TensorType(dtype, shape, cursor.string("a device") if cursor.skip("on") else "cpu")


def print_output(spec: OutputSpec) -> str:
    """Return what an output of the root graph is for, as text.

    >>> print_output(UserOutput()), print_output(StateMutation("n")), print_output(InputMutation(3))
    ('user', 'state n', 'input 3')
    """
    match spec:
        case UserOutput():
            return "user"
        case StateMutation(slot):
            return f"state {spell_path(slot)}"
        case InputMutation(index):
            return f"input {index}"
        case Token():
            return "token"
        case _:
            assert_never(spec)


def read_output(cursor: Cursor) -> OutputSpec:
    """Read what an output of the root graph is for.

    >>> read_output(Cursor("input 3"))
    InputMutation(index=3)
    """
    match cursor.take("user", "state", "input", "token"):
        case "user":
            return UserOutput()
        case "state":
            return StateMutation(cursor.path("the name of a slot"))
        case "input":
            return InputMutation(cursor.integer("the number of an input"))
        case _:
            return Token()


def print_names(names: tuple[str, ...]) -> str:
    """Return names in brackets.

    >>> print_names(("x", "a b"))
    '(x, "a b")'
    """
    return f"({', '.join([spell_path(name) for name in names])})"


def read_names(cursor: Cursor) -> tuple[str, ...]:
    """Read names in brackets.

    >>> read_names(Cursor('(x, "a b")'))
    ('x', 'a b')
    """
    return tuple(_read_list(cursor, Cursor.path))


def _read_list(cursor: Cursor, read: Callable[[Cursor], Any]) -> list[Any]:
    cursor.take("(")
    found: list[Any] = []
    while not cursor.skip(")"):
        found.append(read(cursor))
        if not cursor.skip(","):
            cursor.take(")")
            break
    return found


def print_constraints(constraints: Constraints) -> list[str]:
    """Return one line for each range and guard.

    >>> from purefx.ir import Sym
    >>> print_constraints(Constraints((Range(Sym("s77"), 2, None),)))
    ['range s77 from 2']
    """
    lines: list[str] = []
    for bounds in constraints.ranges:
        low = "" if bounds.low is None else f" from {bounds.low}"
        high = "" if bounds.high is None else f" to {bounds.high}"
        lines.append(f"range {print_expr(bounds.expr)}{low}{high}")
    return [*lines, *[f"guard {print_expr(guard)}" for guard in constraints.guards]]


def read_constraints(cursor: Cursor) -> Constraints:
    """Read the ranges and guards in a block."""
    ranges: list[Range] = []
    guards: list[Any] = []
    for _ in cursor.block():
        if cursor.take("range", "guard") == "guard":
            guards.append(read_expr(cursor))
            continue
        expr = read_expr(cursor)
        low = cursor.integer("the lower bound") if cursor.skip("from") else None
        high = cursor.integer("the upper bound") if cursor.skip("to") else None
        ranges.append(Range(expr, low, high))
    return Constraints(tuple(ranges), tuple(guards))


ARGUMENTS: Mapping[str, Any] = {
    "tensor": graph_signature.TensorArgument,
    "symint": graph_signature.SymIntArgument,
    "symfloat": graph_signature.SymFloatArgument,
    "symbool": graph_signature.SymBoolArgument,
    "token": graph_signature.TokenArgument,
    "constant": graph_signature.ConstantArgument,
    "object": graph_signature.CustomObjArgument,
}
"""How the arguments of preserved call signatures are called here; torch's own records, compared by value."""

WORD_OF = {kind: word for word, kind in ARGUMENTS.items()}


def print_call_signatures(signatures: PMap[Frame, CallSignature]) -> list[str]:
    """Return a block for each preserved call signature, in the order of paths and calls."""
    lines: list[str] = []
    for frame in sorted(signatures, key=lambda frame: (frame.path, frame.call, frame.part)):
        found = signatures[frame]
        lines += [
            f"signature {print_frame(frame)} {{",
            f"  takes ({', '.join(map(_print_argument, found.inputs))})",
            f"  gives ({', '.join(map(_print_argument, found.outputs))})",
            f"  names {print_names(found.arg_names)}",
        ]
        trees = (("in_spec", found.in_spec), ("out_spec", found.out_spec))
        lines += [f"  {name} {print_tree(spec)}" for name, spec in trees if spec is not None]
        lines.append("}")
    return lines


def _print_argument(argument: Any) -> str:
    match WORD_OF.get(type(argument)):
        case None:
            return f"literal {print_arg(argument)}"
        case "constant":
            return f"constant {spell_value(argument.name)} {print_arg(argument.value)}"
        case "object":
            return f"object {spell_value(argument.name)} {quoted(argument.class_fqn)}"
        case word:
            return f"{word} {spell_value(argument.name)}"


def read_call_signature(cursor: Cursor) -> tuple[Frame, CallSignature]:
    """Read a preserved call signature; its keyword has been passed."""
    frame = read_frame(cursor)
    found: dict[str, Any] = {"takes": [], "gives": [], "names": (), "in_spec": None, "out_spec": None}
    for _ in cursor.block():
        match cursor.take(*found):
            case "names":
                found["names"] = read_names(cursor)
            case ("in_spec" | "out_spec") as name:
                found[name] = read_tree(cursor)
            case name:
                found[name] = _read_list(cursor, _read_argument)
    return frame, CallSignature(tuple(found["takes"]), tuple(found["gives"]), found["in_spec"], found["out_spec"], found["names"])


def _read_argument(cursor: Cursor) -> Any:
    match cursor.take("literal", *ARGUMENTS):
        case "literal":
            return read_arg(cursor)
        case "constant":
            return ARGUMENTS["constant"](name=cursor.value(), value=read_arg(cursor))
        case "object":
            return ARGUMENTS["object"](name=cursor.value(), class_fqn=cursor.string("the name of a class"))
        case word:
            return ARGUMENTS[word](name=cursor.value())
