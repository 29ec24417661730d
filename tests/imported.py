"""All that the test suite imports is verified: import itself refuses only what it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import purefx as px
from purefx.ir.importing import exported, fx

__all__ = ["not_verified", "verified"]

FEW = 60
"""Programs of up to so many nodes are run again on fake values: that costs more than all the other rules."""

_original: dict[str, Callable[..., px.Program]] = {
    "import_ep": exported.check_identifiers, "import_fx": fx._finished,
}  # fmt: skip


def _valid(program: px.Program) -> px.Program:
    wrong = px.verify(program, infer=sum(len(graph.nodes) for graph in program.graphs.values()) <= FEW)
    assert not wrong, "\n".join(["import made an invalid program", *map(str, wrong)])
    return program


@contextmanager
def verified() -> Iterator[None]:
    """Verify what is imported."""

    def checked(program: px.Program) -> px.Program:
        return _valid(_original["import_ep"](program))

    def finished(program: px.Program, **options: Any) -> px.Program:
        return _valid(_original["import_fx"](program, **options))

    with _importing(checked, finished):
        yield


@contextmanager
def not_verified() -> Iterator[None]:
    """Import as users do."""
    with _importing(_original["import_ep"], _original["import_fx"]):
        yield


@contextmanager
def _importing(checked: Callable[..., px.Program], finished: Callable[..., px.Program]) -> Iterator[None]:
    modules: tuple[Any, Any] = exported, fx
    before = exported.check_identifiers, fx._finished
    modules[0].check_identifiers, modules[1]._finished = checked, finished
    try:
        yield
    finally:
        modules[0].check_identifiers, modules[1]._finished = before
