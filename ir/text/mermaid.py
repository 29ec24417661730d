"""``mermaid``: the parts of a split program as a picture, in the language that GitHub and editors draw.

One idea: a box for each part with its size, an arrow for what crosses; the root's inputs and outputs are at the ends.  It only
reads the root, so the picture is as large as the number of parts, not as the program.
"""

from __future__ import annotations

from ..node import Call, Op
from ..parts import Part, parts
from ..program import Program
from ..state import SlotKind

__all__ = ["mermaid"]


def mermaid(program: Program) -> str:
    """Return the parts of a split program, and what crosses between them, as text of a mermaid flowchart.

    Args:
        program: a split program; one that is not split has no boxes but its inputs and outputs.

    >>> import purefx as px
    >>> nodes = [px.Node(n, px.Op("toy.neg"), (px.Ref(x),)) for n, x in (("y", "x"), ("z", "y"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("z"),))})
    >>> print(px.mermaid(px.split_by_tags(program, ("a", "b"), tag_of={"y": "a", "z": "b"})))
    flowchart LR
        inputs([inputs])
        part0["a<br>1 operator, 0 parameters"]
        part1["b<br>1 operator, 0 parameters"]
        outputs([outputs])
        inputs -- x --> part0
        part0 -- y --> part1
        part1 -- z --> outputs
    """
    found = parts(program)
    counts = _operators(program)
    boxes = [f'part{number}["{_size(program, part, counts)}"]' for number, part in enumerate(found)]
    home = dict.fromkeys([formal.name for formal in program.main.inputs], "inputs")
    number_of = {part.node.name: number for number, part in enumerate(found)}
    arrows: list[str] = []
    for node in program.main.nodes:
        if type(node.do) is Call and node.name in number_of:
            box = f"part{number_of[node.name]}"
            arrows += _arrows(home, node.refs(), box)
            home[node.name] = box
        else:
            home[node.name] = next((home[name] for name in node.refs() if name in home), "inputs")
    arrows += _arrows(home, program.main.output_refs(), "outputs")
    return "\n".join(["flowchart LR", *[f"    {row}" for row in ("inputs([inputs])", *boxes, "outputs([outputs])", *arrows)]])


def _arrows(home: dict[str, str], names: list[str], to: str) -> list[str]:
    crossing: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        crossing.setdefault(home[name], []).append(_plain(name))
    return [f"{box} -- {', '.join(values)} --> {to}" for box, values in crossing.items()]


def _size(program: Program, part: Part, counts: dict[str, int]) -> str:
    cells = {
        slot.cell for name, slot in program.state.pairs if name.startswith(f"{part.name}.") and slot.kind is SlotKind.PARAMETER
    }
    pairs = ((counts[part.graph], "operator"), (len(cells), "parameter"))
    said = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in pairs]
    return f"{_plain(part.name)}<br>{', '.join(said)}"


def _operators(program: Program) -> dict[str, int]:
    # How many operators a body runs, those of what it calls included.
    counts: dict[str, int] = {}
    for name in program.bottom_up:
        graph = program.graphs[name]
        own = sum(type(node.do) is Op and node.do.name != "operator.getitem" for node in graph.nodes)
        counts[name] = own + sum(counts[inner] for inner in graph.callees)
    return counts


def _plain(name: str) -> str:
    # Names may hold anything; in the picture they are words.
    return "".join([mark if mark.isalnum() or mark == "_" else "_" for mark in name])
