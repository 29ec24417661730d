"""``check_identifiers``: names from untrusted sources conform to one identifier grammar.

The grammar (``names.py``) is enforced at each entry point: ``import_ep``, ``save`` and ``load``.  Values, arguments and
keywords are Python identifiers; module paths, slots, graphs and operators are printable and can stand in quotes.  Programs that
are built or parsed by hand may have any names; they run too, because no name is ever compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .errors import InvalidProgram, Violation
from .graph import Call, Do, Get, Graph, Op
from .names import are_identifiers, are_plain_paths, is_identifier, is_plain_path
from .program import Program

ADVICE = "rename it: letters, digits and _ for values and arguments; no quotes, backslashes and control characters elsewhere"

DEED = "an operator, a call or a read"


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
        for name, what, graph, node in odd_names(program)
    ]
    if found:
        raise InvalidProgram(found)
    return program


def odd_names(program: Program) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Iterate over ill-formed names: the text, the kind of name, the graph and the node.

    >>> from purefx.ir import Graph, Input, Program
    >>> list(odd_names(Program.of({"": Graph((Input("x=1"),), (), ())})))
    [('x=1', 'an input', '', None)]
    """
    paths = [(name, "a slot") for name in program.state.order]
    paths += [(name, "a graph") for name in program.graphs]
    for module in program.modules:
        paths += [(module.path, "a module"), (module.type_name or "", "a class")]
    paths += [(frame.path, "a module") for frame in program.call_signatures]
    named = program.state.order
    if not are_plain_paths([name for name, _ in paths]) or not _are_slots(named):
        odd = (name for name in named if not name or name[0] == "." or name[-1] == "." or ".." in name)
        yield from ((name, "a slot", None, None) for name in odd)
        yield from ((name, what, None, None) for name, what in dict.fromkeys(paths) if not is_plain_path(name))
    words = [*program.signature.arg_names]
    for signature in program.call_signatures.values():
        words += signature.arg_names
    yield from ((name, "an argument", None, None) for name in words if not is_identifier(name))
    known: set[int] = set()
    for name in program.order:
        yield from _in_graph(name, program.graphs[name], known)


def _in_graph(name: str, graph: Graph, known: set[int]) -> Iterator[tuple[str, str, str | None, str | None]]:
    # Nearly always all are right, so they are asked at once.
    names = [value.name for values in (graph.inputs, graph.nodes) for value in values]
    names += [key for node in graph.nodes if node.kwargs for key, _ in node.kwargs]
    stacks = {id(node.stack): node.stack for node in graph.nodes}
    frames = {id(frame): frame.path for stack in stacks.values() for frame in stack}
    if not are_identifiers(names) or not are_plain_paths([*frames.values(), *map(_deed, graph.distinct)]):
        yield from _odd_in_graph(name, graph, known)


def _odd_in_graph(name: str, graph: Graph, known: set[int]) -> Iterator[tuple[str, str, str | None, str | None]]:
    yield from ((formal.name, "an input", name, None) for formal in graph.inputs if not is_identifier(formal.name))
    for node in graph.nodes:
        if not is_identifier(node.name):
            yield node.name, "a value", name, None
        for key, _ in node.kwargs:
            if not is_identifier(key):
                yield key, "a keyword", name, node.name
        if id(node.stack) not in known:
            known.add(id(node.stack))
            for frame in node.stack:
                if id(frame) not in known:  # one call stands in many stacks
                    known.add(id(frame))
                    if not is_plain_path(frame.path):
                        yield frame.path, "a module", name, node.name
        if id(node.do) not in known:
            known.add(id(node.do))  # the program holds it, so no other object gets this id meanwhile
            odd = _deed(node.do)
            if not is_plain_path(odd):
                yield odd, DEED, name, node.name


def _are_slots(names: Sequence[str]) -> bool:
    text = "\n".join(["", *names, ""])  # a name with the end of a line in it is no plain path
    return not names or not any(part in text for part in ("\n\n", "\n.", ".\n", ".."))


def _deed(do: Do) -> str:
    match do:
        case Get(slot=slot):
            return slot
        case Call(instance=instance):
            return instance.path
        case Op(name=name):
            return name
