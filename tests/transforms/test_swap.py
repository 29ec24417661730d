"""``swap_modules`` does what eager does with the same replacement: results, state, gradients, over several calls."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.torch_private import pytree
from tests.lowering.swaps import Parent
from tests.models import parent
from tests.unflatten.harness import LOWERED, Case, compare, export

X = torch.randn(4, 3)


class Parts(parent(linear=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3))):
    """Takes constants, keywords and containers, gives a dict with a tuple in it, and counts."""

    def forward(
        self, x: Any, table: Any, flag: Any = True, *, scale: Any = 1.0, mask: Any = None
    ) -> Any:
        self.n.add_(1)
        y = self.linear(x) * scale if flag else self.linear(x) - scale
        return {"out": y + table["a"], "aux": (y * 2, table["b"][0] - 1), "none": mask, "one": 1}


class OtherParts(Parts):
    """Another module that is called alike; it tells what it is called with."""

    def forward(
        self, x: Any, table: Any, flag: Any = True, *, scale: Any = 1.0, mask: Any = None
    ) -> Any:
        self.n.sub_(2)
        assert type(table) is dict
        assert (list(table), type(table["b"])) == (["a", "b"], list)
        assert (flag, scale, mask) == (False, 0.5, None)
        return {
            "one": 1,
            "aux": (x * table["a"], self.linear(x)),
            "out": table["b"][0] * self.n,
            "none": None,
        }


class UsesAll(parent(part=Parts)):
    def forward(self, x: Any) -> Any:
        r = self.part(x, {"a": x + 1, "b": [x * 2]}, False, scale=0.5, mask=None)
        return r["aux"][1] - r["out"], r["aux"][0]


class Twice(UsesAll):
    def forward(self, x: Any) -> Any:
        first = self.part(x, {"a": x + 1, "b": [x * 2]}, False, scale=0.5, mask=None)
        second = self.part(
            first["out"], {"a": first["aux"][0], "b": [x]}, False, scale=0.5, mask=None
        )
        return second["aux"], second["out"]


def transformed(
    model: nn.Module, *paths: str, args: tuple[Any, ...] = (X,), **options: Any
) -> px.Program:
    return px.transform(px.import_ep(export(model, args, preserve=paths, **options)))


def with_children(model: nn.Module, children: dict[str, nn.Module]) -> nn.Module:
    """Return a copy of eager with copies of other children."""
    other = copy.deepcopy(model)
    for path, child in children.items():
        other.set_submodule(path, copy.deepcopy(child))
    return other


def same(
    program: px.Program,
    model: nn.Module,
    children: dict[str, nn.Module],
    *calls: tuple[Any, ...],
    **options: Any,
) -> px.Program:
    """Assert that a swapped program does what eager does; return it."""
    kept = {path: copy.deepcopy(child.state_dict()) for path, child in children.items()}
    swapped = px.swap_modules(program, children, **options)
    assert px.verify(swapped) == ()
    eager = with_children(model, children)
    case = Case(lambda: eager, calls or ((X,),) * 3)
    for to in LOWERED:
        compare(px.lower(swapped, to=to), eager, case)
        assert gradients(px.lower(swapped, to=to), case) == gradients(copy.deepcopy(eager), case)
    for path, child in children.items():
        assert all(
            torch.equal(kept[path][name], value) for name, value in child.state_dict().items()
        ), "the replacement was written"
    return swapped


def gradients(module: nn.Module, case: Case) -> dict[str, list[float] | None]:
    """Return the gradients of parameters, as numbers."""
    leaves = pytree.tree_leaves(module(*case.calls[0]))
    parts = [leaf.sum() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if parts:
        torch.autograd.backward(parts)
    return {
        name: None if value.grad is None else value.grad.flatten().tolist()
        for name, value in module.named_parameters()
    }


WAYS = [(UsesAll, "plain"), (UsesAll, "decomposed"), (Twice, "plain")]


@pytest.mark.parametrize(("make", "way"), WAYS)
def test_constants_containers_and_parts_of_results(make: Any, way: str) -> None:
    model = make()
    swapped = same(transformed(model, "part", way=way), model, {"part": OtherParts()})
    assert not any(name.startswith("part.") for name in swapped.state)


class By(nn.Module):
    def __init__(self, run: Any = torch.mul) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Any, k: Any = 1) -> Any:
        return self.run(x, k)


def test_calls_with_different_constants_each_get_their_own() -> None:
    model = Parent(lambda p, x: p.a(p.a(p.a(x, k=2), k=-3), k=0.5), a=By())
    same(transformed(model, "a"), model, {"a": By(torch.sub)})


def test_one_module_under_two_names() -> None:
    child = nn.Linear(3, 3)
    model = Parent(lambda p, x: p.a(x) - p.b(x + 1), a=child, b=child)
    program = transformed(model, "a", "b")
    swapped = same(program, model, {"a": nn.Linear(3, 3)})
    assert list(swapped.state) == ["a", "b.weight", "b.bias"]
    child = nn.Linear(3, 3)
    eager: Any = copy.deepcopy(model)
    eager.a = eager.b = copy.deepcopy(child)
    lowered: Any = px.lower(px.swap_modules(program, {"a": child, "b": child}))
    compare(lowered, eager, Case(lambda: eager, [(X,)]))
    assert lowered.a is lowered.b


def test_dynamic_sizes_fx_modules_and_compiled_ones() -> None:
    model = Parent(lambda p, x: p.a(x).reshape(-1) * x.shape[0], a=nn.Linear(3, 3))
    other = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    program = transformed(model, "a", dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    calls = [(torch.randn(rows, 3),) for rows in (4, 2, 7)]
    same(program, model, {"a": other}, *calls)
    same(program, model, {"a": torch.fx.symbolic_trace(other)}, *calls)
    lowered: Any = px.lower(px.swap_modules(program, {"a": torch.compile(other, backend="eager")}))
    eager = with_children(model, {"a": other})
    assert all(torch.equal(lowered(*call), eager(*call)) for call in calls)


def test_state_that_others_read_is_that_of_the_replacement_as_in_eager() -> None:
    model = Parent(lambda p, x: p.a(x) @ p.a.weight, a=nn.Linear(3, 3))
    program = transformed(model, "a")
    swapped = same(program, model, {"a": nn.Linear(3, 3)})
    assert swapped.state["a.weight"].value is swapped.state["a"].value.weight
    with pytest.raises(
        px.errors.SwapError, match="reads its weight, and its replacement has no such tensor"
    ):
        px.swap_modules(program, {"a": nn.Tanh()})
    with pytest.raises(
        px.errors.SwapError,
        match=r"which is torch.float32 \(3, 3\), and its replacement has torch.float64",
    ):
        px.swap_modules(program, {"a": nn.Linear(3, 3).double()})


def test_tied_state_stays_tied() -> None:
    embed, head = nn.Linear(3, 3), nn.Linear(3, 3)
    head.weight = embed.weight
    model = Parent(lambda p, x: p.head(p.embed(x)), embed=embed, head=head)
    program = transformed(model, "embed", "head")
    same(program, model, {"head": nn.Linear(3, 3)})
    tied = nn.Linear(3, 3)
    tied.weight = program.state["head.weight"].value
    lowered: Any = px.lower(px.swap_modules(program, {"embed": tied}))
    assert lowered.embed.weight is lowered.head.weight
    assert lowered.embed.weight is not tied.weight


def test_children_that_others_call() -> None:
    def around(child: nn.Module) -> nn.Module:
        return Parent(lambda p, x: p.child(x) + 1, child=child)

    model = Parent(lambda p, x: p.p(x) * p.p.child(x), p=around(nn.Linear(3, 3)))
    program = transformed(model, "p", "p.child")
    same(program, model, {"p": around(nn.Tanh())})
    same(program, model, {"p.child": nn.Tanh()})
    with pytest.raises(px.errors.SwapError, match=r"'p\.child' is called from outside of 'p'"):
        px.swap_modules(program, {"p": nn.Tanh()})


def test_flat_calls_without_a_signature() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    same(transformed(model), model, {"0": nn.Tanh(), "2": nn.Linear(3, 2)}, signature="flat")


class Pair(nn.Module):
    def forward(self, x: Any) -> Any:
        return x, x


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize(
    ("path", "new", "old", "now"),
    [
        ("a", Pair(), "(*) -> *", "Pair(x)"),
        ("part", nn.Linear(3, 3), "(*) -> (*, (*, *))", "Linear(input)"),
    ],
)
def test_another_result_is_told_with_both_signatures(
    path: str, new: nn.Module, old: str, now: str, assigned: bool
) -> None:
    model = Parent(lambda p, x: p.part(p.a(x))[0] * 2, a=nn.Linear(3, 3), part=nn.LSTM(3, 3))
    program = transformed(model, "a", "part")
    lowered = px.lower(program if assigned else px.swap_modules(program, {path: new}))
    if assigned:
        setattr(lowered, path, new)
    with pytest.raises(px.errors.CallError) as found:
        lowered(X)
    assert f"module {path!r} was exported as {old} and is now {now}, which returned" in str(
        found.value
    )
