"""Extraction: turn a graph whose module calls are contiguous into a tree of bodies.

Bodies of operators move with the operators.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.arguments import Ref
from ...ir.graph import Call, Frame, Graph, Input, Node, Op, Stack
from ...ir.names import Names, relative
from ...ir.origins import input_meta
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.rewriter import Relocation
from ..dispatch import call_nodes
from ..shared_bodies import placed


class MovedBodies:
    """The bodies of operators, instantiated in the modules of one program.

    Args:
        program: a program whose root has paths from the root.
        names: makes ids of graphs.
    """

    def __init__(self, program: Program, names: Names) -> None:
        self.program = program
        self.names = names
        self.graphs: dict[str, Graph] = {}
        """The rewritten bodies."""
        self._known: dict[tuple[str, str], str] = {}
        self._first: dict[str, str] = {}
        self._todo: list[tuple[str, str]] = []
        self._placed = placed(program)

    def take(self, node: Node, path: str) -> Node:
        """Return an operator of the root, instantiated in a module.

        Args:
            node: passes bodies to its operator.
            path: the path of the module; ``""`` for the root.
        """
        moved = self._moved(node, path)
        while self._todo:
            name, place = self._todo.pop()
            graph = self.program.graphs[name]
            nodes = [self._moved(inner, place) for inner in graph.nodes]
            inside = inside_of(place)
            self.graphs[self._known[name, place]] = graph.with_nodes(
                [inner.evolve(do=inside.do(inner.do)) for inner in nodes]
            )
        return moved

    def _moved(self, node: Node, path: str) -> Node:
        if not node.declared.through_bodies:
            return node
        return node.calling(
            lambda graph: self._name(graph, path) if graph in self._placed else graph
        )

    def _name(self, name: str, path: str) -> str:
        known = self._known.get((name, path))
        if known is None:
            first = self._first.setdefault(name, path) == path
            known = self._known[name, path] = name if first else self.names.fresh(name)
            self._todo.append((name, path))
        return known


def inside_of(path: str) -> Relocation:
    """Return the relocation of paths from the root into the body of a module.

    >>> from purefx.ir import Get
    >>> inside_of("a").do(Get("a.weight"))
    Get(slot='weight')
    """
    return Relocation(lambda name: relative(name, path))


class Scope:
    """One module call during the walk."""

    __slots__ = (
        "_inside", "around", "calls", "entered", "entries", "frame", "inputs", "level", "number", "outputs", "parent", "path",
        "received", "stacks",
    )  # fmt: skip

    def __init__(self, frame: Frame | None, parent: Scope | None, around: Stack = ()) -> None:
        self.frame = frame
        self.parent = parent
        self.around = around
        """The calls around it that stay flat in its parent."""
        self.stacks: dict[str, Stack] = {}
        """The calls around each node that stay flat in it."""
        self.path = "" if frame is None else frame.path
        """The path of its module, from the root."""
        self.number = 0 if frame is None else frame.call
        """The number of the call."""
        self.level: int = 0 if parent is None else parent.level + 1
        self.entries: list[Node | Scope] = []
        self.entered: set[Frame] = set()
        """The calls inside it that were entered."""
        self.inputs: dict[str, None] = {}
        """Its inputs, by first use: equal layers must be equal bodies."""
        self.received: set[str] = set()
        """Values that a call inside it returned."""
        self.outputs: dict[str, None] = {}
        """Its outputs; after the walk in the order of the graph."""
        self.calls: tuple[Node, ...] = ()
        """The nodes of its parent that call it."""
        self._inside: Relocation | None = None

    @property
    def inside(self) -> Relocation:
        """The relocation of paths from the root into its body."""
        if self._inside is None:
            self._inside = inside_of(self.path)
        return self._inside

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of its body; calls inside it are where they were entered."""
        found: list[Node] = []
        for entry in self.entries:
            if isinstance(entry, Scope):
                found.extend(entry.calls)
                continue
            if self.frame is not None:
                do = entry.do if type(entry.do) is Op else self.inside.do(entry.do)
                stack = (
                    self.inside.frames(self.stacks[entry.name]) if entry.name in self.stacks else ()
                )
                entry = Node(entry.name, do, entry.args, entry.kwargs, stack, entry.meta)
            found.append(entry)
        return tuple(found)


class Walk:
    """Puts the nodes of a root into the calls of their stacks, and finds the arguments and results of each call.

    Args:
        program: the source of everything except the nodes of the root.
        nodes: the nodes of the root, in the new order.
        flat: the calls that stay flat.
    """

    def __init__(
        self, program: Program, nodes: Sequence[Node], flat: Collection[Frame] = ()
    ) -> None:
        self.source = program
        self.flat = flat
        self.root = Scope(None, None)
        self.scopes: list[Scope] = [self.root]
        """Each before those inside it, in calling order."""
        self.reentered = False
        """Whether a call was entered twice: then it is not contiguous, and the walk was stopped."""
        self.ids = Names(program.graphs)
        self.bodies = MovedBodies(program, self.ids) if len(program.order) > 1 else None
        """The bodies of operators, if any."""
        self.values: dict[str, Node | Input] = {
            formal.name: formal for formal in program.main.inputs
        }
        """All values of the root, in order."""
        self._current = self.root
        self._stack: Stack = ()
        self._calls: Stack = ()
        """The calls of the stack that get bodies."""
        self._rest: Stack = ()
        """The calls around the nodes that stay flat in the current call."""
        self._homes: dict[str, Scope] = dict.fromkeys(self.values, self.root)
        """The scope that computes each value."""
        self._take(nodes)
        if not self.reentered:
            self._finish()

    def _take(self, nodes: Sequence[Node]) -> None:
        homes = self._homes
        for node in nodes:
            if node.stack is not self._stack:
                self._enter(node.stack)
                if self.reentered:
                    return
            scope = self._current
            for name in node.refs():
                home = homes.get(name, scope)
                if home is not scope and name not in scope.inputs and name not in scope.received:
                    self._bring(name, home, scope)
            if self._rest:
                scope.stacks[node.name] = self._rest
            scope.entries.append(
                node if self.bodies is None else self.bodies.take(node, scope.path)
            )
            homes[node.name] = scope
        self.values.update([(node.name, node) for node in nodes])

    def _finish(self) -> None:
        for name in self.source.main.output_refs():
            self._bring(name, self._homes.get(name, self.root), self.root)
        several = [scope for scope in self.scopes if len(scope.outputs) > 1]
        positions = {name: number for number, name in enumerate(self.values)} if several else {}
        for scope in several:
            scope.outputs = dict.fromkeys(sorted(scope.outputs, key=positions.__getitem__))

    def _enter(self, stack: Stack) -> None:
        calls, around = self._split(stack) if self.flat else (stack, [()] * (len(stack) + 1))
        shared = 0
        for mine, other in zip(self._calls, calls, strict=False):
            if mine is not other and mine != other:
                break
            shared += 1
        scope = self._current
        while scope.level > shared:
            assert scope.parent is not None
            scope = scope.parent
        for frame, outer in zip(calls[shared:], around[shared:], strict=False):
            self.reentered = self.reentered or frame in scope.entered
            scope.entered.add(frame)
            inner = Scope(frame, scope, outer)
            scope.entries.append(inner)
            self.scopes.append(inner)
            scope = inner
        self._current = scope
        self._stack, self._calls, self._rest = stack, calls, around[-1]

    def _split(self, stack: Stack) -> tuple[Stack, list[Stack]]:
        # The calls that get bodies, and the flat calls before each of them and after the last.
        calls: list[Frame] = []
        around: list[Stack] = [()]
        for frame in stack:
            if frame in self.flat:
                around[-1] = (*around[-1], frame)
            else:
                calls.append(frame)
                around.append(())
        return tuple(calls), around

    def _bring(self, name: str, home: Scope, user: Scope) -> None:
        # From the user upwards, every scope gets the value as an input, until one has it or contains the scope that computes it.
        # From there down to the maker, every scope returns it.
        scope = user
        while scope is not home and name not in scope.inputs and name not in scope.received:
            if _holds(scope, home):
                break
            scope.inputs[name] = None
            assert scope.parent is not None
            scope = scope.parent
        else:
            return
        maker = home
        while maker is not scope:
            maker.outputs[name] = None
            assert maker.parent is not None
            maker = maker.parent
            maker.received.add(name)

    def program(self) -> Program:
        """Return the program with a body for every call, innermost first; the same object without calls."""
        source = self.source
        if len(self.scopes) == 1:
            return source
        names = Names(self.values)
        graphs: dict[str, Graph] = {}
        for scope in reversed(self.scopes[1:]):
            name = self.ids.fresh(str(scope.frame))
            graphs[name] = self.body(scope)
            assert scope.frame is not None
            self.call(scope, scope.frame.call, name, names)
        kept = {name: source.graphs[name] for name in source.order[1:]}
        kept.update({} if self.bodies is None else self.bodies.graphs)
        return source.evolve(graphs=pmap({source.root: self.main(), **kept, **graphs}))

    def main(self) -> Graph:
        """Return the root; the nodes of its calls must exist."""
        source = self.source.main
        return Graph(source.inputs, self.root.nodes(), source.output)

    def body(self, scope: Scope) -> Graph:
        """Return the body of a call; the nodes of the calls inside it must exist."""
        outputs = [Ref(name) for name in scope.outputs]
        inputs = [Input(name, input_meta(self.values[name].meta)) for name in scope.inputs]
        return Graph(
            tuple(inputs), scope.nodes(), outputs[0] if len(outputs) == 1 else tuple(outputs)
        )

    def call(self, scope: Scope, number: int, graph: str, names: Names) -> None:
        """Make the nodes that call a body.

        Args:
            scope: the call.
            number: the number of the call.
            graph: the body.
            names: makes the name of the tuple if there are several results.
        """
        frame, parent = scope.frame, scope.parent
        assert frame is not None and parent is not None
        called = parent.inside.frame(frame if frame.call == number else Frame(frame.path, number))
        metas = {name: self.values[name].meta for name in scope.outputs}
        scope.calls = call_nodes(Call(called, graph), scope.inputs, tuple(metas), names, metas)
        if scope.around:
            stack = parent.inside.frames(scope.around)
            scope.calls = tuple([node.evolve(stack=stack) for node in scope.calls])


def _holds(scope: Scope, inner: Scope) -> bool:
    while inner.level > scope.level:
        assert inner.parent is not None
        inner = inner.parent
    return inner is scope
