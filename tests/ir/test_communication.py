"""What operators that talk to other processes do besides computing, as programs of every kind have them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist
from attrs import evolve
from torch._library.utils import is_impure

import purefx as px
from purefx.ir.effects.declared import COMMUNICATION
from purefx.ir.effects.registered import effects_of
from purefx.ir.effects.schema import FUNCTIONAL, RAW
from purefx.ir.effects.schema import WAITS as WAITS_OF_TORCH
from purefx.ir.operators import DENIED_NAMESPACES, op_of
from purefx.ir.torch_private import resolve_operator
from purefx.laws.variants import reordered
from tests.communication.talking import operators
from tests.upstream.audit_effects import overloads

for module in (
    "_functional_collectives", "_symmetric_memory", "fsdp", "tensor.experimental._context_parallel._cp_custom_ops",
):  # fmt: skip
    import_module(f"torch.distributed.{module}")
import_module("torch._functorch._activation_offloading.offload_ops")

TALK: Any = torch.ops._c10d_functional
NEG = op_of(torch.ops.aten.neg.default)
REDUCE, WAIT = op_of(TALK.all_reduce.default), op_of(TALK.wait_tensor.default)


def flat(*nodes: px.Node, inputs: str = "xyz", **graphs: px.Graph) -> px.Program:
    """Return a program of these nodes that returns nothing."""
    return px.Program.of({"": px.Graph(tuple(map(px.Input, inputs)), nodes, ()), **graphs})


def before(program: px.Program) -> list[list[int]]:
    """Return what must come before what in its root."""
    return px.ir.dependencies(program, program.main)


def reduce(name: str, of: str, group: Any) -> px.Node:
    """Return an all-reduce."""
    return px.Node(name, REDUCE, (px.Ref(of), "sum", group))


def test_what_torch_never_removes_is_kept_here() -> None:
    """What ``torch.fx`` takes for impure, by its table, its registry of effects or a schema, does something here too."""
    missing = [
        str(op) for op in (*overloads(), *operators()) if is_impure(op) and not effects_of(op).acts
    ]
    assert missing == []


def test_what_talks_is_kept_whether_torch_keeps_it_or_not() -> None:
    """torch.fx removes an all-reduce that nobody waits for, and merges two; here every one stays, so all ranks stay in step."""
    assert not is_impure(TALK.all_reduce.default), "if torch says so now, the page should"
    program = flat(reduce("a", "x", "0"), reduce("b", "x", "0"))
    assert px.eliminate_dead_code(program) is program
    assert px.eliminate_common_subexpressions(program) is program


@pytest.mark.parametrize("name", ["flex_cp_allgather", "flex_cp_allgather_backward"])
def test_context_parallel_operators_talk(name: str) -> None:
    """torch takes them for pure.  They wait for what they begin, so they stay in order with every group."""
    effects = effects_of(resolve_operator("cplib", name, "default"))
    assert (effects.domain, effects.group) == (COMMUNICATION, None)


def test_what_fsdp_copies_into_is_written() -> None:
    """Its schema says nothing; the operator is run here."""
    target: Any = torch.ops.fsdp.all_gather_copy_in.default
    whole = torch.zeros(4)
    mine, everything = target([torch.ones(1), torch.ones(1)], whole, [1, 1], 2, 1)
    assert whole.tolist() == [0, 0, 1, 1]
    assert mine.data_ptr() == whole[2:].data_ptr()
    assert everything.data_ptr() == whole.data_ptr()
    effects = effects_of(target)
    assert [at.name for at in effects.writes] == ["all_gather_output"]
    assert {at.name for at in effects.aliases} >= {"all_gather_output"}


def test_a_copy_to_another_device_is_there_after_its_wait() -> None:
    """``ao.wait_tensor`` completes what was offloaded or reloaded, and frees what it was copied from."""
    ops: Any = torch.ops.ao
    away, wait = op_of(ops.offload.default), op_of(ops.wait_tensor.default)
    assert [at.name for at in wait.effects.completes] == ["tensor"]
    assert [at.name for at in wait.effects.writes] == ["keepalive"]
    found = before(
        flat(
            px.Node("a", away, (px.Ref("x"),)),
            px.Node("r", NEG, (px.Ref("x"),)),
            px.Node("w", wait, (px.Ref("a"), px.Ref("x"))),
            px.Node("s", NEG, (px.Ref("a"),)),
        )
    )
    assert found == [[], [], [0, 1], [0, 2]]


def test_what_dynamo_writes_is_an_operator_with_its_effects() -> None:
    """It names operators without their overload."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    sent = graph.call_function(TALK.all_reduce, (x, "sum", "0"))
    graph.output(graph.call_function(TALK.wait_tensor, (sent,)))
    first, second = px.import_fx(torch.fx.GraphModule({}, graph)).main.nodes
    assert (first.do, second.do) == (REDUCE, WAIT)
    assert REDUCE.effects.domain == COMMUNICATION
    assert op_of(TALK.all_reduce) == REDUCE


def test_the_plain_function_that_dynamo_writes_for_a_work_is_a_wait() -> None:
    """``work.wait()`` of a captured ``isend``: no more than the operator that it calls."""
    plain: Any = import_module("torch.distributed._functional_collectives").wait_tensor
    assert effects_of(plain) == WAIT.effects
    found = before(
        flat(
            reduce("a", "x", "0"),
            px.Node("w", op_of(plain), (px.Ref("a"),)),
            px.Node("r", NEG, (px.Ref("a"),)),
        )
    )
    assert found == [[], [0], [0, 1]]


WAITS = [
    name for name in WAITS_OF_TORCH if resolve_operator(*name.split("::"), "default") is not None
]


@pytest.mark.parametrize("name", WAITS)
def test_a_read_passes_no_wait(name: str) -> None:
    """Neither of what the wait returns nor of the tensor under its own name, for every operator that waits."""
    wait = op_of(resolve_operator(*name.split("::"), "default"))
    of: Any = px.ir.Items([px.Ref("a")]) if name.endswith("tensors") else px.Ref("a")
    rest = (px.Ref("y"),) if name.startswith("ao") else ()
    found = before(
        flat(
            reduce("a", "x", "0"),
            px.Node("w", wait, (of, *rest)),
            px.Node("r", NEG, (px.Ref("a"),)),
        )
    )
    assert found == [[], [0], [0, 1]]


def test_plain_functions_of_torch_distributed_stay_where_they_are() -> None:
    """Also with a work that is waited for: what they write is read after the wait."""
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    work = graph.call_function(dist.all_reduce, (x,), {"async_op": True})
    graph.call_function(dist.isend, (y, 0))
    received = graph.call_function(dist.irecv, (y, 0))
    graph.call_method("wait", (work,))
    graph.call_method("wait", (received,))
    graph.output((graph.call_function(torch.neg, (x,)), graph.call_function(torch.neg, (y,))))
    program = px.import_fx(torch.fx.GraphModule({}, graph))
    names = [node.name for node in program.main.nodes]
    assert px.eliminate_dead_code(program) is program
    for seed in range(20):
        found = [node.name for node in reordered(program, seed=seed).main.nodes]
        assert [name for name in found if name in names[:5]] == names[:5]
        assert found.index("neg") > found.index("wait")
        assert found.index("neg_1") > found.index("wait_1")


def message(name: str, of: str, group: Any = "1") -> px.Node:
    """Return a node that sends to one process."""
    return px.Node(name, op_of(TALK.isend.default), (px.Ref(of), 1, 0, group))


def test_what_is_cut_out_leaves_the_receive_before_the_wait() -> None:
    """Two processes got stuck: a module that sends and waits was one body, before the receive that stood between."""
    inside = (px.Frame("m"),)
    receive = px.Node("r", op_of(TALK.irecv.default), (px.Ref("y"), 1, 0, "0"))
    nodes = (
        evolve(message("s", "x", "0"), stack=inside),
        receive,
        px.Node("w", WAIT, (px.Ref("s"),), stack=inside),
    )
    modules = tuple([px.ir.Module(path, "Module") for path in ("", "m")])
    outlined = px.outline(flat(*nodes, inputs="xy").evolve(modules=modules))
    order = [node for node in px.inline(outlined).main.nodes if "getitem" not in str(node.do)]
    assert [str(node.do).split(".")[1] for node in order] == ["isend", "irecv", "wait_tensor"]
    assert len(outlined.graphs) == 1, "the call stays flat"


def test_a_program_that_is_split_says_why_a_message_stays() -> None:
    nodes = (reduce("a", "x", "0"), message("b", "y"), px.Node("w", WAIT, (px.Ref("a"),)))
    tags = {"a": "early", "w": "early", "b": "late"}
    with pytest.raises(px.errors.PartitionError, match="stays after 'b'"):
        px.split_by_tags(flat(*nodes), ["early", "late"], tag_of=lambda node: tags[node.name])


def test_every_operator_in_a_namespace_of_processes_is_denied_to_texts() -> None:
    """Whoever sends in a program may not make it talk."""
    assert DENIED_NAMESPACES.keys() >= FUNCTIONAL | RAW
