"""``px.training_module`` trains like the module that was captured: losses, gradients and state to the last bit."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn
from torch.export.experimental import _export_forward_backward
from torch.utils.checkpoint import checkpoint

import purefx as px
from examples.zoo import llama
from tests.models import parent

Optimizer = Callable[[Any], torch.optim.Optimizer]
Run = Callable[[Any, torch.Tensor], Any]
SGD: Optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
ADAMW: Optimizer = lambda parameters: torch.optim.AdamW(parameters, lr=1e-2)  # noqa: E731

POLICIES: Mapping[str, Any] = {
    "all": px.training.save_all(),
    "recompute": px.training.recompute("*"),
    "min_cut": px.training.min_cut(),
    "budget": px.training.budget(400),
}


def trained(module: nn.Module, *args: Any, **options: Any) -> px.training.TrainingModule:
    """Return the training module of a module, captured on some arguments."""
    return px.training_module(px.training.capture_joint(module, args), **options)


def same(left: Any, right: Any) -> bool:
    """Return whether two gradients are none, or equal to the last bit."""
    return left is right if left is None or right is None else torch.equal(left, right)


def different(ours: nn.Module, theirs: nn.Module) -> list[str]:
    """Return the names of the state that differs, or whose gradient does."""
    mine, wanted = (dict(module.state_dict(keep_vars=True)) for module in (ours, theirs))
    assert list(mine) == list(wanted)
    return [
        name
        for name in mine
        if not torch.equal(mine[name], wanted[name]) or not same(mine[name].grad, wanted[name].grad)
    ]


class Model(
    parent(norm=lambda: nn.BatchNorm1d(8), up=lambda: nn.Linear(4, 8), down=lambda: nn.Linear(8, 4))
):
    """Writes running statistics, draws, and returns a loss."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.down(self.norm(self.up(x)).relu()), 0.3).pow(2).sum()


class Many(
    parent(
        a=lambda: nn.Linear(3, 3),
        b=lambda: nn.Linear(3, 2),
        n=lambda: torch.zeros((), dtype=torch.long),
    )
):
    """Returns all that can be returned."""

    def forward(self, x: torch.Tensor, *, k: int = 2) -> dict[str, Any]:
        self.n += 1
        h = self.a(x)
        return {
            "h": h,
            "y": self.b(h.relu()) * k,
            "n": self.n.clone(),
            "k": k,
            "at": h.argmax(-1),
            "free": h.detach(),
            "no": None,
        }


def steps(module: nn.Module, optimizer: Optimizer, count: int = 4) -> list[torch.Tensor]:
    """Train on drawn inputs, and return the losses and the gradients of the inputs."""
    torch.manual_seed(3)
    chosen, found = optimizer(module.parameters()), list[torch.Tensor]()
    for number in range(count):
        x = torch.randn(5, 4, requires_grad=True)
        loss = module(x) * (0.3 + number)
        torch.autograd.backward(loss)
        if number % 2:  # the gradients of two steps are accumulated
            chosen.step()
            chosen.zero_grad()
        assert x.grad is not None
        found += [loss.detach(), x.grad]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("optimizer", [SGD, ADAMW])
def test_it_trains_as_eager(policy: str, optimizer: Optimizer) -> None:
    torch.manual_seed(0)
    eager = Model()
    module = trained(eager, torch.randn(5, 4, requires_grad=True), policy=POLICIES[policy])
    pairs = zip(steps(module, optimizer), steps(eager, optimizer), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert different(module, eager) == []


def test_the_loss_of_an_exported_joint_program_is_scaled_inside() -> None:
    """As in eager: to multiply the gradients instead gives other last bits, and other numbers where they underflow."""
    eager = parent(up=lambda: nn.Linear(4, 8), down=lambda: nn.Linear(8, 1))
    model = type(
        "Loss", (eager,), {"forward": lambda self, x: self.down(self.up(x).relu()).pow(2).mean()}
    )()
    ep = torch.export.export(copy.deepcopy(model), (torch.randn(5, 4),))
    module = px.training_module(px.import_ep(_export_forward_backward(ep)))
    x = torch.randn(5, 4)
    for each in (model, module):
        torch.autograd.backward(each(x) * 0.1)
    assert different(module, model) == []


PICKS: Sequence[tuple[str, ...]] = (("h",), ("y",), ("h", "y"))


@pytest.mark.parametrize("pick", PICKS)
def test_outputs_that_nothing_uses_give_no_gradient(pick: tuple[str, ...]) -> None:
    """The parameters that such an output alone needs get none, as in eager: an optimizer leaves them."""
    eager = Many()
    module = trained(eager, torch.randn(4, 3))
    x = torch.randn(4, 3)
    ours, theirs = module(x), eager(x)
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        is_tensor = isinstance(value, torch.Tensor)
        assert torch.equal(ours[name], value) if is_tensor else ours[name] == value
        assert not is_tensor or ours[name].requires_grad == value.requires_grad
    for results in (ours, theirs):
        torch.autograd.backward(sum(results[name].mean() for name in pick))
    assert different(module, eager) == []


class Repeats(parent(w=lambda: nn.Parameter(torch.randn(3)), b=lambda: torch.ones(3))):
    """Returns values several times, what it was given, and its state."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.w * x
        return y, y, x, self.w, self.b, y[1:], y.view(3)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Tanh(), nn.Linear(3, 1))


def tied() -> nn.Module:
    made = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    made[1].weight = made[0].weight
    return made


def wide() -> nn.Module:
    return nn.Sequential(
        nn.Linear(33, 17),
        nn.Flatten(0),
        nn.Unflatten(0, (5, 7, 17)),
        nn.Linear(17, 9),
        nn.Flatten(0, 1),
    )


def of_others(module: Any, x: torch.Tensor) -> Any:
    """Run a module with other parameters, and return their gradients."""
    torch.manual_seed(1)
    others = {
        name: torch.randn_like(value).requires_grad_() for name, value in module.named_parameters()
    }
    torch.autograd.backward(torch.func.functional_call(module, others, (x,)).sum())
    return [value.grad for value in others.values()]


def written(module: Any, x: torch.Tensor) -> None:
    """Write the result of a view, of which the caller sees nothing else."""
    y = module(x)
    y *= 3
    torch.autograd.backward(y.sum())


def converted(dtype: torch.dtype) -> Run:
    return lambda module, x: torch.autograd.backward(module.to(dtype)(x.to(dtype)).sum())


def again(module: Any, x: torch.Tensor, *, reentrant: bool) -> None:
    torch.autograd.backward(checkpoint(module, x, use_reentrant=reentrant).sum())


def of_results(*pick: int) -> Run:
    return lambda module, x: torch.autograd.backward(
        sum(((n + 1) * (module(x)[n] ** 2).sum() for n in pick), torch.zeros(()))
    )


def reduced(reduce: Callable[[torch.Tensor], torch.Tensor]) -> Run:
    """Gradients lie in memory as the reduction passes them: that of a mean is one number, seen everywhere."""
    return lambda module, x: torch.autograd.backward(reduce(module(x)))


PICKED = [(0,), (1,), (0, 1), (2,), (3,), (5, 6), (0, 1, 2, 3, 5, 6)]

AS_EAGER: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Run]] = {
    **{f"results {pick}": (Repeats, (3,), of_results(*pick)) for pick in PICKED},
    "a result is written": (lambda: nn.Linear(3, 4), (2, 5, 3), written),
    "the gradient of a mean": (wide, (5, 7, 33), reduced(torch.mean)),
    "the gradient of a sum": (wide, (5, 7, 33), reduced(torch.sum)),
    "the gradient of a part": (wide, (5, 7, 33), reduced(lambda y: y[0].mean())),
    "a kernel for contiguous gradients": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8)),
        (6, 8),
        reduced(torch.sum),
    ),
    "tied": (tied, (2, 3), reduced(torch.sum)),
    "in float64": (mlp, (2, 3), converted(torch.float64)),
    "in bfloat16": (mlp, (2, 3), converted(torch.bfloat16)),
    "functional_call": (mlp, (2, 3), of_others),
    "checkpoint": (mlp, (2, 3), partial(again, reentrant=False)),
    "reentrant checkpoint": (mlp, (2, 3), partial(again, reentrant=True)),
}


@pytest.mark.parametrize("case", AS_EAGER)
def test_it_is_used_as_eager(case: str) -> None:
    make, size, run = AS_EAGER[case]
    eager = make()
    module, drawn = trained(eager, torch.randn(size, requires_grad=True)), torch.randn(size)
    gradients: list[Any] = []
    for each in (module, eager):
        x = drawn.clone().requires_grad_()
        gradients.append([*(run(each, x) or ()), x.grad])
    assert all(map(same, *gradients))
    assert different(module, eager) == []


def test_an_outlined_program_and_an_argument_that_is_written() -> None:
    class Writes(parent(w=lambda: nn.Parameter(torch.randn(3)))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return self.w * x

    eager = Writes()
    program = px.transform(px.training.capture_joint(eager, (torch.randn(3),)))
    module, passed = px.training_module(program), [torch.zeros(3), torch.zeros(3)]
    for each, x in zip((module, eager), passed, strict=True):
        torch.autograd.backward(each(x).sum())
    assert torch.equal(*passed)
    assert different(module, eager) == []


def test_refusals() -> None:
    """Programs that are not joint or whose loss has no seed, inner hooks, writes of views, second derivatives."""
    x = torch.randn(2, 3, requires_grad=True)
    module = trained(mlp(), x)
    loss = parent(w=lambda: nn.Parameter(torch.ones(3)))
    ep = torch.export.export(
        type("Loss", (loss,), {"forward": lambda self, x: (self.w * x).sum()})(), (torch.ones(3),)
    )
    joint = px.import_ep(_export_forward_backward(ep))
    one = next(
        node
        for node in joint.main.nodes
        if isinstance(node.do, px.Op) and node.do.name == "aten.full_like.default"
    )
    nodes = tuple(
        evolve(node, args=(node.args[0], 2)) if node is one else node for node in joint.main.nodes
    )
    unseeded = joint.with_main(evolve(joint.main, nodes=nodes))
    (gradient,) = torch.autograd.grad(module(x).pow(2).sum(), x, create_graph=True)
    repeats = trained(Repeats(), torch.randn(3, requires_grad=True))
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (
            lambda: px.training_module(px.import_ep(ep)),
            px.errors.ArgumentError,
            "takes a joint program.*capture_joint",
        ),
        (
            lambda: px.training_module(mlp()),
            px.errors.ArgumentError,
            "takes a purefx Program, not a",
        ),  # type: ignore[arg-type]
        (
            lambda: px.training_module(unseeded),
            px.errors.UnsupportedProgram,
            "do not all start at one node",
        ),
        (
            lambda: module.get_submodule("0").register_forward_hook(print),
            px.errors.UnsupportedProgram,
            "its operators are in",
        ),
        (
            lambda: repeats(torch.randn(3, requires_grad=True))[0].mul_(2),
            RuntimeError,
            "is a view and is being modified inplace",
        ),
        (lambda: torch.autograd.backward(gradient.sum()), RuntimeError, "once_differentiable"),
    ]
    for call, kind, said in cases:
        with pytest.raises(kind, match=said):
            call()


@pytest.mark.usefixtures("quick_collection")
@pytest.mark.parametrize("policy", POLICIES)
def test_saved_memory_goes_with_its_last_use(policy: str) -> None:
    """Nothing of what was saved outlives the backward; the first activation goes last."""
    eager = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Tanh())])
    module = trained(eager, torch.randn(3, 8), policy=POLICIES[policy])
    seen: list[weakref.ref[Any]] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        seen.append(weakref.ref(value.untyped_storage()))
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        loss = module(torch.randn(3, 8)).sum()
    state = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    torch.autograd.backward(loss)
    del loss
    gc.collect()
    left = [
        storage
        for ref in seen
        if (storage := ref()) is not None and storage.data_ptr() not in state
    ]
    assert seen
    assert left == []


def test_what_a_backward_needs_is_not_changed_in_between() -> None:
    module = trained(
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1), nn.Sigmoid()), torch.randn(2, 3)
    )
    x = torch.randn(2, 3)
    weight = module.get_parameter("1.weight").detach()
    changes: tuple[Callable[[torch.Tensor], Any], ...] = (
        lambda _: weight.add_(1),
        lambda _: x.add_(1),
        lambda y: y.detach().mul_(2),
    )
    for change in changes:
        y = module(x)
        change(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.backward(y.sum())


def test_parameters_that_are_frozen_later_cost_nothing() -> None:
    eager = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    module = trained(eager, torch.randn(2, 3))
    x = torch.randn(2, 3)
    for each in (module, eager):
        each.get_parameter("0.weight").requires_grad_(False)
        torch.autograd.backward(each(x).sum())
    assert different(module, eager) == []
    versions: Any = module.purefx_programs.versions
    sizes = {len(one.module.purefx_place.body.graph.nodes) for one in versions.values()}
    assert max(sizes) < len(module.purefx_programs.program.main.nodes)
    module.requires_grad_(False)
    assert not module(x).requires_grad


def test_gradients_that_the_program_does_not_have_are_refused() -> None:
    """They would be missing, and nobody would know."""
    eager = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    eager[0].bias.requires_grad_(False)
    module = trained(eager, torch.randn(2, 3))
    with pytest.raises(
        px.errors.InputValueError,
        match=r"argument input requires a gradient.*pass input.detach\(\)",
    ):
        module(torch.randn(2, 3, requires_grad=True))
    module.requires_grad_(True)
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"^0.bias requires a gradient, but did not when .* captured",
    ):
        module(torch.randn(2, 3))
    with torch.no_grad():
        assert module(torch.randn(2, 3, requires_grad=True)).shape == (2, 1)


def test_copies_train_by_themselves_and_are_not_pickled() -> None:
    eager = Many()
    module = trained(eager, torch.randn(4, 3))
    made, x = copy.deepcopy(module), torch.randn(4, 3)
    with pytest.raises(px.errors.UnsupportedProgram, match="a training module cannot be pickled"):
        pickle.dumps(module)
    assert isinstance(made, px.training.TrainingModule)
    for each in (made, eager):
        torch.autograd.backward(each(x)["y"].sum())
    assert different(made, eager) == []
    assert all(parameter.grad is None for parameter in module.parameters())


def test_state_is_saved_and_loaded_as_the_originals() -> None:
    eager, other = Model(), Model()
    module = trained(eager, torch.randn(5, 4))
    module.load_state_dict(other.state_dict())
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    eager.load_state_dict(torch.load(file))
    assert different(module, other) == []
    assert different(module, eager) == []


def test_autocast_is_what_was_captured() -> None:
    eager, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(2, 3)
    plain = trained(eager, x)
    with torch.autocast("cpu", torch.bfloat16):
        module = trained(eager, x)
        results = [each(x) for each in (module, eager, plain)]
    assert [result.dtype for result in results] == [torch.bfloat16, torch.bfloat16, torch.float32]
    for result in results[:2]:
        torch.autograd.backward(result.sum())
    assert different(module, eager) == []


def test_hooks_run() -> None:
    module, said = trained(nn.Linear(3, 1), torch.randn(2, 3, requires_grad=True)), list[str]()
    weight = module.get_parameter("weight")
    weight.register_hook(lambda gradient: said.append("gradient") or gradient * 2)
    weight.register_post_accumulate_grad_hook(lambda _: said.append("accumulated"))
    module.register_forward_hook(lambda *_: said.append("forward"))
    module.register_full_backward_hook(lambda *_: said.append("backward"))
    x = torch.randn(2, 3, requires_grad=True)
    torch.autograd.backward(module(x).sum())
    assert said == ["forward", "gradient", "accumulated", "backward"]
    assert torch.allclose(weight.grad, 2 * x.detach().sum(0))


def test_it_is_wrapped_for_data_parallel_training() -> None:
    talk: Any = torch.distributed
    talk.init_process_group("gloo", store=talk.HashStore(), rank=0, world_size=1)
    try:
        eager = Many()
        module, x = trained(eager, torch.randn(4, 3)), torch.randn(4, 3)
        for each in (nn.parallel.DistributedDataParallel(module), eager):
            torch.autograd.backward(each(x)["y"].sum())
        assert different(module, eager) == []
    finally:
        talk.destroy_process_group()


@pytest.mark.filterwarnings(
    "ignore:TF32 acceleration on top of oneDNN:UserWarning"
)  # torch says that of any use of flags
def test_operators_that_look_at_the_gradient_mode() -> None:
    """mkldnn's recurrent layer keeps a workspace for its backward where gradients are on: never inside of an autograd node."""
    eager, x = nn.LSTM(3, 2, batch_first=True), torch.randn(2, 4, 3)
    if any(
        "aten.mkldnn_rnn_layer.default" in str(node.do)
        for node in px.training.capture_joint(eager, (x,)).main.nodes
    ):
        with pytest.raises(
            px.errors.UnsupportedProgram, match=r"mkldnn_rnn_layer.*mkldnn.flags\(enabled=False\)"
        ):
            trained(eager, x)
    with torch.backends.mkldnn.flags(enabled=False):
        module = trained(eager, x)
        for one in (eager, module):
            one(x)[0].square().sum().backward()
    assert all(
        torch.equal(mine.grad, theirs.grad)
        for mine, theirs in zip(module.parameters(), eager.parameters(), strict=True)
    )


COMPILERS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.deep)]


@pytest.mark.filterwarnings(
    "ignore:.*script_method:DeprecationWarning"
)  # inductor does that when it is imported
@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # Dynamo does that of any function
@pytest.mark.parametrize("backend", COMPILERS)
def test_it_compiles_without_a_break(backend: str) -> None:
    torch.compiler.reset()
    eager = Many()
    module, x = trained(eager, torch.randn(4, 3)), torch.randn(4, 3)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for _ in range(2):
        for each in (compiled, eager):
            torch.autograd.backward(each(x)["y"].sum())
    if backend != "inductor":
        assert different(module, eager) == []
    assert torch.allclose(module.get_parameter("a.weight").grad, eager.a.weight.grad, atol=1e-6)
    assert module.get_buffer("n").item() == 2


class CausalLoss(nn.Module):
    """The loss of a language model."""

    def __init__(self, of: nn.Module) -> None:
        super().__init__()
        self.of = of

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(
            self.of(input_ids=input_ids).logits.flatten(0, 1), labels.flatten()
        )


@pytest.mark.slow
@pytest.mark.models
def test_steps_of_llama_equal_eagers() -> None:
    """Under every policy, with both optimizers."""
    example = llama(2)
    eager = CausalLoss(example.build())
    batches = [
        (example.inputs(seed)[1]["input_ids"], example.inputs(seed + 100)[1]["input_ids"])
        for seed in range(4)
    ]
    joint = px.training.capture_joint(eager, batches[0])

    def losses(module: nn.Module, optimizer: Optimizer) -> list[float]:
        chosen, found = optimizer(module.parameters()), list[float]()
        for batch in batches:
            chosen.zero_grad()
            loss = module(*batch)
            torch.autograd.backward(loss)
            chosen.step()
            found.append(loss.item())
        return found

    modules = {name: px.training_module(joint, policy=policy) for name, policy in POLICIES.items()}
    for optimizer in (SGD, ADAMW):
        model = copy.deepcopy(eager)
        wanted = losses(model, optimizer)
        for name, module in modules.items():
            mine = copy.deepcopy(module)
            assert losses(mine, optimizer) == wanted, name
            assert different(mine, model) == [], name
