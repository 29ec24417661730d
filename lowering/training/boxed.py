"""``boxed``: a function that takes its operands out of a list, so that each is freed at its last use.

Python keeps the arguments of a call alive until it returns.  A backward that is given everything that the forward saved would so
hold all of it to its end; one that empties the list holds what it still needs, as autograd does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
from attrs import define

from ...ir.arguments import Ref
from ...ir.graph import Get, Graph, Node
from ...ir.program import Program
from ..code.compiled import FILE, Body, deferred
from ..code.source import BodySource, Table, write_body
from ..lower import lower_unchecked
from ..modules.interpreter import note_from_traceback
from ..modules.module import RESERVED

__all__ = ["Boxed", "boxed", "reader"]


@define(eq=False)
class Boxed:
    """A program that runs on a list of operands, which it empties."""

    module: torch.nn.Module
    """The lowered program; it has the bodies of operators, and no state."""
    run: Callable[[torch.nn.Module, list[Any]], Any]
    codes: dict[CodeType, Body]

    def __call__(self, box: list[Any]) -> Any:
        """Run the program.

        Args:
            box: its operands in order; empty afterwards.
        """
        try:
            return self.run(self.module, box)
        except Exception as error:
            note_from_traceback(error, self.codes)
            raise

    def __deepcopy__(self, memo: dict[int, Any]) -> Boxed:
        return self  # it has no state


def boxed(program: Program, *, device: torch.device | None = None) -> Boxed:
    """Return what runs a program whose inputs are all that it needs.

    Args:
        program: what ``explicit`` made.
        device: replaces every device that the program names.

    >>> from purefx.ir import Input, Signature, UserInput, ObjectType, UserOutput
    >>> from purefx.ir.operators import op_of
    >>> graph = Graph((Input("x"),), (Node("y", op_of(torch.ops.aten.neg.default), (Ref("x"),)),), (Ref("y"),))
    >>> signature = Signature((UserInput(ObjectType(), "x"),), (UserOutput(),))
    >>> box = [torch.ones(1)]
    >>> boxed(Program.of({"": graph}, signature=signature))(box), box
    ((tensor([-1.]),), [])
    """
    module: Any = lower_unchecked(program, "graph_module", device)
    body: Body = module.purefx_place.body
    codes: dict[CodeType, Body] = module.purefx_codes

    def write() -> tuple[CodeType, Mapping[str, Any]]:
        table = body.new_table()
        source = write_body(body.runs, table, body.sites)
        lines = [f"{_unpacked(body.runs, source)}{source.lines[0]}", *source.lines[1:]]
        code = _compiled(["def boxed(self, v0):", *(f"    {line}" for line in lines)], "boxed")
        codes[code] = body
        return code, table.values

    return Boxed(module, deferred(write, "boxed", parameters=1), codes)


def _unpacked(graph: Graph, source: BodySource) -> str:
    # On the line of the first node, because a line number says which node is running.
    if not source.parameters:
        return ""
    used = {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())
    formals = zip(graph.inputs, source.parameters, strict=True)
    unused = "".join([f"{register} = None; " for formal, register in formals if formal.name not in used])
    registers = ", ".join(source.parameters)
    return f"box = v0; {registers}, = box; box.clear(); {unused}"


def _compiled(lines: list[str], name: str) -> CodeType:
    made: dict[str, Any] = {}
    exec(compile("\n".join(lines), FILE, "exec"), {}, made)  # noqa: S102 - the text is ours, see code/source.py
    code: CodeType = made[name].__code__
    return code


def reader(slots: tuple[str, ...]) -> Callable[[torch.nn.Module], tuple[Any, ...]]:
    """Return a function that reads state of a lowered module as its code does.

    Args:
        slots: by name, from the root.

    >>> reader(("weight",))(torch.nn.Linear(2, 1))[0].shape
    torch.Size([1, 2])
    """

    def write() -> tuple[CodeType, Mapping[str, Any]]:
        table = Table(RESERVED)
        reads = [Node(f"s{number}", Get(slot)) for number, slot in enumerate(slots)]
        source = write_body(Graph((), tuple(reads), tuple([Ref(node.name) for node in reads])), table)
        return _compiled(["def read(self):", *(f"    {line}" for line in source.lines)], "read"), table.values

    return deferred(write, "read", parameters=0)
