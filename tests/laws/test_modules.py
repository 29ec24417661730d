"""Generated modules that went through the exporter are the same as eager, and the generator reaches what is hard.

Eager runs on a deep copy, three calls in a row with other numbers; outputs, state, changed arguments, structure
and gradients are compared bit by bit.  The exporter may refuse a module, but not many.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from typing import Literal

import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import purefx as px
from purefx.laws import assert_same_as_eager, behaviour_differences, gradient_differences, value_differences
from purefx.laws.oracles import Check
from purefx.laws.strategies import ModuleTree, module_trees
from purefx.laws.tiers import share

EXAMPLES = share(40)

To = Literal["graph_module", "interpreter"]

TO: tuple[To, ...] = ("graph_module", "interpreter")


def quick(examples: int, *phases: Phase) -> settings:
    """Return settings under which the same examples are drawn each time."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
        report_multiple_bugs=False,
    )


def checks(tree: ModuleTree, *, decomposed: bool) -> list[Check]:
    """Return the oracles to ask: gradients where eager has them and the exporter keeps them."""
    asked: list[Check] = ["structure", "behaviour"]
    eager = tree.build()
    # Decomposition drops `no_grad`; a `cond` gives zeros where Python's `if` gives None.
    if not decomposed and "cond(" not in tree.source:
        try:
            gradient_differences(eager, eager, tree.calls)
        except RuntimeError:  # a value that is needed to go back was written to
            return asked
        asked.append("gradients")
    return asked


def test_same_as_eager() -> None:
    refused: list[str] = []

    @quick(EXAMPLES, Phase.generate, Phase.shrink)
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
        assert_same_as_eager(module, tree.build(), tree.calls, checks=checks(tree, decomposed=decomposed))

    same()
    assert len(refused) <= EXAMPLES // 10, "\n\n".join(refused)


def test_preserved_calls_alone_in_a_region_are_the_same_as_eager() -> None:
    trees = [evolve(tree, preserve=(found[1],)) for tree in drawn(300) if (found := re.search(ALONE, tree.source)) is not None]
    refused = 0
    for number, tree in enumerate(trees[:8]):
        try:
            ep = tree.export()
        except Exception:
            refused += 1
            continue
        module = px.lower(px.transform(px.import_ep(ep)), to=TO[number % 2])
        assert_same_as_eager(module, tree.build(), tree.calls, checks=checks(tree, decomposed=False))
    assert refused <= 2 and len(trees) >= 5


@cache
def drawn(examples: int) -> tuple[ModuleTree, ...]:
    """Return generated modules, always the same ones."""
    found: list[ModuleTree] = []

    @quick(examples, Phase.generate)
    @given(module_trees())
    def keep(tree: ModuleTree) -> None:
        found.append(tree)

    keep()
    return tuple(found)


ALONE = r"class Root(?:.*\n)*? {8}with torch\.no_grad\(\):\n {12}(?:v\d+ = )?self\.(m\d+)\(.*\n {8}.*self\.\1\("
"""A child of the root is called in a region that holds nothing else, and again outside."""

REACHED = {
    "a parameter": r"\+ self\.p\d",
    "a buffer that is not saved": "persistent=False",
    "a buffer written twice in one call": r"(self[.\w\[\]\"]+)\.add_\(1\)\n +\1\.mul_",
    "a buffer written through a view": r"self\S*\.b\d+(\[0\]|\[\.\.\., 1\]|\.t\(\)\[0\]|\.view\(-1\)\[1:\])\.\w+_\(",
    "out=": r"out=self",
    "a buffer assigned anew": r"(self\S*b\d+) = \1 \*",
    "tied parameters": r"\n +self\.\S*p\d+ = self\.\S*p\d+\n",
    "tied buffers": r"\n +self\.\S*b\d+ = self\.\S*b\d+\n",
    "buffers that share memory": r"\n +self\.\S*b\d+ = self\.\S*b\d+\[\d\]\n",
    "a tensor constant": r"\* self\.c\d|\+ self\.c\d",
    "a tensor literal": r"torch\.tensor\(\[",
    "one module under two names": r"\n +self\.m\d+ = self\.m\d+",
    "a class made twice": r"(M\d+\(\))[^M]*\n(.*\n)*.*\1",
    "a flag": r"flag=True",
    "a text that chooses": r'mode="other"\)',
    "training or not": r"if self\.training",
    "a skipped module": r"= self\.m\d+(\.inner|\.m\d+)+\(",
    "a module of elsewhere": r"self\.held\d+\[0\]\(",
    "state of a child": r"[+*] self\.m\S+\.[bp]\d+",
    "state of a child written": r"\n +self\.m\S+\.(b\d+|running_\w+)\S*\.\w+_\(",
    "a pytree into a child": r'"none": None, "k": 2}\)',
    "a keyword into a child": r"y=v\d",
    "a pytree out of a child": r'\)\["a"\]',
    "two values out of a child": r"v\d+, v\d+ = self",
    "nothing out of a child": r"\n +self\.m\d+\S*\([^)]*\)\n",
    "a buffer out of a child": r"return self\.\S*b\d+",
    "the input out of a child": r"return x\n",
    "a pytree as an input": r'{"a": \(n, 3\), "none"',
    "a dataclass as an input": r"Pair\(\(n, 3\), None\)",
    "a dataclass as an output": r"Pair\(\w+, {'k'",
    "keyword-only inputs": r"x, .*\*, i\d",
    "a constant as an output": r"return .*(1\.5|\"text\"|True)",
    "None as an output": r"return (.*, )?None",
    "a mutated input": r"class Root(.*\n)*.* (x|i\d\S*)(\[0\]|\[:, 1\])?\.(add|mul|tanh|zero)_\(",
    "cond": r"= cond\(",
    "a module in a cond": r"= self\.m\d+\(a\)|self\.m\d+\S*\(a\)",
    "no_grad": r"with torch\.no_grad",
    "a module in no_grad": r"no_grad\(\):\n( {12,}.*\n)*? {12,}v\d+ = self\.\S+\(",
    "a module alone in no_grad, and again outside": ALONE,
    "dropout": r"Dropout|dropout",
    "random numbers": r"torch\.rand",
    "BatchNorm": r"BatchNorm1d",
    "LayerNorm": r"LayerNorm",
    "Embedding": r"Embedding",
    "Sequential": r"Sequential\(M\d",
    "a slice of a ModuleList": r"for module in self\.m\d+\[1:\]",
    "ModuleDict": r"ModuleDict",
    "ParameterList": r"ParameterList",
    "ParameterDict": r"ParameterDict",
    "a parametrization": r"parametrizations",
    "a dynamic size": r"n dynamic",
    "a size that is computed with": r"\.shape\[0\]",
    "inputs that want gradients": r"inputs want gradients",
    "evaluation": r"# evaluation",
    "both modes": r"# children in evaluation",
}


@pytest.mark.parametrize("what", REACHED)
def test_what_is_hard_is_reached(what: str) -> None:
    found = sum(re.search(REACHED[what], str(tree)) is not None for tree in drawn(300))
    assert found >= 2, f"{what}: {found} in 300 modules"


def test_unused_state_is_reached() -> None:
    names = [(tree, name) for tree in drawn(300) for name in re.findall(r"self\.([bp]\d+) = ", str(tree))]
    assert sum(str(tree).count(f".{name}") == 1 for tree, name in names) >= 2


def test_a_tree_builds_equal_modules_and_equal_arguments() -> None:
    for tree in drawn(300)[::10]:
        one, other = tree.build(), tree.build()
        assert value_differences(dict(one.state_dict()), dict(other.state_dict())) == []
        assert value_differences(tree.calls[0], tree.calls[0]) == []
        assert value_differences(tree.calls[0][0][0], tree.calls[1][0][0]) != []
        assert {id(p) for p in one.parameters()}.isdisjoint(id(p) for p in other.parameters())


def test_preserved_paths_exist() -> None:
    @quick(20, Phase.generate)
    @given(module_trees(preserve=True))
    def exist(tree: ModuleTree) -> None:
        names = {name for name, _ in tree.build().named_modules()}
        assert set(tree.preserve) <= names - {""}
        assert bool(tree.preserve) == (len(names) > 1)

    exist()


def test_a_lost_write_is_seen() -> None:
    tree = next(tree for tree in drawn(300) if ".add_(1)\n" in tree.source.split("class Root")[1] and tree.mode == 0)
    eager = tree.build()
    spoiled = ModuleTree(tree.source.replace(".add_(1)\n", ".add_(2)\n"), tree.inputs, tree.is_dynamic)
    assert behaviour_differences(copy.deepcopy(eager), eager, tree.calls) == []
    assert behaviour_differences(spoiled.build(), eager, tree.calls) != []
