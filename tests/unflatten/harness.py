"""The harness of the tests of ``px.unflatten``: export one way, come back as modules, and do what eager does.

Eager is a copy made before the export, since a non-strict export with preserved signatures writes to the buffers
of the module that it is given.  A case is a module, its calls and what is preserved; a way is how it is exported.  It
asserts only in ``same_as_eager``.  What takes time is done once a case: eager runs once, and two ways share one trace.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import torch
from attrs import field, frozen
from torch import nn
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.errors import SwapError
from tests.models import parent

WAYS = ("plain", "strict", "decomposed", "strict, decomposed, saved")
LOWERED = ("graph_module", "interpreter")


class Linear(parent(linear=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3))):
    """What the children of several tests have in common; a test says what they do and how they are called."""


@frozen(eq=False)
class Case:
    """A module, the calls that are compared, and how it is exported."""

    make: Callable[[], nn.Module]
    calls: Sequence[tuple[Any, ...]]
    kwargs: dict[str, Any] = field(factory=dict)
    preserve: tuple[str, ...] | str = ()
    dynamic: Any = None
    swap: bool = True
    """Whether the eager child is put in place of each preserved one as well; not where others hold it too."""
    crosses: str | None = None
    """The ways (a part of their names) in which a value crosses that only our own module can give: swapping it is refused."""
    passes: tuple[str, ...] = ()
    """The ways in which preserved modules return what they are given, and the program uses that: swapping them is refused."""
    deep: bool = False
    """Whether only `make deep` asks it."""
    refused: tuple[str, str] | None = None
    """The ways (a part of their names) in which the exporter refuses, and what it says, as a regular expression."""

    def marks(self, way: str, number: int) -> list[pytest.MarkDecorator]:
        """Return what a case is marked with, exported one way.

        Each is exported plainly, every third one in one of the other ways, in turn, and decomposed as well where that changes
        what is expected of swapping; `make deep` tries all.
        """
        ordinary = self.crosses is None and not self.passes
        chosen = [WAYS[0], *([] if number % 3 else [WAYS[1 + number // 3 % 3]])]
        chosen += [] if ordinary else ["decomposed"]
        deep = [pytest.mark.deep] if self.deep or way not in chosen else []
        return [*deep, *([pytest.mark.slow] if "strict" in way else [])]

    @property
    def preserved(self) -> tuple[str, ...]:
        return (self.preserve,) if isinstance(self.preserve, str) else self.preserve


@frozen
class Cases:
    """The cases of a file: ``add`` decorates a module, ``each`` a test of one case exported one way."""

    all: list[Case] = field(factory=list)

    def add(self, *calls: tuple[Any, ...], **options: Any) -> Callable[[Any], Any]:
        """Add a module class; a single call is made three times."""

        def added(make: Any) -> Any:
            self.all.append(Case(make, calls * 3 if len(calls) == 1 else calls, **options))
            return make

        return added

    def each(self, test: Callable[[Case, str], None]) -> Callable[[Case, str], None]:
        """Run a test for every case, every way."""
        names: dict[str, int] = {}
        marks: list[Any] = []
        for number, case in enumerate(self.all):
            name = case.make.__name__ + (f"-{'+'.join(case.preserved)}" if case.preserved else "")
            names[name] = names.get(name, 0) + 1
            name = name if names[name] == 1 else f"{name}-{names[name]}"
            marks += [
                pytest.param(case, way, id=f"{name}-{way}", marks=case.marks(way, number))
                for way in WAYS
            ]
        return pytest.mark.parametrize(("case", "way"), marks)(test)


@functools.cache
def eager_of(case: Case) -> nn.Module:
    """Return the module of a case, which nothing runs but copies of it."""
    return case.make()


@functools.cache
def _traced(
    case: Case, module: nn.Module, *, strict: bool
) -> tuple[torch.export.ExportedProgram, list[Any]]:
    way, dynamic = "strict" if strict else "plain", copy.deepcopy(case.dynamic)
    ep = export(
        module, case.calls[0], case.kwargs, way=way, preserve=case.preserve, dynamic_shapes=dynamic
    )
    held = [
        value
        for value in (*ep.state_dict.values(), *ep.constants.values())
        if isinstance(value, torch.Tensor)
    ]
    return ep, [(value, value.detach().clone()) for value in held]


def traced(case: Case, module: nn.Module, *, strict: bool) -> torch.export.ExportedProgram:
    """Return the one trace of a case with its state as it was traced, whatever ran on that state since."""
    ep, before = _traced(case, module, strict=strict)
    with torch.no_grad():
        for value, was in before:
            value.copy_(was)
    return ep


def exported(case: Case, module: nn.Module, way: str) -> torch.export.ExportedProgram:
    """Export a copy of a module one way; skip the test where the exporter refuses as the case says that it does."""
    ways, said = case.refused or ("", "")
    try:
        return went_on(traced(case, module, strict="strict" in way), way)
    except Exception as error:
        if said and ways in way and re.search(said, f"{type(error).__name__}: {error}"):
            pytest.skip(f"torch.export refuses: {said}")
        raise


def export(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    way: str = "plain",
    preserve: tuple[str, ...] | str = (),
    **options: Any,
) -> torch.export.ExportedProgram:
    """Export a copy of a module on copies of its arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ep = torch.export.export(
            copy.deepcopy(module),
            copy.deepcopy(args),
            copy.deepcopy(kwargs),
            strict="strict" in way,
            preserve_module_call_signature=preserve,  # type: ignore[arg-type]
            **options,
        )
    return went_on(ep, way)


def went_on(ep: torch.export.ExportedProgram, way: str) -> torch.export.ExportedProgram:
    """Return what a way makes of a program that was just traced: decomposed, or saved and loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "decomposed" in way:
            ep = ep.run_decompositions({})
        return reloaded(ep) if "saved" in way else ep


def reloaded(ep: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return an exported program after a journey through a .pt2 file."""
    file = io.BytesIO()
    torch.export.save(ep, file)
    file.seek(0)
    return torch.export.load(file)


def same_as_eager(case: Case, way: str) -> None:
    """Assert that a case does what eager does, lowered both ways, also with eager children in the place of preserved ones."""
    eager = eager_of(case)
    program = px.transform(px.import_ep(exported(case, eager, way)))
    for to in LOWERED:
        agree(px.lower(program, to=to), case, of_eager(case))
        if not case.swap or not case.preserved:
            continue
        swapped = px.lower(program, to=to)
        said = "used outside but" if case.crosses is not None and case.crosses in way else None
        said = "would ignore a replacement" if way in case.passes else said
        for path in case.preserved:
            with pytest.raises(SwapError, match=said) if said else contextlib.nullcontext():
                swapped.set_submodule(path, copy.deepcopy(eager.get_submodule(path)))
        agree(swapped, case, of_eager(case), note="not swapped" if said else "swapped")


@functools.cache
def of_eager(case: Case) -> tuple[tuple[Any, Any, Any], ...]:
    """Return what the calls of a case do to its module; higher-order operators compile in eager, which takes a second."""
    return tuple(outcomes(eager_of(case), case))


def outcomes(eager: nn.Module, case: Case) -> Iterator[tuple[Any, Any, Any]]:
    """Iterate over what each call does to a copy of a module: the result, the arguments afterwards, the state afterwards."""
    eager = copy.deepcopy(eager)
    for args in case.calls:
        given = copy.deepcopy((args, case.kwargs))
        with warnings.catch_warnings():
            # Eager higher-order operators compile; a warning that is raised in there leaves torch inside of a vmap for good.
            warnings.simplefilter("ignore")
            result = kept(eager(*given[0], **given[1]))
        yield result, given, kept(eager.state_dict())


def compare(lowered: nn.Module, eager: nn.Module, case: Case, *, note: str = "") -> None:
    """Assert that a module does what a copy of eager does: results, written inputs and state, call by call."""
    agree(lowered, case, outcomes(eager, case), note=note)


def agree(
    lowered: nn.Module, case: Case, expected: Iterable[tuple[Any, Any, Any]], *, note: str = ""
) -> None:
    """Assert that the calls of a case do to a module what they should, one after the other."""
    for number, (args, (result, theirs, before)) in enumerate(
        zip(case.calls, expected, strict=True)
    ):
        where = f"{type(lowered).__name__} {note} call {number}: "
        mine = copy.deepcopy((args, case.kwargs))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=px.errors.ModeWarning)
            found = kept(lowered(*mine[0], **mine[1]))
        assert not list(differences(result, found)), (
            f"{where}result: {next(differences(result, found))}"
        )
        assert not list(differences(theirs, mine)), (
            f"{where}inputs: {next(differences(theirs, mine))}"
        )
        after = lowered.state_dict()
        assert list(after) == list(before), f"{where}keys of state_dict"
        assert not list(differences(before, after)), (
            f"{where}state: {next(differences(before, after))}"
        )


def kept(value: Any) -> Any:
    """Return a result that later calls do not change."""
    return pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value
    )


def differences(expected: Any, found: Any) -> Iterator[str]:
    """Yield where two pytrees differ: structure, type, bits."""
    left, spec = pytree.tree_flatten_with_path(expected)
    right, other = pytree.tree_flatten_with_path(found)
    if spec != other:
        yield f"expected {spec}, got {other}"
        return
    for (path, one), (_, two) in zip(left, right, strict=True):
        if isinstance(one, torch.Tensor):
            same = (
                isinstance(two, torch.Tensor)
                and one.dtype == two.dtype
                and one.shape == two.shape
                and _equal(one, two)
            )
        else:
            same = type(one) is type(two) and one == two
        if not same:
            yield f"{pytree.keystr(path)}: expected {one}, got {two}"


def _equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.is_meta or two.is_meta:
        return one.is_meta and two.is_meta
    return torch.equal(one.detach().nan_to_num(), two.detach().nan_to_num())
