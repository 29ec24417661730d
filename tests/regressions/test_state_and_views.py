"""State that is read, shared or viewed: programs that were once imported, sunk or lowered wrongly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.registered import effects_of
from purefx.ir.effects.resolved import node_effects
from purefx.laws import toy
from tests.models import module_class
from tests.transforms.small import tree

# A program whose branches read state and call modules was valid, and lowered to a module that did not find them.


BRANCHES = """program {
  state {
    buffer a.b: f32[2]
    buffer a.child.w: f32[2]
    buffer b.b: f32[2]
    buffer b.child.w: f32[2]
  }
  takes {
    user p: bool[]
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(p, x) {
    first = call @m(p, x) as a
    second = call @m(p, first) as b
    return (second,)
  }
  graph @m(p, x) {
    all = higher_order.cond(p, @yes, @no, (x,))
    one = operator.getitem(all, 0)
    return one
  }
  graph @yes(x) {
    b = get b
    c = call @child(x) as child
    y = aten.add.Tensor(c, b)
    return (y,)
  }
  graph @no(x) {
    y = aten.mul.Tensor(x, 2)
    return (y,)
  }
  graph @child(x) {
    w = get w
    y = aten.mul.Tensor(x, w)
    return y
  }
}"""
"""A cond in a module that is called under two paths."""

VALUES = {"a.b": 1.0, "a.child.w": 2.0, "b.b": 10.0, "b.child.w": 3.0}


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_branches_find_what_the_module_around_them_has(to: str) -> None:
    """Each of the two modules its own buffer and its own child."""
    program = px.parse(
        BRANCHES, state={name: torch.full((2,), value) for name, value in VALUES.items()}
    )
    module = px.lower(program, to=to)  # type: ignore[arg-type]
    x = torch.ones(2)
    assert module(torch.tensor(True), x)[0].tolist() == [(1 * 2 + 1) * 3 + 10.0] * 2
    assert module(torch.tensor(False), x)[0].tolist() == [4.0, 4.0]
    module.get_buffer("b.b").add_(1)
    assert module(torch.tensor(True), x)[0].tolist() == [(1 * 2 + 1) * 3 + 11.0] * 2


# What a module keeps of a parameter without its gradient (``self.k = self.v.detach()``) is another tensor on the same memory.


X = torch.full((4,), 3.0)


class Detached(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = torch.nn.Parameter(torch.ones(4))
        self.k = self.v.detach()
        self.register_buffer("b", self.v.data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.k * x + self.v + self.get_buffer("b") * 2


WAYS: dict[str, Callable[[px.Program], torch.nn.Module]] = {
    "lower": lambda program: px.lower(px.transform(program)),
    "flat": px.lower,
    "interpreter": lambda program: px.lower(px.transform(program), to="interpreter"),
    "deepcopy": lambda program: copy.deepcopy(px.lower(program)),
    "to_ep": lambda program: px.to_ep(program).module(),
    "to_ep and back": lambda program: px.lower(px.import_ep(px.to_ep(px.transform(program)))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strict", [False, True])
def test_gradients_do_not_go_through_them(way: str, *, strict: bool) -> None:
    eager = (
        copy.deepcopy(Detached()) if way == "deepcopy" else Detached()
    )  # a copy of a parameter has memory of its own
    module = WAYS[way](px.import_ep(torch.export.export(Detached(), (X,), strict=strict)))
    for _ in range(2):
        found: list[torch.Tensor] = []
        for each in (eager, module):
            each.zero_grad()
            result = each(X)
            result.sum().backward()
            gradient = each.get_parameter("v").grad
            assert gradient is not None
            found += [gradient, result.detach()]
            with torch.no_grad():
                each.get_parameter("v").add_(1)  # which the others see: it is their memory
        assert torch.equal(found[0], found[2])
        assert torch.equal(found[1], found[3])


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = torch.nn.Parameter(torch.ones(4))
        self.held = [self.v]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.v * x + self.held[0]


def test_what_the_exporter_detaches_is_the_parameter() -> None:
    """It has no name for what a list holds, and lifts a detached tensor: that is the parameter again."""
    program = px.import_ep(torch.export.export(Held(), (X,), strict=False))
    for module in (px.lower(program), px.lower(px.import_ep(px.to_ep(program)))):
        module(X).sum().backward()
        assert torch.equal(module.get_parameter("v").grad, X + 1)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(px.to_ep(program).module()(X), Held()(X))


# A module that gives back its buffer beside something else: who writes the buffer later must stay behind who reads the
# result.


PROGRAM = """
    graph @""(x) {
      a = call @a(x) as a
      n = operator.getitem(a, 0)
      y = operator.getitem(a, 1)
      z = aten.add.Tensor(n, y)
      w = call @w(x) as a.w
      return (z,)
    }
    graph @a(x) {
      n = get n
      y = aten.neg.default(x)
      return (n, y)
    }
    graph @w(x) {
      n = get "/a.n"
      s = aten.copy_.default(n, x)
      return s
    }
"""


def test_a_write_stays_behind_the_reader_of_a_result() -> None:
    program = tree(PROGRAM, "state {\nbuffer a.n: f32[2]\n}")
    assert node_effects(program, program.main)[0].results[0].slots == ("a.n",)
    assert 3 in dependencies(program, program.main)[4]


# Views that come in a list: ``split``, ``chunk``, ``unbind``.


OPERATORS = {
    torch.ops.aten.split.Tensor: (2,), torch.ops.aten.split.sizes: ([1, 3],),
    torch.ops.aten.split_with_sizes.default: ([1, 3],), torch.ops.aten.chunk.default: (2,), torch.ops.aten.unbind.int: (),
    torch.ops.aten.tensor_split.sections: (2,), torch.ops.aten.tensor_split.indices: ([1],), torch.ops.aten.hsplit.int: (2,),
    torch.ops.aten.vsplit.int: (2,),
}  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_what_shares_memory_is_said_to(operator: torch._ops.OpOverload) -> None:
    x = torch.zeros(4, 4)
    parts = operator(x, *OPERATORS[operator])
    assert {part.untyped_storage().data_ptr() for part in parts} == {x.untyped_storage().data_ptr()}
    assert [place.name for place in effects_of(operator).aliases] == ["self"]


# A value that crosses a preserved call is read from the state that it was stored in only while both stay what they were.


WHOLE = """program {{
  facts (flat)
  modules {{
    "": toy.Module
    a: toy.Module
  }}
  takes {{
    user x0: i64[]
  }}
  {gives}
  signatures {{
    a: in_spec ((*,), {{}}) out_spec (*,)
  }}
  graph @""(x0) {{
{nodes}
  }}
}}
"""

WRITES = "! writes(0:a) returns(0:a) aliases(0:a)"

PROGRAMS = {
    "the value is written after it was stored": f"""
    y = toy.neg(x0) ! pure     in a
    z = toy.add_(y, 1) {WRITES}   in a
    g = purefx.gives(z)        in a
    t = purefx.takes(x0)       in a
    n = toy.neg(y) ! pure
    return (n,)""",
    "who uses the value writes to it": f"""
    y = toy.add(x0, x0) ! pure
    t = purefx.takes(x0)       in a
    z = toy.add_(y, 1) {WRITES}   in a
    g = purefx.gives(z)        in a
    n = toy.neg(y) ! pure
    return (n,)""",
    "the value is the state": f"""
    y = toy.add_(x0, 1) {WRITES}
    c = aten.copy_.default(x0, y)
    t = purefx.takes(c)        in a
    z = toy.add_(y, 1) {WRITES}   in a
    g = purefx.gives(z)        in a
    return ()""",
    "the state is written again": f"""
    y = toy.neg(x0) ! pure
    c = aten.copy_.default(x0, y)
    t = purefx.takes(c)        in a
    z = toy.add_(c, 1) {WRITES}   in a
    n = toy.add(z, y) ! pure   in a
    g = purefx.gives(n)        in a
    return ()""",
}


@pytest.mark.parametrize("which", PROGRAMS)
def test_the_meaning_is_kept(which: str) -> None:
    nodes = PROGRAMS[which]
    gives = "gives {\n    input 0\n  }" if "(n,)" in nodes else ""
    program = px.parse(WHOLE.format(gives=gives, nodes=nodes.strip("\n")))
    assert px.verify(program) == ()
    assert toy.toy_meaning(px.transform(program)) == toy.toy_meaning(program)


def test_memory_that_changes_after_the_import_is_found() -> None:
    model = module_class(
        "Halves",
        lambda self, x: x + self.w.sum() + self.v,
        w=lambda: torch.nn.Parameter(torch.arange(4.0)),
    )()
    model.v = torch.nn.Parameter(model.w.data[2:])
    program = px.capture(model, (torch.zeros(2),))
    model.half().float()  # it converts each of the two alone
    with pytest.raises(px.errors.InvalidProgram, match="does not share its memory"):
        px.transform(program)


def test_a_row_at_a_symbolic_offset_is_returned_as_new_contents() -> None:
    model = module_class(
        "Last", lambda self, x: (self.row.copy_(x[-1]), x.sum())[1], row=lambda: torch.zeros(3)
    )()
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    program = px.import_ep(
        torch.export.export(model, (torch.ones(4, 3),), dynamic_shapes=dynamic).run_decompositions()
    )
    assert px.alpha_equal(
        px.functionalize(px.lift_state(px.inline(px.transform(program)))), program
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_state_is_read_as_it_is(tmp_path: Path) -> None:
    parts = [torch.ones(2), torch.ones(3)]
    model = module_class(
        "Nested",
        lambda self, x: self.w * x,
        w=lambda: torch.nn.Parameter(torch.nested.nested_tensor(parts)),
    )()
    lowered = px.lower(px.transform(px.import_fx(torch.fx.symbolic_trace(model))))
    assert [part.sum().item() for part in lowered(torch.tensor(2.0)).unbind()] == [4, 6]
    program = px.import_fx(torch.fx.symbolic_trace(model))
    for each in (program, px.lift_state(program)):
        assert px.infer(each) is each and px.verify(each, infer=True) == ()
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"the parameter 'w' .* not nested, quantized"
    ):
        px.save(program, tmp_path / "nested.purefx")
    plain = torch.export.export(
        module_class("Plain", lambda self, x: self.w * x, w=lambda: torch.ones(2))(),
        (torch.ones(2),),
    )
    plain.state_dict["w"] = model.w.data
    with pytest.raises(
        px.errors.InvalidProgram, match=r"the slot holds a torch\.float32 of nested shapes"
    ):
        px.import_ep(plain)


def test_nested_inputs_are_refused() -> None:
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    exported = torch.export.export(
        module_class("Ragged", lambda self, x: x.sin())(), (ragged,), strict=True
    )
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match="the input 'x' is a nested tensor: export a module that takes its",
    ):
        px.import_ep(exported)


def test_what_one_call_says_of_gradients_is_not_said_of_all() -> None:
    kinds = {"a": torch.nn.Tanh, "b": torch.nn.Tanh, "linear": lambda: torch.nn.Linear(3, 3)}
    model = module_class("Around", lambda self, x: self.b(self.linear(self.a(x))), **kinds)
    body = px.transform(px.capture(model(), (torch.ones(2, 3),))).graphs["Tanh"]
    assert "val" in body.nodes[0].meta
    assert "tensor_meta" not in body.nodes[0].meta
