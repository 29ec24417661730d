"""Application: rules on one graph, operands first, as often as they match.

A graph is walked once in the order of its nodes.  Where a rule matches, what it builds stands where the root of the match was,
and takes part in the walk; what only the match used goes.  A match is refused where something between its nodes conflicts with
them (``ir/effects/dependencies.py``), where others use its inner values, and where other memory would visibly be shared.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import cycle
from typing import Any, Protocol

from attrs import frozen

from ...ir.arguments import Arg, Ref, refs_in
from ...ir.errors import RuleError
from ...ir.graph import Call, Graph, Node, Op, common_prefix
from ...ir.inference import CallValues, agrees
from ...ir.meta import freeze
from ...ir.names import Names
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.torch_private import OpOverload
from ..regions import HARMLESS
from ..transformation import Fuel
from .building import OF_A_VALUE, Builder
from .legality import Legality
from .matching import Found, match
from .new_state import NewState
from .place import Match, Scope

__all__ = ["Hits", "Sweep", "root_of"]

OFTEN = 64
"""How many matches there may be for each node before rules are taken to go round in a circle."""


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


class Hits:
    """What matched in one graph, over all walks: where it is too much, the rules go round in a circle."""

    def __init__(self, name: str, graph: Graph, made: Iterable[tuple[str, str]] = ()) -> None:
        self.where = f"the body {name!r}" if name else "the root"
        self.most = OFTEN * (len(graph.nodes) + 1)
        self.found: list[str] = []
        self.made = set(made)
        """Each node that is new, with the rule that made it."""

    def add(self, rule: str, root: str, made: Iterable[Node]) -> None:
        """Count a match of a rule.

        Raises:
            RuleError: there are too many.
        """
        self.found.append(rule)
        self.made.update([(rule, node.name) for node in made])
        if len(self.found) > self.most:
            names = ", ".join(dict.fromkeys(self.found[-OFTEN:]))
            raise RuleError(
                f"the rules come to no end in {self.where}: {names} matched {len(self.found)} times, at last at {root}.\n"
                "What one of them builds is what another, or itself, looks for; say in `where=` when it is enough, or once=True\n"
                "for a rule that leaves alone what it has made."
            )


@frozen(eq=False)
class _Answer:
    """What a rule puts in the place of a match, for one instance of the graph."""

    place: Match
    nodes: Sequence[Node]
    result: Ref
    has_tensors: bool

    def code(self, like: _Answer) -> object:
        """What is written, whatever the new nodes are called: instances that have it alike share it."""
        named = dict(zip([node.name for node in self.nodes], map(Ref, [node.name for node in like.nodes]), strict=False))
        notes = self.place.notes
        state = [(name, new.kind, new.persistent) for name, new in notes.added.items()]
        return [node.renamed(named) for node in self.nodes], named.get(self.result.name, self.result), state, [*notes.dropped]


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
            for found in match(rule.term, Ref(name), self._node_of):
                if (made := self._applied(rule, found, at)) is not None:
                    return made
        return []

    def _node_of(self, name: str) -> Node | None:
        # The node behind an operand; where another module computes it, the pattern may lie in several.
        node = self.nodes.get(name)
        source = node if node is None or node.projection is None else self.nodes.get(node.projection[0])
        self.is_near |= self.name != self.program.root if source is None else type(source.do) is Call
        return node

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
        gone = {node.name: node for node in (*first.place.nodes, *self._checks(first.place.nodes))}
        # The reads of state that is dropped go with the match, if nothing else uses them.
        gone.update({name: self.nodes[name] for name in first.place.notes.reads if name in self.nodes})
        self._take(root, gone, made, first.result, at)
        return [node.name for node in made if node.name in self.nodes]

    def _is_possible(self, rule: _Rule, found: Found, at: str) -> bool:
        inner = {node.name: node for node in (*found.nodes, *self._checks(found.nodes))}
        return self._is_free(rule, found.nodes[0], inner) and self.legality.is_movable(inner, self.edit.position, at)

    def _checks(self, nodes: Sequence[Node]) -> list[Node]:
        # What torch asserts about the types of inner values, which goes with them; where others use them, it stays.
        matched = {node.name: node for node in nodes}
        inner = [name for name in matched if name != nodes[0].name]
        found = {user.name: user for name in inner for user in self._others(name, matched) if is_check(user)}
        if not found:
            return []
        counted = Counter([name for node in (*matched.values(), *found.values()) for name in node.refs()])
        return [check for check in found.values() if all(self._uses[name] == counted[name] for name in check.refs())]

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
        result = builder.result(term)
        if len(place.nodes) > len(found.nodes) and not self._is_possible(rule, place.found, at):
            return place, None
        if result == Ref(place.root.name):
            return place, None
        self.legality.check_effects(rule.name, place, builder.nodes, any_effects=rule.any_effects)
        if not self.legality.shares_alike(place.root, place.nodes, builder.nodes, result):
            return place, None
        return place, _Answer(place, builder.nodes, result, builder.has_tensors)

    @cached_property
    def _scope(self) -> Scope:
        return Scope(self.program, self.name, self.paths, self.legality.values, self.nodes.get, self.state, self.calls)

    def _note_state(self, answers: Sequence[_Answer | None]) -> None:
        for path, each in zip(self.paths, cycle(answers)):  # one answer is that of all instances
            if each is not None:
                self.has_tensors |= each.has_tensors
                self.state.add(path, each.place.notes.added)
                self.state.drop(path, each.place.notes.dropped)

    # -- whether it may be ------------------------------------------------------------------------------------------------------

    def _is_free(self, rule: _Rule, root: Node, inner: Mapping[str, Node]) -> bool:
        # Inner values are used by the match alone, or stay for the others.
        if rule.keeps_inner:
            users = [user for name in inner if name != root.name for user in self._others(name, inner)]
            return not any(self.legality.acts(user) and not is_check(user) for user in users)
        counted = Counter(name for node in inner.values() for name in node.refs())
        return all(self._uses[name] == counted[name] for name in inner if name != root.name)

    def _others(self, name: str, inner: Collection[str]) -> Iterator[Node]:
        for user in self.graph.users.get(name, ()):
            if user in self.nodes and user not in inner:
                yield self.nodes[user]

    # -- what is known of the graph ---------------------------------------------------------------------------------------------

    @cached_property
    def _uses(self) -> Counter[str]:
        return Counter([*(name for node in self.graph.nodes for name in node.refs()), *self.graph.output_refs()])

    # -- the edit ---------------------------------------------------------------------------------------------------------------

    def _take(self, root: Node, inner: Mapping[str, Node], made: Sequence[Node], result: Arg, at: str) -> None:
        there = self.made.setdefault(at, [at])
        spot = there.index(root.name)
        there[spot:spot] = [node.name for node in made]
        for node in made:
            self.nodes[node.name] = node
            self._count(node, 1)
        self.known[root.name] = result
        for name in refs_in((result,), ()):
            self._uses[name] += self._uses[root.name]
        self._uses[root.name] = 0
        # Of the nodes of the match goes what nothing uses any more, the last first.
        while unused := [name for name in inner if name in self.nodes and not self._uses[name]]:
            for name in unused:
                self._count(self.nodes.pop(name), -1)

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


def root_of(node: Node) -> Any:
    """Return what rules are indexed by: the overload that a node calls, ``getitem``, or None for anything else."""
    target = node.do.target if type(node.do) is Op else None
    return target if isinstance(target, OpOverload) or target is operator.getitem else None
