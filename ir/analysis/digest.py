"""``digest`` and ``alpha_equal``: identity up to names.

A body is a flat list of tokens in which every name is replaced by the position of its definition and every callee by its
digest; the hash of that list is its identity.  Literals are written with their type, operators with their effects.  The
digest excludes meta, names (also of symbolic sizes), call numbers and the contents of tensors; it includes state accesses,
module paths, and the dtype, shape and ties of tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve, fields, has

from ..arguments import CONTAINERS, Body, Items, Record, Ref, children_of
from ..effects.declared import PURE
from ..expression import Apply, Expr, Sym
from ..graph import Call, Get, Graph, Node
from ..persistent import derived
from ..program import Program
from ..signature import Constraints, InputSpec, NumberType, TensorType, UserInput
from ..state import SlotKind, State, describe_tensor
from ..validation import TWO_PROGRAMS, a_program

OPENING = {tuple: "(", Items: "[", Record: "{", slice: ":"}


def digest(program: Program) -> str:
    """Return the structural identity of a program, 32 hexadecimal digits.

    Args:
        program: a valid program at any stage.

    Returns:
        The same digest for programs that are equal up to names of values and of symbols of sizes, ids of graphs and call
        numbers; the same in every process.

    Raises:
        InvalidProgram: it is nested too deep.

    >>> from purefx.ir import Graph, Input, Node, Op, Program, Ref
    >>> def negate(name): return Graph((Input(name),), (Node("y", Op("toy.neg"), (Ref(name),)),), (Ref("y"),))
    >>> digest(Program.of({"": negate("a")})) == digest(Program.of({"": negate("b")}))
    True
    """
    a_program(program, "digest")
    try:
        return _digest(program)
    except RecursionError:
        from ..verify import check  # it is iterative, and reports excessive nesting

        check(program)
        raise


def _digest(program: Program) -> str:
    known: dict[str, str] = {}
    for name in program.bottom_up:
        own, callees = own_identity(program.graphs[name])
        # In a cycle the last call is identified by its name alone.
        known[name] = (
            hash_of("\n".join([own, *[known.get(callee, callee) for callee in callees]]))
            if callees
            else own
        )
    signature, state = program.signature, program.state
    inputs, constraints = _with_numbered_symbols(signature.inputs, program.constraints)
    parts = [
        known.get(program.root, ""),
        _written((inputs, signature.outputs, signature.arg_names, constraints)),
        f"{signature.in_spec}{signature.out_spec}",
        repr([module.path for module in program.modules]),
        _digest_of_state(state),
        *[
            _written(_described(state[name].value)) for name in state.modules
        ],  # their owner may change them
    ]
    return hash_of("\n".join(parts))


@derived
def _digest_of_state(state: State) -> str:
    return hash_of(
        repr(
            [
                (
                    name,
                    kind.value,
                    *facts,
                    () if kind is SlotKind.MODULE else _described(state[name].value),
                )
                for name, (kind, facts) in zip(state, state.identities, strict=True)
            ]
        )
    )


def hash_of(text: str) -> str:
    """Return the hash of a text, 32 hexadecimal digits.

    >>> hash_of("a") == hash_of("a"), len(hash_of(""))
    (True, 32)
    """
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def alpha_equal(left: Program, right: Program) -> bool:
    """Return whether two programs are equal up to names.

    Args:
        left: a valid program at any stage.
        right: another one.

    >>> from purefx.ir import Graph, Input, Program
    >>> alpha_equal(Program.of({"": Graph((Input("a"),), ())}), Program.of({"": Graph((Input("b"),), ())}))
    True
    """
    for program in (left, right):
        TWO_PROGRAMS.check(program, "alpha_equal")
    return left is right or digest(left) == digest(right)


def _with_numbered_symbols(
    inputs: tuple[InputSpec, ...], constraints: Constraints
) -> tuple[Any, Any]:
    # Symbol names are arbitrary, so symbols are numbered in order, first those in the types of the inputs.
    met: dict[str, Expr] = {}

    def numbered(expr: Expr) -> Expr:
        if type(expr) is Sym:
            return met.setdefault(expr.name, Sym(f"{len(met)}"))
        return (
            Apply(expr.op, tuple([numbered(arg) for arg in expr.args]))
            if type(expr) is Apply
            else expr
        )

    specs: list[InputSpec] = []
    for spec in inputs:
        kind = spec.type if type(spec) is UserInput else None
        if type(kind) is TensorType and any(type(size) in (Sym, Apply) for size in kind.shape):
            kind = evolve(kind, shape=tuple([numbered(size) for size in kind.shape]))
        elif type(kind) is NumberType and kind.expr is not None:
            kind = evolve(kind, expr=numbered(kind.expr))
        specs.append(
            evolve(spec, type=kind) if type(spec) is UserInput and kind is not spec.type else spec
        )
    if not met and not constraints.ranges and not constraints.guards:
        return inputs, constraints
    ranges = [evolve(span, expr=numbered(span.expr)) for span in constraints.ranges]
    return tuple(specs), Constraints(tuple(ranges), tuple(map(numbered, constraints.guards)))


def _written(value: object) -> str:
    tokens: list[Hashable] = []
    _write(value, tokens, {}, {})
    return "\n".join(map(str, tokens))


def _digits(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # more digits than Python converts
        return hex(value)


def _described(value: Any) -> object:
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if not isinstance(value, torch.nn.Module):
        return type(value).__name__
    # Its code is unknown; its class and its state are known.
    state = value.state_dict(keep_vars=True)
    tensors = [
        (name, describe_tensor(found))
        for name, found in state.items()
        if isinstance(found, torch.Tensor)
    ]
    return (type(value).__module__, type(value).__qualname__, tensors)


@derived
def own_identity(graph: Graph) -> tuple[str, tuple[str, ...]]:
    """Return a hash of a body without its callees, and the names of these in order, repeats kept.

    >>> from purefx.ir import Frame
    >>> own_identity(Graph((), (Node("y", Call(Frame("m"), "body")),)))[1]
    ('body',)
    """
    callees = tuple([name for node in graph.nodes for name in node.callees])
    return hash_of(
        "\n".join(map(str, graph_tokens(graph, dict.fromkeys(callees, "callee"))))
    ), callees


def graph_tokens(graph: Graph, callees: Mapping[str, Hashable]) -> list[Hashable]:
    """Return one body as a flat list, equal for bodies that are equal up to names.

    Within one process, comparing it is equivalent to comparing digests, and cheaper.

    Args:
        graph: the body.
        callees: the identity of every graph that it calls.

    >>> from purefx.ir import Graph, Input, Node, Op, Ref
    >>> graph_tokens(Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), Ref("y")), {})
    [1, 'toy.neg', 0, ';', 1]
    """
    positions: dict[str, int] = {formal.name: index for index, formal in enumerate(graph.inputs)}
    tokens: list[Hashable] = [len(positions)]
    add = tokens.append
    for node in graph.nodes:
        do = node.do
        if type(do) is Call:
            add("call")
            add(repr(do.instance.path))
            add(callees.get(do.graph, do.graph))
        elif type(do) is Get:
            add("get")
            add(repr(do.slot))
        else:
            add(do.name)
            if do.effects is not PURE and (said := do.effects.token):
                add(said)
        if node.stack:
            add(f"in {'/'.join(frame.path for frame in node.stack)!r}")
        write_operands(node, tokens, positions, callees)
        positions[node.name] = len(positions)
        add(";")
    output = graph.output
    if type(output) is Ref:
        add(positions.get(output.name, -1))
    else:
        _write(output, tokens, positions, callees)
    return tokens


def write_operands(
    node: Node,
    tokens: list[Hashable],
    positions: Mapping[str, int],
    callees: Mapping[str, Hashable] = MappingProxyType({}),
) -> None:
    """Add the operands of a node to the tokens of its body.

    Args:
        node: any node.
        tokens: of the body so far.
        positions: the number of each value of the body.
        callees: the identity of every graph among the operands.

    >>> from purefx.ir import Op
    >>> tokens = []
    >>> write_operands(Node("y", Op("toy.add"), (Ref("x"), 1)), tokens, {"x": 7})
    >>> tokens
    [7, 'int 1']
    """
    add = tokens.append
    for arg in node.args:
        kind = type(arg)
        if kind is Ref:
            add(positions.get(arg.name, -1))
        elif kind in CACHED:
            add(_literal(arg))
        else:
            _write(arg, tokens, positions, callees)
    for key, value in node.kwargs:
        add(f"{key!r}=")
        _write(value, tokens, positions, callees)


def _write(
    arg: Any, tokens: list[Hashable], positions: Mapping[str, int], callees: Mapping[str, Hashable]
) -> None:
    # Not ``repr``: after a repr that ran out of stack, attrs prints "..." for values at the same address; and ``shown`` prints
    # one placeholder for all deeply nested values.
    todo = [arg]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind is Ref:
            tokens.append(positions.get(part.name, -1))
        elif kind in CONTAINERS:
            tokens.append(OPENING[kind])
            todo.append(CLOSING)
            todo.extend(reversed(children_of(part)))
        elif kind is Body:
            tokens.append("body")
            tokens.append(callees.get(part.graph, part.graph))
        elif part is CLOSING:
            tokens.append(")")
        elif kind in CACHED:
            tokens.append(_literal(part))
        elif has(kind):
            tokens.append(f"{kind.__name__}(")
            todo.append(CLOSING)
            todo.extend([getattr(part, each.name) for each in reversed(fields(kind)) if each.eq])
        else:
            tokens.append(literal_token(part))


CLOSING = object()
"""The end of a container in the token list."""


def literal_token(value: Any) -> str:
    """Return a literal with its type on one line, distinct for different literals.

    >>> literal_token(1), literal_token(True), literal_token(-0.0), literal_token("a")
    ('int 1', 'bool True', 'float -0.0', "str 'a'")
    """
    kind = type(value)
    if kind in (int, bool, float, complex, str, bytes, type(None)):
        return f"{kind.__name__} {_digits(value)}"
    if kind.__module__ == "torch":
        # The repr of dtype, device, layout, memory_format is unique; printing a symbolic number could install a guard.
        return (
            f"{kind.__name__} {id(value)}"
            if kind.__name__.startswith("Sym")
            else f"{kind.__name__} {value}"
        )
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"{kind.__name__} {getattr(value, '__module__', '')}.{name or value!s}"


CACHED = frozenset({int, bool, str, type(None), torch.dtype})
"""Types whose values are equal exactly if their texts are, unlike 0.0 and -0.0."""

_literal = lru_cache(maxsize=4096, typed=True)(literal_token)
