"""No folder has more lines of code or more files than its budget."""

from __future__ import annotations

from tests.architecture import budget
from tests.architecture.sources import LAYERS, sources


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
