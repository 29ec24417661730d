"""Rewrites that people do, each in one file: ``python -m examples.rewrites`` runs them all on real architectures.

A rewrite is written twice, as rules of purefx and on a ``torch.fx.GraphModule``, and compared with a model that was changed by
hand.  The table counts the lines of both.
"""

from __future__ import annotations

import copy
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from attrs import frozen
from torch.utils._pytree import tree_leaves

import purefx as px
from examples.zoo import Example

__all__ = ["Outcome", "Rewriting", "owner_of", "parts_of"]


@frozen
class Outcome:
    """What a rewrite did: the flat program before and after, the tree after, and the largest difference to eager."""

    before: px.Program
    after: px.Program
    tree: px.Program
    worst: float


@frozen
class Rewriting:
    """One rewrite, in the two ways, and what it must be equal to."""

    name: str
    example: Example
    ours: Callable[[px.Program], px.Program]
    in_fx: Callable[[torch.fx.GraphModule], Any]
    """Changes a flat graph module in place, or returns another one."""
    by_hand: Callable[[Any], Any]
    """Changes the eager model in place."""
    written: Sequence[Any]
    """The rules and functions that ours consists of."""
    tolerance: float = 1e-5
    at: str | None = None
    """A node of the flat program at the place that the gallery shows; by default the first one that is rewritten."""

    crosses_modules: bool = False
    """Whether what it looks for lies in several modules, so that it is applied before the program is a tree."""

    def run(self) -> Outcome:
        """Return the programs, and the largest difference of the flat one, the tree and the graph module to eager.

        Raises:
            AssertionError: one of them is not what the model changed by hand computes, over two calls, or is not valid.
        """
        model = self.example.build()
        exported = copy.deepcopy(exported_of(self.example))
        flat = px.import_ep(exported)
        programs = flat, px.transform(flat)
        results = [self.ours(flat)]
        results.append(px.transform(results[0]) if self.crosses_modules else self.ours(programs[1]))
        for program, result in zip(programs, results, strict=True):
            assert result is not program, f"{self.name}: nothing was rewritten"
            assert not px.verify(result, infer=True)
        graph_module: Any = exported.module()
        before = graph_module.code
        modules = [
            px.lower(px.transform(results[0])),
            px.lower(results[1]),
            self.in_fx(graph_module) or graph_module,
        ]
        assert modules[2].code != before, f"{self.name}: nothing was rewritten in the graph module"
        self.by_hand(model)
        worst = max(self._difference(module, copy.deepcopy(model)) for module in modules)
        assert worst <= self.tolerance, f"{self.name}: {worst} from eager"
        return Outcome(flat, results[0], results[1], worst)

    def _difference(self, module: Any, eager: Any) -> float:
        worst = 0.0
        for seed in (0, 1):
            args, kwargs = self.example.inputs(seed)
            with torch.no_grad():
                pair = [tree_leaves(one(*args, **kwargs)) for one in (module, eager)]
            for mine, theirs in zip(*pair, strict=True):
                if isinstance(theirs, torch.Tensor):
                    assert mine.dtype is theirs.dtype
                    worst = max(worst, (mine.float() - theirs.float()).abs().max().item())
        return worst

    @property
    def lines(self) -> tuple[int, int]:
        """The lines of code of ours, and of the same in torch.fx."""
        ours = [
            part
            for each in self.written
            for part in (parts_of(each) if isinstance(each, px.Rule) else [each])
        ]
        return sum(map(_lines, ours)), _lines(self.in_fx)


@cache
def exported_of(example: Example) -> torch.export.ExportedProgram:
    """Return an exported example; several rewrites share one, so each takes a copy."""
    return example.export(example.build())


def parts_of(rule: px.Rule) -> list[Callable[..., Any]]:
    """Return the functions that a rule is written as: what it looks for, and what stands in its place."""
    return (
        [rule.written]
        if rule.replacement in (rule.written, None)
        else [rule.written, rule.replacement]
    )


LINE_ENDS = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)


def _lines(function: Callable[..., Any]) -> int:
    # Logical lines: how the formatter breaks them does not count.
    source = textwrap.dedent(inspect.getsource(function))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    starts = [token for before, token in pairwise(tokens) if before.type in LINE_ENDS]
    docstrings = sum(token.type == tokenize.STRING for token in starts)
    return sum(token.type == tokenize.NEWLINE for token in tokens) - docstrings


def owner_of(model: Any, path: str) -> tuple[Any, str]:
    """Return the module that holds an attribute, and its name there.

    >>> owner_of(torch.nn.Sequential(torch.nn.Linear(1, 1)), "0.weight")
    (Linear(in_features=1, out_features=1, bias=True), 'weight')
    """
    owner, _, name = path.rpartition(".")
    return model.get_submodule(owner), name
