"""Contents of state that cross a preserved call: which values are such contents, and where they are written and read.

A buffer ``c.n`` of a module ``c`` whose call signature is preserved, and a value of it that something else uses; the
text of the result says whether the value still crosses, or goes through the buffer.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import calling, lines, preserved


def test_what_is_stored_is_read_where_it_is_used() -> None:
    """The first example of the documentation: the write is there already."""
    program = calling("""
        t = purefx.takes(x)  in c
        n = get c.n  in c
        m = aten.add.Tensor(n, 1)  in c
        s = aten.copy_.default(n, m)  in c
        g = purefx.gives(x)  in c
        z = aten.mul.Tensor(x, m)
        return (z,)
    """)
    result = lines(px.insert_ivals(program))
    assert result[:5] == lines(program)[:5]
    assert result[5:] == ["n_1 = get c.n", "z = aten.mul.Tensor(x, n_1)", "return (z,)"]


LATER = """
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    g = purefx.gives(x)  in c
    z = aten.mul.Tensor(x, other=m)
    t1 = purefx.takes(z)  in c@1
    k = aten.mul.Tensor(m, 2)  in c@1
    n1 = get c.n  in c@1
    s = aten.copy_.default(n1, k)  in c@1
    g1 = purefx.gives(z)  in c@1
    w = aten.sub.Tensor(z, k)
    return (w,)
"""


def test_every_version_is_written_once_and_read_wherever_it_is_used() -> None:
    """The second call makes of the first one's contents new ones, which are the last; the root reads the buffer for both."""
    program = calling(LATER, preserved("c@1"))
    fuel = px.Fuel(9)
    assert lines(px.insert_ivals.spend(program, fuel)) == [
        "t = purefx.takes(x) in c",
        "n = get c.n in c",
        "m = aten.add.Tensor(n, 1) in c",
        "copy_ = aten.copy_.default(n, m) in c",
        "g = purefx.gives(x) in c",
        "n1_1 = get c.n",
        "z = aten.mul.Tensor(x, other=n1_1)",
        "t1 = purefx.takes(z) in c@1",
        "n1_2 = get c.n in c@1",
        "k = aten.mul.Tensor(n1_2, 2) in c@1",
        "n1 = get c.n in c@1",
        "s = aten.copy_.default(n1, k) in c@1",
        "g1 = purefx.gives(z) in c@1",
        "w = aten.sub.Tensor(z, n1_1)",
        "return (w,)",
    ]
    assert fuel.labels == ("read k from c.n", "read m from c.n")


def test_a_view_of_the_state_is_a_view_of_a_copy() -> None:
    """And an input of the root that is written is read as it is."""
    program = calling(
        """
        t = purefx.takes(x)  in c
        m = aten.add.Tensor(x, 1)  in c
        s = aten.copy_.default(x, m)  in c
        g = purefx.gives(x)  in c
        z = aten.view.default(m, (2,))  in d
        w = aten.mul.Tensor(z, m)
        return (w,)
    """,
        metas={"m": {"stack_trace": "m"}},
    )
    fuel = px.Fuel(9)
    result = px.insert_ivals.spend(program, fuel)
    assert lines(result)[4:] == [
        "clone = aten.clone.default(x) in d",
        "z = aten.view.default(clone, (2,)) in d",
        "w = aten.mul.Tensor(z, x)",
        "return (w,)",
    ]
    assert fuel.labels == ("read m from x",)
    assert result.main.by_name["clone"].meta == {"stack_trace": "m"}


STORED = """
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    s = aten.copy_.default(n, m)  in c
    LATER  in c
    g = purefx.gives(x)  in c
    z = aten.mul.Tensor(x, m)
    return (z,)
"""


@pytest.mark.parametrize("later", ["w = aten.add_.Tensor(n, 1)", "w = aten.add_.Tensor(m, 1)"])
def test_a_value_or_state_that_is_written_later_is_not_the_other(later: str) -> None:
    program = calling(STORED.replace("LATER", later))
    assert px.insert_ivals(program) is program


def test_contents_that_enter_a_call_unnamed_are_read_there() -> None:
    """They are made in the root, and what stands in for the module knows its buffer only."""
    program = calling("""
        n = get c.n
        m = aten.add.Tensor(n, 1)
        s = aten.copy_.default(n, m)
        t = purefx.takes(x)  in c
        z = aten.mul.Tensor(x, m)  in c
        g = purefx.gives(z)  in c
        return (z,)
    """)
    assert lines(px.insert_ivals(program))[4:6] == ["n_1 = get c.n in c", "z = aten.mul.Tensor(x, n_1) in c"]
