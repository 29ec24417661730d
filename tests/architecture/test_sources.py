"""Every rule holds of every source file.

One idea: one test for each rule, which lists all violations at once.  The rules are in ``checkers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.architecture.checkers import CHECKERS, numbered_marks
from tests.architecture.privates import torch_privates
from tests.architecture.sources import LAYERS, Source, sources


@pytest.mark.parametrize("checker", [*CHECKERS, torch_privates], ids=lambda checker: checker.__name__)
def test_library(checker: Callable[[Source], Iterator[str]]) -> None:
    files = sources(*LAYERS)
    assert len(files) > 50, "the sources were not found"
    violations = [line for source in files for line in checker(source)]
    assert not violations, f"{checker.__doc__}\n" + "\n".join(violations)


def test_marks_elsewhere() -> None:
    files = [source for source in sources("tests", "bench", "examples") if not source.path.startswith("tests/architecture/")]
    violations = [line for source in files for line in numbered_marks(source)]
    assert not violations, "\n".join(violations)
