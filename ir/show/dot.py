"""``to_dot``: a program, or one of its bodies, in the language of Graphviz.

Each body is a cluster and is drawn once, however many modules share it; the module calls that are flat in a body are clusters in
it.  An edge is a value, with its type; a dashed one leads from a call to the body that it runs.  Nothing here runs Graphviz.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from ..calls.call_graph import body_named
from ..errors import NamingError
from ..graph import Call, Get, Graph, Node, Op, Stack
from ..meta import Meta
from ..names import did_you_mean
from ..program import Program
from ..taking import a_program
from ..text.printer import print_node
from ..verify import check
from .values import described, described_tensor, shown, source_line

__all__ = ["to_dot"]

LABEL = 60
"""Characters of a line in a box."""

HEAD = """\
digraph program {
  compound=true; fontname="Helvetica"; fontsize=11
  node [shape=box, style="rounded,filled", fillcolor="#f4f6f8", color="#8a94a0", fontname="Helvetica", fontsize=10]
  edge [color="#5a6470", fontname="Helvetica", fontsize=8]"""

LOOKS = {Op: "", Call: ', fillcolor="#e5ddf5"', Get: ', fillcolor="#dcefe2"'}


def to_dot(program: Program, *, graph: str | None = None) -> str:
    r"""Return a program as text that Graphviz draws: ``dot -Tsvg``.

    Args:
        program: at any stage, valid or not.
        graph: the id of one body (``""`` is most often the root), or the path of a module that runs it, to draw it alone; by
            default all that the root reaches.

    Returns:
        Lines of text, the same for equal programs with equal meta.

    Raises:
        NamingError: there is no such graph or module.
        InvalidProgram: something in it cannot be drawn, because it is not well-formed.
        TypeError: it is not a Program.

    >>> import purefx as px
    >>> graph = px.Graph((px.Input("x"),), (px.Node("y", px.Op("toy.neg"), (px.Ref("x"),)),), (px.Ref("y"),))
    >>> print(*px.to_dot(px.Program.of({"": graph})).splitlines()[-7:], sep="\n")
        g0_x0 [label="x", tooltip="input x", shape=ellipse]
        g0_return [label="return", shape=ellipse]
        g0_n0 [label="toy.neg\ny", tooltip="y = toy.neg(x) ! pure"]
      }
      g0_x0 -> g0_n0
      g0_n0 -> g0_return
    }
    """
    a_program(program, "to_dot")
    try:
        return _Drawing(program, program.order if graph is None else (_named(program, graph),)).text()
    except NamingError:
        raise
    except Exception:
        check(program)  # it says what is not as it should be
        raise


def _named(program: Program, graph: str) -> str:
    found = body_named(program, graph)
    if found is None:
        raise NamingError(f"there is no graph {graph!a}, and no module that runs one{did_you_mean(graph, program.graphs)}")
    return found[0]


class _Drawing:
    """The bodies that are drawn, by number: names may be anything, so nothing is called by them."""

    def __init__(self, program: Program, names: Sequence[str]) -> None:
        self._graphs = {name: program.graphs[name] for name in names}
        self._numbers = {name: number for number, name in enumerate(names)}
        self._edges: list[str] = []

    def text(self) -> str:
        clusters = [line for name, graph in self._graphs.items() for line in self._body(name, graph)]
        return "\n".join([HEAD, *clusters, *self._edges, "}", ""])

    def _body(self, name: str, graph: Graph) -> Iterator[str]:
        own = f"g{self._numbers[name]}"
        places: dict[str, tuple[str, str | None]] = {}
        boxes: list[tuple[Stack, str]] = []
        for at, formal in enumerate(graph.inputs):
            places[formal.name] = place = f"{own}_x{at}", _type(formal.meta)
            look = f"label={_text(formal.name)}, tooltip={_text(f'input {formal.name}')}, shape=ellipse"
            boxes.append(((), f"{place[0]} [{look}]"))
        boxes.append(((), f'{own}_return [label="return", shape=ellipse]'))
        for at, node in enumerate(graph.nodes):
            place = f"{own}_n{at}"
            boxes.append((node.stack, f"{place} [{_look(node)}]"))
            self._values(places, node.refs(), place)
            self._calls(node, place)
            places[node.name] = place, _type(node.meta)
        self._values(places, graph.output_refs(), f"{own}_return")
        yield f"  subgraph cluster_{own} {{"
        yield f'    label={_text(f"@{name}" if name else "the root graph")}; color="#8a94a0"; style=rounded'
        yield from _nested(boxes, own)
        yield "  }"

    def _values(self, places: Mapping[str, tuple[str, str | None]], names: Sequence[str], user: str) -> None:
        for name in dict.fromkeys(names):
            if name in places:  # an invalid program may use what is not there
                place, kind = places[name]
                self._edges.append(f"  {place} -> {user}" + (f" [label={_text(kind)}]" if kind else ""))

    def _calls(self, node: Node, place: str) -> None:
        for callee in dict.fromkeys(node.callees):
            if callee in self._numbers:
                own = f"g{self._numbers[callee]}"
                first = f"{own}_x0" if self._graphs[callee].inputs else f"{own}_return"
                self._edges.append(f"  {place} -> {first} [lhead=cluster_{own}, style=dashed, constraint=false]")


def _nested(boxes: Sequence[tuple[Stack, str]], own: str) -> Iterator[str]:
    # Module calls in module calls, each where its first box is.
    held: dict[Stack, list[Stack | str]] = {(): []}
    for stack, box in boxes:
        if stack not in held:
            for depth in range(len(stack)):
                if stack[: depth + 1] not in held:
                    held[stack[: depth + 1]] = []
                    held[stack[:depth]].append(stack[: depth + 1])
        held[stack].append(box)
    numbers = {stack: number for number, stack in enumerate(held)}
    todo = [iter(held[()])]
    while todo:
        item = next(todo[-1], None)
        indent = "  " * (len(todo) + 1)
        if item is None:
            todo.pop()
            if todo:
                yield f"{indent[2:]}}}"
        elif isinstance(item, str):
            yield f"{indent}{item}"
        else:
            label = f'label={_text(str(item[-1]))}; color="#b9c2cc"; style=rounded'
            yield f"{indent}subgraph cluster_{own}_{numbers[item]} {{ {label}"
            todo.append(iter(held[item]))


def _look(node: Node) -> str:
    do = node.do
    match do:
        case Op():
            said = do.name.removesuffix(".default")
        case Call():
            said = f"@{do.graph} as {do.instance}"
        case Get():
            said = do.slot
    source = source_line(node.meta)
    tooltip = _text(print_node(node) if source is None else f"{print_node(node)}  # {source}", 300)
    return f"label={_text(said)[:-1]}\\n{_text(node.name)[1:]}, tooltip={tooltip}{LOOKS[type(do)]}"


def _type(meta: Meta) -> str | None:
    value = meta.get("val")
    return described_tensor(value) if isinstance(value, torch.Tensor) else described(value)


def _text(text: str, longest: int = LABEL) -> str:
    # In a string of dot a backslash begins an escape, an ampersand an entity, and a newline ends a line of the box.
    plain = shown(text, longest).replace("&", "&amp;")
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
