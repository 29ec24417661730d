"""``history`` and ``became``: the sources of a node, and its descendants, step by step.

Both read origins and versions (``../origins.py``).  A result is a value that prints as a few lines.  The law of
provenance checks that origins are right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from attrs import evolve, field, frozen

from ..arguments import Ref
from ..calls.call_graph import all_instances, body_named
from ..errors import NamingError
from ..graph import Call, Get, Graph, Input, Node, Op, Stack
from ..meta import ORIGIN, Meta, source_line
from ..names import did_you_mean, escaped, is_below, join
from ..origins import (
    INPUT,
    Imported,
    Origin,
    Place,
    Version,
    ancestors,
    made_of,
    origin_of,
    roots_at,
)
from ..persistent import Displayed, closure, grouped
from ..program import Program
from ..validation import NODE_NAME, a_program

T = TypeVar("T", Node, Input)


def tracked(program: Program) -> Program:
    """Return a program in which each operator and each input of the root has an origin; the same object if they have.

    A call, and a selection of its results, lead to the nodes of the body.
    Imported programs have origins; this adds them to programs that were parsed or built by hand.

    Args:
        program: any program.

    >>> from purefx.ir.origins import origin_of
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.one")),), Ref("y"))})
    >>> str(origin_of(tracked(program).main.nodes[0].meta))
    'y (toy.one)'
    """
    graphs = {name: _tracked(name, program.graphs[name]) for name in program.order}
    main = graphs[program.root]
    inputs = tuple([_begun(one, program.root, INPUT, ()) for one in main.inputs])
    return program.with_graphs({**graphs, program.root: main.with_nodes(main.nodes, inputs=inputs)})


def _tracked(name: str, graph: Graph) -> Graph:
    if all(ORIGIN in node.meta or type(node.do) is not Op for node in graph.nodes):
        return graph
    calls = {node.name for node in graph.nodes if type(node.do) is Call}
    parts = {
        node.name
        for node in graph.nodes
        if node.projection is not None and node.projection[0] in calls
    }
    return graph.with_nodes(
        [
            _begun(node, name, node.do.name, node.stack)
            if type(node.do) is Op and node.name not in parts
            else node
            for node in graph.nodes
        ]
    )


def _begun(item: T, graph: str, op: str, stack: Stack) -> T:
    if ORIGIN in item.meta:
        return item
    origin = Imported(item.name, op, graph, stack, item.meta.get("stack_trace"))
    return evolve(item, meta=MappingProxyType({**item.meta, ORIGIN: origin}))


def action_of(node: Node) -> str:
    """Return the operation of a node in a word or two.

    >>> from purefx.ir import Frame
    >>> action_of(Node("y", Op("toy.neg"))), action_of(Node("y", Call(Frame("act"), "act"))), action_of(Node("w", Get("w")))
    ('toy.neg', 'call act', 'get w')
    """
    match node.do:
        case Op(name=name):
            return name
        case Call(instance=frame):
            return f"call {frame}"
        case Get(slot=slot):
            return f"get {slot}"


def version_of(program: Program, step: str = "") -> Version:
    """Return the places of all origins in a program.

    Args:
        program: any program.
        step: the step that made it.

    >>> program = tracked(Program.of({"": Graph((), (Node("y", Op("toy.one")),), Ref("y"))}))
    >>> [str(place) for places in version_of(program).places.values() for place in places]
    ['y in the root (toy.one)']
    """
    found: dict[Origin, list[Place]] = {}
    for name in program.order:
        for node in program.graphs[name].nodes:
            origin = origin_of(node.meta)
            if origin is not None:
                found.setdefault(origin, []).append(Place(name, node.name, action_of(node)))
    given: dict[Origin, list[Place]] = {}
    for name in program.order:
        for formal in program.graphs[name].inputs:
            origin = origin_of(formal.meta)
            if (
                origin is not None and origin not in found
            ):  # the first place counts: inputs of bodies repeat it
                given.setdefault(origin, []).append(Place(name, formal.name, INPUT))
    return Version(
        step, {origin: tuple(places) for origin, places in (*found.items(), *given.items())}
    )


def versions(program: Program) -> Sequence[Version]:
    """Return all versions of a program, the first one first, itself last.

    Args:
        program: any program.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    >>> [version.step for version in versions(px.outline(program))]
    ['', 'outline']
    """
    trail = program.trail
    steps = [program.past[-1].step if program.past else "", *[step.name for step in trail]]
    programs = [*[step.before for step in trail], program]
    return (*program.past[:-1], *[version_of(*pair) for pair in zip(programs, steps, strict=True)])


def origins_at(
    program: Program, graph: str, name: str
) -> tuple[list[Origin], list[tuple[str, str]]]:
    """Return the origins of a node (for a call, of its body) and the reads of state without one.

    Args:
        program: has the node.
        graph: the id of the graph.
        name: of the node.

    Returns:
        The origins, and graph and name of the reads.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = tracked(px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))}))
    >>> [str(origin) for origin in origins_at(px.outline(program), "", "y")[0]]
    ['y (toy.neg)']
    """
    found: dict[Origin, None] = {}
    todo = [(graph, name)]
    seen = set(todo)
    while todo:
        graph, name = todo.pop()
        for place in _behind(program, graph, name, found):
            if place not in seen:
                seen.add(place)
                todo.append(place)
    return list(found), sorted(
        [(graph, name) for graph, name in seen if _reads(program, graph, name)]
    )


def made_of_value(program: Program, graph: str, name: str) -> Meta:
    """Return the meta of a new node that is made of a value; a call leads to the nodes of its body.

    Args:
        program: has the value.
        graph: the id of its graph.
        name: of the value.

    >>> program = tracked(Program.of({"": Graph((), (Node("y", Op("toy.one")),), Ref("y"))}))
    >>> [str(origin) for origin in origin_of(made_of_value(program, "", "y")).of]
    ['y (toy.one)']
    """
    return made_of([{ORIGIN: origin} for origin in origins_at(program, graph, name)[0]])


def _reads(program: Program, graph: str, name: str) -> bool:
    node = program.graphs[graph].by_name.get(name)
    return node is not None and type(node.do) is Get


def _behind(
    program: Program, graph: str, name: str, found: dict[Origin, None]
) -> list[tuple[str, str]]:
    # Add the origin of a value to `found`, and return its operands if it has none.  The origin of a call also covers the
    # values that the call replaces.
    here = program.graphs[graph]
    if name not in here.metas:
        return []
    node, origin = here.by_name.get(name), origin_of(here.metas[name])
    if origin is not None:
        found[origin] = None
    whole, index = (node.projection if node is not None else None) or ("", 0)
    maker = here.by_name.get(whole)
    called = [one.do.graph for one in (node, maker) if one is not None and type(one.do) is Call]
    if origin is not None and not called:
        return []
    if node is None:  # an input of a body: follow the arguments of the callers
        place = here.input_names.index(name)
        calls = [
            (where, caller) for where in program.order for caller in program.graphs[where].callers
        ]
        passed = [
            (where, call.args[place])
            for where, call in calls
            if type(call.do) is Call and call.do.graph == graph
        ]
        return [(where, arg.name) for where, arg in passed if type(arg) is Ref]
    if not called:
        return [(graph, whole)] if whole else []
    body = program.graphs[called[0]]
    if type(node.do) is Call:
        return [(called[0], inner) for inner in (*body.by_name, *body.output_refs())]
    result = body.output[index] if type(body.output) is tuple and index < len(body.output) else None
    return [(called[0], result.name)] if type(result) is Ref else [(graph, whole)]


SHOWN = 4
"""The number of printed items of each kind; the value has all."""


@frozen
class Change:
    """The change of a node by one step.

    >>> print(Change(1, "outline", (), (Place("", "y", "toy.neg"),), (Place("a", "y", "toy.neg"),)))
    step 1, outline: y in the root (toy.neg) -> y in a (toy.neg)
    """

    number: int
    """The number of the step, counted from 1."""
    step: str
    """Its name."""
    rules: tuple[str, ...]
    """The rules that the step applied, if any."""
    before: tuple[Place, ...]
    after: tuple[Place, ...]

    def __str__(self) -> str:
        by = f" by {', '.join(self.rules)}" if self.rules not in ((), (self.step,)) else ""
        return (
            escaped(f"step {self.number}, {self.step}{by}: ")
            + f"{_listed(self.before)} -> {_listed(self.after)}"
        )


@frozen
class History(Displayed):
    """The history of a node; ``print`` shows it."""

    _form = "history"
    node: Place
    changes: tuple[Change, ...]
    """Its changes, the last one first."""
    imported: tuple[Imported, ...] = field(eq=False)
    """The imported nodes that it was made of."""
    inputs: tuple[Imported, ...] = field(eq=False)
    """The inputs of the imported program that it was made of."""
    state: tuple[str, ...] = ()
    """The state that it reads."""

    def __str__(self) -> str:
        lines = [str(self.node), *[f"  {change}" for change in self.changes]]
        for origin in self.imported[:SHOWN]:
            lines.append(escaped(f"  imported {origin}{_module(origin)}"))
            line = source_line({"stack_trace": origin.trace})
            lines += [escaped(f"    {line}")] if line else []
        lines += [f"  and {len(self.imported) - SHOWN} more"] if len(self.imported) > SHOWN else []
        lines += [escaped(f"  input {origin.name}") for origin in self.inputs[:SHOWN]]
        lines += [escaped(f"  state {name}") for name in self.state[:SHOWN]]
        return "\n".join(lines)


@frozen
class Became(Displayed):
    """The descendants of a node; ``print`` shows them."""

    _form = "history"
    node: Place
    changes: tuple[Change, ...]
    """Its changes, the first one first."""
    nodes: tuple[Place, ...]
    """The nodes that descend from it or replace it."""
    gone_by: str | None = None
    """The step that removed the last of them; None if some remain."""

    def __str__(self) -> str:
        left = (
            f"gone since {self.gone_by}"
            if self.gone_by is not None
            else f"now {_listed(self.nodes)}"
        )
        return "\n".join([str(self.node), *[f"  {change}" for change in self.changes], f"  {left}"])


def history(program: Program, name: str, *, graph: str | None = None) -> History:
    """Return the history of a node: all steps, the imported nodes, the user's source lines and the module calls.

    Args:
        program: an imported program, transformed or not, read from a file or not.
        name: of the node, or ``"layers.0 / relu"`` for the one in that graph or module.
        graph: the id of its graph, or the path of a module that runs it; by default the root if it has such a node, else the
            only graph with one.

    Returns:
        Its sources; for a node of a shared body, the nodes of all modules that share it, or of the module that was
        passed.  A call leads to the nodes of its body, a read to the state.

    Raises:
        NamingError: the node does not exist, or has no known origin because the program was imported without.

    >>> import torch, purefx as px
    >>> program = px.transform(px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))))
    >>> print(px.history(program, "0 / relu").changes[0])
    step 1, outline: relu in the root (aten.relu.default) -> relu in 0 (aten.relu.default)
    """
    a_program(program, "history", name=name)
    place, path = _place_of(program, NODE_NAME.check(name, "history"), graph)
    found, reads = origins_at(program, place.graph, place.name)
    roots = roots_at(found, path)
    nodes, inputs = (
        [one for one in roots if (one.op == INPUT) is is_input] for is_input in (False, True)
    )
    state = _state_of(program, reads, path)
    if not (roots or state):
        raise NamingError(
            f"the origin of {place} is unknown: it was not imported, or with provenance=False, or a step made it "
            "without px.ir.made_of"
        )
    return History(
        place,
        tuple(_changes_of(versions(program), found, place)),
        _in_order(nodes),
        _in_order(inputs),
        state,
    )


def became(program: Program, name: str, *, graph: str = "", step: int = 0) -> Became:
    """Return the descendants of an imported node, or of a node of a later version.

    Args:
        program: the current program.
        name: of the node in the earlier version.
        graph: the id of its graph in the earlier version; by default the root.
        step: the number of steps before that version; 0 is the imported program.

    Returns:
        The current nodes that descend from it or replace it, or the step that dropped it.

    Raises:
        NamingError: the node did not exist, or its origin is unknown.

    >>> import torch, purefx as px
    >>> program = px.transform(px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))))
    >>> print(*px.became(program, "relu").nodes)
    relu in 0 (aten.relu.default)
    """
    every = versions(a_program(program, "became", name=name))
    name = NODE_NAME.check(name, "became")
    if not 0 <= step < len(every):
        raise NamingError(
            f"step={step}: pass 0 to {len(every) - 1}, the number of steps of the program"
        )
    was = {
        (place.graph, place.name): (origin, place)
        for origin, places in every[step].places.items()
        for place in places
    }
    if (graph, name) not in was:
        known = [place for where, place in was if where == graph]
        raise NamingError(
            f"no node {name!a} with a known origin in {graph or 'the root'!a} after {step} steps{did_you_mean(name, known)}"
        )
    origin, place = was[graph, name]
    changes, left, gone = _forth(every[step:], origin, place, step)
    return Became(place, tuple(changes), left, gone)


# -- through the versions -------------------------------------------------------------------------------------------------------


def _changes_of(
    every: Sequence[Version], origins: Iterable[Origin], place: Place
) -> Iterable[Change]:
    # The changes of a node, the last one first.
    now, there = list(origins), (place,)
    for number in range(len(every) - 1, 0, -1):
        earlier = every[number - 1].places
        older, rules = _older(now, earlier)
        was = _narrowed(older, earlier, there)
        if was != there or older != now:
            yield Change(number, every[number].step, rules, was, there)
        if not was:
            return
        now, there = older, was


def _older(
    origins: Iterable[Origin], earlier: Mapping[Origin, Any]
) -> tuple[list[Origin], tuple[str, ...]]:
    # The ancestors of some origins in an earlier version, and the rules between.
    found, rules = dict[Origin, None](), dict[str, None]()
    todo, seen = list(reversed(list(origins))), set[Origin]()
    while todo:
        origin = todo.pop()
        if origin in seen:
            continue
        seen.add(origin)
        if origin in earlier:
            found[origin] = None
        elif not isinstance(origin, Imported):
            rules.update({origin.by: None} if origin.by else {})
            todo += reversed(origin.of)
    return list(found), tuple(sorted(rules))


def _narrowed(
    origins: Iterable[Origin], places: Mapping[Origin, tuple[Place, ...]], like: tuple[Place, ...]
) -> tuple[Place, ...]:
    # Of several copies, prefer the one at the old place.
    keys = {(place.graph, place.name) for place in like}
    found: dict[Place, None] = {}
    for origin in origins:
        own = places.get(origin, ())
        same = [place for place in own if (place.graph, place.name) in keys]
        found.update(dict.fromkeys(same or own))
    return tuple(found)


def _forth(
    every: Sequence[Version], origin: Origin, place: Place, before: int
) -> tuple[list[Change], tuple[Place, ...], str | None]:
    changes: list[Change] = []
    there = (place,)
    for number, version in enumerate(every[1:], 1):
        made = _made_of(version, origin)
        now = tuple(
            sorted(
                {one for new in made for one in version.places[new]},
                key=lambda one: (one.graph, one.name),
            )
        )
        if now != there:
            _, rules = _older(made, every[number - 1].places)
            changes.append(Change(before + number, version.step, rules, there, now))
        if not now:
            return changes, (), version.step
        there = now
    return changes, there, None


def _made_of(version: Version, origin: Origin) -> list[Origin]:
    users = grouped([(used, one) for one in ancestors(version.places) for used in one.of])
    found = closure([origin], lambda used: users.get(used, ()))
    return [one for one in version.places if one in found]


# -- names and text -------------------------------------------------------------------------------------------------------------


def _place_of(program: Program, name: str, graph: str | None) -> tuple[Place, str | None]:
    # The place of a node, and the path of its module if it is unique.
    path: str | None = None
    if graph is None and " / " in name:
        graph, _, name = name.rpartition(" / ")
    if graph is not None:
        graph, path = body_named(program, graph) or (graph, None)
    has = [
        one for one in program.order if name in program.graphs[one].by_name and graph in (None, one)
    ]
    if len(has) > 1 and program.root not in has:
        raise NamingError(
            f"{len(has)} graphs have a node {name!a}: pass graph=, one of {', '.join(map(ascii, has[:SHOWN]))}"
        )
    if not has:
        known = {node.name for one, node in program.nodes() if graph in (None, one)}
        where = "the program" if graph is None else f"{graph or 'the root'!a}"
        raise NamingError(f"no node {name!a} in {where}{did_you_mean(name, known)}")
    where = program.root if program.root in has else has[0]
    node = program.graphs[where].by_name[name]
    return Place(where, name, action_of(node)), _path_of(
        node, [path] if path is not None else all_instances(program)[where]
    )


def _path_of(node: Node, paths: Sequence[str]) -> str | None:
    # The only module that runs a node or that it calls, if it is unique.
    if type(node.do) is Call:
        paths = [join(outer, node.do.instance.path) for outer in paths]
    return paths[0] if len(paths) == 1 else None


def _state_of(
    program: Program, reads: Sequence[tuple[str, str]], at: str | None
) -> tuple[str, ...]:
    # The state that some nodes read, from the root: of one module if it reads any, else of all.
    paths = all_instances(program) if reads else {}
    slots = [
        (graph, do.slot)
        for graph, name in reads
        if type(do := program.graphs[graph].by_name[name].do) is Get
    ]
    every = [(path, join(path, slot)) for graph, slot in slots for path in paths.get(graph, ())]
    mine = [
        (path, slot)
        for path, slot in every
        if at is not None and (path == at or is_below(path, at))
    ]
    return tuple(sorted({slot for _, slot in mine or every}))


def _in_order(origins: Iterable[Imported]) -> tuple[Imported, ...]:
    return tuple(
        sorted(
            origins, key=lambda one: (one.graph, one.stack[-1].path if one.stack else "", one.name)
        )
    )


def _listed(places: Sequence[Place]) -> str:
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return (", ".join(map(str, places[:SHOWN])) or "nothing") + more


def _module(origin: Imported) -> str:
    return f" in {origin.stack[-1]}" if origin.stack else ""
