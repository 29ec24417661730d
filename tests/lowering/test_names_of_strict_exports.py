"""A strict export records calls of one module under one of its names: a replacement never changes more calls in silence."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.calls.uncertain_names import LAST_NAME
from tests.lowering.swaps import Parent
from tests.tables import table

X = torch.arange(8.0).reshape(2, 4) / 5 - 1


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).sin())


def linear() -> nn.Module:
    return nn.Linear(4, 4)


def _local_names(p: Any, x: torch.Tensor) -> torch.Tensor:
    f, g = p.a, p.b
    return f(x) + p.c(g(x))


RUNS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "each name in a chain": lambda p, x: p.c(p.b(p.a(x))),
    "each name beside the others": lambda p, x: p.a(x) + 2 * p.b(x.sin()) + 3 * p.c(x.cos()),
    "one name twice": lambda p, x: p.c(p.b(p.a(p.b(x)))),
    "two names in each order": lambda p, x: p.a(p.b(x)) + p.b(p.a(x.cos())),
    "local names": _local_names,
    "one call": lambda p, x: p.b(x) * 2,
    "one name of three": lambda p, x: p.b(p.b(x)),
}


def model(run: str, make: Callable[[], nn.Module], depth: int) -> tuple[nn.Module, str]:
    """Return a module with one child under three names, below some parents, and the path of the parent."""
    torch.manual_seed(0)
    child = make()
    module = Parent(RUNS[run], a=child, b=child, c=child)
    for _ in range(depth):
        module = Parent(lambda p, x: p.inner(x) * 2, inner=module)
    return module, "inner." * depth


def program_of(module: nn.Module, door: str, *, strict: bool) -> px.Program:
    """Return the outlined program of a module."""
    if door == "capture":
        return px.transform(px.capture(module, (X,), strict=strict))
    return px.transform(px.import_ep(torch.export.export(module, (X,), strict=strict)))


@cache
def exported(
    run: str, make: Callable[[], nn.Module], depth: int, door: str, *, strict: bool
) -> tuple[nn.Module, str, px.Program]:
    """Return the same module and its program to every way of replacing: nothing writes to them."""
    module, above = model(run, make, depth)
    return module, above, program_of(module, door, strict=strict)


def replaced(program: px.Program, path: str, new: nn.Module, how: str) -> nn.Module:
    """Return the lowered program with another module under one name."""
    if how == "swap_modules":
        return px.lower(px.swap_modules(program, {path: new}, signature="flat"))
    lowered = px.lower(program)
    lowered.set_submodule(path, new)
    return lowered


@pytest.mark.parametrize("how", ["assignment", "swap_modules"])
@table(
    run=RUNS.keys(),
    make={"linear": linear, "mlp": Mlp, "stateless": nn.Tanh},
    depth={"root": 0, "nested": 1},
    strict={"strict": True, "non-strict": False},
    door=["capture", "import_ep"],
)
def test_a_replacement_is_that_of_eager_mode_or_warns(
    run: str, make: Callable[[], nn.Module], depth: int, strict: bool, door: str, how: str
) -> None:
    module, above, program = exported(run, make, depth, door, strict=strict)
    for name in "abc":
        new, other = nn.Linear(4, 4), copy.deepcopy(module)
        other.set_submodule(above + name, new)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = replaced(program, above + name, new, how)(X)
            except px.errors.SwapError:  # the export recorded no call under this name
                continue
        warned = [each for each in caught if each.category is px.errors.SwapWarning]
        assert warned or torch.allclose(result, other(X), atol=1e-5)
        assert strict or not warned


@pytest.mark.parametrize("how", ["assignment", "swap_modules"])
@pytest.mark.parametrize("door", ["capture", "import_ep"])
@pytest.mark.parametrize("run", ["each name beside the others", "one call"])
def test_certain_names_of_a_strict_export_do_not_warn(run: str, door: str, how: str) -> None:
    module, _ = model(run, linear, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", px.errors.SwapWarning)
        replaced(program_of(module, door, strict=True), "b", nn.Linear(4, 4), how)


@pytest.mark.parametrize("path", ["a.up", "a.down"])
@pytest.mark.parametrize("door", ["capture", "import_ep"])
def test_a_child_of_one_module_is_replaced_in_all_of_its_calls(door: str, path: str) -> None:
    module, _ = model("each name in a chain", Mlp, 0)
    new, other = nn.Linear(4, 4), copy.deepcopy(module)
    other.set_submodule(path, new)
    with warnings.catch_warnings():
        warnings.simplefilter("error", px.errors.SwapWarning)
        lowered = replaced(program_of(module, door, strict=True), path, new, "assignment")
    assert torch.allclose(lowered(X), other(X), atol=1e-5)


@pytest.mark.parametrize("how", ["assignment", "swap_modules"])
def test_the_warning_names_the_module_its_calls_and_the_line(how: str) -> None:
    module, _ = model("each name in a chain", linear, 0)
    program = program_of(module, "import_ep", strict=True)
    message = "module 'a': the replacement changes 3 calls.* as 'b' or 'c'.*strict=False"
    with pytest.warns(px.errors.SwapWarning, match=message) as caught:
        replaced(program, "a", nn.Linear(4, 4), how)
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize("how", ["assignment", "swap_modules"])
def test_a_name_without_recorded_calls_is_refused_with_the_reason(how: str) -> None:
    module, _ = model("each name in a chain", linear, 0)
    program = program_of(module, "import_ep", strict=True)
    with pytest.raises(px.errors.SwapError, match=r"'b': .* no call .* also 'a' or 'c'"):
        replaced(program, "b", nn.Linear(4, 4), how)


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    module, _ = model("each name in a chain", linear, 0)
    lowered = px.lower(program_of(module, "import_ep", strict=True))
    before = lowered.get_submodule("a")
    with warnings.catch_warnings():
        warnings.simplefilter("error", px.errors.SwapWarning)
        with pytest.raises(px.errors.SwapWarning):
            lowered.a = nn.Linear(4, 4)
    assert lowered.get_submodule("a") is before


def _loaded(program: px.Program, folder: Any) -> nn.Module:
    px.save(program, folder / "program")
    return px.lower(px.load(folder / "program"))


KEPT: dict[str, Callable[[px.Program, Any], nn.Module]] = {
    "deepcopy": lambda program, _: copy.deepcopy(px.lower(program)),
    "pickle": lambda program, _: pickle.loads(pickle.dumps(px.lower(program))),
    "save and load": _loaded,
}


@pytest.mark.parametrize("kept", KEPT)
def test_copies_and_saved_programs_warn_as_well(kept: str, tmp_path: Any) -> None:
    module, _ = model("each name in a chain", linear, 0)
    lowered = KEPT[kept](program_of(module, "import_ep", strict=True), tmp_path)
    with pytest.warns(px.errors.SwapWarning, match="3 calls"):
        lowered.a = nn.Linear(4, 4)


def test_all_names_that_are_swapped_for_one_object_do_not_warn() -> None:
    child = nn.Linear(4, 4)
    module = Parent(lambda p, x: p.a(p.b(x)) + p.b(p.a(x)), a=child, b=child)
    program = program_of(module, "capture", strict=True)
    new, other = nn.Linear(4, 4), copy.deepcopy(module)
    other.a = other.b = new
    with warnings.catch_warnings():
        warnings.simplefilter("error", px.errors.SwapWarning)
        swapped = px.lower(px.swap_modules(program, {"a": new, "b": new}, signature="flat"))
    assert torch.allclose(swapped(X), other(X), atol=1e-5)


def test_capture_knows_which_stateless_modules_are_one() -> None:
    act = nn.Tanh()
    module = Parent(lambda p, x: p.b(p.drop(p.a(x))), a=act, b=act, drop=nn.Identity())
    program = program_of(module, "capture", strict=True)
    with pytest.warns(px.errors.SwapWarning, match="as 'b', which"):
        replaced(program, "a", nn.Tanh(), "assignment")
    with pytest.raises(px.errors.SwapError, match=r"not called.*preserve_module_call_signature"):
        replaced(program, "drop", nn.Tanh(), "assignment")


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
def test_programs_without_shared_modules_lack_the_fact(strict: bool) -> None:
    module = Parent(lambda p, x: p.a(p.a(x)) + p.b(x), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    assert LAST_NAME not in px.capture(module, (X,), strict=strict).facts
