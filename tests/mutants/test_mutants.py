"""The parts of ``make mutants`` that can be wrong without being noticed: what is mutated, and what is counted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.examples import examples
from tests.mutants.report import Result, Same, left, report, same_ones, share, stale, table
from tests.mutants.session import caches
from tests.mutants.tree import ROOT, without_decorators

FILE = "transforms/some.py"

DECORATED = """import functools


@functools.cache
@other(
    1,
)
def f():
    return 1


class A:
    @lazy
    def g(self):
        pass
"""

KILLED = Result(FILE, "f", "return a", "return b", "killed")

SURVIVED = Result(FILE, "f", "x = 1", "x = 2", "survived")


def test_decorated_functions_become_plain_ones_that_are_called() -> None:
    made = without_decorators(DECORATED)
    assert "f = other(1)(f)\nf = functools.cache(f)\n" in made
    assert "        pass\n    g = lazy(g)\n" in made
    assert not any(
        node.decorator_list
        for node in ast.walk(ast.parse(made))
        if isinstance(node, ast.FunctionDef)
    )


@pytest.mark.parametrize("kept", ["staticmethod", "property", "limit.setter"])
def test_decorators_that_need_their_place_keep_it(kept: str) -> None:
    text = f"class A:\n    @{kept}\n    def limit(self):\n        pass\n"
    assert without_decorators(text) == text


def test_survivors_without_a_reason_are_shown_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So are mutants that no test calls, and tests that fail without any mutant."""
    assert report([KILLED] * 8 + [Result(FILE, "g", "x = 1", "x = 2", "no test")], [], []) == 1
    assert report([KILLED], [], ["tests/test_some.py::test_it"]) == 1
    results = [KILLED] * 8 + [SURVIVED]
    assert report(results, [], []) == 1
    assert "+ x = 2" in capsys.readouterr().out
    assert share(results, [SURVIVED], "transforms/") == pytest.approx(8 / 9)


def test_reasons_speak_of_one_change_of_one_function() -> None:
    same = [Same(FILE, "f", "x is not used", "x = 1", "x = 2")]
    assert report([SURVIVED], same, []) == 0
    for other in (
        Result(FILE, "g", "x = 1", "x = 2", "survived"),
        Result("transforms/other.py", "f", "x = 1", "x = 2", "survived"),
        Result(FILE, "f", "x = 1", "x = 3", "survived"),
    ):
        assert report([other], same, []) == 1


def test_what_is_asked_again_has_neither_been_found_nor_explained() -> None:
    never = Result(FILE, "g", "x = 1", "x = 2", "no test")
    assert left([KILLED, SURVIVED, never], []) == [SURVIVED, never]
    assert left([KILLED, SURVIVED, never], [Same(FILE, "f", "x is not used")]) == [never]


def test_a_reason_that_fits_nothing_is_told() -> None:
    same = [Same(FILE, "f", "x is not used", "x = 1", "x = 2")]
    assert stale([KILLED], same) == same
    assert stale([SURVIVED], same) == []
    assert stale([Result("ir/analysis/digest.py", "f", "a", "b", "killed")], same) == []


def test_the_table_has_a_line_for_each_file_and_folder() -> None:
    lines = table(
        [KILLED, SURVIVED, Result("ir/analysis/digest.py", "f", "a", "b", "stopped")], [SURVIVED]
    )
    assert [line.split()[0] for line in lines[1:]] == [
        FILE,
        "ir/analysis/digest.py",
        "transforms/",
        "ir/",
    ]
    assert lines[1].split()[1:] == ["2", "1", "0", "0", "1", "50.0%"]


def test_written_reasons_speak_of_functions_that_are_there() -> None:
    for one in same_ones((Path(__file__).parent / "equivalent.toml").read_text()):
        tree = ast.parse((ROOT / one.file).read_text())
        names = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        assert set(one.function.split(".")) <= names, one
        assert len(one.reason.split()) > 3, one


def test_what_a_function_remembers_is_found_where_the_collector_does_not_see_it() -> None:
    """Imports are hidden from the collector before the first test."""
    names = {each.__wrapped__.__name__ for each in caches(["purefx.transforms"])}
    assert "word_of_operator" in names
    assert caches(["purefx.trans"]) == []


def test_examples_of_a_module_are_those_that_it_wrote() -> None:
    names = [test.name.rpartition(".")[2] for test in examples("purefx.laws.strategies.exported")]
    assert sorted(names) == ["Exported", "build", "exported_programs", "narrowed"]
