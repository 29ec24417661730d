"""``Templates``: what a replacement wrote for one match, written again for matches whose operands are described alike.

That is right only where the replacement is a function of its operands: its code calls functions of torch, and asks neither the
match nor a value for anything.  Who reads what may change between two matches (a counter, a list, an attribute), prints, or looks
at the match is called for each of them.  Whether new nodes may stand in a place is asked at each of them all the same.
"""

from __future__ import annotations

import dis
import math
import operator
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import define

from ...ir.arguments import Arg, Items, Ref, replace_refs
from ...ir.graph import Node, Op
from ...ir.inference import FakeValues, Memo
from ...ir.meta import Meta
from ...ir.names import Names
from ...ir.torch_private import FakeTensor, OpOverload, OpOverloadPacket
from .building import Builder, meta_of
from .given import ASKED
from .matching import Found
from .place import Match

__all__ = ["Sources", "Template", "Templates", "sources_of"]

OF_A_MATCH = frozenset([name for name in dir(Match) if not name.startswith("_")]) - {"call"}
"""What a replacement asks of the match it is called with."""

LOOKS = OF_A_MATCH | ASKED | {"val", "ref"}
"""Attributes that say what differs between matches with operands that are described alike."""

LITERALS: tuple[type, ...] = (
    int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip

FUNCTIONS: tuple[type, ...] = (types.BuiltinFunctionType, types.FunctionType, OpOverload, OpOverloadPacket)

MODULES = (torch, math, operator)

BUILTINS = frozenset({abs, bool, enumerate, float, int, len, list, max, min, range, reversed, sum, tuple, zip})

CHANGING = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "IMPORT_NAME", "YIELD_VALUE")
"""Instructions of what is not a function of its arguments."""

Source = tuple[Callable[[], Any], Any]
"""What a function is, or a name that it looks up: how it is asked for, and what it was."""


class Sources:
    """What the replacement of a rule looks up, worked out once, and again where some of it is another object by now.

    Args:
        function: the replacement.

    >>> sources = Sources(lambda m, x: torch.relu(x))
    >>> sources.now() is sources.now()
    True
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._found = sources_of(function)

    def now(self) -> list[Source] | None:
        """Return what decides, beside its arguments, what the function returns; None if more does."""
        if self._found is None or not are_same(self._found):
            self._found = sources_of(self._function)
        return self._found


def are_same(sources: Sequence[Source]) -> bool:
    """Return whether what a function looks up is what it was."""
    return all(look() is was for look, was in sources)


def sources_of(function: Callable[..., Any]) -> list[Source] | None:
    """Return what a function looks up when it runs, if what it returns depends on that and its arguments alone; None otherwise.

    Args:
        function: the replacement of a rule.

    >>> scale, seen = 2, []
    >>> len(sources_of(lambda m, x: torch.relu(x) * 2)), len(sources_of(lambda m, x: m.call(torch.ops.aten.neg, x)))
    (2, 2)
    >>> sources_of(lambda m, x: x.neg() if m.dtype("x") == torch.int8 else x), sources_of(lambda m, x: seen.append(x) or x)
    (None, None)
    """
    found: list[Source] = []
    todo, known = [function], set[types.CodeType]()
    while todo:
        each = todo.pop()
        if type(each) is not types.FunctionType or each.__kwdefaults__:
            return None
        if each.__code__ in known:
            continue
        known.add(each.__code__)
        found.append((lambda each=each: each.__code__, each.__code__))
        sources = _looked_up(each)
        if sources is None:
            return None
        for source in sources:
            value = source[1]
            if type(value) is types.FunctionType and not _is_of_torch(value):
                todo.append(value)
            elif not _is_constant(value):
                return None
        found += sources
    return found


def _looked_up(function: types.FunctionType) -> list[Source] | None:
    # The names that its code, inner functions included, finds in its module and around it.
    around = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    found: list[Source] = []
    for instruction in _instructions(function.__code__):
        name, word = instruction.opname, instruction.argval
        if name in CHANGING or (name == "STORE_DEREF" and word in around):
            return None
        if name in ("LOAD_ATTR", "LOAD_METHOD") and word in LOOKS:
            return None
        try:
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                space = function.__globals__
                builtins = space.get("__builtins__")
                space = space if word in space else builtins if isinstance(builtins, dict) else vars(builtins)
                found.append((lambda space=space, word=word: space.get(word), space[word]))
            elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE") and word in around:
                cell = around[word]
                found.append((lambda cell=cell: cell.cell_contents, cell.cell_contents))
        except (KeyError, ValueError):  # not there: it says so where it runs
            return None
    return found


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    todo = [code]
    while todo:
        each = todo.pop()
        yield from dis.get_instructions(each)
        todo += [one for one in each.co_consts if isinstance(one, types.CodeType)]


def _is_constant(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    if isinstance(value, types.ModuleType):
        return value in MODULES or value.__name__.startswith("torch.")
    if isinstance(value, LITERALS):
        return True
    try:
        return value in BUILTINS or _is_of_torch(value)
    except TypeError:  # it has no hash
        return False


def _is_of_torch(value: Any) -> bool:
    if isinstance(value, OpOverload | OpOverloadPacket):
        return True
    module = getattr(value, "__module__", None) or ""
    return isinstance(value, FUNCTIONS) and (module.partition(".")[0] == "torch" or module in ("math", "_operator"))


@define(eq=False)
class Template:
    """Nodes that a replacement became, over the operands of the match that it was called for."""

    given: tuple[str, ...]
    """The values that its variables were, each once."""
    nodes: tuple[Node, ...]
    words: tuple[str, ...]
    """What each node wants to be called."""
    results: tuple[Ref, ...]
    is_described: bool
    """Whether its operands are described, so that values of its nodes are those of the next match too."""
    values: tuple[Any, ...] | None = None
    """What describes the value of each node; None if that is not known."""
    replaced: tuple[Any, ...] = ()
    """What described the values that the results stand for."""

    def written(
        self, given: Sequence[str], place: Match, names: Names, values: Sequence[Any] | None, origin: Meta
    ) -> tuple[list[Node], tuple[Ref, ...]]:
        """Return new nodes, and the values that stand for those of the roots of a match.

        Args:
            given: the values that variables are there, each once.
            place: the match.
            names: those that are taken.
            values: the fake values of the nodes; None where they are not known yet.
            origin: what their meta says of what they are made of.
        """
        known = dict(zip(self.given, map(Ref, given), strict=True))
        made, meta = list[Node](), meta_of(place.root, origin)
        for number, (node, word) in enumerate(zip(self.nodes, self.words, strict=True)):
            name = names.fresh(word)
            args = replace_refs(node.args, known)
            kwargs = replace_refs(node.kwargs, known) if node.kwargs else ()
            said = meta if values is None else MappingProxyType({**meta, "val": values[number]})
            made.append(Node(name, node.do, args, kwargs, place.stack, said))
            known[node.name] = Ref(name)
        return made, tuple([known[result.name] for result in self.results])

    def keep_values(self, values: Sequence[Any], replaced: Sequence[Any], memo: Memo) -> None:
        """Keep the values that its nodes turned out to have, where descriptions of operands say all of them.

        Args:
            values: of the nodes.
            replaced: the values of the roots that the results stand for, and are described like.
            memo: describes values.
        """
        made, stood = [memo.facts(value) for value in values], [memo.described(value) for value in replaced]
        if self.is_described and None not in made and None not in stood:
            self.values, self.replaced = tuple(made), tuple(stood)


class Templates:
    """Templates of rules while they are applied to a program.

    Args:
        values: those of the program.
    """

    def __init__(self, values: FakeValues) -> None:
        self._values = values
        self._sources: dict[int, tuple[Any, list[Source] | None]] = {}
        self._found: dict[Hashable, Template] = {}
        self._same: dict[int, bool] = {}
        """Whether what a rule looks up is what it was, since something else than this library has run."""
        self._described: dict[int, tuple[Any, Hashable | None]] = {}

    def key(self, rule: Any, found: Found, known: Mapping[str, Any]) -> tuple[Hashable, tuple[str, ...]] | None:
        """Return what decides what a rule writes for a match, and the values that its variables are there, each once.

        It is None where the rule has to be asked.

        Args:
            rule: its replacement is looked at once for each application.
            found: the match.
            known: the fake values of the graph, by name.
        """
        same = self._same.get(id(rule))
        if not (self._looked(rule) if same is None else same):
            return None
        parts: list[Hashable] = [id(rule)]
        numbers, values = dict[str, int](), found.values
        for variable in rule.variables:
            arg = values.get(variable)
            part = self._value(arg.name, numbers, known) if type(arg) is Ref else self._part(arg, numbers, known)
            if part is None:
                return None
            parts.append(part)
        return tuple(parts), tuple(numbers)

    def look_again(self) -> None:
        """Forget that what rules look up is what it was: a function of somebody else runs."""
        self._same.clear()

    def _looked(self, rule: Any) -> bool:
        known = self._sources.get(id(rule))
        if known is None:  # held, so that no other rule has its id
            known = self._sources[id(rule)] = rule, rule.sources.now()
        sources = known[1]
        same = self._same[id(rule)] = sources is not None and are_same(sources)
        return same

    def _part(self, arg: Arg, numbers: dict[str, int], known: Mapping[str, Any]) -> Hashable | None:
        # What a variable is: which of the values, and what it is like; or a literal, told apart by type and to the last bit.
        kind = type(arg)
        if kind is Ref:
            return self._value(arg.name, numbers, known)
        if kind is tuple or kind is Items:
            parts = [self._part(each, numbers, known) for each in arg]
            return None if None in parts else (kind, *parts)
        if kind is float or kind is complex:
            return kind, repr(arg)
        return (kind, arg) if kind in LITERALS else None

    def _value(self, name: str, numbers: dict[str, int], known: Mapping[str, Any]) -> Hashable:
        number = numbers.get(name)
        if number is not None:
            return number
        number = numbers[name] = len(numbers)
        value = known.get(name)
        described = self.described(value)
        if described is not None:
            return number, described
        # Overloads are chosen by no more than this.
        return number, torch.Tensor if isinstance(value, torch.Tensor) else type(value)

    def described(self, value: Any) -> Hashable | None:
        """Return what describes a fake tensor; None where that would not be all, and for any other value."""
        if type(value) is not FakeTensor:
            return None
        known = self._described.get(id(value))
        if known is None:  # held, so that no other value has its id
            known = self._described[id(value)] = value, self._values.memo.described(value)
        return known[1]

    def values(self, template: Template, replaced: Sequence[Any], free: list[Any]) -> list[Any] | None:
        """Return the values of the nodes of a template at a match; None where they have to be worked out.

        Args:
            template: says what they were like.
            replaced: the values of the roots.
            free: values that nothing has any more; those that are alike are taken.
        """
        if template.values is None or tuple(map(self.described, replaced)) != template.replaced:
            return None
        return [self._values.memo.made(facts, free, self.described) for facts in template.values]

    def find(self, key: Hashable) -> Template | None:
        """Return the template that was kept, if any."""
        return self._found.get(key)

    def keep(self, key: Hashable, given: Sequence[str], builder: Builder, results: Sequence[Ref]) -> Template | None:
        """Keep what a builder made; None if it is not made of operators and values alone.

        Args:
            key: what decides it.
            given: the values that variables were.
            builder: has the nodes.
            results: what stands in the place of the roots.
        """
        inside = {*given, *[node.name for node in builder.nodes]}
        used = {name for node in builder.nodes for name in node.refs()}.union([result.name for result in results])
        if builder.has_tensors or not used <= inside or not all(type(node.do) is Op for node in builder.nodes):
            return None
        described = all(self.described(builder.place.scope.known.get(name)) is not None for name in given)
        made = Template(tuple(given), tuple(builder.nodes), tuple(builder.words), tuple(results), described)
        self._found[key] = made
        return made
