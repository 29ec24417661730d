"""Tests of a product of axes: ``make test`` runs each pair of values (``table``) or each value (``in_turns``) at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Row = tuple[str, ...]


def table(**axes: Mapping[str, Any] | Iterable[str]) -> pytest.MarkDecorator:
    """Parametrize a test with the product of some axes.

    Rows that ``covering`` leaves out are ``deep``.

    Args:
        axes: the values of each parameter, by id; strings are their own ids.
    """
    return _parametrized(axes, covering)


def in_turns(**axes: Mapping[str, Any] | Iterable[str]) -> pytest.MarkDecorator:
    """Parametrize a test with the product of axes that hardly depend on each other.

    Rows are ``deep`` but for as many as the longest axis has values: with each of these, the values of the others take turns.

    Args:
        axes: as for ``table``.
    """
    return _parametrized(axes, taking_turns)


def _parametrized(
    axes: Mapping[str, Any], chosen: Callable[[Sequence[Row]], Iterable[Row]]
) -> pytest.MarkDecorator:
    values: list[dict[str, Any]] = [
        dict(axis) if isinstance(axis, Mapping) else {name: name for name in axis}
        for axis in axes.values()
    ]
    rows = list(product(*values))
    quick = set(chosen(rows))
    params = [
        pytest.param(
            *[axis[name] for axis, name in zip(values, row, strict=True)],
            id="-".join(row),
            marks=[] if row in quick else [pytest.mark.deep],
        )
        for row in rows
    ]
    return pytest.mark.parametrize(tuple(axes), params)


def covering(rows: Sequence[Row]) -> list[Row]:
    """Return few rows that have each pair of values of two axes that any row has."""
    pairs = {row: _pairs(row) for row in rows}
    missing = set[Any]().union(*pairs.values())
    chosen: list[Row] = []
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return chosen


def taking_turns(rows: Sequence[Row]) -> list[Row]:
    """Return as many rows of a product as its longest axis has values; they have each value."""
    axes = [[*dict.fromkeys(axis)] for axis in zip(*rows, strict=True)]
    return [tuple([axis[turn % len(axis)] for axis in axes]) for turn in range(max(map(len, axes)))]


def _pairs(row: Row) -> set[Any]:
    return set(combinations(enumerate(row), 2))
