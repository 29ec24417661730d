"""What each rewrite is called: whoever searches for a bad one reads these words, and nothing else is said about it.

One small program for each transformation, and all that is said when it runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import purefx as px
from purefx._front import HOMES

TOKENS = """program {
  takes {
    token
    user x: f32[2]
  }
  gives {
    token
    user
  }
  graph @""(token, x) {
    w = higher_order.with_effects(token, op("aten.cumsum.default"), x, 0)
    t = operator.getitem(w, 0)
    y = operator.getitem(w, 1)
    return (t, y)
  }
}"""

RETURNED = """program {
  state {
    buffer n: f32[2]
  }
  takes {
    state n
    user x: f32[2]
  }
  gives {
    state n
    input 1
    user
  }
  graph @""(bn, x) {
    m = aten.add.Tensor(bn, 1)
    y = aten.neg.default(x)
    return (m, y, y)
  }
}"""

WRITTEN = """program {
  state {
    buffer n: f32[2]
  }
  takes {
    state n
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(bn, x) {
    y = aten.neg.default(x)
    c = aten.copy_.default(bn, y)
    z = aten.add.Tensor(y, 1)
    d = aten.copy_.default(x, z)
    return (z,)
  }
}"""

CROSSING = """program {
  facts (flat, "mutations in place", "state sunk")
  state {
    buffer c.n: f32[2]
  }
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  signature c {
    names (x)
    in_spec ((*,), {})
    out_spec *
  }
  graph @""(x) {
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    y = aten.mul.Tensor(x, m)  in c
    c = aten.copy_.default(n, m)  in c
    g = purefx.gives(y)  in c
    z = aten.mul.Tensor(y, m)
    return (z,)
  }
}"""

TREE = """program {
  facts (outlined)
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  signature a {
    names (x)
    in_spec ((*,), {})
    out_spec *
  }
  signature a@1 {
    names (x)
    in_spec ((*,), {})
    out_spec *
  }
  graph @""(x) {
    y = call @a(x) as a
    z = call @"a@1"(y) as a@1
    return (z,)
  }
  graph @a(x) {
    u = aten.relu.default(x)
    y = call @b(u) as b
    return y
  }
  graph @b(x) {
    y = aten.neg.default(x)
    return y
  }
  graph @"a@1"(x) {
    u = aten.relu.default(x)
    y = call @"b@1"(u) as b@1
    return y
  }
  graph @"b@1"(x) {
    y = aten.neg.default(x)
    return y
  }
}"""

SHARED = """program {
  facts (deduplicated, outlined)
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(x) {
    y = call @a(x) as a
    z = call @a(y) as a
    return (z,)
  }
  graph @a(x) {
    y = aten.relu.default(x)
    return y
  }
}"""

FLAT = """program {
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(x) {
    p = aten.relu.default(x)  in a
    q = aten.neg.default(p)  in a / .b
    r = aten.neg.default(q)  in a@1
    return (r,)
  }
}"""

SPLIT = """program {
  facts (split, "state sunk")
  modules {
    ""
    a: purefx.Part
    b: purefx.Part
    c: purefx.Part
  }
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(x) {
    p = call @a(x) as a
    n = operator.getitem(p, 0)
    y = operator.getitem(p, 1)
    z = call @b(n, y) as b
    u = call @c(z, x) as c
    return (u,)
  }
  graph @a(x) {
    n = aten.sym_size.int(x, 0)
    y = aten.neg.default(x)
    return (n, y)
  }
  graph @b(n, y) {
    z = aten.mul.Scalar(y, n)
    return z
  }
  graph @c(z, x) {
    u = aten.add.Tensor(z, x)
    return u
  }
}"""

SIGNED = """program {
  facts ("mutations in place", outlined, "state sunk", "token free")
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  signature a {
    names ()
    in_spec ((*,), {})
    out_spec *
  }
  graph @""(x) {
    y = call @a(x) as a
    return (y,)
  }
  graph @a(x) {
    taken = purefx.takes(x)
    z = aten.neg.default(x)
    given = purefx.gives(z)
    return z
  }
}"""

SIZED = """program {
  takes {
    user x: f32[s0]
    user y: f32[s0]
  }
  gives {
    user
  }
  constraints {
    range s0 from 2 to 9
  }
  graph @""(x, y) {
    z = aten.neg.default(x)
    return (z,)
  }
}"""

UNTIDY = """program {
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(x) {
    a = aten.exp.default(x)
    b = aten.exp.default(x)
    c = aten.dropout.default(x, 0.5, False)
    d = aten.full.default([2], 1.0)
    e = aten.mul.Tensor(b, c)
    f = aten.mul.Tensor(e, d)
    g = aten.neg.default(x)
    return (f,)
  }
}"""

REGION = """program {
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(x) {
    off = torch._C._set_grad_enabled(False)
    y = aten.sin.default(x)
    on = torch._C._set_grad_enabled(True)
    z = aten.add.Tensor(y, x)
    return (z,)
  }
}"""

LABELS: dict[px.Transformation, tuple[str, tuple[str, ...]]] = {
    px.remove_effect_tokens: (TOKENS, ("unthread w", "take the tokens from the signature")),
    px.inplace_mutations: (RETURNED, ("copy m into bn", "copy y into x")),
    px.sink_state: (WRITTEN, ("sink bn = n",)),
    px.insert_ivals: (CROSSING, ("read m from c.n",)),
    px.outline: (FLAT, ("cut out a.b (1 node)", "cut out a (2 nodes)", "cut out a@1 (1 node)")),
    px.deduplicate: (TREE, ("merge body 'b@1' into 'b'", "merge body 'a@1' into 'a'", "number the calls in ''")),
    px.dispatch: (TREE, ("share a",)),
    px.expand: (SHARED, ("copy 'a'",)),
    px.inline: (SHARED, ("copy 'a'", "inline 'a'", "inline 'a@1'")),
    px.functionalize: (WRITTEN, ("return z instead of d", "return y instead of c")),
    px.lift_state: (px.sink_state(px.parse(WRITTEN)).text(), ("lift n",)),
    px.move_non_tensor_nodes: (SPLIT, ("compute 'n' in b",)),
    px.relay_skips: (SPLIT, ("relay 'x'",)),
    px.swap_modules: (SIGNED, ("swap a",)),
    px.mark_non_persistent: (WRITTEN, ("leave out n",)),
    px.name_inputs: (WRITTEN, ("name bn -> b_n",)),
    px.restore_names: (WRITTEN, ("name m a.n",)),
    px.add_runtime_assertions: (SIZED, ("check input 1.size(0) == input 0.size(0)", "check input 0.size(0) <= 9")),
    px.eliminate_dead_code: (UNTIDY, ("remove g", "remove a")),
    px.eliminate_common_subexpressions: (UNTIDY, ("use a for b",)),
    px.fold_constants: (UNTIDY, ("fold d",)),
    px.remove_noops: (UNTIDY, ("remove c of x",)),
    px.canonicalize: (UNTIDY, ("put the nodes in order",)),
    px.regions_to_bodies: (REGION, ("region 0 in ''",)),
    px.bodies_to_regions: (px.regions_to_bodies(px.parse(REGION)).text(), ("body of wrap_with_set_grad_enabled in ''",)),
}

OPTIONS: dict[px.Transformation, Callable[[px.Program], dict[str, Any]]] = {
    px.swap_modules: lambda _: {"modules": {"a": torch.nn.ReLU()}},
    px.mark_non_persistent: lambda _: {"buffers": ["n"]},
    px.restore_names: lambda program: {"module": dict.fromkeys(("m", "a.n"), program.state["n"].value)},
}


@pytest.mark.parametrize("transformation", LABELS, ids=lambda transformation: transformation.name)
def test_every_rewrite_is_told_in_order(transformation: px.Transformation) -> None:
    """With as much fuel as it takes, so nothing is left out."""
    text, labels = LABELS[transformation]
    program, fuel = px.parse(text), px.Fuel(10)
    options = OPTIONS[transformation](program) if transformation in OPTIONS else {}
    assert px.verify(program) == ()
    assert transformation.spend(program, fuel, **options) is not program
    assert fuel.labels == labels


def test_every_transformation_that_takes_fuel_is_here() -> None:
    found = [value for name in HOMES if isinstance(value := getattr(px, name), px.Transformation) and value.takes_fuel]
    assert set(found) == set(LABELS)
