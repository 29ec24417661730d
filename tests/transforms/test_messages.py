"""Errors that a user of splitting and of the clean-up passes can cause, by call: the class and a few words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import nn

import purefx as px
from purefx.errors import NamingError, PartitionError
from tests.programs import exported


class Two(nn.Module):
    """Two layers, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both layers, masked."""
        return self.second(self.first(x).relu()) * self.mask


@cache
def flat() -> px.Program:
    return px.sink_state(px.import_ep(exported(Two(), torch.ones(2, 2))))


WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: px.split_by_tags(flat(), ("a", "b"), tag_of={"first": "b", "second": "a"}), PartitionError, "put 'b' before 'a' in"),
    (lambda: px.split_by_module(flat(), ["first"]), TypeError, "a mapping from paths of modules"),
    (lambda: px.split_by_module(flat(), {"secnd": "a"}), PartitionError, "did you mean 'second'"),
    (lambda: px.split_balanced(flat(), 2.0), TypeError, "k is the number of parts"),
    (lambda: px.split_balanced(flat(), 9), PartitionError, "can be split into 1 to 4 parts"),
    (lambda: px.split_balanced(flat(), 2, cost=lambda n: -1), ValueError, "cost gives -1 for node 'linear'"),
    (lambda: px.name_inputs(flat(), "x"), TypeError, r"write \['x'\] for one input"),
    (lambda: px.normalize_stacks(flat(), aliases=["a"]), TypeError, "takes a mapping of paths, or the module"),
    (lambda: px.normalize_stacks(flat(), aliases={"frst": "first"}), NamingError, "did you mean 'first'"),
    (lambda: px.normalize_stacks(flat(), aliases={"first": "second", "second": "first"}), NamingError, "the path to keep"),
    (lambda: px.restore_names(flat(), 3), TypeError, "takes the module that was traced"),
    (lambda: px.restore_names(flat(), {"a": 3}), NamingError, "names are given to tensors"),
    (lambda: px.restore_names(flat(), Two()), NamingError, "give the module itself that was traced, not a copy"),
    (lambda: px.restore_names(flat(), Two(), inputs=()), NamingError, "inputs are 0 values, and the program takes 1"),
    (lambda: px.infer(flat(), changed="x"), TypeError, "a list of names of values"),
    (lambda: px.infer(flat(), changed=["rellu"]), NamingError, "did you mean 'relu'"),
    (lambda: px.collect_call_signatures(flat(), specs={"a": 1, "b": 2}), NamingError, "has no tracepoint"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "kind", "words"), WRONG)
def test_a_wrong_call(wrong: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        wrong()
