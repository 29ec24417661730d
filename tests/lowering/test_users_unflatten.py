"""``unflatten`` in the place of torch's: what comes back, adapters, and wrong use."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import FlatArgsAdapter, UnflattenedModule
from torch.export.unflatten import InterpreterModule

import purefx as px
from tests.lowering.users import FORMS, Mixed, agree, export, mixed_args, three


@pytest.mark.parametrize("form", FORMS)
def test_in_the_place_of_torchs(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The same classes as torch's, eager's numbers and state three times, and nothing is printed."""
    torch.manual_seed(0)
    model = Mixed()
    args, kwargs = mixed_args()
    module: Any = px.unflatten(export(model, form, args, kwargs))
    assert isinstance(module, UnflattenedModule)
    assert isinstance(module.get_submodule("first.up"), InterpreterModule)
    agree(module, model, three(lambda: mixed_args(5 if "dynamic" in form else 3)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("quick_collection")
def test_nothing_of_the_exported_program_is_kept() -> None:
    """When the exported program goes, its tensors go, though the module lives on; its graph torch itself keeps."""
    ep = torch.export.export(nn.Linear(4, 4), (torch.ones(1, 4),))
    parts: list[Any] = [ep, *ep.state_dict.values()]
    watched = [weakref.ref(part) for part in parts]
    module = px.unflatten(ep)
    module(torch.ones(1, 4))
    assert module.graph_signature is not None
    parts.clear()
    del ep
    gc.collect()
    assert [found() for found in watched if found() is not None] == []
    assert module(torch.ones(1, 4)).shape == (1, 4)


class Pairs(nn.Module):
    """Takes two tensors, and is called in other ways through adapters."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - 2 * y


class Recorder(FlatArgsAdapter):
    """Takes one tensor for both, or what it was told to give; remembers what it was asked."""

    def __init__(self, gives: Callable[[list[Any]], Any] = lambda flat: [flat[0], flat[0]], paths: tuple[str, ...] = ()) -> None:
        self.gives, self.paths = gives, paths
        self.asked: dict[str, Any] = {}

    def adapt(self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: Any = None, obj: Any = None) -> list[Any]:
        self.asked = {"target": target_spec, "input": input_spec, "flat": input_args, "metadata": metadata, "obj": obj}
        return self.gives(input_args)

    def get_flat_arg_paths(self) -> list[str]:
        return list(self.paths)


X, Y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])


@pytest.fixture(scope="module")
def pairs() -> Any:
    """The exported program."""
    return torch.export.export(Pairs(), (X, Y))


@pytest.mark.parametrize("unflatten", [px.unflatten, torch.export.unflatten])
def test_the_adapter_is_asked_as_by_torch(pairs: Any, unflatten: Any) -> None:
    """Five arguments: both specs, the flat arguments, metadata that leads to the module, and the arguments as given."""
    adapter = Recorder()
    module = unflatten(pairs, adapter)
    assert torch.equal(module([X]), -X)
    asked = adapter.asked
    assert asked["target"] == pairs.module_call_graph[0].signature.in_spec
    assert asked["input"].num_leaves == 1
    assert asked["input"].children()[0].children()[0].type is list
    assert torch.equal(asked["flat"][0], X)
    assert asked["metadata"]["unflattened_module"] is module
    assert len(asked["obj"]) == 1
    assert asked["obj"][0][0] is X


def test_an_adapter_is_not_asked_when_the_arguments_fit(pairs: Any) -> None:
    """Also given by name; and lower takes one as well."""
    adapter = Recorder()
    module = px.lower(px.transform(px.import_ep(pairs)), flat_args_adapter=adapter)
    assert torch.equal(module(X, y=Y), X - 2 * Y)
    assert adapter.asked == {}
    assert torch.equal(module({"a": X}), -X)


WRONG: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "no adapter": (None, lambda module: module([X])),
    "too few": (None, lambda module: module(X)),
    "too many": (None, lambda module: module(X, X, X)),
    "unknown keyword": (None, lambda module: module(X, z=X)),
    "too few adapted": (Recorder(lambda flat: flat), lambda module: module([X])),
    "too many adapted": (Recorder(lambda flat: flat * 3), lambda module: module([X])),
    "wrong shape": (None, lambda module: module(X, torch.ones(3))),
    "wrong rank": (None, lambda module: module(X, torch.ones(2, 1))),
    "no tensor": (None, lambda module: module(X, 1.0)),
    "wrong dtype": (None, lambda module: module(X, Y.long())),
    "wrong shape adapted": (Recorder(lambda flat: [flat[0], torch.ones(3)]), lambda module: module([X])),
}
SAYS = {
    "no adapter": "missing argument 'y'.*exported with",
    "too few": "missing argument 'y'",
    "too many": "takes 2 arguments .x, y., got 3",
    "unknown keyword": "unexpected argument 'z'",
    "too few adapted": "takes 2 flat arguments .x, y.; Recorder gave 1",
    "too many adapted": "takes 2 flat arguments .x, y.; Recorder gave 3",
    "wrong shape": r"argument y: expected a tensor of shape \(2,\).*got shape \(3,\)",
    "wrong rank": r"argument y: .*got shape \(2, 1\)",
    "no tensor": "argument y: .*got 1.0",
    "wrong dtype": "argument y: .*float32, got dtype torch.int64",
    "wrong shape adapted": r"argument y: .*got shape \(3,\)",
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_the_builtin_that_torch_raises(pairs: Any, case: str) -> None:
    """A purefx error that whoever caught torch's catches too; it names the argument and what was expected."""
    adapter, call = WRONG[case]
    with pytest.raises(px.PurefxError, match=SAYS[case]) as caught:
        call(px.unflatten(pairs, adapter))
    if case == "wrong dtype":
        return  # torch runs on, and may fail inside or promote
    with pytest.raises(Exception) as peer:  # noqa: PT011  whatever torch raises is what is asked
        call(torch.export.unflatten(pairs, adapter))
    assert isinstance(caught.value, peer.type)


@pytest.mark.parametrize("case", ["wrong range", "wrong relation"])
def test_dynamic_sizes_out_of_bounds(case: str) -> None:
    """Ranges and relations of dynamic sizes: refused as by torch."""
    size = torch.export.Dim("size", min=3, max=6)
    ep = torch.export.export(Pairs(), (torch.ones(4), torch.ones(4)), dynamic_shapes={"x": {0: size}, "y": {0: size}})
    args = (torch.ones(7), torch.ones(7)) if case == "wrong range" else (torch.ones(4), torch.ones(5))
    with pytest.raises(RuntimeError):
        torch.export.unflatten(ep)(*args)
    with pytest.raises(px.errors.InputValueError, match=r"argument [xy]: .*s[0-9]+"):
        px.unflatten(ep)(*args)


@pytest.mark.parametrize("adapter", [5, FlatArgsAdapter])
def test_an_adapter_that_is_none(pairs: Any, adapter: Any) -> None:
    """Refused when it is given, not when it is asked; a class is not an instance."""
    with pytest.raises(TypeError, match="flat_args_adapter"):
        px.unflatten(pairs, adapter)


def test_checks_can_be_switched_off(pairs: Any) -> None:
    """As with torch's: check_input_constraints."""
    module = px.unflatten(pairs)
    module.check_input_constraints = False
    assert torch.equal(module(torch.ones(3), torch.ones(3)), -torch.ones(3))
    module.check_input_constraints = True
    with pytest.raises(px.errors.InputValueError):
        module(torch.ones(3), torch.ones(3))


def test_it_takes_an_exported_program() -> None:
    """Anything else is refused by name."""
    with pytest.raises(TypeError, match="ExportedProgram"):
        px.unflatten(nn.Linear(1, 1))  # type: ignore[arg-type]
