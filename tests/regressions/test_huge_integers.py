"""Integers of more digits than Python converts to text stand in programs: they have a digest, and bounds are printable."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir import Apply, LiteralType, Range, Sym

HUGE = 10**5000

ADD = px.Op("toy.add")


@pytest.mark.parametrize("other", [HUGE + 1, -HUGE, 1], ids=["more", "less", "one"])
def test_digests_tell_them_apart(other: int) -> None:
    def program(number: int) -> px.Program:
        graph = px.Graph((px.Input("x"),), (px.Node("y", ADD, (px.Ref("x"), number)),), (px.Ref("y"),))
        signature = px.Signature((px.UserInput(LiteralType(number), "x"),), (px.UserOutput(),))
        constraints = px.Constraints((Range(Sym("s0"), 2, None),), (Apply("<", (Sym("s0"), number)),))
        return px.Program.of({"": graph}, signature=signature, constraints=constraints)

    assert px.digest(program(HUGE)) == px.digest(program(HUGE))
    assert px.digest(program(HUGE)) != px.digest(program(other))


@pytest.mark.parametrize(
    "line",
    [
        "constraints {\n range s0 from N\n}",
        "state {\n buffer n: f32[2] cell N\n}",
        'graph @""() {\n y = get a.b in a@N\n return ()\n}',
    ],
)
def test_a_text_says_no_such_number_of_anything(line: str) -> None:
    """The program could not be printed again."""
    with pytest.raises(px.ParseError, match="an integer of so many digits"):
        px.parse("program {\n" + line.replace("N", hex(HUGE)) + "\n}")


def test_tensors_of_no_such_size() -> None:
    state: dict[str, Any] = {"n": torch.ones(1)}
    with pytest.raises(px.ParseError):
        px.parse(f"program {{\n state {{\n buffer n: f32[{hex(HUGE)}]\n }}\n}}", state=state)
