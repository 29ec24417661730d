"""Tokens that order nothing any more: they go out of signatures, operands, results and meta, and nothing else does.

One idea: an operator with bodies that takes a token among its operands, as the text of the program before and after.
"""

from __future__ import annotations

from types import MappingProxyType

import pytest
from attrs import evolve

import purefx as px
from tests.transforms.small import lines, shown

TEXT = """program {{
  takes {{
    token
    user x: f32[2]
    user p: f32[2]
  }}
  gives {{
    token
    input 1
    user
  }}
  graph @""(t, x, p) {{
    q = operator.getitem(p, 0)
    r = {operator}
    t1 = operator.getitem(r, 0)
    y = operator.getitem(r, 1)
    n = aten.neg.default(x)
    return (t1, n, y)
  }}
  graph @$a(t, v) {{
    w = aten.sin.default(v)
    return (t, w)
  }}
  graph @$b(t, v) {{
    w = higher_order.cond(v, @$c, @$c, [v])
    z = operator.getitem(w, 0)
    return [t, z]
  }}
  graph @$c(v) {{
    return (v,)
  }}
}}"""

OPERANDS = {
    "a tuple": ("higher_order.cond(x, @$a, @$b, (t, x))", "higher_order.cond(x, @$a, @$b, (x,))"),
    "a list": ("higher_order.cond(x, @$a, @$b, [t, x])", "higher_order.cond(x, @$a, @$b, [x])"),
    "arguments": ("toy.region(@$a, @$b, [x], t, x) ! through_bodies", "toy.region(@$a, @$b, [x], x) ! through_bodies"),
    "bodies behind": ("toy.region(t, x, @$a, @$b) ! through_bodies", "toy.region(x, @$a, @$b) ! through_bodies"),
    "bodies by keyword": ("toy.region(t, x, a=@$a, b=@$b) ! through_bodies", "toy.region(x, a=@$a, b=@$b) ! through_bodies"),
    "a tuple before": (
        "toy.region((x, x), @$a, @$b, t, x) ! through_bodies",
        "toy.region((x, x), @$a, @$b, x) ! through_bodies",
    ),
}


def parsed(operator: str) -> px.Program:
    """Return the program with one operator that takes the token."""
    program = px.parse(TEXT.format(operator=operator))
    assert px.verify(program) == ()
    return program


@pytest.mark.parametrize("how", OPERANDS)
def test_an_operator_takes_what_is_no_token(how: str) -> None:
    """Its operands stay the list or the tuple that they were, and other lists as they are."""
    before, after = OPERANDS[how]
    result = px.remove_effect_tokens(parsed(before))
    assert px.verify(result) == ()
    assert lines(result) == [
        "q = operator.getitem(p, 0)",
        f"r = {after}",
        "y = operator.getitem(r, 0)",
        "n = aten.neg.default(x)",
        "return (n, y)",
    ]
    assert [node.do.name for node in result.graphs["$a"].nodes if isinstance(node.do, px.Op)] == ["aten.sin.default"]
    assert shown(result, "$a").splitlines()[-2].strip() == "return (w,)"
    assert shown(result, "$b").splitlines()[-2].strip() == "return [z]"


def test_inputs_that_are_mutated_are_counted_without_tokens() -> None:
    result = px.remove_effect_tokens(parsed(OPERANDS["a tuple"][0]))
    assert [type(spec) for spec in result.signature.inputs] == [px.UserInput, px.UserInput]
    assert result.signature.outputs == (px.InputMutation(0), px.UserOutput())


def test_bodies_without_tokens_stay_the_same_objects() -> None:
    program = parsed(OPERANDS["a tuple"][0])
    result = px.remove_effect_tokens(program)
    assert result.graphs["$c"] is program.graphs["$c"]
    assert result.graphs["$b"].by_name["w"] is program.graphs["$b"].by_name["w"]


def test_a_module_call_that_takes_no_token_stays() -> None:
    program = parsed(OPERANDS["a tuple"][0])
    call = px.Node("u", px.Call(px.Frame("m"), "$c"), (px.Ref("x"),))
    result = px.remove_effect_tokens(program.with_main(evolve(program.main, nodes=(*program.main.nodes, call))))
    assert result.main.nodes[-1] is call


@pytest.mark.parametrize("value", [("token", 7), ["token", 7]], ids=["tuple", "list"])
def test_meta_tells_the_values_that_are_left(value: object) -> None:
    """And keeps what else it says."""
    program = parsed(OPERANDS["a tuple"][0])
    meta = MappingProxyType({"val": value, "stack_trace": "here"})
    nodes = tuple(evolve(node, meta=meta) if node.name == "r" else node for node in program.main.nodes)
    result = px.remove_effect_tokens(program.with_main(evolve(program.main, nodes=nodes)))
    assert dict(result.main.by_name["r"].meta) == {"val": (7,), "stack_trace": "here"}


def test_meta_that_tells_no_values_stays() -> None:
    program = parsed(OPERANDS["a tuple"][0])
    nodes = tuple(evolve(node, meta=MappingProxyType({"val": 3})) for node in program.main.nodes)
    result = px.remove_effect_tokens(program.with_main(evolve(program.main, nodes=nodes)))
    assert all(node.meta == {"val": 3} for node in result.main.nodes)


def test_a_token_that_is_taken_and_not_used() -> None:
    program = px.parse("""program {
      takes {
        token
        user x: f32[2]
      }
      gives {
        user
      }
      graph @""(t, x) {
        y = aten.neg.default(x)
        return (y,)
      }
    }""")
    result = px.remove_effect_tokens(program)
    assert shown(result) == 'graph @""(x) {\n  y = aten.neg.default(x)\n  return (y,)\n}'
    assert result.main.nodes[0] is program.main.nodes[0]


def test_a_token_that_is_given_and_never_was_one() -> None:
    """Nothing in the root is a token, so only what it gives changes."""
    program = px.parse("""program {
      takes {
        user x: f32[2]
      }
      gives {
        token
        user
      }
      graph @""(x) {
        y = aten.neg.default(x)
        return (x, y)
      }
    }""")
    result = px.remove_effect_tokens(program)
    assert shown(result) == 'graph @""(x) {\n  y = aten.neg.default(x)\n  return (y,)\n}'
    assert result.signature.outputs == (px.UserOutput(),)
