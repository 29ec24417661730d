"""``check_identifiers``: check that names from untrusted sources conform to one identifier grammar.

The grammar (``names.py``) is enforced at each entry point: ``import_ep``, ``save`` and ``load``.  Values, arguments and
keywords are Python identifiers; module paths, slots, graphs and operators are printable and can be quoted.  Programs that
are built or parsed by hand may have any names; they run too, because names are never compiled.
"""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InvalidProgram, Violation
from .graph import Call, Get, Graph
from .names import is_identifier, is_plain_path
from .program import Program

ADVICE = "rename it: letters, digits and _ for values and arguments; no quotes, backslashes and control characters elsewhere"

OPERATION = "an operator, a call or a read"


def check_identifiers(program: Program) -> Program:
    """Return the program itself if all names in it are well-formed.

    Raises:
        InvalidProgram: some are not; all of them are listed.

    >>> from purefx.ir import Graph, Input, Program
    >>> program = Program.of({"": Graph((Input("x"),), (), ())})
    >>> check_identifiers(program) is program
    True
    """
    found = [
        Violation("identifiers", f"{ascii(name)[:200]} is not a name of {what}", graph, node, advice=ADVICE)
        for name, what, graph, node in invalid_names(program)
    ]
    if found:
        raise InvalidProgram(found)
    return program


def invalid_names(program: Program) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Iterate over invalid names: the text, the kind of name, the graph and the node.

    >>> from purefx.ir import Graph, Input, Program
    >>> list(invalid_names(Program.of({"": Graph((Input("x=1"),), (), ())})))
    [('x=1', 'an input', '', None)]
    """
    paths = [(name, "a slot") for name in program.state.order]
    paths += [(name, "a graph") for name in program.graphs]
    for module in program.modules:
        paths += [(module.path, "a module"), (module.type_name or "", "a class")]
    paths += [(frame.path, "a module") for frame in program.call_signatures]
    yield from ((name, what, None, None) for name, what in dict.fromkeys(paths) if not is_plain_path(name))
    for name in program.state.order:
        if not all(name.split(".")):
            yield name, "a slot", None, None
    signatures = [program.signature, *program.call_signatures.values()]
    words = [name for signature in signatures for name in signature.arg_names]
    yield from ((name, "an argument", None, None) for name in words if not is_identifier(name))
    known: set[int] = set()
    for name in program.order:
        yield from _in_graph(name, program.graphs[name], known)


def _in_graph(name: str, graph: Graph, known: set[int]) -> Iterator[tuple[str, str, str | None, str | None]]:
    yield from ((formal.name, "an input", name, None) for formal in graph.inputs if not is_identifier(formal.name))
    for node in graph.nodes:
        if not is_identifier(node.name):
            yield node.name, "a value", name, None
        for key, _ in node.kwargs:
            if not is_identifier(key):
                yield key, "a keyword", name, node.name
        # Many nodes share a stack.  The program keeps each stack and frame alive, so ids are not reused.
        paths = [] if id(node.stack) in known else [(id(frame), frame.path, "a module") for frame in node.stack]
        do = node.do
        name_of = do.slot if type(do) is Get else do.instance.path if type(do) is Call else do.name
        paths.append((id(do), name_of, OPERATION))
        known.add(id(node.stack))
        for key, path, what in paths:
            if key not in known and not is_plain_path(path):
                yield path, what, name, node.name
            known.add(key)
