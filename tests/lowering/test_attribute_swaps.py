"""Modules of a lowered program are replaced by assignment: what the same assignment does on the original, or a typed error."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.swaps import (
    Add,
    Around,
    Counting,
    Dicts,
    Layer,
    Layers,
    Pair,
    Parent,
    Plus,
    Reads,
    Scaled,
    Sub,
    X,
    both,
    program_of,
    put,
    refused,
    same,
)
from tests.models import module_class, parent

# ``module.path = replacement`` on lowered modules: it does what the same assignment does on the original.

Made = Callable[[], Any]


def dicts(parent: Any, x: torch.Tensor) -> torch.Tensor:
    return parent.a({"a": x, "b": x + 0.5}, more=[x.exp()])["sum"]


PRESERVED: dict[str, tuple[Made, str, Made]] = {
    "a constant argument": (lambda: Parent(lambda p, x: p.a(x, 0.5), a=Scaled()), "a", lambda: Scaled(-1.0)),
    "a constant keyword": (lambda: Parent(lambda p, x: p.a(x, scale=0.5), a=Scaled()), "a", lambda: Scaled(-1.0)),
    "reordered results": (lambda: Parent(lambda p, x: torch.sub(*p.a(x)), a=Pair()), "a", lambda: Pair(7.0)),
    "one of two results": (lambda: Parent(lambda p, x: p.a(x)[1] + 0, a=Pair()), "a", lambda: Pair(7.0)),
    "reordered arguments": (lambda: Parent(lambda p, x: p.a(x.relu(), x), a=Sub()), "a", Add),
    "dicts and lists": (lambda: Parent(dicts, a=Dicts()), "a", lambda: Dicts(2.0)),
    "two calls of one module": (lambda: Parent(lambda p, x: p.a(p.a(x, 2.0), -1.0), a=Scaled()), "a", lambda: Scaled(-1.0)),
    "a compiled module": (
        lambda: Parent(lambda p, x: p.a(x, 0.5), a=Scaled()), "a", lambda: torch.compile(Scaled(-1.0), backend="eager")
    ),
}  # fmt: skip

FLAT: dict[str, tuple[Made, str, Made]] = {
    "one tensor in and one out": (Layers, "layers.1", Plus),
    "a child of a child": (Layers, "layers.1.act", nn.Tanh),
    "a layer of torch, for what may take more": (Layers, "layers.0.act", Scaled),
    "a graph module": (Layers, "layers.0", lambda: torch.fx.symbolic_trace(Layer())),
    "a lowered module": (Layers, "layers.0", lambda: px.unflatten(torch.export.export(Layer(), (X,)))),
    "a buffer that is written": (lambda: Parent(lambda p, x: p.a(p.a(x)) + 1, a=Counting()), "a", lambda: Counting(2.0)),
    "the weight of an embedding that is the head's as well": (
        lambda: Parent(lambda p, x: p.head(p.emb(x)), **_tied()), "emb", lambda: nn.Linear(4, 4, bias=False)
    ),
    "the weight of a traced module": (
        lambda: Parent(lambda p, x: p.a(x) * p.a.weight[0], a=nn.Linear(4, 4)), "a", lambda: torch.jit.trace(nn.Linear(4, 4), X)
    ),
}  # fmt: skip


def _tied() -> dict[str, nn.Module]:
    emb, head = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    head.weight = emb.weight
    return {"emb": emb, "head": head}


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("case", [*PRESERVED, *FLAT])
def test_an_assignment_is_that_on_the_original(case: str) -> None:
    torch.manual_seed(0)
    make, path, new = (PRESERVED | FLAT)[case]
    eager, replacement = make(), new()
    program = program_of(eager, (path,) if case in PRESERVED else ())
    other = copy.deepcopy(eager)
    put(other, path, copy.deepcopy(replacement))
    for module in both(program):
        put(module, path, copy.deepcopy(replacement))
        same(module, other)
        assert list(module.state_dict()) == list(other.state_dict())


@pytest.mark.parametrize(
    "preserve",
    [(), ("layers.0", "layers.1", "layers.0.act", "layers.1.act")],
    ids=["flat", "preserved"],
)
def test_one_after_another(preserve: tuple[str, ...]) -> None:
    """Parent then child, child then parent, deleted and set again, what was there, siblings; each by all that sets a child."""
    torch.manual_seed(0)
    model, layer = Layers(), Layer()
    program = program_of(model, preserve)

    def parent_then_child(module: Any) -> None:
        module.layers[0] = copy.deepcopy(layer)
        module.layers[0].act = nn.Tanh()

    def child_then_parent(module: Any) -> None:
        module.set_submodule("layers.0.act", nn.Tanh())
        module.layers.add_module("0", copy.deepcopy(layer))

    def deleted(module: Any) -> None:
        del module.layers[1].act
        module.layers[1].act = nn.Tanh()

    def back(module: Any) -> None:
        first, layers = module.layers[0], module.layers
        module.layers[0] = Plus()
        module.layers[0] = first
        module.layers = layers

    def crossed(module: Any) -> None:
        module.layers[0], module.layers[1] = module.layers[1], module.layers[0]
        module.layers[0].act, module.layers[1].act = nn.Tanh(), module.layers[0].act

    def around(module: Any) -> None:
        module.layers[0] = Around(module.layers[0])

    for change in (parent_then_child, child_then_parent, deleted, back, crossed, around):
        other = copy.deepcopy(model)
        change(other)
        for module in both(program):
            change(module)
            same(module, other)


def test_what_was_lowered_there_comes_back_from_copies() -> None:
    """A copy of a child, that of a copy of the whole, and that of another lowering."""
    torch.manual_seed(0)
    model = Layers()
    program = program_of(model)
    first, second = both(program)
    first.layers[0] = copy.deepcopy(first.layers[0])
    first.layers = copy.deepcopy(first).layers
    first.layers[1] = px.lower(program).layers[1]
    second.layers = copy.deepcopy(second.layers)
    for module in (first, second):
        same(module, model)


def test_a_child_that_is_compiled() -> None:
    """It is the one that was there; a module with such a child compiles as a whole, too."""
    model = Layers()
    for module in both(program_of(model)):
        module.layers[1] = torch.compile(module.layers[1], backend="eager", fullgraph=True)
        assert torch.equal(module(X), model(X))
        module.layers[0] = Plus()
        assert torch.equal(
            torch.compile(module, backend="eager", fullgraph=True)(X), model.layers[1](X + 3)
        )
    torch._dynamo.reset()


# Calls a child of its parent, and a child of the root.
Takes = module_class(
    "Takes", lambda self, x, f, g: self.lin(f(x)) + g(x), lin=lambda: nn.Linear(4, 4)
)
Middle = module_class(
    "Middle", lambda self, x, g: self.up(x, self.f, g), f=lambda: nn.Linear(4, 4), up=Takes
)


@pytest.mark.parametrize(
    "wrap", [Around, lambda module: torch.compile(module, backend="eager", fullgraph=True)]
)
def test_a_wrapper_of_a_module_whose_children_call_each_other(wrap: Callable[[Any], Any]) -> None:
    """They still do; above the wrapper, they call the modules that were assigned."""
    model, new = (
        Parent(lambda p, x: p.a(x, p.g) + 1, a=Middle(), g=nn.Linear(4, 4)),
        nn.Linear(4, 4),
    )
    for module in both(program_of(model)):
        other = copy.deepcopy(model)
        for each in (module, other):
            each.a, each.g = wrap(each.a), new
        assert all(torch.equal(each(X), other(X)) for each in (module, copy.deepcopy(module)))
    torch._dynamo.reset()


def test_without_a_signature_a_result_is_used_as_it_is() -> None:
    """The program knows the values that it uses, but not what the original returned with them."""
    for module in both(program_of(Parent(lambda p, x: p.a(x)[1], a=Pair()))):
        module.a = Pair()
        assert type(module(X)) is tuple


def test_a_module_that_the_program_holds() -> None:
    """One that ``swap_modules`` put in is replaced by what takes the same."""
    model = Layers()
    swapped = px.swap_modules(program_of(model, ("layers.0",)), {"layers.0": Plus()})
    for module in both(swapped):
        other = copy.deepcopy(model)
        for each in (module, other):
            put(each, "layers.0", Counting())
        same(module, other)
        with pytest.raises(px.errors.SwapError, match="does not accept that"):
            module.layers[0] = Sub()


# Programs that are assigned to lowered modules, and what becomes of the whole: copies, files, state, graphs that were edited.


def test_a_program_is_lowered_as_the_whole_is() -> None:
    """Flat or transformed; with its own state, under the original's keys; in copies and files, too."""
    torch.manual_seed(0)
    model, layer = Layers(), Layer()
    flat = px.import_ep(torch.export.export(layer, (X,)))
    other = copy.deepcopy(model)
    other.layers[0], other.layers[1] = copy.deepcopy(layer), copy.deepcopy(layer)
    for module in both(program_of(model)):
        module.layers[0] = flat
        module.set_submodule("layers.1", px.transform(flat))
        assert type(module.layers[0]).__name__ == type(module).__name__
        for each in (module, pickle.loads(pickle.dumps(module))):
            same(each, other)
        assert module.layers[0].lin.weight is not layer.lin.weight
        with torch.no_grad():
            module.layers[0].lin.weight.zero_()
        assert not torch.equal(module(X), other(X))


def test_a_program_for_dicts_and_keywords() -> None:
    """Its arguments are told by name, so another order of keywords is the same."""
    model, other = Parent(dicts, a=Dicts()), Parent(dicts, a=Dicts(2.0))
    program = px.import_ep(
        torch.export.export(Dicts(2.0), ({"a": X, "b": X + 1},), {"more": [X + 2]})
    )
    for module in both(program_of(model, ("a",))):
        module.a = program
        same(module, other)


def test_what_is_loaded_still_notices() -> None:
    """Lists and containers of a loaded module, and children that come from it."""
    model = Layers()
    for module in both(program_of(model)):
        module.layers[0] = Plus()
        loaded = pickle.loads(pickle.dumps(module))
        refused(loaded, "layers.1", Sub(), "does not accept that")
        loaded.layers[0] = px.unflatten(torch.export.export(model, (X,))).layers[0]
        same(loaded, model)
        module.layers = loaded.layers
        same(module, model)


def test_a_graph_that_was_edited_calls_what_it_likes() -> None:
    """Whoever edits a graph knows what it calls."""
    model = Parent(lambda p, x: p.a(x) + 1, a=torch.nn.Identity())
    for module in both(program_of(model)):
        (taken, *_) = [node for node in module.graph.nodes if node.op == "placeholder"]
        refused(module, "a", Plus(), "not called")
        with module.graph.inserting_after(taken):
            called = module.graph.call_module("a", (taken,))
        taken.replace_all_uses_with(called, delete_user_cb=lambda node: node is not called)  # noqa: B023  used at once
        module.finalize()
        module.a = Plus()
        assert torch.equal(module(X), X + 3 + 1)


class Chooses(parent(a=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.a(x - 1), (x,))


Negated = module_class("Negated", lambda self, x: -nn.Linear.forward(self, x), nn.Linear)
# Calls a child, and a child of that.
Calls = module_class("Calls", lambda self, x: self.a.lin(self.a(x)), a=Layer)


def one(child: nn.Module) -> nn.Module:
    return Parent(lambda p, x: p.a(x) + 1, a=child)


Refused = tuple[
    Callable[[], nn.Module], tuple[str, ...], tuple[tuple[str, Callable[[], Any], str], ...]
]
"""A model, what is preserved, and assignments with what the error says."""

CASES: dict[str, Refused] = {
    "a module that does nothing": (lambda: one(nn.Identity()), (), (("a", Plus, "its call exported no operators"),)),
    "one that returns its argument": (lambda: one(nn.Identity()), ("a",), (("a", Plus, "would ignore a replacement"),)),
    "a module that is not called": (lambda: Parent(lambda p, x: x + 1, a=Layer()), (), (("a", Plus, "nothing would call"),)),
    "a constant that nobody knows of": (
        lambda: Parent(lambda p, x: p.a(x, 0.5), a=Scaled()), (), (
            ("a", lambda: Scaled(-1.0), "also takes scale, which"),
            ("a", lambda: Around(Plus()), "also takes args, kwargs, which"),
        ),
    ),
    "arguments in an order that nobody knows": (
        lambda: Parent(lambda p, x: p.a(x.relu(), x), a=Sub()), (), (("a", Add, r"takes \(x, relu\) and returns 1 value"),)
    ),
    "results in an order that nobody knows": (
        lambda: Parent(lambda p, x: torch.sub(*p.a(x)), a=Pair()), (), (("a", lambda: Pair(2.0), "returns 2 values"),)
    ),
    "several bodies": (
        lambda: Parent(lambda p, x: p.a(p.a(x, 2.0), -1.0), a=Scaled()), (), (("a", Plus, "its calls run different bodies"),)
    ),
    "arguments that do not fit": (
        lambda: Parent(dicts, a=Dicts()), ("a",), (
            ("a", Sub, r"passes 1 positional, more=, and Sub.forward\(a: .*does not accept that"),
            ("a", lambda: torch.compile(Sub(), backend="eager"), "does not accept that"),
            ("a", lambda: nn.ModuleList([Plus()]), "has no forward"),
            ("a", lambda: px.import_ep(torch.export.export(Sub(), (X, X))), "the program takes"),
            ("a", lambda: px.unflatten(torch.export.export(Sub(), (X, X))), "the program takes"),
            ("a", lambda: px.unflatten(torch.export.export(one(Layer()), (X,))).a, "is a lowered module for other calls"),
            ("a", lambda: None, "cannot be None"),
        ),
    ),
    "programs that do not fit": (
        lambda: one(Layer()), (), (("a", lambda: px.import_ep(torch.export.export(Pair(), (X,))), "return the same structure"),)
    ),
    "state that others read": (Reads, (), (("emb", lambda: nn.Linear(4, 5), "the root reads its weight, and"),)),
    "state that others may read under another name": (
        lambda: Reads(tied=True), (), (("emb", lambda: nn.Linear(4, 4), r"reads its weight \(the same tensor as w\)"),)
    ),
    "modules that others call": (
        Calls, (), (("a", Plus, "the root calls its lin, and a Plus has no such module"), ("a.lin", Sub, "does not accept that"))
    ),
    "lists": (Layers, (), (("layers", lambda: nn.ModuleList([Plus(), Plus()]), "calls the modules in it one by one"),)),
    "a branch of an operator": (Chooses, (), (("a", lambda: Negated(4, 4), "its operators are in the code of the root"),)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_changes_nothing(case: str) -> None:
    make, preserve, assignments = CASES[case]
    model = make()
    program = program_of(model, preserve)
    for module in both(program):
        for path, new, said in assignments:
            refused(module, path, new(), said)
        assert torch.equal(module(X), model(X))


def test_a_list_gets_no_more_modules() -> None:
    """Nobody would call them; where nothing is called, a list is a list."""
    for module in both(program_of(Layers())):
        for change in (
            lambda m: m.append(Plus()),
            lambda m: m.insert(0, Plus()),
            lambda m: m.extend([Plus()]),
        ):
            with pytest.raises(px.errors.SwapError, match="would never call a new one"):
                change(module.layers)
        assert len(module.layers) == 2
    idle = Parent(lambda p, x: x + 1, a=nn.ModuleList([Layer()]))
    (module, *_) = both(program_of(idle))
    module.a.append(Plus())
    assert len(module.a) == 2
    assert len(module.a[:1].append(Plus())) == len(module.a[0:]) == 2


def test_a_lowered_module_with_several_bodies_called_from_elsewhere() -> None:
    """Only the root tells it which call it is."""
    model = Parent(lambda p, x: p.a(p.a(x, 2.0), -1.0), a=Scaled())
    for module in both(program_of(model, ("a",))):
        refused(module, "a", Around(module.a), "so other callers would run the first one")
