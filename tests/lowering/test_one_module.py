"""A module of the original is one module of the lowered program: what is done to it is seen by all of its calls."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize, prune

import purefx as px
from purefx.laws.tiers import share
from tests.models import module_class, parent
from tests.tables import in_turns

KINDS = ["graph_module", "interpreter"]
X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


def cond(
    condition: torch.Tensor,
    yes: Callable[..., Any],
    no: Callable[..., Any],
    operands: tuple[torch.Tensor],
) -> Any:
    """Run a branch; outside of an exporter ``torch.cond`` would compile both."""
    return (
        torch.cond(condition, yes, no, operands)
        if torch.compiler.is_exporting()
        else (yes if condition else no)(*operands)
    )


# Does one of two things, as a flag says.
Leaf = module_class(
    "Leaf",
    lambda self, x, flag=False: (
        (x @ self.weight).tanh() * self.scale if flag else x @ self.weight + self.scale
    ),
    weight=lambda: torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, -1.0]])),
    scale=lambda: torch.tensor([2.0, 5.0]),
)
# Calls one module with two bodies.
Twice = module_class("Twice", lambda self, x: self.a(self.a(x, False), True), a=Leaf)
# Calls its child as the flag says.
Around = module_class("Around", lambda self, x, flag=False: self.a(x * 2, flag), a=Leaf)
# Calls a module twice, whose child so has two bodies.
Deeper = module_class("Deeper", lambda self, x: self.a(self.a(x, False), True), a=Around)
# Reads the state of a module in the branches of an operator.
Branches = module_class(
    "Branches",
    lambda self, x: cond(
        x.sum() > 0, lambda x: x @ self.a.weight, lambda x: x - self.a.scale, (x,)
    ),
    a=Leaf,
)
# Reads its own state in the branches of an operator.
Ones = module_class(
    "Ones",
    lambda self, x, flag=False: cond(
        x.sum() > 0, lambda x: x @ self.weight * self.scale, lambda x: x - self.weight, (x,)
    ),
    Leaf,
)
# Calls a module that has branches.
Inside = module_class("Inside", lambda self, x: self.a(x) + 1, a=Ones)


class Renamed(torch.nn.Module):
    """Calls one module under two names, with a body each."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Leaf()
        self.list = torch.nn.ModuleList([self.a])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.list[0](self.list[0](self.a(x, False), True), False)


class Attributes(Renamed):
    """Calls one module under three names, with two bodies: an exporter that is not strict names places."""

    def __init__(self) -> None:
        super().__init__()
        self.b = self.a

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.list[0](self.a(x, False), True), False)


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "twice": Twice, "deeper": Deeper, "branches": Branches, "inside": Inside, "renamed": Renamed, "attributes": Attributes,
}  # fmt: skip


def leaf(model: torch.nn.Module) -> Any:
    found: Any = model.get_submodule("a")
    return found.a if hasattr(found, "a") else found


def replaced(name: str) -> Callable[[Any], object]:
    def change(module: Any) -> None:
        value = getattr(module, name)
        delattr(module, name)
        setattr(module, name, value.detach() * 3)

    return change


def registered_anew(module: Any) -> None:
    value = module.weight
    del module.weight
    module.register_buffer("weight", value.detach() + 1)


CHANGES: dict[str, Callable[[Any], object]] = {
    "prune": lambda module: prune.l1_unstructured(module, "weight", amount=0.5),
    "prune and make permanent": lambda module: (
        prune.l1_unstructured(module, "weight", 0.5),
        prune.remove(module, "weight"),
    ),
    "weight_norm": lambda module: parametrizations.weight_norm(module),
    "parametrize": lambda module: parametrize.register_parametrization(
        module, "weight", torch.nn.Hardtanh()
    ),
    "a parameter becomes an attribute": replaced("weight"),
    "a buffer becomes an attribute": replaced("scale"),
    "a parameter becomes a buffer": registered_anew,
    "another parameter": lambda module: setattr(
        module, "weight", torch.nn.Parameter(torch.ones(2, 2))
    ),
    "another buffer": lambda module: setattr(module, "scale", torch.ones(2)),
    "assigned state": lambda module: module.load_state_dict(
        {"weight": torch.ones(2, 2), "scale": torch.zeros(2)}, assign=True
    ),
    "converted": lambda module: module.double().float(),
}


def lowered(model: torch.nn.Module, to: Any, *, preserved: tuple[str, ...] = ()) -> torch.nn.Module:
    if isinstance(model, Attributes):
        return px.lower(px.transform(px.capture(model, (X,))), to=to)
    ep = torch.export.export(
        copy.deepcopy(model),
        (X,),
        strict=isinstance(model, Renamed),
        preserve_module_call_signature=preserved,
    )
    return px.lower(px.transform(px.import_ep(ep)), to=to)


def answers(model: torch.nn.Module, change: Callable[[Any], object]) -> list[Any]:
    """Return results before and after a change, those of a step of training, and the names of the state."""
    found = [model(X).tolist()]
    torch.manual_seed(0)
    change(leaf(model))
    found.append(model(-X).tolist())
    model.zero_grad()
    if model(X).requires_grad:
        model(X).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return [
        *found,
        model(X).tolist(),
        model(-X).tolist(),
        list(model.state_dict()),
        [name for name, _ in model.named_parameters()],
    ]


@in_turns(model=list(MODELS), to=KINDS)
def test_changes_of_a_module_are_seen_by_all_of_its_calls(model: str, to: Any) -> None:
    original = MODELS[model]()
    module = lowered(original, to)
    for number, (name, change) in enumerate(CHANGES.items(), list(MODELS).index(model)):
        if model == "branches" and "prune" in name:
            continue  # a hook of a module that nothing calls is refused
        expected = answers(copy.deepcopy(original), change)
        # Each change of half of the models is made to a copy that was pickled; make deep does both.
        for way in (number, number + 1)[: share(1)]:
            each = pickle.loads(pickle.dumps(module)) if way % 2 else copy.deepcopy(module)
            assert answers(each, change) == expected, name


@pytest.mark.parametrize("to", KINDS)
def test_a_changed_module_is_copied_and_pickled(to: Any) -> None:
    for change in ("parametrize", "a buffer becomes an attribute"):
        original = Twice()
        module = lowered(original, to)
        for each in (original, module):
            CHANGES[change](leaf(each))
        copies = [copy.deepcopy(module)]
        if change == "parametrize":
            with pytest.raises(RuntimeError, match="state_dict"):
                pickle.dumps(original)
            with pytest.raises(
                px.errors.UnsupportedProgram, match=r"changed to Parametrized.*state_dict"
            ):
                pickle.dumps(module)
        else:
            copies.append(pickle.loads(pickle.dumps(module)))
        expected = answers(copy.deepcopy(original), CHANGES["another buffer"])
        for each in copies:
            assert answers(each, CHANGES["another buffer"]) == expected


@pytest.mark.parametrize("to", KINDS)
def test_so_are_those_of_modules_with_preserved_signatures(to: Any) -> None:
    original = Twice()
    module = lowered(original, to, preserved=("a",))
    for change in CHANGES.values():
        assert answers(copy.deepcopy(module), change) == answers(copy.deepcopy(original), change)


class Names(parent(a=Around)):
    """Calls a module under two names, whose child so has two bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.b = self.a

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x, False), True)


@pytest.mark.parametrize("to", KINDS)
def test_a_child_is_replaced_for_all_names_of_its_parent_or_for_none(to: Any) -> None:
    """In eager an assignment under one name is one under all; the error says how to do that."""
    other = module_class("Other", lambda self, x, flag=False: x + 10)

    model = Names()
    program = px.transform(px.capture(model, (X,), preserve_module_call_signature=("a.a", "b.a")))
    module: Any = px.lower(program, to=to)
    expected = module(X)
    for path in ("a.a", "b.a"):
        with pytest.raises(
            px.errors.SwapError,
            match=r"'a' and 'b' are one module.*\{'a.a': module, 'b.a': module\}",
        ):
            module.set_submodule(path, other())
        module.set_submodule(path, module.get_submodule(path))
    torch.testing.assert_close(module(X), expected)
    model.set_submodule("b.a", other())
    swapped = px.lower(px.swap_modules(program, {"a.a": other(), "b.a": other()}), to=to)
    torch.testing.assert_close(swapped(X), model(X))


@in_turns(model=("twice", "deeper", "renamed", "attributes"), to=KINDS)
def test_one_forward_for_several_bodies_is_refused(model: str, to: Any) -> None:
    """It would run for the first body alone, where eager runs it for all calls; a module with one body takes it."""
    module: Any = lowered(MODELS[model](), to)
    expected, child = module(X), leaf(module)
    kind = type("Other", (type(child),), {"forward": lambda self, x: x})
    for name, value in (("forward", lambda x: x), ("__class__", kind)):
        with pytest.raises(px.errors.SwapError, match="its calls run different bodies"):
            setattr(child, name, value)
    torch.testing.assert_close(module(X), expected)
    inside: Any = lowered(Inside(), to)
    inside.a.forward = lambda x: x
    torch.testing.assert_close(inside(X), X + 1)
