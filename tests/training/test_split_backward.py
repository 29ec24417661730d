"""``split_backward``: gradients of arguments and gradients of state as two programs, which together are the one before."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from attrs import evolve
from hypothesis import event, given, settings
from torch import nn

import purefx as px
from purefx.ir import Body, InputGradient, Slot, SlotKind, StateGradient, StateInput, UserOutput
from purefx.ir.arguments import replace_refs
from purefx.laws.evaluate import meaning_differences
from purefx.laws.toy import toy_meaning
from purefx.training import Partition, SplitBackward, capture_joint, partition_joint, split_backward
from purefx.transforms.training.phases import is_joint
from purefx.transforms.training.snapshots import of_gradients
from tests.laws.joint import JOINT_LAWS, JointLaw
from tests.laws.strategies.joint import CELLS, joint_programs
from tests.programs import parent


class Net(parent(up=lambda: nn.Linear(4, 8), norm=lambda: nn.LayerNorm(8), down=lambda: nn.Linear(8, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(x)).relu())


def backward_of(module: nn.Module, *args: torch.Tensor) -> px.Program:
    return partition_joint(capture_joint(module, args)).backward


def operators(program: px.Program) -> list[str]:
    return [node.do.name for node in program.main.nodes if isinstance(node.do, px.Op)]


def together(program: px.Program, split: SplitBackward) -> px.Program:
    """Return the two programs one after the other, called as the one that was split."""
    first, second = split.inputs.main, split.weights.main
    early, kept = first.output[: len(first.output) - len(split.kept)], first.output[len(first.output) - len(split.kept) :]
    state = {spec.slot: px.Ref(formal.name) for formal, spec in split.inputs.inputs if isinstance(spec, StateInput)}
    handed = iter(kept)
    known = {
        formal.name: state[spec.slot] if isinstance(spec, StateInput) else next(handed) for formal, spec in split.weights.inputs
    }
    names, nodes = first.names(), list(first.nodes)
    for node in second.nodes:
        nodes.append(node.using(known).evolve(name=names.fresh(node.name)))
        known[node.name] = px.Ref(nodes[-1].name)
    values = iter(early), iter([replace_refs(arg, known) for arg in second.output])
    output = tuple([next(values[isinstance(spec, StateGradient)]) for spec in program.signature.outputs])
    graphs = split.weights.graphs.update(dict(split.inputs.graphs.items()))
    both = split.inputs.evolve(graphs=graphs, signature=program.signature)
    return both.with_main(px.Graph(first.inputs, tuple(nodes), output))


def ran(program: px.Program, split: SplitBackward, *args: Any) -> tuple[Any, ...]:
    """Return what both programs give, in the order of the one that was split."""
    first = px.lower(split.inputs)(*args)
    count = len(first) - len(split.kept)
    early, late = iter(first[:count]), iter(px.lower(split.weights)(*first[count:]))
    specs = program.signature.outputs
    return tuple([next(late) if isinstance(spec, StateGradient) else next(early) for spec in specs])


def test_both_together_are_the_backward() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    cut = partition_joint(capture_joint(Net(), (x,)))
    given = px.lower(cut.forward)(x.detach())
    saved, tangent = given[1:], torch.randn(3, 4)
    expected = px.lower(cut.backward)(*saved, tangent)
    found = ran(cut.backward, split_backward(cut.backward), *saved, tangent)
    assert len(found) == len(expected) == 7
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def test_what_gradients_of_arguments_do_not_need_is_in_the_second() -> None:
    """Each matrix product of a gradient with an activation, and each sum for a bias."""
    split = split_backward(backward_of(Net(), torch.randn(3, 4, requires_grad=True)))
    assert operators(split.inputs).count("aten.mm.default") == 2
    assert operators(split.weights).count("aten.mm.default") == 2
    assert operators(split.weights).count("aten.sum.dim_IntList") == 2
    assert "aten.sum.dim_IntList" not in operators(split.inputs)
    specs = split.inputs.signature.outputs
    assert [type(spec) for spec in specs] == [InputGradient, *[UserOutput] * len(split.kept)]


def test_where_no_argument_needs_a_gradient_all_is_in_the_second() -> None:
    split = split_backward(backward_of(Net(), torch.randn(3, 4)))
    assert split.inputs.main.nodes == ()
    assert px.verify(split.inputs) == ()


def test_where_no_parameter_needs_a_gradient_nothing_is() -> None:
    module = Net().requires_grad_(False)
    split = split_backward(backward_of(module, torch.randn(3, 4, requires_grad=True)))
    assert (split.kept, split.weights.main.nodes) == ((), ())


def test_a_joint_program_is_split_whole() -> None:
    """Its first program has the forward, and what the caller gets."""
    joint = capture_joint(Net(), (torch.randn(3, 4, requires_grad=True),))
    split, x, tangent = split_backward(joint), torch.randn(3, 4), torch.randn(3, 4)
    result, gradients = px.lower(joint)(x, tangents=(tangent,))
    first = px.lower(split.inputs)(x, tangents=(tangent,))
    weights = px.lower(split.weights)(*first[2:])
    assert torch.equal(first[0], result)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip((*weights, first[1]), gradients, strict=True))


def test_draws_and_writes_stay_in_the_first_in_their_order() -> None:
    """A draw that the gradient of a parameter alone needs moves the generator on, and a write is seen."""
    text = """program {
  facts (flat)
  state {
    parameter w: f32[2]
    buffer b: f32[2]
  }
  takes {
    user x: f32[2]
    user g: f32[2] tangent of output 0
  }
  gives {
    gradient of leaf 0
    gradient of state w
  }
  graph @""(x, g) {
    first = aten.rand_like.default(g)
    b = get b
    old = aten.clone.default(b)
    add_ = aten.add_.Tensor(b, g)
    second = aten.rand_like.default(g)
    gx = aten.mul.Tensor(g, second)
    product = aten.mul.Tensor(first, old)
    gw = aten.mul.Tensor(product, x)
    return (gx, gw)
  }
}"""
    program = px.parse(text)
    split = split_backward(program)
    assert [node.name for node in split.inputs.main.nodes] == ["first", "b", "old", "add_", "second", "gx"]
    assert [node.name for node in split.weights.main.nodes] == ["product", "gw"]
    assert split.kept == ("x", "first", "old")


def test_a_gradient_that_is_written_after_it_was_computed() -> None:
    """Nobody uses what the write returns, and the gradient is what was written."""
    text = """program {
  facts (flat)
  state {
    parameter w: f32[2]
  }
  takes {
    user x: f32[2]
    user g: f32[2] tangent of output 0
  }
  gives {
    gradient of leaf 0
    gradient of state w
  }
  graph @""(x, g) {
    gx = aten.mul.Tensor(g, 2)
    gw = aten.mul.Tensor(g, x)
    copy_ = aten.copy_.default(gw, gx)
    return (gx, gw)
  }
}"""
    split = split_backward(px.parse(text))
    assert [node.name for node in split.inputs.main.nodes] == ["gx"]
    assert [node.name for node in split.weights.main.nodes] == ["gw", "copy_"]


def test_a_region_stays_whole() -> None:
    class Cast(parent(of=lambda: nn.Linear(4, 4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.of(x).float().relu()

    program = backward_of(Cast(), torch.randn(3, 4, requires_grad=True))
    split = split_backward(program)
    assert not any(isinstance(arg, Body) for node in split.weights.main.nodes for arg in node.args)
    assert px.verify(split.inputs, infer=True) == px.verify(split.weights, infer=True) == ()


def test_an_outlined_backward_is_inlined_first() -> None:
    program = backward_of(Net(), torch.randn(3, 4, requires_grad=True))
    assert split_backward(px.transform(program)).kept == split_backward(px.inline(px.transform(program))).kept


def test_programs_without_gradients_are_refused() -> None:
    program = px.import_ep(torch.export.export(nn.Linear(2, 1), (torch.ones(1, 2),)))
    with pytest.raises(px.errors.ArgumentError, match="takes a program that gives gradients, and this one gives none"):
        split_backward(program)


def weighted(program: px.Program, seed: int) -> px.Program:
    """Return a joint program with more parameters, and gradients of them that others need, or do not."""
    draw = random.Random(seed)
    late = of_gradients(program)
    cells = [node.name for node in program.main.nodes if node.do in CELLS and node.name in late]
    chosen = [name for name in cells if draw.random() < 0.5]
    first = 1 + max([number for _, slot in program.state.pairs for number in (slot.cell, slot.storage)], default=0)
    values = [torch.nn.Parameter(torch.tensor(number), requires_grad=False) for number in range(len(chosen))]
    slots = {f"weight{n}": Slot(SlotKind.PARAMETER, value, first + n, first + n) for n, value in enumerate(values)}
    pairs = list(zip(program.main.output, program.signature.outputs, strict=True))
    kept = [(arg, spec) for arg, spec in pairs if not isinstance(spec, InputGradient) or draw.random() < 0.4]
    kept += [(px.Ref(name), StateGradient(slot)) for name, slot in zip(chosen, slots, strict=True)]
    graph = px.Graph(program.main.inputs, program.main.nodes, tuple([arg for arg, _ in kept]))
    signature = evolve(program.signature, outputs=tuple([spec for _, spec in kept]))
    return program.evolve(state=program.state.with_slots(slots), signature=signature).with_main(graph)


def weighted_programs() -> st.SearchStrategy[px.Program]:
    """Return a strategy of joint programs in which both halves of the backward have something to do."""
    return st.builds(weighted, joint_programs(), st.integers(0, 1 << 16)).filter(is_joint)


@given(weighted_programs())
@settings(max_examples=15, deadline=None)
def test_both_together_mean_the_program(program: px.Program) -> None:
    """Outputs, gradients, state, arguments and all effects in order, of programs with writes, views, draws and ties."""
    split = split_backward(program)
    assert px.verify(split.inputs) == px.verify(split.weights) == ()
    assert not any(isinstance(spec, StateGradient) for spec in split.inputs.signature.outputs)
    assert meaning_differences(toy_meaning(together(program, split)), toy_meaning(program)) == []
    event(f"nodes of the second: {min(len(split.weights.main.nodes), 2)}")


def with_split_backward(program: px.Program) -> Partition:
    """Return a partition whose backward is two programs."""
    cut = partition_joint(program)
    return evolve(cut, backward=together(cut.backward, split_backward(cut.backward)))


@pytest.mark.parametrize("law", [law for law in JOINT_LAWS if law.name in ("valid halves", "one after the other", "later")])
@given(program=weighted_programs())
@settings(max_examples=15, deadline=None)
def test_the_forward_and_both_halves_of_the_backward_mean_the_program(law: JointLaw, program: px.Program) -> None:
    assert law.check(with_split_backward, program) == []
