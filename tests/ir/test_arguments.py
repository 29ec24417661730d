"""Equality of arguments: strict on types, signs of zero and containers, reflexive on NaN, consistent with hashing."""

from __future__ import annotations

import copy
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from purefx.ir import Body, Items, Record, Ref, same_arg
from purefx.ir.arguments import map_refs, refs_in, strict_hash

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.complex_numbers(), st.text(max_size=2),
    st.builds(Ref, st.sampled_from("xyz")), st.builds(Body, st.sampled_from("ab")),
    st.sampled_from([torch.float32, torch.int64, torch.device("cpu"), torch.device("meta"), torch.strided, ...]),
)  # fmt: skip


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(Items),
        st.lists(st.tuples(st.text(max_size=1), inner), max_size=2).map(lambda pairs: Record(tuple(pairs))),
        st.tuples(inner, inner, inner).map(lambda parts: slice(*parts)),
    )


ARGS = st.recursive(LEAVES, _containers, max_leaves=6)


@given(ARGS)
def test_equal_to_a_rebuilt_copy(arg: Any) -> None:
    """Every argument, NaN included, equals a copy of itself, and they hash alike."""
    other = copy.deepcopy(arg)
    assert same_arg(arg, other)
    assert strict_hash(arg) == strict_hash(other)


@given(ARGS, ARGS)
def test_symmetric_and_hash_follows(left: Any, right: Any) -> None:
    """Equality is symmetric, and equal arguments hash alike."""
    assert same_arg(left, right) == same_arg(right, left)
    if same_arg(left, right):
        assert strict_hash(left) == strict_hash(right)


def test_literals_that_python_takes_for_equal_differ() -> None:
    """1, True, 1.0 and 1+0j; 0.0 and -0.0; a tuple and a list; a name and a string."""
    values = [1, True, 1.0, 1 + 0j, "1", 0.0, -0.0, (1,), Items([1]), Ref("x"), "x", Body("x"), None, (), Items(), slice(1, None)]
    for index, left in enumerate(values):
        for other, right in enumerate(values):
            assert same_arg(left, right) == (index == other), (left, right)


def test_symbolic_sizes_are_never_compared() -> None:
    """Comparing a SymInt installs a guard; ours equals only itself and asks it nothing."""

    class Size(torch.SymInt):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("was compared")

        __hash__ = None  # type: ignore[assignment]

    a, b = Size(None), Size(None)
    assert same_arg((a,), (a,))
    assert not same_arg((a,), (b,))
    assert isinstance(strict_hash((a,)), int)


@given(ARGS)
def test_mapping_references(arg: Any) -> None:
    """Renaming nothing gives the same object; renaming reaches every reference and nothing else."""
    assert map_refs(arg, lambda ref: ref) is arg
    renamed = map_refs(arg, lambda ref: Ref(ref.name + "_") if type(ref) is Ref else ref)
    assert refs_in((renamed,)) == [name + "_" for name in refs_in((arg,))]
