"""State that is not a plain tensor, at every door: an independent copy of the same class, or a refusal that names the slot."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.custom_tensor import ConstantExtraMetadataTensor, CustomTensorPlainOut
from torch.testing._internal.two_tensor import TwoTensor

import purefx as px
from purefx.errors import UnsupportedProgram
from purefx.ir.state import same_value
from tests.models import module_class

X = torch.arange(1.0, 4.0)

pytestmark = [
    pytest.mark.usefixtures("unverified"),  # objects have no fake value that operators take
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state"),
    pytest.mark.filterwarnings(
        "ignore:TypedStorage is deprecated"
    ),  # torch copies and pickles some of its objects like this
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]


class Tagged(torch.Tensor):
    """A subclass that keeps a number beside its contents."""

    scale: int


class OwnParameter(torch.nn.Parameter):
    """A parameter class of a library; torch pickles it as a plain parameter."""


class Holder(torch.nn.Module):
    """A module with one piece of state, ``p``."""

    p: Any

    def __init__(self, value: Any, kind: str = "buffer") -> None:
        super().__init__()
        if kind == "buffer":
            self.register_buffer("p", value)
        else:
            self.p = value


# Uses all numbers of the state.
Scales = module_class("Scales", lambda self, x: x * (self.p * 2).sum(), Holder)
# Uses the state as a matrix.
Multiplies = module_class(
    "Multiplies", lambda self, x: (self.p @ x.unsqueeze(1)).squeeze(1), Holder
)
# Uses the state as a dense tensor.
Dense = module_class("Dense", lambda self, x: x * self.p.to_dense().sum(), Holder)
# Draws from a generator of its own.
Draws = module_class("Draws", lambda self, x: x + torch.rand(3, generator=self.p), Holder)


def _tagged() -> Tagged:
    found = X.clone().as_subclass(Tagged)
    found.scale = 3
    return found


def _with_metadata() -> torch.Tensor:
    found = ConstantExtraMetadataTensor(X.clone())
    found.constant_attribute = 7
    return found


PLAIN_OUT = "a subclass whose clone is a plain tensor"

KINDS: dict[str, Callable[[], Holder]] = {
    "a subclass": lambda: Scales(TwoTensor(X.clone(), X * 2)),
    "a subclass as parameter": lambda: Scales(
        torch.nn.Parameter(TwoTensor(X.clone(), X * 2)), "attribute"
    ),
    PLAIN_OUT: lambda: Scales(CustomTensorPlainOut(X.clone(), X * 2)),
    f"{PLAIN_OUT}, as parameter": lambda: Scales(
        torch.nn.Parameter(CustomTensorPlainOut(X.clone(), X * 2)), "attribute"
    ),
    "a subclass whose clone forgets": lambda: Scales(_with_metadata()),
    "a subclass of torch functions": lambda: Scales(_tagged()),
    "a parameter class": lambda: Scales(OwnParameter(X.clone()), "attribute"),
    "sparse": lambda: Multiplies(torch.eye(3).to_sparse()),
    "sparse constant": lambda: Multiplies(torch.eye(3).to_sparse(), "attribute"),
    "sparse rows": lambda: Multiplies(torch.eye(3).to_sparse_csr()),
    "sparse parameter": lambda: Multiplies(
        torch.nn.Parameter(torch.eye(3).to_sparse()), "attribute"
    ),
    "opaque layout": lambda: Dense(torch.eye(3).to_mkldnn()),
    "generator": lambda: Draws(torch.Generator().manual_seed(3), "attribute"),
}

UNPICKLED = ("a parameter class", "opaque layout")
"""What torch pickles as another type, or not at all."""


def _lowered(program: px.Program) -> torch.nn.Module:
    return px.lower(program, state="share")


DOORS: dict[str, Callable[[px.Program], Any]] = {
    "lower": px.lower,
    "interpreter": lambda program: px.lower(px.transform(program), to="interpreter"),
    "to_ep": px.to_ep,
    "deepcopy": lambda program: copy.deepcopy(_lowered(program)),
    "pickle": lambda program: pickle.loads(pickle.dumps(_lowered(program))),
}


@functools.cache
def _program(kind: str) -> px.Program:
    return px.import_ep(torch.export.export(KINDS[kind](), (X,)))


def _state_of(made: Any, name: str) -> Any:
    return (
        (made.state_dict | made.constants)[name]
        if isinstance(made, torch.export.ExportedProgram)
        else getattr(made, name)
    )


def _drawn(value: Any) -> list[int]:
    return value.get_state().tolist() if isinstance(value, torch.Generator) else []


def _attributes(value: Any) -> dict[str, Any]:
    return {
        name: part
        for name, part in getattr(value, "__dict__", {}).items()
        if not isinstance(part, torch.Tensor)
    }


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_what_the_original_is(kind: str, door: str) -> None:
    program = _program(kind)
    (name,) = program.state
    original = program.state[name].value
    if door == "pickle" and kind in UNPICKLED:
        with pytest.raises(UnsupportedProgram, match=f"the state '{name}' is a "):
            DOORS[door](program)
        return
    made = DOORS[door](program)
    found = _state_of(made, name)
    assert type(found) is type(original)
    assert found is not original
    assert _attributes(found) == _attributes(original)
    if isinstance(original, torch.Tensor):
        assert same_value(found, original)
        assert (found.requires_grad, isinstance(found, torch.nn.Parameter)) == (
            original.requires_grad,
            isinstance(original, torch.nn.Parameter),
        )
    eager, module = KINDS[kind](), made.module() if door == "to_ep" else made
    before = _drawn(original)
    for _ in range(3):
        assert torch.equal(module(X), eager(X))
    assert _drawn(original) == before


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_refuse_it_and_runs_do_not_share_it(kind: str) -> None:
    program = _program(kind)
    (name,) = program.state
    original = program.state[name].value
    with pytest.raises(UnsupportedProgram, match=f"the state '{name}' is a "):
        px.to_script(program)
    before = _drawn(original)
    assert px.first_difference(program, px.transform(program), (X,), calls=2) is None
    assert _drawn(original) == before


CONVERSIONS: dict[str, tuple[Callable[[px.Program], px.Program], set[str]]] = {
    "to_dtype": (
        lambda program: px.to_dtype(program, torch.float64),
        {PLAIN_OUT, f"{PLAIN_OUT}, as parameter", "opaque layout"},
    ),
    "to_device": (lambda program: px.to_device(program, "meta"), {"opaque layout"}),
}
"""Conversions, and the kinds that their own class cannot convert."""


@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("generator", "sparse constant")]
)
def test_conversions_keep_the_class_or_name_the_slot(kind: str, conversion: str) -> None:
    program, (convert, refused) = _program(kind), CONVERSIONS[conversion]
    (name,) = program.state
    if kind in refused:
        with pytest.raises(UnsupportedProgram, match=f"the state '{name}'"):
            convert(program)
        return
    assert type(convert(program).state[name].value) is type(program.state[name].value)


def test_views_of_a_subclass_and_a_plain_tensor_share_memory() -> None:
    class Views(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.arange(6.0))
            self.register_buffer("part", self.whole[::2].as_subclass(Tagged))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.whole.add_(1)
            return x + self.part

    program, eager = px.import_ep(torch.export.export(Views(), (X,))), Views()
    module = px.lower(program)
    assert type(module.part) is Tagged
    for _ in range(2):
        assert torch.equal(module(X), eager(X))


class Locked:
    """An object that cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def _uses(x: torch.Tensor, value: Any) -> torch.Tensor:
    return x + 1


def _reads(value: Any, function: Callable[..., Any]) -> px.Program:
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.p = value
    x = graph.placeholder("x")
    graph.output(graph.call_function(function, (x, graph.get_attr("p"))))
    return px.import_fx(torch.fx.GraphModule(root, graph))


@pytest.mark.parametrize("door", ["lower", "interpreter", "deepcopy", "pickle"])
def test_objects_that_cannot_be_copied_are_refused(door: str) -> None:
    program = _reads(Locked(), _uses)
    with pytest.raises(UnsupportedProgram, match=r"the state 'p' is a \S+Locked, which cannot be"):
        DOORS[door](program)
    assert px.lower(program, state="share").p is program.state["p"].value


@pytest.mark.parametrize("door", ["lower", "interpreter", "deepcopy", "pickle"])
def test_script_objects_are_copied(door: str) -> None:
    weight = torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)
    program = _reads(
        torch.ops.quantized.linear_prepack(weight, None), torch.ops.quantized.linear_dynamic
    )
    module = DOORS[door](program)
    assert module.p is not program.state["p"].value
    expected = torch.ops.quantized.linear_dynamic(X.unsqueeze(0), program.state["p"].value)
    assert torch.equal(module(X.unsqueeze(0)), expected)
    assert px.first_difference(program, program, (X.unsqueeze(0),)) is None
