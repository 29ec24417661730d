"""Arguments and results of what is imported: concrete arguments, one output, guards."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from attrs import evolve
from torch import nn
from torch.fx import symbolic_trace
from torch.fx._symbolic_trace import PH
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.own_operators import CALL_GUARDS
from tests.models import parent

# Traces with ``concrete_args``: arguments that are nested or fixed are taken as torch's module takes them.


X = torch.ones(2, 2)


class Flags(parent(lin=lambda: nn.Linear(2, 2))):
    def forward(self, x: Any, flag: Any = True, n: Any = 2, more: Any = None) -> Any:
        y = self.lin(x)
        if flag:
            y = y * 2
        for _ in range(n):
            y = y + 1
        return y if more is None else y + more


class Nested(parent(lin=lambda: nn.Linear(2, 2))):
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
    "fixed in part": (
        Nested,
        {"tree": {"a": PH, "b": (PH, 1.5)}, "flag": True},
        (X, {"a": X, "b": (t(2), 1.5)}, True),
    ),
    "another part": (
        Nested,
        {"tree": {"a": PH, "b": (PH, 1.5)}, "flag": True},
        (X, {"a": X, "b": (t(2), 2.5)}, True),
    ),
    "fixed whole": (
        Nested,
        {"tree": {"a": PH, "b": (1, None)}, "flag": True},
        (X, {"a": X, "b": (1, None)}, True),
    ),
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
            assert (
                issubclass(found, expected | px.errors.InputError)
                if isinstance(expected, type)
                else found == expected
            )


def test_a_receiver_of_another_name_is_refused_as_it_can_not_run() -> None:
    class Other(torch.nn.Module):
        def forward(this, tree: Any) -> Any:  # pyright: ignore[reportSelfClsParameterName]  # noqa: N805
            return tree["a"] + 1

    traced = symbolic_trace(Other(), concrete_args={"tree": {"a": PH}})
    assert tried(traced, ({"a": X},)) is TypeError
    message = "signature-leaves: its code takes 2 leaves, the graph has 1 placeholder"
    with pytest.raises(px.errors.InvalidProgram, match=message):
        px.import_fx(traced)


# A program has one output: every door refuses a second, with a typed error that says what is wrong.


class Writes(parent(n=lambda: torch.zeros(2))):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.n.add_(1)
        return x + self.n, x * 2


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Writes(), (torch.ones(2),))


def first(graph: torch.fx.Graph) -> torch.fx.Node:
    return next(iter(graph.nodes))


CHANGES: dict[str, Any] = {
    "2 output nodes": lambda graph: graph.output((first(graph),)),
    "after its output": lambda graph: graph.call_function(
        torch.ops.aten.add_.Tensor, (first(graph), 1)
    ),
    "no output nodes": lambda graph: graph.erase_node(list(graph.nodes)[-1]),
}


@pytest.mark.parametrize("said", CHANGES)
def test_fx_graphs(said: str) -> None:
    ep, traced = exported(), torch.fx.symbolic_trace(Writes())
    CHANGES[said](ep.graph)
    CHANGES[said](traced.graph)
    for door in (lambda: px.import_ep(ep), lambda: px.import_fx(traced)):
        with pytest.raises(px.errors.InvalidProgram, match=said) as error:
            door()
        assert [violation.rule for violation in error.value.violations] == ["signature-outputs"]


# ``import_fx(ep.module())``: the module that checks the inputs writes nothing, and nothing acts before it.


class Counts(
    parent(
        first=lambda: nn.Linear(4, 4), second=lambda: nn.Linear(4, 4), calls=lambda: torch.zeros(())
    )
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        self.calls.add_(1)
        return self.second(y.relu()) + self.calls


GUARDED = torch.randn(2, 4)


@pytest.fixture(scope="module")
def given() -> Any:
    ep = torch.export.export(
        Counts(), (GUARDED,), dynamic_shapes=({0: torch.export.Dim("n", max=8)},)
    )
    module = ep.module()
    assert any(
        node.op == "call_module" and node.target == "_guards_fn" for node in module.graph.nodes
    )
    return module


def same(made: nn.Module, given: nn.Module) -> None:
    eager = copy.deepcopy(given)
    for rows in (2, 5, 3):
        x = torch.randn(rows, 4)
        assert torch.equal(made(x), eager(x))
    assert torch.equal(next(made.buffers()), next(eager.buffers()))


def refused(made: nn.Module) -> None:
    before = next(made.buffers()).clone()
    with pytest.raises(AssertionError, match="Guard failed: x"):
        made(torch.randn(9, 4))
    assert torch.equal(next(made.buffers()), before)


def test_it_is_known_and_stays_first(given: Any) -> None:
    program = px.import_fx(given)
    assert sum(node.do == CALL_GUARDS for _, node in program.nodes()) == 1
    assert "purefx.call_guards(" in program.text()
    again = px.import_fx(cast(Any, px.lower(program)))  # and through fx a second time
    whole = px.transform(program, px.inplace_mutations, px.sink_state, px.outline)
    for one in (program, again, whole):
        same(px.lower(one), given)
        refused(px.lower(one))


def test_parts_that_do_not_depend_on_it_may_come_before(given: Any) -> None:
    program = px.import_fx(given)
    parts = px.split_by_tags(
        program, ("a", "b"), tag_of=lambda node: "a" if node.name == "linear" else "b"
    )
    same(px.lower(parts), given)
    refused(px.lower(parts))


def test_nothing_is_written_before_it(given: Any) -> None:
    program = px.import_fx(given)
    with pytest.raises(px.PurefxError, match="depends on node '_guards_fn'"):
        px.split_by_tags(
            program, ("a", "b"), tag_of=lambda node: "b" if node.do == CALL_GUARDS else "a"
        )


class WritesItsInput(nn.Module):
    def forward(self, *args: torch.Tensor) -> None:
        args[0].zero_()


def test_no_other_module_is_taken_for_it(given: Any) -> None:
    program = px.import_fx(given)
    state = program.state
    for other in (WritesItsInput(), nn.Identity()):
        slots = state.slots.set("_guards_fn", evolve(state["_guards_fn"], value=other))
        found = px.verify(program.evolve(state=evolve(state, slots=slots)))
        assert [violation.rule for violation in found] == ["opaque-modules"]
        assert "not the module with which ep.module() checks" in str(found[0])
    hooked = copy.deepcopy(given)
    hooked._guards_fn.register_forward_hook(lambda *_: None)
    assert not any(node.do == CALL_GUARDS for _, node in px.import_fx(hooked).nodes())
