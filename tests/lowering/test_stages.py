"""Stages: what each has and takes, and what torch is told; on split programs written by hand, in one process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Generator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, schedules

import purefx as px
from purefx.lowering import Tie
from tests.models import Block, exported, module_class, parent
from tests.transforms.small import split_tree

# Makes a mask that is one column, seen several times.
Mask = module_class("Mask", lambda self, keep: (keep[:, :1] > 0).expand(-1, 4))


class Skipping(nn.Module):
    """Keyword arguments, a mask that all layers use, a constant and two results, one of them made early."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = Mask()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, batch: dict[str, torch.Tensor], *, double: bool = False) -> dict[str, Any]:
        x, keep = batch["x"], batch["keep"]
        mask = self.mask(keep)
        early = self.first(x) * self.scale
        y = self.second(early).where(mask, early)
        y = self.third(y).where(mask, x)
        return {"y": y * 2 if double else y, "early": early, "factor": 3}


BATCH = {"x": torch.randn(2, 4), "keep": torch.tensor([[1, 0], [0, 1]])}
TAGS = ("a", "b", "c")
TAG_OF = {"mask": "a", "first": "a", "second": "b", "third": "c"}


def split(
    module: nn.Module, tag_of: dict[str, str], *args: Any, kwargs: Any = None, **options: Any
) -> px.Program:
    """Return a split program without skips."""
    ep = exported(module, *args, kwargs=kwargs, **options)
    program = px.transform(px.import_ep(ep))
    parts = px.split_by_tags(program, tuple(dict.fromkeys(tag_of.values())), tag_of=tag_of)
    return px.relay_skips(px.move_non_tensor_nodes(parts))


@pytest.fixture(scope="module")
def world() -> Generator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def stage(stages: px.Stages, index: int) -> Any:
    """Return a stage, whose attributes no type checker knows."""
    return stages[index]


def through(stages: px.Stages, *args: Any, **kwargs: Any) -> Any:
    """Run stages one after the other."""
    values: Any = stages.arguments(*args, **kwargs)
    for one in stages:
        values = one(*values) if isinstance(values, tuple) else one(values)
    return stages.result(values)


@pytest.fixture(scope="module")
def skipping() -> tuple[Skipping, px.Program]:
    model = Skipping()
    return model, split(model, TAG_OF, BATCH, kwargs={"double": True})


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_stages_have_their_own_state_and_give_what_eager_gives(
    skipping: tuple[Skipping, px.Program], to: Any
) -> None:
    model, program = skipping
    stages = px.lower_stages(program, to=to)
    assert [list(stage.state_dict()) for stage in stages] == [
        ["scale", "first.weight", "first.bias"],
        ["second.weight", "second.bias"],
        ["third.weight", "third.bias"],
    ]
    given, expected = through(stages, copy.deepcopy(BATCH), double=True), model(BATCH, double=True)
    assert given["factor"] == expected["factor"]
    assert torch.equal(given["y"], expected["y"])
    assert torch.equal(given["early"], expected["early"])


def test_a_stage_takes_what_the_one_before_gives_in_that_order(
    skipping: tuple[Skipping, px.Program],
) -> None:
    stages = px.lower_stages(skipping[1])
    values = stages.arguments(BATCH, double=True)
    for before, after in zip(stages.programs, stages.programs[1:], strict=False):
        values = stages[stages.programs.index(before)](*values)
        assert isinstance(values, tuple)
        assert all(isinstance(value, torch.Tensor) and value.is_contiguous() for value in values)
        specs: Any = after.signature.inputs
        kinds = [spec.type for spec in specs]
        assert [kind.dtype for kind in kinds] == [value.dtype for value in values]
        assert [kind.shape for kind in kinds] == [tuple(value.shape) for value in values]


def test_only_the_stages_that_are_asked_for_are_made(skipping: tuple[Skipping, px.Program]) -> None:
    stages = px.lower_stages(skipping[1], only=[1])
    assert len(stages) == 3
    assert "second.weight" in stages[1].state_dict()
    with pytest.raises(
        px.errors.StageError, match=r"stage 2 \(c\) was not made: include it in only="
    ):
        stages[2]
    for wrong in ([3], [-1], ["a"]):
        with pytest.raises(px.errors.ArgumentError, match="numbers of stages, 0 to 2"):
            px.lower_stages(skipping[1], only=wrong)
    with pytest.raises(px.errors.ArgumentError, match="shared='both'"):
        px.lower_stages(skipping[1], shared="both")
    with pytest.raises(TypeError, match="takes a purefx Program"):
        px.lower_stages(None)


class Tied(nn.Module):
    """A weight that the first and the last layer share, and a buffer that all read and nobody writes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.block = Block()
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embed(ids)))


TIED_TAGS = {"embed": "a", "block": "b", "head": "c"}


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a mean over the batch."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def trained(
    stages: px.Stages,
    args: tuple[torch.Tensor, ...],
    target: torch.Tensor,
    chunks: int,
    **options: Any,
) -> None:
    """Run forward and backward of all stages in this process."""
    made = [px.pipeline_stage(stages, index, **options) for index in range(len(stages))]
    ScheduleInterleaved1F1B(made, chunks, loss_fn=loss_of).step(*args, target=target)
    px.sum_tied_gradients(stages)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("state", ["copy", "share"])
def test_tied_parameters_are_an_error_or_copies_whose_gradients_are_summed(state: Any) -> None:
    model: Any = Tied()
    ids, target = torch.arange(12).reshape(4, 3) % 8, torch.arange(12).reshape(4, 3) % 8
    program = split(model, TIED_TAGS, ids[:2])
    with pytest.raises(
        px.errors.StageError,
        match=r"the parameter embed.weight = head.weight is used by a, c: .*shared=\"copy\"",
    ):
        px.lower_stages(program)
    stages = px.lower_stages(program, shared="copy", state=state)
    assert stages.ties == (Tie(((0, "embed.weight"), (2, "head.weight"))),)
    trained(stages, (ids,), target, 2)
    assert stage(stages, 0).embed.weight is not stage(stages, 2).head.weight
    assert (stage(stages, 0).embed.weight is program.state["a.embed.weight"].value) == (
        state == "share"
    )
    torch.autograd.backward(
        (loss_of(model(ids[:2]), target[:2]) + loss_of(model(ids[2:]), target[2:])) / 2
    )
    assert torch.allclose(
        stage(stages, 0).embed.weight.grad, model.embed.weight.grad, rtol=1e-5, atol=1e-7
    )
    assert torch.equal(stage(stages, 0).embed.weight.grad, stage(stages, 2).head.weight.grad)
    assert torch.equal(stage(stages, 1).block.up.weight.grad, model.block.up.weight.grad)


class Counting(
    parent(
        norm=lambda: nn.BatchNorm1d(4), linear=lambda: nn.Linear(4, 8), count=lambda: torch.zeros(1)
    )
):
    """Writes a buffer at each call and gives it back; has BatchNorm."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count: Any = self.count
        return self.linear(self.norm(x)).reshape(-1, 2, 8), count.add_(1)


@pytest.mark.usefixtures("world")
def test_buffers_are_written_once_for_each_microbatch() -> None:
    """And a result that is a buffer is what it was in that microbatch."""
    model = Counting()
    x = torch.randn(8, 4)
    program = split(model, {"norm": "a", "linear": "b"}, x[:2])
    stages = px.lower_stages(program)
    made = [px.pipeline_stage(stages, index) for index in range(2)]
    counts: list[torch.Tensor] = []

    def loss(output: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
        counts.append(output[1])
        return output[0].sum() + target.sum()

    schedule = ScheduleInterleaved1F1B(made, 4, loss_fn=loss)
    output: Any = schedule.step(x, target=torch.zeros(4))
    assert output[1].tolist() == [1, 2, 3, 4]
    for chunk in x.chunk(4):
        model(chunk)
    assert [count.item() for count in counts] == [1, 2, 3, 4]
    whole = {name: value for stage in stages for name, value in stage.state_dict().items()}
    for name, value in model.state_dict().items():
        assert torch.equal(whole[name], value), name


class Layer(parent(
    norm=lambda: nn.LayerNorm(6), up=lambda: nn.Linear(6, 6), calls=lambda: torch.zeros(()),
    scale=lambda: nn.Parameter(torch.full((6,), 0.5), requires_grad=False),
)):  # fmt: skip
    """A layer with a frozen scale, a counter that it writes, also in a region, and a mask that crosses all boundaries."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        with torch.no_grad():
            self.calls.add_(self.norm(x).max())
        return x + self.scale * self.up(self.norm(x)).where(mask, x)


class Masked(parent(embed=lambda: nn.Embedding(10, 6), a=Layer, b=Layer, c=Layer)):
    """Layers behind an embedding; its argument needs no gradient."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        mask = x > 0
        return self.c(self.b(self.a(x, mask), mask), mask)


SPLIT = ("ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV")


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("form", [px.regions_to_bodies, px.bodies_to_regions])
@pytest.mark.parametrize("schedule", [name for name in SPLIT if hasattr(schedules, name)])
def test_schedules_that_split_the_backward_train_as_eager(schedule: str, form: Any) -> None:
    """Losses, gradients and the buffers that the stages write, to the last bit; frozen parameters get no gradient."""
    count = 3 if "Interleaved" in schedule else 2  # the others have two stages in a process
    model, ids, target = Masked(), torch.randint(10, (12, 3)), torch.randn(12, 3, 6)
    tags = dict(
        zip(("embed", "a", "b", "c"), ("0", "0", "1", "2" if count == 3 else "1"), strict=True)
    )
    stages = px.lower_stages(form(split(model, tags, ids[:2])))
    made, losses = (
        [px.pipeline_stage(stages, index) for index in range(count)],
        list[torch.Tensor](),
    )
    getattr(schedules, schedule)(made, 6, loss_fn=nn.functional.mse_loss).step(
        ids, target=target, losses=losses
    )
    for loss, *batch in zip(losses, ids.chunk(6), target.chunk(6), strict=True):
        wanted = nn.functional.mse_loss(model(batch[0]), batch[1])
        assert torch.equal(loss, wanted)
        torch.autograd.backward(wanted)
    state = model.state_dict(keep_vars=True)
    for slot, value in [
        pair for stage in stages for pair in stage.state_dict(keep_vars=True).items()
    ]:
        theirs = state[slot].grad
        assert torch.equal(value.detach(), state[slot].detach()), slot
        assert value.grad is None if theirs is None else torch.equal(value.grad, theirs / 6), slot


@pytest.mark.parametrize("form", [px.regions_to_bodies, px.bodies_to_regions])
@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
@pytest.mark.parametrize("grad", [True, False], ids=["enable_grad", "no_grad"])
def test_a_stage_leaves_the_gradient_mode_of_its_caller(grad: bool, to: Any, form: Any) -> None:
    """Markers of a region set the mode of the trace: they switched gradients on under no_grad."""
    model, ids = Masked(), torch.randint(10, (2, 3))
    tags = {"embed": "0", "a": "0", "b": "1", "c": "2"}
    stages = px.lower_stages(form(split(model, tags, ids)), to=to)
    with torch.set_grad_enabled(grad):
        wanted = model(ids)
        for _ in range(2):
            values: Any = (ids,)
            for stage in stages:
                values = stage(*values)
                values = values if isinstance(values, tuple) else (values,)
                assert torch.is_grad_enabled() is grad
            assert values[0].requires_grad is grad
            assert torch.equal(values[0], wanted)


def told(
    stages: px.Stages, **options: Any
) -> list[list[tuple[tuple[int, ...], torch.dtype, bool]]]:
    """Return what torch is told of what crosses: the inputs of each stage, and the outputs of the last."""
    found: list[list[tuple[tuple[int, ...], torch.dtype, bool]]] = []
    for index in range(len(stages)):
        made = px.pipeline_stage(stages, index, **options)
        assert isinstance(made, PipelineStage)
        meta = vars(made)["_user_meta"]
        mine = [
            [(tuple(one.shape), one.dtype, one.requires_grad) for one in some]
            for some in (meta.inputs, meta.outputs)
        ]
        assert not found or found[-1] == mine[0], "both sides of a boundary are told the same"
        found[index:] = mine
    return found


@pytest.mark.usefixtures("world")
def test_torch_is_told_shapes_and_what_needs_a_gradient(
    skipping: tuple[Skipping, px.Program],
) -> None:
    _, program = skipping
    first = told(px.lower_stages(program))
    shape, real = (2, 4), torch.float32
    assert first[0] == [(shape, real, False), ((2, 2), torch.int64, False)]
    assert sorted(first[1], key=str) == sorted(
        [(shape, torch.bool, False), (shape, real, True), (shape, real, False)], key=str
    )
    assert first[-1] == [(shape, real, True)] * 2


@pytest.mark.usefixtures("world")
def test_frozen_parameters_need_no_gradient_and_may_not_be_unfrozen() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 8))
    model[0].requires_grad_(requires_grad=False)
    stages = px.lower_stages(split(model, {"0": "a", "1": "b"}, torch.ones(2, 2)))
    assert [one[0][2] for one in told(stages)] == [False, False, True]
    stages[0].requires_grad_()
    with pytest.raises(
        px.errors.StageError,
        match=r"the parameter 0.weight of stage 0 was frozen when the program was exported",
    ):
        px.pipeline_stage(stages, 0)


@pytest.mark.usefixtures("world")
def test_dynamic_sizes_need_an_example() -> None:
    class Sized(parent(a=lambda: nn.Linear(4, 4), b=lambda: nn.Linear(4, 4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x).reshape(x.shape[0], 2, 2).flatten(1)) * x.shape[0]

    size = torch.export.Dim("batch", min=2, max=64)
    program = split(Sized(), {"a": "a", "b": "b"}, torch.randn(3, 4), dynamic_shapes=({0: size},))
    stages = px.lower_stages(program)
    with pytest.raises(px.errors.StageError, match=r"the sizes of x are dynamic, .*pass example="):
        px.pipeline_stage(stages, 0)
    assert [one[0][0] for one in told(stages, example=(torch.empty(5, 4),))] == [(5, 4)] * 3
    x = torch.randn(6, 4)
    assert torch.equal(through(stages, x), px.lower(px.join(program))(x))


ERRORS: list[tuple[str, str, str]] = [
    (
        "a = @neg(x); b = @neg(a); c = @two(b, a)",
        "c",
        "s2 takes a from s0, which is not the part before it: run relay_skips",
    ),
    (
        "a = @neg(x); b = @neg(a)",
        "a",
        "the result a is made by s0, which is not the last part: run relay_skips",
    ),
    (
        "n = @size(x); c = @scaled(n)",
        "c",
        "s0 returns n, a number, but only tensors can be sent: run move_non_tensor_nodes",
    ),
    (
        "n = @size(x)",
        "n",
        "the program returns n, a number, but the last stage can return only tensors",
    ),
    ("a = @neg(x); b = @add_(a)", "b", "s1 writes into its input a, which"),
    (
        "a = @off(x); b = @neg(a)",
        "b",
        "s0 leaves a region (a gradient mode, an autocast) open for the next part",
    ),
    ("b = @neg(x)", "b", "the input n is a number (int), but stages take tensors"),
]
"""The calls of the parts, what the program returns, and the reason of the refusal."""

BODIES = {
    "neg": ("a", "aten.neg.default(a)"),
    "two": ("a, b", "aten.add.Tensor(a, b)"),
    "size": ("x", "aten.sym_size.int(x, 0)"),
    "scaled": ("n", "aten.full.default([2], n)"),
    "add_": ("a", "aten.add_.Scalar(a, 1)"),
    "off": ("x", "aten.neg.default(x)\no = torch._C._set_grad_enabled(False)"),
    "nonzero": ("x", "aten.nonzero.default(x)"),
    "writes": ("x", "aten.neg.default(x)\nn = get n\nw = aten.add_.Scalar(n, 1)"),
    "reads": ("a", "get n"),
}


def chained(calls: str, result: str, *sections: str, **takes: str) -> px.Program:
    """Return a split program of calls of these bodies."""
    numbered = [
        f"{call.replace('@', 'call @')} as s{number}"
        for number, call in enumerate(calls.split("; "))
    ]
    text = "\n".join(
        [f'graph @""(x{", n" if takes else ""}) {{', *numbered, f"return ({result},)", "}"]
    )
    for name, (formals, operator) in BODIES.items():
        text += (
            f"\ngraph @{name}({formals}) {{\nr = {operator}\nreturn r\n}}"
            if f"@{name}(" in calls
            else ""
        )
    return split_tree(text, *sections, **takes)


@pytest.mark.parametrize(("calls", "result", "said"), ERRORS)
def test_what_torch_can_not_carry_is_refused_with_advice(
    calls: str, result: str, said: str
) -> None:
    takes = {"takes": "user x: f32[2]\nuser n: number int"} if "input n" in said else {}
    with pytest.raises(px.errors.StageError) as caught:
        px.lower_stages(chained(calls, result, **takes))
    assert said in str(caught.value)
    assert caught.value.faults
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.usefixtures("world")
def test_sizes_that_depend_on_the_data_are_refused() -> None:
    with pytest.raises(
        px.errors.StageError, match="the sizes of the results of s0 are unknown before it runs"
    ):
        px.pipeline_stage(px.lower_stages(chained("a = @nonzero(x)", "a")), 0)


def test_state_that_one_part_writes_is_of_no_other() -> None:
    state = "state {\nbuffer s0.n: f32[2]\nbuffer s1.n: f32[2] tied s0.n\n}"
    with pytest.raises(
        px.errors.StageError, match="s0 writes n, which s1 also uses, so the copies would diverge"
    ):
        px.lower_stages(chained("a = @writes(x); b = @reads(a)", "b", state), shared="copy")
