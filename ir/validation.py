"""Argument validation of public functions: programs, exported programs, paths, functions, and the arguments of a call.

Each error names the accepted type, the passed type and a conversion.  ``verify`` checks programs themselves.

``check_identifiers`` checks the names of programs from untrusted sources.  One grammar (``names.py``) is enforced at each entry
point: ``import_ep``, ``save`` and ``load``.  Values, arguments and keywords are Python identifiers; module paths, slots, graphs
and operators are printable and can be quoted.  Programs that are built or parsed by hand may have any names; they run too,
because names are never compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

import torch
import torch.fx
from attrs import evolve, field, frozen
from torch.export import ExportedProgram

from .errors import ArgumentError, InvalidProgram, Violation
from .graph import Call, Get, Graph, Node
from .names import is_identifier, is_plain_path
from .program import Program

T = TypeVar("T")


HINTS: Mapping[type, str] = {
    Program: "it is imported already: continue with px.transform(program) and px.lower",
    ExportedProgram: "px.import_ep(ep) imports it",
    torch.fx.GraphModule: "px.import_fx(graph_module) imports it",
    torch.nn.Module: "export it first: px.import_ep(torch.export.export(model, args))",
    torch.fx.Graph: "px.import_fx(torch.fx.GraphModule(root, graph)) imports it",
    Graph: 'px.Program.of({"": graph}) makes a program of it',
    str: "px.load(path) reads a program from a file, px.parse(text) from text",
    os.PathLike: "px.load(path) reads a program from a file",
}
"""What to do with a value that a function does not accept, by its type; the first type that fits counts."""


@frozen
class Kind(Generic[T]):
    """A type that a function accepts.

    >>> Kind(int, "a number", {str: "int(text) makes one of it"}).check("3", "double")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: double takes a number, not a str; int(text) makes one of it
    """

    type: type[T]
    name: str
    hints: Mapping[type, str] = field(repr=False, factory=dict)
    """As in ``HINTS``."""
    otherwise: str = field(repr=False, default="")
    """What to do with a value of a type that has no hint."""

    def check(self, given: object, asked_by: str) -> T:
        """Return an argument if it is of this kind.

        Args:
            given: the argument.
            asked_by: the name of the function, for the message.

        Raises:
            ArgumentError: it is of another type.
        """
        if isinstance(given, self.type):
            return given
        hint = next(
            (hint for kind, hint in self.hints.items() if isinstance(given, kind)), self.otherwise
        )
        raise ArgumentError(
            f"{asked_by} takes {self.name}, not {kind_of(given)}{'; ' if hint else ''}{hint}"
        )


PROGRAM = Kind(Program, "a purefx Program", HINTS, "start with px.import_ep(ep)")

TWO_PROGRAMS = evolve(PROGRAM, name="two purefx Programs")

EXPORTED = Kind(
    ExportedProgram,
    "a torch.export.ExportedProgram",
    {**HINTS, **dict.fromkeys((str, os.PathLike), "torch.export.load(path) reads one from a file")},
    "torch.export.export(model, args) makes one",
)

FX = Kind(
    torch.fx.GraphModule,
    "a torch.fx.GraphModule",
    {
        **HINTS,
        torch.nn.Module: "trace it first, with torch.fx.symbolic_trace(model) or make_fx",
        torch.fx.Graph: "torch.fx.GraphModule(root, graph) makes one of it",
    },
    "torch.fx.symbolic_trace or make_fx makes one",
)

MODULE = Kind(
    torch.nn.Module,
    "a torch.nn.Module",
    {**HINTS, type: "pass a module, not its class"},
    "write one whose forward computes it",
)

NODE_NAME = Kind(
    str, "the name of a node", {Node: "pass node.name", torch.fx.Node: "pass node.name"}
)


def a_program(given: object, asked_by: str, **others: object) -> Program:
    """Return an argument if it is a program.

    Args:
        given: the argument.
        asked_by: the name of the function, for the message.
        others: its other arguments, by name; if one of them is a program, the message shows the right order.

    Raises:
        ArgumentError: it is not a program.

    >>> a_program("a.purefx", "save", path=Program.of({}))
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: save takes the program first, as in save(program, path), not a str
    """
    if not isinstance(given, Program) and any(
        isinstance(other, Program) for other in others.values()
    ):
        form = f"{asked_by}(program, {', '.join(others)})"
        raise ArgumentError(
            f"{asked_by} takes the program first, as in {form}, not {kind_of(given)}"
        )
    return PROGRAM.check(given, asked_by)


def a_path(given: Any, asked_by: str) -> Any:
    """Return an argument if it can be the path of a file.

    Args:
        given: the argument.
        asked_by: the name of the function, for the message.

    Raises:
        ArgumentError: it is not a path.

    >>> a_path(3, "save")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: save takes the path of a file, not an int
    """
    if not isinstance(given, str | bytes | os.PathLike):
        raise ArgumentError(f"{asked_by} takes the path of a file, not {kind_of(given)}")
    return given


def a_result(given: object, returned_by: str) -> Program:
    """Return the result of a function of programs if it is a program.

    Args:
        given: the result.
        returned_by: the name of the function.

    Raises:
        ArgumentError: it is not a program.

    >>> a_result(None, "soften")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: soften returned None; return a program, and the same object if there is nothing to do
    """
    if isinstance(given, Program):
        return given
    advice = "return a program, and the same object if there is nothing to do"
    raise ArgumentError(f"{returned_by} returned {kind_of(given)}; {advice}")


def is_function(given: object) -> bool:
    """Return whether an argument is a function or another callable, but not a class, a module or an exported program.

    >>> is_function(len), is_function(3), is_function(torch.nn.ReLU()), is_function(torch.nn.ReLU)
    (True, False, False, False)
    """
    return callable(given) and not isinstance(given, type | torch.nn.Module | ExportedProgram)


def a_function(given: object, name: str, what: str, advice: str = "") -> Callable[..., Any]:
    """Return an argument if it is a function.

    Args:
        given: the argument.
        name: its name, and that of the function.
        what: the expected value.
        advice: how to fix the call.

    Raises:
        ArgumentError: it is not a function.

    >>> a_function(True, "is_bad of bisect", "a function of a program")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: is_bad of bisect is a function of a program, not a bool
    """
    if not is_function(given):
        raise ArgumentError(
            f"{name} is {what}, not {kind_of(given)}{'; ' if advice else ''}{advice}"
        )
    return cast("Callable[..., Any]", given)


def call_arguments(args: object, kwargs: object, asked_by: str) -> None:
    """Raise ``ArgumentError`` unless ``args`` is a tuple, and ``kwargs`` a mapping or None.

    >>> call_arguments(torch.ones(2), None, "capture")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: args is the tuple of the positional arguments, not a Tensor; for one, write (x,)
    """
    if not isinstance(args, tuple):
        advice = "write tuple(args)" if isinstance(args, list) else "for one, write (x,)"
        raise ArgumentError(
            f"args is the tuple of the positional arguments, not {kind_of(args)}; {advice}"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(
            f"kwargs maps names to arguments, not {kind_of(kwargs)}; options of {asked_by} go by name"
        )


def kind_of(given: object) -> str:
    """Return the type of an argument in words, for messages.

    >>> kind_of(3), kind_of(None), kind_of(torch.nn.ReLU), kind_of(torch.fx.symbolic_trace(torch.nn.ReLU()))
    ('an int', 'None', 'the class ReLU', 'a GraphModule')
    """
    if given is None:
        return "None"
    if isinstance(given, type):
        return f"the class {given.__name__}"
    name = "GraphModule" if isinstance(given, torch.fx.GraphModule) else type(given).__name__
    return f"a{'n' if name[:1] in 'AEIOaeio' else ''} {name}"


ADVICE = "rename it: letters, digits and _ for values and arguments; no quotes, backslashes and control characters elsewhere"


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
        Violation(
            "identifiers",
            f"{ascii(name)[:200]} is not a name of {what}",
            graph,
            node,
            advice=ADVICE,
        )
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
    modules = [
        *[module.path for module in program.modules],
        *[frame.path for frame in program.call_signatures],
    ]
    classes = [module.type_name or "" for module in program.modules]
    paths = {
        "a slot": program.state.order,
        "a graph": program.graphs,
        "a module": modules,
        "a class": classes,
    }
    yield from (
        (name, what, None, None)
        for what, own in paths.items()
        for name in dict.fromkeys(own)
        if not is_plain_path(name)
    )
    yield from ((name, "a slot", None, None) for name in program.state.order if ".." in f".{name}.")
    signatures = [program.signature, *program.call_signatures.values()]
    words = [name for signature in signatures for name in signature.arg_names]
    yield from ((name, "an argument", None, None) for name in words if not is_identifier(name))
    known: set[str] = set()
    for name in program.order:
        yield from (
            (one.name, "an input", name, None)
            for one in program.graphs[name].inputs
            if not is_identifier(one.name)
        )
        for node in program.graphs[name].nodes:
            if not is_identifier(node.name):
                yield node.name, "a value", name, None
            for key, _ in node.kwargs:
                if not is_identifier(key):
                    yield key, "a keyword", name, node.name
            do = node.do
            called = (
                do.slot if type(do) is Get else do.instance.path if type(do) is Call else do.name
            )
            for text in (called, *[frame.path for frame in node.stack]):
                if text not in known:
                    known.add(text)
                    if not is_plain_path(text):
                        yield text, "an operator, a call, a read or a module", name, node.name
