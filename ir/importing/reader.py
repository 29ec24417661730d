"""The one reader of fx graphs: those of a ``GraphModule`` and of the modules nested in it become ``Graph`` values.

A ``Front`` reads the parts that depend on the tracer: module stacks, attributes, operators, meta, and nested graphs.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch
import torch.fx
from attrs import Factory, define, field, frozen
from torch.fx.immutable_collections import immutable_list

from ..arguments import TREES, Arg, Args, Body, Items, Kwargs, Record, Ref
from ..callables import Method, op_name
from ..effects.registered import effects_of, only_overload
from ..errors import InputError, InvalidProgram, UnsupportedProgram, Violation
from ..graph import Get, Graph, Input, Node, Op, Stack
from ..meta import Meta, freeze_meta, source_line
from ..names import Names, is_identifier, is_plain_path
from ..operators import Declared
from ..origins import INPUT, Imported
from ..torch_private import FakeTensor, per_example, pytree
from ..verify.findings import PLAIN, short

FxNode = torch.fx.Node

LISTS = frozenset({list, tuple, immutable_list})


@frozen
class Job:
    """A graph module to read, and its role."""

    name: str
    """The name of its graph in the program."""
    module: Any = field(repr=False)
    holder: Any = field(default=None, repr=False)
    """The module whose state its reads name."""
    prefix: str = ""
    """The path of the graph module from the holder."""


@define(eq=False)
class Operators:
    """Keeps one ``Op`` for each function and method; functions with the same name get distinct ones.

    >>> operators = Operators({})
    >>> operators.function(lambda: 1).name == operators.function(lambda: 2).name
    False
    """

    _declared: Declared
    """The declared effects of operators of other libraries."""
    _known: dict[Any, tuple[Any, Op]] = Factory(dict)
    """Each target with its op, by its ``id``; methods by value."""
    _bearers: dict[str, Any] = Factory(dict)

    def function(self, target: Any) -> Op:
        """Return the op that calls a function."""
        return self._op(id(target), target)

    def method(self, name: str, *, of_tensor: bool) -> Op:
        """Return the op that calls a method."""
        method = Method(name, of_tensor)
        method = Method(name) if of_tensor and effects_of(method).unknown else method
        return self._op(method, method)

    def all(self) -> list[Op]:
        """Return the operators that nodes call."""
        return [op for _, op in self._known.values()]

    def _op(self, key: Any, target: Any) -> Op:
        if key not in self._known:
            called = only_overload(target)
            name = wanted = op_name(called) if is_plain_path(op_name(called)) else "function"
            number = 1
            while self._bearers.setdefault(name, called) is not called:
                number += 1
                name = f"{wanted}#{number}"
            found = (
                self._declared.get(called)
                if self._declared and type(called).__hash__ is not None
                else None
            )
            self._known[key] = (
                target,
                Op(name, effects_of(called) if found is None else found, called),
            )
        return self._known[key][1]


class Front:
    """Reads the graphs of one graph module, nested ones included; its methods read the parts that depend on the tracer.

    Args:
        declared: the declared effects of operators of other libraries.
        origins: whether nodes and inputs get an origin.
    """

    def __init__(self, declared: Declared, *, origins: bool) -> None:
        self.operators = Operators(declared)
        self.origins = origins
        self.graphs: dict[str, Graph] = {}
        self.todo: list[Job] = []

    def read(self, module: torch.fx.GraphModule) -> None:
        """Fill ``graphs``: the root under ``""``.

        Raises:
            InvalidProgram: a name is invalid, or a value is used before it is defined.
            UnsupportedProgram: it cannot be represented faithfully.
        """
        self.todo.append(Job("", module, module))
        while self.todo:
            job = self.todo.pop()
            if job.name not in self.graphs:
                reader = GraphReader(self, job)
                self.graphs[job.name] = self.settled(reader, reader.graph())

    def settled(self, at: GraphReader, graph: Graph) -> Graph:  # noqa: ARG002
        """Return the graph with stray nodes moved into the calls of their neighbours."""
        return graph

    def stack(self, at: GraphReader, fx_node: Any) -> Stack | None:
        """Return the module calls around a node; None if the tracer did not record them."""
        raise NotImplementedError

    def meta(self, fx_node: Any) -> dict[str, Any]:
        """Return the meta of a value."""
        return fx_node.meta

    def body(self, at: GraphReader, fx_node: Any, module: torch.fx.GraphModule, wanted: str) -> str:  # noqa: ARG002
        """Return the name of the graph of a module that operators take, which is read later."""
        self.todo.append(Job(wanted, module))
        return wanted

    def attribute(self, at: GraphReader, fx_node: Any, owner: torch.nn.Module, value: Any) -> Get:  # noqa: ARG002
        """Return the read of state of a ``get_attr`` node."""
        raise UnsupportedProgram(
            f"reads the attribute {fx_node.target!r}, a {type(value).__name__}"
        )

    def call(self, at: GraphReader, fx_node: Any) -> None:  # noqa: ARG002
        """Add the node of a ``call_module``, ``call_method`` or other node."""
        raise UnsupportedProgram(f"an exported program has no {fx_node.op!r} node")

    def object(self, value: Any) -> Arg:
        """Return an argument that is neither a literal nor a container, if a program can have it."""
        return value


class GraphReader:
    """Reads one graph.

    Args:
        front: of the tracer.
        job: the graph module.
    """

    def __init__(self, front: Front, job: Job) -> None:
        self.front = front
        self.job = job
        self.user: Any = None
        """The current fx node."""
        self.known: dict[Any, Arg] = {}
        self.inputs: dict[str, Input] = {}
        self.nodes: list[Node] = []
        self.stacks: dict[str, Stack | None] = {}
        self.renamed: dict[str, str] = {}
        """Results of in-place operators on inputs, by name, with the inputs that they are."""
        self.output: Arg = ()
        self.names = Names([])

    def graph(self) -> Graph:
        """Return the graph."""
        fx_nodes = checked_nodes(self.job.module.graph, self.job.name)
        self.names = Names([fx_node.name for fx_node in fx_nodes])
        steps = {
            "placeholder": self._placeholder,
            "call_function": self._function,
            "get_attr": self._attribute,
        }
        steps["output"] = self._output
        try:
            for fx_node in fx_nodes:
                self.user = fx_node
                step = steps.get(fx_node.op)
                if step is not None:
                    step(fx_node)
                else:
                    self.front.call(self, fx_node)
        except (UnsupportedProgram, InputError) as error:
            raise UnsupportedProgram(f"{where(self.user)}: {error}") from error
        except KeyError as error:
            if not isinstance(error.args[0], FxNode):
                raise
            fault = (
                f"it uses {str(error.args[0].name)!r}, which no earlier node of its graph defines"
            )
            raise self.invalid(
                "earlier-values", fault, "keep the node that makes the value, before its users"
            ) from error
        return Graph(tuple(self.inputs.values()), tuple(self.nodes), self.output)

    def invalid(self, rule: str, fault: str, advice: str) -> InvalidProgram:
        """Return the error for the current node."""
        name, source = str(self.user.name), source_line(self.user.meta)
        return InvalidProgram(
            [Violation(rule, fault, graph=self.job.name, node=name, source=source, advice=advice)]
        )

    def _placeholder(self, fx_node: Any) -> None:
        name = fx_node.name
        origin = Imported(name, INPUT) if self.front.origins and not self.job.name else None
        self.known[fx_node] = Ref(name)
        self.inputs[name] = Input(name, self._meta(origin))

    def _output(self, fx_node: Any) -> None:
        self.output = self.argument(fx_node.args[0])

    def _attribute(self, fx_node: Any) -> None:
        target = str(fx_node.target)
        owner, value = find(self.job.module, target)
        if value is None or isinstance(
            value, TREES
        ):  # flex attention passes a TreeSpec to `flat_apply`
            self.known[fx_node] = value
        elif isinstance(value, torch.fx.GraphModule):
            wanted = f"{self.job.name}.{target}" if self.job.name else f"${target}"
            self.known[fx_node] = Body(self.front.body(self, fx_node, value, wanted))
        else:
            self.add(self.front.attribute(self, fx_node, owner, value))

    def _function(self, fx_node: Any) -> None:
        self.add(
            self.front.operators.function(fx_node.target),
            self.arguments(fx_node.args),
            self.keywords(fx_node.kwargs),
        )

    def add(self, do: Any, args: Args = (), kwargs: Kwargs = ()) -> None:
        """Add the node of the current fx node."""
        fx_node, front = self.user, self.front
        name = fx_node.name
        try:
            stack = self.stacks[name] = front.stack(self, fx_node)
        except (AttributeError, TypeError, ValueError) as error:
            raw = str(fx_node.meta.get("nn_module_stack"))[:80]
            fault = f"its nn_module_stack is {raw!r}, not a dict of key to (path, class)"
            raise self.invalid("meta", fault, "correct node.meta['nn_module_stack']") from error
        stack, origin = stack or (), None
        if front.origins:
            origin = Imported(name, do.name, self.job.name, stack, fx_node.meta.get("stack_trace"))
        node = Node(name, do, args, kwargs, stack, self._meta(origin))
        self.nodes.append(node)
        result = result_of(node, self.inputs)
        if result.name != name:
            self.renamed[name] = result.name
        self.known[fx_node] = result

    def _meta(self, origin: Imported | None) -> Meta:
        # Values that were traced in a level of vmap are unusable after it is closed.
        return freeze_meta(outside_of_vmap(self.front.meta(self.user)), origin)

    def helper(self, suffix: str, do: Any, args: Args = ()) -> Ref:
        """Add a node before the current one, and return a reference to it."""
        name = self.names.fresh(f"{self.user.name}_{suffix}")
        self.nodes.append(Node(name, do, args, stack=self.front.stack(self, self.user) or ()))
        return Ref(name)

    def arguments(self, args: Any) -> Args:
        """Return the arguments of a node as values."""
        known = self.known
        return tuple([
            known[arg] if type(arg) is FxNode else arg if type(arg) in PLAIN else self.argument(arg) for arg in args
        ])  # fmt: skip

    def keywords(self, kwargs: Any) -> Kwargs:
        """Return the keyword arguments of a node as values."""
        return (
            tuple([(key, self.argument(value)) for key, value in kwargs.items()]) if kwargs else ()
        )

    def argument(self, arg: Any) -> Arg:
        """Return an argument as a value."""
        kind = type(arg)
        if kind is FxNode:
            return self.known[arg]
        if kind in PLAIN:
            return arg
        if kind in LISTS and PLAIN.issuperset(map(type, arg)):
            return tuple(arg) if kind is tuple else Items(arg)  # most are sizes
        if isinstance(arg, list):
            return Items(self.arguments(arg))
        if isinstance(arg, tuple):  # fx keeps named tuples, and turns all others into plain ones
            parts = self.arguments(arg)
            is_named = pytree.is_namedtuple_instance(arg)
            return (
                self.helper("tuple", self.front.operators.function(kind), parts)
                if is_named
                else parts
            )
        if isinstance(arg, dict):
            return Record(
                tuple([(self.argument(key), self.argument(part)) for key, part in arg.items()])
            )
        if kind is slice:
            return slice(*self.arguments((arg.start, arg.stop, arg.step)))
        return self.front.object(arg)


def checked_nodes(graph: Any, name: str) -> list[Any]:
    """Return the nodes of an fx graph; its last node must be its only ``output``, because torch runs nothing after it.

    Args:
        graph: the fx graph.
        name: its name in the program.

    Raises:
        InvalidProgram: it has no or several outputs, or nodes after the output.

    >>> checked_nodes(torch.fx.symbolic_trace(torch.nn.ReLU()).graph, "")
    [input_1, relu, output]
    """
    nodes = list(graph.nodes)
    places = [place for place, node in enumerate(nodes) if node.op == "output"]
    if places == [len(nodes) - 1]:
        return nodes
    if len(places) == 1:
        fault = f"the fx graph has the node {nodes[places[0] + 1].name!r} after its output, which never runs"
    else:
        fault = f"the fx graph has {len(places) or 'no'} output nodes, not one"
    advice = "call graph.output(...) once, at the end"
    raise InvalidProgram(
        [Violation("signature-outputs", fault, graph=name, node="output", advice=advice)]
    )


def find(module: torch.nn.Module, target: str) -> tuple[torch.nn.Module, Any]:
    """Return the module that has an attribute, and the attribute.

    Raises:
        UnsupportedProgram: the attribute does not exist.

    >>> find(torch.nn.Sequential(torch.nn.ReLU()), "0.inplace")
    (ReLU(), False)
    """
    owner: Any = module
    *above, last = target.split(".")
    for part in above:
        owner = getattr(owner, part, None) if isinstance(owner, torch.nn.Module) else None
    if not isinstance(owner, torch.nn.Module) or not hasattr(owner, last):
        raise UnsupportedProgram(f"the module has no attribute {target!r}")
    return owner, getattr(owner, last)


def where(fx_node: Any) -> str:
    """Return the name of a node for messages, with the user's source line if it is known."""
    name, line = (
        fx_node.name if is_identifier(fx_node.name) else short(fx_node.name),
        source_line(fx_node.meta),
    )
    return f"node {name}" + (f" ({line})" if line else "")


def result_of(node: Node, inputs: Container[str]) -> Ref:
    """Return the reference to the result of a node: the result of an in-place operator on an input is the input.

    >>> from purefx.ir.operators import op_of
    >>> import torch
    >>> result_of(Node("y", op_of(torch.ops.aten.add_.Tensor), (Ref("x"), 1)), {"x"})
    Ref(name='x')
    """
    returns = node.declared.returns
    if len(returns) == 1 and returns[0] is not None:
        written = returns[0].find(node.args, node.kwargs)
        if type(written) is Ref and written.name in inputs:
            return written
    return Ref(node.name)


def outside_of_vmap(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the meta of an fx node with one example in place of each value that was traced in a level of vmap.

    The level is closed, so no operator accepts the value.

    >>> meta = {"val": (torch.ones(2), 3)}
    >>> outside_of_vmap(meta) is meta
    True
    """
    made = dict(meta)
    for key in VALUES:
        value = meta.get(key)
        if value is None or type(value) is FakeTensor:  # nearly all are
            continue
        leaves, spec = pytree.tree_flatten(value)
        examples = [
            per_example(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ]
        if any(example is not leaf for example, leaf in zip(examples, leaves, strict=True)):
            made[key] = pytree.tree_unflatten(examples, spec)
    return meta if all(made[key] is meta[key] for key in meta) else made


VALUES = ("val", "example_value")
"""The entries of exporters and of Dynamo for the value of a node."""
