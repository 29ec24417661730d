"""The report of the house counts what it says: lines by kind, circles through functions, repeated bodies, times."""

from __future__ import annotations

from pathlib import Path

from tests.architecture import house
from tests.architecture.sources import LAYERS, Source, sources

TEXT = '''"""Opens.

Two lines.
"""

from . import b  # and here


def f(x):
    """Say."""
    # not code
    from .c import d
    y = d(x,
          1)

    return y
'''


def test_lines_by_kind() -> None:
    assert house.weight(Source("ir/a.py", TEXT)) == house.Weight(files=1, lines=16, code=4, docs=5, imports=2)


def test_circles_go_through_functions() -> None:
    files = [
        Source("ir/a.py", "def f():\n    from .b import g"),
        Source("ir/b.py", "from . import c"),
        Source("ir/c.py", "import purefx.ir.a"),
        Source("ir/d.py", "from .a import f"),
    ]
    assert house.circles(files) == [["purefx.ir.a", "purefx.ir.b", "purefx.ir.c"]]
    assert house.circles(files[1:]) == []


def test_bodies_that_differ_in_names_only_are_repeated() -> None:
    one = "def f(x):\n    y = x.a + 1\n    z = y\n    return z"
    other = "def g(u):\n    v = u.b + 2\n    w = v\n    return w"
    assert house.repeated([Source("ir/a.py", one), Source("ir/b.py", other)]) == [(3, ["ir/a.py:1 f", "ir/b.py:1 g"])]
    assert house.repeated([Source("ir/a.py", one), Source("ir/b.py", other.replace("+", "-"))]) == []


def test_long_functions_are_found_without_their_docstrings() -> None:
    body = "    x = 1\n" * 40
    text = f'def f():\n    """Say.\n\n    Twice.\n    """\n{body}\nasync def g():\n{body}'
    assert house.long_functions([Source("ir/a.py", text)]) == [(41, "ir/a.py:47 g")]


def test_times_are_those_of_a_run(tmp_path: Path) -> None:
    assert house.slowest(tmp_path / "none.xml") == []
    cases = "".join(f'<testcase classname="{name}" time="{seconds}"/>' for name, seconds in (("a", 1.5), ("b", 2), ("a", 1)))
    (tmp_path / "tests.xml").write_text(f"<testsuite>{cases}</testsuite>")
    assert house.slowest(tmp_path / "tests.xml") == [(2.5, "a"), (2.0, "b")]


def test_the_report_has_every_folder() -> None:
    folders = {source.path.rpartition("/")[0]: source for source in sources(*LAYERS)}
    text = "\n".join(house.report([*folders.values()], [Source("tests/a.py", TEXT)]))
    assert all(f"  {folder} " in text for folder in [*folders, "tests"])
