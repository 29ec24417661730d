"""Application: rules on one graph, operands first, as often as they match.

A graph is walked once in the order of its nodes.  Where a rule matches, what it builds stands where the root of the match was,
and takes part in the walk; what only the match used goes.  A match is refused where something between its nodes conflicts with
them (``ir/effects/dependencies.py``), where others use its inner values, and where other memory would visibly be shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import cycle
from typing import Any, Protocol

from attrs import frozen

from ...ir.arguments import Arg, Ref
from ...ir.graph import Call, Graph, Node, Op, common_prefix
from ...ir.inference import CallValues, agrees
from ...ir.meta import freeze
from ...ir.names import Names
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..regions import HARMLESS
from ..transformation import Fuel
from .building import OF_A_VALUE, Builder
from .hits import Hits
from .legality import Legality
from .matching import Found, root_of
from .new_state import NewState
from .place import Match, Scope
from .several import needed, spot, ways

__all__ = ["Sweep"]


class _Rule(Protocol):
    """What is asked of a rule here: what it looks for, and what it puts there (``rule.py``)."""

    @property
    def name(self) -> str: ...
    @property
    def term(self) -> Any: ...
    @property
    def conditions(self) -> Sequence[Callable[[Match], bool]]: ...
    @property
    def keeps_inner(self) -> bool: ...
    @property
    def any_effects(self) -> bool: ...
    @property
    def once(self) -> bool: ...
    @property
    def may_leave(self) -> bool: ...
    def build(self, found: Match) -> Any: ...


@frozen(eq=False)
class _Answer:
    """What a rule puts in the place of a match, for one instance of the graph."""

    place: Match
    nodes: Sequence[Node]
    results: Sequence[Ref]
    has_tensors: bool

    def code(self, like: _Answer) -> object:
        """What is written, whatever the new nodes are called: instances that have it alike share it."""
        named = dict(zip([node.name for node in self.nodes], map(Ref, [node.name for node in like.nodes]), strict=False))
        notes = self.place.notes
        state = [(name, new.kind, new.persistent) for name, new in notes.added.items()]
        results = [named.get(each.name, each) for each in self.results]
        return [node.renamed(named) for node in self.nodes], results, state, [*notes.dropped]


class Sweep:
    """One walk over a graph.

    Args:
        program: the program of the graph.
        name: the id of the graph.
        paths: its instances.
        hits: what matches is counted here, over all walks.
        rules: by the operator at their root.
        fuel: each match is one rewrite.
        state: what is added to the state is noted here.
        calls: the values of each call.
    """

    def __init__(
        self,
        program: Program,
        name: str,
        paths: tuple[str, ...],
        hits: Hits,
        rules: Mapping[Any, Sequence[_Rule]],
        fuel: Fuel,
        state: NewState,
        calls: CallValues,
    ) -> None:
        self.program = program
        self.name = name
        self.graph = program.graphs[name]
        self.paths = paths
        self.rules = rules
        self.fuel = fuel
        self.nodes: dict[str, Node] = dict(self.graph.by_name)
        """The nodes as they are now, and none that went."""
        self.edit = Rewriter(self.graph)
        self.made: dict[str, list[str]] = {}
        """What stands before a node of the graph, or in its place, in order."""
        self.known: dict[str, Arg] = {}
        """What is used in place of values whose node went."""
        self.stands: dict[str, int] = {}
        """The number of the node of the graph that each new one stands before, or in the place of."""
        self.hits = hits
        self.state = state
        self.calls = calls
        self.classes: Mapping[str, int] = {}
        """Where instances disagree, the class of each: the walk ends there, and goes on when they are apart."""
        self.has_tensors = False
        self.is_near = False
        """Whether a pattern was looked for in a value that another body computes."""
        self.legality = Legality(program, name, paths)

    def run(self) -> Graph:
        """Return the graph after the rules; the same object if none matched."""
        for node in self.graph.nodes:
            if self.known and node.name in self.nodes:
                self._update(node.name)
            todo = [node.name]
            while todo and not self.fuel.refused and not self.classes:
                name = todo.pop()
                if name in self.nodes:
                    todo += reversed(self._rewritten(name, node.name))
        return self._result() if self.known else self.graph

    def _update(self, name: str) -> None:
        # A user of a value that went uses what stands for it; that use was counted when it went.
        node = self.nodes[name]
        known = {used: self._settled(self.known[used]) for used in node.refs() if used in self.known}
        if known:
            self.nodes[name] = node.using(known)

    def _rewritten(self, name: str, at: str) -> list[str]:
        # The names of the nodes that are new, where a rule matched.
        for rule in self.rules.get(root_of(self.nodes[name]), ()):
            if rule.once and (rule.name, name) in self.hits.made:
                continue
            for found in ways(rule.term, self.nodes[name], self._node_of, lambda value: self._users_of(value, at)):
                if (made := self._applied(rule, found, at)) is not None:
                    return made
        return []

    def _node_of(self, name: str) -> Node | None:
        # The node behind an operand; where another module computes it, the pattern may lie in several.
        node = self.nodes.get(name)
        source = node if node is None or node.projection is None else self.nodes.get(node.projection[0])
        self.is_near |= self.name != self.program.root if source is None else type(source.do) is Call
        return node

    def _users_of(self, name: str, at: str) -> list[Node]:
        # Those that the walk has come to; where other modules use it as well, the pattern may lie in several.
        users = [self.nodes[user] for user in self.graph.users.get(name, ()) if user in self.nodes]
        self.is_near |= name not in self.nodes and self.name != self.program.root
        self.is_near |= any(type(user.do) is Call for user in users)
        last = self.edit.position[at]
        return [user for user in users if self.edit.position[user.name] < last and name in user.refs()]

    def _applied(self, rule: _Rule, found: Found, at: str) -> list[str] | None:
        if not self._is_possible(rule, found, at):
            return None
        answers = self._answers(rule, found, at)
        first = answers[0]
        if self.classes or first is None:
            return None
        root, made = first.place.root, first.nodes
        if not self.fuel.burn("apply", rule.name, "at", root.name):
            return None
        self.hits.add(rule.name, root.name, made)
        self._note_state(answers)
        gone = {node.name: node for node in (*first.place.nodes, *self._checks(first.place.found))}
        # The reads of state that is dropped go with the match, if nothing else uses them.
        gone.update({name: self.nodes[name] for name in first.place.notes.reads if name in self.nodes})
        before = self._spot(first.place.found, gone, at)
        assert before is not None
        self._take(first, gone, before, at)
        return [node.name for node in made if node.name in self.nodes and before == root.name]

    def _is_possible(self, rule: _Rule, found: Found, at: str) -> bool:
        inner = {node.name: node for node in (*found.nodes, *self._checks(found))}
        if not self._is_free(rule, found, inner) or not self.legality.is_one(found):
            return False
        return self._spot(found, inner, at) is not None

    def _spot(self, found: Found, inner: Mapping[str, Node], at: str) -> str | None:
        # The node before which what replaces a match stands: the last of the match, or for several results another.
        position = self.edit.position
        if not found.several:
            return found.nodes[0].name if self.legality.is_movable(inner, position, at) else None
        if not self.legality.is_placed(inner, position, at):
            return None
        span = self._span(inner, found.nodes[0].name, at)
        if any(node.name not in position and self.legality.acts(node) for node in span):
            return None  # what is new has no relation to others yet: the next walk sees it
        follows, leads = self.legality.around(inner, position)
        place = spot(span, inner, found, follows, leads)
        return None if place is None else span[place].name

    def _span(self, inner: Collection[str], last: str, at: str) -> list[Node]:
        # The nodes from the first of a match to its last one, in order, as they are now.
        first = min(map(self._number, inner))
        there = self.graph.nodes[first : self.edit.position[at] + 1]
        names = [name for node in there for name in self.made.get(node.name, (node.name,)) if name in self.nodes]
        return [self.nodes[name] for name in names[: names.index(last) + 1]]

    def _number(self, name: str) -> int:
        return self.stands[name] if name in self.stands else self.edit.position[name]

    def _checks(self, found: Found) -> list[Node]:
        # What torch asserts about the types of inner values, which goes with them; where others use them, it stays.
        matched = {node.name: node for node in found.nodes}
        inner = matched.keys() - {root.name for root in found.roots}
        checks = {user.name: user for name in inner for user in self._others(name, matched) if is_check(user)}
        if not checks:
            return []
        counted = Counter([name for node in (*matched.values(), *checks.values()) for name in node.refs()])
        return [check for check in checks.values() if all(self._uses[name] == counted[name] for name in check.refs())]

    # -- what is put there ------------------------------------------------------------------------------------------------------

    def _answers(self, rule: _Rule, found: Found, at: str) -> list[_Answer | None]:
        # What the rule puts there: for the first instance, and for the others where it asked which one it is.
        names = self.edit.names
        place, first = self._answer(rule, found, at, 0, names)
        if len(self.paths) == 1 or not place.notes.asked:
            return [first]
        taken = [node.name for node in first.nodes] if first is not None else []
        others = [self._answer(rule, found, at, number, names.without(taken))[1] for number in range(1, len(self.paths))]
        answers = [first, *others]
        codes = [None if first is None or each is None else each.code(first) for each in answers]
        known = [codes.index(code) if each is not None else -1 for code, each in zip(codes, answers, strict=True)]
        if len(set(known)) > 1:
            self.classes = dict(zip(self.paths, known, strict=True))
        return answers

    def _answer(self, rule: _Rule, found: Found, at: str, instance: int, names: Names) -> tuple[Match, _Answer | None]:
        # None where a condition does not hold, the rule builds nothing, or what it builds may not stand there.
        place = Match(self._scope, common_prefix([node.stack for node in found.nodes]), instance, found)
        if not all(condition(place) for condition in rule.conditions) or ((term := rule.build(place)) is None and rule.may_leave):
            return place, None
        builder = Builder(place, names, place.root)
        roots = place.roots
        results = builder.results(term, len(roots)) if found.several else (builder.result(term),)
        if len(place.nodes) > len(found.nodes) and not self._is_possible(rule, place.found, at):
            return place, None
        if all(result == Ref(root.name) for result, root in zip(results, roots, strict=True)):
            return place, None
        self.legality.check_effects(rule.name, place, builder.nodes, any_effects=rule.any_effects)
        if not self.legality.shares_alike(roots, place.nodes, builder.nodes, results):
            return place, None
        return place, _Answer(place, builder.nodes, results, builder.has_tensors)

    @cached_property
    def _scope(self) -> Scope:
        graph = self.program, self.name, self.paths, self.legality.values, self.nodes.get
        return Scope(*graph, self.state, self.calls, self.legality.is_changed)

    def _note_state(self, answers: Sequence[_Answer | None]) -> None:
        for path, each in zip(self.paths, cycle(answers)):  # one answer is that of all instances
            if each is not None:
                self.has_tensors |= each.has_tensors
                self.state.add(path, each.place.notes.added)
                self.state.drop(path, each.place.notes.dropped)

    # -- whether it may be ------------------------------------------------------------------------------------------------------

    def _is_free(self, rule: _Rule, found: Found, inner: Mapping[str, Node]) -> bool:
        # Inner values are used by the match alone, or stay for the others.
        roots = {root.name for root in found.roots}
        counted = Counter(name for node in inner.values() for name in node.refs())
        kept = [name for name in inner if name not in roots and self._uses[name] != counted[name]]
        if not rule.keeps_inner:
            return not kept
        users = [user for name in inner.keys() - roots for user in self._others(name, inner)]
        if any(self.legality.acts(user) and not is_check(user) for user in users):
            return False
        return len(roots) == 1 or roots.isdisjoint(needed(kept, inner))

    def _others(self, name: str, inner: Collection[str]) -> Iterator[Node]:
        for user in self.graph.users.get(name, ()):
            if user in self.nodes and user not in inner:
                yield self.nodes[user]

    # -- what is known of the graph ---------------------------------------------------------------------------------------------

    @cached_property
    def _uses(self) -> Counter[str]:
        return Counter([*(name for node in self.graph.nodes for name in node.refs()), *self.graph.output_refs()])

    # -- the edit ---------------------------------------------------------------------------------------------------------------

    def _take(self, answer: _Answer, inner: Mapping[str, Node], before: str, at: str) -> None:
        # What replaces a match stands before one of the nodes up to here.
        roots = [root.name for root in answer.place.roots]
        span = [node.name for node in self._span(inner, answer.place.root.name, at)] if len(roots) > 1 else roots
        self._insert(answer.nodes, before)
        results = dict(zip(roots, answer.results, strict=True))
        for root in sorted(roots, key=span.index, reverse=True):
            self.known[root] = result = results[root]
            self._uses[result.name] += self._uses[root]
            self._uses[root] = 0
            # Of the nodes of the match goes what nothing uses any more, the last first.
            while unused := [name for name in inner if name in self.nodes and not self._uses[name]]:
                for name in unused:
                    self._count(self.nodes.pop(name), -1)
        for name in span:  # those that the walk has come to already use what stands for the others
            if name in self.nodes:
                self._update(name)

    def _insert(self, made: Sequence[Node], before: str) -> None:
        number = self._number(before)
        where = self.graph.nodes[number].name
        there = self.made.setdefault(where, [where])
        place = there.index(before)
        there[place:place] = [node.name for node in made]
        for node in made:
            self.nodes[node.name] = node
            self.stands[node.name] = number
            self._count(node, 1)

    def _count(self, node: Node, by: int) -> None:
        for name in node.refs():
            self._uses[name] += by

    def _result(self) -> Graph:
        edit = self.edit
        known = {name: self._settled(arg) for name, arg in self.known.items()}
        for at, names in self.made.items():
            made = [self.nodes[name] for name in names if name != at and name in self.nodes]
            edit.before(edit.position[at], *[node.using(known) for node in made])
        edit.erase(*[node.name for node in self.graph.nodes if node.name not in self.nodes])
        for name, arg in known.items():
            edit.replace(name, arg)
            if self._differs(name, arg):
                self._forget_users(name)
        return edit.graph()

    def _differs(self, name: str, arg: Arg) -> bool:
        # Whether a value that was there, and is of another type, stands for one that went.
        values = self.legality.values
        return type(arg) is Ref and arg.name in values and name in values and not agrees(values[arg.name], values[name])

    def _forget_users(self, name: str) -> None:
        for user in self.graph.users.get(name, ()):
            if user in self.nodes:
                meta = {key: value for key, value in self.graph.by_name[user].meta.items() if key not in OF_A_VALUE}
                self.edit.put(self.edit.position[user], self.graph.by_name[user].evolve(meta=freeze(meta)))

    def _settled(self, arg: Arg) -> Arg:
        # What a value is in the end, where what stands for it went too.
        while type(arg) is Ref and arg.name in self.known:
            arg = self.known[arg.name]
        return arg


def is_check(node: Node) -> bool:
    """Return whether a node does nothing but assert what type a value has."""
    return type(node.do) is Op and node.do.name in HARMLESS
