"""Parts of a split program: how large each is, and what goes from one to another, in bytes.

Plain data for the page; ``purefx.mermaid`` draws the same as text.
"""

from __future__ import annotations

from typing import Any

from purefx.ir.calls.parts import parts
from purefx.ir.graph import Call
from purefx.ir.program import Program
from purefx.report.rows import bytes_of
from purefx.report.table import Texts

__all__ = ["crossing"]

MOST = 40
"""How many values of one arrow are named."""


def crossing(program: Program, texts: Texts) -> dict[str, Any] | None:
    """Return the parts of a program and the arrows between them; None for one that is not split.

    Args:
        program: a valid program.
        texts: the table of texts.

    >>> import purefx as px
    >>> crossing(px.Program.of({"": px.Graph((), ())}), Texts()) is None
    True
    """
    found = parts(program)
    if not found:
        return None
    number_of = {part.node.name: number for number, part in enumerate(found)}
    inputs, outputs = -1, len(found)
    home = dict.fromkeys([formal.name for formal in program.main.inputs], inputs)
    values = {formal.name: formal.meta.get("val") for formal in program.main.inputs}
    values.update((node.name, node.meta.get("val")) for node in program.main.nodes)
    arrows: dict[tuple[int, int], dict[str, None]] = {}
    for node in program.main.nodes:
        if type(node.do) is Call and node.name in number_of:
            home[node.name] = number_of[node.name]
            for name in node.refs():
                arrows.setdefault((home[name], home[node.name]), {})[name] = None
        else:
            home[node.name] = next((home[name] for name in node.refs()), inputs)
    for name in program.main.output_refs():
        arrows.setdefault((home[name], outputs), {})[name] = None
    return {
        "parts": [[texts.text(part.name), texts.text(part.graph)] for part in found],
        "arrows": [[start, end, *_carried(list(names), values, texts)] for (start, end), names in arrows.items()],
    }


def _carried(names: list[str], values: dict[str, Any], texts: Texts) -> tuple[list[int], int, int | float, bool]:
    sizes = [bytes_of(values.get(name)) for name in names]
    known = [size for size in sizes if size is not None]
    return [texts.text(name) for name in names[:MOST]], len(names), sum(known), len(known) == len(sizes)
