"""``parse``: the text of a program becomes the program.

Input is looked up in tables and built, never evaluated; an operator that is not registered is kept by name with its printed
effects.  Parsing checks the syntax only; ``verify`` checks the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..arguments import Arg
from ..effects.declared import ANYTHING
from ..effects.registered import registered_effects
from ..graph import Call, Do, Frame, Get, Graph, Input, Kwargs, Node, Op
from ..persistent import pmap
from ..program import CallSignature, Program
from ..signature import Signature
from .arguments import read_arg, read_kwarg
from .contract import SECTIONS, SIGNATURE, read_call_signature, read_effects, read_frame, read_stack
from .lexer import Cursor, Known, Target, read_list, spell_path

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
        state: tensors and other values by name of slot.  Missing ones are made on the meta device, with the printed dtype,
            shape and ties.
        operators: functions that run operators not registered with torch, by name.
        types: classes of pytree nodes that are not registered under their own name: named tuples.
        allow: names of registered operators to accept that are not on the allow-list (``docs/format.md``): those that reach
            files, other processes or attributes by name.

    Returns:
        A program equal to the printed one, if ``state`` has its values; without meta and trail. Operators that are neither on
        the allow-list nor passed have no callable: such a program can be inspected, but not run.

    Raises:
        ParseError: the text is not a program; the message has the line, the column and the expected words.
        UnsupportedProgram: torch cannot make a tensor that ``state`` lacks.
        TypeError: ``text`` is not a string, ``types`` are not classes, or ``allow`` are not names.

    >>> program = parse('program { \n graph @""(x) { \n y = aten.relu.default(x) \n return (y,) \n } \n }')
    >>> program.main.nodes[0].do.name
    'aten.relu.default'
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"parse takes a string, not a {type(text).__name__}")
    return _Parser(Cursor(text, Known.of(operators, types, allow, state))).program()


class _Parser:
    """Reads one program, section by section, and keeps one ``Op`` for equal operators."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._ops: dict[str, Op] = {}
        self._graphs: dict[str, Graph] = {}
        self._call_signatures: dict[Frame, CallSignature] = {}
        self._sections: dict[str, Any] = {}

    def program(self) -> Program:
        cursor = self._cursor
        if cursor.kind == "newline":
            cursor.line_end()
        if not cursor.skip("program"):
            raise cursor.expected("'program'", SOURCES)
        for _ in cursor.block():
            self._section()
        cursor.line_end()
        if cursor.kind != "end":
            raise cursor.expected("the end of the text")
        of_signature = {SIGNATURE[word].name: found for word, found in self._sections.items() if word in SIGNATURE}
        others = {SECTIONS[word].name: found for word, found in self._sections.items() if word not in SIGNATURE}
        root = others.get("root", "")
        if root not in self._graphs:
            raise cursor.error(f"the text has no root graph @{spell_path(root)}; add one, or name another: `root @name`")
        return Program(
            pmap(self._graphs), signature=Signature(**of_signature), call_signatures=pmap(self._call_signatures), **others
        )

    def _section(self) -> None:
        cursor = self._cursor
        at = cursor.start
        word = cursor.take("graph", "signature", "shared", *SECTIONS)
        if word == "graph":
            self._graph(at)
        elif word in ("signature", "shared"):
            if word == "shared":
                cursor.take("signature")
            frame, signature = read_call_signature(cursor, shared=word == "shared")
            if frame in self._call_signatures:
                raise cursor.error("a second signature of this call", at=at)
            self._call_signatures[frame] = signature
        elif word in self._sections:
            raise cursor.error(f"a second section '{word}'", at=at)
        else:
            self._sections[word] = SECTIONS[word].syntax.read(cursor)

    def _graph(self, at: int) -> None:
        cursor = self._cursor
        cursor.take("@")
        name = cursor.path("the name of a graph")
        if name in self._graphs:
            raise cursor.error("a second graph of this name", at=at)
        inputs = tuple([Input(formal) for formal in read_list(cursor, Cursor.value)])
        nodes: list[Node] = []
        cursor.take("{")
        cursor.line_end()
        while not cursor.skip("return"):
            nodes.append(self._node())
            cursor.line_end()
        output = read_arg(cursor)
        cursor.line_end()
        cursor.take("}")
        self._graphs[name] = Graph(inputs, tuple(nodes), output)

    def _node(self) -> Node:
        cursor = self._cursor
        name = cursor.value()
        cursor.take("=")
        do: Do
        if cursor.skip("get"):
            do = Get(cursor.path("the name of a slot"))
            args, kwargs = self._arguments() if cursor.text == "(" else ((), ())
        elif cursor.skip("call"):
            cursor.take("@")
            graph = cursor.path("the name of a graph")
            args, kwargs = self._arguments()
            cursor.take("as")
            do = Call(read_frame(cursor), graph)
        else:
            target = cursor.path("get, call or the name of an operator")
            args, kwargs = self._arguments()
            do = self._op(target)
        return Node(name, do, args, kwargs, read_stack(cursor) if cursor.skip("in") else ())

    def _arguments(self) -> tuple[tuple[Arg, ...], Kwargs]:
        at = self._cursor.start
        found = read_list(self._cursor, read_kwarg)
        args = tuple([value for key, value in found if key is None])
        if any(key is not None for key, _ in found[: len(args)]):
            raise self._cursor.error("a positional argument after a keyword argument", at=at)
        return args, tuple([(key, value) for key, value in found[len(args) :] if key is not None])

    def _op(self, name: str) -> Op:
        effects = read_effects(self._cursor) if self._cursor.skip("!") else None
        if effects is None and name in self._ops:
            return self._ops[name]
        target = self._cursor.known.operator(name)
        if effects is not None:
            return Op(name, effects, target)
        self._ops[name] = Op(name, ANYTHING if target is None else registered_effects(target), target)
        return self._ops[name]
