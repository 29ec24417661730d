"""``outline`` and ``deduplicate`` in one walk: calls are interned before bodies are built, and each class gets one body.

Each call is written as the tokens of its future body (see ``deduplicate.py``), from the scopes of the walk.  The first of equal
calls becomes a body; the others only restrict its metadata and names.  The result, including the trail, equals that of the two
transformations in sequence.  Programs with a module call in several others, with calls of bodies
beside module stacks, or with bodies of operators that depend on their module path, are left to
those two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from ...ir.analysis.digest import OPENING, graph_tokens, write_operands
from ...ir.effects.declared import PURE
from ...ir.graph import Get, Graph, Input, Node, Op
from ...ir.names import Names, relative
from ...ir.persistent import pmap
from ...ir.program import Program
from ..deduplicate import deduplicate
from ..shared_bodies import EqualBody, ids_of, placed, shared_body
from .extraction import Scope, Walk
from .outline import outline, walked


def outlined_and_deduplicated(program: Program) -> Program:
    """Return ``deduplicate(outline(program))``.

    Args:
        program: a program whose root graph carries module stacks.

    >>> import purefx as px
    >>> nodes = [px.Node(name, px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame(name),)) for name in "ab"]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("a"), px.Ref("b")))})
    >>> result = outlined_and_deduplicated(program)
    >>> result == px.deduplicate(px.outline(program)), [str(step) for step in result.trail]
    (True, ['outline()', 'deduplicate()'])
    """
    if not any(node.stack for node in program.main.nodes):
        return deduplicate(outline(program))
    walk = walked(program)
    merging = _Merging(walk) if _is_plain(walk) else None
    if merging is None or not merging.applies:
        outlined = walk.program()
        if outlined is not program:
            outlined = outline.with_step(program, outlined)
        return deduplicate(outlined)
    graphs = merging.graphs()
    for scope in walk.scopes:
        scope.parent = None  # without these cycles the walk is freed at once
    first = outline.with_step(program, program.evolve(graphs=pmap(graphs)))
    return deduplicate.with_step(first, first, before=(program, outline))


def outlined_like(program: Program, flat: Program) -> Program:
    """Return a flat program as a tree of calls, with shared bodies, if another program is one.

    Args:
        program: flat, or a tree.
        flat: the program to outline.

    >>> empty = Program.of({"": Graph((), ())})
    >>> outlined_like(empty, empty) is empty
    True
    """
    if not any(program.graphs[name].called for name in program.order):
        return flat
    return deduplicate(outline(flat)) if "deduplicated" in program.facts else outline(flat)


def _is_plain(walk: Walk) -> bool:
    frames = [scope.frame for scope in walk.scopes[1:]]
    main = walk.source.main
    if not frames or walk.flat or main.called or len(frames) != len(set(frames)):
        return False
    return walk.bodies is None or placed(walk.source) <= {walk.source.root}


class _Merging:
    """The intern table of a walk: classes of equal calls and of equal bodies of operators.

    Args:
        walk: a walk in which no body of an operator reads state or calls a module.
    """

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.source = walk.source
        self.signatures = walk.source.call_signatures
        self.classes: dict[Scope | str, int] = {}
        """The class of each call, and of each body of operators by its id."""
        self.same: dict[tuple[str, int], int] = {}
        """The first call of each module that runs each class."""
        numbers: dict[Hashable, int] = {}
        inner: dict[str, Hashable] = {}
        for name in self.source.bottom_up[:-1]:
            tokens = (*graph_tokens(self.source.graphs[name], inner), "")
            self.classes[name] = inner[name] = numbers.setdefault(tokens, len(numbers))
        self.of_operators = frozenset(inner.values())
        for scope in _innermost_first(walk.scopes[1:]):
            number = self.classes[scope] = numbers.setdefault(
                tuple(self._tokens(scope, inner)), len(numbers)
            )
            called = scope.path, number
            self.same[called] = min(self.same.get(called, scope.number), scope.number)
        self.members: dict[int, dict[Scope | str, list[str]]] = {}
        """The members of each class, in calling order, with the paths of their modules."""
        for one, path in self._calling_order():
            self.members.setdefault(self.classes[one], {}).setdefault(one, []).append(path)

    def _calling_order(self) -> Iterator[tuple[Scope | str, str]]:
        # The calls and the bodies of operators, each with the path of its module.
        if self.walk.bodies is None:
            yield from [(scope, scope.path) for scope in self.walk.scopes[1:]]
            return
        seen: set[tuple[str, str]] = set()
        todo: list[tuple[Scope | str, str]] = [(self.walk.root, "")]
        while todo:
            one, path = todo.pop()
            if isinstance(one, Scope):
                inner = [
                    each
                    for entry in one.entries
                    for each in ([entry] if isinstance(entry, Scope) else entry.bodies)
                ]
            elif (one, path) in seen:
                continue
            else:
                seen.add((one, path))
                inner = list(self.source.graphs[one].callees)
            if one is not self.walk.root:
                yield one, path
            todo += [
                (each, each.path if isinstance(each, Scope) else path) for each in reversed(inner)
            ]

    def _tokens(self, scope: Scope, inner: Mapping[str, Hashable]) -> list[Hashable]:
        # The tokens that `graph_tokens` would write for the body.
        positions = {name: number for number, name in enumerate(scope.inputs)}
        tokens: list[Hashable] = [len(positions)]
        add = tokens.append
        for entry in scope.entries:
            if isinstance(entry, Scope):
                self._write_call(entry, scope.path, tokens, positions)
                continue
            do = entry.do
            if type(do) is Op:
                add(do.name)
                if do.effects is not PURE and (token := do.effects.token):
                    add(token)
            else:
                assert type(do) is Get
                add("get")
                add(repr(relative(do.slot, scope.path)))
            write_operands(entry, tokens, positions, inner)
            positions[entry.name] = len(positions)
            add(";")
        outputs = [positions[name] for name in scope.outputs]
        tokens += outputs if len(outputs) == 1 else (OPENING[tuple], *outputs, ")")
        known = (
            self.signatures.get(scope.frame)
            if len(self.signatures) and scope.frame is not None
            else None
        )
        add("" if known is None else f" {known.in_spec} {known.out_spec} {known.arg_names}")
        return tokens

    def _write_call(
        self, scope: Scope, outer: str, tokens: list[Hashable], positions: dict[str, int]
    ) -> None:
        number = self.classes[scope]
        tokens += ("call", relative(scope.path, outer), self.same[scope.path, number], number)
        tokens.extend([positions[name] for name in scope.inputs])
        if len(scope.outputs) != 1:
            positions[f"; {len(positions)}"] = len(
                positions
            )  # the tuple, which only its projections use
        for name in scope.outputs:
            positions[name] = len(positions)
        tokens += (len(scope.outputs), ";")

    @property
    def applies(self) -> bool:
        """Whether some bodies are equal, and no body of an operator equals one of a call."""
        mixed = any(
            isinstance(one, Scope) and number in self.of_operators
            for one, number in self.classes.items()
        )
        return len(self.members) < len(self.classes) and not mixed

    def graphs(self) -> dict[str, Graph]:
        """Return the root and one body for each class, in calling order."""
        walk, root = self.walk, self.source.root
        names: dict[Scope | str, str] = {
            scope: walk.ids.fresh(str(scope.frame)) for scope in reversed(walk.scopes[1:])
        }
        members: dict[Hashable, dict[str, list[str]]] = {ROOT: {root: [""]}}
        for number, places in self.members.items():
            members[number] = {names.get(one, str(one)): paths for one, paths in places.items()}
        ids = ids_of(members, self.source.types, frozenset(names.values()))
        made = self._made(ids)
        graphs = {
            ids[ROOT]: walk.main(),
            **{ids[number]: self._shared(made[number], number) for number in self.members},
        }
        bodies = {one: ids[number] for one, number in self.classes.items() if isinstance(one, str)}
        return (
            {name: _with_bodies(graph, bodies) for name, graph in graphs.items()}
            if bodies
            else graphs
        )

    def _made(self, ids: Mapping[Hashable, str]) -> dict[int, Graph]:
        # The body of the first member of each class, with calls of the kept bodies.
        made = {
            self.classes[one]: self.source.graphs[one]
            for one in self.classes
            if isinstance(one, str) and self._stays(one)
        }
        fresh = Names(self.walk.values)
        for scope in reversed(self.walk.scopes[1:]):
            number = self.classes[scope]
            if self._stays(scope):
                made[number] = self.walk.body(scope)
            # Calls in dropped bodies need no nodes, but their tuples need names, which are made for all calls in order.
            parent = scope.parent
            assert parent is not None
            if parent is self.walk.root or self._stays(parent) or len(scope.outputs) != 1:
                self.walk.call(scope, self.same[scope.path, number], ids[number], fresh)
        return made

    def _stays(self, one: Scope | str) -> bool:
        return next(iter(self.members[self.classes[one]])) is one

    def _shared(self, graph: Graph, number: int) -> Graph:
        others = [self._equal(one) for one in list(self.members[number])[1:]]
        return shared_body(graph, others, raw=number not in self.of_operators)

    def _equal(self, one: Scope | str) -> EqualBody | Graph:
        if not isinstance(one, Scope):
            return self.source.graphs[str(one)]
        values = self.walk.values
        nodes: list[Input | Node] = []
        for entry in one.entries:
            if not isinstance(entry, Scope):
                nodes.append(entry)
            elif entry.calls:
                nodes.extend(entry.calls)
            else:
                nodes.extend([values[name] for name in entry.outputs])
        return EqualBody([values[name] for name in one.inputs], nodes)


ROOT = "root"


def _with_bodies(graph: Graph, bodies: Mapping[str, str]) -> Graph:
    # Calls of modules have the new bodies already.
    return graph.with_callers(
        lambda node: node.calling(bodies.__getitem__) if node.bodies else node
    )


def _innermost_first(scopes: Sequence[Scope]) -> list[Scope]:
    # Of two equally high ones, neither contains the other, so they stay in calling order.
    heights: dict[Scope, int] = {}
    for scope in reversed(scopes):
        mine = heights.setdefault(scope, 0)
        if scope.parent is not None:
            heights[scope.parent] = max(heights.get(scope.parent, 0), mine + 1)
    return sorted(scopes, key=heights.__getitem__)
