"""Generated modules that went through the exporter are the same as eager, and the generator reaches what is hard.

Eager runs on a deep copy, three calls in a row with other numbers; outputs, state, changed arguments, structure
and gradients are compared bit by bit.  The exporter may refuse a module or get it wrong, but not many.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from typing import Literal

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import purefx as px
from purefx.laws import (
    assert_same_as_eager,
    behaviour_differences,
    gradient_differences,
    value_differences,
)
from purefx.laws.oracles import Check
from purefx.laws.strategies import ModuleTree, module_trees
from purefx.laws.strategies.recipes import NodeRecipe, Recipe, SlotRecipe
from purefx.laws.tiers import examples_of, share

EXAMPLES = share(20)

RANDOM = re.compile(r"NodeRecipe\(kind=(?:9|14|15|18),")
"""Nodes that may draw random numbers: ``run_decompositions`` drops unused draws, eager mode does not."""

To = Literal["graph_module", "interpreter"]

TO: tuple[To, ...] = ("graph_module", "interpreter")


def checks(tree: ModuleTree, *, decomposed: bool) -> list[Check]:
    """Return the oracles to ask: gradients where eager has them and the exporter keeps them."""
    asked: list[Check] = ["structure", "behaviour"]
    eager = tree.build()
    # Decomposition drops `no_grad`; a `cond` gives zeros where Python's `if` gives None.
    if not decomposed and not re.search(r"NodeRecipe\(kind=18", repr(tree)):
        try:
            gradient_differences(eager, eager, tree.calls)
        except RuntimeError:  # a value that is needed to go back was written to
            return asked
        asked.append("gradients")
    return asked


def test_same_as_eager() -> None:
    refused: list[str] = []

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False,
    )  # fmt: skip
    @given(module_trees(), st.sampled_from([False, False, True]), st.sampled_from(TO))
    def same(tree: ModuleTree, decomposed: bool, to: To) -> None:
        decomposed = decomposed and not RANDOM.search(repr(tree))
        try:
            ep = tree.export(decomposed=decomposed)
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}\n{tree}")
            assume(False)
            raise
        module = px.lower(px.transform(px.import_ep(ep)), to=to)
        try:
            assert_same_as_eager(
                module, tree.build(), tree.calls, checks=checks(tree, decomposed=decomposed)
            )
        except AssertionError:
            if all(
                "invented" in told
                for told in behaviour_differences(ep.module(), tree.build(), tree.calls)
            ):
                raise
            refused.append(
                f"the exporter is wrong\n{tree}"
            )  # it forgets some writes to buffers that are assigned anew

    same()
    assert len(refused) <= EXAMPLES // 10, "\n\n".join(refused)


@cache
def drawn() -> list[ModuleTree]:
    """Return generated modules, always the same ones."""
    return examples_of(module_trees(), 70, 0)


def test_modes_and_gradients_are_drawn() -> None:
    trees = drawn()
    assert {tree.mode for tree in trees} == {0, 1, 2} and {tree.grads for tree in trees} == {
        True,
        False,
    }
    assert any(
        re.search(r"NodeRecipe\(kind=7, first=\d+, second=[5-7]", repr(tree)) for tree in trees
    ), "no buffer is assigned"


def test_a_tree_builds_equal_modules_and_equal_arguments() -> None:
    for tree in drawn()[::10]:
        one, other = tree.build(), tree.build()
        assert value_differences(dict(one.state_dict()), dict(other.state_dict())) == []
        assert value_differences(tree.calls[0], tree.calls[0]) == []
        assert value_differences(tree.calls[0][0][0], tree.calls[1][0][0]) != []
        assert {id(p) for p in one.parameters()}.isdisjoint(id(p) for p in other.parameters())


def test_a_lost_write_is_seen() -> None:
    call = NodeRecipe(5, 0, 1)
    tree, spoiled = (
        ModuleTree(Recipe((SlotRecipe(0, 0, 0, 0),), items, (), 0, 0, False))
        for items in ((call, call), (call,))
    )
    eager = tree.build()
    assert behaviour_differences(copy.deepcopy(eager), eager, tree.calls) == []
    assert behaviour_differences(spoiled.build(), eager, tree.calls) != []
