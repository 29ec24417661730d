"""One call of a module that is called several times is swapped alone: ``n@1``, as torch's unflatten names it.

The model in eager has a module of its own for each call; a program, or a lowered module, in which one call was given
another module does what that does.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.swaps import X, both, program_of, same
from tests.programs import parent


class Either(parent(lin=lambda: nn.Linear(4, 4), n=lambda: torch.zeros(4))):
    """Does one thing or the other, and counts."""

    def forward(self, x: torch.Tensor, first: bool) -> torch.Tensor:
        self.n.add_(1)
        return self.lin(x).relu() if first else (self.lin(x) + self.n).tanh()


class Calls(nn.Module):
    """Calls ``n`` with one body, and then with another one, unless there is something else for a call."""

    def __init__(self) -> None:
        super().__init__()
        self.n = Either()
        self.first: nn.Module | None = None
        self.second: nn.Module | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) if self.first is not None else self.n(x, True)
        return self.second(x * 2) if self.second is not None else self.n(x * 2, False)


class Plus(parent(by=lambda: nn.Parameter(torch.ones(4)))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by


def eager(first: nn.Module | None, second: nn.Module | None) -> tuple[px.Program, Calls]:
    """Return the program of both calls of ``n``, and the model with something else for some."""
    torch.manual_seed(0)
    model = Calls()
    program = program_of(model)
    model.first, model.second = copy.deepcopy(first), copy.deepcopy(second)
    return program, model


@pytest.mark.parametrize("by", ["module", "program"])
def test_one_call_goes_to_a_module_of_its_own(by: str) -> None:
    new: Any = Plus()
    given = new if by == "module" else px.capture(new, (X,))
    for modules, model_of in (({"n@1": given}, (None, new)), ({"n@0": given}, (new, None))):
        program, model = eager(*model_of)
        swapped = px.swap_modules(program, modules, signature="flat")
        assert px.verify(swapped) == ()
        assert swapped.graphs.get("n") is program.graphs["n"] or swapped.graphs.get("n@1") is program.graphs["n@1"]
        for module in both(swapped):
            assert dict(module.named_modules()).keys() >= {"n", "n.lin", "n" + next(iter(modules))[1:].replace("@", "_")}
            run, wanted = copy.deepcopy(module), copy.deepcopy(model)
            for x in (X, X + 1):
                torch.testing.assert_close(run(x), wanted(x), rtol=0, atol=0)
            torch.testing.assert_close(run.get_buffer("n.n"), wanted.n.n, rtol=0, atol=0)


def test_each_call_goes_to_another_module_and_the_rest_with_the_module() -> None:
    program, model = eager(Plus(), nn.Tanh())
    swapped = px.swap_modules(program, {"n@1": nn.Tanh(), "n": Plus()}, signature="flat")
    assert list(swapped.state.order) == ["n", "n_1"]
    assert {module.path: module.type_name for module in swapped.modules if module.path[:1] == "n"} == {
        "n": f"{__name__}.Plus",
        "n_1": "torch.nn.modules.activation.Tanh",
    }
    for module in both(swapped):
        torch.testing.assert_close(module(X), model(X), rtol=0, atol=0)


def test_one_call_with_a_preserved_signature() -> None:
    torch.manual_seed(0)
    model = Calls()
    program = program_of(model, ("n",))

    class Other(nn.Module):
        def forward(self, x: torch.Tensor, first: bool) -> torch.Tensor:
            assert first is False
            return x - 1

    for by in (Other(), px.import_ep(torch.export.export(Other(), (X, False)))):
        model.second = Plus()
        model.second.by.data.fill_(-1)
        swapped = px.swap_modules(program, {"n@1": by})
        assert px.verify(swapped) == ()
        for module in both(swapped):
            torch.testing.assert_close(module(X), copy.deepcopy(model)(X))


def test_a_call_of_a_lowered_module_is_assigned() -> None:
    """``setattr(module, "n@1", new)``, then ``module.n``: each a call of its own."""
    program, second = eager(None, Plus())
    for module in both(program):
        assert isinstance(getattr(module, "n@1"), nn.Module)
        with pytest.raises(px.errors.SwapError, match=r"'n@1' first, which gives that call a module of its own"):
            module.n = Plus()
        with pytest.raises(px.errors.SwapError, match="does not take that"):
            setattr(module, "n@1", nn.Bilinear(4, 4, 4))
        with pytest.raises(px.errors.SwapError, match="no such call of 'n'"):
            setattr(module, "n@2", Plus())
        setattr(module, "n@1", Plus())
        for each in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            torch.testing.assert_close(each(X), copy.deepcopy(second)(X), rtol=0, atol=0)
        module.n = nn.ReLU()
        torch.testing.assert_close(module(X), eager(nn.ReLU(), Plus())[1](X), rtol=0, atol=0)
        setattr(module, "n@1", px.capture(nn.Tanh(), (X,)))
        torch.testing.assert_close(module(X), (X.relu() * 2).tanh(), rtol=0, atol=0)


class Switch(nn.Module):
    """Stands in for a module in eager: some of its calls go elsewhere."""

    def __init__(self, module: nn.Module, others: dict[int, nn.Module]) -> None:
        super().__init__()
        self.module, self.others, self.count = module, others, 0

    def forward(self, *args: Any) -> torch.Tensor:
        self.count += 1
        other = self.others.get(self.count - 1)
        return self.module(*args) if other is None else other(args[0])


class Twice(nn.Module):
    """Its part is called twice, and so is what that calls."""

    def __init__(self, *, differ: bool) -> None:
        super().__init__()
        self.part = Calls()
        self.differ = differ

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.part(x) + self.part(x.exp()).sin()
        self.part.second = nn.Tanh() if self.differ else None
        x = self.part(x)
        self.part.second = None
        return x + self.part.n(x, False)


def test_calls_of_a_module_that_is_called_twice_itself() -> None:
    """A number is that of a call in the program, where one body may run several times."""
    torch.manual_seed(0)
    model = Twice(differ=False)
    program = program_of(model)
    for label, calls in ((0, (0, 2, 4)), (1, (1, 3, 5, 6))):
        wanted = copy.deepcopy(model)
        wanted.part.n = Switch(wanted.part.n, dict.fromkeys(calls, Plus()))  # type: ignore[assignment]
        swapped = px.swap_modules(program, {f"part.n@{label}": Plus()}, signature="flat")
        modules = [px.lower(swapped)]
        if label:
            modules.append(px.lower(program))
            setattr(modules[1].part, "n@1", Plus())
        for module in modules:
            torch.testing.assert_close(module(X), copy.deepcopy(wanted)(X))


def test_a_call_of_a_module_with_several_bodies_is_not_assigned() -> None:
    """Each of those bodies has a module of its own that calls, and one attribute would not reach them all."""
    torch.manual_seed(0)
    model = Twice(differ=True)
    module = px.lower(program_of(model))
    with pytest.raises(px.errors.SwapError, match="is called several times itself"):
        setattr(module.part, "n@1", Plus())
    same(module, model)
