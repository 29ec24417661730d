"""Programs as text: ``print_program``, ``print_graph``, ``print_node``, and ``mermaid`` for the parts of a split one.

The printers register themselves with ``text_of``, which values use to print themselves.
"""

from __future__ import annotations

from typing import assert_never

from ..calls.parts import Part, parts
from ..effects.registered import registered_effects
from ..graph import Call, Get, Graph, Node, Op
from ..operators import allowed
from ..persistent import text_of
from ..program import Program
from ..state import SlotKind
from ..validation import a_program
from .arguments import print_arg, print_kwarg
from .contract import SECTIONS, SIGNATURE, print_call_signatures, print_effects, print_frame, print_stack
from .lexer import is_path, quoted, spell_path, spell_value
from .syntax import indented

KEYWORDS = frozenset({"call", "get"})
"""Words in the place of an operator's name."""

STACK_COLUMN = 64
"""Module stacks start in one column, unless the line is longer than this."""

WIDTH = 100
"""A longer list of inputs is broken into lines."""


def print_program(program: Program) -> str:
    """Return a program as text that ``parse`` reads back; equal programs have the same text, except for the facts.

    Args:
        program: any program, valid or not.

    Returns:
        Lines of printable ASCII, the same in every process, ending with a newline.

    >>> from purefx.ir import Graph, Input, Node, Op, Program, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("aten.relu.default"), (Ref("x"),)),), (Ref("y"),))
    >>> print(print_program(Program.of({"": graph})))
    program {
      graph @""(x) {
        y = aten.relu.default(x)
        return (y,)
      }
    }
    <BLANKLINE>
    """
    printer = _Printer()
    lines: list[str] = []
    for word, section in SECTIONS.items():
        lines += section.write(word, program.signature if word in SIGNATURE else program)
    lines += print_call_signatures(program.call_signatures)
    for name in (*program.order, *sorted(set(program.graphs) - set(program.order))):
        lines += printer.graph(name, program.graphs[name])
    return "\n".join(["program {", *indented(lines), "}", ""])


def print_graph(graph: Graph, *, name: str = "") -> str:
    """Return one graph as text, as in the text of a program.

    Args:
        graph: the graph.
        name: its id.

    >>> from purefx.ir import Graph, Input, Ref
    >>> print(print_graph(Graph((Input("x"),), (), (Ref("x"),)), name="layers.0"))
    graph @layers.0(x) {
      return (x,)
    }
    """
    return "\n".join(_Printer().graph(name, graph))


def print_node(node: Node) -> str:
    """Return one node as text, on one line.

    >>> from purefx.ir import Call, Frame, Node, Ref
    >>> print_node(Node("y", Call(Frame("layers.1"), "layers.0"), (Ref("x"),), stack=(Frame("encoder"),)))
    'y = call @layers.0(x) as layers.1  in encoder'
    """
    printer = _Printer()
    return printer.node(node) + (f"  in {print_stack(node.stack)}" if node.stack else "")


class _Printer:
    """Caches the text of operators and stacks."""

    def __init__(self) -> None:
        self._ops: dict[int, tuple[Op, str, str]] = {}
        self._stacks: dict[int, tuple[object, str]] = {}

    def graph(self, name: str, graph: Graph) -> list[str]:
        rows = [(self.node(node), self._stack(node) if node.stack else "") for node in graph.nodes]
        column = max([len(line) for line, stack in rows if stack and len(line) <= STACK_COLUMN], default=0)
        lines = [f"  {line:<{column}}  in {stack}" if stack else f"  {line}" for line, stack in rows]
        return [*_graph_head(name, graph), *lines, f"  return {print_arg(graph.output)}", "}"]

    def node(self, node: Node) -> str:
        args = ", ".join([*[print_arg(arg) for arg in node.args], *[print_kwarg(key, value) for key, value in node.kwargs]])
        name, do = spell_value(node.name), node.do
        match do:
            case Op():
                head, tail = self._op(do)
                return f"{name} = {head}({args}){tail}"
            case Call(instance, graph):
                return f"{name} = call @{spell_path(graph)}({args}) as {print_frame(instance)}"
            case Get(slot):
                return f"{name} = get {spell_path(slot)}" + (f"({args})" if args else "")
            case _:
                assert_never(do)

    def _op(self, op: Op) -> tuple[str, str]:
        # By identity, not by value: hashing an Op costs more than printing it.  Holding it keeps its id from being reused.
        found = self._ops.get(id(op))
        if found is None:
            name = op.name
            head = name if is_path(name) and name not in KEYWORDS else quoted(name)
            target = allowed(name)
            usual = target is not None and registered_effects(target) == op.effects
            found = self._ops[id(op)] = (op, head, "" if usual else f" ! {print_effects(op.effects)}")
        return found[1], found[2]

    def _stack(self, node: Node) -> str:
        found = self._stacks.get(id(node.stack))
        if found is None:
            found = self._stacks[id(node.stack)] = (node.stack, print_stack(node.stack))
        return found[1]


def _graph_head(name: str, graph: Graph) -> list[str]:
    inputs = [spell_value(formal.name) for formal in graph.inputs]
    line = f"graph @{spell_path(name)}({', '.join(inputs)}) {{"
    if len(line) <= WIDTH:
        return [line]
    lines = [f"graph @{spell_path(name)}("]
    row = ""
    for text in inputs:
        if row and len(row) + len(text) > WIDTH - 4:
            lines.append(f"    {row.rstrip()}")
            row = ""
        row += f"{text}, "
    return [*lines, f"    {row.rstrip()}", ") {"]


text_of.register(Program, print_program)
text_of.register(Graph, print_graph)
text_of.register(Node, print_node)


def mermaid(program: Program) -> str:
    """Return the parts of a split program, and the values that cross between them, as text of a mermaid flowchart.

    Args:
        program: a split program; an unsplit one has only the boxes of its inputs and outputs.

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
    found = parts(a_program(program, "mermaid"))
    boxes = [f'part{number}["{_label(program, part)}"]' for number, part in enumerate(found)]
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


def _label(program: Program, part: Part) -> str:
    counts: dict[str, int] = {}  # the operators that a body runs, including those of its callees
    for name in program.bottom_up:
        graph = program.graphs[name]
        own = sum(type(node.do) is Op and node.do.name != "operator.getitem" for node in graph.nodes)
        counts[name] = own + sum(counts[inner] for inner in graph.callees)
    owned = [slot for name, slot in program.state.pairs if name.startswith(f"{part.name}.")]
    cells = {slot.cell for slot in owned if slot.kind is SlotKind.PARAMETER}
    return f"{_plain(part.name)}<br>{counted(counts[part.graph], 'operator')}, {counted(len(cells), 'parameter')}"


def counted(count: int, word: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "node"), counted(1234, "node")
    ('1 node', '1,234 nodes')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _plain(name: str) -> str:
    # Names may have any characters; the flowchart needs plain words.
    return "".join([mark if mark.isalnum() or mark == "_" else "_" for mark in name])
