"""Fake values: nodes that a rewrite puts in get theirs, programs without any get all of them, and no guard is installed."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from attrs import evolve
from torch._higher_order_ops import map as hop_map

import purefx as px
from purefx.ir.meta import EMPTY_META
from purefx.ir.operators import op_of
from tests.models import NEG, Block, decompose, exported, flat, imported, parent
from tests.to_ep.support import flattened, loaded

ROWS = ({0: torch.export.Dim("rows", min=2, max=9)},)


@px.transformation(laws=["every relu becomes tanh, and a negation comes after it"])
def tanhs(program: px.Program) -> px.Program:
    """Replace relu by tanh and neg, without fake values."""
    nodes: list[px.Node] = []
    for node in program.main.nodes:
        if type(node.do) is px.Op and node.do.name == "aten.relu.default":
            tanh = px.Node(
                f"{node.name}_tanh", op_of(torch.ops.aten.tanh.default), node.args, (), node.stack
            )
            nodes += [tanh, px.Node(node.name, NEG, (px.Ref(tanh.name),), (), node.stack)]
        else:
            nodes.append(node)
    return program.with_main(evolve(program.main, nodes=tuple(nodes)))


def node_of(ep: torch.export.ExportedProgram, name: str) -> torch.fx.Node:
    """Return a node by its name."""
    return next(node for node in ep.graph.nodes if node.name == name)


def without_meta(program: px.Program) -> px.Program:
    """Return a program as if somebody had written it by hand."""
    graphs = {
        name: px.Graph(tuple([px.Input(formal.name) for formal in graph.inputs]),
                       tuple([evolve(node, meta=EMPTY_META) for node in graph.nodes]), graph.output)
        for name, graph in program.graphs.items()
    }  # fmt: skip
    return program.evolve(graphs=px.ir.pmap(graphs))


def test_inserted_nodes_get_value_and_stack() -> None:
    module, x = Block(), torch.randn(3, 4)
    ep = exported(module, x, dynamic_shapes=ROWS)
    original = next(node for node in ep.graph.nodes if node.name == "relu")
    environment = original.meta["val"].fake_mode.shape_env
    guards, made = (
        len(environment.guards),
        px.to_ep(px.transform(px.import_ep(ep), tanhs, *px.DEFAULT)),
    )
    for name in ("relu_tanh", "relu"):
        node = node_of(made, name)
        assert str(node.meta["val"].shape) == "torch.Size([s77, 8])"
        assert not node.meta["val"].requires_grad  # like those of the exporter
        assert node.meta["nn_module_stack"] == {"L__self__": ("", "tests.models.Block")}
    assert len(environment.guards) == guards
    assert node_of(made, "linear").meta["stack_trace"] == node_of(ep, "linear").meta["stack_trace"]
    again = torch.export.export(made.module(), (torch.randn(4, 4),), dynamic_shapes=ROWS)
    for rows in (3, 9, 2):
        x = torch.randn(rows, 4)
        expected = x + module.down(-module.up(x).tanh())
        assert torch.equal(again.module()(x), expected)
        assert torch.equal(made.module()(x), expected)
        assert torch.equal(loaded(made).module()(x), expected)
    with pytest.raises(AssertionError, match="<= 9"):
        made.module()(torch.randn(10, 4))


def test_a_program_without_fake_values_gets_all_of_them() -> None:
    """Sizes, ranges and guards of a program that was read from text; torch saves, loads and decomposes it."""

    class Halves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return (x[: x.shape[0] // 2] if x.shape[0] % 2 == 0 else x).sin(), x.shape[0] + 1

    program = imported(Halves(), torch.randn(6, 2), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert program.constraints.guards
    read = px.parse(px.transform(program).text())
    for ep in (px.to_ep(read), loaded(px.to_ep(read)), px.to_ep(without_meta(program))):
        assert px.alpha_equal(px.import_ep(ep), program)
        for rows in (4, 8):
            x = torch.randn(rows, 2)
            given, count = ep.module()(x)
            assert torch.equal(given, x[: rows // 2].sin())
            assert count == rows + 1
        with pytest.raises(AssertionError, match="Guard failed"):
            ep.module()(torch.randn(5, 2))
    assert torch.equal(decompose(px.to_ep(read), core=True).module()(x)[0], x[:4].sin())


def test_a_size_that_only_a_run_knows() -> None:
    nodes = [
        px.Node("nonzero", op_of(torch.ops.aten.nonzero.default), (px.Ref("x"),)),
        px.Node("sum_1", op_of(torch.ops.aten.sum.default), (px.Ref("nonzero"),)),
    ]
    ep = px.to_ep(flat(nodes, px.Ref("sum_1"), "x"))
    assert str(node_of(ep, "nonzero").meta["val"].shape) == "torch.Size([u0, 1])"
    assert list(map(str, node_of(ep, "nonzero").meta["unbacked_bindings"])) == ["u0"]
    assert list(map(str, ep.range_constraints)) == ["u0"]
    for made in (ep, loaded(ep), decompose(ep, core=True)):
        assert made.module()(torch.tensor([0.0, 3.0]))[0].item() == 1


def test_an_operator_with_bodies() -> None:
    """A cond that was written by hand: inputs of its branches get the values of the operands."""
    then = px.Graph((px.Input("a"),), (px.Node("b", NEG, (px.Ref("a"),)),), (px.Ref("b"),))
    other = px.Graph(
        (px.Input("a"),),
        (px.Node("b", op_of(torch.ops.aten.sin.default), (px.Ref("a"),)),),
        (px.Ref("b"),),
    )
    nodes = [
        px.Node("sum_1", op_of(torch.ops.aten.sum.default), (px.Ref("x"),)),
        px.Node("gt", op_of(torch.ops.aten.gt.Scalar), (px.Ref("sum_1"), 0)),
        px.Node(
            "cond",
            op_of(torch.ops.higher_order.cond),
            (px.Ref("gt"), px.ir.Body("then"), px.ir.Body("class"), (px.Ref("x"),)),
        ),
        px.Node("y", op_of(operator.getitem), (px.Ref("cond"), 0)),
    ]
    program = flat(nodes, px.Ref("y"), "x")
    program = program.evolve(graphs=program.graphs.update({"then": then, "class": other}))
    ep = px.to_ep(program)
    assert px.alpha_equal(
        px.import_ep(ep).evolve(modules=()), program.evolve(signature=px.import_ep(ep).signature)
    )
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(ep.module()(x)[0], -x if x.sum() > 0 else x.sin())
        assert torch.equal(loaded(ep).module()(x)[0], -x if x.sum() > 0 else x.sin())


class Branches(torch.nn.Module):
    """Two calls of ``cond`` with one equal branch, at two sizes."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return left, torch.cond(y.sum() > 0, torch.neg, torch.cos, (y,))


class Steps(torch.nn.Module):
    """Two calls of an operator that passes its body parts of its operands."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return hop_map(torch.sin, x), hop_map(torch.sin, y)


@pytest.mark.parametrize("module", [Branches(), Steps()], ids=["cond", "map"])
def test_calls_of_other_sizes_get_bodies_of_their_own(module: torch.nn.Module) -> None:
    args = torch.randn(4, 4), torch.randn(3, 2)
    program = px.import_ep(torch.export.export(module, args))
    deduplicated = px.deduplicate(program)
    assert len(deduplicated.graphs) < len(program.graphs)
    ep = px.to_ep(deduplicated)
    again = px.import_ep(ep)
    assert not px.verify(again, infer=True)
    assert px.alpha_equal(again, program)
    for made in (ep, ep.run_decompositions(), loaded(ep)):
        for result, wanted in zip(made.module()(*args), module(*args), strict=True):
            assert torch.equal(result, wanted)


def test_values_of_two_exports_meet() -> None:
    """A body from another export has fake values of another mode; torch refuses to mix them."""
    one, other = imported(Block(), torch.randn(3, 4)), imported(torch.nn.ReLU(), torch.randn(3, 4))
    taken = other.main.nodes[0]
    nodes = tuple(
        [evolve(node, meta=taken.meta) if node.name == "relu" else node for node in one.main.nodes]
    )
    mixed = one.with_main(evolve(one.main, nodes=nodes))
    ep = px.to_ep(mixed)
    modes = {id(node.meta["val"].fake_mode) for node in ep.graph.nodes if "val" in node.meta}
    assert len(modes) == 1
    assert node_of(ep, "relu").meta["val"].shape == (3, 8)


def test_what_can_not_be_worked_out_is_told() -> None:
    wrong = px.Node(
        "mm", op_of(torch.ops.aten.mm.default), (px.Ref("x"), px.Ref("x")), (), (px.Frame("layer"),)
    )
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"node layer / mm: it has no fake value.*meta\['val'\]"
    ):
        px.to_ep(flat([wrong], px.Ref("mm"), "x"))
    signature = px.ir.Signature((px.ir.UserInput(px.ir.ObjectType("Thing"), "t"),), ())
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"the input 't' \(Thing\) has no fake value"
    ):
        px.to_ep(px.Program.of({"": px.Graph((px.Input("t"),), (), ())}, signature=signature))


def test_an_operator_that_gives_nothing_is_not_run(capfd: pytest.CaptureFixture[str]) -> None:
    shout = px.Node("shout", op_of(torch.ops.aten._print.default), ("loud",))
    ep = px.to_ep(flat([shout], px.Ref("x"), "x"))
    assert node_of(ep, "shout").meta["val"] is None
    assert capfd.readouterr().out == ""
    ep.module()(torch.ones(2))
    assert "loud" in capfd.readouterr().out


def test_examples_are_of_the_sizes_that_were_exported() -> None:
    program = imported(Block(), torch.randn(3, 4), dynamic_shapes=ROWS)
    made = px.to_ep(program)
    assert made.example_inputs is not None
    (x,), kwargs = made.example_inputs
    assert (x.shape, x.dtype, kwargs) == ((3, 4), torch.float32, {})
    mine: Any = ((torch.ones(5, 4),), {})
    kept = px.to_ep(program, example_inputs=mine).example_inputs
    assert kept is not None
    assert kept[0][0] is mine[0][0]
    assert px.to_ep(flattened(program)).example_inputs is not None


def test_a_buffer_that_a_tuple_holds_beside_a_written_input_is_not_copied() -> None:
    class Held(parent(b=lambda: torch.ones(3))):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            both = torch.broadcast_tensors(x, self.b)
            return x + 1, self.b[:2], x[:2], both[0] * both[1]

    program = imported(Held(), torch.zeros(3))
    of = {"slice_1": "b_b", "slice_2": "x"}  # the exporter slices what the tuple holds
    nodes = [
        evolve(node, args=(px.Ref(of[node.name]), *node.args[1:])) if node.name in of else node
        for node in program.main.nodes
    ]
    program = program.with_main(evolve(program.main, nodes=tuple(nodes)))
    signature = evolve(
        program.signature,
        outputs=(px.ir.InputMutation(1), *[px.ir.UserOutput()] * 3),
        out_spec=None,
    )
    ep = px.to_ep(program.evolve(signature=signature))
    copied = [
        node.args[0].name for node in ep.graph.nodes if node.target is torch.ops.aten.clone.default
    ]
    assert copied == ["slice_2"], "the one that is a view of x"
