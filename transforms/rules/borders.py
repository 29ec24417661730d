"""Matches at the sizes 0 and 1 that a program accepts, which torch did not trace.

A recorded value is right from size 2 on (``ir/inference/borders.py``).  So at each border the condition is asked again on the
values there, and the replacement is traced again: it must be the same operators with the same arguments, and its results must
have the sizes of the matched values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from attrs import Factory, define
from torch import fx
from torch.fx.node import map_arg

from ...ir.arguments import Ref
from ...ir.graph import Node
from ...ir.inference import Border, as_tuple, described, running
from .draft import Draft
from .explanation import BORDER, Skip
from .match import Match
from .trace import KEPT, Source, Template

NUMBERS = (bool, int, float)


def results_at(
    border: Border, rule: Any, place: Match, template: Template, sources: Sequence[Source]
) -> list[tuple[Any, Any]]:
    """Return the value of each root and of its replacement at a border.

    Args:
        border: the sizes that are 0 or 1.
        rule: the rule of the match.
        place: the match, with its condition proven for the recorded values.
        template: the replacement for the recorded values.
        sources: the operands of the template.

    Raises:
        Skip: the condition or the replacement is another one there, or fails.
    """
    try:
        results = _same_results(rule, place.at(border), template, sources)
    except (RecursionError, MemoryError):
        raise
    except Exception as error:  # an operator or the code of the rule may raise anything
        raise Skip(BORDER.format(border)) from error
    if results is None:
        raise Skip(BORDER.format(border))
    roots = [border.value(place.scope.name, root.name) for root in place.found.roots]
    return list(zip(roots, results, strict=True))


def _same_results(
    rule: Any, there: Match, template: Template, sources: Sequence[Source]
) -> list[Any] | None:
    # The results of the template at a border; None if the rule does not apply or does other things there.
    if not there.holds(rule.where):
        return None
    values = [there.operand(there.found.values.get(name)) for name in rule.variables]
    with torch.random.fork_rng(devices=[]):  # the replacement may draw new state
        again = there.traced(rule, values)
    with running(there.fakes.mode):
        mine = _Evaluation.of(there, template, sources)
        theirs = _Evaluation.of(there, again, again.sources)
    return mine.results if mine.code == theirs.code else None


@define
class _Evaluation:
    """A replacement on values whose sizes are numbers."""

    place: Match
    values: dict[fx.Node, Any] = Factory(dict)
    calls: list[Any] = Factory(list)
    """The operators that return no number, with their arguments in a form that can be compared."""
    names: dict[fx.Node, Any] = Factory(dict)
    """What stands for each node among the arguments."""
    results: list[Any] = Factory(list)
    code: Any = None

    @classmethod
    def of(cls, place: Match, template: Template, sources: Sequence[Source]) -> _Evaluation:
        """Evaluate a replacement.

        Args:
            place: the match at a border.
            template: the replacement.
            sources: its operands.
        """
        run = cls(place)
        for node, number in template.numbers.items():
            run.learn(node, run.operand(sources[number]), _name_of(sources[number]))
        for node, _, do in template.nodes:
            assert do.target is not None
            operands = map_arg((node.args, node.kwargs), run.values.__getitem__)
            args, kwargs = cast("Any", operands)
            run.learn(node, do.target(*args, **kwargs), len(run.calls))
            if not isinstance(run.values[node], NUMBERS):
                run.calls.append((do.target, run.compared((node.args, node.kwargs))))
        run.results = [run.values[node] for node in template.results]
        run.code = run.calls, [run.names[node] for node in template.results]
        return run

    def learn(self, node: fx.Node, value: Any, name: Any) -> None:
        """Set the value of a node; a number stands for itself among the arguments."""
        self.values[node] = value
        self.names[node] = self.compared(value) if isinstance(value, NUMBERS) else ("value", name)

    def compared(self, arg: Any) -> Any:
        """Return an argument in a form that can be compared."""
        if isinstance(arg, list | tuple):
            return [self.compared(each) for each in arg]
        if isinstance(arg, dict):
            return {key: self.compared(each) for key, each in arg.items()}
        return self.names[arg] if isinstance(arg, fx.Node) else (type(arg), repr(arg))

    def operand(self, source: Source) -> Any:
        """Return the value of an operand."""
        place, domain = self.place, self.place.fakes
        known = place.operands.by_source
        if isinstance(source, torch.Tensor):
            return domain.of_state(source)
        if source in known:
            return known[source]
        return place.operand(Ref(place.root.name) if source is KEPT else source)


def _name_of(source: Source) -> Any:
    if isinstance(source, torch.Tensor):
        return described(source), repr(source.tolist())
    return source


def has_sizes_of(one: Any, other: Any) -> bool:
    """Return whether two values are tensors of equal sizes, or no tensors; symbolic sizes are compared as text.

    >>> has_sizes_of(torch.ones(2), torch.ones(2)), has_sizes_of(torch.ones(2), torch.ones(1, 2))
    (True, False)
    """
    return list(map(_sizes, as_tuple(one))) == list(map(_sizes, as_tuple(other)))


def _sizes(value: Any) -> list[str]:
    return [*map(str, value.shape)] if isinstance(value, torch.Tensor) else []


def value_of(name: str, made: Sequence[Node], draft: Draft) -> Any:
    """Return the recorded value of a new node or of another one; None if it is unknown.

    Args:
        name: the value.
        made: the new nodes.
        draft: the other nodes.
    """
    node = next((one for one in made if one.name == name), None)
    return draft.value(name) if node is None else node.val
