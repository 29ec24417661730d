"""``history`` and ``became``: what a node was made of, and what became of it, step by step.

Both read origins, which every rewrite writes (``../origins.py``), and versions (``versions.py``).  A result is a value that
prints as a few lines and gives itself as plain data.  Who wrote which origin is not judged here: the law of provenance does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ..calls.call_graph import all_instances, body_named
from ..displayed import Displayed
from ..errors import NamingError
from ..graph import Call, Get, Node
from ..names import did_you_mean, escaped, is_below, join
from ..origins import INPUT, Imported, Origin, Place, Version, ancestors, roots_at
from ..program import Program
from ..taking import NODE_NAME, a_program
from .versions import op_name, origins_at, versions

TORCH = "site-packages/torch/"
"""What is in the path of files of torch."""

SHOWN = 4
"""How many of a kind are printed; all are in the value."""


@frozen
class Change:
    """What one step did to a node.

    >>> print(Change(1, "outline", (), (Place("", "y", "toy.neg"),), (Place("a", "y", "toy.neg"),)))
    step 1, outline: y in the root (toy.neg) -> y in a (toy.neg)
    """

    number: int
    """Which step it was, counted from 1."""
    step: str
    """Its name."""
    rules: tuple[str, ...]
    """The rules that did it, where it applied some."""
    before: tuple[Place, ...]
    after: tuple[Place, ...]

    def __str__(self) -> str:
        by = f" by {', '.join(self.rules)}" if self.rules not in ((), (self.step,)) else ""
        return escaped(f"step {self.number}, {self.step}{by}: ") + f"{_listed(self.before)} -> {_listed(self.after)}"


@frozen
class History(Displayed):
    """Where a node comes from: ``print`` shows it, ``to_dict`` gives it as plain data."""

    _form = "history"
    node: Place
    changes: tuple[Change, ...]
    """What steps did to it, the last one first."""
    imported: tuple[Imported, ...] = field(eq=False)
    """The nodes that it was made of, as they were imported."""
    inputs: tuple[Imported, ...] = field(eq=False)
    """The inputs of the imported program among what it was made of."""
    state: tuple[str, ...] = ()
    """The state that it reads."""

    def __str__(self) -> str:
        lines = [str(self.node), *[f"  {change}" for change in self.changes]]
        for origin in self.imported[:SHOWN]:
            lines.append(escaped(f"  imported {origin}{_module(origin)}"))
            line = line_of(origin)
            lines += [escaped(f"    {line['file']}:{line['line']} in {line['function']}: {line['code']}")] if line else []
        lines += [f"  and {len(self.imported) - SHOWN} more"] if len(self.imported) > SHOWN else []
        lines += [escaped(f"  input {origin.name}") for origin in self.inputs[:SHOWN]]
        lines += [escaped(f"  state {name}") for name in self.state[:SHOWN]]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return it as dicts, lists, text and numbers, for JSON.

        >>> History(Place("", "y", "toy.neg"), (), (Imported("y", "toy.neg"),), ()).to_dict()["imported"][0]["name"]
        'y'
        """
        return {
            "node": _place(self.node), "changes": [_change(change) for change in self.changes],
            "imported": [_imported(origin) for origin in self.imported], "inputs": [origin.name for origin in self.inputs],
            "state": list(self.state),
        }  # fmt: skip


@frozen
class Became(Displayed):
    """What became of a node: ``print`` shows it, ``to_dict`` gives it as plain data."""

    _form = "history"
    node: Place
    changes: tuple[Change, ...]
    """What steps did to it, the first one first."""
    nodes: tuple[Place, ...]
    """What is there of it; a value that is used instead of it counts."""
    gone_by: str | None = None
    """The step after which nothing was left; None where something is."""

    def __str__(self) -> str:
        left = f"gone since {self.gone_by}" if self.gone_by is not None else f"now {_listed(self.nodes)}"
        return "\n".join([str(self.node), *[f"  {change}" for change in self.changes], f"  {left}"])

    def to_dict(self) -> dict[str, Any]:
        """Return it as dicts, lists, text and numbers, for JSON.

        >>> Became(Place("", "y", "toy.neg"), (), (), "eliminate_dead_code").to_dict()["gone by"]
        'eliminate_dead_code'
        """
        return {
            "node": _place(self.node), "changes": [_change(change) for change in self.changes],
            "nodes": [_place(place) for place in self.nodes], "gone by": self.gone_by,
        }  # fmt: skip


def history(program: Program, name: str, *, graph: str | None = None) -> History:
    """Return where a node comes from: through every step to the imported nodes, the lines of the user and the module calls.

    Args:
        program: an imported program, transformed or not, read from a file or not.
        name: of the node, or ``"layers.0 / relu"`` for the one in that graph or module.
        graph: the id of its graph, or the path of a module that runs it; by default the root if it has such a node, else the
            one graph that has.

    Returns:
        What it was made of; of a node of a shared body, the nodes of all modules that share it, or of the one whose path was
        given.  A call was made of what its body computes, and a read leads to the state.

    Raises:
        NamingError: there is no such node; or no origin is known, because the program was imported without.

    >>> import torch, purefx as px
    >>> program = px.transform(px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))))
    >>> print(px.history(program, "0 / relu").changes[0])
    step 1, outline: relu in the root (aten.relu.default) -> relu in 0 (aten.relu.default)
    """
    a_program(program, "history", name=name)
    place, path = _place_of(program, NODE_NAME.taken(name, "history"), graph)
    found, reads = origins_at(program, place.graph, place.name)
    roots = roots_at(found, path)
    nodes, inputs = ([one for one in roots if (one.op == INPUT) is is_input] for is_input in (False, True))
    state = state_of(program, reads, path, all_instances(program) if reads else {})
    if not (roots or state):
        raise NamingError(
            f"nothing is known of where {place} comes from: it was not imported, or with provenance=False, or a step made it "
            "without saying of what (px.ir.made_of)"
        )
    return History(place, tuple(changes_of(versions(program), found, place)), in_order(nodes), in_order(inputs), state)


def became(program: Program, name: str, *, graph: str = "", step: int = 0) -> Became:
    """Return what became of an imported node, or of a node that was there after some steps.

    Args:
        program: the program as it is now.
        name: of the node, as it was.
        graph: the id of its graph, as it was; by default the root.
        step: after how many steps it was called so; 0 is the imported program.

    Returns:
        The nodes that it is now, or is a part of, or that are used instead of it; or the step that dropped it.

    Raises:
        NamingError: there was no such node, or no origin of it is known.

    >>> import torch, purefx as px
    >>> program = px.transform(px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))))
    >>> print(*px.became(program, "relu").nodes)
    relu in 0 (aten.relu.default)
    """
    every = versions(a_program(program, "became", name=name))
    name = NODE_NAME.taken(name, "became")
    if not 0 <= step < len(every):
        raise NamingError(f"step={step}: the program has {len(every) - 1} steps behind it, so step is 0 to {len(every) - 1}")
    was = {(place.graph, place.name): (origin, place) for origin, places in every[step].places.items() for place in places}
    if (graph, name) not in was:
        known = [place for where, place in was if where == graph]
        raise NamingError(
            f"after {step} steps there was no node {name!a} with a known origin in {graph or 'the root'!a}"
            f"{did_you_mean(name, known)}"
        )
    origin, place = was[graph, name]
    changes, left, gone = _forth(every[step:], origin, place, step)
    return Became(place, tuple(changes), left, gone)


def line_of(origin: Imported) -> Mapping[str, Any] | None:
    r"""Return the line of the user that made a node: file, line, function, code; None where it is not known.

    That is the innermost one that is not in torch, if there is one.

    Args:
        origin: of an imported node.

    >>> line_of(Imported("y", "toy.neg", "", (), '  File "model.py", line 3, in forward\n    return -x'))["line"]
    3
    """
    lines = [line.strip() for line in (origin.trace or "").splitlines()]
    found: list[Mapping[str, Any]] = []
    for said, code in zip(lines, [*lines[1:], ""], strict=False):
        if said.startswith('File "') and '", line ' in said:
            file, _, rest = said[6:].partition('", line ')
            line, _, function = rest.partition(", in ")
            code = "" if code.startswith('File "') else code
            found.append({"file": file, "line": int(line) if line.isdecimal() else 0, "function": function, "code": code})
    return next((line for line in reversed(found) if TORCH not in line["file"]), found[-1] if found else None)


# -- through the versions -------------------------------------------------------------------------------------------------------


def changes_of(every: Sequence[Version], origins: Iterable[Origin], place: Place) -> Iterable[Change]:
    """Return what steps did to a node, the last one first.

    Args:
        every: the versions of the program, itself last.
        origins: those behind the node.
        place: where it is.
    """
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


def _older(origins: Iterable[Origin], earlier: Mapping[Origin, Any]) -> tuple[list[Origin], tuple[str, ...]]:
    # What was there before of what some origins were made of, and the rules that made it.
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
    # Of several copies the one that is where it was, if it is among them.
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
        now = tuple(sorted({one for new in made for one in version.places[new]}, key=lambda one: (one.graph, one.name)))
        if now != there:
            _, rules = _older(made, every[number - 1].places)
            changes.append(Change(before + number, version.step, rules, there, now))
        if not now:
            return changes, (), version.step
        there = now
    return changes, there, None


def _made_of(version: Version, origin: Origin) -> list[Origin]:
    users: dict[Origin, list[Origin]] = {}
    for one in ancestors(version.places):
        for used in one.of:
            users.setdefault(used, []).append(one)
    found, todo = {origin: None}, [origin]
    while todo:
        more = [user for user in users.get(todo.pop(), ()) if user not in found]
        found.update(dict.fromkeys(more))
        todo += more
    return [one for one in version.places if one in found]


# -- names and text -------------------------------------------------------------------------------------------------------------


def _place_of(program: Program, name: str, graph: str | None) -> tuple[Place, str | None]:
    # Where a node is, and the path of its module, where that is one.
    path: str | None = None
    if graph is None and " / " in name:
        graph, _, name = name.rpartition(" / ")
    if graph is not None:
        graph, path = body_named(program, graph) or (graph, None)
    has = [one for one in program.order if name in program.graphs[one].by_name and graph in (None, one)]
    if len(has) > 1 and program.root not in has:
        raise NamingError(f"{len(has)} graphs have a node {name!a}: say which with graph=, {', '.join(map(ascii, has[:SHOWN]))}")
    if not has:
        known = {node.name for one, node in program.nodes() if graph in (None, one)}
        where = "the program" if graph is None else f"{graph or 'the root'!a}"
        raise NamingError(f"there is no node {name!a} in {where}{did_you_mean(name, known)}")
    where = program.root if program.root in has else has[0]
    node = program.graphs[where].by_name[name]
    return Place(where, name, op_name(node)), path_of(node, [path] if path is not None else all_instances(program)[where])


def path_of(node: Node | None, paths: Sequence[str]) -> str | None:
    """Return the module that runs a node, or that it calls, if it is one.

    Args:
        node: of a graph; None for one of its inputs.
        paths: the instances of the graph.

    >>> path_of(None, ["a"]), path_of(None, ["a", "b"])
    ('a', None)
    """
    if node is not None and type(node.do) is Call:
        paths = [join(outer, node.do.instance.path) for outer in paths]
    return paths[0] if len(paths) == 1 else None


def state_of(
    program: Program, reads: Sequence[tuple[str, str]], at: str | None, paths: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return the state that some nodes read, by name from the root: that of one module, where it reads any, or of all.

    Args:
        program: has the nodes.
        reads: graph and name of each.
        at: the path of the module; None for all.
        paths: the instances of each graph.
    """
    slots = [(graph, do.slot) for graph, name in reads if type(do := program.graphs[graph].by_name[name].do) is Get]
    every = [(path, join(path, slot)) for graph, slot in slots for path in paths.get(graph, ())]
    mine = [(path, slot) for path, slot in every if at is not None and (path == at or is_below(path, at))]
    return tuple(sorted({slot for _, slot in mine or every}))


def in_order(origins: Iterable[Imported]) -> tuple[Imported, ...]:
    """Return imported nodes by graph, module and name."""
    return tuple(sorted(origins, key=lambda one: (one.graph, one.stack[-1].path if one.stack else "", one.name)))


def _listed(places: Sequence[Place]) -> str:
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return (", ".join(map(str, places[:SHOWN])) or "nothing") + more


def _module(origin: Imported) -> str:
    return f" in {origin.stack[-1]}" if origin.stack else ""


def _place(place: Place) -> dict[str, str]:
    return {"graph": place.graph, "name": place.name, "op": place.op}


def _change(change: Change) -> dict[str, Any]:
    places = {key: [_place(place) for place in found] for key, found in (("before", change.before), ("after", change.after))}
    return {"number": change.number, "step": change.step, "rules": list(change.rules), **places}


def _imported(origin: Imported) -> dict[str, Any]:
    return {
        "name": origin.name, "op": origin.op, "graph": origin.graph, "modules": [str(frame) for frame in origin.stack],
        "line": line_of(origin),
    }  # fmt: skip
