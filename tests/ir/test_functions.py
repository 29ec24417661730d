"""Plain functions and methods do no more than ``effects/functions.py`` says: all public ones are run and watched.

One idea: what a call wrote to, what its result lives in and whether it drew is seen from outside, and compared with what is
declared of it.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from purefx.ir import ANYTHING, Effects, Node, Op, Ref
from purefx.ir.callables import Method
from purefx.ir.effects.declared import NodeEffects, node_effects
from purefx.ir.effects.functions import known_functions, known_method
from purefx.ir.effects.registered import effects_of
from purefx.ir.graph import Graph, Input
from purefx.ir.program import Program
from purefx.ir.torch_private import MODES, pytree, storage_key

FUNCTIONS = {name: function for name, function in known_functions().items() if function not in MODES and "._" not in name}
METHODS = {f"tensor.{name}": method for name in dir(torch.Tensor) if not name.startswith("_") and (method := known_method(name))}

EXTRA: tuple[tuple[Any, ...], ...] = ((), (Ref("y"),), (0,), ((3, 4),), (0, 1))


def declared(target: Callable[..., Any], args: tuple[Any, ...]) -> NodeEffects:
    """Return what is said to happen in a call."""
    graph = Graph((Input("x"), Input("y"), Input("z")), (Node("n", Op("n", effects_of(target), target), args),), Ref("n"))
    return node_effects(Program.of({"": graph}), graph)[0]


def watched(target: Callable[..., Any], args: tuple[Any, ...]) -> list[str] | None:
    """Return what a call does beyond what is declared; None where it refuses the arguments."""
    values = {name: torch.linspace(0.1, 0.9, 12).reshape(3, 4).mul(number + 1) for number, name in enumerate("xyz")}
    before = {name: value.clone() for name, value in values.items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    try:
        result = target(*[values[arg.name] if isinstance(arg, Ref) else arg for arg in args])
    except (
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
        NotImplementedError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    ):
        return None
    said = declared(target, args)
    if said.scope != (0, 0):
        return []
    wrong: list[str] = []
    if not said.random and not torch.equal(state, torch.get_rng_state()):
        wrong.append("draws")
    for name, value in values.items():
        if name not in said.writes and (value.shape != before[name].shape or not torch.equal(value, before[name])):
            wrong.append(f"writes {name}")
    memory = {storage_key(value): name for name, value in values.items()}
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
            name = memory.get(storage_key(leaf))
            if name is not None and name not in said.aliases:
                wrong.append(f"gives {name}")
    return wrong


def test_no_function_does_more_than_is_declared() -> None:
    """Every public function and method whose effects are known, with five sorts of arguments."""
    wrong: list[str] = []
    ran = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, target in {**FUNCTIONS, **METHODS}.items():
            outcomes = [watched(target, (Ref("x"), *extra)) for extra in EXTRA]
            ran += any(outcome is not None for outcome in outcomes)
            wrong += [f"{name} {what}" for what in dict.fromkeys(what for outcome in outcomes for what in outcome or ())]
    assert not wrong, "\n".join(wrong)
    assert ran > 500


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "expected"),
    [
        (F.relu, (Ref("x"),), (), ()),
        (F.relu, (Ref("x"),), (("inplace", True),), ("x",)),
        (F.relu, (), (("input", Ref("x")), ("inplace", True)), ("x",)),
        (torch.add, (Ref("x"), Ref("y")), (("out", Ref("z")),), ("z",)),
        (torch.relu_, (), (("input", Ref("x")),), ("x",)),
        (Method("add_", of_tensor=True), (Ref("x"), Ref("y")), (), ("x",)),
        (Method("add_"), (Ref("x"), Ref("y")), (), ("x", "y")),
        (Method("view"), (Ref("x"), 3), (), ("x",)),
        (print, (Ref("x"),), (), ("x",)),
        (operator.setitem, (Ref("x"), 0, Ref("y")), (), ("x", "y")),
    ],
)
def test_what_is_written(target: Any, args: Any, kwargs: Any, expected: tuple[str, ...]) -> None:
    """By position and by either name, and everything where nothing is known."""
    graph = Graph((Input("x"), Input("y"), Input("z")), (Node("n", Op("n", effects_of(target), target), args, kwargs),), Ref("n"))
    assert tuple(dict.fromkeys(node_effects(Program.of({"": graph}), graph)[0].writes)) == expected


def test_draws_and_modes() -> None:
    """A dropout that does not train draws nothing; what switches gradients off is a boundary."""
    assert declared(F.dropout, (Ref("x"), 0.5)).random
    assert not declared(F.dropout, (Ref("x"), 0.5, False)).random
    assert effects_of(torch._C._set_grad_enabled).scope == 1
    assert effects_of(len) is ANYTHING
    assert isinstance(effects_of([].append), Effects)  # a target that can not be hashed by what it holds
