"""``print_program``, ``print_graph``, ``print_node``: programs as text.

One idea: one node a line, graphs from the root down, and only what is out of the ordinary is said.  The order is
that of the program, never of a hash.  Meta, the trail and the contents of tensors are not printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from ..effects.registered import registered_effects
from ..graph import Graph
from ..node import Call, Get, Node, Op
from ..printing import text_of
from ..program import Module, Program
from .arguments import print_arg, print_kwarg
from .call_signatures import print_call_signatures
from .contract import print_constraints, print_input, print_lifted, print_names, print_output
from .effects import print_effects
from .frames import print_frame, print_stack
from .operators import resolve
from .spelling import is_path, quoted, spell_path, spell_value
from .state import print_state
from .trees import print_tree

__all__ = ["KEYWORDS", "print_graph", "print_module", "print_node", "print_program"]

KEYWORDS = frozenset({"call", "get"})
"""Words that stand where the name of an operator could."""

STACK_COLUMN = 64
"""Module stacks stand in one column, unless the line is longer than this."""

WIDTH = 100
"""A list of inputs longer than this is broken."""


def print_program(program: Program) -> str:
    """Return a program as text that ``parse`` reads back.

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
    signature = program.signature
    lines = [*_header(program)]
    lines += _block("state", print_state(program.state))
    lines += _block("takes", [print_input(spec) for spec in signature.inputs])
    lines += _block("gives", [print_output(spec) for spec in signature.outputs])
    lines += _block("lifted", [print_lifted(place) for place in signature.lifted])
    if signature.arg_names:
        lines.append(f"names {print_names(signature.arg_names)}")
    trees = (("in_spec", signature.in_spec), ("out_spec", signature.out_spec))
    lines += [f"{name} {print_tree(spec)}" for name, spec in trees if spec is not None]
    lines += _block("constraints", print_constraints(program.constraints))
    lines += print_call_signatures(program.call_signatures)
    for name in (*program.order, *sorted(set(program.graphs) - set(program.order))):
        lines += printer.graph(name, program.graphs[name])
    return "\n".join(["program {", *[f"  {line}" for line in lines], "}", ""])


def _header(program: Program) -> list[str]:
    lines: list[str] = []
    if program.root:
        lines.append(f"root @{spell_path(program.root)}")
    if program.facts:
        lines.append(f"facts {print_names(tuple(sorted(program.facts)))}")
    return [*lines, *_block("modules", [print_module(module) for module in program.modules])]


def print_module(module: Module) -> str:
    """Return a module of the hierarchy on one line.

    >>> from purefx.ir import Module
    >>> print_module(Module("layers.0", "torch.nn.Linear")), print_module(Module("b", cell=0))
    ('layers.0: torch.nn.Linear', 'b cell 0')
    """
    kind = "" if module.type_name is None else f": {spell_path(module.type_name)}"
    return spell_path(module.path) + kind + ("" if module.cell is None else f" cell {module.cell}")


def _block(word: str, lines: Sequence[str]) -> list[str]:
    return [f"{word} {{", *[f"  {line}" for line in lines], "}"] if lines else []


def print_graph(graph: Graph, *, name: str = "") -> str:
    """Return one graph as text, as it stands in the text of a program.

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
    """Remembers how operators and stacks are written, each distinct one once."""

    def __init__(self) -> None:
        self._ops: dict[int, tuple[Op, str, str]] = {}
        self._stacks: dict[int, tuple[object, str]] = {}

    def graph(self, name: str, graph: Graph) -> list[str]:
        left = [self.node(node) for node in graph.nodes]
        lengths = [len(line) for line, node in zip(left, graph.nodes, strict=True) if node.stack]
        column = max([length for length in lengths if length <= STACK_COLUMN], default=0)
        lines = [
            f"  {line:<{column}}  in {self._stack(node)}" if node.stack else f"  {line}"
            for line, node in zip(left, graph.nodes, strict=True)
        ]
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
            target = resolve(name)
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
