"""State as reads and as inputs, both ways, and what meta says of its values."""

from __future__ import annotations

import torch
from torch import nn

import purefx as px
from tests.programs import Shared, exported, parent
from tests.transforms.small import lines, shown, tree

# Sinking state: each read stands in the innermost module that owns the tensor under one of its names.


def reads(program: px.Program) -> list[tuple[str, str]]:
    """Return (module call, slot) for every read of an outlined program."""
    return [(name, node.do.slot) for name in program.order for node in program.graphs[name].nodes if isinstance(node.do, px.Get)]


def hierarchical(module: nn.Module, *args: object) -> px.Program:
    """Return the outlined, not deduplicated program."""
    return px.transform(px.import_ep(exported(module, *args)), *px.DEFAULT[: px.DEFAULT.index(px.deduplicate)])


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


def test_a_tensor_is_one_input_under_the_name_that_was_read_first() -> None:
    result = lifted("p = get b.n\nq = get a.n\ny = aten.add.Tensor(p, q)\nreturn (y,)")
    assert taken(result) == ["p b.n", "x"]
    assert lines(result) == ["y = aten.add.Tensor(p, p)", "return (y,)"]


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


def test_reads_in_branches_stay_reads() -> None:
    text = 'graph @""(x) {\np = get k\ny = higher_order.cond(x, @"$t", @"$t", (p,))\nreturn (y,)\n}'
    result = px.lift_state(tree(text + '\ngraph @"$t"(v) {\nn = get a.n\nreturn (n,)\n}', STATE))
    assert taken(result) == ["p k", "x"]
    assert "n = get a.n" in shown(result, "$t")
