"""`hoist`: what several calls compute alike is computed once, and what only looks alike stays where it is."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from tests.programs import parent
from tests.transforms.simplifying import nodes, same_as_eager, sound, text

HOIST = px.hoist

TWICE = 'graph @""(x, k) {\ny = call @f(x, k) as a\nz = call @f(y, k) as b\nreturn (z,)\n}'

BODIES = {
    "computed from what both are given": (("m = aten.exp.default(k)", "y = aten.add.Tensor(x, m)", "y"), ["m"]),
    "a chain": (("m = aten.exp.default(k)", "n = aten.neg.default(m)", "y = aten.add.Tensor(x, n)", "y"), ["m", "n"]),
    "from nothing": (("m = aten.arange.default(2)", "y = aten.add.Tensor(x, m)", "y"), ["m"]),
    "a view": (("m = aten.unsqueeze.default(k, 0)", "y = aten.mul.Tensor(x, m)", "z = aten.squeeze.dim(y, 0)", "z"), ["m"]),
    "what is not the same": (("m = aten.exp.default(x)", "y = aten.add.Tensor(m, k)", "y"), []),
    "given back": (("m = aten.exp.default(k)", "y = aten.add.Tensor(x, m)", "w = aten.view.default(m, [2])", "(y, w)"), []),
    "what is written": (("m = aten.exp.default(k)", "w = aten.add_.Tensor(m, x)", "y = aten.neg.default(m)", "y"), []),
    "what a view writes": (
        ("m = aten.exp.default(k)", "v = aten.view.default(m, [2])", "w = aten.zero_.default(v)", "y = aten.neg.default(m)", "y"),
        [],
    ),
    "behind a write to it": (("w = aten.zero_.default(k)", "m = aten.exp.default(k)", "y = aten.add.Tensor(x, m)", "y"), []),
    "a write to the operand afterwards": (
        ("m = aten.exp.default(k)", "w = aten.add_.Tensor(k, 1)", "y = aten.add.Tensor(x, m)", "y"),
        [],
    ),
    "draws": (("m = aten.rand_like.default(k)", "y = aten.add.Tensor(x, m)", "y"), []),
    "in a region": (
        (
            "g = torch._C._set_grad_enabled(False)", "m = aten.exp.default(k)", "h = torch._C._set_grad_enabled(True)",
            "y = aten.add.Tensor(x, m)", "y",
        ),
        [],
    ),
    "before a region": (
        (
            "m = aten.exp.default(k)", 'e = torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, True)',
            "y = aten.add.Tensor(x, m)", "h = torch.amp.autocast_mode._exit_autocast(e)", "y",
        ),
        ["m"],
    ),
    "before a change of the gradient mode, which the next call may find": (
        (
            "m = aten.exp.default(k)", "g = torch._C._set_grad_enabled(False)", "y = aten.add.Tensor(x, m)",
            "h = torch._C._set_grad_enabled(True)", "y",
        ),
        [],
    ),
    "what nothing uses": (("m = aten.exp.default(k)", "y = aten.add.Tensor(x, k)", "y"), []),
    "one of several results": (
        ("s = aten.split.Tensor(k, 1)", "m = operator.getitem(s, 0)", "y = aten.add.Tensor(x, m)", "y"),
        [],
    ),
    "a number that the rest uses": (
        ("n = aten.sym_size.int(k, 0)", "y = aten.mul.Scalar(x, n)", "y"),
        [],
    ),
}  # fmt: skip


def body(*lines: str) -> str:
    """Return the text of a body."""
    return "\n".join(["graph @f(x, k) {", *lines[:-1], f"return {lines[-1]}", "}"])


@pytest.mark.parametrize("name", BODIES)
def test_what_moves(name: str) -> None:
    lines, moved = BODIES[name]
    calls = TWICE
    if lines[-1].startswith("("):
        calls = (
            'graph @""(x, k) {\np = call @f(x, k) as a\ny = operator.getitem(p, 0)\nq = call @f(y, k) as b\n'
            "z = operator.getitem(q, 0)\nreturn (z,)\n}"
        )
    program = text(calls + "\n" + body(*lines), inputs="x: f32[2]; k: f32[2]")
    result = sound(HOIST, program)
    assert (result is program) is (not moved)
    before = nodes(program)
    assert [node for node in nodes(result) if node not in before] == moved
    assert nodes(result, "f") == [node for node in nodes(program, "f") if node not in moved]


CALLERS = {
    "other operands": ("y = call @f(x, k) as a", "z = call @f(y, x) as b"),
    "a write in between": ("y = call @f(x, k) as a", "w = aten.add_.Tensor(k, 1)", "z = call @f(y, k) as b"),
    "a write to a view in between": (
        "v = aten.select.int(k, 0, 0)", "y = call @f(x, k) as a", "w = aten.zero_.default(v)", "z = call @f(y, k) as b",
    ),
    "another region": (
        "y = call @f(x, k) as a", "g = torch._C._set_grad_enabled(False)", "z = call @f(y, k) as b",
        "h = torch._C._set_grad_enabled(True)",
    ),
    "one call": ("z = call @f(x, k) as a",),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLERS)
def test_what_calls_do_not_share(name: str) -> None:
    root = "\n".join(['graph @""(x, k) {', *CALLERS[name], "return (z,)", "}"])
    program = text(root + "\n" + body(*BODIES["a chain"][0]), inputs="x: f32[2]; k: f32[2]")
    assert HOIST(program) is program


def test_calls_that_share_nothing_get_what_they_computed() -> None:
    """Two calls share; the third has other operands, and its value is computed before it."""
    root = 'graph @""(x, k) {\ny = call @f(x, k) as a\nz = call @f(y, k) as b\nu = call @f(z, y) as c\nreturn (u,)\n}'
    program = text(root + "\n" + body(*BODIES["computed from what both are given"][0]), inputs="x: f32[2]; k: f32[2]")
    result = sound(HOIST, program)
    assert nodes(result) == ["m", "y", "z", "m_1", "u"]
    assert [len(node.args) for node in result.main.nodes if type(node.do) is px.Call] == [3, 3, 3]


LEVELS = """
graph @""(x, k) {
  y = call @outer(x, k) as a
  z = call @outer(y, k) as b
  return (z,)
}
graph @outer(x, k) {
  n = aten.neg.default(k)
  y = call @inner(x, n) as i
  return y
}
graph @inner(x, k) {
  m = aten.exp.default(k)
  y = aten.add.Tensor(x, m)
  return y
}
"""


def test_through_levels() -> None:
    """`inner` is called once in its caller, which is called twice: its value moves up to the root, in front of both calls."""
    program = text(LEVELS, inputs="x: f32[2]; k: f32[2]")
    result = sound(HOIST, program)
    assert nodes(result) == ["n", "m", "y", "z"]
    assert (nodes(result, "outer"), nodes(result, "inner")) == (["y"], ["y"])
    fuel = px.Fuel(9)
    HOIST.spend(program, fuel)
    assert fuel.labels == ("hoist n out of 'outer'", "hoist m out of 'inner'", "hoist m out of 'outer'")
    for limit in range(4):
        assert px.verify(HOIST(program, fuel=limit), infer=True) == ()


def test_what_only_the_other_result_of_a_call_is() -> None:
    """`inner` returns its operands: the body gives back the first of them, so the second, which it made, can be passed."""
    program = text(
        """
graph @""(x, k) {
  p = call @f(x, k) as a
  y = operator.getitem(p, 0)
  q = call @f(y, k) as b
  z = operator.getitem(q, 0)
  return (z,)
}
graph @f(x, k) {
  m = aten.exp.default(k)
  r = call @inner(x, m) as i
  s = operator.getitem(r, 0)
  t = operator.getitem(r, 1)
  y = aten.add.Tensor(s, t)
  return (y, s)
}
graph @inner(x, m) {
  return (x, m)
}
""",
        inputs="x: f32[2]; k: f32[2]",
    )
    assert nodes(sound(HOIST, program)) == ["m", "p", "y", "q", "z"]
    back = program.with_graphs({"f": evolve(program.graphs["f"], output=(px.Ref("y"), px.Ref("t")))})
    assert HOIST(back) is back


def test_nothing_moves_out_of_the_bodies_of_operators() -> None:
    """But out of what they call: to before the call, in the body of the operator."""
    program = text(
        """
        graph @""(x, k) {
          p = aten.sum.default(k)
          q = aten.gt.Scalar(p, 0)
          c = higher_order.cond(q, @"$then", @"$else", (x, k))
          z = operator.getitem(c, 0)
          return (z,)
        }
        graph @"$then"(x, k) {
          y = call @f(x, k) as a
          z = call @f(y, k) as b
          return (z,)
        }
        graph @"$else"(x, k) {
          z = aten.exp.default(k)
          return (z,)
        }
        graph @f(x, k) {
          m = aten.exp.default(k)
          y = aten.add.Tensor(x, m)
          return y
        }
        """,
        inputs="x: f32[2]; k: f32[2]",
    )
    result = sound(HOIST, program)
    assert result.main is program.main
    assert (nodes(result, "$then"), nodes(result, "$else"), nodes(result, "f")) == (["m", "y", "z"], ["z"], ["y"])


def test_preserved_calls_get_no_new_inputs() -> None:
    """What moves out of a call in a preserved one stays in that."""
    program = text(
        """
        graph @""(x, k) {
          y = call @f(x, k) as f
          z = call @"f@1"(y, k) as f@1
          return (z,)
        }
        graph @f(x, k) {
          t = purefx.takes(x, k)
          y = call @i(x, k) as i
          z = call @i(y, k) as i@1
          g = purefx.gives(z)
          return z
        }
        graph @"f@1"(x, k) {
          m = aten.exp.default(k)
          y = aten.add.Tensor(x, m)
          return y
        }
        graph @i(x, k) {
          m = aten.exp.default(k)
          y = aten.add.Tensor(x, m)
          return y
        }
        """,
        "signature f {\nnames (x, k)\nin_spec ((*, *), {})\nout_spec *\n}",
        inputs="x: f32[2]; k: f32[2]",
    )
    result = sound(HOIST, program)
    assert [len(result.graphs[name].inputs) for name in ("", "f", "i")] == [2, 2, 3]
    assert nodes(result, "f") == ["t", "m", "y", "z", "g"]


def test_parts_stay() -> None:
    program = text(
        LEVELS.replace("@outer", "@part").replace("as a", "as p").replace("as b", "as q"),
        'modules {\n""\np: purefx.Part\np.i\nq: purefx.Part\nq.i\n}',
        inputs="x: f32[2]; k: f32[2]",
    )
    assert HOIST(program) is program


STATE = """state {
buffer a.w: f32[2]
buffer b.w: f32[2]
buffer a.r: f32[2]
buffer b.r: f32[2] tied a.r
}"""

READS = """
graph @""(x, k) {
  y = call @f(x, k) as a
  %s
  z = call @f(y, k) as b
  return (z,)
}
graph @f(x, k) {
  w = get w
  r = get r
  m = aten.exp.default(w)
  n = aten.exp.default(r)
  y = aten.add.Tensor(x, m)
  z = aten.add.Tensor(y, n)
  return z
}
"""


def test_state_that_all_instances_share() -> None:
    """`r` is one tensor, so its caller reads it under its first name; `w` is two."""
    program = text(READS % "", STATE, inputs="x: f32[2]; k: f32[2]")
    result = sound(HOIST, program)
    assert nodes(result) == ["r", "n", "y", "z"]
    assert result.main.nodes[0].do == px.Get("a.r")
    assert nodes(result, "f") == ["w", "m", "y", "z"]
    assert [str(node.do.slot) for node in px.inline(result).main.nodes if type(node.do) is px.Get] == ["a.r", "a.w", "b.w"]


def test_state_that_is_written_between_the_calls() -> None:
    program = text(READS % "s = get b.r\nu = aten.add_.Tensor(s, 1)", STATE, inputs="x: f32[2]; k: f32[2]")
    assert HOIST(program) is program


def test_a_caller_that_is_shared_reads_state_from_the_root() -> None:
    """Its own path is no way to a tensor that belongs to one of the modules that share it."""
    program = text(
        """
        graph @""(x) {
          y = call @g(x) as a
          z = call @g(y) as b
          return (z,)
        }
        graph @g(x) {
          w = get w
          p = aten.add.Tensor(x, w)
          y = call @f(p) as f
          u = aten.relu.default(w)
          z = call @f(y) as f@1
          v = aten.mul.Tensor(z, u)
          return v
        }
        graph @f(x) {
          r = get "/r"
          n = aten.exp.default(r)
          z = aten.add.Tensor(x, n)
          return z
        }
        """,
        "state {\nbuffer a.w: f32[2]\nbuffer b.w: f32[2]\nbuffer r: f32[2]\n}",
    )
    half = HOIST(program, fuel=1)
    assert px.verify(half, infer=True) == ()
    assert nodes(half, "g")[2:4] == ["r", "n"]
    assert half.graphs["g"].by_name["r"].do == px.Get("/r")
    result = sound(HOIST, program)
    assert nodes(result) == ["r", "n", "y", "z"]
    same = [px.lower(one)(torch.ones(2)) for one in (program, half, result, px.inline(result), px.expand(result))]
    assert all(torch.equal(one[0], same[0][0]) for one in same)


# On modules, against eager.


class Layer(parent(linear=lambda: nn.Linear(4, 4))):
    """Makes a mask of its own, and scales by a table."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        size = x.shape[0]
        mask = torch.full((size, size), -1e4).triu(1)
        bias = torch.where(keep.unsqueeze(0), 0.0, mask)
        return torch.softmax(self.linear(x) @ x.T + bias, -1) @ x * table.cos()


class Stack(parent(layers=lambda: nn.ModuleList([Layer() for _ in range(4)]), freq=lambda: torch.arange(4.0))):
    """Layers that share everything but their weights."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        table = torch.arange(x.shape[0]).unsqueeze(1) * self.freq
        for layer in self.layers:
            x = layer(x, keep, table)
        return x


class Counting(parent(linear=lambda: nn.Linear(4, 4), seen=lambda: torch.zeros(()))):
    """Counts its calls, and then computes from what all are given."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return self.linear(x) + keep.float().exp() * self.seen


class Rotating(parent(linear=lambda: nn.Linear(4, 4), seen=lambda: torch.zeros(4), freq=lambda: torch.ones(4))):
    """Writes a buffer of its own, and makes a table of what all are given, from views of it."""

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        first, second = place.split(2)
        table = torch.cat([second.unsqueeze(1), first.unsqueeze(1)]).cos()
        self.seen.copy_(x[0].detach())
        return self.linear(x) * table + self.seen


class Rotated(parent(layers=lambda: nn.ModuleList([Rotating() for _ in range(3)]))):
    """Layers that write."""

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, place)
        return x


class Counters(parent(one=lambda: Counting(), two=lambda: Counting())):
    """One body that is called three times, of which two share their state; and an input that is written at last."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        x = self.two(self.one(self.one(x, keep), keep), keep)
        keep.logical_not_()
        return x


X, KEEP = torch.randn(4, 4), torch.tensor([True, True, False, True])


def runs(program: px.Program) -> Counter[str]:
    """Return how often each operator runs in a call of the program."""
    return Counter(node.do.name for node in px.inline(program).main.nodes if type(node.do) is px.Op)


def test_masks_of_layers() -> None:
    same_as_eager(Stack(), (X, KEEP), HOIST, stages=("tree",))
    program = px.transform(px.import_ep(torch.export.export(Stack(), (X, KEEP), strict=False)))
    before, after = runs(program), runs(HOIST(program))
    names = ("aten.triu.default", "aten.where.ScalarOther", "aten.unsqueeze.default", "aten.cos.default", "aten.linear.default")
    assert {name: (before[name], after[name]) for name in names if before[name]} == {
        name: (4, 4 if "linear" in name else 1) if name != "aten.unsqueeze.default" else (5, 2) for name in names if before[name]
    }
    assert after.total() < before.total()


def test_dynamic_sizes() -> None:
    size = torch.export.Dim("size", min=2, max=9)
    dynamic = {"x": {0: size}, "keep": {0: size}}
    ep = torch.export.export(Stack(), (X, KEEP), dynamic_shapes=dynamic, strict=False)
    program = px.transform(px.import_ep(ep))
    result = sound(HOIST, program)
    assert runs(result).total() < runs(program).total()
    lowered, eager = px.lower(result), ep.module()
    for rows in (2, 5, 9):
        x, keep = torch.randn(rows, 4), torch.rand(rows) > 0.5
        assert torch.equal(lowered(x, keep), eager(x, keep))


def test_modules_that_write() -> None:
    same_as_eager(Counters(), (X, KEEP), HOIST, stages=("tree",))


def test_views_of_what_all_are_given() -> None:
    """Bodies that write state get no views of inputs, whose memory that may be; what is computed from them moves all the same."""
    same_as_eager(Rotated(), (X, X[0]), HOIST, stages=("tree",))
    program = px.transform(px.import_ep(torch.export.export(Rotated(), (X, X[0]), strict=False)))
    before, after = runs(program), runs(HOIST(program))
    names = ("aten.cat.default", "aten.cos.default", "aten.linear.default")
    assert [(before[name], after[name]) for name in names] == [(3, 1), (3, 1), (3, 3)]
