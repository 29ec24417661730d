"""Extraction: a graph whose module calls are runs of nodes becomes a tree of bodies.

Bodies of operators move with the operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.arguments import Ref
from ...ir.graph import Call, Frame, Graph, Input, Node, Op
from ...ir.meta import Meta
from ...ir.names import Names, relative
from ...ir.origins import handed_on
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.relocation import Relocation
from ..regions import call_nodes
from ..shared_bodies import placed

__all__ = ["MovedBodies", "cut_out", "inside_of"]


class MovedBodies:
    """The bodies of operators in the modules of one program.

    Args:
        program: a program whose root names everything from the root.
        names: hands out ids of graphs.
    """

    def __init__(self, program: Program, names: Names) -> None:
        self.program = program
        self.names = names
        self.graphs: dict[str, Graph] = {}
        """Those that are written anew."""
        self._known: dict[tuple[str, str], str] = {}
        self._first: dict[str, str] = {}
        self._todo: list[tuple[str, str]] = []
        self._placed = placed(program)

    def take(self, node: Node, path: str) -> Node:
        """Return an operator of the root as instantiated in a module.

        Args:
            node: gives bodies to its operator.
            path: of the module; the root is ``""``.
        """
        moved = self._moved(node, path)
        while self._todo:
            name, place = self._todo.pop()
            graph = self.program.graphs[name]
            nodes = [self._moved(inner, place) for inner in graph.nodes]
            inside = inside_of(place)
            self.graphs[self._known[name, place]] = graph.with_nodes([inner.evolve(do=inside.do(inner.do)) for inner in nodes])
        return moved

    def _moved(self, node: Node, path: str) -> Node:
        if type(node.do) is not Op or not node.do.effects.through_bodies:
            return node
        return node.calling(lambda graph: self._name(graph, path) if graph in self._placed else graph)

    def _name(self, name: str, path: str) -> str:
        known = self._known.get((name, path))
        if known is None:
            first = self._first.setdefault(name, path) == path
            known = self._known[name, path] = name if first else self.names.fresh(name)
            self._todo.append((name, path))
        return known


def inside_of(path: str) -> Relocation:
    """Return how the body of a module writes what the root names.

    >>> from purefx.ir import Get
    >>> inside_of("a").do(Get("a.weight"))
    Get(slot='weight')
    """
    return Relocation(lambda name: relative(name, path))


class _Scope:
    """One module call during the walk."""

    __slots__ = ("calls", "entered", "entries", "frame", "inputs", "inside", "level", "outputs", "parent", "received")

    def __init__(self, frame: Frame | None, parent: _Scope | None) -> None:
        self.frame = frame
        self.parent = parent
        self.inside = inside_of("" if frame is None else frame.path)
        """How its body writes what the root names."""
        self.level: int = 0 if parent is None else parent.level + 1
        self.entries: list[Node | _Scope] = []
        self.entered: set[Frame] = set()
        """The calls inside it that were begun."""
        self.inputs: dict[str, None] = {}
        """Values that it takes from outside."""
        self.received: set[str] = set()
        """Values that a call inside it returned."""
        self.outputs: dict[str, None] = {}
        """Values made inside it that are used outside."""
        self.calls: tuple[Node, ...] = ()


def cut_out(program: Program, nodes: Sequence[Node]) -> Program | None:
    """Return the program with a body for every module call; None if a call is not one run of nodes.

    Args:
        program: gives everything but the nodes of the root.
        nodes: the nodes of the root, in the order that they shall have.
    """
    walk = _Walk(program)
    walk.take(nodes)
    if walk.returned:
        return None
    walk.finish()
    return walk.program()


class _Walk:
    def __init__(self, program: Program) -> None:
        self.source = program
        self.root = _Scope(None, None)
        self.scopes: list[_Scope] = [self.root]
        self.current = self.root
        self.stack: tuple[Frame, ...] = ()
        self.returned = False
        """Whether a call was entered a second time."""
        self.ids = Names(program.graphs)
        self.bodies = MovedBodies(program, self.ids) if len(program.order) > 1 else None
        """Bodies of operators, where there are any."""
        self.homes: dict[str, _Scope] = dict.fromkeys([formal.name for formal in program.main.inputs], self.root)
        """For each value, in order, where it is made."""
        self.metas: dict[str, Meta] = {formal.name: formal.meta for formal in program.main.inputs}

    def take(self, nodes: Sequence[Node]) -> None:
        """Put each node into the call that its stack names, until a call is entered a second time."""
        homes = self.homes
        for node in nodes:
            if node.stack is not self.stack:
                self._enter(node.stack)
                if self.returned:
                    return
            scope = self.current
            for name in node.refs():
                home = homes.get(name, scope)
                if home is not scope and name not in scope.inputs and name not in scope.received:
                    self._bring(name, home, scope)
            if self.bodies is not None:
                node = self.bodies.take(node, "" if scope.frame is None else scope.frame.path)
            if scope.frame is not None:
                do = node.do if type(node.do) is Op else scope.inside.do(node.do)
                node = Node(node.name, do, node.args, node.kwargs, (), node.meta)
            scope.entries.append(node)
            homes[node.name] = scope
        self.metas.update([(node.name, node.meta) for node in nodes])

    def finish(self) -> None:
        """Bring what the root returns to the root."""
        for name in self.source.main.output_refs():
            self._bring(name, self.homes.get(name, self.root), self.root)

    def _enter(self, stack: tuple[Frame, ...]) -> None:
        shared = 0
        for mine, other in zip(self.stack, stack, strict=False):
            if mine is not other and mine != other:
                break
            shared += 1
        scope = self.current
        while scope.level > shared:
            assert scope.parent is not None
            scope = scope.parent
        for frame in stack[shared:]:
            self.returned = self.returned or frame in scope.entered
            scope.entered.add(frame)
            inner = _Scope(frame, scope)
            scope.entries.append(inner)
            self.scopes.append(inner)
            scope = inner
        self.current = scope
        self.stack = stack

    def _bring(self, name: str, home: _Scope, user: _Scope) -> None:
        # Up from the user, every scope takes the value as an input, until one has it or holds the scope that makes it;
        # down from there to the maker, every scope gives it back.
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
        """Freeze all scopes, innermost first."""
        source, metas = self.source, self.metas
        names = Names(metas)
        positions: dict[str, int] | None = None
        graphs: dict[str, Graph] = {}
        for scope in reversed(self.scopes):
            if scope.frame is None:
                continue
            outputs = list(scope.outputs)
            if len(outputs) > 1:
                positions = positions or {name: number for number, name in enumerate(metas)}
                outputs.sort(key=positions.__getitem__)
            inputs = list(scope.inputs)  # by first use, not by where they are made: equal layers must be equal bodies
            output = Ref(outputs[0]) if len(outputs) == 1 else tuple([Ref(name) for name in outputs])
            name = self.ids.fresh(str(scope.frame))
            graphs[name] = Graph(tuple([Input(name, handed_on(metas[name])) for name in inputs]), _flatten(scope), output)
            scope.calls = self._call_nodes(scope, name, inputs, outputs, names)
        main = Graph(source.main.inputs, _flatten(self.root), source.main.output)
        kept = {name: source.graphs[name] for name in source.order[1:]}
        kept.update({} if self.bodies is None else self.bodies.graphs)
        return source.evolve(graphs=pmap({source.root: main, **kept, **graphs}))

    def _call_nodes(self, scope: _Scope, name: str, inputs: list[str], outputs: list[str], names: Names) -> tuple[Node, ...]:
        frame, parent = scope.frame, scope.parent
        assert frame is not None and parent is not None
        return call_nodes(Call(parent.inside.frame(frame), name), inputs, outputs, names, self.metas)


def _holds(scope: _Scope, inner: _Scope) -> bool:
    while inner.level > scope.level:
        assert inner.parent is not None
        inner = inner.parent
    return inner is scope


def _flatten(scope: _Scope) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for entry in scope.entries:
        if type(entry) is _Scope:
            nodes.extend(entry.calls)
        else:
            nodes.append(entry)  # type: ignore[arg-type]
    return tuple(nodes)
