"""Calls are given bodies of their own, and bodies are put in the place of calls."""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import preserved, shown, tree

# Copies of shared bodies: which numbers their calls get, and what they may say of their values.


BODY = """
    graph @a(x) {
      y = aten.neg.default(x)
      return y
    }
"""


def calling(*frames: str) -> str:
    """Return the text of a root that calls ``@a`` in a row, each time as one of these."""
    calls = [f"y{index} = call @a({f'y{index - 1}' if index else 'x'}) as {frame}" for index, frame in enumerate(frames)]
    return "\n".join(['graph @""(x) {', *calls, f"return (y{len(frames) - 1},)", "}"]) + BODY


def frames(program: px.Program) -> list[str]:
    """Return what the root calls, in order."""
    return [str(node.do.instance) for node in program.main.nodes if isinstance(node.do, px.Call)]


def test_a_copy_is_called_as_the_call_was() -> None:
    """Its new number has the preserved signature of the old one."""
    program = px.expand(tree(calling("a", "a", "a"), preserved("a", names="(given)")))
    assert frames(program) == ["a", "a@1", "a@2"]
    assert {str(frame): program.call_signatures[frame].arg_names for frame in program.call_signatures} == {
        "a": ("given",), "a@1": ("given",), "a@2": ("given",),
    }  # fmt: skip
    assert px.verify(program) == ()


SIGNATURES = (preserved("a"), preserved("a@2", names="(other)"), preserved("a@3"))


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
def test_a_number_belongs_to_calls_that_are_called_alike(given: tuple[str, ...], made: list[str]) -> None:
    """One that another signature has is left out, and so is one that has none among those that have."""
    program = tree(calling(*given), *(text for text in SIGNATURES))
    result = px.expand(program)
    assert frames(result) == made
    names = [result.call_signatures.get(node.do.instance) for node in result.main.nodes if isinstance(node.do, px.Call)]
    assert names == [program.call_signatures.get(node.do.instance) for node in program.main.nodes if isinstance(node.do, px.Call)]


# Calls that stay, and bodies of operators, when others are put in their places: what they call and read is named from the
# root.


STATE = "state {\nbuffer a.n: f32[2]\nbuffer a.c.n: f32[2]\n}"


def chooses(name: str, true: str, false: str) -> str:
    """Return the text of a body that hands its input to one of two branches."""
    lines = [f'y = higher_order.cond(x, @"{true}", @"{false}", (x,))', "z = operator.getitem(y, 0)", "return z"]
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
    assert [line.partition("  in ")[0].strip() for line in shown(result, "$t").splitlines()[1:-1]] == [
        "n = get a.n",
        "w = aten.add.Tensor(v, n)",
        "n_1 = get a.c.n",
        "w_1 = aten.mul.Tensor(w, n_1)",
        "return (w_1,)",
    ]
    assert result.graphs["$f"] is program.graphs["$f"]
