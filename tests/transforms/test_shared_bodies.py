"""Equal bodies become one, calls are given bodies of their own, and bodies are put in the place of calls."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.laws import toy
from tests.models import MUL, calls, flat
from tests.transforms.small import number, preserved, shown, tree


def test_literals_are_compared_with_their_type() -> None:
    """x * 1, x * 1.0 and x * True are three bodies."""
    nodes = [
        px.Node(f"n{index}", MUL, (px.Ref("x"), value), (), (px.Frame(f"m{index}"),))
        for index, value in enumerate([1, 1.0, True, 1])
    ]
    program = px.deduplicate(
        px.outline(flat(nodes, tuple(px.Ref(node.name) for node in nodes), "x"))
    )
    assert [node.do.graph for node in program.main.nodes if isinstance(node.do, px.Call)] == [
        "m0",
        "m1",
        "m2",
        "m0",
    ]


TWO_CALLS = """
    graph @""(x) {
      y = call @a(x) as a
      z = call @b(y) as b
      return (z,)
    }
"""


EQUAL = """
    graph @a(x) {
      y = aten.neg.default(x)
      return y
    }
    graph @b(x) {
      y = aten.neg.default(x)
      return y
    }
"""

SIGNATURES = {
    "one": ((preserved("a"), preserved("b")), True),
    "none": ((), True),
    "only one has one": ((preserved("a"),), False),
    "names": ((preserved("a"), preserved("b", names="(other)")), False),
    "arguments": ((preserved("a"), preserved("b", in_spec='((), {"x": *})')), False),
    "results": ((preserved("a"), preserved("b", out_spec="(*,)")), False),
}


@pytest.mark.parametrize("which", SIGNATURES)
def test_bodies_that_are_called_differently_stay_apart(which: str) -> None:
    """A body is called as its preserved signature says, so two with different ones are two."""
    sections, merged = SIGNATURES[which]
    result = px.deduplicate(tree(TWO_CALLS + EQUAL, *sections))
    assert result.order == (("", "a") if merged else ("", "a", "b"))


def test_signatures_are_those_of_the_module_and_of_the_call() -> None:
    """The first call of ``a`` and the second of ``b`` are called alike; ``b`` as such has no signature."""
    graphs = """
        graph @""(x) {
          y = call @a(x) as a
          z = call @b(y) as b@1
          return (z,)
        }
    """
    assert px.deduplicate(tree(graphs + EQUAL, preserved("a"), preserved("b@1"))).order == ("", "a")
    assert px.deduplicate(tree(graphs + EQUAL, preserved("a"), preserved("b"))).order == (
        "",
        "a",
        "b",
    )


# Copies of shared bodies: which numbers their calls get, and what they may say of their values.


BODY = """
    graph @a(x) {
      y = aten.neg.default(x)
      return y
    }
"""


def called_as(*frames: str) -> str:
    """Return the text of a root that calls ``@a`` in a row, each time as one of these."""
    calls = [
        f"y{index} = call @a({f'y{index - 1}' if index else 'x'}) as {frame}"
        for index, frame in enumerate(frames)
    ]
    return "\n".join(['graph @""(x) {', *calls, f"return (y{len(frames) - 1},)", "}"]) + BODY


SIGNED = (preserved("a"), preserved("a@2", names="(other)"), preserved("a@3"))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (("a", "a", "a"), ["a", "a@3", "a@4"]),
        (("a@2", "a@2"), ["a@2", "a@4"]),
        (("a@1", "a@1", "a@1"), ["a@1", "a@4", "a@5"]),
        (("a", "a", "a", "a@1", "a@1"), ["a", "a@3", "a@4", "a@1", "a@5"]),
        (("a@1", "a@1", "a", "a", "a"), ["a@1", "a@4", "a", "a@3", "a@5"]),
    ],
)
def test_a_number_belongs_to_calls_that_are_called_alike(
    given: tuple[str, ...], made: list[str]
) -> None:
    """One that another signature has is left out, and so is one that has none among those that have."""
    program = tree(called_as(*given), *SIGNED)
    result = px.expand(program)
    assert calls(result) == made
    signed = [
        [
            str(each.call_signatures.get(node.do.instance))  # type: ignore[union-attr]
            for node in each.main.callers
        ]
        for each in (program, result)
    ]
    assert signed[0] == signed[1]


# Calls that stay, and bodies of operators, are named from the root.


STATE = "state {\nbuffer a.n: f32[2]\nbuffer a.c.n: f32[2]\n}"


def chooses(name: str, true: str, false: str) -> str:
    """Return the text of a body that hands its input to one of two branches."""
    lines = [
        f'y = higher_order.cond(x, @"{true}", @"{false}", (x,))',
        "z = operator.getitem(y, 0)",
        "return z",
    ]
    return "\n".join([f"graph @{name}(x) {{", *lines, "}"])


GRAPHS = f"""
    graph @""(x) {{
      y = call @a(x) as a
      return (y,)
    }}
    {chooses("a", "$t", "$f")}
    graph @"$t"(v) {{
      n = get n
      w = aten.add.Tensor(v, n)
      z = call @c(w) as c@1
      return (z,)
    }}
    graph @"$f"(v) {{
      w = aten.neg.default(v)
      return (w,)
    }}
    graph @c(v) {{
      n = get n
      w = aten.mul.Tensor(v, n)
      return w
    }}
"""

ROOT = """graph @""(x) {
  y = higher_order.cond(x, @$t, @$f, (x,))  in a
  z = operator.getitem(y, 0)                in a
  return (z,)
}"""


def test_branches_are_named_from_the_root() -> None:
    program = tree(GRAPHS, STATE)
    result = px.inline(program)
    assert px.verify(result) == ()
    assert shown(result, "") == ROOT
    assert [
        line.partition("  in ")[0].strip() for line in shown(result, "$t").splitlines()[1:-1]
    ] == [
        "n = get a.n",
        "w = aten.add.Tensor(v, n)",
        "n_1 = get a.c.n",
        "w_1 = aten.mul.Tensor(w, n_1)",
        "return (w_1,)",
    ]
    assert result.graphs["$f"] is program.graphs["$f"]


TWICE = """
    graph @""(x) {
      a = call @g(x) as a
      b = call @g(a) as b
      return (b,)
    }
    graph @g(x) {
      a = call @h(x) as a
      b = call @h(a) as b
      return b
    }
    graph @h(x) {
      y = aten.neg.default(x)
      return y
    }
"""


def test_what_expand_may_make_is_counted_to_the_node() -> None:
    """Two calls in the root, two in each of its two bodies, and four leaves."""
    assert len(list(px.expand(tree(TWICE), at_most=10).nodes())) == 10
    for transformation in (px.expand, px.inline):
        with pytest.raises(px.errors.UnsupportedProgram, match=r"10 nodes, more than 9.*at_most"):
            transformation(tree(TWICE), at_most=9)


@pytest.mark.parametrize(("slot", "argument"), [(2, 2), (3, 2), (2, 3), (3, 3)])
def test_fake_values_hold_where_arguments_and_state_have_those_shapes(
    slot: int, argument: int
) -> None:
    """The body was traced in `a` with two elements; in `b` its values are those of `b`, or nothing is said of them."""
    two, other = number((2,)), number((argument,))
    inner = (
        px.Node("read", px.Get("w"), meta=two),
        px.Node("y", toy.ADD, (px.Ref("x"), px.Ref("read")), meta=two),
    )
    body = px.Graph((px.Input("x", two),), inner, px.Ref("y"))
    calls = tuple(
        px.Node(name, px.Call(px.Frame(name), "body"), (px.Ref(of),)) for name, of in ("ap", "bq")
    )
    main = px.Graph((px.Input("p", two), px.Input("q", other)), calls, (px.Ref("a"), px.Ref("b")))
    base = px.Program.of(
        {"": main, "body": body}, signature=px.ir.Signature((USER, USER), (px.ir.UserOutput(),) * 2)
    )
    whole = base.with_state(add={"a.w": torch.zeros(2), "b.w": torch.zeros(slot)})
    first, second = (px.expand(whole).graphs[name] for name in ("body", "b"))
    assert first is body
    assert second.nodes[0].meta["val"].shape == (slot,)
    assert second.inputs[0].meta["val"].shape == (argument,)
    assert ("val" in second.nodes[1].meta) == (slot == argument == 2)


USER = px.ir.UserInput(px.ir.ObjectType(), "x")
