"""The rewrites of ``examples/rewrites`` on real architectures: equal to models changed by hand, and short."""

from __future__ import annotations

import pytest

from examples.rewrites import Rewriting
from examples.rewrites.__main__ import ALL

pytestmark = pytest.mark.models


@pytest.mark.parametrize("rewriting", ALL, ids=lambda each: each.name)
def test_rewrites(rewriting: Rewriting) -> None:
    tree, worst = rewriting.run()
    assert worst <= rewriting.tolerance
    assert len(tree.order) < len(tree.modules), "equal layers share their bodies still"
    ours, theirs = rewriting.lines
    assert ours <= 12
    assert ours <= theirs
