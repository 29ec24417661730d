"""``deduplicate``: equal bodies become one.

From the innermost calls outwards, each body is written as a list of tokens, callees as the number of the class
that they fell into, and one dictionary gives equal lists one number.  State is named relative to the module, so the blocks
of a transformer are equal; which state is read and which body is called is part of the list.  Nothing is compared pairwise.
A call that is cut into pieces is one call: it is renumbered as a whole, so a body comes after all pieces of what it calls.
A body that several become is nobody's own, and is named for all of its users (``merged_bodies.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..ir.analysis.digest import own_identity
from ..ir.calls.call_graph import Instance
from ..ir.calls.parts import part_names
from ..ir.graph import Call, Frame, Graph, Node
from ..ir.program import Program
from .merged_bodies import for_all, ids_of
from .places import Called, Label, Places, below
from .transformation import UNLIMITED, Fuel, transformation

__all__ = ["deduplicate"]


@transformation(
    proven=True,
    establishes={"deduplicated"},
    inverse="expand",
    laws=[
        "expanding gives back the program",
        "no two bodies are equal afterwards",
        "the result does not depend on the order of graphs",
    ],
)
def deduplicate(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Let equal bodies be one.

    Before::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.1 (y)

    After::

        y = call layers.0 -> Layer (x);  z = call layers.1 -> Layer (y)

    Calls of one module that have the same body get one call number, the first; a call that is cut into pieces is the same call as
    another only where all of the pieces are.  What meta says of one call (the fake value,
    sizes that only a run knows, the user's notes) stays where it holds for all calls of the body; ``expand`` and ``inline`` work
    out the values of each call again.  A body that several modules share is called after their class, a read in it as its
    module names the state (``weight`` and not ``p_layers_0_weight``), and a value after what all of its users call it
    (``shared_bodies.py``); inside of parts all names stay the original ones.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one body into which all equal ones are merged, or whose calls get the numbers of equal ones; bodies
            come after those that they call.  Where calls are cut in pieces, everything is one rewrite.

    Returns:
        The program with one graph for each distinct body.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.deduplicate(program) is program
    True
    """
    return program if len(program.order) == 1 else program.with_graphs(_Classes(program, fuel).graphs(), only=True)


class _Classes:
    """Groups equal bodies, innermost bodies first."""

    def __init__(self, program: Program, fuel: Fuel) -> None:
        self.program = program
        self.places = Places(program)
        self.classes: dict[Instance, int] = {}
        self._what: dict[Called, Hashable] = {}
        """What each call runs: the classes of its pieces."""
        self._same: dict[Hashable, list[int]] = {}
        """The calls of a module that run the same."""
        self._first: dict[Called, int] = {}
        """For each call the first one that runs the same, as far as that was asked."""
        numbers: dict[Hashable, int] = {}
        for instance in self.places.innermost_first():
            self.classes[instance] = numbers.setdefault(self._identity(instance), len(numbers))
            for call, _ in self.places.labels.get(instance, ()):
                self._met((instance[1], call))
        self.settled = self._settled(fuel) if fuel.limited else None
        """The classes that fuel was enough for; None if it was enough for all."""
        self.keys: Mapping[Instance, Hashable] = self.classes if self.settled is None else self._keys(self.settled)
        """Instances with one key become one graph."""
        self.ids: dict[Hashable, str] = {}
        """The graph that stays for each key: the first one met in calling order."""
        self.members: dict[Hashable, dict[str, list[str]]] = {}
        """For each key the bodies that become one, and the paths of the modules that each stands in."""
        for instance in self.places.inner:
            paths = self.members.setdefault(self.keys[instance], {}).setdefault(instance[0], [])
            paths.append(instance[1])
        self._name_bodies()

    def _met(self, call: Called) -> None:
        # A piece of a call has its class: with the last one it is known what the call runs.
        pieces = self.places.pieces[call]
        if len(pieces) == 1:
            what: Hashable = (call[0], *[(part, self.classes[piece]) for part, piece in pieces.items()])
        elif self.places.heights is None:
            what = call  # where pieces need one another, a call is equal to no other
        elif any(piece not in self.classes for piece in reversed(pieces.values())):
            return
        else:
            what = (call[0], *sorted([(part, self.classes[piece]) for part, piece in pieces.items()]))
        self._what[call] = what
        self._same.setdefault(what, []).append(call[1])

    def _name_bodies(self) -> None:
        called = {name for name, path in self.places.inner if (name, path) in self.places.labels}
        self.ids = ids_of(self.members, {module.path: module.type_name for module in self.program.modules}, called)

    def _identity(self, instance: Instance) -> Hashable:
        name, path = instance
        if name == self.program.root:
            return "root"

        graph = self.program.graphs[name]
        called: list[Hashable] = []
        for node in graph.callers:
            if type(do := node.do) is Call:
                place = below(path, do)
                called.append((self.label(place, do), self.classes[do.graph, place]))
            else:
                called += [self.classes[body, path] for body in node.callees]
        return own_identity(graph)[0], *called, self._convention(instance)

    def _settled(self, fuel: Fuel) -> set[int]:
        # The classes whose bodies become one and get the numbers of equal calls, as far as the fuel goes; callees come first.
        classes: dict[int, list[Instance]] = {number: [] for number in self.classes.values()}
        for instance in self.places.inner:
            classes[self.classes[instance]].append(instance)
        changed = {number: members for number, members in classes.items() if self._changes(members)}
        if self.places.cut:  # pieces of one call would get its number here and not there
            return set(classes) if not changed or fuel.burn("merge equal bodies") else set()
        settled = set(classes) - set(changed)
        for number, members in changed.items():
            into, *others = dict.fromkeys(name for name, _ in members)
            merged = f"body {others[0]!r}" if len(others) == 1 else f"{len(others)} bodies"
            if fuel.burn(f"merge {merged} into" if others else "number the calls in", repr(into)):
                settled.add(number)
        return settled

    def _changes(self, members: list[Instance]) -> bool:
        return any(name != members[0][0] or self._renumbers(name, path) for name, path in members)

    def _keys(self, settled: set[int]) -> Mapping[Instance, Hashable]:
        # What stays as it is, is distinguished by the graph that it is and by what its callees are now.
        keys: dict[Instance, Hashable] = {}
        for instance, number in self.classes.items():
            own = (instance[0], *[keys[inner] for inner in self.places.inner[instance]])
            keys[instance] = number if number in settled else own
        return keys

    def _renumbers(self, name: str, path: str) -> bool:
        calls = [node.do for node in self.program.graphs[name].callers if type(node.do) is Call]
        return any(self.label(below(path, call), call) != (call.instance.call, call.instance.part) for call in calls)

    def _convention(self, instance: Instance) -> str:
        # Bodies with a preserved call signature are called as it says, so it is a part of what they are.
        signatures = self.program.call_signatures
        if not len(signatures):
            return ""
        found = [signatures.get(Frame(instance[1], call)) for call, _ in self.places.labels.get(instance, ())]
        return "".join([f" {known.in_spec} {known.out_spec} {known.arg_names}" for known in found[:1] if known is not None])

    def label(self, place: str, call: Call) -> Label:
        """Return the first call of the called module that runs the same; a piece of a call is the same piece of it.

        Args:
            place: the path of the called module.
            call: what calls it.
        """
        # Were the pieces of one call named after different calls, or a whole call after a piece, inlining would not know
        # which pieces are one call.
        called = place, call.instance.call
        first = self._first.get(called)
        if first is None:
            # All that run the same nest as deep as this call: they are known before any of their callers asks.
            same = self._same[self._what[called]]
            apart = self.places.crossed(place, same) if len(same) > 1 else ()
            shared = min([number for number in same if number not in apart], default=0)
            for number in same:
                self._first[place, number] = number if number in apart else shared
            first = self._first[called]
        return first, call.instance.part

    def graphs(self) -> dict[str, Graph]:
        """Return one graph for each class, its calls rewritten; the same object if nothing is."""
        found: dict[str, Graph] = {}
        for instance in self.places.inner:
            name = self.ids[self.keys[instance]]
            if name not in found:
                found[name] = self._rewritten(*instance)
        is_split = bool(part_names(self.program))
        for key, members in self.members.items():
            if len(members) > 1:
                users = [(self.program.graphs[name], paths) for name, paths in members.items()]
                found[self.ids[key]] = for_all(found[self.ids[key]], users, is_split=is_split)
        return found

    def _rewritten(self, name: str, path: str) -> Graph:
        graph = self.program.graphs[name]
        anew = self.settled is None or self.classes[name, path] in self.settled
        changed = {node.name: new for node in graph.callers if (new := self._rewritten_node(node, path, anew=anew)) is not node}
        return graph.with_nodes([changed.get(node.name, node) for node in graph.nodes]) if changed else graph

    def _rewritten_node(self, node: Node, path: str, *, anew: bool) -> Node:
        do = node.do
        if type(do) is not Call:
            return node.calling(lambda graph: self.ids[self.keys[graph, path]])
        place = below(path, do)
        call, part = self.label(place, do) if anew else (do.instance.call, do.instance.part)
        new = Call(Frame(do.instance.path, call, part), self.ids[self.keys[do.graph, place]])
        return node if new == do else node.evolve(do=new)
