"""No folder has more lines of code or more files than its budget."""

from __future__ import annotations

from tests.architecture import budget
from tests.architecture.sources import LAYERS, Source, sources

TEXT = """[limits]
"ir" = [3, 2]
"ir/gone" = [5, 1]
"tests" = [9, 9]

[goals]
product = [10, 2]
tests = 4

[goals.folders]
"ir ir/gone" = 1
"""


def test_no_folder_is_above_its_budget() -> None:
    limits = budget.read(budget.FILE.read_text("utf-8")).limits
    assert list(limits) == sorted(limits)
    over = budget.above(budget.present(sources(*LAYERS), sources("tests")), limits)
    assert not over, "remove code or take lines from another folder in tests/architecture/budget.toml:\n" + "\n".join(over)


def test_every_folder_has_one_goal() -> None:
    found = budget.read(budget.FILE.read_text("utf-8"))
    grouped = [name for group in found.goals for name in group.split()]
    assert sorted(grouped) == sorted(set(grouped)), "a folder is in two groups"
    assert {*found.limits} - {"tests"} <= {*grouped}
    assert sum(found.goals.values()) <= found.total_goal[0]


def test_folders_above_their_number_are_found() -> None:
    now = budget.present([Source("ir/a.py", "x = 1\ny = 2\n"), Source("laws/b.py", "x = 1\n")], [Source("tests/a.py", "\n\n")])
    assert now == {"ir": (2, 1), "laws": (1, 1), "tests": (2, 1)}
    assert budget.above(now, {"ir": (2, 1), "laws": (1, 1), "tests": (2, 1)}) == []
    assert budget.above(now, {"ir": (1, 1), "tests": (2, 0)}) == [
        "ir: 2 lines in 1 files, at most 1 in 1",
        "laws: 1 lines in 1 files, at most 0 in 0",
        "tests: 2 lines in 1 files, at most 2 in 0",
    ]


def test_numbers_only_go_down() -> None:
    text = budget.lowered(TEXT, {"ir": (2, 3), "new": (8, 1), "tests": (10, 1)})
    assert budget.read(text).limits == {"ir": (2, 2), "tests": (9, 1)}
    assert budget.read(text).goals == {"ir ir/gone": 1}


def test_the_report_compares_now_limit_and_goal() -> None:
    lines = [*budget.report({"ir": (2, 1), "tests": (8, 1)}, budget.read(TEXT))]
    assert [line.split()[:3] for line in lines[1:]] == [["2", "8", "1"], ["2", "8", "10"], ["1", "3", "2"], ["8", "9", "4"]]
