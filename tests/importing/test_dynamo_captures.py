"""Graphs that Dynamo captures for export, with and without its bytecode around them.

What is lowered is asked again and again beside a copy of the module, for results and for state.
"""

from __future__ import annotations

import copy
import importlib
from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.graph import CodeGen
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree

import purefx as px
from tests.programs import parent

functional_export: Any = importlib.import_module("torch._dynamo.functional_export")
REPLAYED: Any = functional_export.dynamo_graph_capture_for_export
NESTED: Any = functional_export._dynamo_graph_capture_for_export


class Plain(parent(lin=lambda: nn.Linear(3, 3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).relu()


class Writes(nn.Module):
    """Keywords, nested arguments and results, a size, buffers that it writes, tied parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm, self.head = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)
        self.head.weight = self.lin.weight
        self.register_buffer("count", torch.zeros(()))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor, more: dict[str, Any], *, scale: torch.Tensor) -> dict[str, Any]:
        self.count.add_(1)
        y = self.norm(self.lin(x)) * scale + more["a"] + more["b"][0]
        return {"y": self.head(y), "count": self.count * 1, "size": (x.size(0), y)}


X = torch.randn(4, 3)
CASES: dict[str, tuple[type[nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "plain": (Plain, (X,), {}),
    "writes": (Writes, (X, {"a": torch.randn(3), "b": (torch.randn(1),)}), {"scale": torch.tensor(3.0)}),
}


def captured(name: str, capture: Any) -> tuple[nn.Module, nn.Module, Any]:
    """Return a model, a copy of it, and what Dynamo captures of the first."""
    torch.manual_seed(0)
    kind, args, kwargs = CASES[name]
    model = kind()
    importlib.import_module("torch._dynamo").reset()
    eager = copy.deepcopy(model)
    return model, eager, capture(model)(*args, **kwargs)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
@pytest.mark.parametrize("name", CASES)
def test_a_capture_with_pytrees(name: str, to: Any) -> None:
    _, args, kwargs = CASES[name]
    model, eager, graph = captured(name, NESTED)
    program = px.restore_names(px.import_fx(graph), model)
    lowered = px.lower(px.transform(program), to=to)
    for _ in range(3):
        torch.testing.assert_close(lowered(*args, **kwargs), eager(*args, **kwargs))
    torch.testing.assert_close(dict(lowered.state_dict()), dict(eager.state_dict()))


@dataclass
class Pair:
    """What a user might register as a pytree."""

    first: torch.Tensor
    second: Any


if pytree.SUPPORTED_NODES.get(Pair) is None:
    pytree.register_dataclass(Pair)  # type: ignore[attr-defined]

FEW = torch.full((3,), 2.0)


class Passes(nn.Module):
    """Inputs and constants that are passed through, a parameter that is given back, classes of the user's, None, sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.plain, self.listed = nn.Parameter(torch.ones(3)), torch.ones(3), [torch.ones(3), nn.Linear(3, 3)]

    def forward(self, pair: Pair, other: Any, flag: Any = None) -> Any:
        pair.first.add_(1)
        y = pair.first * self.plain + self.listed[0] + self.listed[1](pair.first) + FEW
        made = Pair(y, {"k": pair.second, "none": None, "same": y})
        return made, other, pair.second, self.weight, FEW, 3.5, flag, y.shape, [y.dtype, ()], OrderedDict(a=y)


class Ragged(nn.Module):
    """The rest of the arguments, and tensors that change in place."""

    def forward(self, x: torch.Tensor, *rest: torch.Tensor, by: float = 2.0, **more: torch.Tensor) -> Any:
        x.mul_(by)
        return x, rest[1] + more["z"], x.view(-1), more["z"]


class Trains(nn.Module):
    """Random numbers, hooks, a parametrization, a branch, gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = parametrizations.weight_norm(nn.Linear(3, 3))
        self.drop, self.norm = nn.Dropout(), nn.BatchNorm1d(3)
        self.drop.register_forward_hook(lambda module, args, result: result * 2)
        self.register_forward_hook(lambda module, args, result: result + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = self.norm(x).abs().sum()
        return torch.cond(scale > 0, lambda x: x.sin(), lambda x: x.cos(), (self.drop(self.lin(x)),)) * scale


class Around:
    """Captured by its method: a module that it holds is no module of the capture."""

    def __init__(self) -> None:
        self.lin, self.scale = nn.Linear(3, 3), torch.full((3,), 2.0)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) * self.scale


def nothing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y


T = torch.ones(3)
REPLAYS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    **CASES,
    "passes": (Passes, (Pair(torch.ones(3), torch.zeros(3)), torch.ones(1)), {"flag": None}),
    "duplicated": (Passes, (Pair(T, T), T), {}),
    "ragged": (Ragged, (torch.ones(2, 2), torch.ones(1), torch.ones(2)), {"z": torch.ones(2), "by": 3.0}),
    "trains": (Trains, (X,), {}),
    "method": (lambda: Around().run, (X,), {}),
    "function": (lambda: nothing, (X, T), {}),
}


def called(function: Any, args: Any, seed: int) -> tuple[Any, Any]:
    """Return what a function gives for copies of arguments, other ones for each seed, and what became of those."""
    torch.manual_seed(seed)
    memo: dict[int, Any] = {}
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda leaf: memo.setdefault(id(leaf), leaf + torch.rand_like(leaf)), args)
    return function(*args, **kwargs), (args, kwargs)


def assert_same(found: Any, wanted: Any) -> None:
    """Assert that two trees are one, with the classes of leaves."""
    (leaves, spec), (others, like) = pytree.tree_flatten(found), pytree.tree_flatten(wanted)
    assert (spec, [type(leaf) for leaf in leaves]) == (like, [type(leaf) for leaf in others])
    for leaf, other in zip(leaves, others, strict=True):
        assert torch.equal(leaf, other) if isinstance(leaf, torch.Tensor) else leaf == other


@pytest.mark.parametrize("name", REPLAYS)
def test_a_capture_that_replays_bytecode(name: str) -> None:
    """Not only what it gives: what it writes to its arguments and to its state, and gradients, call after call."""
    torch.manual_seed(0)
    make, *args = REPLAYS[name]
    model = make()
    eager = copy.deepcopy(model)
    importlib.import_module("torch._dynamo").reset()
    graph = REPLAYED(model)(*args[0], **args[1])
    state = copy.deepcopy(graph.state_dict())
    program = px.import_fx(graph)
    assert_same(graph.state_dict(), state)
    runs = [copy.deepcopy(px.lower(px.transform(program), to=to)) for to in ("graph_module", "interpreter")]
    for seed in range(3):
        wanted = called(eager, args, seed)
        for lowered in runs:
            assert_same(called(lowered, args, seed), wanted)
    if isinstance(model, nn.Module):
        assert all(dict(lowered.state_dict()).keys() >= dict(model.state_dict()).keys() for lowered in runs)
        for path, value in eager.state_dict().items():
            assert torch.equal(runs[0].state_dict()[path], value)
        wanted = [path for path, _ in model.named_parameters()]
        assert [path for path, _ in runs[0].named_parameters()][: len(wanted)] == wanted
    assert_same(called(px.lower(program), args, 9), called(graph, args, 9))


def test_replayed_gradients() -> None:
    torch.manual_seed(0)
    model = Trains()
    lowered = px.lower(px.transform(px.import_fx(REPLAYED(copy.deepcopy(model))(X))))
    lowered = copy.deepcopy(lowered)
    for one in (model, lowered):
        torch.manual_seed(1)
        one(X).sum().backward()
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert sum(grad is not None for grad in wanted.values()) == 3
    assert_same({name: lowered.get_parameter(name).grad for name in wanted}, wanted)


def test_nodes_of_a_replayed_capture_stand_in_modules() -> None:
    """State is read in the module that owns it, tied state in each, and modules can be cut out."""
    model = Writes()
    _, args, kwargs = CASES["writes"]
    program = px.import_fx(REPLAYED(model)(*args, **kwargs))
    nodes = [node for node in program.main.nodes if isinstance(node.do, px.Get)]
    reads = {node.do.slot: node.stack[-1].path if node.stack else "" for node in nodes if isinstance(node.do, px.Get)}
    assert reads == {slot: slot.rpartition(".")[0] for slot in model.state_dict()}
    assert {"lin", "norm", "head"} <= px.outline(program).graphs.keys()


@pytest.mark.filterwarnings("ignore:While compiling")  # what transformers counts is no part of the model
def test_a_language_model_that_replays_bytecode() -> None:
    """Its result is a class of its own, its head is tied, and all that it computes stands in a module."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 16, "n_positions": 8, "bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, use_cache=False)).eval()
    importlib.import_module("torch._dynamo").reset()
    program = px.import_fx(REPLAYED(model)(input_ids=torch.randint(16, (2, 4))))
    outside = [node.do for node in program.main.nodes if not node.stack]
    assert len(outside) * 50 < len(program.main.nodes), outside
    assert {"transformer.h.0.attn", "transformer.h.1.attn"} <= {frame.path for node in program.main.nodes for frame in node.stack}
    lowered = px.lower(px.transform(program))
    assert list(lowered.state_dict()) == list(model.state_dict())
    for _ in range(2):
        ids = torch.randint(16, (2, 4))
        found, wanted = lowered(input_ids=ids), model(input_ids=ids)
        assert type(found) is type(wanted)
        assert found.keys() == wanted.keys()
        assert torch.equal(found.logits, wanted.logits)


def test_a_capture_of_any_size() -> None:
    importlib.import_module("torch._dynamo").reset()
    model, x = Writes(), torch.randn(4, 3)
    importlib.import_module("torch._dynamo").mark_dynamic(x, 0)
    _, (_, more), kwargs = CASES["writes"]
    eager = copy.deepcopy(model)
    lowered = px.lower(px.transform(px.import_fx(REPLAYED(model)(x, more, **kwargs))))
    for rows in (4, 7, 2):
        y = torch.randn(rows, 3)
        assert_same(lowered(y, more, **kwargs), eager(y, more, **kwargs))


def test_an_example_of_a_replayed_capture() -> None:
    """Values inside of arguments get fake values as well, and the call goes by the names that are given."""
    torch.manual_seed(0)
    model = Writes()
    _, args, kwargs = CASES["writes"]
    graph = REPLAYED(model)(*args, **kwargs)
    eager = copy.deepcopy(model)
    program = px.import_fx(graph, example_inputs={"args_0": args[0], "args_1": args[1], **kwargs})
    assert all("val" in node.meta for node in program.main.nodes if node.refs())
    named = px.name_inputs(program, ["x", "more", "scale"])
    assert_same(px.lower(named)(args[0], more=args[1], **kwargs), eager(*args, **kwargs))


class Opaque:
    def __init__(self, value: Any) -> None:
        self.value = value


class Hides(nn.Module):
    """What it gives back depends on a key, so that each is a case."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key, self.listed = key, [torch.ones(3)]

    def forward(self, x: torch.Tensor, by: float = 2.0) -> Any:
        if self.key == "opaque":
            return Opaque(x + 1)
        if self.key == "set":
            return {3}, x + 1
        return self.listed, x + by


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("opaque", r"Opaque is not a pytree, so no program can make .* register it"),
        ("set", r"the result holds the set .*; or capture the module with torch.export"),
        ("list", r"the very list that the module holds; return a copy"),
    ],
)
def test_what_no_program_can_make_is_refused(key: str, said: str) -> None:
    importlib.import_module("torch._dynamo").reset()
    with pytest.raises(px.errors.UnsupportedProgram, match=said):
        px.import_fx(REPLAYED(Hides(key))(X))


def test_a_number_that_dynamo_made_a_tensor_is_refused() -> None:
    importlib.import_module("torch._dynamo").reset()
    REPLAYED(Hides("number"))(X, 3.0)
    with pytest.raises(px.errors.UnsupportedProgram, match=r"cannot become nodes: .*_dynamo_bytecode_flatten"):
        px.import_fx(REPLAYED(Hides("number"))(X, 4.0))


def test_hooks_that_were_not_traced_are_refused() -> None:
    importlib.import_module("torch._dynamo").reset()
    graph = REPLAYED(Plain())(X)
    graph.register_forward_hook(lambda module, args, result: result * 2)
    with pytest.raises(px.errors.UnsupportedProgram, match="forward hooks"):
        px.import_fx(graph)


def replaying(function: Any) -> torch.fx.GraphModule:
    """Return a capture whose bytecode is replaced by a function of the module, the argument and the graph."""
    importlib.import_module("torch._dynamo").reset()
    graph = REPLAYED(Plain())(X)

    def forward_callable(*, compiled_fn: Any, extra_globals: Any) -> Any:
        return lambda root, x: function(root, x, lambda: compiled_fn(x, *root._modules["lin"]._parameters.values()))

    graph._dynamo_bytecode_flatten.out = SimpleNamespace(forward_callable=forward_callable)
    return graph


def writes_to_the_module(root: Any, x: Any, run: Any) -> Any:
    root.lin.seen = run()
    return x


def writes_past_setattr(root: Any, x: Any, run: Any) -> Any:
    object.__getattribute__(root, "__dict__")["seen"] = run()
    return x


def writes_to_the_argument(root: Any, x: Any, run: Any) -> Any:
    object.__getattribute__(x, "__dict__")["seen"] = 1
    return x


def sets_an_item(root: Any, x: Any, run: Any) -> Any:
    root._modules["lin"]._parameters["bias"] = x
    return x


def asks_for_a_value(root: Any, x: Any, run: Any) -> Any:
    return x if x.sum() > 0 else x + 1


def loops(root: Any, x: Any, run: Any) -> Any:
    return [row + 1 for row in x]


def runs_nothing(root: Any, x: Any, run: Any) -> Any:
    return x


@pytest.mark.parametrize(
    "function",
    [
        writes_to_the_module,
        writes_past_setattr,
        writes_to_the_argument,
        sets_an_item,
        asks_for_a_value,
        loops,
        runs_nothing,
    ],
)
def test_bytecode_that_does_more_is_refused_and_leaves_nothing(function: Any) -> None:
    graph = replaying(function)
    lin = graph.get_submodule("lin")
    before = {**vars(lin), **lin._parameters}
    with pytest.raises(px.errors.UnsupportedProgram, match="bytecode"):
        px.import_fx(graph)
    after = {**vars(lin), **lin._parameters}
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)


def test_bytecode_that_moved_is_refused() -> None:
    graph = REPLAYED(Plain())(X)
    del graph._dynamo_bytecode_flatten.out
    with pytest.raises(px.errors.UnsupportedProgram, match=r"first keep inputs = .*_dynamo_bytecode_flatten.*restore_names"):
        px.import_fx(graph)


def test_the_graph_without_its_bytecode() -> None:
    model, eager, graph = captured("plain", REPLAYED)
    inputs = graph._dynamo_bytecode_flatten(X)
    graph.graph.set_codegen(CodeGen())
    program = px.restore_names(px.import_fx(graph), model, inputs=inputs)
    assert torch.equal(px.lower(px.transform(program))(X)[0], eager(X))
