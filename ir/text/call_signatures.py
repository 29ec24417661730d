"""The call signatures that the exporter was asked to preserve, as text, written and read.

One idea: a block for each call, with the pytrees of its arguments and of its result; which values they hold is said by
border nodes in the graphs.
"""

from __future__ import annotations

from typing import Any

from ..node import Frame
from ..persistent import PMap
from ..program import CallSignature
from .contract import print_names, read_names
from .frames import print_frame, read_frame
from .lexer import Cursor
from .trees import print_tree, read_tree

__all__ = ["print_call_signatures", "read_call_signature"]


def print_call_signatures(signatures: PMap[Frame, CallSignature]) -> list[str]:
    """Return a block for each preserved call signature, in the order of paths and calls.

    >>> from purefx.ir import pmap
    >>> print_call_signatures(pmap({Frame("lin", 1): CallSignature(None, None, ("x",))}))
    ['signature lin@1 {', '  names (x)', '}']
    """
    lines: list[str] = []
    for frame in sorted(signatures, key=lambda frame: (frame.path, frame.call, frame.part)):
        found = signatures[frame]
        shared = "shared " if found.shared else ""
        lines += [f"{shared}signature {print_frame(frame)} {{", f"  names {print_names(found.arg_names)}"]
        trees = (("in_spec", found.in_spec), ("out_spec", found.out_spec))
        lines += [f"  {name} {print_tree(spec)}" for name, spec in trees if spec is not None]
        lines.append("}")
    return lines


def read_call_signature(cursor: Cursor, *, shared: bool = False) -> tuple[Frame, CallSignature]:
    r"""Read a preserved call signature; its keyword has been passed.

    Args:
        cursor: behind the keyword ``signature``.
        shared: whether the keyword before that was ``shared``.

    >>> read_call_signature(Cursor("lin@1 { \n names (x) \n }"))[0]
    Frame(path='lin', call=1, part=0)
    """
    frame = read_frame(cursor)
    found: dict[str, Any] = {"names": (), "in_spec": None, "out_spec": None}
    for _ in cursor.block():
        match cursor.take(*found):
            case "names":
                found["names"] = read_names(cursor)
            case name:
                found[name] = read_tree(cursor)
    return frame, CallSignature(found["in_spec"], found["out_spec"], found["names"], shared)
