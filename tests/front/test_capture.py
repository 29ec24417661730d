"""``capture``: export and import in one call, from any number of threads; errors name the user's line."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import Counter, Tower, parent

X = torch.ones(2, 4)


def test_it_is_export_and_import() -> None:
    """All arguments go to the exporter."""
    options: dict[str, Any] = {
        "dynamic_shapes": {"x": {0: torch.export.Dim("n", min=2, max=9)}, "flag": None}
    }
    program = px.capture(
        Counter(), (X,), {"flag": False}, **options, preserve_module_call_signature=("linear",)
    )
    exported = torch.export.export(
        Counter(),
        (X,),
        {"flag": False},
        **options,
        strict=False,
        preserve_module_call_signature=("linear",),
    )
    assert px.alpha_equal(program, px.import_ep(exported))
    assert [str(frame) for frame in program.call_signatures] == ["linear"]
    assert program.constraints.ranges


class Branches(nn.Module):
    """Asks for the contents of a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:  # this line
            return y
        return x


class Misfit(parent(lin=lambda: nn.Linear(7, 4))):
    """Multiplies what does not fit, one call down."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)  # this line


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", [Branches, Misfit])
def test_errors_name_the_users_line(kind: type[nn.Module], strict: bool) -> None:
    """File, number and text of the line; the exporter's error is the cause."""
    with pytest.raises(px.errors.CaptureError) as refused:
        px.capture(kind(), (X,), strict=strict)
    said = str(refused.value)
    assert f"cannot export {kind.__name__}" in said
    assert f'File "{__file__}"' in said
    assert "# this line" in said.splitlines()[2]
    assert refused.value.__cause__ is not None and isinstance(refused.value, RuntimeError)
    with pytest.raises(
        px.errors.CaptureError, match=r"cannot export \w+: TypeError: too many positional arguments"
    ):
        px.capture(kind(), (X, X))  # no line of the standard library


def test_threads() -> None:
    """Eight threads at once, strict and not, each with what it gives alone."""
    alone = {
        strict: px.digest(px.capture(Tower(1), (X,), strict=strict)) for strict in (False, True)
    }
    found: list[tuple[bool, str]] = []
    start = threading.Barrier(6)

    def run(strict: bool) -> None:
        start.wait()
        found.append((strict, px.digest(px.capture(Tower(1), (X,), strict=strict))))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(number % 3 == 0,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 6
    assert all(digest == alone[strict] for strict, digest in found)
