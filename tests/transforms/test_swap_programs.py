"""Programs and modules that are put in the place of others, and those that cannot be."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.swaps import Parent
from tests.models import parent
from tests.transforms.test_swap import Parts, UsesAll, X, transformed
from tests.unflatten.harness import LOWERED, Case, compare, export

# A program in the place of a module: its bodies, state and inner signatures; what does not fit is refused.


DYNAMIC = ({0: torch.export.Dim.DYNAMIC},)


class Counted(parent(inner=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3))):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return self.inner(self.inner(x)) + self.n


def model_of_two() -> Any:
    """Return a model that calls one child twice."""
    return Parent(lambda p, x: p.b(p.a(p.a(x)).relu()), a=nn.Linear(3, 3), b=nn.Linear(3, 3))


def swapped_like_eager(
    model: nn.Module, path: str, other: nn.Module, replacement: px.Program, program: px.Program
) -> px.Program:
    result = px.swap_modules(program, {path: replacement})
    assert px.verify(result) == ()
    eager = copy.deepcopy(model)
    eager.set_submodule(path, copy.deepcopy(other))
    for to in LOWERED:
        compare(px.lower(result, to=to), eager, Case(lambda: eager, [(X,)] * 3))
    return result


@pytest.mark.parametrize("outlined", [True, False], ids=["outlined", "as imported"])
def test_a_program_becomes_a_body_with_its_state(outlined: bool) -> None:
    model, other = model_of_two(), Counted()
    imported = px.import_ep(export(other, (X,)))
    replacement = px.transform(imported) if outlined else imported
    result = swapped_like_eager(model, "a", other, replacement, transformed(model, "a"))
    assert [name for name in result.state if name.startswith("a.")] == [
        "a.inner.weight",
        "a.inner.bias",
        "a.n",
    ]
    assert [module.path for module in result.modules] == ["", "a", "a.inner", "b"]
    lowered: Any = px.lower(result)
    lowered.a = nn.Tanh()  # its signature is preserved still
    torch.testing.assert_close(lowered(X), model.b(X.tanh().tanh().relu()))


def test_dynamic_sizes() -> None:
    model, other = model_of_two(), Counted()
    program = transformed(model, "a", dynamic_shapes=DYNAMIC)
    dynamic = px.import_ep(export(other, (X,), dynamic_shapes=DYNAMIC))
    lowered = px.lower(px.swap_modules(program, {"a": dynamic}))
    eager = copy.deepcopy(model)
    eager.set_submodule("a", copy.deepcopy(other))
    compare(lowered, eager, Case(lambda: eager, [(torch.randn(rows, 3),) for rows in (4, 2, 9)]))
    with pytest.raises(
        px.errors.SwapError,
        match=r"in dimension 0 was exported for the size 4, .* export it with that dimension dynamic",
    ):
        px.swap_modules(program, {"a": px.import_ep(export(other, (X,)))})
    limited = px.import_ep(
        export(other, (X,), dynamic_shapes=({0: torch.export.Dim("rows", min=3, max=8)},))
    )
    with pytest.raises(px.errors.SwapError, match="sizes from 3 on"):
        px.swap_modules(program, {"a": limited})


def test_what_does_not_fit_is_told() -> None:
    program = transformed(model_of_two(), "a")

    class Two(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    cases: list[tuple[nn.Module, tuple[Any, ...], str]] = [
        (Two(), (X, X), r"passes \(\*\), the program takes \(\*, \*\)"),
        (Parent(lambda _, x: (x + 1, x)), (X,), r"its result is \*, the program's \(\*, \*\)"),
        (nn.Tanh(), (X.double(),), "is a torch.float64, and a torch.float32 here"),
        (nn.Tanh(), (X[0],), "has 1 dimensions, and 2 here"),
        (nn.Tanh(), (X[:2],), "was exported for the size 2, and that is 4 here"),
    ]
    for module, args, said in cases:
        with pytest.raises(px.errors.SwapError, match=said):
            px.swap_modules(program, {"a": px.import_ep(export(module, args))})
    with pytest.raises(px.errors.SwapError, match="the program cannot replace it"):
        px.swap_modules(program, {"a": px.Program.of({"": px.Graph((), (), (px.Ref("nowhere"),))})})


@pytest.mark.parametrize("preserve", [(), ("1",)], ids=["flat", "preserved"])
def test_inlined_it_is_the_export_with_the_replacement(preserve: tuple[str, ...]) -> None:
    """A program that stands in for a call whose signature was not preserved has no boundaries to hide what is between."""
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)

    def inlined(act: nn.Module) -> px.Program:
        return px.inline(
            px.transform(
                px.import_ep(export(nn.Sequential(first, act, last), (X,), preserve=preserve))
            )
        )

    program = px.transform(
        px.import_ep(export(nn.Sequential(first, nn.GELU(), last), (X,), preserve=preserve))
    )
    for act in (nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Sigmoid())):
        by = px.capture(act, (X,)) if isinstance(act, nn.ReLU) else px.inline(px.capture(act, (X,)))
        swapped = px.swap_modules(program, {"1": by}, signature="preserved" if preserve else "flat")
        main, wanted = px.inline(swapped).main, inlined(act).main
        assert [
            (node.do, node.args) for node in main.nodes if node.stack and node.stack[0].path == "1"
        ] == [
            (node.do, node.args)
            for node in wanted.nodes
            if node.stack and node.stack[0].path == "1"
        ]
        assert len(main.nodes) == len(wanted.nodes)
        again = px.swap_modules(
            swapped,
            {"1": px.capture(nn.ELU(), (X,))},
            signature="preserved" if preserve else "flat",
        )
        torch.testing.assert_close(
            px.lower(again)(X), last(nn.functional.elu(first(X))), rtol=0, atol=0
        )


# What ``swap_modules`` refuses: a typed error that says which module, why and what to do, before anything happens.


PART = Parts()
REFUSED: list[tuple[Any, str]] = [
    ({"prat": PART}, r"no module 'prat'; did you mean 'part'\?"),
    ({"": PART}, "the root cannot be swapped"),
    ({3: PART}, "no module 3"),
    ({"part": Parts}, "Parts is a class; pass a torch.nn.Module"),
    ({"part": torch.relu}, r"cannot replace a module"),
    (
        {"part": nn.Linear(3, 3)},
        r"passes 3 positional, scale=, mask=, and Linear\.forward\(.*\) .* does not accept that",
    ),
    ({"part": nn.ModuleList()}, "a ModuleList has no forward"),
    (
        {"part": PART, "part.linear": nn.Tanh()},
        r"'part.linear' is below 'part', which a Parts replaces too",
    ),
    ([("part", PART)], "takes a mapping"),
    (7, "a mapping from paths"),
    (
        {"part.linear": nn.Linear(3, 3)},
        r"no preserved call signature.*preserve_module_call_signature=\('part.linear',\)",
    ),
]


@pytest.mark.parametrize(("modules", "said"), REFUSED)
def test_what_can_not_be_swapped_is_told_before_anything_happens(modules: Any, said: str) -> None:
    program = transformed(UsesAll(), "part")
    with pytest.raises(px.errors.SwapError, match=said):
        px.swap_modules(program, modules)


def test_a_module_inside_of_a_program_that_others_call() -> None:
    """A program that replaces a module may hold, as a module, what others call below it: they call that from then on."""
    model = Parent(lambda p, x: p.a[0](p.a(x)), a=nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    other, new = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), Counted()
    inner = px.swap_modules(
        px.transform(px.import_ep(export(other, (X,), preserve=("0",)))), {"0": copy.deepcopy(new)}
    )
    other[0] = new
    program = px.transform(px.import_ep(export(model, (X,), preserve=("a", "a.0"))))
    swapped_like_eager(model, "a", other, inner, program)
    eager = copy.deepcopy(model)
    eager.a = copy.deepcopy(other)
    for to in LOWERED:
        module: Any = px.lower(program, to=to)
        module.a = inner
        compare(module, eager, Case(lambda: eager, [(X,)] * 3))
