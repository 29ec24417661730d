"""The two processes of this folder: started once for all files that ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.communication.pair import Pair


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    """Return two processes that talk over gloo."""
    found = Pair()
    yield found
    found.stop()
