"""Tables of tests: ``make test`` runs each pair of values of two axes, or each value, ``make deep`` the rest."""

from __future__ import annotations

from itertools import combinations, product

from tests.tables import covering, in_turns, table, taking_turns

ROWS = list(product("abcdefg", "xyz", "01", "tf", "pq"))


def test_each_pair_of_values_is_in_a_quick_row() -> None:
    quick = covering(ROWS)
    for one, two in combinations(range(5), 2):
        assert {(row[one], row[two]) for row in ROWS} == {(row[one], row[two]) for row in quick}
    assert len(quick) < 30


def test_each_value_is_in_a_quick_row_where_axes_take_turns() -> None:
    quick = taking_turns(ROWS)
    assert len(quick) == 7 and set(quick) <= set(ROWS)
    assert [set(axis) for axis in zip(*quick, strict=True)] == [
        *map(set, ("abcdefg", "xyz", "01", "tf", "pq"))
    ]
    params = in_turns(run="abc", strict={"yes": True, "no": False}).args[1]
    assert [each.id for each in params if not each.marks] == ["a-yes", "b-no", "c-yes"]


def test_the_other_rows_are_deep() -> None:
    mark = table(run="abcdefg", size={"none": 0, "one": 1}, strict={"yes": True, "no": False})
    names, params = mark.args
    assert names == ("run", "size", "strict") and len(params) == 28
    quick = [each for each in params if not each.marks]
    assert [each.id for each in params][:2] == ["a-none-yes", "a-none-no"]
    assert params[0].values == ("a", 0, True) and 14 <= len(quick) < 20
