"""The law "incremental is from nothing": what is said of a program after an edit is what is said of a copy that knows nothing.

A program that was edited carries on what is known of the one that it was made from (``ir/facts.py``).  Here programs are edited
again and again, well and badly, and asked in between or not; a copy of new graphs is asked as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ..ir.analysis.digest import digest
from ..ir.arguments import Ref
from ..ir.facts import FIELDS
from ..ir.graph import Call, Frame, Get, Graph, Input, Node, Op
from ..ir.persistent import PMap, pmap
from ..ir.program import Program
from ..ir.verify import verify
from ..transforms import Transformation, deduplicate, remove_effect_tokens

__all__ = ["EDITS", "Edited", "anew", "differences", "edited", "edits_of", "incremental_faults"]

Edited = Callable[[Program, random.Random], Program | None]
"""An edit; None where the program has no place for it."""


def anew(program: Program) -> Program:
    """Return a copy of new graphs, of which nothing is known.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> anew(program) == program, anew(program).main is program.main
    (True, False)
    """
    graphs = {name: Graph(graph.inputs, graph.nodes, graph.output) for name, graph in program.graphs.items()}
    fields: dict[str, Any] = {field.name: getattr(program, field.name) for field in attrs.fields(Program) if field.init}
    fields["graphs"] = pmap(graphs)
    return Program(**fields)


def differences(program: Program) -> list[str]:
    """Return what is said otherwise of a program than of a copy that knows nothing.

    >>> differences(Program.of({"": Graph((), (), ())}))
    []
    """
    copy = anew(program)
    found: list[str] = []
    mine, theirs = verify(program), verify(copy)
    if mine != theirs:
        found.append(f"verify: {[str(one) for one in mine]}, from nothing {[str(one) for one in theirs]}")
    pairs: list[tuple[str, Callable[[Program], Any]]] = [("order", _order), ("bottom_up", _bottom_up)]
    for name, ask in [*pairs, *([("digest", digest)] if not theirs else [])]:
        if ask(program) != ask(copy):
            found.append(f"{name}: {ask(program)}, from nothing {ask(copy)}")
    for step in [] if theirs else FOLLOWED:
        given, expected = step(program), step(copy)
        if (given is program) is not (expected is copy) or list(given.graphs) != list(expected.graphs) or given != expected:
            found.append(f"{step.name}:\n{given}\nfrom nothing\n{expected}")
    return found


FOLLOWED: tuple[Transformation, ...] = (deduplicate, remove_effect_tokens)
"""Transformations that look only at what was edited since they had nothing to do."""


def _order(program: Program) -> tuple[str, ...]:
    return program.order


def _bottom_up(program: Program) -> tuple[str, ...]:
    return program.bottom_up


def incremental_faults(program: Program, seed: int, edits: Sequence[Edited], *, length: int = 6) -> list[str]:
    """Return where the law does not hold of edits of a program, one after the other.

    Args:
        program: a valid program at any stage.
        seed: which edits, in which order, and after which of them it is asked.
        edits: to choose from.
        length: how many are made.

    >>> incremental_faults(Program.of({"": Graph((), (), ())}), 0, EDITS)
    []
    """
    rand = random.Random(seed)  # noqa: S311
    versions = [program]
    found = differences(program) if rand.random() < 0.7 else []
    for _ in range(length):
        edit = rand.choice(edits)
        # Of the last version, or another one of an earlier one; an edit that finds no place is none.
        before = versions[-1] if rand.random() < 0.7 else rand.choice(versions)
        after = edit(before, rand)
        if after is None:
            continue
        if rand.random() < 0.7:
            found += [f"after {getattr(edit, '__name__', edit)}: {line}" for line in differences(after)]
        if not verify(anew(after)) or (rand.random() < 0.2 and _can_be_edited(after)):
            versions.append(after)
    return found


def _can_be_edited(program: Any) -> bool:
    # Of malformed programs nothing can be asked but what is wrong with them.
    kinds = (type(program.graphs), type(program.root), *map(type, program.graphs.values()))
    return kinds[:2] == (PMap, str) and {*kinds[2:]} == {Graph} and bool(program.order) and _is_made_of_nodes(program)


def _is_made_of_nodes(program: Program) -> bool:
    parts: list[Any] = [node for graph in program.graphs.values() for node in graph.nodes]
    return all(type(node) is Node and type(node.args) is tuple and type(node.do) in (Op, Call, Get) for node in parts)


def edits_of(table: Sequence[tuple[str, Callable[[Program, int], Program | None]]]) -> tuple[Edited, ...]:
    """Return edits of functions of a program and a seed, as the corruptors are: what they make is taken for an edit.

    Args:
        table: the functions, each with its name.

    >>> [edit] = edits_of([("nothing", lambda program, seed: program)])
    >>> edit(Program.of({"": Graph((), (), ())}), random.Random(0)).known.keys()
    dict_keys(['origin'])
    """
    return tuple([_as_edit(name, apply) for name, apply in table])


def _as_edit(name: str, apply: Callable[[Program, int], Program | None]) -> Edited:
    def edit(program: Program, rand: random.Random) -> Program | None:
        made = None if verify(anew(program)) else apply(program, rand.randrange(1000))  # corruptors are made for valid programs
        return None if made is None else edited(program, made)

    edit.__name__ = name
    return edit


def edited(before: Program, after: Program) -> Program:
    """Return a program as what the edit of another one gave, which hands on what is known.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> edited(program, anew(program)).known.keys()
    dict_keys(['origin'])
    """
    fields = [*FIELDS, "trail", "past"]
    changes = {name: getattr(after, name) for name in fields if getattr(after, name) is not getattr(before, name)}
    if isinstance(changes.get("graphs"), type(before.graphs)):
        changes["graphs"] = _as_edit_of(before.graphs, changes["graphs"])
    return before.evolve(**changes)


def _as_edit_of(before: Any, after: Any) -> Any:
    # The same map, made of the first as an edit makes it, so that the two share their tree.
    made = before
    for key in [key for key in before if key not in after]:
        made = made.remove(key)
    for key, value in after.items():
        made = made if key in made and made[key] is value else made.set(key, value)
    return made


def _places(program: Program, fits: Callable[[Node], bool]) -> list[tuple[str, int]]:
    return [(name, at) for name in program.order for at, node in enumerate(program.graphs[name].nodes) if fits(node)]


def _with_node(program: Program, place: tuple[str, int], *nodes: Node) -> Program:
    name, at = place
    graph = program.graphs[name]
    made = (*graph.nodes[:at], *nodes, *graph.nodes[at + 1 :])
    return program.evolve(graphs=program.graphs.set(name, attrs.evolve(graph, nodes=made)))


def _chosen(program: Program, rand: random.Random, fits: Callable[[Node], bool]) -> tuple[tuple[str, int], Node] | None:
    places = _places(program, fits)
    if not places:
        return None
    name, at = rand.choice(places)
    return (name, at), program.graphs[name].nodes[at]


def _literal(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: any(type(arg) in (int, float) for arg in node.args))
    if found is None:
        return None
    place, node = found
    args = [type(arg)(rand.randrange(5)) if type(arg) in (int, float) else arg for arg in node.args]
    return _with_node(program, place, node.evolve(args=tuple(args)))


def _operand(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: any(type(arg) is Ref for arg in node.args))
    if found is None:
        return None
    (name, at), node = found
    graph = program.graphs[name]
    before = [part.name for part in (*graph.inputs, *graph.nodes[:at])]
    args = [Ref(rand.choice(before)) if type(arg) is Ref and before else arg for arg in node.args]
    return _with_node(program, (name, at), node.evolve(args=tuple(args)))


def _operator(program: Program, rand: random.Random) -> Program | None:
    found, other = (_chosen(program, rand, lambda node: type(node.do) is Op) for _ in range(2))
    return None if found is None or other is None else _with_node(program, found[0], found[1].evolve(do=other[1].do))


def _twice(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: type(node.do) is not Call)
    if found is None:
        return None
    place, node = found
    name = program.graphs[place[0]].names().fresh(node.name)
    return _with_node(program, place, node, node.evolve(name=name))


def _dropped(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: bool(node.args) and type(node.args[0]) is Ref)
    if found is None:
        return None
    (name, at), node = found
    graph = program.graphs[name]
    known = {node.name: node.args[0]}
    nodes = [each.using(known) for each in graph.nodes[at + 1 :]]
    output = Node("output", Op("output"), (graph.output,)).using(known).args[0]
    made = Graph(graph.inputs, (*graph.nodes[:at], *nodes), output)
    return program.evolve(graphs=program.graphs.set(name, made))


def _renamed(program: Program, rand: random.Random) -> Program | None:
    name = rand.choice(program.order)
    graph = program.graphs[name]
    names = [part.name for part in (*graph.inputs, *graph.nodes)]
    if not names:
        return None
    old = rand.choice(names)
    return program.evolve(graphs=program.graphs.set(name, graph.renamed({old: Ref(graph.names().fresh("other"))})))


def _unsaid(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: bool(node.meta))
    return None if found is None else _with_node(program, found[0], attrs.evolve(found[1], meta={}))


def _exchanged(program: Program, rand: random.Random) -> Program | None:
    one, other = (rand.choice(program.order) for _ in range(2))
    return program.evolve(graphs=program.graphs.set(one, program.graphs[other]))


def _given(program: Program, rand: random.Random) -> Program | None:
    name = rand.choice(program.order)
    graph = program.graphs[name]
    names = [part.name for part in (*graph.inputs, *graph.nodes)]
    if not names:
        return None
    one, output = Ref(rand.choice(names)), graph.output
    options = [one, (output,), (one, one), (*output, one) if type(output) is tuple else (output, one)]
    made = Graph(graph.inputs, graph.nodes, rand.choice(options))
    return program.evolve(graphs=program.graphs.set(name, made))


def _taken(program: Program, rand: random.Random) -> Program | None:
    name = rand.choice(program.order)
    graph = program.graphs[name]
    inputs = graph.inputs[:-1] if rand.random() < 0.3 else (*graph.inputs, Input(graph.names().fresh("more")))
    return program.evolve(graphs=program.graphs.set(name, attrs.evolve(graph, inputs=inputs)))


def _another_slot(program: Program, rand: random.Random) -> Program | None:
    found, other = (_chosen(program, rand, lambda node: type(node.do) is Get) for _ in range(2))
    if found is None or other is None or type(other[1].do) is not Get:
        return None
    slot = rand.choice([other[1].do.slot, "nothing"])
    return _with_node(program, found[0], found[1].evolve(do=Get(slot)))


def _elsewhere(program: Program, rand: random.Random) -> Program | None:
    found, other = (_chosen(program, rand, lambda node: bool(node.name)) for _ in range(2))
    if found is None or other is None:
        return None
    return _with_node(program, found[0], found[1].evolve(stack=rand.choice([other[1].stack, (Frame("elsewhere"),)])))


def _called(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: type(node.do) is Call)
    if found is None or type(do := found[1].do) is not Call:
        return None
    frame = rand.choice([do.instance, Frame("elsewhere"), Frame(do.instance.path, do.instance.call + 1)])
    return _with_node(program, found[0], found[1].evolve(do=Call(frame, rand.choice(program.order))))


def _without_facts(program: Program, rand: random.Random) -> Program | None:
    return program.evolve(facts=frozenset([fact for fact in sorted(program.facts) if rand.random() < 0.5]))


def _made_again(program: Program, rand: random.Random) -> Program | None:
    name = rand.choice(program.order)
    return program.evolve(graphs=program.graphs.set(name, attrs.evolve(program.graphs[name])))


EDITS: tuple[Edited, ...] = (
    _literal, _operand, _operator, _twice, _dropped, _renamed, _unsaid, _exchanged, _given, _taken, _another_slot,
    _elsewhere, _called, _without_facts, _made_again,
)  # fmt: skip
"""Edits of one graph, or of what is said of a program; some leave it valid, some do not."""
