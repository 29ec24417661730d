"""Mutations in place: a write never overtakes a read, and what is handed out keeps its contents."""

from __future__ import annotations

import torch

import purefx as px
from purefx.ir.operators import op_of
from purefx.laws.variants import reordered
from tests.programs import ADD, MUL, NEG, Counter, exported

N, M = px.StateInput("n"), px.StateInput("m")


def mutating(nodes: list[px.Node], outputs: list[tuple[str, px.UserOutput | px.StateMutation | px.InputMutation]]) -> px.Program:
    """Return a flat program of two buffers ``n`` and ``m`` and an input ``x``, all of two ones."""
    inputs = (px.Input("bn"), px.Input("bm"), px.Input("x"))
    specs = (N, M, px.UserInput(px.TensorType(torch.float32, (2,)), "x"))
    slots = {name: px.Slot(px.SlotKind.BUFFER, torch.ones(2), index, index) for index, name in enumerate("nm")}
    graph = px.Graph(inputs, tuple(nodes), tuple(px.Ref(name) for name, _ in outputs))
    signature = px.Signature(specs, tuple(spec for _, spec in outputs))
    modules = (px.Module(""),)
    return px.Program.of(
        {"": graph}, state=px.State(("n", "m"), px.pmap(slots)), signature=signature, modules=modules, facts=frozenset({"flat"})
    )


def run(program: px.Program, x: torch.Tensor) -> tuple[list[list[float]], list[float], list[float], list[float]]:
    """Return outputs, both buffers and the input after two calls."""
    module = px.lower(px.transform(program))
    outputs = [module(x)[0].tolist() for _ in range(2)]
    return outputs, module.n.tolist(), module.m.tolist(), x.tolist()  # type: ignore[union-attr, operator]


def test_a_write_becomes_a_copy_after_its_value() -> None:
    """One copy_ for one mutation, and the signature is clean."""
    program = mutating(
        [px.Node("a", ADD, (px.Ref("bn"), 1)), px.Node("y", NEG, (px.Ref("x"),))],
        [("a", px.StateMutation("n")), ("y", px.UserOutput())],
    )
    result = px.inplace_mutations(program)
    assert [node.name for node in result.main.nodes] == ["a", "copy_", "y"]
    assert result.main.nodes[1].args == (px.Ref("bn"), px.Ref("a"))
    assert result.signature.outputs == (px.UserOutput(),)
    assert px.inplace_mutations(result) is result


def test_a_write_waits_for_the_last_read_of_the_old_contents() -> None:
    """An exporter, or any pass, may put a read of the old value after the new one: pytorch's unflatten writes too early."""
    program = mutating(
        [px.Node("a", ADD, (px.Ref("bn"), 1)), px.Node("y", MUL, (px.Ref("bn"), px.Ref("x")))],
        [("a", px.StateMutation("n")), ("y", px.UserOutput())],
    )
    assert [node.name for node in px.inplace_mutations(program).main.nodes] == ["a", "y", "copy_"]
    assert run(program, torch.ones(2))[0] == [[1.0, 1.0], [2.0, 2.0]]


def test_buffers_that_swap_swap() -> None:
    """n' = m and m' = n: copying one into the other first would lose a value."""
    program = mutating(
        [px.Node("a", MUL, (px.Ref("bn"), 2)), px.Node("y", NEG, (px.Ref("a"),))],
        [("bm", px.StateMutation("n")), ("a", px.StateMutation("m")), ("y", px.UserOutput())],
    )
    outputs, n, m, _ = run(program, torch.ones(2))
    assert (outputs, n, m) == ([[-2.0, -2.0], [-2.0, -2.0]], [2.0, 2.0], [2.0, 2.0])


def test_the_old_value_handed_out_keeps_its_contents() -> None:
    """Returning the buffer as it was before the write gives a copy of it."""
    program = mutating([px.Node("a", ADD, (px.Ref("bn"), 1))], [("a", px.StateMutation("n")), ("bn", px.UserOutput())])
    outputs, n, _, _ = run(program, torch.ones(2))
    assert (outputs, n) == ([[1.0, 1.0], [2.0, 2.0]], [3.0, 3.0])


def test_a_view_of_the_old_value_is_read_before_the_write() -> None:
    """A value that shares memory with the buffer is an old read too."""
    view = px.Node("v", op_of(torch.ops.aten.view.default), (px.Ref("bn"), px.Items([2])))
    program = mutating(
        [view, px.Node("a", ADD, (px.Ref("bn"), 1)), px.Node("y", MUL, (px.Ref("v"), px.Ref("x")))],
        [("a", px.StateMutation("n")), ("y", px.UserOutput())],
    )
    assert run(program, torch.ones(2))[0] == [[1.0, 1.0], [2.0, 2.0]]


def test_inputs_are_written_for_the_caller() -> None:
    """The caller's tensor changes exactly as it says."""
    program = mutating(
        [px.Node("a", ADD, (px.Ref("x"), 1)), px.Node("y", NEG, (px.Ref("a"),))],
        [("a", px.InputMutation(2)), ("y", px.UserOutput())],
    )
    outputs, _, _, x = run(program, torch.zeros(2))
    assert (outputs, x) == ([[-1.0, -1.0], [-2.0, -2.0]], [2.0, 2.0])


def test_a_mutation_to_the_same_value_is_none() -> None:
    """Returning a buffer as its own new value writes nothing."""
    program = mutating([px.Node("y", NEG, (px.Ref("x"),))], [("bn", px.StateMutation("n")), ("y", px.UserOutput())])
    assert [node.name for node in px.inplace_mutations(program).main.nodes] == ["y"]


def test_writes_that_may_stand_in_any_order_stand_in_the_exporters() -> None:
    """State first, then inputs, each in the order of the inputs, whatever the order of the outputs."""
    program = mutating(
        [px.Node("y", NEG, (px.Ref("x"),))],
        [("y", px.InputMutation(2)), ("y", px.StateMutation("m")), ("y", px.StateMutation("n"))],
    )
    assert [node.args[0] for node in px.inplace_mutations(program).main.nodes[1:]] == [px.Ref("bn"), px.Ref("bm"), px.Ref("x")]


def test_a_write_stands_in_the_calls_that_its_value_and_the_last_read_share() -> None:
    """The value is made in a call of ``a``, and the old contents are read in a call inside another one, or in itself."""
    made, frame = px.Frame("a"), px.Frame("a", 1)
    for stack, expected in (((frame, px.Frame("a.b")), ()), ((made, px.Frame("a.b")), (made,)), ((), ())):
        program = mutating(
            [px.Node("v", ADD, (px.Ref("x"), 1), stack=(made,)), px.Node("y", NEG, (px.Ref("bn"),), stack=stack)],
            [("v", px.StateMutation("n")), ("y", px.UserOutput())],
        )
        copy = px.inplace_mutations(program.evolve(modules=())).main.nodes[2]
        assert (copy.name, copy.stack) == ("copy_", expected)


def test_any_legal_order_means_the_same() -> None:
    """The decomposed counter in twenty legal orders: three calls, outputs and state as in eager."""
    torch.manual_seed(0)
    model = Counter()
    inputs = [torch.randn(2, 4) for _ in range(3)]
    program = px.import_ep(exported(model, inputs[0], decomposed=True))
    expected = [model(x) for x in inputs]
    for seed in range(20):
        module = px.lower(px.transform(reordered(program, seed=seed)))
        for x, wanted in zip(inputs, expected, strict=True):
            assert torch.equal(module(x), wanted)
        assert module.count == 3  # type: ignore[union-attr]
