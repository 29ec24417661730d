"""``bucket_collectives``: what is joined, what is not, and where a bucket stands."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
import torch.fx
from attrs import evolve
from torch.fx.node import map_arg

import purefx as px
from purefx.ir.torch_private import FakeTensorMode
from tests.laws.talk import talk_meaning

import_module("torch.distributed._functional_collectives")

BUCKET = px.training.bucket_collectives
TALK: Any = torch.ops._c10d_functional
ATEN: Any = torch.ops.aten


class Build:
    """An fx graph whose nodes know what they give."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.graph = torch.fx.Graph()
        self.fake = FakeTensorMode()
        with self.fake:
            values = [torch.empty(4, dtype=dtype) for _ in "xyz"]
        self.inputs = [self.typed(self.graph.placeholder(name), value) for name, value in zip("xyz", values, strict=True)]

    def typed(self, node: Any, value: Any) -> Any:
        """Say what a node gives."""
        node.meta["val"] = value
        return node

    def __call__(self, target: Any, *args: Any) -> Any:
        node = self.graph.call_function(target, args)
        with self.fake:
            return self.typed(node, target(*map_arg(args, lambda one: one.meta["val"])))

    def reduce(self, value: Any, reduction: str = "sum", group: str = "0") -> Any:
        """Reduce something."""
        return self(TALK.all_reduce.default, value, reduction, group)

    def wait(self, value: Any) -> Any:
        """Wait for it."""
        return self(TALK.wait_tensor.default, value)

    def program(self, *outputs: Any) -> px.Program:
        """Return the program."""
        self.graph.output(outputs)
        return px.import_fx(torch.fx.GraphModule({}, self.graph))


def talk(program: px.Program) -> list[str]:
    """Return the collectives of a program, each with how much it takes."""
    found = [(node.do, node) for _, node in program.nodes() if isinstance(node.do, px.Op) and node.do.effects.domain]
    return [f"{do.name.split('.')[1]} {len(node.refs())}" for do, node in found]


@pytest.mark.parametrize("coalesced", ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"])
def test_three_of_a_kind_are_one(coalesced: str) -> None:
    rest: dict[str, tuple[Any, ...]] = {
        "all_reduce": ("sum", "0"), "all_gather_into_tensor": (2, "0"), "reduce_scatter_tensor": ("sum", 2, "0"),
    }  # fmt: skip
    build = Build()
    sent = [build(getattr(TALK, coalesced).default, value, *rest[coalesced]) for value in build.inputs]
    program = build.program(*map(build.wait, sent))
    joined = BUCKET(program)
    assert talk(joined) == [f"{coalesced}_coalesced 3"]
    assert px.verify(joined, infer=True) == ()
    assert talk_meaning(joined).outputs == talk_meaning(program).outputs
    assert BUCKET(joined) is joined


def test_waits_between_go_behind() -> None:
    """Each is waited for at once, and used; none needs another."""
    build = Build()
    found = [build(ATEN.div.Tensor, build.wait(build.reduce(value)), 2) for value in build.inputs]
    joined = BUCKET(build.program(*found))
    assert talk(joined) == ["all_reduce_coalesced 3"]
    assert [str(node.do).split("'")[1].split(".")[1] for node in joined.main.nodes[:6]] == [
        "all_reduce_coalesced", "getitem", "getitem", "getitem", "wait_tensor", "div",
    ]  # fmt: skip


def test_what_needs_another_stays_apart() -> None:
    """Through a wait, through memory, and without any wait."""
    x, y, _ = (build := Build()).inputs
    first = build.reduce(x)
    program = build.program(build.wait(build.reduce(build(ATEN.add.Tensor, build.wait(first), y))))
    assert BUCKET(program) is program

    x, y, _ = (build := Build()).inputs
    there = build.wait(build.reduce(x))
    build(ATEN.add_.Tensor, y, there)
    program = build.program(build.wait(build.reduce(y)))
    assert BUCKET(program) is program

    x, y, _ = (build := Build()).inputs
    program = build.program(build.wait(build.reduce(build.reduce(x))))
    assert BUCKET(program) is program


def test_what_the_group_says_in_between_keeps_them_apart() -> None:
    """Another kind, another reduction, another dtype, a broadcast; what another group says does not."""
    for between in (
        lambda build, z: build.reduce(z, "max"),
        lambda build, z: build(TALK.all_gather_into_tensor.default, z, 2, "0"),
        lambda build, z: build(TALK.broadcast.default, z, 0, "0"),
        lambda build, z: build.reduce(build(ATEN._to_copy.default, build(ATEN.view.dtype, z, torch.int32))),
    ):
        x, y, z = (build := Build()).inputs
        sent = [build.reduce(x), between(build, z), build.reduce(y)]
        program = build.program(*map(build.wait, sent))
        assert BUCKET(program) is program
    x, y, z = (build := Build()).inputs
    sent = [build.reduce(x), build.reduce(z, "max", "1"), build.reduce(y)]
    assert talk(BUCKET(build.program(*map(build.wait, sent)))) == ["all_reduce 1", "all_reduce_coalesced 2"]


def test_two_buckets_that_need_one_another_are_not_both() -> None:
    """a, b, then a with what b gave and b with what a gave: either pair may be one, not both."""
    x, y, z = (build := Build()).inputs
    a, b = build.reduce(x, "sum", "0"), build.reduce(y, "sum", "1")
    after_b, after_a = build(ATEN.add.Tensor, build.wait(b), z), build(ATEN.mul.Tensor, build.wait(a), z)
    c, d = build.reduce(after_b, "sum", "0"), build.reduce(after_a, "sum", "1")
    program = build.program(build.wait(c), build.wait(d))
    joined = BUCKET(program)
    assert talk(joined) == ["all_reduce 1", "all_reduce_coalesced 2", "all_reduce 1"]
    assert px.verify(joined) == ()
    assert talk_meaning(joined).outputs == talk_meaning(program).outputs


def test_a_bucket_holds_as_much_as_said() -> None:
    """What the whole group reduces or gathers counts: a gather of 4 numbers by two processes is 32 bytes."""

    def three(kind: str) -> px.Program:
        build = Build()
        rest = ("sum", "0") if kind == "all_reduce" else (2, "0")
        return build.program(*[build.wait(build(getattr(TALK, kind).default, value, *rest)) for value in build.inputs])

    assert talk(BUCKET(three("all_reduce"), bytes=32)) == ["all_reduce_coalesced 2", "all_reduce 1"]
    gathered = talk(BUCKET(three("all_gather_into_tensor"), bytes=64))
    assert gathered == ["all_gather_into_tensor_coalesced 2", "all_gather_into_tensor 1"]
    for little in (0, 31):
        program = three("all_reduce")
        assert BUCKET(program, bytes=little) is program
    grown = BUCKET(BUCKET(three("all_reduce"), bytes=32))
    assert talk(grown) == ["all_reduce_coalesced 3"]
    assert px.verify(grown, infer=True) == ()


def test_a_list_that_is_used_whole_stays() -> None:
    """What is coalesced already joins, unless somebody takes the list itself."""
    x, y, z = (build := Build()).inputs
    both = build(TALK.all_reduce_coalesced.default, [x, y], "sum", "0")
    one = build.reduce(z)
    program = build.program(both, build.wait(one))
    assert BUCKET(program) is program


def test_unknown_sizes_and_types_stay() -> None:
    """Without types nothing is known; complex numbers cannot be gathered together, scalars not cut."""
    x, y, _ = (build := Build()).inputs
    program = build.program(build.wait(build.reduce(x)), build.wait(build.reduce(y)))
    bare = program.with_main(evolve(program.main, nodes=tuple(evolve(node, meta={}) for node in program.main.nodes)))
    assert BUCKET(bare) is bare
    assert talk(BUCKET(px.infer(program))) == ["all_reduce_coalesced 2"]
    x, y, _ = (build := Build(torch.complex64)).inputs
    program = build.program(build.wait(build.reduce(x)), build.wait(build.reduce(y)))
    assert BUCKET(program) is program


def test_arguments_by_keyword_are_arguments() -> None:
    x, y, _ = (build := Build()).inputs
    first = build.graph.call_function(TALK.all_reduce.default, (x,), {"group_name": "0", "reduce_op": "sum"})
    build.typed(first, x.meta["val"])
    joined = BUCKET(build.program(build.wait(first), build.wait(build.reduce(y))))
    assert talk(joined) == ["all_reduce_coalesced 2"]
    assert px.verify(joined, infer=True) == ()


def test_a_group_that_is_an_operand_stays() -> None:
    x, y, _ = (build := Build()).inputs
    group = build.graph.placeholder("group")
    sent = [build.typed(build.graph.call_function(TALK.all_reduce.default, (one, "sum", group)), x.meta["val"]) for one in (x, y)]
    program = build.program(*map(build.wait, sent))
    assert BUCKET(program) is program


def test_forward_and_backward_stay_apart() -> None:
    """A joint program can still be cut: what the tracer calls backward is in other buckets."""
    x, y, z = (build := Build()).inputs
    sent = [build.reduce(x), build.reduce(y), build.reduce(z)]
    sent[2].meta["partitioner_tag"] = "is_backward"
    program = build.program(*map(build.wait, sent))
    assert talk(BUCKET(program)) == ["all_reduce_coalesced 2", "all_reduce 1"]


def test_shared_bodies_are_treated_once() -> None:
    """Two calls of one body that reduces twice."""
    x, y, _ = (build := Build()).inputs
    inner = build.program(build.wait(build.reduce(x)), build.wait(build.reduce(y))).main
    body = evolve(inner, inputs=inner.inputs[:2])
    calls = [px.Node(name, px.Call(px.Frame(name), "body"), (px.Ref("x"), px.Ref("y"))) for name in "mn"]
    modules = tuple([px.ir.Module(path, "Module") for path in ("", "m", "n")])
    main = px.Graph((px.Input("x"), px.Input("y")), tuple(calls), (px.Ref("m"), px.Ref("n")))
    program = px.Program.of({"": main, "body": body}).evolve(modules=modules)
    joined = BUCKET(program)
    assert talk(joined) == ["all_reduce_coalesced 2"]
    assert joined.main is program.main


@pytest.mark.parametrize("wrong", [-1, 2.5, "25MB", None, True])
def test_what_is_no_number_of_bytes(wrong: Any) -> None:
    with pytest.raises(px.errors.ArgumentError, match="bucket_collectives takes bytes="):
        BUCKET(px.Program.of({"": px.Graph((), (), ())}), bytes=wrong)


def test_a_collective_is_kept_though_nobody_waits_for_it() -> None:
    """It is part of the bucket, so all processes agree."""
    x, y, _ = (build := Build()).inputs
    build.reduce(x)
    joined = BUCKET(build.program(build.wait(build.reduce(y))))
    assert talk(px.eliminate_dead_code(joined)) == ["all_reduce_coalesced 2"]
