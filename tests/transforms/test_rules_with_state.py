"""State that rules and edits bring, read and drop: its names, and the body that two modules share afterwards, as text."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from tests.models import Tower, exported, parent
from tests.transforms.small import relu

X = torch.linspace(-1, 1, 8).reshape(2, 4)
ONES = torch.ones(4)


class Layer(parent(lin=lambda: nn.Linear(4, 4), n=lambda: torch.ones(4))):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.lin(x)) * self.n


class Model(parent(a=Layer, b=Layer)):
    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x)).exp()


@cache
def flat() -> px.Program:
    """Return it with its state as inputs."""
    return px.import_ep(exported(Model(), X))


@cache
def tree() -> px.Program:
    """Return it as bodies."""
    return px.transform(flat())


def scaled(replacement: Callable[..., Any], **options: Any) -> px.Rule:
    """Return a rule of the activation, and of the buffer behind it."""
    return px.rule(lambda x, n: torch.relu(x) * n, **options).becomes(replacement)


def linear(replacement: Callable[..., Any]) -> px.Rule:
    """Return a rule of the linear module."""
    return px.rule(lambda x, w, b: functional.linear(x, w, b)).becomes(replacement)


def dropped(m: px.Match, what: Any, value: Any) -> Any:
    """Let go of state, and return a value."""
    m.drop(what)
    return value


def text_of(program: px.Program, name: str) -> str:
    """Return a graph, its nodes and its result."""
    lines = [" ".join(line.split()) for line in str(program.graphs[name]).splitlines()]
    return "; ".join([line for line in lines if " = " in line])


LIN = "linear = call @Linear(arg) as lin"
MUL = "n = get n; mul = aten.mul.Tensor"

CASES: list[tuple[px.Rule, set[str], set[str], str]] = [
    (relu(lambda m, x: x * m.buffer("k", ONES)), {"a.k", "b.k"}, set(),
     f"{LIN}; k = get k; mul_1 = aten.mul.Tensor(linear, k); {MUL}(mul_1, n)"),
    (relu(lambda m, x: x * m.buffer("lin", ONES)), {"a.lin_1", "b.lin_1"}, set(),
     f"{LIN}; lin_1 = get lin_1; mul_1 = aten.mul.Tensor(linear, lin_1); {MUL}(mul_1, n)"),
    (relu(lambda m, x: x + m.read("n")), set(), set(), f"{LIN}; n_1 = get n; add = aten.add.Tensor(linear, n_1); {MUL}(add, n)"),
    (scaled(lambda m, x, n: dropped(m, n, x * 2)), set(), {"a.n", "b.n"}, f"{LIN}; mul_1 = aten.mul.Tensor(linear, 2)"),
    (scaled(lambda m, x, n: dropped(m, n, x * m.buffer("n", ONES))), {"a.n_1", "b.n_1"}, {"a.n", "b.n"},
     f"{LIN}; n_1 = get n_1; mul_1 = aten.mul.Tensor(linear, n_1)"),
    (linear(lambda m, x, w, b: dropped(m, w, x + b)), set(), {"a.lin.weight", "b.lin.weight"},
     f"{LIN}; relu = aten.relu.default(linear); {MUL}(relu, n)"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_state_that_is_brought_and_dropped(number: int) -> None:
    rule, new, gone, body = CASES[number]
    for program in (flat(), tree()):
        made = rule(program)
        assert px.verify(made, infer=True) == ()
        assert all("val" in node.meta for _, node in made.nodes() if isinstance(node.do, px.Get))
        assert {*made.state.slots} - {*program.state.slots} == new
        assert {*program.state.slots} - {*made.state.slots} == gone
    assert text_of(made, "Layer") == body
    assert len(made.order) == 3


def test_what_new_state_is() -> None:
    """Parameters are trained if their numbers can be; buffers are persistent unless said otherwise; each instance has its own."""

    def replacement(m: px.Match, x: Any) -> Any:
        number = float(ord(m.path[0]))
        p, q = (
            m.parameter("p", torch.full((4,), number)),
            m.parameter("q", torch.ones(4, dtype=torch.int64)),
        )
        return (
            x
            * p
            * q
            * m.buffer("s", torch.ones(4))
            * m.buffer("t", nn.Parameter(torch.ones(4)), persistent=False)
        )

    for program in (flat(), tree()):
        state = relu(replacement)(program).state
        slots = [state[f"a.{name}"] for name in "pqst"]
        assert [slot.kind.name for slot in slots] == ["PARAMETER", "PARAMETER", "BUFFER", "BUFFER"]
        assert [(slot.persistent, slot.value.requires_grad) for slot in slots] == [
            (True, True), (True, False), (True, False), (False, False),
        ]  # fmt: skip
        assert [state[name].value[0].item() for name in ("a.p", "b.p")] == [97.0, 98.0]


@pytest.mark.parametrize(
    ("where", "path"),
    [(lambda m: m.path == "b", "b"), (lambda m: m.tensor("n").sum() == 4 and m.path == "a", "a")],
)
def test_a_shared_body_goes_apart(where: Callable[[Any], Any], path: str) -> None:
    rule = scaled(lambda m, x, n: x * m.buffer("k", ONES) * n, where=where)
    for program in (flat(), tree()):
        made = rule(program)
        assert px.verify(made, infer=True) == ()
        assert {*made.state.slots} - {*program.state.slots} == {f"{path}.k"}
        assert sum("get k" in text_of(made, name) for name in made.order) == (
            0 if program is flat() else 1
        )
    assert len(made.order) == 4


def test_what_a_rule_made_is_known_in_bodies_that_go_apart() -> None:
    """A rule that is applied once is not applied to what it made, where another one parts the body in the same walk."""

    class Waves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin().cos()

    class Both(parent(a=Waves, b=Waves)):
        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    program = px.transform(px.import_ep(exported(Both(), X)))
    once = px.rule(lambda x: torch.sin(x), once=True).becomes(lambda m, x: torch.sin(x) + 1)
    apart = px.rule(lambda x: torch.cos(x), where=lambda m: m.path == "b").becomes(
        lambda m, x: torch.tanh(x)
    )
    made = (once + apart)(program)
    assert px.verify(made, infer=True) == ()
    assert sorted(text_of(made, name) for name in made.order if name) == [
        "sin_1 = aten.sin.default(arg); add = aten.add.Tensor(sin_1, 1); cos = aten.cos.default(add)",
        "sin_1 = aten.sin.default(arg); add = aten.add.Tensor(sin_1, 1); tanh = aten.tanh.default(add)",
    ]


@px.rule(at=torch.ops.aten.linear, once=True, where=lambda m: m.path.startswith("layers.1"))
def adapted(m: px.Match) -> Any:
    x, (rows, columns) = m.arguments["input"], m.arguments["weight"].shape
    a, b = m.parameter("a", torch.zeros(2, columns)), m.parameter("b", torch.ones(rows, 2))
    return m.value + functional.linear(functional.linear(x, a), b)


def test_modules_of_several_sizes_get_state_of_their_own_in_one_body() -> None:
    model = Tower(3)
    tree = px.transform(px.import_ep(exported(model, X)))
    made = adapted(tree)
    assert px.verify(made, infer=True) == ()
    assert (
        len(made.order) == len(tree.order) + 2
    )  # one more Linear for both sizes, and one more layer that calls it
    lowered = px.lower(made)
    state = {
        name: tuple(value.shape)
        for name, value in lowered.state_dict().items()
        if name.endswith((".a", ".b"))
    }
    assert state == {
        "layers.1.up.a": (2, 4),
        "layers.1.up.b": (8, 2),
        "layers.1.down.a": (2, 8),
        "layers.1.down.b": (4, 2),
    }
    names = list(made.state)
    assert names.index("layers.1.up.a") == names.index("layers.1.up.bias") + 1, (
        "new state is behind that of its module"
    )
    torch.testing.assert_close(lowered(X), model(X))


class Counted(parent(w=lambda: torch.ones(4), other=lambda: torch.ones(4))):
    def forward(self, x: Tensor) -> Tensor:
        self.w.add_(1)
        y = torch.relu(x)
        self.w.add_(1)
        return y + self.w


def _by_state(name: str) -> px.Rule:
    return px.rule(lambda m: m.value * m.read(name), at=torch.ops.aten.relu, once=True)


def test_a_read_of_state_is_of_its_version_at_that_place_or_an_error() -> None:
    written = px.import_ep(torch.export.export(Counted(), (X,)))
    for program in (written, px.transform(written)):
        eager = Counted()
        expected = torch.relu(X) * (eager.w + 1) + 3
        torch.testing.assert_close(px.lower(_by_state("w")(program))(X), expected)
    versions = px.import_ep(torch.export.export(Counted(), (X,)).run_decompositions())
    with pytest.raises(
        px.errors.RuleError, match="a read of 'w' would return its contents before the call"
    ):
        _by_state("w")(versions)
    other = _by_state("other")(versions)
    torch.testing.assert_close(px.lower(px.transform(other))(X), torch.relu(X) + 3)


class Scaled(
    parent(w=lambda: nn.Parameter(torch.randn(4, 4)), b=lambda: nn.Parameter(torch.zeros(4)))
):
    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.w, self.b)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.other = Scaled(), Scaled(), Scaled()
        self.two.w = self.one.w

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.two(self.one(x)))


def _by_norm(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = weight.detach().norm(dim=1, keepdim=True)
    return scale, weight.detach() / scale


@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_new_state_of_tied_state_is_tied_where_it_is_one_tensor(
    is_flat: bool, is_kept: bool
) -> None:
    model = Tied()
    program = px.import_ep(torch.export.export(copy.deepcopy(model), (X,)))
    program = program if is_flat else px.transform(program)
    made = cache(_by_norm) if is_kept else _by_norm
    apart = px.rule(
        lambda x, w, b: functional.linear(x, w, b),
        where=lambda m: m.tensor("w") is not None,
        once=True,
    )

    @apart.becomes
    def _(m: px.Match, x: Any, w: Any, b: Any) -> Any:
        scale, direction = made(m.tensor(w))
        m.drop(w)
        return functional.linear(
            x, m.parameter("direction", direction) * m.parameter("scale", scale), b
        )

    result = apart(program)
    assert not px.verify(result, infer=True)
    assert not any(name.endswith(".w") for name in result.state)
    lowered = px.lower(result)
    torch.testing.assert_close(lowered(X), model(X))
    for name in ("scale", "direction"):
        one, two, other = [
            getattr(part, name) for part in (lowered.one, lowered.two, lowered.other)
        ]
        assert (one is two) is is_kept
        assert other is not one
    torch.testing.assert_close(px.lower(px.import_ep(px.to_ep(result)))(X), model(X))


@pytest.mark.parametrize("is_flat", [True, False])
def test_state_from_the_root_and_a_list_as_index(is_flat: bool) -> None:
    model = Model()
    program = px.import_ep(exported(model, X))
    rule = px.rule(lambda x: torch.exp(x)).becomes(lambda m, x: x[:, [1, 0, 3, 2]] + m.read("/a.n"))
    lowered = px.lower(rule(program if is_flat else px.transform(program)))
    assert torch.equal(lowered(X), model.b(model.a(X))[:, [1, 0, 3, 2]] + model.a.n)
