"""``Node`` and ``Graph``: a graph has inputs, ordered nodes that each define one value, and an output.

A node calls an operator, calls a body, or reads a piece of state.  Both are values: editing returns new ones.
``place_of`` describes the place of a node for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import takewhile
from operator import eq
from types import MappingProxyType
from typing import Any, ClassVar, final

from attrs import field, frozen

from .arguments import (
    Arg,
    Args,
    Body,
    Kwargs,
    Ref,
    Strict,
    bodies_in,
    map_refs,
    refs_in,
    replace_refs,
)
from .effects.declared import PURE, Effects
from .errors import ArgumentError
from .meta import EMPTY_META, Meta, source_line
from .names import Names
from .persistent import Displayed, grouped


class Uncopied:
    """Base class of objects that copies of their owners share: a deep copy returns the same object.

    >>> import copy
    >>> code = Uncopied()
    >>> copy.deepcopy([code])[0] is code
    True
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class Value(Uncopied):
    """Base class of immutable values without fields: copying returns the same object, and pickling is refused.

    >>> import copy
    >>> from purefx.ir import Graph
    >>> graph = Graph((), ())
    >>> copy.copy(graph) is graph, copy.deepcopy(graph) is graph
    (True, True)
    """

    __slots__ = ()
    _saved: ClassVar[str] = (
        "px.save(program, path) writes its program to a file, and px.load reads it"
    )
    """The advice of the error if it is pickled."""

    def __copy__(self) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError(f"a {type(self).__name__} cannot be pickled; {self._saved}")


@frozen(cache_hash=True)
class Frame:
    """One call of one module: its path and the number of the call, counted from 0.

    The path is relative to the module of the graph that the frame is in; one that begins with ``/`` is counted from the root,
    for a module that is not below that one (see ``names.py``).

    >>> str(Frame("layers.0", 2))
    'layers.0@2'
    """

    path: str
    call: int = 0

    def __str__(self) -> str:
        return f"{self.path}@{self.call}" if self.call else self.path


Stack = tuple[Frame, ...]
"""The module calls that a node is inside, outermost first, below the graph that holds it."""


def common_prefix(stacks: Iterable[Stack]) -> Stack:
    """Return the longest common prefix of some stacks; () for none.

    >>> a, b = Frame("a"), Frame("a.b")
    >>> common_prefix([(a, b), (a,)])
    (Frame(path='a', call=0),)
    """
    found: Stack | None = None
    for stack in stacks:
        if found is None:
            found = stack
        elif stack is not found:
            found = found[: sum(takewhile(bool, map(eq, found, stack)))]
    return found or ()


@final
@frozen
class Op:
    """Calls an operator or a plain function.

    Two ops are equal when name and effects agree; ``target`` is the callable that runs.

    >>> Op("toy.neg", target=lambda x: -x) == Op("toy.neg")
    True
    """

    name: str
    effects: Effects = field(default=PURE, repr=False)
    target: Callable[..., Any] | None = field(default=None, eq=False, repr=False)


@final
@frozen
class Call:
    """Calls a body: ``instance`` is the module call, ``graph`` the id of the body.

    The path of the instance is relative to the module whose body holds the node.

    >>> str(Call(Frame("mlp", 1), "layers.0.mlp").instance)
    'mlp@1'
    """

    instance: Frame
    graph: str


@final
@frozen
class Get:
    """Reads the state named ``slot``, relative to the module whose body holds the node.

    >>> Get("weight").slot
    'weight'
    """

    slot: str


Do = Op | Call | Get


@frozen
class Node(Value, Displayed):
    """One step of a graph.

    >>> from purefx.ir import Node, Op, Ref
    >>> a = Node("y", Op("toy.add"), (Ref("x"), 1))
    >>> a == Node("y", Op("toy.add"), (Ref("x"), 1)), a == Node("y", Op("toy.add"), (Ref("x"), True))
    (True, False)
    """

    name: str
    do: Do
    args: Args = field(default=(), eq=Strict)
    kwargs: Kwargs = field(default=(), eq=Strict)
    stack: Stack = ()
    meta: Meta = field(default=EMPTY_META, eq=False, repr=False)

    @property
    def op_name(self) -> str:
        """The name of its operator; "" for a call or a read.

        >>> Node("y", Op("toy.neg")).op_name, Node("w", Get("weight")).op_name
        ('toy.neg', '')
        """
        return self.do.name if type(self.do) is Op else ""

    @property
    def target(self) -> Any:
        """The callable of its operator; None without one, and for a call or a read.

        >>> Node("y", Op("toy.neg", target=abs)).target is abs, Node("w", Get("weight")).target
        (True, None)
        """
        return self.do.target if type(self.do) is Op else None

    @property
    def declared(self) -> Effects:
        """The declared effects of its operator; none for a call or a read, whose effects depend on the program.

        >>> Node("y", Op("toy.neg")).declared is Node("w", Get("weight")).declared is PURE
        True
        """
        return self.do.effects if type(self.do) is Op else PURE

    @property
    def bodies(self) -> list[str]:
        """The ids of the graphs that it passes to its operator, in order, repeats kept."""
        return bodies_in(self.args, self.kwargs) if self.declared.through_bodies else []

    @property
    def val(self) -> Any:
        """Its fake value; None without one."""
        return self.meta.get("val")

    def refs(self) -> list[str]:
        """Return the names of the used values, in order, repeats kept."""
        return refs_in(self.args, self.kwargs)

    @property
    def projection(self) -> tuple[str, int] | None:
        """The value and the index of a ``getitem``; None for any other node.

        >>> Node("y", Op("operator.getitem"), (Ref("x"), 1)).projection
        ('x', 1)
        """
        if self.op_name != "operator.getitem" or len(self.args) != 2:
            return None
        whole, index = self.args
        return (whole.name, index) if type(whole) is Ref and type(index) is int else None

    @property
    def item(self) -> tuple[str, int]:
        """The value and the index of a ``getitem``, as in ``projection``; no name for any other node.

        >>> Node("y", Op("operator.getitem"), (Ref("x"), 1)).item, Node("y", Op("toy.neg")).item
        (('x', 1), ('', 0))
        """
        return self.projection or ("", 0)

    @property
    def callees(self) -> list[str]:
        """The ids of the graphs that it calls or passes to its operator, in order, repeats kept."""
        return [self.do.graph] if type(self.do) is Call else self.bodies

    def evolve(
        self,
        *,
        name: str | None = None,
        do: Do | None = None,
        args: Args | None = None,
        kwargs: Kwargs | None = None,
        stack: Stack | None = None,
        meta: Meta | None = None,
    ) -> Node:
        """Return a copy with other fields; the same object if none differs.

        >>> node = Node("y", Op("toy.neg"), (Ref("x"),))
        >>> node.evolve(name="z").name, node.evolve(name="y", stack=node.stack) is node
        ('z', True)
        """
        name, do = name or self.name, do or self.do
        args, kwargs = (
            self.args if args is None else args,
            self.kwargs if kwargs is None else kwargs,
        )
        stack, meta = self.stack if stack is None else stack, self.meta if meta is None else meta
        same = (
            do is self.do
            and args is self.args
            and kwargs is self.kwargs
            and stack is self.stack
            and meta is self.meta
        )
        return self if same and name == self.name else Node(name, do, args, kwargs, stack, meta)

    def with_refs(self, rename: Callable[[Ref | Body], Arg]) -> Node:
        """Return a copy with other values and bodies as operands; the same object if none differs.

        Args:
            rename: returns the replacement of a reference, or the reference itself.

        >>> Node("y", Op("toy.neg"), (Ref("x"),)).with_refs(lambda ref: Ref("z")).args
        (Ref(name='z'),)
        """
        return self.evolve(
            args=map_refs(self.args, rename),
            kwargs=map_refs(self.kwargs, rename) if self.kwargs else (),
        )

    def using(self, known: Mapping[str, Arg]) -> Node:
        """Return a copy with some operands replaced, by name; the same object if it uses none of them.

        >>> Node("y", Op("toy.neg"), (Ref("x"),)).using({"x": 7}).args
        (7,)
        """
        return self.evolve(
            args=replace_refs(self.args, known),
            kwargs=replace_refs(self.kwargs, known) if self.kwargs else (),
        )

    def calling(self, rename: Callable[[str], str]) -> Node:
        """Return a copy that calls other graphs, or passes others to its operator; the same object if none differs.

        >>> Node("y", Call(Frame("m"), "m")).calling(lambda graph: "shared").do.graph
        'shared'
        """
        do = self.do
        if type(do) is not Call:
            return self.with_refs(
                lambda ref: (
                    Body(graph)
                    if type(ref) is Body and (graph := rename(ref.graph)) != ref.graph
                    else ref
                )
            )
        graph = rename(do.graph)
        return self if graph == do.graph else self.evolve(do=Call(do.instance, graph))

    def renamed(self, known: Mapping[str, Ref]) -> Node:
        """Return a copy with a new name and renamed operands; the same object if nothing changes.

        >>> Node("y", Op("toy.neg"), (Ref("x"),)).renamed({"x": Ref("a"), "y": Ref("b")})
        Node(name='b', do=Op(name='toy.neg'), args=(Ref(name='a'),), kwargs=(), stack=())
        """
        used, name = self.using(known), known.get(self.name)
        return used if name is None else used.evolve(name=name.name)


@frozen
class Input(Value):
    """A formal parameter of a graph.

    >>> Input("x") == Input("x", meta={"val": 1})
    True
    """

    name: str
    meta: Meta = field(default=EMPTY_META, eq=False, repr=False)

    @property
    def val(self) -> Any:
        """Its fake value; None without one."""
        return self.meta.get("val")


@frozen
class Graph(Value, Displayed):
    """A body: its inputs, its nodes in order, its output.

    >>> from purefx.ir import Graph, Input, Node, Op, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), Ref("y"))
    >>> graph.users["x"]
    ('y',)
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    output: Arg = field(default=(), eq=Strict)

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """Memo of functions of the graph (``derived``), by function."""
        return {}

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return MappingProxyType({node.name: node for node in self.nodes})

    @cached_property
    def position(self) -> Mapping[str, int]:
        """The number of each node, by name."""
        return MappingProxyType({node.name: number for number, node in enumerate(self.nodes)})

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return [formal.name for formal in self.inputs]

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the users of each value, in order; unused values are left out."""
        first: dict[str, str] = {}
        more: dict[str, dict[str, None]] = {}  # most values have one user
        for node in self.nodes:
            for name in refs_in(node.args, node.kwargs):
                if first.setdefault(name, node.name) is not node.name:
                    more.setdefault(name, {})[node.name] = None
        return MappingProxyType(
            {name: (one, *more[name]) if name in more else (one,) for name, one in first.items()}
        )

    def users_of(self, name: str) -> list[Node]:
        """Return the nodes that use a value, in order."""
        return [self.by_name[user] for user in self.users.get(name, ())]

    @cached_property
    def last_uses(self) -> Mapping[int, tuple[str, ...]]:
        """The values that die at each node, by its position: those without a later use, and its own if it is unused."""
        last: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            last[node.name] = index
            for name in node.refs():
                last[name] = index
        for name in self.output_refs():
            last.pop(name, None)
        return MappingProxyType(
            {
                at: tuple(names)
                for at, names in grouped([(at, name) for name, at in last.items()]).items()
            }
        )

    @cached_property
    def distinct(self) -> tuple[Do, ...]:
        """The operations of its nodes, each object once.

        Nodes that call one overload mostly share it, so a check of all operators needs few steps.
        """
        return tuple({id(do): do for do in [node.do for node in self.nodes]}.values())

    @cached_property
    def callers(self) -> tuple[Node, ...]:
        """The nodes that call a graph, or pass one to an operator."""
        calling = {
            id(do)
            for do in self.distinct
            if type(do) is Call or (type(do) is Op and do.effects.through_bodies)
        }
        return tuple([node for node in self.nodes if id(node.do) in calling]) if calling else ()

    @cached_property
    def callees(self) -> tuple[str, ...]:
        """The ids of the graphs that it calls or passes to operators, in order, repeats kept."""
        return tuple([name for node in self.callers for name in node.callees])

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The ids of the graphs that it calls as modules, in order, repeats kept."""
        return tuple([node.do.graph for node in self.callers if type(node.do) is Call])

    @cached_property
    def reads(self) -> Mapping[str, str]:
        """The slot of each read, by name of the node."""
        return MappingProxyType(
            {node.name: node.do.slot for node in self.nodes if type(node.do) is Get}
        )

    @cached_property
    def metas(self) -> Mapping[str, Meta]:
        """The meta of each value, inputs first."""
        return MappingProxyType(
            {value.name: value.meta for values in (self.inputs, self.nodes) for value in values}
        )

    def names(self) -> Names:
        """Return a ``Names`` in which the names of inputs and nodes are used."""
        return Names([value.name for values in (self.inputs, self.nodes) for value in values])

    def with_nodes(
        self, nodes: Iterable[Node], *, inputs: tuple[Input, ...] | None = None
    ) -> Graph:
        """Return a copy with other nodes and inputs; the same object if all are the same objects.

        >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), Ref("y"))
        >>> graph.with_nodes(list(graph.nodes)) is graph
        True
        """
        made, inputs = tuple(nodes), self.inputs if inputs is None else inputs
        same = list(map(id, (*inputs, *made))) == list(map(id, (*self.inputs, *self.nodes)))
        return self if same else Graph(inputs, made, self.output)

    def with_callers(self, change: Callable[[Node], Node]) -> Graph:
        """Return a copy in which the nodes that call a graph, or pass one to an operator, are others.

        Args:
            change: returns the node in the place of such a node.

        >>> graph = Graph((), (Node("y", Call(Frame("m"), "m")),))
        >>> graph.with_callers(lambda node: node.calling(lambda body: "shared")).called
        ('shared',)
        """
        changed = {node.name: change(node) for node in self.callers}
        return (
            self.with_nodes([changed.get(node.name, node) for node in self.nodes])
            if changed
            else self
        )

    def renamed(self, known: Mapping[str, Ref]) -> Graph:
        """Return a copy with some values renamed everywhere; the same object if none is.

        >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), Ref("y"))
        >>> print(graph.renamed({"x": Ref("a")}))
        graph @""(a) {
          y = toy.neg(a) ! pure
          return y
        }
        """
        if not known:
            return self
        inputs = tuple(
            [
                Input(known[one.name].name, one.meta) if one.name in known else one
                for one in self.inputs
            ]
        )
        return Graph(
            inputs,
            tuple([node.renamed(known) for node in self.nodes]),
            replace_refs(self.output, known),
        )

    @property
    def results(self) -> tuple[Arg, ...]:
        """The results: the items of a tuple, or the one output."""
        return self.output if type(self.output) is tuple else (self.output,)

    def output_refs(self) -> list[str]:
        """Return the names of the values that the output uses, in order, repeats kept."""
        return refs_in((self.output,))


def place_of(node: Node) -> str:
    """Return the place of a node for messages: its module, its name, and the line of user code that made it.

    >>> from purefx.ir import Op
    >>> place_of(Node("y", Op("toy.neg")))
    'node y'
    """
    path, line = node.stack[-1].path + " / " if node.stack else "", source_line(node.meta)
    return f"node {path}{node.name}" + (f" ({line})" if line else "")
