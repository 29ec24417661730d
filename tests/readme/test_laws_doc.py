"""``docs/laws.md`` says what the registry says, and its pictures are true.

A picture is a program before and a program after, side by side; the left one is parsed, transformed and printed
again, and must be the right one.  The laws that stand above a picture are asked of it.
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
from purefx.laws.law import GENERIC, GRADIENTS, Case, Law
from purefx.laws.oracles import tensor_gradients
from purefx.laws.provenance import made_of_all, provenance
from purefx.laws.toy import tensor_meaning
from purefx.laws.values import said_values
from tests.laws.pairs import PAIRS
from tests.laws.registry import REGISTRY

TEXT = (Path(__file__).parents[2] / "docs" / "laws.md").read_text(encoding="utf-8")

PARTS = re.compile(r"^### `([^`]+)`(?:: ([^\n]*))?$|^```purefx\n(.*?)^```$|^Back: `(\w+)`\.$", re.MULTILINE | re.DOTALL)

LAWS = {law.name: law for law in (*GENERIC, GRADIENTS)}

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
    for match in PARTS.finditer(TEXT):
        title = match[1] or title
        if match[3]:
            backs = []
            found.append((title, match[3], backs))
        elif match[4]:
            backs.append(match[4])
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
    assert str(program).strip() == picture.before
    result = picture.transformation(program)
    assert str(result).strip() == picture.after
    laws: tuple[Law, ...] = (LAWS[picture.title],) if picture.title in LAWS else SPECIFIC[picture.title]
    step = picture.transformation
    for law in FUEL if "fuel" in dict(step.options) else laws:
        assert_law(ASKED[step.name] if "fuel" in dict(step.options) else step, law, case_of(program))
    for back in picture.backs:
        assert px.alpha_equal(getattr(px, back)(result), program)
    if picture.title == "no-op":
        assert result is program


def test_every_law_is_stated() -> None:
    titles = {match[1]: match[2] for match in PARTS.finditer(TEXT) if match[1]}
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", TEXT, re.MULTILINE))
    assert {law.name: law.statement for law in (*LAWS.values(), said_values, provenance, made_of_all)}.items() <= titles.items()
    told = [*(law for entry in REGISTRY for law in entry.specific), *PAIRS, *FUEL]
    assert [(law.name, law.statement) for law in told if rows.get(law.name) != law.statement] == []


def test_every_law_of_all_and_every_transformation_has_a_picture() -> None:
    shown = {picture.title for picture in PICTURES}
    assert {*LAWS, *SPECIFIC} <= shown
    assert all(picture.how == picture.title for picture in PICTURES if picture.title in SPECIFIC and "(" not in picture.how)


def test_exemptions_are_told() -> None:
    for entry in REGISTRY:
        for name, reason in entry.exempt.items():
            assert f"Exempt from `{name}`: {reason}." in TEXT
