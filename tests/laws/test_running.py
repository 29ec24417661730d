"""Running the laws: as a plugin, and again from a seed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import settings

import purefx as px
from purefx.laws.law import GENERIC
from purefx.laws.pytest_plugin import VerifyEach
from tests import replay
from tests.laws.deep import Question, main, search

# The options that purefx adds to pytest, in sessions of their own.


pytest_plugins = ["pytester"]

BAD = """
import purefx as px
from attrs import evolve

@px.transformation(proven=True)
def bad(program):
    return program.with_main(evolve(program.main, output=(px.Ref("nowhere"),)))

def test_bad():
    program = px.Program.of({"": px.Graph((), (), ())})
    assert px.verify(program) == ()
    bad(program)
"""


def test_nothing_is_imported_until_it_is_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_imports():
            assert "pytest_purefx" in sys.modules
            assert not {"torch", "purefx", "hypothesis"} & set(sys.modules)
    """)
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:timeout")
    result.assert_outcomes(passed=1)


def test_the_transformation_that_makes_an_invalid_program_is_named(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(BAD)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    result = pytester.runpytest_inprocess("--ir-verify-each")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*InvalidProgram: the program breaks 1 invariant:*"])
    result.stdout.fnmatch_lines(["*it uses 'nowhere', which its graph does not define*"])
    result.stdout.fnmatch_lines(["*bad returned it for a valid program*"])
    result.stdout.fnmatch_lines(["purefx: 1 result* of transformations verified"])


BROKEN = """
from attrs import evolve
from hypothesis import given, settings

from purefx.laws import check_transformation
from purefx.laws.tiers import cases

def forgets(program):
    return program.with_main(evolve(program.main, output=(1,) * len(program.main.output)))

def test_mine():
    check_transformation(forgets, examples=20)

@settings(max_examples=5, database=None, derandomize=True)
@given(cases("toy"))
def test_drawn(case):
    assert not case.program.main.nodes, "found"
"""


def test_a_broken_law_is_shown_as_text_without_our_frames(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BROKEN)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*check_transformation(forgets, examples=20)",
            "*forgets breaks the law 'valid'*",
            "*on the program",
        ]
    )
    result.stdout.fnmatch_lines(["*case=Case(seed=*) of", "*program {", "*graph @*"])
    result.stdout.no_fnmatch_line("*laws/asking.py*")


def test_all_is_put_back(pytester: pytest.Pytester) -> None:
    spend, profile = px.Transformation.spend, settings.get_current_profile_name()
    pytester.makepyfile(BAD)
    pytester.runpytest_inprocess("--ir-verify-each", "--ir-profile=deep")
    assert px.Transformation.spend is spend
    assert settings.get_current_profile_name() == profile


def test_what_was_invalid_before_is_nobodys_fault() -> None:
    broken = px.Program.of(
        {"": px.Graph((), (), (px.Ref("nowhere"),)), "lost": px.Graph((), (), ())}
    )

    @px.transformation()
    def renames(program: px.Program) -> px.Program:
        return program.evolve(graphs=px.ir.pmap({"": program.main}))

    each = VerifyEach()
    each.begin()
    try:
        assert "lost" not in renames(broken).graphs
    finally:
        each.end()
    assert each.seen == 1


@pytest.mark.parametrize("name", ["ci", "purefx-ci"])
def test_profiles(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile("""
        from hypothesis import settings

        def test_profile():
            assert settings.get_current_profile_name() == "purefx-ci"
            assert settings.default.derandomize
    """)
    pytester.runpytest_inprocess(f"--ir-profile={name}").assert_outcomes(passed=1)


def test_a_profile_that_is_none(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--ir-profile=fast")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--ir-profile=fast: choose from dev, ci, deep*"])


@pytest.fixture(name="recorded")
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(replay, "AT_ONCE", {"toy": 3, "aten": 2})
    monkeypatch.setattr(
        replay,
        "ENTRIES",
        {key: entry for key, entry in replay.ENTRIES.items() if "sink_state" in key},
    )
    counts = replay.record(tmp_path, 1)
    assert counts["results"] >= 8
    assert counts["not stored"] == 0
    return tmp_path


def test_nothing_changed(recorded: Path) -> None:
    assert list(replay.differences(recorded)) == []


def test_a_result_that_is_another_one_is_shown(recorded: Path) -> None:
    results = json.loads((recorded / "results.json").read_text())
    key, name = (
        "sink_state at flat",
        next(name for name in results["sink_state at flat"] if name.endswith(".txt")),
    )
    results[key][name] = (
        px.parse((recorded / "programs" / name).read_text()).text().replace("toy.", "aten.", 1)
    )
    (recorded / "results.json").write_text(json.dumps(results))
    (shown,) = replay.differences(recorded)
    assert shown.startswith(f"{key}, {name}:")
    assert "\n+" in shown
    assert "\n-" in shown


def test_the_search_ends_after_its_rounds() -> None:
    stream = io.StringIO()
    assert (
        main(
            ["--rounds", "1", "--tier", "toy", "--transformation", "outline", "--law", "valid"],
            stream,
        )
        == 0
    )
    assert stream.getvalue().endswith(" 1 rounds, 0 failures\n")


def test_the_search_shows_a_broken_law_once_and_how_to_find_it_again() -> None:
    def forgets(program: px.Program) -> px.Program:
        return program.with_main(px.Graph(program.main.inputs, (), program.main.output))

    stream = io.StringIO()
    assert (
        search([Question("toy", forgets, "flat", GENERIC[0])], stream, seed=7, seconds=60, rounds=2)
        == 1
    )
    told = stream.getvalue()
    assert told.count("forgets breaks the law 'valid'") == 1
    assert (
        "again: python -m tests.laws.deep --seed 7 --rounds 1 --tier toy --transformation forgets --law 'valid'"
        in told
    )
