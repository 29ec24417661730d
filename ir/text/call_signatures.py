"""The call signatures that the exporter was asked to preserve, as text, written and read.

One idea: torch's own argument records, a word for each of their types; they are compared by value, so nothing else is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.export import graph_signature

from ..node import Frame
from ..persistent import PMap
from ..program import CallSignature
from .arguments import print_arg, read_arg
from .contract import print_names, read_names
from .frames import print_frame, read_frame
from .lexer import Cursor, read_list
from .spelling import quoted, spell_value
from .trees import print_tree, read_tree

__all__ = ["print_call_signatures", "read_call_signature"]

ARGUMENTS: Mapping[str, Any] = {
    "tensor": graph_signature.TensorArgument,
    "symint": graph_signature.SymIntArgument,
    "symfloat": graph_signature.SymFloatArgument,
    "symbool": graph_signature.SymBoolArgument,
    "token": graph_signature.TokenArgument,
    "constant": graph_signature.ConstantArgument,
    "object": graph_signature.CustomObjArgument,
}
"""How torch's records are called here."""

WORD_OF = {kind: word for word, kind in ARGUMENTS.items()}


def print_call_signatures(signatures: PMap[Frame, CallSignature]) -> list[str]:
    """Return a block for each preserved call signature, in the order of paths and calls.

    >>> from purefx.ir import pmap
    >>> print_call_signatures(pmap({Frame("lin", 1): CallSignature((), (), None, None, ("x",))}))
    ['signature lin@1 {', '  takes ()', '  gives ()', '  names (x)', '}']
    """
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
    r"""Read a preserved call signature; its keyword has been passed.

    >>> read_call_signature(Cursor("lin@1 { \n takes (tensor x) \n }"))[0]
    Frame(path='lin', call=1, part=0)
    """
    frame = read_frame(cursor)
    found: dict[str, Any] = {"takes": [], "gives": [], "names": (), "in_spec": None, "out_spec": None}
    for _ in cursor.block():
        match cursor.take(*found):
            case "names":
                found["names"] = read_names(cursor)
            case ("in_spec" | "out_spec") as name:
                found[name] = read_tree(cursor)
            case name:
                found[name] = read_list(cursor, _read_argument)
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
