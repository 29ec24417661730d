"""State as reads and as inputs, both ways, and what meta says of its values."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.transforms.shared_bodies import alike, without_values
from tests.programs import Shared, Tower, exported, parent
from tests.transforms.small import lines, number, shown, symbolic, told, tree

# Sinking state: each read stands in the innermost module that owns the tensor under one of its names.


def reads(program: px.Program) -> list[tuple[str, str]]:
    """Return (module call, slot) for every read of an outlined program."""
    return [(name, node.do.slot) for name in program.order for node in program.graphs[name].nodes if isinstance(node.do, px.Get)]


def hierarchical(module: nn.Module, *args: object) -> px.Program:
    """Return the outlined, not deduplicated program."""
    return px.transform(px.import_ep(exported(module, *args)), *px.DEFAULT[: px.DEFAULT.index(px.deduplicate)])


def test_each_module_reads_its_own_state() -> None:
    """Every linear layer reads its weight and bias; nothing is handed down."""
    program = hierarchical(Tower(1), torch.ones(2, 4))
    assert sorted(reads(program)) == sorted(
        (f"layers.0.{layer}", slot) for layer in ("up", "down") for slot in ("weight", "bias")
    )
    assert [len(program.graphs[name].inputs) for name in program.order] == [1, 1, 1, 1]


def test_tied_weights_are_read_under_the_name_of_the_module_at_hand() -> None:
    """The exporter names a tied weight once; a.linear and tied both read their own name."""
    program = hierarchical(Shared(), torch.ones(3, 4))
    assert ("a.linear", "weight") in reads(program)
    assert ("tied", "weight") in reads(program)
    assert ("a@1", "count") in reads(program)


def test_a_parent_that_reads_a_childs_state() -> None:
    """State of a child used by its parent is read by its dotted name."""

    class Parent(parent(child=lambda: nn.Linear(4, 4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.child(x) @ self.child.weight

    program = hierarchical(Parent(), torch.ones(2, 4))
    assert ("", "child.weight") in reads(program)
    assert ("child", "weight") in reads(program)


def test_a_siblings_state_is_handed_down() -> None:
    """State that no enclosing module but the root owns is read there and passed as an argument."""

    class User(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x @ weight

    class Parent(parent(owner=lambda: nn.Linear(4, 4), user=User)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.user(x, self.owner.weight)

    model = Parent()
    program = hierarchical(model, torch.ones(2, 4))
    assert reads(program) == [("", "owner.weight")]
    assert len(program.graphs["user"].inputs) == 2
    x = torch.randn(2, 4)
    assert torch.equal(px.lower(program)(x), model(x))


def test_unused_state_is_no_input_and_stays_in_the_state() -> None:
    """What is not read is dropped from the inputs and kept in the program."""
    program = px.sink_state(px.import_ep(exported(Shared(), torch.ones(3, 4))))
    assert [type(spec) for spec in program.signature.inputs] == [px.ir.UserInput]
    assert "unused.weight" in program.state


def test_after_outline_is_a_mistake_of_order() -> None:
    """The pipeline is refused before anything runs, and says why."""
    program = px.import_ep(exported(Tower(1), torch.ones(2, 4)))
    with pytest.raises(px.errors.PipelineError, match=r"step 2, sink_state, requires .*'flat'.* outline before it"):
        px.transform(program, px.outline, px.sink_state)


# Reads that become inputs: which slot the input is, what it is called, and where it stands.


STATE = "state {\nbuffer a.n: f32[2]\nbuffer a.m: f32[2]\nbuffer b.n: f32[2] tied a.n\nbuffer k: f32[2]\n}"


def lifted(nodes: str, *, fuel: int | None = None) -> px.Program:
    """Return the program of these nodes after ``lift_state``, which is valid."""
    result = px.lift_state(tree('graph @""(x) {\n' + nodes + "\n}", STATE), fuel=fuel)
    assert px.verify(result) == ()
    return result


def taken(program: px.Program) -> list[str]:
    """Return each input of the root with the slot that it is, if any."""
    pairs = zip(program.main.inputs, program.signature.inputs, strict=True)
    return [f"{formal.name} {spec.slot if isinstance(spec, px.ir.StateInput) else ''}".strip() for formal, spec in pairs]


READS = """
    p = get k
    q = get a.m  in a
    y = aten.add.Tensor(p, q)
    r = get k  in b
    z = aten.mul.Tensor(y, r)
    u = aten.mul.Tensor(x, other=z)
    return (u,)
"""


def test_new_inputs_stand_first_in_the_order_of_the_state() -> None:
    """Named after their first reads."""
    result = lifted(READS)
    assert taken(result) == ["q a.m", "p k", "x"]
    assert lines(result) == [
        "y = aten.add.Tensor(p, q)",
        "z = aten.mul.Tensor(y, p)",
        "u = aten.mul.Tensor(x, other=z)",
        "return (u,)",
    ]


def test_the_order_of_the_state_is_not_that_of_names() -> None:
    assert taken(lifted("p = get a.m\nq = get a.n\ny = aten.add.Tensor(p, q)\nreturn (y,)")) == ["q a.n", "p a.m", "x"]


def test_a_tensor_is_one_input_under_the_name_that_was_read_first() -> None:
    result = lifted("p = get b.n\nq = get a.n\ny = aten.add.Tensor(p, q)\nreturn (y,)")
    assert taken(result) == ["p b.n", "x"]
    assert lines(result) == ["y = aten.add.Tensor(p, p)", "return (y,)"]


def test_what_the_root_gives_back_is_the_input() -> None:
    result = lifted("p = get k\nreturn (p,)")
    assert (taken(result), lines(result)) == (["p k", "x"], ["return (p,)"])


def test_inputs_that_are_read_keep_what_their_reads_say() -> None:
    program = told(tree('graph @""(x) {' + READS + "}", STATE), {"p": number((2,)), "r": {"stack_trace": "r"}})
    assert px.lift_state(program).main.inputs[1] == px.Input("p", program.main.nodes[0].meta)
    assert "val" in px.lift_state(program).main.inputs[1].meta


SUNK = """program {
  state {
    buffer a.n: f32[2]
    buffer a.m: f32[2]
    buffer b.n: f32[2] tied a.n
  }
  takes {
    state a.m
    user x: f32[2]
    state a.n
    state b.n
  }
  gives {
    user
  }
  graph @""(pm, x, pn, qn) {
    y = aten.add.Tensor(x, qn)  in b
    z = aten.add.Tensor(x, pn)  in a
    w = aten.add.Tensor(y, z)
    return (w,)
  }
}"""


def test_two_inputs_of_one_tensor_come_back_as_two() -> None:
    program = px.parse(SUNK)
    back = px.lift_state(px.sink_state(program))
    assert taken(back) == ["a_m a.m", "x", "pn a.n", "qn b.n"]
    assert lines(back)[:2] == ["y = aten.add.Tensor(x, qn) in b", "z = aten.add.Tensor(x, pn) in a"]


@pytest.mark.parametrize("fuel", range(4))
def test_what_is_not_lifted_yet_is_remembered(fuel: int) -> None:
    """The inputs of the exporter come back in their order, and the rest when there is fuel again."""
    sunk = px.sink_state(px.parse(SUNK))
    spent = px.Fuel(fuel)
    part = px.lift_state.spend(sunk, spent)
    assert px.verify(part) == ()
    assert spent.labels == ("lift a.m", "lift a.n", "lift b.n")[:fuel]
    assert [place.slot for place in part.signature.lifted] == (["a.m", "a.n", "b.n"][fuel:] if fuel < 3 else [])
    assert taken(part) == [["x"], ["a_m a.m", "x"], ["a_m a.m", "x", "pn a.n"], ["a_m a.m", "x", "pn a.n", "qn b.n"]][fuel]
    assert taken(px.lift_state(part)) == taken(px.lift_state(sunk))


@pytest.mark.parametrize("where", ["here", "in the body"])
def test_a_program_that_calls_modules_is_refused(where: str) -> None:
    """Also where only the bodies read."""
    root = 'graph @""(x) {\np = get k\ny = call @a(p) as a\nreturn (y,)\n}\ngraph @a(x) {\nreturn x\n}'
    inner = 'graph @""(x) {\ny = call @a(x) as a\nreturn (y,)\n}\ngraph @a(x) {\nn = get n\nreturn n\n}'
    with pytest.raises(px.errors.PipelineError, match=r"requires a program that is 'flat', .* outline.* inline"):
        px.lift_state(tree(root if where == "here" else inner, STATE))


def test_reads_in_branches_stay_reads() -> None:
    text = 'graph @""(x) {\np = get k\ny = higher_order.cond(x, @"$t", @"$t", (p,))\nreturn (y,)\n}'
    result = px.lift_state(tree(text + '\ngraph @"$t"(v) {\nn = get a.n\nreturn (n,)\n}', STATE))
    assert taken(result) == ["p k", "x"]
    assert "n = get a.n" in shown(result, "$t")


# What meta says of fake values: which two are known to be alike, and what is left when a value is no longer known.


N, M = symbolic()

ALIKE = {
    "equal shapes": (torch.ones(2), torch.zeros(2)),
    "one symbol": (N, N + 1),
    "one size": (N.shape[0], N.shape[0] * 1),
    "numbers": (2, 2),
    "fractions": (0.5, 0.5),
}

APART = {
    "shapes": (torch.ones(2), torch.ones(3)),
    "ranks": (torch.ones(2), torch.ones(2, 1)),
    "dtypes": (torch.ones(2), torch.ones(2, dtype=torch.int64)),
    "devices": (torch.ones(2), torch.ones(2, device="meta")),
    "symbols": (N, M),
    "a symbol and a number": (N, torch.ones(3)),
    "sizes": (N.shape[0], M.shape[0]),
    "a size and what is computed of it": (N.shape[0], N.shape[0] + 1),
    "a size and a number": (N.shape[0], 3),
    "a size and its text": (N.shape[0], str(N.shape[0])),
    "a size and a condition": (N.shape[0], N.shape[0] > M.shape[0]),
    "numbers": (2, 3),
    "types of numbers": (2, 2.0),
    "a number and a truth": (1, True),
    "a tensor and a number": (torch.ones(()), 1),
    "nothing": (None, None),
    "a tensor and nothing": (torch.ones(2), None),
    "texts": ("a", "a"),
}


@pytest.mark.parametrize("which", ALIKE)
def test_these_are_alike(which: str) -> None:
    left, right = ALIKE[which]
    assert alike(left, right) and alike(right, left)


@pytest.mark.parametrize("which", APART)
def test_these_are_not_known_to_be_alike(which: str) -> None:
    left, right = APART[which]
    assert not alike(left, right) and not alike(right, left)


def test_comparing_symbols_decides_nothing_about_them() -> None:
    size: Any = N.shape[0]
    environment = size.node.shape_env
    before = len(environment.guards)
    assert not alike(N, M) and alike(N, N + 1)
    assert not alike(N.shape[0], M.shape[0])
    assert len(environment.guards) == before


@pytest.mark.parametrize("key", ["val", "tensor_meta"])
@pytest.mark.parametrize("value", [1, (1,), (None, 1), torch.ones(2)], ids=str)
def test_what_holds_for_some_shapes_is_left_out(key: str, value: object) -> None:
    assert dict(without_values(MappingProxyType({"stack_trace": "here", key: value}))) == {"stack_trace": "here"}


@pytest.mark.parametrize("value", [None, (), (None, None)])
def test_what_holds_for_all_shapes_stays(value: object) -> None:
    meta = MappingProxyType({"val": value, "stack_trace": "here"})
    assert without_values(meta) is meta


def test_the_quick_look_at_fake_tensors_sees_every_fact() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from purefx.ir.inference import plainly_alike

    with FakeTensorMode():
        mine = torch.empty(2, 3)
        same = [torch.empty(2, 3), mine]
        others = [
            torch.empty(3, 2),
            torch.empty(2, 3, dtype=torch.int32),
            torch.empty_strided((2, 3), (1, 2)),
            torch.empty(2, 3, device="meta"),
            torch.empty(2, 3).to_sparse(),
        ]
    assert plainly_alike(mine, same)
    assert not any(plainly_alike(mine, [*same, other]) for other in (*others, torch.empty(2, 3), None, 1))
