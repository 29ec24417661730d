"""Application: rules on a program, until none matches.

A walk visits the nodes of a graph in order, operands first.  It inserts the replacement of a match before its root and visits it
too; nodes that only the match used are removed.  Changed graphs are walked again until nothing matches.  Where the instances of
a body disagree, the body is split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

from ...ir.arguments import Ref, refs_in
from ...ir.calls.call_graph import instances
from ...ir.errors import InvalidProgram, PurefxError, RuleError
from ...ir.forks import cached_property
from ...ir.graph import Call, Graph, Node, Op, common_prefix, place_of
from ...ir.importing.constants import has_constants, with_constants
from ...ir.inference import (
    Border,
    FakeValues,
    Interpreter,
    borders_of,
    disagreement_of_bodies,
    values_of,
)
from ...ir.inference.values import LOCK
from ...ir.names import Names
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.torch_private import silence
from ..dispatch import with_true_checks
from ..shared_bodies import specialised
from ..transformation import Fuel
from .borders import has_sizes_of, results_at, value_of
from .draft import Draft, Pending, as_staged, meta_of, origin_of_match
from .explanation import BORDER, CONDITION, UNCHANGED, Left, RewriteLog, Skip
from .legality import Legality
from .match import Match
from .matching import Found, Search, root_of
from .pattern import Through, role
from .trace import Template, operands_key


class Sweep:
    """One walk over a graph.

    Args:
        work: the rules, and the program.
        name: the id of the graph.
    """

    def __init__(self, work: Application, name: str) -> None:
        self.work, self.name, self.fakes = work, name, work.fakes
        self.program, self.pending, self.fuel, self.hits = (
            work.program,
            work.pending,
            work.fuel,
            work.hits[name],
        )
        self.graph = work.program.graphs[name]
        self.classes: Mapping[str, int] = {}
        """The class of each instance, if they disagree: the walk stops there, and continues after the split."""
        self.has_tensors = False
        self.again: Sequence[str] = ()
        """The nodes at which another walk may find a match."""
        self.left: list[Left] = []
        self._present = {id(root_of(do)) for do in self.graph.distinct}
        """The operators of the graph and of new nodes."""
        self._rules: dict[tuple[int, int], Sequence[Any]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The instances of the graph."""
        return self.pending.paths[self.name]

    @cached_property
    def draft(self) -> Draft:
        """The current graph."""
        return Draft(self.graph)

    @cached_property
    def values_at(self) -> Sequence[Mapping[str, Any]]:
        """The fake values at each instance, by name; none if the instance is called several times."""
        calls = [self.pending.calls.at(self.name, path) for path in self.paths]
        return [values_of(several[0]) if len(several) == 1 else {} for several in calls]

    @cached_property
    def legality(self) -> Legality:
        """The checks of matches and replacements."""
        return Legality(self)

    def run(self) -> Graph:
        """Return the graph after the rules; the same object if none matched."""
        wanted = {id(do) for do in self.graph.distinct if id(root_of(do)) in self.work.by_id}
        candidates = (
            [node.name for node in self.graph.nodes if id(node.do) in wanted] if wanted else []
        )
        for at in reversed(candidates) if self.work.is_top_down else candidates:
            self.at, todo = at, [at]
            while todo and not self.fuel.refused and not self.classes:
                name = todo.pop()
                todo += reversed(self._rewritten(name)) if name in self.draft.nodes else ()
        if not candidates or not self.draft.is_changed:
            return self.graph
        nodes, new = (
            self.draft.nodes,
            [name for names in self.draft.made.values() for name in names],
        )
        self.again = [
            name
            for name in (*candidates, *new)
            if name in nodes and id(root_of(nodes[name].do)) in self.work.by_id
        ]
        if not self.again:
            self.left.clear()  # the skipped matches were removed later
        self.__dict__.pop(
            "legality", None
        )  # it refers to the walk: without this cycle the walk is freed at once
        return self.draft.graph()

    def _rewritten(self, name: str) -> list[str]:
        # The names of the new nodes, if a rule matched.
        node = self.draft.nodes[name]
        search = Search(self.draft.nodes.get)
        for rule in self._rules_at(id(root_of(node.do))):
            if rule.once and name in self.hits.made and self.hits.made[name].rule == rule.name:
                continue
            for found in search.results(rule.pattern, node, self._users_of):
                if (made := self._applied(rule, found)) is not None:
                    return made
        return []

    def _rules_at(self, root: int) -> Sequence[Any]:
        # The rules for a root whose other operators are in the graph too; the set of these only grows.
        key = root, len(self._present)
        if key not in self._rules:
            several = self.work.by_id.get(root, ())
            self._rules[key] = [
                rule for rule in several if not any(map(self._present.isdisjoint, rule.needs))
            ]
        return self._rules[key]

    def _users_of(self, name: str) -> list[Node]:
        # Those before the current node of the graph.
        nodes, position = self.draft.nodes, self.graph.position
        users = [nodes[user] for user in self.graph.users.get(name, ()) if user in nodes]
        return [
            user
            for user in users
            if position[user.name] < position[self.at] and name in user.refs()
        ]

    def _applied(self, rule: Any, found: Found) -> list[str] | None:
        # The names of the new nodes to visit; None if the match is skipped, or the instances disagree.
        places = self._places(rule, found)
        first, draft = places[0], self.draft
        root, roots, notes = first.root, first.found.roots, first.notes
        if (
            self.classes
            or notes.nodes is None
            or not self.fuel.burn("apply", rule.name, "at", root.name, graph=self.name)
        ):
            return None
        gone = roots if rule.keeps_inner else first.found.distinct
        self.hits.add(rule.name, root, gone, notes.nodes, self.paths)
        self.work.matched.add(id(rule))
        self.has_tensors |= any(map(has_constants, notes.nodes))
        for path, place in zip(self.paths, cycle(places)):  # one serves all instances
            self.pending.change(path, place.notes.added, place.notes.dropped)
        draft.insert(notes.nodes, notes.before)
        draft.move(notes.moved, notes.before)
        self.legality.note_replacement(
            notes.nodes,
            {old.name: new.name for old, new in zip(roots, notes.results, strict=True)},
        )
        made = {node.name: id(root_of(node.do)) for node in notes.nodes}
        self._present.update(made.values())
        for result in notes.results:
            if result.name not in made:
                draft.add_origin(result.name, origin_of_match(first, rule.name))
        # Reads of dropped state are removed with the match, if nothing else uses them; they do not block it.
        gone = notes.inner | {
            name: draft.nodes[name] for name in notes.reads if name in draft.nodes
        }
        for old, result in zip(roots, notes.results, strict=True):
            draft.replace(old.name, result, gone)
        return [
            one
            for one, key in made.items()
            if key in self.work.by_id and one in draft.nodes and notes.before == root.name
        ]

    # -- replacements -----------------------------------------------------------------------------------------------------------

    def _places(self, rule: Any, found: Found) -> list[Match]:
        # The match in the first instance, and in the others if its replacement depends on the instance.
        names = self.draft.names
        first = self._place(rule, found, 0, names)
        if not first.notes.by_instance or len(self.paths) == 1:
            return [first]
        used = [node.name for node in first.notes.nodes or ()]
        others = [
            self._place(rule, found, number, names.without(used))
            for number in range(1, len(self.paths))
        ]
        codes = [place.notes.code for place in (first, *others)]
        if any(code != codes[0] for code in codes):
            self.classes = {
                path: codes.index(code) for path, code in zip(self.paths, codes, strict=True)
            }
        return [first, *others]

    def _place(self, rule: Any, found: Found, instance: int, names: Names) -> Match:
        place = Match(
            self,
            common_prefix([node.stack for node in found.nodes]),
            instance,
            found,
            rule.variables,
        )
        try:
            self._replace(rule, place, names)
        except Exception as error:
            is_skipped = rule.is_shipped or self.work.explains
            if isinstance(error, Skip) or (is_skipped and isinstance(error, PurefxError)):
                self._leave(rule, place, error)
                return place
            where = f"at {place_of(found.nodes[0])}" + (
                f" in the body {self.name!r}" if self.name else ""
            )
            error.add_note(f"in rule {rule.name}, {where}")
            raise
        return place

    def _leave(self, rule: Any, place: Match, error: Exception) -> None:
        # Note a skipped match, unless rules made its nodes: the reader does not know these.
        found, is_error = place.found, not (isinstance(error, Skip) or rule.is_shipped)
        if not is_error and any(node.name in self.hits.made for node in found.nodes):
            return
        self.work.matched.add(id(rule))
        is_alone = place.notes.by_instance
        modules = (self.paths[place.instance],) if is_alone else self.paths
        self.left.append(Left(rule.name, found.nodes[0], str(error), self.name, modules))

    def _replace(self, rule: Any, place: Match, names: Names) -> None:
        # Note the replacement of a match.
        found, notes, legality = place.found, place.notes, self.legality
        legality.note_place(notes, found, keeps_inner=rule.keeps_inner)
        if not place.holds(rule.where):
            raise Skip(CONDITION)
        template, sources = self._template(rule, place)
        root, roots, has_values = (
            found.nodes[0],
            found.roots,
            not (template.makes_sizes or self.name in self.work.inside),
        )
        if template.reads_sizes and self.at in self.work.mapped.get(self.name, ()):
            raise RuleError(IN_VMAP)
        meta = meta_of(root, origin_of_match(place, rule.name))
        nodes, results = template.at(root, place.stack, sources, names, meta, has_values=has_values)
        if type(root.do) is Call:
            check_call(place, nodes)
        if place.found is not found:
            legality.note_place(notes, place.found, keeps_inner=rule.keeps_inner)
        if [result.name for result in results] == [old.name for old in roots]:
            raise Skip(UNCHANGED)
        legality.check_progress(place.found, notes.inner, nodes, results)
        legality.check_effects(rule.name, place, nodes, any_effects=rule.any_effects)
        legality.check_memory(roots, tuple(notes.inner.values()), nodes, results)
        for border in self.work.borders:
            several = results_at(border, rule, place, template, sources)
            for old, result, (was, now) in zip(roots, results, several, strict=True):
                new = value_of(result.name, nodes, self.draft)
                if has_sizes_of(old.val, new) and not has_sizes_of(was, now):
                    raise Skip(BORDER.format(border))
                legality.check_strides(old, was, now)
        notes.nodes, notes.results = nodes, results

    def _template(self, rule: Any, place: Match) -> tuple[Template, Sequence[Any]]:
        # The traced replacement and its operands; cached by its operands, unless it depends on more.
        values = tuple([place.found.values.get(name) for name in rule.variables])
        chosen = [value for part, value in place.found.values.items() if role(part) == "any_of"]
        refs = [*dict.fromkeys(refs_in(values))]
        key = rule, tuple(chosen), operands_key(values, refs, place.val)
        if (template := self.work.templates.get(key)) is not None:
            return template, [*map(Ref, refs), *template.sources[len(refs) :]]
        is_plain = not place.operands.by_source and not any(
            isinstance(value, Through) for value in values
        )
        operands, place.notes.looked = [place.operand(value) for value in values], False
        template = place.traced(rule, operands)
        if is_plain and not place.notes.looked:
            self.work.templates[key] = template
        return template, template.sources


class Application:
    """Apply rules to a program until nothing matches; split bodies whose instances disagree."""

    def __init__(self, program: Program, rules: Any, fuel: Fuel, *, explains: bool = False) -> None:
        self.explains = explains
        """Whether an error of any rule is a reason to skip the match, as for shipped rules."""
        self.before = self.program = program
        self.is_top_down, self.fuel = rules.is_top_down, fuel
        self.left: dict[str, list[Left]] = {}
        """The matches that the last walk over each graph skipped."""
        self.matched: set[int] = set()
        """The rules that matched nodes of the given program, by id."""
        self.by_id = {
            id(root): several for root, several in rules.index.items()
        }  # the hash of an operator of torch is slow
        self.pending, self.fakes = Pending(program, {}), FakeValues(program)
        self.inside: Collection[str] = ()
        self.mapped: Mapping[str, Collection[str]] = {}
        self.borders: Sequence[Border] = ()
        """The program at the sizes 0 and 1 that it accepts; nodes that a walk makes are unknown there until the next walk."""
        self.templates: dict[Any, Template] = {}
        self.hits = {name: RewriteLog(name, program.graphs[name]) for name in program.order}

    def run(self) -> Program:
        """Return the program after the rules; the same object if none matched.

        Raises:
            RuleError: the branches of an operator no longer return equal types.
        """
        todo: Iterable[str] = self.program.order
        with LOCK, silence():  # torch has one recorder for all threads
            while todo and not self.fuel.refused:
                todo = self._walk(todo)
        rules = dict.fromkeys([hit.rule for each in self.hits.values() for hit in each.found])
        for name in self.program.order if rules else ():
            for node in self.program.graphs[name].callers:
                if difference := disagreement_of_bodies(node, self.program.graphs):
                    place = f"of {place_of(node)} in {name!r} {difference}. Cast it, or match in all branches"
                    raise RuleError(
                        f"{', '.join(rules)}: a replacement has another type or size: {place}"
                    )
        return as_staged(self.program.pruned()) if rules else self.before

    def _walk(self, todo: Iterable[str]) -> list[str]:
        # A match may enable another one before it, so changed graphs are walked again.
        program = self.program
        self.pending, self.inside = Pending(program, self.pending.dropped), inside_regions(program)
        self.mapped = in_levels_of_vmap(program) if self.inside else {}
        self.borders = borders_of(program, self.borders)
        walks = [Sweep(self, name) for name in todo]
        self.left.update({walk.name: walk.left for walk in walks})
        changed = {
            walk.name: graph
            for walk in walks
            if (graph := walk.run()) is not program.graphs[walk.name]
        }
        if changed:
            made = self.pending.applied(program.with_graphs(changed))
            if any(walk.has_tensors for walk in walks):
                made = with_constants(made)
            drafts = {walk.name: walk.draft for walk in walks if walk.name in changed}
            retyped = {name for name, draft in drafts.items() if draft.is_retyped}
            self.program = (
                made
                if all(draft.has_values for draft in drafts.values())
                else self._inferred(made, retyped)
            )
        apart = [walk for walk in walks if walk.classes]
        # One body at a time: a split may create versions of the calling bodies.
        versions = self._split(apart[0]) if apart else []
        again = [walk.name for walk in walks if walk.name in changed and walk.again]
        return [*dict.fromkeys([*again, *versions, *[walk.name for walk in apart]])]

    def _inferred(self, made: Program, retyped: Collection[str] = ()) -> Program:
        # The values of calls of retyped bodies are stale.
        calls = [
            (name, node) for name in made.order if retyped for node in made.graphs[name].callers
        ]
        stale = frozenset(
            [(name, node.name) for name, node in calls if not set(node.callees).isdisjoint(retyped)]
        )
        try:
            return with_true_checks(Interpreter(made, stale).program())
        except InvalidProgram as error:
            for name in {each.graph: None for each in error.violations if each.graph in self.hits}:
                for hit in self.hits[name].found[-1:]:
                    error.add_note(f"after rule {hit.rule}, last applied at {place_of(hit.root)}")
            raise

    def _split(self, walk: Sweep) -> list[str]:
        program = self.program
        keys = {
            place: walk.classes[place[1]] if place[0] == walk.name else None
            for place in instances(program)
        }
        graphs, sources = specialised(
            program, keys, lambda place: program.graphs[place[0]], Names(program.graphs)
        )
        self.program = self._inferred(
            program.with_graphs(graphs)
        )  # values that differed may be known in each version
        versions = [new for new, old in sources.items() if new != old]
        self.hits.update(
            {
                new: RewriteLog(new, self.program.graphs[new], self.hits[sources[new]].made)
                for new in versions
            }
        )
        return versions


def inside_regions(program: Program) -> Collection[str]:
    """Return the ids of the graphs that open or close regions, that operators run, or that such graphs call.

    Regions affect values, so the values of new nodes in these graphs are inferred.
    """
    found = {
        name
        for name, graph in program.graphs.items()
        if any(type(do) is Op and do.effects.scope for do in graph.distinct)
    }
    for name in reversed(program.bottom_up):
        found.update(
            *[
                node.callees
                for node in program.graphs[name].callers
                if type(node.do) is Op or name in found
            ]
        )
    return found


def in_levels_of_vmap(program: Program) -> dict[str, set[str]]:
    """Return the nodes of each graph that run in a level of ``torch.vmap``.

    >>> in_levels_of_vmap(Program.of({"": Graph((), ())}))
    {'': set()}
    """
    found: dict[str, set[str]] = {}
    bodies: set[str] = set()
    for name in reversed(program.bottom_up):
        graph, level = program.graphs[name], int(name in bodies)
        inside = found[name] = set()
        for node in graph.nodes:
            if "vmap" in node.op_name:
                level += node.declared.scope
            if level:
                inside.add(node.name)
        for node in graph.callers:
            if node.name in inside:
                bodies.update(node.callees)
    return found


IN_VMAP = (
    "the replacement computes with an open size in a level of torch.vmap, where torch cannot read sizes; write it with\n"
    "operators that take no open size (flatten, expand_as), or test in `where=` that the size is an int"
)


def check_call(m: Match, made: Sequence[Node]) -> None:
    """Check that nodes may replace a call of a module.

    Raises:
        RuleError: the module has several results, or its signature is preserved and the call would be removed.
    """
    call: Any = m.root.do
    body, name = m.program.graphs[call.graph], call.instance
    if type(body.output) is tuple:
        raise RuleError(
            f"the module {name} returns {len(body.output)} values: match a module with one, or operators of its body"
        )
    if any(map(is_boundary, body.nodes)) and not any(node.do == call for node in made):
        raise RuleError(
            f"the call of {name} has a preserved signature, so a rule cannot remove it: compute with m.value"
        )
