"""``docs/laws.md`` lists the laws of the registry, and the pictures of ``docs/transformations.md`` are right.

A picture is a program before and a program after, side by side.  The left one is parsed, transformed and
printed again; the result must be the right one.  The laws of the transformation are checked on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from attrs import frozen

import purefx as px
from purefx.laws.asking import assert_law
from purefx.laws.fuel import FUEL
from purefx.laws.law import GRADIENTS, Case
from purefx.laws.oracles import tensor_gradients
from purefx.laws.toy import tensor_meaning
from purefx.laws.values import said_values
from tests.laws.joint import JOINT_LAWS
from tests.laws.pairs import PAIRS
from tests.laws.registry import OF_ALL, REGISTRY

DOCS = Path(__file__).parents[2] / "docs"

TEXT = (DOCS / "laws.md").read_text(encoding="utf-8")

PICTURES_TEXT = (DOCS / "transformations.md").read_text(encoding="utf-8")

PARTS = re.compile(r"^## `([^`]+)`$|^```purefx\n(.*?)^```$|^Back: `(\w+)`\.$", re.MULTILINE | re.DOTALL)

ROWS = re.compile(r"^\|(?: (?:\[`(?P<of>\w+)`\]\S*)? \|)? `(?P<law>[^`]+)` \| (?P<says>[^|]+) \|$", re.MULTILINE)

SPECIFIC = {entry.transformation.name: entry.laws for entry in REGISTRY}

ASKED = {entry.transformation.name: entry.transformation for entry in REGISTRY}
"""The transformations as the registry asks them: one that cannot do without options has some."""


@frozen
class Picture:
    """A program before and after, with the name that it stands under."""

    title: str
    before: str
    after: str
    how: str
    """``outline``, or ``outline(fuel=1)``."""
    backs: tuple[str, ...] = ()

    @property
    def transformation(self) -> px.Transformation:
        """What made the one from the other."""
        name, _, options = self.how.rstrip(")").partition("(")
        pairs = [option.partition("=") for option in options.split(", ") if option]
        if name == "split_by_tags":  # its options are tags by path of module
            return px.split_by_tags.bind(tags=tuple(tag for _, _, tag in pairs), tag_of={path: tag for path, _, tag in pairs})
        return ASKED[name].bind(**{key: int(value) for key, _, value in pairs})


def pictures() -> Iterator[Picture]:
    """Iterate over the pictures of the page."""
    title, backs = "", list[str]()
    found: list[tuple[str, str, list[str]]] = []
    for match in PARTS.finditer(PICTURES_TEXT):
        title = match[1] or title
        if match[2]:
            backs = []
            found.append((title, match[2], backs))
        elif match[3]:
            backs.append(match[3])
    for title, picture, backs in found:
        rows = [line.partition(" |  ") for line in picture.splitlines()]
        left = [row.rstrip(" |") for row, _, _ in rows]
        right = [row for _, _, row in rows]
        assert left[0] == "before"
        how = right[0].removeprefix("after ")
        yield Picture(title, "\n".join(left[1:]).strip(), "\n".join(right[1:]).strip(), how, tuple(backs))


PICTURES = tuple(pictures())


ALLOWED = {"aten._print.default"}
"""Prints, so a text from outside may not have it; nothing else shows an ordered operator as well."""


def read(text: str) -> px.Program:
    """Return the program of a text, with ones in its state."""
    cells: dict[int, torch.Tensor] = {}
    values: dict[str, torch.Tensor] = {}
    for name, slot in px.parse(text, allow=ALLOWED).state.pairs:
        ones = torch.ones(slot.value.shape, dtype=slot.value.dtype)
        fresh = torch.nn.Parameter(ones) if isinstance(slot.value, torch.nn.Parameter) else ones
        values[name] = cells.setdefault(slot.cell, fresh)
    return px.parse(text, state=values, allow=ALLOWED)


def case_of(program: px.Program) -> Case:
    """Return a case of a program whose inputs are vectors of two."""
    users = sum(type(spec) is px.ir.UserInput for spec in program.signature.inputs)
    calls = [[torch.tensor([call + 1.0, -number]) for number in range(users)] for call in range(3)]
    return Case(program, 1, partial(tensor_meaning, calls=calls), partial(tensor_gradients, calls=calls))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: f"{picture.title}: {picture.how}")
def test_pictures(picture: Picture) -> None:
    program = read(picture.before)
    assert px.verify(program) == ()
    assert program.text().strip() == picture.before
    result = picture.transformation(program)
    assert result.text().strip() == picture.after
    for law in SPECIFIC[picture.title]:
        assert_law(picture.transformation, law, case_of(program))
    for back in picture.backs:
        assert px.alpha_equal(getattr(px, back)(result), program)


def test_every_transformation_has_a_picture() -> None:
    assert {picture.title for picture in PICTURES} == {*SPECIFIC}
    assert all(picture.how.partition("(")[0] == picture.title for picture in PICTURES)


def test_every_law_is_stated() -> None:
    rows = {match["law"]: match["says"] for match in ROWS.finditer(TEXT)}
    stated = [*OF_ALL, GRADIENTS, said_values, *(law for entry in REGISTRY for law in entry.specific), *PAIRS, *FUEL, *JOINT_LAWS]
    assert [(law.name, law.statement) for law in stated if rows.get(law.name) != law.statement] == []


def test_the_page_says_which_transformation_keeps_which_law() -> None:
    kept: dict[str, set[str]] = {}
    name = ""
    for match in ROWS.finditer(TEXT[TEXT.index("## Laws of one transformation") : TEXT.index("## Exemptions")]):
        name = match["of"] or name
        kept.setdefault(name, set()).add(match["law"])
    own = {entry.transformation.name: {law.name for law in entry.specific} for entry in REGISTRY}
    assert kept == own


def test_exemptions_are_listed() -> None:
    for entry in REGISTRY:
        for name, reason in entry.exempt.items():
            assert f"| `{entry.transformation.name}` | `{name}` | {reason} |" in TEXT
