"""Contents of state that cross a preserved call: which values are such contents, and where they are written and read."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import purefx as px
from tests.transforms.small import calling, lines, number, preserved

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
    assert lines(px.insert_ivals(program))[4:6] == [
        "n_1 = get c.n in c",
        "z = aten.mul.Tensor(x, n_1) in c",
    ]


# Which values are contents of state: told by the operator that the exporter decomposed, or else by their kind.


TWO = number((2,))


def made_from(*targets: str) -> Mapping[str, Any]:
    """Return the meta of a value of two numbers that was made from the first of these, and that from the next one."""
    history: list[Any] = []
    for target in reversed(targets):
        history = [
            *[SimpleNamespace(target="aten.neg_.default")] * 2,
            SimpleNamespace(target=target, from_node=history),
        ]
    return {**TWO, "from_node": history}


STEP = """
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    k = OTHER  in c
    l = LAST  in c
    s = aten.copy_.default(n, l)  in c
    g = purefx.gives(x)  in c
    z = aten.mul.Tensor(x, l)
    return (z,)
"""


def is_known(last: str, other: str = "aten.add.Tensor(x, 2)", **metas: Mapping[str, Any]) -> bool:
    """Say whether the last contents of ``c.n`` are known to be made of its old ones."""
    values = {**dict.fromkeys(["x", "n", "m", "k", "l"], TWO), **metas}
    program = calling(STEP.replace("OTHER", other).replace("LAST", last), metas=values)
    return px.insert_ivals(program) is not program


def test_one_operand_of_the_same_kind_is_the_version_before() -> None:
    assert is_known("aten.add.Tensor(m, 1)")
    assert is_known("aten.mul.Tensor(m, 2)")
    assert is_known("aten.neg.default(n)")
    assert is_known("aten.add.Tensor(m, n)")
    assert not is_known("aten.neg.default(x)")
    assert not is_known("aten.neg.default(k)")


def test_of_several_the_one_that_the_same_operator_made_is_the_version_before() -> None:
    assert is_known("aten.add.Tensor(m, k)", "aten.mul.Tensor(x, 2)")
    assert not is_known("aten.add.Tensor(m, k)", "aten.add.Tensor(x, 2)")
    assert not is_known("aten.mul.Tensor(m, k)", "aten.add.Tensor(x, 2)")


def test_an_operator_that_wrote_one_operand_says_so() -> None:
    """What the exporter decomposed is in the history of a node, at any depth."""
    both = "aten.add.Tensor(m, k)"
    assert not is_known(both)
    assert is_known(both, l=made_from("aten.add_.Tensor"))
    assert is_known(both, l=made_from("aten.add.Tensor", "aten.add_.Tensor"))
    assert is_known(both, l=made_from("add", "aten.add_.Tensor", "aten.add.Tensor"))
    assert is_known(
        both,
        l=made_from("one.two", "no.such.operator", "aten.add_.Tensor.more", "aten.add_.Tensor"),
    )
    assert not is_known(both, l=made_from("aten.add.Tensor"))
    assert not is_known(both, l=made_from("aten.add_.Tensor.more"))
    assert not is_known("aten.add.Tensor(k, m)", l=made_from("aten.add_.Tensor"))
    assert is_known("aten.add.Tensor(self=m, other=k)", l=made_from("aten.add_.Tensor"))
    assert not is_known("aten.neg.default(x)", l=made_from("aten.neg_.default"))


def test_of_an_operator_that_gives_several_values_the_same_part_is_taken() -> None:
    """Running mean and variance have one shape: the new mean is made of the old mean."""
    program = calling(
        """
        t = purefx.takes(x)  in c
        n = get c.n  in c
        m = get c.m  in c
        b = aten._native_batch_norm_legit_functional.default(x, None, None, n, m, True, 0.1, 1e-05)  in c
        p = operator.getitem(b, 3)  in c
        q = operator.getitem(b, 4)  in c
        d = aten._native_batch_norm_legit_functional.default(x, None, None, p, q, True, 0.1, 1e-05)  in c
        k = operator.getitem(d, 3)  in c
        l = operator.getitem(d, 4)  in c
        s = aten.copy_.default(n, k)  in c
        u = aten.copy_.default(m, l)  in c
        g = purefx.gives(x)  in c
        z = aten.mul.Tensor(k, l)
        return (z,)
        """,
        metas=dict.fromkeys(["x", "n", "m", "p", "q", "k", "l"], TWO),
    )
    result = lines(px.insert_ivals(program))
    assert sorted(result[12:14]) == ["m_1 = get c.m", "n_1 = get c.n"]
    assert result[14:] == ["z = aten.mul.Tensor(n_1, m_1)", "return (z,)"]


HALF_WAY = """
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    g = purefx.gives(x)  in c
    z = aten.mul.Tensor(x, m)
    l = aten.add.Tensor(m, 1)
    s = aten.copy_.default(n, l)
    return (z,)
"""


def test_a_value_that_was_never_the_contents_stays_a_value() -> None:
    """Where the history says that an operator wrote nothing, its result is half of a computation."""
    metas = dict.fromkeys(["x", "n", "m", "l", "z"], TWO)
    program = calling(HALF_WAY, metas={**metas, "m": made_from("aten.add.Tensor")})
    assert px.insert_ivals(program) is program
    for known in (TWO, made_from("aten.add_.Tensor")):
        result = px.insert_ivals(calling(HALF_WAY, metas={**metas, "m": known}))
        assert lines(result)[3:6] == [
            "copy_ = aten.copy_.default(n, m) in c",
            "g = purefx.gives(x) in c",
            "n_1 = get c.n",
        ]
