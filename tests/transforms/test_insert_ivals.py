"""Contents of state that cross a preserved call: which values are such contents, and where they are written and read.

One idea: a buffer ``c.n`` of a module ``c`` whose call signature is preserved, and a value of it that something else uses; the
text of the result says whether the value still crosses, or goes through the buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

import purefx as px
from tests.transforms.small import number, preserved, shown, told, tree

TWO = number((2,))


def calling(nodes: str, *more: str, metas: Mapping[str, Mapping[str, Any]] | None = None) -> px.Program:
    """Return a program of these nodes, with the buffers ``c.n`` and ``c.m``; the first call of ``c`` is preserved, and more."""
    state = "state {\nbuffer c.n: f32[2]\nbuffer c.m: f32[2]\n}"
    program = tree('graph @""(x) {\n' + nodes + "\n}", state, preserved("c"), *more)
    return told(program, metas or {})


def nodes_of(program: px.Program) -> list[str]:
    """Return the lines of the nodes and of the output, with one space between words."""
    return [" ".join(line.split()) for line in shown(program, "").splitlines()[1:-1]]


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
    result = nodes_of(px.insert_ivals(program))
    assert result[:5] == nodes_of(program)[:5]
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
    assert nodes_of(px.insert_ivals.spend(program, fuel)) == [
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


def test_the_write_bears_the_meta_of_its_value_and_a_read_that_of_the_state() -> None:
    metas = {name: {**TWO, "stack_trace": name} for name in ("n", "m", "k", "n1", "z", "w", "x")}
    result = px.insert_ivals(calling(LATER, preserved("c@1"), metas=metas))
    traces = {node.name: node.meta.get("stack_trace") for node in result.main.nodes}
    assert (traces["copy_"], traces["n1_1"], traces["z"]) == ("m", "n1", "z")


def test_old_contents_that_are_used_later_are_not_written_over() -> None:
    """Something reads what the buffer held before, after the new contents are made."""
    program = calling(LATER.replace("g = purefx", "o = aten.neg.default(n)  in c\n    g = purefx"), preserved("c@1"))
    fuel = px.Fuel(9)
    px.insert_ivals.spend(program, fuel)
    assert fuel.labels == ("read k from c.n",)


def test_what_the_root_gives_back_is_a_copy_of_the_state() -> None:
    program = calling("""
        t = purefx.takes(x)  in c
        n = get c.n  in c
        m = aten.add.Tensor(n, 1)  in c
        s = aten.copy_.default(n, m)  in c
        g = purefx.gives(x)  in c
        return (m,)
    """)
    assert nodes_of(px.insert_ivals(program))[5:] == ["n_1 = get c.n", "clone = aten.clone.default(n_1)", "return (clone,)"]


def test_a_view_of_the_state_is_a_view_of_a_copy() -> None:
    """And an input of the root that is written is read as it is."""
    program = calling("""
        t = purefx.takes(x)  in c
        m = aten.add.Tensor(x, 1)  in c
        s = aten.copy_.default(x, m)  in c
        g = purefx.gives(t)  in c
        z = aten.view.default(m, (2,))
        w = aten.mul.Tensor(z, m)
        return (w,)
    """)
    fuel = px.Fuel(9)
    assert nodes_of(px.insert_ivals.spend(program, fuel))[4:] == [
        "clone = aten.clone.default(x)",
        "z = aten.view.default(clone, (2,))",
        "w = aten.mul.Tensor(z, x)",
        "return (w,)",
    ]
    assert fuel.labels == ("read m from x",)


@pytest.mark.parametrize("named", ["t1 = purefx.takes(m)  in d", "g = purefx.gives(m)  in c"])
def test_a_value_that_a_signature_names_crosses_nothing(named: str) -> None:
    """It is given by the one call, or taken by the other."""
    given = named if named.startswith("g") else "g = purefx.gives(m)  in c"
    taken = named if named.startswith("t") else "t1 = purefx.takes(m)  in d"
    program = calling(
        f"""
        t = purefx.takes(x)  in c
        n = get c.n  in c
        m = aten.add.Tensor(n, 1)  in c
        s = aten.copy_.default(n, m)  in c
        {given}
        {taken}
        z = aten.mul.Tensor(x, m)  in d
        g1 = purefx.gives(z)  in d
        return (z,)
        """,
        preserved("d"),
    )
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
    assert nodes_of(px.insert_ivals(program))[4:6] == ["n_1 = get c.n in c", "z = aten.mul.Tensor(x, n_1) in c"]


def made_from(*targets: str) -> Mapping[str, Any]:
    """Return the meta of a value of two numbers that was made from these operators, the last one before the others."""
    history: list[Any] = []
    for target in reversed(targets):
        history = [SimpleNamespace(target="decoy.decoy.decoy", from_node=[]), SimpleNamespace(target=target, from_node=history)]
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


def test_operands_of_another_kind_are_no_version() -> None:
    assert is_known("aten.add.Tensor(m, k)", k=number((1,)))
    assert is_known("aten.add.Tensor(m, k)", k={})
    assert not is_known("aten.add.Tensor(m, 1)", m=number((1,)))


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


def test_a_history_that_does_not_fit_decides_nothing() -> None:
    """What it says was written has another shape, so the one operand that has the same is taken."""
    assert is_known("aten.add.Tensor(k, m)", l=made_from("aten.add_.Tensor"), k=number((1,)))
    assert is_known("aten.add.Tensor(n, m)", l=made_from("aten.add_.Tensor"), n={})


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
    result = nodes_of(px.insert_ivals(program))
    assert sorted(result[12:14]) == ["m_1 = get c.m", "n_1 = get c.n"]
    assert result[14:] == ["z = aten.mul.Tensor(n_1, m_1)", "return (z,)"]


def test_a_part_of_what_no_operator_made_has_no_version_before() -> None:
    assert not is_known("operator.getitem((m, x), 0)")
    assert not is_known("operator.getitem(x, 0)")


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
        assert nodes_of(result)[3:6] == ["copy_ = aten.copy_.default(n, m) in c", "g = purefx.gives(x) in c", "n_1 = get c.n"]


def test_an_input_that_is_written_is_compared_as_well() -> None:
    nodes = """
        t = purefx.takes(x)  in c
        m = aten.add.Tensor(x, 1)  in c
        s = aten.copy_.default(x, m)  in c
        g = purefx.gives(t)  in c
        z = aten.neg.default(m)
        return (z,)
    """
    assert "z = aten.neg.default(x)" in nodes_of(px.insert_ivals(calling(nodes, metas={"x": TWO, "m": TWO})))
    other = calling(nodes, metas={"x": number((1,)), "m": TWO})
    assert px.insert_ivals(other) is other


def test_only_preserved_calls_are_looked_at() -> None:
    program = calling(LATER, preserved("c@1"))
    nobody = program.evolve(call_signatures=px.pmap({}))
    assert px.insert_ivals(nobody) is nobody
    main = evolve(program.main, nodes=tuple(node for node in program.main.nodes if node.name not in ("g", "t", "g1", "t1")))
    unmarked = program.with_main(main)
    assert px.insert_ivals(unmarked) is unmarked
