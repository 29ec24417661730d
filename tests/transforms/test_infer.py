"""``infer``: values where there were none, or where they no longer hold; nothing else is asked, computed or changed."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.inference import FakeValues
from purefx.ir.operators import op_of
from purefx.ir.torch_private import storage_key
from tests.models import Block, exported, flat
from tests.transforms.small import tree

ROWS = ({0: torch.export.Dim("rows", min=3, max=9)},)

NEG = op_of(torch.ops.aten.neg.default)


class Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin().to(torch.float64).cos().abs(), x.relu().neg()


def edited(program: px.Program, name: str, **changes: Any) -> px.Program:
    """Return a program in which a node of the root is another; its meta stays."""
    return program.with_main(
        program.main.with_nodes(
            [evolve(n, **changes) if n.name == name else n for n in program.main.nodes]
        )
    )


def bare(program: px.Program, *names: str) -> px.Program:
    """Return a program without the values of some nodes, or of all nodes and inputs."""
    kept = [
        name
        for graph in program.graphs.values()
        for name in graph.by_name
        if names and name not in names
    ]
    return program.with_graphs({
        key: px.Graph(
            graph.inputs if names else tuple([px.Input(formal.name) for formal in graph.inputs]),
            tuple([node if node.name in kept else evolve(node, meta=MappingProxyType({})) for node in graph.nodes]),
            graph.output,
        )
        for key, graph in program.graphs.items()
    })  # fmt: skip


def said(program: px.Program, graph: str = "") -> dict[str, str]:
    """Return types and sizes by name."""
    values = {node.name: node.meta.get("val") for node in program.graphs[graph].nodes}
    return {
        name: f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        if isinstance(value, torch.Tensor)
        else str(value)
        for name, value in values.items()
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each node whose operator is run."""
    names, run = list[str](), FakeValues.run

    def counted(self: FakeValues, node: px.Node, *rest: Any) -> Any:
        if type(self) is FakeValues:  # not that of verify, to which the tests pass what they import
            names.append(node.name)
        return run(self, node, *rest)

    monkeypatch.setattr(FakeValues, "run", counted)
    return names


@pytest.mark.parametrize("how", ["named", "bare"])
def test_only_what_depends_on_an_edit_is_asked(how: str, asked: list[str]) -> None:
    program = px.import_ep(exported(Chain(), torch.ones(4, 2), dynamic_shapes=ROWS))
    cast = next(
        node
        for node in program.main.nodes
        if type(node.do) is px.Op and node.do.name.startswith("aten.to.")
    )
    half = edited(program, cast.name, args=(cast.args[0], torch.float16))
    result = (
        px.infer(half, changed=[cast.name]) if how == "named" else px.infer(bare(half, cast.name))
    )
    assert asked == [cast.name, "cos", "abs_1"]
    assert {said(result)[name] for name in asked} == {"float16 (s77, 2)"}
    for name in ("relu", "neg", "sin"):
        assert result.main.by_name[name] is half.main.by_name[name]
    assert px.verify(result, infer=True) == ()
    assert px.verify(half, infer=True) != ()
    assert px.infer(result) is result
    x = torch.randn(5, 2)
    assert torch.equal(px.lower(result)(x)[0], x.sin().to(torch.float16).cos().abs())


class Resized(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # the kernel takes no symbolic sizes
        return torch.nn.functional.interpolate(super().forward(x)[None], size=x.shape[0])[0]


def test_a_program_without_values_gets_those_of_the_export() -> None:
    program = px.import_ep(
        exported(Resized(), torch.randn(3, 4), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    )
    for each in (program, px.transform(program)):
        result = px.infer(bare(each))
        assert result == each
        assert px.infer(result) is result
        assert [said(result, graph) for graph in each.order] == [
            said(px.infer(each), graph) for graph in each.order
        ]
        assert "(s77, s77)" in str([said(result, graph) for graph in each.order])
        module = px.to_ep(result).module()
        x = torch.randn(5, 4)
        assert torch.equal(module(x), px.lower(each)(x))


class Regions(torch.nn.Module):
    """Operators with bodies: a branch, no_grad, autocast, where the same operator gives another dtype."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            low = x @ x
        with torch.no_grad():
            still = x + 1
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), low, still


@pytest.mark.parametrize("strict", [True, False])
def test_bodies_of_operators(strict: bool) -> None:
    program = px.import_ep(torch.export.export(Regions(), (torch.ones(3, 3),), strict=strict))
    assert len(program.graphs) >= 4
    result = px.infer(bare(program))
    values = [said(result, graph) for graph in program.order]
    if not strict:  # torch (2.13) forgets autocast in the meta of strict exports
        assert values == [said(program, graph) for graph in program.order]
    assert values[0]["getitem_2"] == "bfloat16 (3, 3)"
    assert px.lower(program)(torch.ones(3, 3))[1].dtype is torch.bfloat16


def test_sizes_that_only_a_run_knows(asked: list[str]) -> None:
    class Found(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.nonzero().float().sin()

    program = px.import_ep(exported(Found(), torch.ones(4)))
    assert px.infer(program, changed=["nonzero"]) is program
    assert asked == ["nonzero"]
    result = px.infer(bare(program, "nonzero"))
    sizes = {str(result.main.by_name[name].meta["val"].shape[0]) for name in ("nonzero", "sin")}
    assert len(sizes) == 1
    assert px.to_ep(result).module()(torch.tensor([0.0, 2.0, 0.0, 0.0])).shape == (1, 1)


RUNS: list[str] = []


@torch.library.custom_op("purefx_infer::loud", mutates_args=())
def loud(x: torch.Tensor) -> torch.Tensor:
    """Be noticed when a kernel runs."""
    RUNS.append("ran")
    return x.clone()


def test_state_without_contents_has_its_dtype_on_the_device_of_the_inputs() -> None:
    graph = 'graph @""(x) {\n t = get t\n n = aten.neg.default(t)\n return (n,)\n}'
    program = tree(graph, "state {\nbuffer t: i64[2]\n}")
    assert program.state["t"].value.is_meta
    for node in px.infer(program).main.nodes:
        assert (node.val.dtype, node.val.fake_device.type) == (torch.int64, "cpu")


def test_what_can_not_be_known_stays_unknown() -> None:
    """No kernel runs, no function that may do anything is called; a value that no longer holds goes."""
    kernel = op_of(torch.ops.purefx_infer.loud.default)
    nodes = [
        px.Node("a", kernel, (px.Ref("x"),)),
        px.Node("b", NEG, (px.Ref("a"),)),
        px.Node("c", op_of(RUNS.append), (px.Ref("x"),)),
        px.Node("d", NEG, (px.Ref("x"),)),
    ]
    result = px.infer(flat(nodes, px.Ref("d"), "x"))
    assert (said(result), RUNS) == (
        {"a": "None", "b": "None", "c": "None", "d": "float32 (2,)"},
        [],
    )
    assert px.infer(result) is result
    known = MappingProxyType({"val": result.main.by_name["d"].meta["val"], "stack_trace": "here"})
    told = px.infer(edited(result, "a", meta=known))
    assert said(told)["b"] == "float32 (2,)"
    wide = edited(told, "a", args=(px.Ref("x"),), meta=known)
    gone = px.infer(wide, changed=["a"])
    assert dict(gone.main.by_name["a"].meta) == {"stack_trace": "here"}
    assert said(gone)["b"] == "None"


class TwoResults(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            first, second = x.neg(), x * 2
        return first, second.relu()


def test_a_body_of_an_operator_may_have_an_unknown_result() -> None:
    """Its meta has None for that result, as a call has."""
    program = bare(px.import_ep(exported(TwoResults(), torch.ones(2))))
    (name,) = program.order[1:]
    kernel = op_of(torch.ops.purefx_infer.loud.default)
    nodes = [
        node.evolve(do=kernel) if node.do == NEG else node for node in program.graphs[name].nodes
    ]
    result = px.infer(program.with_graphs({name: program.graphs[name].with_nodes(nodes)}))
    values = [node.meta["val"] for _, node in result.nodes() if type(node.meta.get("val")) is tuple]
    assert [{type(part).__name__ for part in value} for value in values] == [
        {"NoneType", "FakeTensor"}
    ]
    assert said(result)["relu"] == "float32 (2,)"
    assert px.infer(result) is result


class Lifted(torch.nn.Module):
    """An operator that returns its operand, and whose schema does not say so."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = x + 1, x + 2
        return torch.ops.aten.lift(first).add_(1), torch.ops.aten.lift(second) * 2


def test_operators_that_return_their_operand_do_so_whatever_ran_before() -> None:
    """torch remembers what operators gave in this process, and forgets that this one shares memory."""
    program = bare(px.import_ep(exported(Lifted(), torch.ones(3, 7))))
    for _ in range(3):
        values = {node.name: node.meta["val"] for _, node in px.infer(program).nodes()}
        assert storage_key(values["lift"]) == storage_key(values["add"])
        assert storage_key(values["lift_1"]) == storage_key(values["add_1"])


def test_strides_of_dimensions_of_size_1_choose_the_memory_format_of_a_result() -> None:
    plain = torch.ones(2, 1, 4, 4)
    for x in (
        plain,
        plain.as_strided((2, 1, 4, 4), (16, 1, 4, 1)),
    ):  # one description: such strides have no meaning
        program = px.import_ep(exported(torch.nn.Conv2d(1, 8, 1), x))
        made, again = [
            each.main.nodes[-1].meta["val"] for each in (program, px.infer(bare(program, "conv2d")))
        ]
        assert made.stride() == again.stride()
