"""Write the source code of bodies, straight-line Python with generated names; check names for fx.

Names of a program never become code.
"""

from __future__ import annotations

import functools
import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch.fx
from attrs import Factory, define, frozen

from ...ir.arguments import CONTAINERS, Arg, Body, Ref, children_of
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Frame, Get, Graph, Node, Op
from ...ir.names import FROM_ROOT, is_identifier, is_plain_path
from ...ir.text.arguments import bracketed
from ...ir.torch_private import OpOverload, entry_of, member_of, schema_of, sees_functions
from ..calls.preserved import PreservedCall
from ..modules.context import bound_to
from .bindings import BINDINGS, PLAIN, asserted, binding_of, has_metadata, operands


def argument_names(names: Sequence[str], count: int, keywords: Sequence[Any]) -> list[str]:
    """Return the names of the arguments of a root in the code that torch generates.

    Args:
        names: the names in the signature, for all arguments or none.
        count: the number of arguments.
        keywords: the keys of the keyword arguments.

    Raises:
        UnsupportedProgram: a keyword is not an identifier.

    >>> argument_names(["x", "y=f()"], 2, []), argument_names([], 1, [])
    (['x', 'arg_1'], ['arg_0'])
    """
    invalid = [key for key in keywords if not is_identifier(key)]
    if invalid:
        _refuse("the keyword argument", invalid[0])
    return [
        name if is_identifier(name) else f"arg_{index}"
        for index, name in enumerate(names or [""] * count)
    ]


def check_fx_names(graph: torch.fx.Graph, *, starred: bool = False) -> torch.fx.Graph:
    """Rename placeholders whose names are not identifiers in place, and return the graph.

    Args:
        graph: a graph built from a program.
        starred: whether placeholders may be rest parameters, as in ``*rest``.

    Raises:
        UnsupportedProgram: the name of an attribute or a keyword is not a valid name in code.

    >>> graph = torch.fx.Graph()
    >>> _ = graph.placeholder("x=f()")
    >>> [node.target for node in check_fx_names(graph).nodes]
    ['x_f_']
    """
    for node in graph.nodes:
        if node.op == "placeholder" and not is_identifier(
            node.target.lstrip("*") if starred else node.target
        ):
            node.target = node.name
        elif node.op in ("get_attr", "call_module") and not is_plain_path(node.target):
            _refuse("the attribute", node.target)
        for key in node.kwargs:
            if not is_identifier(key):
                _refuse("the keyword", key)
    return graph


def uncompilable(graph: torch.fx.Graph, error: SyntaxError) -> UnsupportedProgram:
    """Return the error for fx code that is not Python: fx writes ``self.class`` for a module called ``class``."""
    paths = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
    invalid = dict.fromkeys(path for path in paths if any(map(keyword.iskeyword, path.split("."))))
    named = f" ({', '.join(map(ascii, invalid))[:200]})" if invalid else ""
    return UnsupportedProgram(
        f"torch cannot compile the code of the graph: {error.msg}; attributes whose names are Python keywords{named} cannot "
        "appear in it; rename them to edit the graph (the module itself runs)"
    )


def _refuse(what: str, name: object) -> None:
    raise UnsupportedProgram(
        f"{what} {ascii(name)[:200]} is not a valid name in an fx graph, which torch compiles as text; rename it to get the "
        "graph (the module itself runs)"
    )


@define
class Table:
    """The values that generated code refers to, each under one name."""

    position_dependent: frozenset[str] = frozenset()
    """Graphs that read state or call modules; as arguments of an operator, they run on the enclosing module."""
    nested: Mapping[str, Any] = MappingProxyType({})
    """The modules of the graphs that are arguments of operators, by id."""
    values: dict[str, Any] = Factory(dict)
    _names: dict[Any, str] = Factory(dict)

    def name(self, key: Any, value: Any) -> str:
        """Return the name of a value; enter it the first time."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"t{len(self._names)}"
            self.values[name] = value
        return name


@frozen
class BodySource:
    """The source of one body."""

    lines: tuple[str, ...]
    """The statements, one for each node of the graph and one for the result."""
    parameters: tuple[str, ...]
    opened: tuple[str, ...] = ()
    """The registers that hold handles of entered modes, the last first."""


def attribute_name(frame: Frame) -> str:
    """Return the attribute of a module that holds the callee of a call: the child's name, numbered beyond the first.

    A module that is not below its caller is reached through the root, the attribute ``/`` of the caller.

    >>> attribute_name(Frame("b.lin", 1)), attribute_name(Frame("b.lin")), attribute_name(Frame("/a"))
    ('b.lin@1', 'b.lin', '/.a')
    """
    return from_root(str(frame))


def from_root(path: str) -> str:
    """Return the attribute path of a state read; absolute paths go through the root, the attribute ``/``.

    >>> from_root("b.weight"), from_root("/a.weight")
    ('b.weight', '/.a.weight')
    """
    return f"{FROM_ROOT}.{path[1:]}" if path.startswith(FROM_ROOT) else path


def write_body(
    graph: Graph, table: Table, sites: Mapping[str, PreservedCall] = MappingProxyType({})
) -> BodySource:
    """Return the source of a body.

    Args:
        graph: the body.
        table: the table for operators, names and literals.
        sites: the calls of modules with a preserved signature, by node name.
    """
    writer = _Writer(graph, table, sites)
    lines = [writer.statement(index, node) for index, node in enumerate(graph.nodes)]
    lines.append(f"return {writer.text(graph.output)}")
    if writer.is_quick:
        compiling, modes = (
            table.name("compiling", torch.compiler.is_compiling),
            table.name("modes", sees_functions),
        )
        lines[0] = f"{writer.unseen} = not ({compiling}() or {modes}()); {lines[0]}"
    return BodySource(tuple(lines), writer.parameters, tuple(writer.opened[::-1]))


class _Writer:
    def __init__(self, graph: Graph, table: Table, sites: Mapping[str, PreservedCall]) -> None:
        self.table = table
        self.sites = sites
        self.registers: dict[str, str] = {}
        self.free: list[str] = []
        self.count = 0
        self.last = graph.last_uses
        for formal in graph.inputs:
            self.registers[formal.name] = self._register()
        self.parameters = tuple(self.registers.values())
        self.unseen = self._register()
        """The register of a flag: no compiler traces the code, no mode intercepts functions.  Otherwise overloads run."""
        self.is_quick = False
        self.opened: list[str] = []

    def _register(self) -> str:
        if self.free:
            return self.free.pop()
        self.count += 1
        return f"v{self.count - 1}"

    def statement(self, index: int, node: Node) -> str:
        """Return the line that runs a node and frees dead values."""
        value = self._value(node)
        dead = self.last.get(index, ())
        released = [self.registers.pop(name) for name in dead if name in self.registers]
        if node.name in dead:
            line = value
        else:
            # The result reuses the register of a dead operand, which is freed when the result is stored, as in eager mode.
            self.registers[node.name] = released.pop() if released else self._register()
            line = f"{self.registers[node.name]} = {value}"
            if node.declared.scope > 0:
                self.opened.append(self.registers[node.name])
        self.free.extend(released)
        return line + "".join([f"; {register} = None" for register in released])

    def _value(self, node: Node) -> str:
        do = node.do
        match do:
            case Get(slot=slot):
                return self._attribute(from_root(slot))
            case Call() if node.name in self.sites:
                site = self.sites[node.name]
                called = self._attribute(attribute_name(site.callee))
                name = self.table.name(("site", id(site)), site)
                return f"{name}({called}, {self.text(site.leaves)}, {self.text(site.extra)})"
            case Call(instance=instance):
                called = self._attribute(attribute_name(instance))
                return f"{called}({', '.join([self.text(arg) for arg in node.args])})"
            case _:
                parts = [self.text(arg) for arg in node.args]
                parts += [self._keyword(do.target, key, value) for key, value in node.kwargs]
                return self._operator(node, do, ", ".join(parts))

    def _operator(self, node: Node, do: Op, args: str) -> str:
        # A faster callable beside the operator, with the conditions under which it is equivalent, see bindings.py.
        name, target = self.table.name, do.target
        called = name(("op", id(target)), target)
        if type(target) is not OpOverload:
            return f"{called}({args})"
        self.is_quick = True
        assertion = asserted(node)
        if assertion:
            holds = f"{name('has_metadata', has_metadata)}({', '.join([self.text(arg) for arg in assertion])})"
            return f"None if {self.unseen} and {holds} else {called}({args})"
        binding = binding_of(target) if do.name in BINDINGS else None
        types = operands(node) if binding is not None else None
        if types is None:
            return f"({name(('entry', id(target)), entry_of(target))} if {self.unseen} else {called})({args})"
        checks = [
            self._check(self.registers[value.name], wanted) for value, wanted in types.items()
        ]
        condition = " and ".join([self.unseen, *checks])
        return f"({name(('binding', id(target)), binding)} if {condition} else {called})({args})"

    def _check(self, value: str, wanted: type) -> str:
        name = self.table.name
        right = f"is {name('int', int)}" if wanted is int else f"in {name('PLAIN', PLAIN)}"
        return f"{name('type', type)}({value}) {right}"

    def _keyword(self, operator: Any, key: str, value: Arg) -> str:
        # Argument names of the schema are written as text; any other key goes through the table.
        if key in _schema_names(operator):
            return f"{key}={self.text(value)}"
        return f"**{{{self.table.name(('str', key), key)}: {self.text(value)}}}"

    def _attribute(self, path: str) -> str:
        found = "self"
        for part in path.split("."):
            found = f"{self.table.name('member_of', member_of)}({found}, {self.table.name(('str', part), part)})"
        return found

    def text(self, arg: Arg) -> str:
        """Return the expression of an argument."""
        return code_of(arg, self._leaf)

    def _leaf(self, arg: Arg) -> str:
        kind = type(arg)
        if kind is Ref:
            return self.registers[arg.name]
        if kind is int or kind is bool or arg is None:
            return repr(arg)
        if kind is float and math.isfinite(arg):
            return repr(arg)
        if kind is Body:
            body = self.table.name(("body", arg.graph), self.table.nested[arg.graph])
            return (
                f"{self.table.name('bound_to', bound_to)}(self, {body})"
                if arg.graph in self.table.position_dependent
                else body
            )
        # By value only for strings: 0.0 and -0.0 are equal.
        return self.table.name((kind, arg if kind is str else id(arg)), arg)


def code_of(arg: Arg, leaf: Callable[[Arg], str]) -> str:
    """Return the code of an argument.

    Args:
        arg: any argument.
        leaf: returns the code of a reference, a body or a literal.

    >>> from purefx.ir import Items
    >>> code_of(Items([1, (2, "a")]), repr)
    "[1, (2, 'a')]"
    """
    kind = type(arg)
    if kind not in CONTAINERS:
        return leaf(arg)
    parts = [code_of(part, leaf) for part in children_of(arg)]
    return f"slice({', '.join(parts)})" if kind is slice else bracketed(kind, parts)


@functools.cache
def _schema_names(operator: Any) -> frozenset[str]:
    if not isinstance(operator, OpOverload):
        return frozenset()
    return frozenset(
        filter(is_identifier, [argument.name for argument in schema_of(operator).arguments])
    )
