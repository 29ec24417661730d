"""``docs/laws.md`` lists the laws of the registry, and the pictures of ``docs/transformations.md`` are right.

A picture is the difference between a program before and after, with all lines of both.  The program before is parsed,
transformed and printed again; the result must be the program after.  The laws of the transformation are checked on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from attrs import frozen

import purefx as px
from purefx.laws.asking import assert_law
from purefx.laws.law import FUEL, GRADIENTS, Case
from purefx.laws.values import recorded_values
from tests.laws.registry import OF_ALL, REGISTRY

DOCS = Path(__file__).parents[2] / "docs"

TEXT = (DOCS / "laws.md").read_text(encoding="utf-8")

PICTURES_TEXT = (DOCS / "transformations.md").read_text(encoding="utf-8")

PARTS = re.compile(
    r"^### `([^`]+)`$|^```diff\n@@ (.*?)^```$|^Back: `(\w+)`\.$", re.MULTILINE | re.DOTALL
)

ROWS = re.compile(r"^\| `(?P<law>[^`]+)` \| (?P<says>[^|]+) \|$", re.MULTILINE)

UNSEEN = {"infer", "to_dtype", "to_device"}
"""Transformations whose effect on a small program is not in its text: values, and tensors."""

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
            return px.split_by_tags.bind(
                tags=tuple(tag for _, _, tag in pairs), tag_of={path: tag for path, _, tag in pairs}
            )
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
        how, _, lines = picture.partition("\n")
        before, after = (
            "\n".join(line[1:] for line in lines.splitlines() if line[0] in signs)
            for signs in (" -", " +")
        )
        yield Picture(title, before, after, how, tuple(backs))


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
    return Case(
        program,
        1,
        [[torch.tensor([call + 1.0, -number]) for number in range(users)] for call in range(3)],
    )


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
    assert {picture.title for picture in PICTURES} == {*SPECIFIC} - UNSEEN
    assert all(picture.how.partition("(")[0] == picture.title for picture in PICTURES)


def test_every_generic_law_is_stated() -> None:
    rows = {match["law"]: match["says"] for match in ROWS.finditer(TEXT)}
    assert {
        law.name
        for law in (*OF_ALL, GRADIENTS, recorded_values, *FUEL)
        if rows.get(law.name) != law.statement
    } == set()
    own = [
        (one.transformation.name, ", ".join([f"`{law.name}`" for law in one.specific]))
        for one in REGISTRY
    ]
    assert [name for name, laws in own if f"| `{name}` | {laws} |" not in TEXT] == []
