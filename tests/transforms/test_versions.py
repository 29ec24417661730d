"""Which values are contents of state, and which are carried over calls."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import purefx as px
from tests.transforms.small import calling, lines, number

# Which values are contents of state: told by the operator that the exporter decomposed, or else by their kind.


TWO = number((2,))


def made_from(*targets: str) -> Mapping[str, Any]:
    """Return the meta of a value of two numbers that was made from the first of these, and that from the next one."""
    history: list[Any] = []
    for target in reversed(targets):
        history = [*[SimpleNamespace(target="aten.neg_.default")] * 2, SimpleNamespace(target=target, from_node=history)]
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
    assert is_known(both, l=made_from("one.two", "no.such.operator", "aten.add_.Tensor.more", "aten.add_.Tensor"))
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
        assert lines(result)[3:6] == ["copy_ = aten.copy_.default(n, m) in c", "g = purefx.gives(x) in c", "n_1 = get c.n"]
