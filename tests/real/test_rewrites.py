"""The rewrites of ``examples/rewrites`` on real architectures: equal to models changed by hand, short, and as in the gallery."""

from __future__ import annotations

from types import ModuleType

import pytest

from examples.gallery.page import PAGE, PICTURES, TAIL, name_of, section, table
from examples.rewrites import Rewriting
from examples.rewrites.__main__ import FILES

pytestmark = pytest.mark.models


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.REWRITING.name)
def test_rewrites(file: ModuleType) -> None:
    rewriting: Rewriting = file.REWRITING
    outcome = rewriting.run()
    assert outcome.worst <= rewriting.tolerance
    assert len(outcome.tree.order) < len(outcome.tree.modules), (
        "equal layers share their bodies still"
    )
    ours, theirs = rewriting.lines
    assert ours <= 12
    assert ours <= theirs
    said, picture = section(file, outcome)
    assert said in PAGE.read_text(encoding="utf-8"), "python -m examples.gallery writes the page"
    assert picture == (PICTURES / f"{name_of(file)}.svg").read_text(encoding="utf-8")


def test_the_gallery_has_all_of_them_and_nothing_else() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(table())
    assert text.endswith(TAIL)
    assert text.count("\n## ") == len(FILES)
    assert {picture.stem for picture in PICTURES.iterdir()} == {name_of(each) for each in FILES}
