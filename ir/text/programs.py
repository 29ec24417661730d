"""Programs as text: ``print_program``, ``print_graph`` and ``print_node``, ``parse`` for the way back, and ``mermaid``.

The printers register themselves with ``text_of``, which values use to print themselves.  Input is looked up in tables and built,
never evaluated; an operator that is not registered is kept by name with its printed effects.  Parsing checks the syntax only;
``verify`` checks the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

from attrs import evolve

from ..arguments import Arg, Args, Kwargs, Ref
from ..calls.parts import Part, parts
from ..effects.declared import ANYTHING, Effects
from ..effects.registered import registered_effects
from ..graph import Call, Do, Get, Graph, Input, Node, Op
from ..operators import allowed
from ..persistent import pmap, text_of
from ..program import Program
from ..signature import Constraints, Signature
from ..state import SlotKind
from ..validation import a_program
from .arguments import print_arg, read_arg
from .contract import (
    FRAME,
    SECTIONS,
    print_effects,
    print_sections,
    print_stack,
    read_effects,
    read_stack,
)
from .lexer import Cursor, Known, Target, is_path, quoted, read_list, spell_path, spell_value
from .syntax import indented

KEYWORDS = frozenset({"call", "get", "opaque"})
"""Words that the name of an operator may not be."""

STACK_COLUMN = 64
"""Module stacks start in one column, unless the line is longer than this."""

WIDTH = 6
"""The number of inputs on one line."""


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
    usual = cache(_usual_effects)
    lines = [line for section in print_sections(program).values() for line in section]
    for name in (*program.order, *sorted(set(program.graphs) - set(program.order))):
        lines += _graph_lines(name, program.graphs[name], usual)
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
    return "\n".join(_graph_lines(name, graph, cache(_usual_effects)))


def print_node(node: Node) -> str:
    """Return one node as text, on one line.

    >>> from purefx.ir import Call, Frame, Node, Ref
    >>> print_node(Node("y", Call(Frame("layers.1"), "layers.0"), (Ref("x"),), stack=(Frame("encoder"),)))
    'y = call @layers.0(x) as layers.1  in encoder'
    """
    return _node(node, _usual_effects) + (f"  in {print_stack(node.stack)}" if node.stack else "")


Usual = Callable[[str], Effects | None]
"""The registered effects of an operator, by name, which are not written; None if the allow-list lacks it."""


def _usual_effects(name: str) -> Effects | None:
    target = allowed(name)
    return None if target is None else registered_effects(target)


def _graph_lines(name: str, graph: Graph, usual: Usual) -> list[str]:
    rows = [(_node(node, usual), print_stack(node.stack)) for node in graph.nodes]
    column = max(
        [len(line) for line, stack in rows if stack and len(line) <= STACK_COLUMN], default=0
    )
    lines = [f"  {line:<{column}}  in {stack}" if stack else f"  {line}" for line, stack in rows]
    return [*_graph_head(name, graph), *lines, f"  return {print_arg(graph.output)}", "}"]


def _node(node: Node, usual: Usual) -> str:
    kwargs = [f"{spell_value(key)}={print_arg(value)}" for key, value in node.kwargs]
    args = ", ".join([*map(print_arg, node.args), *kwargs])
    name, do = spell_value(node.name), node.do
    if type(do) is Op:
        head = do.name if is_path(do.name) and do.name not in KEYWORDS else quoted(do.name)
        return f"{name} = {head}({args})" + (
            f" ! {print_effects(do.effects)}" if do.effects != usual(do.name) else ""
        )
    if type(do) is Call:
        return f"{name} = call @{spell_path(do.graph)}({args}) as {FRAME.write(do.instance)}"
    return f"{name} = get {spell_path(do.slot)}"


def _graph_head(name: str, graph: Graph) -> list[str]:
    inputs = [spell_value(formal.name) for formal in graph.inputs]
    head = f"graph @{spell_path(name)}("
    if len(inputs) <= WIDTH:
        return [f"{head}{', '.join(inputs)}) {{"]
    return [
        head,
        *[f"    {', '.join(inputs[at : at + WIDTH])}," for at in range(0, len(inputs), WIDTH)],
        ") {",
    ]


text_of.register(Program, print_program)
text_of.register(Graph, print_graph)
text_of.register(Node, print_node)


SOURCES = "; pass program.text(), or the text of a file: Path(name).read_text(); px.load reads what px.save wrote"
"""Advice for a caller who passed the name of a file, or the output of ``print(program)``."""


def parse(
    text: str,
    *,
    state: Mapping[str, Any] | None = None,
    operators: Mapping[str, Target] | None = None,
    types: Iterable[type] = (),
    allow: Iterable[str] = (),
) -> Program:
    r"""Return the program that a text describes.

    Args:
        text: the result of ``program.text()``, or written by hand; ``;`` starts a comment.
        state: tensors and other values by name of slot, or a ``State``.  Missing ones are made on the meta device, with the
            printed dtype, shape and ties.
        operators: functions that run operators not registered with torch, by name.
        types: classes of pytree nodes that are not registered under their own name: named tuples.
        allow: names of registered operators to accept that are not on the allow-list (``docs/format.md``): those that reach
            files, other processes or attributes by name.

    Returns:
        A program equal to the printed one, if ``state`` has its values; without meta and trail. Operators that are neither on
        the allow-list nor passed have no callable: such a program can be inspected, but not run.

    Raises:
        ParseError: the text is not a program, or torch cannot make a tensor that ``state`` lacks; the message has the line, the
            column and the expected words.
        TypeError: ``text`` is not a string, ``types`` are not classes, or ``allow`` are not names.

    >>> program = parse('program { \n graph @""(x) { \n y = aten.relu.default(x) \n return (y,) \n } \n }')
    >>> program.main.nodes[0].do.name
    'aten.relu.default'
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"parse takes a string, not a {type(text).__name__}")
    return read_program(text, Known(operators, types, allow, state))


def read_program(text: str, known: Known) -> Program:
    """Return the program that a text describes.

    Raises:
        ParseError: the text is not a program.
    """
    cursor, op = Cursor(text, known), cache(partial(_usual_op, known))
    graphs: dict[str, Graph] = {}
    fields: dict[str, dict[str, Any]] = {"": {}, "signature": {}, "constraints": {}}
    if cursor.kind == "newline":
        cursor.line_end()
    if not cursor.skip("program"):
        raise cursor.expected("'program'", SOURCES)
    for _ in cursor.block():
        at, word = cursor.start, cursor.take("graph", *SECTIONS)
        if word == "graph":
            into, key, found = graphs, *_read_graph(cursor, op)
        else:
            field, syntax = SECTIONS[word]
            owner, _, key = field.rpartition(".")
            into, found = fields[owner], syntax.read(cursor)
        if key in into:
            raise cursor.error(
                f"a second section '{word}'{' of this name' if word == 'graph' else ''}", at=at
            )
        into[key] = found
    cursor.line_end()
    if cursor.kind != "end":
        raise cursor.expected("the end of the text")
    root = fields[""].get("root", "")
    if root not in graphs:
        raise cursor.error(
            f"the text has no root graph @{spell_path(root)}; add one, or name another: `root @name`"
        )
    signature, constraints = Signature(**fields["signature"]), Constraints(**fields["constraints"])
    return Program(pmap(graphs), signature=signature, constraints=constraints, **fields[""])


def _usual_op(known: Known, name: str) -> Op:
    target = known.operator(name)
    return Op(name, ANYTHING if target is None else registered_effects(target), target)


def _read_graph(cursor: Cursor, op: Callable[[str], Op]) -> tuple[str, Graph]:
    cursor.take("@")
    name = cursor.path("the name of a graph")
    inputs = tuple([Input(formal) for formal in read_list(cursor, Cursor.value)])
    nodes: list[Node] = []
    cursor.take("{")
    cursor.line_end()
    while not cursor.skip("return"):
        nodes.append(_read_node(cursor, op))
        cursor.line_end()
    output = read_arg(cursor)
    cursor.line_end()
    cursor.take("}")
    return name, Graph(inputs, tuple(nodes), output)


def _read_node(cursor: Cursor, op: Callable[[str], Op]) -> Node:
    name = cursor.value()
    cursor.take("=")
    do: Do
    args, kwargs = (), ()
    if cursor.skip("get"):
        do = Get(cursor.path("the name of a slot"))
    elif cursor.skip("call"):
        cursor.take("@")
        graph = cursor.path("the name of a graph")
        args, kwargs = _read_arguments(cursor)
        cursor.take("as")
        do = Call(FRAME.read(cursor), graph)
    else:
        do = op(cursor.path("get, call or the name of an operator"))
        args, kwargs = _read_arguments(cursor)
        do = evolve(do, effects=read_effects(cursor)) if cursor.skip("!") else do
    return Node(name, do, args, kwargs, read_stack(cursor) if cursor.skip("in") else ())


def _read_arguments(cursor: Cursor) -> tuple[Args, Kwargs]:
    args: list[Arg] = []
    kwargs: list[tuple[str, Arg]] = []

    def read(cursor: Cursor) -> None:
        at = cursor.start
        found = read_arg(cursor)
        if cursor.skip("="):
            if type(found) is not Ref:
                raise cursor.error("expected the name of an argument before '='", at=at)
            kwargs.append((found.name, read_arg(cursor)))
        elif kwargs:
            raise cursor.error("a positional argument after a keyword argument", at=at)
        else:
            args.append(found)

    read_list(cursor, read)
    return tuple(args), tuple(kwargs)


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
    found, arrows = crossing(a_program(program, "mermaid"))
    boxes = ["inputs", *[f"part{number}" for number in range(len(found))], "outputs"]
    rows = [
        f'{box}["{_label(program, part)}"]' for box, part in zip(boxes[1:], found, strict=False)
    ]
    rows = ["inputs([inputs])", *rows, "outputs([outputs])"]
    rows += [
        f"{boxes[start]} -- {', '.join(map(_plain, names))} --> {boxes[end]}"
        for (start, end), names in arrows.items()
    ]
    return "\n".join(["flowchart LR", *[f"    {row}" for row in rows]])


def crossing(program: Program) -> tuple[tuple[Part, ...], dict[tuple[int, int], list[str]]]:
    """Return the parts of a split program, and the values that cross between them.

    Returns:
        The parts, and the values by start and end: 0 is the inputs, then come the parts, and then the outputs.

    >>> from purefx.ir import Ref
    >>> crossing(Program.of({"": Graph((Input("x"),), (), Ref("x"))}))
    ((), {(0, 1): ['x']})
    """
    main, found = program.main, parts(program)
    home = dict.fromkeys(main.input_names, 0)
    number_of = {part.node.name: number for number, part in enumerate(found, 1)}
    arrows: dict[tuple[int, int], dict[str, None]] = {}
    for node in main.nodes:
        home[node.name] = number_of.get(node.name) or next(
            (home[name] for name in node.refs() if name in home), 0
        )
        for name in node.refs() if node.name in number_of else ():
            arrows.setdefault((home[name], home[node.name]), {})[name] = None
    for name in main.output_refs():
        arrows.setdefault((home[name], len(found) + 1), {})[name] = None
    return found, {ends: list(names) for ends, names in arrows.items()}


def _label(program: Program, part: Part) -> str:
    counts: dict[str, int] = {}  # the operators that a body runs, including those of its callees
    for name in program.bottom_up:
        graph = program.graphs[name]
        own = sum(
            type(node.do) is Op and node.do.name != "operator.getitem" for node in graph.nodes
        )
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
