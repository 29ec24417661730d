"""Generated modules that went through the exporter are the same as eager, and the generator reaches what is hard.

Eager runs on a deep copy, three calls in a row with other numbers; outputs, state, changed arguments, structure
and gradients are compared bit by bit.  The exporter may refuse a module or get it wrong, but not many.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import pytest
from attrs import frozen
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import purefx as px
from purefx.laws import assert_same_as_eager, behaviour_differences, gradient_differences, value_differences
from purefx.laws.oracles import Check
from purefx.laws.strategies import ModuleTree, module_trees
from purefx.laws.strategies.recipes import CallRecipe, NodeRecipe, OutputRecipe, Recipe, SlotRecipe
from purefx.laws.tiers import examples_of, share

EXAMPLES = share(40)

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
        decomposed = decomposed and not tree.is_random
        try:
            ep = tree.export(decomposed=decomposed)
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}\n{tree}")
            assume(False)
            raise
        module = px.lower(px.transform(px.import_ep(ep)), to=to)
        try:
            assert_same_as_eager(module, tree.build(), tree.calls, checks=checks(tree, decomposed=decomposed))
        except AssertionError:
            if all("invented" in told for told in behaviour_differences(ep.module(), tree.build(), tree.calls)):
                raise
            refused.append(f"the exporter is wrong\n{tree}")  # it forgets some writes to buffers that are assigned anew

    same()
    assert len(refused) <= EXAMPLES // 10, "\n\n".join(refused)


@frozen
class Seen:
    """A tree, its text, and what the exporter makes of it."""

    tree: ModuleTree
    text: str
    program: px.Program
    ops: frozenset[str]


@cache
def drawn(examples: int) -> tuple[Seen, ...]:
    """Return generated modules that the exporter takes, always the same ones."""
    found: list[Seen] = []
    for tree in examples_of(module_trees(), examples, 0):
        try:
            program = px.import_ep(tree.export())
        except Exception:
            continue
        ops = frozenset(node.do.name for _, node in program.nodes() if isinstance(node.do, px.Op))
        found.append(Seen(tree, repr(tree), program, ops))
    return tuple(found)


def slots(seen: Seen) -> list[px.ir.Slot]:
    """Return the state of a program."""
    return [slot for _, slot in seen.program.state.pairs]


def stacks(seen: Seen) -> list[list[px.Frame]]:
    """Return the module calls that nodes stand in."""
    return [list(node.stack) for _, node in seen.program.nodes()]


REACHED: dict[str, Callable[[Seen], Any]] = {
    "tied state": lambda seen: len({slot.cell for slot in slots(seen)}) < len(slots(seen)),
    "shared memory": lambda seen: len({slot.storage for slot in slots(seen)}) < len({slot.cell for slot in slots(seen)}),
    "a constant": lambda seen: any(slot.kind is px.ir.SlotKind.CONSTANT for slot in slots(seen)),
    "an unsaved buffer": lambda seen: any(slot.kind is px.ir.SlotKind.BUFFER and not slot.persistent for slot in slots(seen)),
    "out=": lambda seen: "aten.add.out" in seen.ops,
    "a buffer assigned anew": lambda seen: re.search(r"NodeRecipe\(kind=7, first=\d+, second=[5-7]", seen.text),
    "a module called twice": lambda seen: any(frame.call for stack in stacks(seen) for frame in stack),
    "a module below a module that does not run": lambda seen: any(
        inner.path.startswith(outer.path + ".") and inner.path.count(".") > outer.path.count(".") + 1
        for stack in stacks(seen)
        for outer, inner in pairwise(stack)
    ),
    "a module of elsewhere": lambda seen: any(
        not inner.path.startswith(outer.path) for stack in stacks(seen) for outer, inner in pairwise(stack)
    ),
    "calls three deep": lambda seen: any(len(stack) > 2 for stack in stacks(seen)),
    "a constant as an output": lambda seen: any(type(leaf) is int for leaf in seen.program.main.output),
    "a write in place": lambda seen: any("_.Tensor" in name for name in seen.ops),
    "cond": lambda seen: any("cond" in name for name in seen.ops),
    "no_grad": lambda seen: any("set_grad" in name for name in seen.ops),
    "random numbers": lambda seen: seen.ops & {"aten.rand_like.default", "aten.dropout.default", "aten.randn_like.default"},
    "BatchNorm": lambda seen: "aten.batch_norm.default" in seen.ops,
    "Embedding": lambda seen: "aten.embedding.default" in seen.ops,
    "a dynamic size": lambda seen: seen.tree.dynamic_shapes,
    "inputs that want gradients": lambda seen: seen.tree.grads,
    "both modes": lambda seen: seen.tree.mode == 2,
}


@pytest.mark.parametrize("what", REACHED)
def test_what_is_hard_is_reached(what: str) -> None:
    found = sum(bool(REACHED[what](seen)) for seen in drawn(70))
    assert found >= 2, f"{what}: {found} in {len(drawn(70))} modules"


def test_a_tree_builds_equal_modules_and_equal_arguments() -> None:
    for seen in drawn(70)[::10]:
        tree = seen.tree
        one, other = tree.build(), tree.build()
        assert value_differences(dict(one.state_dict()), dict(other.state_dict())) == []
        assert value_differences(tree.calls[0], tree.calls[0]) == []
        assert value_differences(tree.calls[0][0][0], tree.calls[1][0][0]) != []
        assert {id(p) for p in one.parameters()}.isdisjoint(id(p) for p in other.parameters())


def test_preserved_paths_exist() -> None:
    for tree in examples_of(module_trees(preserve=True), 20, 0):
        names = {name for name, _ in tree.build().named_modules()}
        assert set(tree.preserve) <= names - {""}
        assert bool(tree.preserve) == (len(names) > 1)


def test_a_lost_write_is_seen() -> None:
    call = NodeRecipe(5, 0, 1)
    tree, spoiled = (ModuleTree(Recipe((SlotRecipe(0, 0, 0, 0),), items, (), 0, 0, False)) for items in ((call, call), (call,)))
    eager = tree.build()
    assert behaviour_differences(copy.deepcopy(eager), eager, tree.calls) == []
    assert behaviour_differences(spoiled.build(), eager, tree.calls) != []


def test_a_tree_is_built_again_from_what_it_prints() -> None:
    names = {kind.__name__: kind for kind in (CallRecipe, ModuleTree, NodeRecipe, OutputRecipe, Recipe, SlotRecipe)}
    for seen in drawn(70)[::30]:
        assert eval(seen.text, names) == seen.tree
