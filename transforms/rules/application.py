"""Application: rules on a program, until none matches.

A walk visits the nodes of a graph in order, operands first.  It inserts the replacement of a match before its root and visits it
too; nodes that only the match used are removed.  Changed graphs are walked again until nothing matches.  Where the instances of
a body disagree, the body is split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import cycle
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Ref, refs_in
from ...ir.calls.call_graph import all_instances, instances
from ...ir.errors import InvalidProgram, RuleError
from ...ir.graph import Call, Graph, Node, Op, common_prefix, place_of
from ...ir.importing.constants import with_constants
from ...ir.inference import CallValues, FakeValues, disagreement_of_branches, values_of
from ...ir.inference.values import LOCK
from ...ir.names import Names
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ..cleanup import infer
from ..shared_bodies import specialised
from ..transformation import Fuel
from .draft import Draft, NewState, as_staged, meta_of, origin_of_match
from .explanation import CONDITION, MEMORY, UNCHANGED, Left, RewriteLog
from .legality import Legality
from .match import Match
from .matching import Found, Search, root_of
from .pattern import Through, role
from .trace import Template, Unknown, described


class Places:
    """The instances of the graphs of a program, and the values of their calls, computed on demand."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def calls(self) -> CallValues:
        """The values of each call."""
        return CallValues(self.program)

    @cached_property
    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """The paths of the modules of each graph."""
        return all_instances(self.program)

    @cached_property
    def has_regions(self) -> bool:
        """Whether operators run bodies or open regions: these affect values, so values are inferred again."""
        several = [do for name in self.program.order for do in self.program.graphs[name].distinct if type(do) is Op]
        return any(do.effects.scope or do.effects.through_bodies for do in several)


@frozen(eq=False)
class _Answer:
    """The replacement of a match, for one instance of the graph."""

    place: Match
    where: tuple[dict[str, Node], str]
    """The nodes to remove with the match if nothing else uses them, and the node before which to insert the replacement."""
    template: Template
    nodes: Sequence[Node]
    results: Sequence[Ref]

    def code(self, like: _Answer) -> object:
        """Return the nodes and the new state, without names; instances whose codes are equal share the nodes."""
        named = dict(zip([node.name for node in self.nodes], map(Ref, [node.name for node in like.nodes]), strict=False))
        notes = self.place.notes
        state = [(name, new.kind, new.persistent) for name, new in notes.added.items()]
        results = [named.get(each.name, each) for each in self.results]
        return [node.renamed(named) for node in self.nodes], results, state, [*notes.dropped]


class Sweep:
    """One walk over a graph.

    Args:
        work: the rules, and the program.
        name: the id of the graph.
        places: the instances of the graphs.
    """

    def __init__(self, work: Application, name: str, places: Places) -> None:
        self.work, self.name, self.places = work, name, places
        self.program, self.fuel, self.state, self.hits = work.program, work.fuel, work.state, work.hits[name]
        self.fakes = work.fakes
        self.graph = work.program.graphs[name]
        self.classes: Mapping[str, int] = {}
        """The class of each instance, if they disagree: the walk stops there, and continues after the split."""
        self.has_tensors = False
        self.at_fixpoint = False
        """Whether another walk would find nothing."""
        self.is_waiting = False
        """Whether a match needs values that are inferred after the walk."""
        self.left: list[Left] = []
        self._present = {id(do.target if type(do) is Op else type(do)) for do in self.graph.distinct}
        """The operators of the graph and of new nodes."""
        self._rules: dict[int, Sequence[Any]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The instances of the graph."""
        return self.places.paths[self.name]

    @cached_property
    def draft(self) -> Draft:
        """The current graph."""
        return Draft(self.graph)

    def node_of(self, name: str) -> Node | None:
        """Return the current node of a value; None for an input."""
        return self.draft.nodes.get(name)

    @cached_property
    def values_at(self) -> Sequence[Mapping[str, Any]]:
        """The fake values at each instance, by name; none if the instance is called several times."""
        calls = [self.places.calls.at(self.name, path) for path in self.paths]
        return [values_of(several[0]) if len(several) == 1 else {} for several in calls]

    @cached_property
    def legality(self) -> Legality:
        """The checks of matches and replacements."""
        return Legality(self.program, self.name, self.draft, lambda: self.paths)

    def run(self) -> Graph:
        """Return the graph after the rules; the same object if none matched."""
        wanted = {id(do) for do in self.graph.distinct if id(do.target if type(do) is Op else type(do)) in self.work.by_id}
        candidates = [node.name for node in self.graph.nodes if id(node.do) in wanted] if wanted else []
        for at in reversed(candidates) if self.work.is_top_down else candidates:
            self.at, todo = at, [at]
            while todo and not self.fuel.refused and not self.classes:
                name = todo.pop()
                if name in self.draft.nodes:
                    todo += reversed(self._rewritten(name))
        if not candidates or not self.draft.is_changed:
            return self.graph
        nodes, new = self.draft.nodes, [name for names in self.draft.made.values() for name in names]
        again = [name for name in (*candidates, *new) if name in nodes and id(root_of(nodes[name])) in self.work.by_id]
        self.at_fixpoint = not self.is_waiting and not again
        made = self.draft.graph()
        self.__dict__.pop("legality", None)  # it refers to the walk: without this cycle the walk is freed at once
        return made

    def _rewritten(self, name: str) -> list[str]:
        # The names of the new nodes, if a rule matched.
        node = self.draft.nodes[name]
        search = Search(self.node_of)
        for rule in self._rules_at(id(root_of(node))):
            if rule.once and name in self.hits.made and self.hits.made[name].rule == rule.name:
                continue
            for found in search.results(rule.pattern, node, self._users_of):
                if (made := self._applied(rule, found)) is not None:
                    return made
        return []

    def _rules_at(self, root: int) -> Sequence[Any]:
        # The rules for a root whose other operators are in the graph too.
        if root not in self._rules:
            several = self.work.by_id.get(root, ())
            self._rules[root] = [rule for rule in several if not any(map(self._present.isdisjoint, rule.needs))]
        return self._rules[root]

    def _users_of(self, name: str) -> list[Node]:
        # Those before the current node of the graph.
        nodes, position = self.draft.nodes, self.draft.position
        users = [nodes[user] for user in self.graph.users.get(name, ()) if user in nodes]
        return [user for user in users if position[user.name] < position[self.at] and name in user.refs()]

    def _applied(self, rule: Any, found: Found) -> list[str] | None:
        answers = self._answers(rule, found)
        first = answers[0]
        if self.classes or first is None:
            return None
        root, made, (gone, before) = first.place.root, first.nodes, first.where
        if not self.fuel.burn("apply", rule.name, "at", root.name, graph=self.name):
            return None
        gone_by_it = first.place.found.roots if rule.keeps_inner else first.place.found.distinct
        self.hits.add(rule.name, root, gone_by_it, made)
        for path, answer in zip(self.paths, cycle(answers)):  # one answer serves all instances
            if answer is not None:
                self.has_tensors |= any(isinstance(source, torch.Tensor) for source in answer.template.sources)
                self.state.add(path, answer.place.notes.added)
                self.state.drop(path, answer.place.notes.dropped)
        # Reads of dropped state are removed with the match, if nothing else uses them; they do not block it.
        gone.update({name: self.draft.nodes[name] for name in first.place.notes.reads if name in self.draft.nodes})
        self._take(rule, first, gone, before)
        return [node.name for node in made if node.name in self.draft.nodes and before == root.name]

    def _possible(self, rule: Any, found: Found) -> tuple[dict[str, Node], str] | None:
        # The nodes to remove with a match if nothing else uses them, and the node before which to insert the replacement.
        place = self.legality.place_of(found, keeps_inner=rule.keeps_inner)
        return self._leave(rule, found, place) if isinstance(place, str) else place

    def _leave(self, rule: Any, found: Found, why: str) -> None:
        self.left.append(Left(rule.name, found.nodes[0], why, self.name))

    # -- replacements -----------------------------------------------------------------------------------------------------------

    def _answers(self, rule: Any, found: Found) -> list[_Answer | None]:
        # The replacement for the first instance, and for the others if it depends on the instance.
        names = self.draft.names
        place, first = self._answer(rule, found, 0, names)
        if not place.notes.by_instance or len(self.paths) == 1:
            return [first]
        used = [node.name for node in first.nodes] if first is not None else []
        others = [self._answer(rule, found, number, names.without(used))[1] for number in range(1, len(self.paths))]
        answers = [first, *others]
        codes = [None if first is None or each is None else each.code(first) for each in answers]
        known = [codes.index(code) if each is not None else -1 for code, each in zip(codes, answers, strict=True)]
        if len(set(known)) > 1:
            self.classes = dict(zip(self.paths, known, strict=True))
        return answers

    def _answer(self, rule: Any, found: Found, instance: int, names: Names) -> tuple[Match, _Answer | None]:
        # None if a condition does not hold, the replacement is None, or it is not legal.
        place = Match(self, common_prefix([node.stack for node in found.nodes]), instance, found, rule.variables)
        where = self._possible(rule, found)
        if where is None:
            return place, None
        try:
            if not place.holds(rule.where):
                return place, self._leave(rule, found, CONDITION)
            traced = self._template(rule, place)
        except Exception as error:
            if isinstance(error, Unknown) and not self.draft.has_values:
                self.is_waiting = True
                return place, self._leave(rule, found, UNCHANGED)
            where = f"at {place_of(found.nodes[0])}" + (f" in the body {self.name!r}" if self.name else "")
            error.add_note(f"in rule {rule.name}, {where}")
            raise
        if traced is None:
            return place, self._leave(rule, found, UNCHANGED)
        template, sources = traced
        root, roots = place.found.nodes[0], place.found.roots
        nodes, results = template.at(root, place.stack, sources, names, meta_of(root, origin_of_match(place, rule.name)))
        if type(root.do) is Call:
            check_call(place, nodes)
        if place.found is not found and (where := self._possible(rule, place.found)) is None:
            return place, None
        if [result.name for result in results] == [root.name for root in roots]:
            return place, self._leave(rule, found, UNCHANGED)
        self.legality.check_effects(rule.name, place, nodes, any_effects=rule.any_effects)
        if not self.legality.shares_alike(roots, place.found.distinct, nodes, results):
            return place, self._leave(rule, found, MEMORY)
        return place, _Answer(place, where, template, nodes, results)

    def _template(self, rule: Any, place: Match) -> tuple[Template, Sequence[Any]] | None:
        # The traced replacement and its operands; cached by described operands, unless it depends on more.
        values = [place.found.values.get(name) for name in rule.variables]
        chosen = [value for part, value in place.found.values.items() if role(part) == "any_of"]
        refs = [*dict.fromkeys(refs_in(tuple(values), ()))]
        names = {name: f"{number}" for number, name in enumerate(refs)}
        key = rule, tuple(chosen), described(tuple(values), names, place.val)
        if key in self.work.templates:
            template = self.work.templates[key]
            return template, [*map(Ref, refs), *template.sources[len(refs) :]]
        is_plain = not place.operands.sources and not any(isinstance(value, Through) for value in values)
        operands, place.notes.looked = [place.operand(value) for value in values], False
        template = place.traced(rule, operands)
        if template is None:
            return None
        if is_plain and not place.notes.looked:
            self.work.templates[key] = template
        return template, template.sources

    def _take(self, rule: Any, answer: _Answer, inner: Mapping[str, Node], before: str) -> None:
        draft, roots = self.draft, [root.name for root in answer.place.found.roots]
        span = [node.name for node in draft.span(inner, answer.place.root.name)] if len(roots) > 1 else roots
        results = dict(zip(roots, answer.results, strict=True))
        made = draft.checked(answer.nodes, results, are_known=answer.template.values_are_known and not self.places.has_regions)
        draft.insert(made, before)
        if more := {id(node.do.target) for node in made if type(node.do) is Op} - self._present:
            self._present |= more
            self._rules.clear()
        new = [node.name for node in made]
        for result in answer.results:
            if result.name not in new:
                draft.add_origin(result.name, origin_of_match(answer.place, rule.name))
        for root in sorted(roots, key=span.index, reverse=True):
            draft.replace(root, results[root], inner)


class Application:
    """Apply rules to a program until nothing matches; split bodies whose instances disagree."""

    def __init__(self, program: Program, rules: Any, fuel: Fuel, *, explains: bool = False) -> None:
        self.before = self.program = program
        self.is_top_down = rules.is_top_down
        self.fuel = fuel
        self.explains = explains
        self.left: dict[str, list[Left]] = {}
        """The matches that the last walk over each graph skipped."""
        self.by_id = {id(root): several for root, several in rules.index.items()}  # the hash of an operator of torch is slow
        self.state, self.fakes = NewState(program, {}), FakeValues(program)
        self.templates: dict[Any, Template] = {}
        self.hits = {name: RewriteLog(name, program.graphs[name]) for name in program.order}

    def run(self) -> Program:
        """Return the program after the rules; the same object if none matched."""
        todo: Iterable[str] = self.program.order
        with LOCK:  # torch has one recorder for all threads
            while todo and not self.fuel.refused:
                todo = self._walk(todo)
        rules = [hit.rule for each in self.hits.values() for hit in each.found]
        check_branches(self.program, rules)
        return as_staged(self.program.pruned()) if rules else self.before

    def _walk(self, todo: Iterable[str]) -> list[str]:
        # A match may enable another one before it, so changed graphs are walked again.
        program, places = self.program, Places(self.program)
        self.state = NewState(program, self.state.dropped)
        walks = [Sweep(self, name, places) for name in todo]
        self.left.update({walk.name: walk.left for walk in walks})
        graphs = {walk.name: walk.run() for walk in walks}
        changed = {name: graph for name, graph in graphs.items() if graph is not program.graphs[name]}
        if changed:
            made = self.state.applied(program.with_graphs(changed))
            if any(walk.has_tensors for walk in walks):
                made = with_constants(made)
            has_values = all(walk.draft.has_values for walk in walks if walk.name in changed)
            self.program = made if has_values else self._inferred(made)
        apart = [walk for walk in walks if walk.classes]
        # One body at a time: a split may create versions of the calling bodies.
        versions = self._split(apart[0]) if apart else []
        again = [walk.name for walk in walks if walk.name in changed and (not walk.at_fixpoint or (self.explains and walk.left))]
        return [*dict.fromkeys([*again, *versions, *[walk.name for walk in apart]])]

    def _inferred(self, made: Program) -> Program:
        try:
            return infer(made)
        except InvalidProgram as error:
            for name in {each.graph: None for each in error.violations if each.graph in self.hits}:
                for hit in self.hits[name].found[-1:]:
                    error.add_note(f"after rule {hit.rule}, last applied at {place_of(hit.root)}")
            raise

    def _split(self, walk: Sweep) -> list[str]:
        program = self.program
        keys = {place: walk.classes[place[1]] if place[0] == walk.name else None for place in instances(program)}
        graphs, sources = specialised(program, keys, lambda place: program.graphs[place[0]], Names(program.graphs))
        self.program = self._inferred(program.with_graphs(graphs))  # values that differed may be known in each version
        versions = [new for new, old in sources.items() if new != old]
        for new in versions:
            self.hits[new] = RewriteLog(new, self.program.graphs[new], self.hits[sources[new]].made)
        return versions


def check_branches(program: Program, rules: Sequence[str]) -> None:
    """Check that the branches of an operator still return equal types.

    Raises:
        RuleError: the types differ.
    """
    for name in program.order if rules else ():
        for node in program.graphs[name].callers:
            if difference := disagreement_of_branches(node, program.graphs):
                wrote, place = ", ".join(dict.fromkeys(rules)), f"of {place_of(node)} in {name!r} {difference}"
                raise RuleError(f"{wrote}: a replacement has another type or size: {place}. Cast it, or match in all branches")


def check_call(m: Match, made: Sequence[Node]) -> None:
    """Check that nodes may replace a call of a module.

    Raises:
        RuleError: the module has several results, or its signature is preserved and the call would be removed.
    """
    call: Any = m.root.do
    body, name = m.program.graphs[call.graph], call.instance
    if type(body.output) is tuple:
        raise RuleError(f"the module {name} returns {len(body.output)} values: match a module with one, or operators of its body")
    if any(map(is_boundary, body.nodes)) and not any(node.do == call for node in made):
        raise RuleError(f"the call of {name} has a preserved signature, so a rule cannot remove it: compute with m.value")
