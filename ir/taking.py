"""What the functions of purefx take, and what they say to anything else: a program, a function, the arguments of a call.

One sentence at every door: who takes what, what it was given, and how that becomes what it takes.  A kind lists what people
have in its place, with what makes one of it.  Nothing here looks into a program; ``verify`` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import torch
import torch.fx
from attrs import evolve, field, frozen
from torch.export import ExportedProgram

from .errors import ArgumentError, StoreError
from .graph import Graph, Node
from .program import Program

T = TypeVar("T")


@frozen
class Kind(Generic[T]):
    """What a function takes.

    >>> Kind(int, "a number", {str: "int(text) makes one of it"}).taken("3", "double")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: double takes a number, not a str; int(text) makes one of it
    """

    type: type[T]
    name: str
    ways: Mapping[type, str] = field(repr=False, factory=dict)
    """What makes one of values of other types; the first type that fits counts."""
    begin: str = field(repr=False, default="")
    """What to do in any other case."""

    def taken(self, given: object, asked_by: str) -> T:
        """Return what was given if it is of this kind.

        Args:
            given: what a user gave.
            asked_by: the function that takes it.

        Raises:
            ArgumentError: it is something else.
        """
        if isinstance(given, self.type):
            return given
        way = next((way for kind, way in self.ways.items() if isinstance(given, kind)), self.begin)
        if isinstance(given, type) and issubclass(given, torch.nn.Module):
            way = self.ways.get(torch.nn.Module, way).replace("model", f"{given.__name__}(...)")
        raise ArgumentError(f"{asked_by} takes {self.name}, not {kind_of(given)}{'; ' if way else ''}{way}")


PROGRAM = Kind(
    Program,
    "a purefx Program",
    {
        ExportedProgram: "start with px.import_ep(ep)",
        torch.fx.GraphModule: "start with px.import_fx(graph_module)",
        torch.nn.Module: "export it first: px.import_ep(torch.export.export(model, args))",
        torch.fx.Graph: "start with px.import_fx(torch.fx.GraphModule(root, graph))",
        Graph: 'px.Program.of({"": graph}) makes one of it',
        str: "px.load(path) reads one from a file, px.parse(text) from text",
        os.PathLike: "px.load(path) reads one from a file",
    },
    "start with px.import_ep(ep)",
)

TWO_PROGRAMS = evolve(PROGRAM, name="two purefx Programs")

EXPORTED = Kind(
    ExportedProgram,
    "a torch.export.ExportedProgram",
    {
        Program: "it is what import_ep gives: go on with px.transform(program) and px.lower",
        torch.fx.GraphModule: "px.import_fx(graph_module) imports it",
        torch.nn.Module: "export it first: torch.export.export(model, args)",
        torch.fx.Graph: "px.import_fx(torch.fx.GraphModule(root, graph)) imports it",
        str: "torch.export.load(path) reads one from a file",
        os.PathLike: "torch.export.load(path) reads one from a file",
    },
    "torch.export.export(model, args) makes one",
)

FX = Kind(
    torch.fx.GraphModule,
    "a torch.fx.GraphModule",
    {
        ExportedProgram: "px.import_ep(ep) imports it",
        Program: "it is what import_fx gives: go on with px.transform(program) and px.lower",
        torch.nn.Module: "trace it first, with torch.fx.symbolic_trace(model) or make_fx",
        torch.fx.Graph: "torch.fx.GraphModule(root, graph) makes one of it",
    },
    "torch.fx.symbolic_trace or make_fx makes one",
)

MODULE = Kind(
    torch.nn.Module,
    "a torch.nn.Module",
    {
        ExportedProgram: "it is exported: px.import_ep(ep) imports it",
        Program: "it is what capture gives: go on with px.transform(program) and px.lower",
        type: "give a module, not its class",
    },
    "write one whose forward computes it",
)

NODE_NAME = Kind(str, "the name of a node", {Node: "node.name is that", torch.fx.Node: "node.name is that"})


def a_program(given: object, asked_by: str, **others: object) -> Program:
    """Return what was given if it is a program.

    Args:
        given: what a user gave.
        asked_by: the function that takes it.
        others: its other arguments, by name: a program among them says that the order is another one.

    Raises:
        ArgumentError: it is no program; the message says what makes one of it.

    >>> a_program("a.purefx", "save", path=Program.of({}))
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: save takes the program first, as in save(program, path), not a str
    """
    if isinstance(given, Program):
        return given
    if any(isinstance(other, Program) for other in others.values()):
        form = f"{asked_by}(program, {', '.join(others)})"
        raise ArgumentError(f"{asked_by} takes the program first, as in {form}, not {kind_of(given)}")
    return PROGRAM.taken(given, asked_by)


def a_path(given: Any, asked_by: str) -> Any:
    r"""Return what was given if it can be the path of a file.

    Args:
        given: what a user gave.
        asked_by: the function that takes it.

    Raises:
        ArgumentError: it is no path.
        StoreError: no file can have it.

    >>> a_path("a\0b", "save")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.StoreError: save: 'a\x00b' cannot be the path of a file: embedded null byte
    """
    if not isinstance(given, str | bytes | os.PathLike):
        raise ArgumentError(f"{asked_by} takes the path of a file, not {kind_of(given)}")
    try:
        os.lstat(given)
    except OSError:  # whether it is there is another question
        pass
    except ValueError as error:
        raise StoreError(f"{asked_by}: {ascii(os.fspath(given))[:200]} cannot be the path of a file: {error}") from None
    return given


def a_result(given: object, gave_it: str) -> Program:
    """Return what a function of programs gave if it is a program.

    Args:
        given: what it gave.
        gave_it: its name.

    Raises:
        ArgumentError: it is no program.

    >>> a_result(None, "soften")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: soften gave None; return a program, and the same object when there is nothing to do
    """
    if isinstance(given, Program):
        return given
    raise ArgumentError(f"{gave_it} gave {kind_of(given)}; return a program, and the same object when there is nothing to do")


def is_function(given: object) -> bool:
    """Say whether something is a function of the user's, or stands for one: no class, no module, nothing that was exported.

    >>> is_function(len), is_function(3), is_function(torch.nn.ReLU()), is_function(torch.nn.ReLU)
    (True, False, False, False)
    """
    return callable(given) and not isinstance(given, type | torch.nn.Module | ExportedProgram)


def a_function(given: object, name: str, what: str, advice: str = "") -> Callable[..., Any]:
    """Return what was given if it is a function.

    Args:
        given: what a user gave.
        name: the argument, and whose it is.
        what: what it should be.
        advice: what to do, if that is not said yet.

    Raises:
        ArgumentError: it is none.

    >>> a_function(True, "is_bad of bisect", "a function of a program")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: is_bad of bisect is a function of a program, not a bool
    """
    if not is_function(given):
        raise ArgumentError(f"{name} is {what}, not {kind_of(given)}{'; ' if advice else ''}{advice}")
    return cast("Callable[..., Any]", given)


def call_arguments(args: object, kwargs: object, asked_by: str) -> None:
    """Raise unless these are the arguments of a call: a tuple and a mapping, or None.

    >>> call_arguments(torch.ones(2), None, "capture")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.ArgumentError: args is the tuple of the positional arguments, not a Tensor; for one, write (x,)
    """
    if not isinstance(args, tuple):
        advice = "write tuple(args)" if isinstance(args, list) else "for one, write (x,)"
        raise ArgumentError(f"args is the tuple of the positional arguments, not {kind_of(args)}; {advice}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(f"kwargs maps names to arguments, not {kind_of(kwargs)}; options of {asked_by} go by name")


def kind_of(given: object) -> str:
    """Return what something is, in a few words.

    >>> kind_of(3), kind_of(None), kind_of(torch.nn.ReLU), kind_of(torch.fx.symbolic_trace(torch.nn.ReLU()))
    ('an int', 'None', 'the class ReLU', 'a GraphModule')
    """
    if given is None:
        return "None"
    if isinstance(given, type):
        return f"the class {given.__name__}"
    name = "GraphModule" if isinstance(given, torch.fx.GraphModule) else type(given).__name__
    return f"a{'n' if name[:1] in 'AEIOaeio' else ''} {name}"
