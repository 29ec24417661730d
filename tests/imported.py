"""All that the test suite imports is verified: import itself refuses only what it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import purefx as px
from purefx.ir.importing import exported, fx

__all__ = ["not_verified", "verified"]

FEW = 60
"""Exported programs of up to so many nodes are run again on fake values: that costs more than all the other rules."""

_original: dict[str, Callable[..., px.Program]] = {
    "import_ep": exported.check_identifiers, "import_fx": fx._read,
}  # fmt: skip


def _valid(program: px.Program, *, infer: bool = False) -> px.Program:
    # An error of its own kind would be caught by nobody who judges passes that leave graphs invalid.
    if wrong := px.verify(program, infer=infer):
        raise px.errors.InvalidProgram(wrong)
    return program


@contextmanager
def verified() -> Generator[None]:
    """Verify what is imported; of small exported programs, the values too."""

    def checked(program: px.Program) -> px.Program:
        is_small = sum(len(graph.nodes) for graph in program.graphs.values()) <= FEW
        return _valid(_original["import_ep"](program), infer=is_small)

    def finished(*args: Any) -> px.Program:
        return _valid(_original["import_fx"](*args))

    with _importing(checked, finished):
        yield


@contextmanager
def not_verified() -> Generator[None]:
    """Import as users do."""
    with _importing(_original["import_ep"], _original["import_fx"]):
        yield


@contextmanager
def _importing(
    checked: Callable[..., px.Program], finished: Callable[..., px.Program]
) -> Generator[None]:
    modules: tuple[Any, Any] = exported, fx
    before = exported.check_identifiers, fx._read
    modules[0].check_identifiers, modules[1]._read = checked, finished
    try:
        yield
    finally:
        modules[0].check_identifiers, modules[1]._read = before
