"""``Draft``: one graph while rules rewrite it: its nodes as they are by now, who uses them, and what is known of their values.

What a rewrite costs is in proportion to the nodes that it touches: those that it makes, that it takes away, and their users.
Whether it may be done is not decided here (``legality.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Ref, replace_refs
from ...ir.graph import Call, Graph, Input, Node
from ...ir.importing.regions import is_from_region
from ...ir.inference import UNASKED, agrees
from ...ir.meta import ORIGIN, Meta
from ...ir.origins import made_of, standing_in
from ...ir.rewriter import Rewriter
from .match import Match

__all__ = ["Draft", "meta_of", "origin_of_match"]

OF_A_VALUE = frozenset({"val", "tensor_meta", "example_value", "unbacked_bindings"})
"""Meta that describes the value of a node; the rest describes its place, and new nodes have it from the root of the match."""

OF_AN_OPERATOR = frozenset({ORIGIN, "torch_fn", "source_fn_stack"})
"""Meta that names the function an operator came from; another operator came from none."""


def meta_of(root: Node, origin: Meta) -> Meta:
    """Return the meta of nodes that replace one: its place and a provenance, and not its value or operator.

    >>> from ...ir.graph import Op
    >>> sorted(meta_of(Node("y", Op("toy.neg"), meta={"val": 1, "custom": 2, "torch_fn": ("neg_1", "neg")}), {}))
    ['custom']
    """
    found = {key: value for key, value in root.meta.items() if key not in OF_A_VALUE and key not in OF_AN_OPERATOR}
    if is_from_region(root.meta):  # it says where the node is
        found["torch_fn"] = root.meta["torch_fn"]
    return MappingProxyType({**found, **origin})


def origin_of_match(place: Match, rule: str) -> Meta:
    """Return the provenance of nodes that replace a match by a rule: all nodes that were matched."""
    nodes = place.found.distinct
    metas = [node.meta for node in nodes]
    metas += [node.meta for name in place.notes.reads if (node := place.scope.node_of(name)) is not None]  # numbers and constants
    metas += [made_of_value(place.program, place.graph, node.name) for node in nodes if type(node.do) is Call]
    return made_of(metas, rule)


class Draft:
    """A graph that is rewritten.

    Args:
        graph: stays as it is.

    >>> from purefx.ir import Input, Op
    >>> y = Node("y", Op("toy.neg"), (Ref("x"),))
    >>> draft = Draft(Graph((Input("x"),), (y,), (Ref("y"),)))
    >>> draft.insert([Node("z", Op("toy.exp"), (Ref("x"),))], "y")
    >>> draft.replace("y", Ref("z"), {"y": y})
    >>> [str(node) for node in draft.graph().nodes], draft.graph().output
    (['z = toy.exp(x) ! pure'], (Ref(name='z'),))
    """

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.inputs = {formal.name: formal for formal in graph.inputs}
        self.nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
        """The nodes as they are now, and none that went."""
        self.edit = Rewriter(graph)
        self.known: dict[str, Ref] = {}
        """What is used in place of values whose node went."""
        self.made: dict[str, list[str]] = {}
        """What stands before a node of the graph, or in its place, in order."""
        self.has_values = True
        """Whether all new values are known, and are described as those that they stand for: nothing is left to infer."""
        self._stands: dict[str, int] = {}
        self._users: dict[str, dict[str, None]] = {}
        self._other: dict[str, None] = {}
        self._gone: list[str] = []
        self._stand_for: dict[str, list[Meta]] = {}
        self._output = graph.output
        self._returned = set(graph.output_refs())
        self.values: Mapping[str, Any] = _Values(self.nodes, graph.by_name, self.inputs)
        """The fake values as they are now, by name."""

    def users(self, name: str) -> Collection[str]:
        """Return the names of the nodes that use a value by now."""
        users = self._users.get(name)
        return self.source.users.get(name, ()) if users is None else users

    def is_used_beyond(self, name: str, nodes: Collection[str]) -> bool:
        """Return whether somebody else than some nodes uses a value."""
        return name in self._returned or any(user not in nodes for user in self.users(name))

    def number(self, name: str) -> int:
        """Return the number of the node of the graph that a node is, or that a new one stands before or in the place of."""
        return self._stands[name] if name in self._stands else self.edit.position[name]

    def span(self, inner: Collection[str], last: str, at: str) -> list[Node]:
        """Return the nodes from the first of some to the last of them, in order, as they are now.

        Args:
            inner: the nodes, by name.
            last: the last of them.
            at: the node of the graph where that is.
        """
        first = min(map(self.number, inner))
        there = self.source.nodes[first : self.edit.position[at] + 1]
        names = [name for node in there for name in self.made.get(node.name, (node.name,)) if name in self.nodes]
        return [self.nodes[name] for name in names[: names.index(last) + 1]]

    # -- the edit ---------------------------------------------------------------------------------------------------------------

    def insert(self, made: Iterable[Node], before: str) -> None:
        """Insert nodes before one that is there."""
        number = self.number(before)
        where = self.source.nodes[number].name
        there = self.made.setdefault(where, [where])
        place = there.index(before)
        there[place:place] = [node.name for node in made]
        for node in made:
            self.nodes[node.name] = node
            self._stands[node.name] = number
            for name in node.refs():
                self._own(name)[node.name] = None

    def stand(self, values: Iterable[Ref], place: Match, rule: str) -> None:
        """Note that values which are there take the place of a match: they stand for it."""
        for value in values:
            self._stand_for.setdefault(value.name, []).append(origin_of_match(place, rule))

    def replace(self, name: str, by: Ref, inner: Collection[str]) -> None:
        """Let all users of a value use another one; of some nodes those go that nothing uses any more, the last first."""
        if by.name == name:
            return
        self.known[name] = by
        users, known = self._own(name), {name: by}
        self._users[name] = {}
        theirs = self._own(by.name)
        for user in users:
            self.nodes[user] = self.nodes[user].using(known)
            theirs[user] = None
            if user not in self._stands:
                self._other[user] = None
        if name in self._returned:
            self._output = replace_refs(self._output, known)
            self._returned.discard(name)
            self._returned.add(by.name)
        while unused := [one for one in inner if one in self.nodes and one not in self._returned and not self.users(one)]:
            for one in unused:
                self._remove(one)

    def _remove(self, name: str) -> None:
        for used in self.nodes.pop(name).refs():
            self._own(used).pop(name, None)
        if name not in self._stands:
            self._gone.append(name)

    def _own(self, name: str) -> dict[str, None]:
        users = self._users.get(name)
        if users is None:
            users = self._users[name] = dict.fromkeys(self.source.users.get(name, ()))
        return users

    def graph(self) -> Graph:
        """Return the graph as it is by now; it is drafted no further."""
        edit = self.edit
        for name, arg in self.known.items():
            if self._differs(name, self._settled(arg)):
                self._forget_users(name)
        for at, names in self.made.items():
            edit.before(edit.position[at], *[self.nodes[name] for name in names if name != at and name in self.nodes])
        edit.erase(*self._gone)
        for name in self._other:
            if name in self.nodes:
                edit.put(edit.position[name], self.nodes[name])
        graph, stand_for = edit.graph(output=self._output), dict[str, list[Meta]]()
        for name, metas in self._stand_for.items():
            stand_for.setdefault(self._settled(Ref(name)).name, []).extend(metas)
        if not stand_for:
            return graph
        return Graph(standing_in(graph.inputs, stand_for), standing_in(graph.nodes, stand_for), graph.output)

    def _settled(self, arg: Ref) -> Ref:
        # What a value is in the end, where what stands for it went too.
        while arg.name in self.known:
            arg = self.known[arg.name]
        return arg

    def _differs(self, name: str, arg: Ref) -> bool:
        # Whether a value that was there, and is of another type, stands for one that went.
        was, now = self._value_there(name), self._value_there(arg.name)
        return was is not UNASKED and now is not UNASKED and now is not was and not agrees(now, was)

    def _value_there(self, name: str) -> Any:
        there = self.source.by_name.get(name) or self.inputs.get(name)
        return UNASKED if there is None else there.meta.get("val", UNASKED)

    def _forget_users(self, name: str) -> None:
        for user in self.source.users.get(name, ()):
            if user in self.nodes:
                self.nodes[user] = _without_value(self.nodes[user])

    # -- values -----------------------------------------------------------------------------------------------------------------

    def checked(self, made: Sequence[Node], results: Mapping[str, Ref], *, are_known: bool) -> Sequence[Node]:
        """Return new nodes with their values, if those are described as the values that they stand for; else without.

        Args:
            made: the nodes.
            results: what stands in place of each value.
            are_known: False where something around the graph decides about values as well.
        """
        found = {node.name: node.meta.get("val") for node in made}
        for root, result in results.items():
            now, before = found.get(result.name, self.values.get(result.name)), self.values.get(root)
            are_known = are_known and now is not None and before is not None and agrees(now, before)
        if are_known:
            return made
        self.has_values = False
        return [_without_value(node) for node in made]


def _without_value(node: Node) -> Node:
    return node.evolve(meta=MappingProxyType({key: value for key, value in node.meta.items() if key not in OF_A_VALUE}))


class _Values(Mapping[str, Any]):
    """The fake values of a draft, looked up where they are: at nodes as they are now, at those that went, at inputs."""

    def __init__(self, *places: Mapping[str, Node | Input]) -> None:
        self._places = places

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value; the default where it is not known."""
        for place in self._places:
            node = place.get(name)
            if node is not None:
                return node.meta.get("val", default)
        return default

    def __getitem__(self, name: str) -> Any:
        value = self.get(name, UNASKED)
        if value is UNASKED:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        nodes, _, inputs = self._places
        return iter([name for name in (*inputs, *nodes) if name in self])

    def __len__(self) -> int:
        return len(list(iter(self)))
