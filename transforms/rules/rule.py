"""``rule``: a pattern and its replacement, written as two functions; ``RuleSet``: several of them, applied together.

Both are values that can be called with a program, like any transformation.  ``matching.py`` finds patterns, and ``legality.py``
decides whether a match is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Never, cast

from attrs import evolve, field, frozen

from ...ir.errors import ArgumentError, RuleError
from ...ir.forks import cached_property, collector_paused
from ...ir.graph import Value
from ...ir.program import Program
from ...ir.validation import a_function, a_program
from ..transformation import UNLIMITED, Fuel, Transformation
from .application import Application
from .explanation import Explanation, together
from .match import Match
from .matching import check_results, needs, roots_of
from .near_misses import near_misses
from .pattern import Pattern, pattern_at, role, variables_of

LAWS = (
    "nothing that the rule looks for and may replace is left",
    "values of new nodes are those that their operators compute",
)


@frozen(slots=False)
class RuleSet(Value):
    """Rules that are applied together until none matches; the first rule that matches a value replaces it.

    Called with a program it returns the rewritten program, the same object if nothing matched.

    >>> import torch, purefx as px
    >>> @px.rule
    ... def double(x):
    ...     return x + x
    >>> @double.becomes
    ... def _(m, x):
    ...     return x * 2
    >>> [each.name for each in (double + double).rules]
    ['double', 'double']
    """

    _saved: ClassVar[str] = (
        "rules are functions: import the module that makes them where they are used"
    )
    rules: tuple[Rule, ...]
    is_top_down: bool = field(default=False, kw_only=True, repr=False)
    """Whether to match values from the results of a graph to its inputs."""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.rules, list | tuple) or not all(
            isinstance(each, Rule) for each in self.rules
        ):
            raise ArgumentError(
                "RuleSet takes a tuple of rules, made by px.rule; a + b is a set of two"
            )

    def __add__(self, other: RuleSet) -> RuleSet:
        """Return the rules of both sets, these first; top-down if either is."""
        if not isinstance(other, RuleSet):
            return NotImplemented
        return RuleSet(
            (*self.rules, *other.rules), is_top_down=self.is_top_down or other.is_top_down
        )

    def top_down(self) -> RuleSet:
        """Return the same rules, matched from the results of a graph to its inputs: a large pattern before its parts.

        By default operands are matched before their users, so a rule can match the replacement of an operand.

        >>> import torch, purefx as px
        >>> inner = px.rule(lambda x: torch.sin(x)).becomes(lambda m, x: torch.cos(x))
        >>> outer = px.rule(lambda x: torch.relu(torch.sin(x))).becomes(lambda m, x: torch.tanh(x))
        >>> class Both(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.relu(torch.sin(x))
        >>> program = px.import_ep(torch.export.export(Both(), (torch.ones(2),)))
        >>> [node.do.name for node in (inner + outer)(program).main.nodes]
        ['aten.cos.default', 'aten.relu.default']
        >>> [node.do.name for node in (inner + outer).top_down()(program).main.nodes]
        ['aten.tanh.default']
        """
        return RuleSet(self.rules, is_top_down=True)

    def __call__(self, program: Program, *, fuel: int | None = None) -> Program:
        """Return the program with all matches of the rules replaced.

        Args:
            program: any valid program; it is not changed.
            fuel: the maximum number of matches to replace; by default all.

        Raises:
            RuleError: a replacement does not fit its match, has other effects, or the rules do not terminate.
            InvalidProgram: the operands of an operator in a replacement are invalid.
        """
        return self.transformation(program, fuel=fuel)

    def explain(self, program: Program) -> Explanation:
        """Return the replaced and the skipped matches, with the reason for each skipped one.

        For a rule that matched nothing it has the nearest place, and the first difference from the pattern.

        Args:
            program: any valid program; it is not changed.

        >>> import torch, purefx as px
        >>> class Both(torch.nn.Module):
        ...     def forward(self, x):
        ...         y = torch.sin(x)
        ...         return torch.relu(y), y
        >>> rule = px.rule(lambda x: torch.relu(torch.sin(x))).becomes(lambda m, x: torch.tanh(x))
        >>> report = rule.explain(px.import_ep(torch.export.export(Both(), (torch.ones(2),))))
        >>> [(left.root.name, left.why) for left in report.left], report.replaced
        ([('relu', 'other nodes use its inner values: sin by the caller; keeps_inner=True keeps these values for them')], ())
        """
        work = Application(a_program(program, "explain"), self, UNLIMITED, explains=True)
        made = work.run()
        replaced = tuple([hit for each in work.hits.values() for hit in each.found])
        left = together([each for name in made.order for each in work.left.get(name, ())])
        rest = [each for each in self.rules if id(each) not in work.matched]
        return Explanation(made, replaced, left, near_misses(program, rest))

    @cached_property
    def transformation(self) -> Transformation:
        """The rules as a transformation, for ``transform``, ``bisect`` and the laws."""

        def apply(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
            with collector_paused():
                return Application(program, self, fuel).run()

        apply.__doc__ = f"Apply {self.name}."
        return Transformation(self.name, apply, forgets=frozenset({"deduplicated"}), laws=LAWS)

    @cached_property
    def name(self) -> str:
        """The names of the decorated functions."""
        return " + ".join([each.written.__name__ for each in self.rules])

    @cached_property
    def index(self) -> Mapping[Any, tuple[Rule, ...]]:
        """The rules, by the operators that may be their root.

        Raises:
            RuleError: a rule has no replacement.
        """
        found: dict[Any, tuple[Rule, ...]] = {}
        for each in self.rules:
            if each.replacement is None:
                raise RuleError(
                    f"{each.name} has no replacement: write one as `@{each.name}.becomes`, over `def _(m, ...)`"
                )
            for target in dict.fromkeys(
                [one for part in each.pattern.results for one in roots_of(part)]
            ):
                found[target] = (*found.get(target, ()), each)
        return found


@frozen(slots=False)
class Rule(RuleSet):
    """One rule: a pattern, and a function that computes its replacement.

    >>> import torch, purefx as px
    >>> softened = px.rule(lambda x: torch.relu(x))
    >>> softened.pattern, softened.variables, softened.replacement
    (relu(x), ('x',), None)
    """

    rules: tuple[Rule, ...] = field(init=False, repr=False, eq=False)
    written: Callable[..., Any]
    """The decorated function."""
    pattern: Pattern = field(repr=False)
    variables: tuple[str, ...]
    replacement: Callable[..., Any] | None = None
    where: Callable[[Match], bool] | None = field(default=None, repr=False)
    keeps_inner: bool = False
    """Whether to keep inner values for their other users; otherwise such matches are skipped."""
    any_effects: bool = False
    """Whether the replacement may draw or be ordered where the pattern does not, or the other way round."""
    once: bool = False
    """Whether the rule skips its own results."""
    is_shipped: bool = field(default=False, repr=False)
    """Whether the rule is one of ``px.rules``, whose errors skip the match."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "rules", (self,))

    @cached_property
    def needs(self) -> Collection[frozenset[int]]:
        """The operators that a match needs: a graph needs one of each set, by id."""
        return needs(self.pattern)

    def becomes(self, replacement: Callable[..., Any]) -> Rule:
        """Set the replacement of the pattern, once; use it as a decorator, which returns the rule.

        Args:
            replacement: a function of the match and the value of each variable, in the order of the pattern.  It returns a value
                that it computes with functions of torch and ``m.call``.

        Raises:
            RuleError: its parameters are not ``m`` and the variables of the pattern, or the rule already has a replacement.
        """
        what = f"a function of ({', '.join(('m', *self.variables))}), in plain torch code"
        parameters = tuple(
            variables_of(a_function(replacement, f"the replacement of {self.name}", what))
        )
        if parameters[1:] != self.variables:
            raise RuleError(
                f"{self.name}.becomes takes ({', '.join(('m', *self.variables))}), not ({', '.join(parameters)})"
            )
        if self.replacement is not None:
            raise RuleError(f"{self.name} has a replacement already; write another rule")
        object.__setattr__(
            self, "replacement", replacement
        )  # set once, below the pattern; from then on the rule is complete
        return self


def shipped(rules: RuleSet) -> RuleSet:
    """Return rules of the library: if one cannot replace a match, the match is skipped, because its user cannot mend the rule.

    >>> made = rule(lambda x: x + 1).becomes(lambda m, x: x + 2)
    >>> made.rules[0].is_shipped, shipped(made).rules[0].is_shipped
    (False, True)
    """
    return RuleSet(tuple([evolve(each, is_shipped=True) for each in rules.rules]))


def rule(
    pattern: Callable[..., Any] | None = None,
    /,
    *more: Never,
    where: Callable[[Match], bool] | None = None,
    keeps_inner: bool = False,
    any_effects: bool = False,
    once: bool = False,
    at: Any = None,
) -> Any:
    """Make a rule from a pattern, a function of plain torch code; ``becomes`` adds its replacement.

    Each parameter of the pattern is a variable.  It matches any value, number or list; all its uses match the same one.
    The pattern is traced once: it may use functions and methods of torch, ``torch.ops`` and operators of Python.
    Arguments match by position, by name and with their defaults; operands of commutative operators match in both orders.

    Before, and after the rule below::

        y = aten.linear.default(x, w, b)        y = aten.linear.default(x, w, b)
        z = aten.relu.default(y)                z = aten.tanh.default(y)

    Args:
        pattern: a function that returns the value to replace, or a tuple of values to replace together.
        more: not accepted; pass the replacement to ``becomes``.
        where: a predicate on the match (sizes, dtypes, literals). Comparisons of symbolic sizes that cannot be proven count as
            false. It is called again with the sizes 0 and 1 if the program accepts them.
        keeps_inner: keep inner values of a match for their other users, which recomputes them; otherwise such a match is skipped.
        any_effects: allow a replacement that draws random numbers or is ordered where the pattern is not, or the other way round.
            Neither may write.
        once: do not match nodes that the rule itself wrote in the same call.
        at: an operator of torch, a list of them, or ``px.module``. The function then accepts each match, and returns the
            replacement, or None to skip the match.

    Returns:
        A ``Rule``; without a pattern, a decorator that makes one.

    Raises:
        RuleError: the pattern needs values that are known only at run time, has no operator, or does not use a parameter.
        ArgumentError: an argument has the wrong type.

    >>> import torch, purefx as px
    >>> @px.rule
    ... def soften(x):
    ...     return torch.relu(x)
    >>> @soften.becomes
    ... def _(m, x):
    ...     return torch.tanh(x)
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> [node.do.name for node in soften(program).main.nodes]
    ['aten.tanh.default']
    >>> softened = soften(program)
    >>> soften(softened) is softened
    True
    """
    if more:
        raise ArgumentError(
            "px.rule takes a pattern alone; pass the replacement to becomes: px.rule(pattern).becomes(replacement)"
        )

    def make(function: Callable[..., Any]) -> Rule:
        advice = (
            "apply the rule that px.rule returns, not px.rule itself"
            if isinstance(cast("Any", function), Program)
            else ""
        )
        a_function(
            function,
            "the pattern of px.rule",
            "a function, as in px.rule(lambda x: torch.relu(x))",
            advice,
        )
        traced = Pattern.of(function) if at is None else pattern_at(at)
        if unused := {*traced.variables} - {
            each.target for each in traced.parts if role(each) == "variable"
        }:
            raise RuleError(
                f"{function.__name__} does not use {', '.join(sorted(unused))}: remove the parameter or use it"
            )
        check_results(function.__name__, traced.results)
        replacement = None if at is None else function
        return Rule(
            function, traced, traced.variables, replacement, where, keeps_inner, any_effects, once
        )

    return make if pattern is None else make(pattern)
