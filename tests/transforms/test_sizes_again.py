"""Sizes that cross a call are computed again: where, from what, and which numbers are no sizes.

One idea: an input of one dimension whose size is a symbol, a module ``c`` whose call signature is preserved, and a number that is
made on one side of its boundary and used on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import purefx as px
from tests.transforms.small import lines, preserved, symbolic, told, tree

N, M = symbolic()

SIZE, OTHER = N.shape[0], M.shape[0]

VALUES: Mapping[str, Any] = {"x": N, "w": M, "n": SIZE, "k": OTHER, "h": SIZE * 2, "y": N, "i": SIZE + OTHER, "o": SIZE}


def sized(nodes: str, *more: str) -> px.Program:
    """Return a program of these nodes, with what their values are; the first call of ``c`` is preserved if nothing is said."""
    program = tree('graph @""(x) {\n' + nodes + "\n}", *(more or (preserved("c"),)))
    return told(program, {name: {"val": value, "stack_trace": name} for name, value in VALUES.items()})


OUT = """
    t = purefx.takes(x)  in c
    n = aten.sym_size.int(x, 0)  in c
    g = purefx.gives(x)  in c
    z = aten.view.default(x, (n,))  STACK
    u = aten.view.default(z, (n,))  STACK
    return (u,)
"""


@pytest.mark.parametrize("stack", ["", "in d", "in d / .e"])
def test_a_size_that_leaves_is_computed_again_for_each_use(stack: str) -> None:
    """Where it is used, also in modules whose calls are not preserved, once for each; what has no use left goes."""
    program, fuel = sized(OUT.replace("STACK", stack)), px.Fuel(9)
    result = px.insert_ivals.spend(program, fuel)
    inside = f" {stack}".rstrip()
    assert lines(result)[2:] == [
        f"n_1 = aten.sym_size.int(x, 0){inside}",
        f"z = aten.view.default(x, (n_1,)){inside}",
        f"u = aten.view.default(z, (n_1,)){inside}",
        "return (u,)",
    ]
    assert dict(result.main.by_name["n_1"].meta) == {"val": SIZE}
    assert px.insert_ivals(result) is result


def test_a_size_that_enters_is_read_off_what_the_call_takes() -> None:
    """A second call computes it for itself, and what a call takes is used by its caller."""
    program = sized(
        """
        n = aten.sym_size.int(x, 0)
        y = aten.view.default(x, (n,))
        t = purefx.takes(1, y)  in c
        z = aten.view.default(y, (n,))  in c / .d
        g = purefx.gives(z)  in c
        t1 = purefx.takes(x, n)  in c@1
        w = aten.view.default(x, (n,))  in c@1
        g1 = purefx.gives(w)  in c@1
        return (w,)
        """,
        preserved("c", "(number, y)", "((*, *), {})"),
        preserved("c@1", "(x, size)", "((*, *), {})"),
    )
    result = lines(px.insert_ivals(program))
    assert result[3:5] == ["n_1 = aten.sym_size.int(y, 0) in c / .d", "z = aten.view.default(y, (n_1,)) in c / .d"]
    assert result[5:] == lines(program)[4:]


def test_what_is_computed_from_sizes_is_computed_again_with_them() -> None:
    """Each number once, in an order in which it can be computed."""
    result = px.insert_ivals(
        sized("""
        t = purefx.takes(x)  in c
        n = aten.sym_size.int(x, 0)  in c
        h = operator.add(n, n)  in c
        o = operator.floordiv(h, 2)  in c
        g = purefx.gives(x)  in c
        z = aten.view.default(x, (n,))
        u = aten.expand.default(z, (o, h, n))
        return (u,)
        """)
    )
    assert lines(result)[2:] == [
        "n_1 = aten.sym_size.int(x, 0)",
        "z = aten.view.default(x, (n_1,))",
        "h_1 = operator.add(n_1, n_1)",
        "o_1 = operator.floordiv(h_1, 2)",
        "u = aten.expand.default(z, (o_1, h_1, n_1))",
        "return (u,)",
    ]
    assert result.main.by_name["h_1"].meta["val"] == SIZE * 2


def test_what_no_other_use_needed_is_computed_as_well() -> None:
    result = px.insert_ivals(
        sized("""
        t = purefx.takes(x)  in c
        n = aten.sym_size.int(x, 0)  in c
        h = operator.add(n, 1)  in c
        o = operator.floordiv(h, 2)  in c
        g = purefx.gives(x)  in c
        z = aten.view.default(x, (o,))
        return (z,)
        """)
    )
    made = ["n_1 = aten.sym_size.int(x, 0)", "h_1 = operator.add(n_1, 1)", "o_1 = operator.floordiv(h_1, 2)"]
    assert lines(result)[2:] == [*made, "z = aten.view.default(x, (o_1,))", "return (z,)"]


def test_a_number_that_is_made_of_nothing_is_made_again() -> None:
    result = px.insert_ivals(sized(OUT.replace("aten.sym_size.int(x, 0)", "toy.count() ! pure").replace("STACK", "")))
    assert lines(result)[2:4] == ["n_1 = toy.count() ! pure", "z = aten.view.default(x, (n_1,))"]


def test_what_the_program_gives_is_a_use() -> None:
    result = px.insert_ivals(
        sized("t = purefx.takes(x)  in c\nn = aten.sym_size.int(x, 0)  in c\ng = purefx.gives(x)  in c\nreturn (n,)")
    )
    assert lines(result)[2:] == ["n_1 = aten.sym_size.int(x, 0)", "return (n_1,)"]


STAYS = {
    "no tensor has it": OUT.replace("n = aten.sym_size.int(x, 0)", "k = aten.sym_size.int(x, 0)").replace("(n,)", "(k,)"),
    "an operator of more than numbers": OUT.replace("n = aten.sym_size.int(x, 0)", "n = aten._local_scalar_dense.default(x)"),
    "it is given a keyword": OUT.replace("(x, 0)", "(x, dim=0)"),
    "it has an effect": OUT.replace("n = aten.sym_size.int(x, 0)", "n = toy.next(3) ! ordered"),
    "it is random": OUT.replace("n = aten.sym_size.int(x, 0)", "n = toy.next(3) ! random"),
    "nothing is known of it": OUT.replace("n = aten.sym_size.int(x, 0)", "n = toy.next(3) ! unknown"),
    "it is a tensor": OUT.replace("n = aten.sym_size.int(x, 0)", "y = aten.neg.default(x)").replace("(n,)", "(y,)"),
}


@pytest.mark.parametrize("why", STAYS)
def test_other_numbers_stay(why: str) -> None:
    program = sized(STAYS[why].replace("STACK", ""))
    assert px.insert_ivals(program) is program


def test_a_size_that_the_call_gives_is_used_as_it_is() -> None:
    program = sized(OUT.replace("STACK", "").replace("gives(x)", "gives(x, n)"), preserved("c", out_spec="(*, *)"))
    assert px.insert_ivals(program) is program


def test_what_is_computed_from_another_number_stays() -> None:
    """And so does what it is computed from."""
    program = sized("""
        t = purefx.takes(x)  in c
        n = aten.sym_size.int(x, 0)  in c
        k = aten._local_scalar_dense.default(x)  in c
        i = operator.add(n, k)  in c
        g = purefx.gives(x)  in c
        z = aten.view.default(x, (i,))
        return (z,)
    """)
    assert px.insert_ivals(program) is program
