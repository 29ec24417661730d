"""Arguments and results of registered classes that look at their parts when they are made, as the caches of transformers do."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree  # pyright: ignore  # noqa: PGH003

import purefx as px
from purefx.errors import InputError, InputValueError
from purefx.laws import value_differences
from tests.models import parent

MADE: list[str] = []
"""The classes of which objects were made from parts."""


def look_at(*parts: torch.Tensor) -> None:
    """Raise as foreign code does on parts that are not tensors."""
    if not torch.compiler.is_compiling():
        MADE.append("made")
    assert all(part.dim() for part in parts)


@dataclasses.dataclass
class Data:
    """Its spec keeps the names of its parts."""

    a: torch.Tensor
    b: torch.Tensor

    def __post_init__(self) -> None:
        look_at(self.a, self.b)


class Plain(dict[str, torch.Tensor]):
    """A dict, as outputs of transformers are; nothing but an object of it knows the names of its parts."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        super().__init__(a=a, b=b)
        look_at(a, b)
        self.a, self.b = a, b


class Keyless(Plain):
    """Nothing knows the names of its parts; torch takes it as a result alone."""


class _Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


class Pair(_Pair):
    """As ``PackedSequence`` is one."""

    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Pair:
        look_at(a, b)
        return super().__new__(cls, a, b)


def _parts(value: Plain) -> tuple[list[torch.Tensor], None]:
    return [value.a, value.b], None


def _keyed(value: Plain) -> tuple[list[tuple[Any, torch.Tensor]], None]:
    return [(pytree.GetAttrKey("a"), value.a), (pytree.GetAttrKey("b"), value.b)], None


torch.export.register_dataclass(Data, serialized_type_name="tests.Data")
pytree.register_pytree_node(
    Plain,
    _parts,
    lambda parts, _: Plain(*parts),
    serialized_type_name="tests.Plain",
    flatten_with_keys_fn=_keyed,
)
pytree.register_pytree_node(
    Keyless, _parts, lambda parts, _: Keyless(*parts), serialized_type_name="tests.Keyless"
)


class Inner(parent(lin=lambda: torch.nn.Linear(2, 2))):
    def forward(self, pair: Any) -> Any:
        return type(pair)(self.lin(pair.a), pair.b * 2)


class Model(parent(inner=Inner)):
    def forward(self, pair: Any, more: Any, *, last: Any) -> Any:
        found = self.inner(pair)
        return {"pair": type(pair)(found.a + last[0].a, found.b + more["x"].b)}, found.a.sum()


def arguments(kind: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call."""

    def drawn() -> Any:
        return kind(torch.randn(3, 2), torch.randn(3, 2))

    return (drawn(), {"x": drawn()}), {"last": [drawn()]}


@functools.cache
def exported(
    kind: Any, preserved: tuple[str, ...] = ()
) -> tuple[torch.nn.Module, torch.export.ExportedProgram]:
    """Return the model and its export."""
    model = Model()
    args, kwargs = arguments(kind)
    return model, torch.export.export(model, args, kwargs, preserve_module_call_signature=preserved)


def saved(ep: torch.export.ExportedProgram, at: Path, kind: Any) -> torch.nn.Module:
    """Return what is lowered from a file."""
    px.save(px.import_ep(ep), at / "p.purefx")
    return px.lower(px.load(at / "p.purefx", types=[kind]))


DOORS: dict[str, Callable[[torch.export.ExportedProgram, Path, Any], torch.nn.Module]] = {
    "import_ep": lambda ep, *_: px.lower(px.transform(px.import_ep(ep))),
    "interpreter": lambda ep, *_: px.lower(px.transform(px.import_ep(ep)), to="interpreter"),
    "decomposed": lambda ep, *_: px.lower(px.transform(px.import_ep(ep.run_decompositions({})))),
    "unflatten": lambda ep, *_: px.unflatten(ep),
    "import_fx": lambda ep, *_: px.lower(px.import_fx(ep.module())),
    "lowered, traced": lambda ep, *_: px.lower(px.import_fx(px.lower(px.import_ep(ep)))),  # type: ignore[arg-type]
    "to_ep": lambda ep, *_: px.to_ep(px.transform(px.import_ep(ep))).module(),
    "file": saved,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("preserved", [(), ("inner",)], ids=["plain", "preserved"])
@pytest.mark.parametrize("kind", [Data, Plain, Pair])
def test_every_door_takes_and_gives_them(
    kind: Any, preserved: tuple[str, ...], door: str, tmp_path: Path
) -> None:
    """The results are eager's, and the names of arguments are those that the caller writes."""
    model, ep = exported(kind, preserved)
    args, kwargs = arguments(kind)
    module = DOORS[door](ep, tmp_path, kind)
    assert value_differences(module(*args, **kwargs), model(*args, **kwargs)) == []


@pytest.mark.parametrize("kind", [Data, Plain, Pair])
def test_leaves_are_called_what_the_caller_writes(kind: Any) -> None:
    """Attributes and keys, also where the spec does not know them."""
    program = px.import_ep(exported(kind)[1])
    paths = [spec.argument for spec in program.signature.inputs if type(spec) is px.ir.UserInput]
    assert paths == ["pair.a", "pair.b", "more['x'].a", "more['x'].b", "last[0].a", "last[0].b"]


@pytest.mark.parametrize("kind", [Data, Plain, Pair])
def test_none_is_made_but_for_a_result(kind: Any, tmp_path: Path) -> None:
    """Reading, naming, printing, saving, lowering and binding look at the parts of none."""
    _, ep = exported(kind)
    traced = ep.module()
    args, kwargs = arguments(kind)
    MADE.clear()
    program = px.transform(px.import_ep(ep))
    px.import_fx(traced)
    px.name_inputs(px.import_fx(traced))
    px.save(program, tmp_path / "p.purefx")
    px.to_script(program)
    px.to_ep(program, example_inputs=(args, kwargs))
    assert program.text()
    module = px.lower(program)
    assert module.graph.nodes  # type: ignore[union-attr]
    with pytest.raises(InputError):
        module(*args)
    assert MADE == []
    module(*args, **kwargs)
    assert MADE == ["made"]


AUTO = torch.export.Dim.AUTO


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", [Data, Plain])
def test_guards_on_their_parts_are_kept(kind: Any, strict: bool) -> None:
    """Guards are read, and written so that torch enforces them."""
    each = [{0: AUTO}, {0: AUTO}]
    shapes = {"pair": each, "more": {"x": each}, "last": [each]}
    ep = torch.export.export(Model(), *arguments(kind), dynamic_shapes=shapes, strict=strict)
    program = px.import_ep(ep)
    made = px.to_ep(program)
    assert px.import_ep(made).constraints == program.constraints
    args, kwargs = arguments(kind)
    wrong = {"last": [kind(torch.randn(4, 2), torch.randn(4, 2))]}
    for module, error in ((px.lower(program), InputValueError), (made.module(), AssertionError)):
        module(*args, **kwargs)
        with pytest.raises(error, match="last"):
            module(*args, **wrong)


@dataclasses.dataclass
class Optional:
    """A part that is None is no part."""

    a: torch.Tensor | None = None


torch.export.register_dataclass(Optional)


class TakesOptional(torch.nn.Module):
    def forward(self, x: torch.Tensor, more: Any) -> torch.Tensor:
        return x if more.a is None else x + more.a


def test_other_parts_than_the_exported_ones_are_named() -> None:
    """The message has the parts and what the class keeps beside them, which may be all that differs."""
    x = torch.ones(2)
    module = px.lower(px.capture(TakesOptional(), (x, Optional())))
    assert torch.equal(module(x, Optional()), x)
    with pytest.raises(
        InputError,
        match=r"argument more: expected a Optional of 0 parts and .*'a'.* as it was exported, got 1 part",
    ):
        module(x, Optional(x))


@dataclasses.dataclass
class Computes:
    """Computes when it is made: the exporter writes that outside of all modules."""

    a: torch.Tensor
    b: torch.Tensor

    def __post_init__(self) -> None:
        self.a = torch.cat([self.a])


torch.export.register_dataclass(Computes)


def test_what_a_class_computes_is_outside_of_the_module_that_takes_it() -> None:
    """A module with a preserved signature takes what was computed when its argument was made."""
    model, ep = exported(Computes, ("inner",))
    args, kwargs = arguments(Computes)
    module = px.lower(px.transform(px.import_ep(ep)))
    assert value_differences(module(*args, **kwargs), model(*args, **kwargs)) == []


class Returns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return [Keyless(x + 1, x * 2)]


def test_results_without_keys_are_compared() -> None:
    """The message numbers the parts."""
    x = torch.ones(2)
    module = px.lower(px.capture(Returns(), (x,)))
    assert value_differences(module(x), Returns()(x)) == []
    first, second = value_differences(module(x), Returns()(x + 1))
    assert (
        first
        == "value[0][0]: got float32[2] (2.0, 2.0), expected float32[2] (3.0, 3.0): 2 of 2 numbers differ, by up to 1"
    )
    assert second.startswith("value[0][1]: ") and second.endswith(
        ": 2 of 2 numbers differ, by up to 2"
    )
