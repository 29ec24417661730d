"""Every rule holds of every source file.

One test for each rule, which lists all violations at once.  The rules are in ``checkers.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import networkx as nx
import pytest

from tests.architecture.checkers import CHECKERS, imports, numbered_marks
from tests.architecture.house import circles
from tests.architecture.privates import torch_privates
from tests.architecture.sources import LAYERS, ROOT, Source, sources


@pytest.mark.parametrize(
    "checker", [*CHECKERS, torch_privates], ids=lambda checker: checker.__name__
)
def test_library(checker: Callable[[Source], Iterator[str]]) -> None:
    files = sources(*LAYERS)
    assert len(files) > 50, "the sources were not found"
    violations = [line for source in files for line in checker(source)]
    assert not violations, f"{checker.__doc__}\n" + "\n".join(violations)


def test_marks_elsewhere() -> None:
    files = [
        source
        for source in sources("tests", "bench", "examples")
        if not source.path.startswith("tests/architecture/")
    ]
    violations = [line for source in files for line in numbered_marks(source)]
    assert not violations, "\n".join(violations)


def test_no_circle_of_imports() -> None:
    # Those that imports inside functions hide are circles as well.
    assert circles(sources(*LAYERS)) == []


def test_a_layer_imports_what_the_picture_says() -> None:
    picture = (
        (ROOT / "docs" / "development.md")
        .read_text("utf-8")
        .partition("```mermaid")[2]
        .partition("```")[0]
    )
    drawn = {(one, other) for one, other in re.findall(r"(\w+) --> (\w+)", picture)}
    names = [
        (source.layer, name.split("."))
        for source in sources(*LAYERS)
        for _, name in imports(source)
    ]
    real = {
        (layer, parts[1])
        for layer, parts in names
        if parts[0] == "purefx" and len(parts) > 1 and parts[1] in LAYERS
    }
    direct = nx.DiGraph([(one, other) for one, other in real if one != other])
    assert (
        nx.transitive_closure_dag(nx.DiGraph(list(drawn))).edges
        == nx.transitive_closure_dag(direct).edges
    )
    assert drawn <= set(direct.edges), "the picture has an arrow that no import is"


def test_a_file_that_is_spoken_of_is_there() -> None:
    # A text names a file by its path from the root, from its own folder or below it, or by a name that one file has.
    known = {
        path.relative_to(ROOT).as_posix()
        for folder in (*LAYERS, "tests", "bench", "examples")
        for path in (ROOT / folder).rglob("*.py")
    }
    ends = {path.rpartition("/")[2] for path in known}
    lost = [
        f"{source.path}: {name}"
        for source in sources(*LAYERS)
        for name in re.findall(r"``([\w/]+\.py)``", source.text)
        if not (name in known or name in ends or any(path.endswith(f"/{name}") for path in known))
    ]
    assert not lost, "\n".join(lost)
