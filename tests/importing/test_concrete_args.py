"""Traces with ``concrete_args``: arguments that are nested or fixed are taken as torch's module takes them.

One idea: each case is asked of torch's own graph module too; a result is the same, or both refuse with the same type.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import symbolic_trace
from torch.fx._symbolic_trace import PH
from torch.utils import _pytree as pytree

import purefx as px

X = torch.ones(2, 2)


class Flags(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def forward(self, x: Any, flag: Any = True, n: Any = 2, more: Any = None) -> Any:
        y = self.lin(x)
        if flag:
            y = y * 2
        for _ in range(n):
            y = y + 1
        return y if more is None else y + more


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def forward(self, x: Any, tree: Any, flag: Any) -> Any:
        left = self.lin(tree["a"]) + tree["b"][0]
        return {"o": left + x if flag else left - x, "p": (tree["b"][1],)}


def t(value: float) -> torch.Tensor:
    return torch.full((2, 2), value)


TREE = {"a": X, "b": (t(2), t(3))}
LIST = {"a": X, "b": [t(2), t(3)]}
PH_TREE = {"a": PH, "b": (PH, PH)}
CASES: dict[str, tuple[type[torch.nn.Module], dict[str, Any], tuple[Any, ...]]] = {
    "bool, int and None": (Flags, {"flag": False, "n": 3, "more": None}, (X, False, 3, None)),
    "another int": (Flags, {"flag": False, "n": 3, "more": None}, (X, False, 2, None)),
    "another bool": (Flags, {"flag": False, "n": 3, "more": None}, (X, True, 3, None)),
    "not all are passed": (Flags, {"flag": False, "n": 3}, (X,)),
    "a placeholder": (Flags, {"flag": True, "n": 1, "more": PH}, (X, True, 1, t(4))),
    "a tree is passed on": (Nested, {"flag": False}, (X, TREE, False)),
    "a dict of a tuple": (Nested, {"tree": PH_TREE, "flag": False}, (X, TREE, False)),
    "a dict of a list": (Nested, {"tree": {"a": PH, "b": [PH, PH]}, "flag": True}, (X, LIST, True)),
    "fixed in part": (Nested, {"tree": {"a": PH, "b": (PH, 1.5)}, "flag": True}, (X, {"a": X, "b": (t(2), 1.5)}, True)),
    "another part": (Nested, {"tree": {"a": PH, "b": (PH, 1.5)}, "flag": True}, (X, {"a": X, "b": (t(2), 2.5)}, True)),
    "fixed whole": (Nested, {"tree": {"a": PH, "b": (1, None)}, "flag": True}, (X, {"a": X, "b": (1, None)}, True)),
    "all nested": (Nested, {"x": PH, "tree": PH_TREE, "flag": False}, (X, TREE, False)),
}


def tried(module: Any, args: tuple[Any, ...]) -> Any:
    try:
        result = module(*args)
    except Exception as error:  # which kind is what is asked
        return type(error)
    leaves, spec = pytree.tree_flatten(result)
    return [leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec


@pytest.mark.parametrize("case", CASES)
def test_a_trace_with_concrete_args_is_called_like_torchs(case: str) -> None:
    kind, concrete, args = CASES[case]
    traced = symbolic_trace(kind(), concrete_args=concrete)
    expected = tried(traced, args)
    program = px.import_fx(traced)
    for lowered in (px.lower(program), px.lower(program, to="interpreter")):
        for _ in range(2):
            found = tried(lowered, args)
            assert issubclass(found, expected | px.InputError) if isinstance(expected, type) else found == expected


def test_an_example_of_nested_arguments_gives_values() -> None:
    traced = symbolic_trace(Nested(), concrete_args={"tree": PH_TREE, "flag": False})
    program = px.import_fx(traced, example_inputs=(X, TREE, False))
    assert program.main.by_name["lin"].meta["val"].shape == (2, 2)
    assert tried(px.lower(px.transform(program)), (X, TREE, False)) == tried(traced, (X, TREE, False))


def test_a_receiver_of_another_name_is_refused_as_it_can_not_run() -> None:
    class Other(torch.nn.Module):
        def forward(this, tree: Any) -> Any:  # pyright: ignore[reportSelfClsParameterName]  # noqa: N805
            return tree["a"] + 1

    traced = symbolic_trace(Other(), concrete_args={"tree": {"a": PH}})
    assert tried(traced, ({"a": X},)) is TypeError
    with pytest.raises(px.InvalidProgram, match="signature-leaves"):
        px.import_fx(traced)
