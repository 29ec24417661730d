"""Build fx graphs of a flat program, of the root and the bodies of operators, with meta and fake values.

They may contain only operators of torch and literals that print as Python.  Stacks and source lines are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from attrs import Factory, evolve, frozen

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import TREES, Arg, Body, Items, Ref, thawed
from ...ir.calls.call_graph import call_counts
from ...ir.calls.parts import first_paths
from ...ir.errors import UnsupportedProgram, first_line
from ...ir.graph import Get, Graph, Input, Node, Op, Stack, place_of
from ...ir.inference import FakeValues, running
from ...ir.meta import ORIGIN, Meta, is_backward, spelled_stack, thaw
from ...ir.names import Names, is_identifier, join, last_name
from ...ir.own_operators import CALL_GUARDS, is_boundary, is_module_call
from ...ir.program import Program
from ...ir.signature import LossOutput
from ...ir.torch_private import ENTER_AUTOCAST, HigherOrderOperator, OpOverload, per_example, pytree

LITERALS = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), range, torch.dtype, torch.device, torch.layout,
        torch.memory_format, torch.Size,
    }
)  # fmt: skip

OPERATORS: tuple[Any, ...] = (OpOverload, HigherOrderOperator)

MODULES = ("_operator", "math", "builtins", "torch")
"""The modules of plain functions in exported graphs: arithmetic of sizes, modes, levels of vmap."""


RESERVED = frozenset({"self", "torch", "device", "inf", "nan", "NoneType", "pytree", "fx_pytree"})
"""Names with a meaning in generated code."""


def is_plain_name(name: str) -> bool:
    """Return whether an input or an attribute can have a name in generated code.

    >>> is_plain_name("input"), is_plain_name("self"), is_plain_name("class"), is_plain_name("a b")
    (True, False, False, False)
    """
    return is_identifier(name) and name not in RESERVED


EXPORT_AGAIN = (
    "export it again with px.capture(px.lower(program), args), or lower the program instead"
)
"""The advice for programs that call modules of their state."""


def check_target(node: Node) -> Any:
    """Return the callable of a node, if exported programs can contain it.

    Raises:
        UnsupportedProgram: it has no callable, or a user function.
    """
    target = node.target
    known = (
        isinstance(target, OPERATORS)
        or str(getattr(target, "__module__", "")).partition(".")[0] in MODULES
    )
    if target is None or not known:
        reason = "has no callable" if target is None else "is not an operator of torch"
        advice = (
            "register it with torch.library.custom_op and call that, or lower the program instead"
        )
        if is_module_call(node):
            advice = EXPORT_AGAIN
        raise UnsupportedProgram(
            f"{place_of(node)}: {node.op_name} {reason}, so an exported program cannot contain it; {advice}"
        )
    if target is ENTER_AUTOCAST:
        raise UnsupportedProgram(
            f"{place_of(node)}: a region under autocast begins, which exported programs represent as the body of an "
            "operator; px.regions_to_bodies cannot convert this region, because it is never closed, or overlaps vmap, the "
            "boundary of a preserved call or another such region. Separate the markers, or lower the program instead"
        )
    for key, _ in node.kwargs:
        if not is_identifier(key):
            raise UnsupportedProgram(
                f"{place_of(node)}: the keyword {key!r} is not a Python identifier"
            )
    return target


def check_literal(arg: Arg) -> Any:
    """Return a literal that fx can write.

    Raises:
        UnsupportedProgram: it is an object without a Python literal.
    """
    if type(arg) in LITERALS or isinstance(arg, (*OPERATORS, *SYMBOLIC)):
        return arg
    kind = f"{type(arg).__module__}.{type(arg).__qualname__}"
    raise UnsupportedProgram(
        f"an argument of type {kind} is not allowed in an exported program; make it an input, or state of the program"
    )


@frozen
class Made:
    """An fx graph with the nodes of the values."""

    graph: torch.fx.Graph
    attributes: dict[str, Any] = Factory(dict)
    """The bodies of operators and pytree specs, by attribute name."""
    nodes: dict[str, torch.fx.Node] = Factory(dict)
    """The nodes by name of the value."""

    def leaf(self, arg: Arg) -> Any:
        """Return the fx node of a value; literals are unchanged."""
        return self.nodes[arg.name] if type(arg) is Ref else arg


class GraphMaker:
    """Makes the graphs of one program.

    Args:
        program: a flat program without module calls, with its state as inputs.
        values: the fake values.
    """

    def __init__(self, program: Program, values: Values) -> None:
        self.program = program
        self.values = values
        self.metas = Metas(program)
        self._bodies: dict[tuple[str, Stack], torch.fx.GraphModule] = {}

    def root(self) -> Made:
        """Return the root graph, with the inputs in the order of the program."""
        graph = self.program.main
        values = [self.values.of_input(formal, spec) for formal, spec in self.program.inputs]
        made = self._graph(graph, values, ())
        if not isinstance(graph.output, tuple):
            raise UnsupportedProgram(
                f"the root returns {graph.output}, but an exported program returns a tuple"
            )
        return made

    def _graph(self, graph: Graph, values: Sequence[Any], base: Stack) -> Made:
        work = _Work(self, base)
        for formal, value in zip(graph.inputs, values, strict=True):
            work.placeholder(formal, value)
        for node in graph.nodes:
            if not is_boundary(node):
                work.node(node)
        work.made.graph.output(work.arg(graph.output))
        return work.made

    def body(
        self, name: str, owner: Node, operands: Sequence[Any], base: Stack
    ) -> torch.fx.GraphModule:
        """Return the module of an operator's body, one for each enclosing stack of calls.

        Args:
            name: the id of its graph.
            owner: the operator.
            operands: the fake values of the operands, the last for the last input of the body.
            base: the module calls around the operator.
        """
        module = self._bodies.get((name, base))
        if module is None:
            graph = self.program.graphs[name]
            values = [
                self.values.of_operand(formal, owner, value)
                for formal, value in _from_the_end(graph.inputs, operands)
            ]
            made = self._graph(graph, values, base)
            module = self._bodies[name, base] = torch.fx.GraphModule(made.attributes, made.graph)
        return module


def _why_not_read(node: Node, slot: str, program: Program) -> str:
    # Reads of tensors in the root became inputs.
    name = join("", slot)
    if name not in program.state.modules:
        return (
            f"node {node.name} reads the state {slot!r} inside the body of an operator, which exported programs cannot; "
            "pass the value to the operator as an operand"
        )
    text = f"node {node.name} reads the module {name!r}, and exported programs call no modules"
    called = [user.do for user in program.main.nodes if node.name in user.refs()]
    if CALL_GUARDS in called:
        return f"{text}; it checks the guards of ep.module(): import ep itself with px.import_ep(ep), which keeps them"
    return f"{text}; {EXPORT_AGAIN}"


def _from_the_end(formals: Sequence[Input], operands: Sequence[Any]) -> list[tuple[Input, Any]]:
    missing = len(formals) - len(operands)
    padded = [None] * missing + list(operands) if missing > 0 else list(operands)[-missing:]
    return list(zip(formals, padded, strict=True))


class _Work:
    """A graph under construction."""

    def __init__(self, maker: GraphMaker, base: Stack) -> None:
        self.maker = maker
        self.base = base
        self.made = Made(torch.fx.Graph())
        self.fakes: dict[str, Any] = {}
        """The fake value of each value."""
        self._attributes = Names([])
        self._readers: dict[tuple[str, Stack], torch.fx.Node] = {}
        """The reader of each body at each place."""
        self._place: Stack = ()
        """The place of the current node."""

    def placeholder(self, formal: Input, value: Any) -> None:
        """Add an input; keep its name if Python allows it, because callers use it."""
        name = formal.name
        plain = is_plain_name(name)
        made = self.made.graph.placeholder(name if plain else f"input_{len(self.made.nodes)}")
        if plain and made.name != name:
            made.name = name  # fx appends a number to names of builtins, such as `input`
        self._keep(name, made, value, _thawed(formal.meta))

    def node(self, node: Node) -> None:
        """Add an operator."""
        do = node.do
        if type(do) is Get:
            raise UnsupportedProgram(_why_not_read(node, do.slot, self.maker.program))
        assert type(do) is Op, "the program calls no module"
        target = check_target(node)
        self._attach_bodies(node)
        args = tuple([self.arg(arg) for arg in node.args]) if node.args else ()
        kwargs = {key: self.arg(part) for key, part in node.kwargs}
        value = self._value(node, target)
        made = self.made.graph.create_node("call_function", target, args, kwargs, name=node.name)
        self._keep(node.name, made, value, self.maker.metas.of_node(node, self.base))
        bindings = self.maker.values.bindings.pop(node.name, None)
        if bindings:
            made.meta["unbacked_bindings"] = bindings

    def _attach_bodies(self, node: Node) -> None:
        stack = self.maker.metas.absolute(self.base, node.stack)
        self._place = () if node.op_name == "higher_order.invoke_subgraph" else stack
        for body in node.bodies:
            if (body, self._place) not in self._readers:
                operands = [self._fake(part) for part in _operands(node.args)]
                wanted = last_name(body).lstrip("$")
                plain = is_plain_name(wanted) and not hasattr(torch.fx.GraphModule, wanted)
                module = self.maker.body(body, node, operands, stack)
                self._readers[body, self._place] = self._attach(wanted if plain else "body", module)

    def _value(self, node: Node, target: Any) -> Any:
        values = self.maker.values
        known, value = values.known_value(node)
        if known:
            return value
        args = [self._fake(arg) for arg in node.args]
        return values.inferred(
            node, target, args, {key: self._fake(part) for key, part in node.kwargs}
        )

    def _keep(self, name: str, made: torch.fx.Node, value: Any, meta: dict[str, Any]) -> None:
        made.meta = {**meta, "val": value}
        self.made.nodes[name] = made
        self.fakes[name] = value

    def _attach(self, wanted: str, value: Any) -> torch.fx.Node:
        name = self._attributes.fresh(wanted)
        self.made.attributes[name] = value
        return self.made.graph.create_node("get_attr", name, name=name)

    def arg(self, arg: Arg) -> Any:
        """Return the argument in fx."""
        return thawed(arg, self._leaf)

    def _leaf(self, arg: Arg) -> Any:
        kind = type(arg)
        if kind is Ref:
            return self.made.nodes[arg.name]
        if isinstance(arg, TREES):
            return self._attach("spec", arg)
        return self._readers[arg.graph, self._place] if kind is Body else check_literal(arg)

    def _fake(self, arg: Arg) -> Any:
        return thawed(arg, self._fake_leaf)

    def _fake_leaf(self, arg: Arg) -> Any:
        kind = type(arg)
        if kind is Ref:
            return self.fakes[arg.name]
        return (
            self.made.attributes[str(self._readers[arg.graph, self._place].target)]
            if kind is Body
            else arg
        )


def _operands(args: Iterable[Arg]) -> list[Arg]:
    # The operands that an operator passes to its bodies: its arguments, with tuples and lists flattened.
    found: list[Arg] = []
    for arg in args:
        if type(arg) in (tuple, Items):
            found.extend([part for part in arg if type(part) is not Body])
        elif type(arg) is not Body:
            found.append(arg)
    return found


class Values(FakeValues):
    """The fake values of a program under export."""

    def of_operand(self, formal: Any, owner: Node, operand: Any) -> Any:
        """Return the fake value of an input of an operator's body: its own, or that of the operand."""
        if "val" in formal.meta and self.is_ours(formal.meta["val"]):
            return formal.meta["val"]
        if operand is None or last_name(owner.op_name) in SLICING:
            raise UnsupportedProgram(
                f"{place_of(owner)}: the input {formal.name!r} of its body has no fake value, and the operands do not "
                f"determine it; set its meta['val']"
            )
        return operand

    def inferred(
        self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the result of an operator on fake arguments.

        Args:
            node: the node.
            target: its callable.
            args: fake values and literals; for a body, its module.
            kwargs: the keyword arguments.

        Raises:
            UnsupportedProgram: the operator raises, or cannot run on fake values.
        """
        try:
            with running(self.mode):
                args, kwargs = pytree.tree_map_only(
                    torch.Tensor, per_example, (tuple(args), dict(kwargs))
                )
                return self.run(node, target, args, kwargs)
        except Exception as error:
            message = first_line(error)
            raise UnsupportedProgram(
                f"{place_of(node)}: it has no fake value, and its operator fails on those of its arguments ({message}); "
                "fix the node, or set its meta['val']"
            ) from error


SLICING = frozenset(
    {"map_impl", "map", "scan", "associative_scan", "flex_attention", "flex_attention_backward"}
)
"""Operators whose bodies take different shapes than the operator."""

LISTS = frozenset({"from_node", "source_fn_stack"})
"""Entries that are lists in torch and tuples in meta."""

PLAIN = (str, int, bool, float, type(None))


class Metas:
    """Writes meta for the nodes of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.first = first_paths(program.modules)
        self._stacks: dict[Stack, dict[str, tuple[str, str]]] = {}
        self._forward = _forward_calls(program)

    def of_node(self, node: Node, base: Stack) -> dict[str, Any]:
        """Return the meta of a node.

        Args:
            node: of any graph.
            base: the module calls around the operator whose body it is in; () in the root.
        """
        stack = node.stack
        if self._forward and stack and is_backward(node.meta):
            stack = tuple(
                [
                    evolve(frame, call=frame.call - self._forward.get(frame.path, 0))
                    for frame in stack
                ]
            )
        return {**_thawed(node.meta), "nn_module_stack": self.spelled(self.absolute(base, stack))}

    def absolute(self, base: Stack, stack: Stack) -> Stack:
        """Return the module calls around a node of a body, starting at the root."""
        if not base:
            return stack
        return (*base, *[evolve(frame, path=join(base[-1].path, frame.path)) for frame in stack])

    def spelled(self, stack: Stack) -> dict[str, tuple[str, str]]:
        """Return the ``nn_module_stack`` of a stack, a new dict from keys to (path, class)."""
        found = self._stacks.get(stack)
        if found is None:
            found = self._stacks[stack] = spelled_stack(
                [(frame.path, frame.call) for frame in stack], self.program.types, self.first
            )
        return dict(found)


def _thawed(meta: Meta) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in meta.items():
        if key == ORIGIN:
            continue  # not part of exported programs
        if type(value) not in PLAIN:
            value = list(value) if key in LISTS and isinstance(value, tuple) else thaw(value)
        made[key] = value
    return made


def _forward_calls(program: Program) -> dict[str, int]:
    # The number of calls of each module in the forward; empty for a program without backward.
    if not any(type(spec) is LossOutput for spec in program.signature.outputs):
        return {}
    return call_counts([node for node in program.main.nodes if not is_backward(node.meta)])
