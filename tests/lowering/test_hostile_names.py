"""Children and state with any name that eager takes are reached and replaced by path; what is ambiguous is refused at import."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.export.unflatten import UnflattenedModule

import purefx as px
from tests.models import module_class

PH: Any = getattr(torch.fx, "PH")  # noqa: B009  no public name of a type checker

# Multiplies by a parameter.
Leaf = module_class(
    "Leaf",
    lambda self, x: x * self.weight,
    weight=lambda: torch.nn.Parameter(torch.full((2,), 3.0)),
)


class Calls(torch.nn.Module):
    """Calls children by name, as often as they are named."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        for name in dict.fromkeys(names):
            self.add_module(name, Leaf())
        self.names = names

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.names:
            x = dict(self.named_children())[name](x) + 1
        return x


def hostile() -> list[str]:
    found = {
        *dir(torch.fx.GraphModule),
        *dir(UnflattenedModule),
        "meta",
        "graph",
        "graph_module",
        "_graph",
        "_code",
        "arg_names",
    }
    for to in ("graph_module", "interpreter"):
        lowered: Any = px.lower(
            px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1),))), to=to
        )
        found |= {*dir(lowered), "_spec_0"}
    return sorted(
        name for name in found if "." not in name and not hasattr(torch.nn.Module(), name)
    )


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_children_named_like_attributes(to: Any) -> None:
    names, x = [*hostile(), "user@host", "größe", "class", "self", "a b"], torch.ones(1, 2)
    assert len(names) > 20
    model = Calls(names)
    module = px.lower(px.transform(px.import_ep(torch.export.export(model, (x,)))), to=to)
    assert torch.equal(module(x), model(x))
    assert list(module.state_dict()) == list(model.state_dict())
    for name in names:
        assert module.get_submodule(name) is dict(module.named_children())[name], name
        assert (
            module.get_parameter(f"{name}.weight")
            is dict(module.named_parameters())[f"{name}.weight"]
        ), name
        module.set_submodule(name, torch.nn.Identity())
        model.set_submodule(name, torch.nn.Identity())
        assert isinstance(module.get_submodule(name), torch.nn.Identity), name
    assert torch.equal(module(x), model(x))


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_state_named_like_attributes(to: Any) -> None:
    class Holds(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for number, name in enumerate(
                ["code", "graph", "meta", "print_readable", "graph_module"]
            ):
                self.register_parameter(name, torch.nn.Parameter(torch.full((2,), number + 2.0)))
                self.register_buffer(f"{name}_", torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in (*self.parameters(), *self.buffers()):
                x = x * part
            return x

    model, x = Holds(), torch.ones(2)
    module = px.lower(px.transform(px.import_ep(torch.export.export(model, (x,)))), to=to)
    assert torch.equal(module(x), model(x))
    for name, value in module.named_parameters():
        assert torch.equal(module.state_dict()[name], value)


@pytest.mark.parametrize(
    "names", [["a@1"], ["a", "a@1"], ["a", "a", "a@1"], ["a@1", "a@1"], ["@", "@0"]]
)
def test_a_name_that_reads_as_a_later_call(names: list[str]) -> None:
    x = torch.ones(2)
    ep = torch.export.export(Calls(names), (x,))
    if names == ["@", "@0"]:
        assert torch.equal(px.unflatten(ep)(x), Calls(names)(x))
        return
    with pytest.raises(
        px.errors.UnsupportedProgram, match="'a@1' is how the exporter writes a later call of 'a'"
    ):
        px.import_ep(ep)


# Takes pytrees, and a keyword.
Nested = module_class(
    "Nested", lambda self, pair, d: self.leaf(pair[0]) + pair[1] * 2 + d["foo"] * 3, leaf=Leaf
)


class Around(torch.nn.Module):
    """Calls a lowered root as the original was called."""

    def __init__(self, root: torch.nn.Module, *, by_name: bool) -> None:
        super().__init__()
        self.root, self.by_name = root, by_name

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return (
            self.root(d={"foo": c}, pair=(a, b)) if self.by_name else self.root((a, b), {"foo": c})
        )


class Through(torch.fx.Tracer):
    """Traces into the root."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name != "root"


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_a_root_is_traced_with_nested_arguments(to: Any) -> None:
    x, y, z = torch.ones(2), torch.ones(2) * 5, torch.ones(2) * 7
    root = px.lower(
        px.transform(px.import_ep(torch.export.export(Nested(), ((x, y), {"foo": z})))), to=to
    )
    expected = Nested()((x, y), {"foo": z})
    for placeholders in ((PH, PH, PH), None):
        assert torch.equal(
            torch.fx.symbolic_trace(root, concrete_args=placeholders)(x, y, z), expected
        )
    for by_name in (False, True):
        around = Around(root, by_name=by_name)
        assert torch.equal(torch.fx.GraphModule(around, Through().trace(around))(x, y, z), expected)


# `copy.deepcopy` reads `__deepcopy__` from the object, so it may find a child or a parameter.


COPIER = "__deepcopy__"


class Below(nn.Module):
    """A module with a child of that name that it calls; the child is below a container, or not."""

    def __init__(self, container: nn.Module | None) -> None:
        super().__init__()
        owner = self if container is None else container
        owner.add_module(COPIER, nn.Linear(2, 2))
        if container is not None:
            self.inner = container

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        owner = self.inner if "inner" in self._modules else self
        child = owner._modules[COPIER]
        assert child is not None
        return child(x)


class PlusOne(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class OfParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_parameter(COPIER, nn.Parameter(torch.ones(2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parameter = self.inner._parameters[COPIER]
        assert parameter is not None
        return x * parameter


COPIED: dict[str, Callable[[], nn.Module]] = {
    "a child of the root": lambda: Below(None),
    "a child of a module": lambda: PlusOne(Below(None)),
    "a child of a container": lambda: Below(nn.Module()),
    "a child of a dict": lambda: Below(nn.ModuleDict({"a": nn.ReLU()})),
    "a child of a container in a module": lambda: PlusOne(Below(nn.Module())),
    "a parameter of a container": OfParameter,
    "a parameter of a container in a module": lambda: PlusOne(OfParameter()),
}


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
@pytest.mark.parametrize("is_tree", [True, False], ids=["tree", "flat"])
@pytest.mark.parametrize("make", COPIED.values(), ids=COPIED)
def test_a_member_called_deepcopy_does_not_copy(
    make: Callable[[], nn.Module], is_tree: bool, to: Any
) -> None:
    module, x = make(), torch.ones(1, 2)
    program = px.import_ep(torch.export.export(module, (x,)))
    lowered = px.lower(px.transform(program) if is_tree else program, to=to)
    copied = copy.deepcopy(lowered)
    assert torch.equal(copied(x), module(x))
    assert list(copied.state_dict()) == list(module.state_dict())
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1)
    assert torch.equal(lowered(x), module(x))
    for path, part in lowered.named_modules():
        assert list(copy.deepcopy(part).state_dict()) == list(part.state_dict()), path
