"""Splitting by tags: what torch.fx.passes.split_utils documents, each as a program of ours, and what it does not say.

A program is split, lowered, and must do what eager does, several calls in a row; what the parts are is compared as
text or by name.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import ADD, ADD_, NEG, Tower, exported, flat, node, parent

SUNK = px.DEFAULT[:3]


def by_first_letter(of: px.Node) -> str:
    """Return the first letter of a node's name: what most of these tests tag by."""
    return of.name[0]


def lines(program: px.Program, graph: str = "") -> list[str]:
    """Return the text of a graph line by line, one blank between words."""
    return [" ".join(line.split()) for line in str(program.graphs[graph]).splitlines()]


def test_the_example_of_the_documentation() -> None:
    """One part for each tag in the given order; the root passes what crosses; a single result is no tuple."""
    nodes = [node("r1", NEG, "in1"), node("m2", NEG, "in2"), node("mcat", ADD, "r1", "m2"), node("m3", NEG, "mcat")]
    program = px.split_by_tags(flat(nodes, px.Ref("m3"), "in1", "in2"), ("r", "m"), tag_of=by_first_letter)
    assert lines(program) == [
        'graph @""(in1, in2) {',
        "r1 = call @r(in1) as r",
        "m3 = call @m(in2, r1) as m",
        "return (m3,)",
        "}",
    ]
    assert lines(program, "m")[0] == 'graph @""(in2, r1) {'


def test_inputs_reads_and_parts_of_tuples_need_no_tag() -> None:
    """Tags of placeholders, of the output and of get_attr are ignored; reads are copied to the parts that use them."""

    class Two(parent(w=lambda: nn.Parameter(torch.randn(4)))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values, _ = torch.max(x * self.w, 0)
            return values + self.w

    asked: list[str] = []

    def tag_of(of: px.Node) -> str:
        asked.append(of.name)
        return "b" if of.name == "add" else "a"

    program = px.split_by_tags(px.transform(px.import_ep(exported(Two(), torch.ones(2, 4))), *SUNK), ("a", "b"), tag_of=tag_of)
    assert asked == ["mul", "max_1", "add"]
    assert px.split_provenance(program).state == {"w": ("a.w", "b.w")}
    assert program.state["a.w"].cell == program.state["b.w"].cell
    assert [len([n for n in program.graphs[name].nodes if isinstance(n.do, px.Get)]) for name in "ab"] == [1, 1]


def test_a_tied_state_of_two_parts_is_one_parameter() -> None:
    """A step of an optimizer on the one is seen by the other, and joining gives one name again."""
    tower = Tower(2)
    tower.layers[1].get_submodule("up").weight = tower.layers[0].get_submodule("up").weight
    base = px.transform(px.import_ep(exported(tower, torch.ones(2, 4))))
    program = px.split_by_module(base, {"layers.0": "a", "layers.1": "b"})
    lowered = px.lower(program)
    assert lowered.get_parameter("a.layers.0.up.weight") is lowered.get_parameter("b.layers.1.up.weight")
    assert len(list(lowered.parameters())) == len(list(tower.parameters()))
    assert px.join(program).state == base.state


def test_a_tag_without_nodes_is_a_part_that_does_nothing() -> None:
    """Inside an outlined program too; the peer makes an empty submodule as well."""
    for base in (
        flat([node("a", NEG, "x")], px.Ref("a"), "x"),
        px.outline(flat([node("a", NEG, "x", stack=(px.Frame("m"),))], px.Ref("a"), "x")),
    ):
        program = px.split_by_tags(base, ("z", "a", "q"), tag_of=lambda _: "a")
        assert [part.name for part in px.parts(program)] == ["z", "a", "q"]
        assert px.verify(program) == ()
        assert px.join(program) == base


def test_a_write_is_a_dependency() -> None:
    """What reads before the write cannot go to a later part, though no value says so."""
    nodes = [node("a1", NEG, "x"), node("b", ADD_, "x", 1), node("a2", NEG, "x")]
    with pytest.raises(px.errors.PartitionError, match=r"node 'a2' has the tag 'a'.*node 'b'[\s\S]*reads memory that 'b' writes"):
        px.split_by_tags(flat(nodes, (px.Ref("a1"), px.Ref("a2")), "x"), ("a", "b"), tag_of=by_first_letter)


def test_a_region_is_in_one_part() -> None:
    def region(scope: int) -> px.Op:
        return px.Op(f"toy.region{scope}", px.Effects(ordered=True, scope=scope))

    nodes = [px.Node("open", region(1)), node("a", NEG, "x"), node("b", NEG, "a"), px.Node("shut", region(-1))]
    with pytest.raises(px.errors.PartitionError, match="the region that node 'open' opens would be cut"):
        px.split_by_tags(flat(nodes, px.Ref("b"), "x"), ("a", "b"), tag_of=by_first_letter)
    nodes[2] = node("c", NEG, "a")
    program = px.split_by_tags(
        flat([node("b", NEG, "x"), *nodes], (px.Ref("b"), px.Ref("c")), "x"), ("b", "a"), tag_of={"b": "b", "a": "a"}
    )
    assert [n.name for n in program.graphs["a"].nodes] == ["open", "a", "c", "shut"]


def test_a_preserved_call_is_in_one_part() -> None:
    module, x = Tower(2), torch.ones(2, 4)
    ep = torch.export.export(module, (x,), preserve_module_call_signature=("layers.1",))
    base = px.transform(px.import_ep(ep))
    program = px.split_by_module(base, {"layers.0": "a", "layers.1": "b"})
    assert list(program.call_signatures) == [px.Frame("b.layers.1")]
    assert torch.equal(px.lower(program).get_submodule("b.layers.1")(x), module.layers[1](x))
    with pytest.raises(px.errors.PartitionError, match=r"layers\.1, whose call signature was preserved, would be cut"):
        px.split_by_module(base, {"layers.1.up": "a", "layers.1.down": "b"})


BODIES = """
program {
  facts (flat, "state sunk")
  modules {
    "": toy.Module
    b: toy.Module
    b.c: toy.Module
    a: toy.Module
  }
  state {
    parameter b.c.w: f32[2]
    parameter a.v: f32[1]
  }
  takes {
    user x: f32[2]
  }
  gives {
    user
  }
  graph @""(x) {
    v = get a.v
    y = aten.mul.Tensor(x, v)  in a
    z = toy.region(@$outer, y) ! through_bodies
    t = aten.mul.Tensor(z, v)
    return (t,)
  }
  graph @$outer(x) {
    y = toy.region(@$inner, x) ! through_bodies
    return y
  }
  graph @$inner(x) {
    w = get b.c.w
    y = aten.mul.Tensor(x, w)
    return y
  }
}
"""


def test_state_that_bodies_of_operators_read_goes_with_the_operator() -> None:
    """And so does the module that has it, however deep the body is."""
    base = px.parse(BODIES)
    split = px.split_by_tags(base, ("p", "q"), tag_of={"y": "p", "z": "q", "t": "q"})
    assert split.state.order == ("q.b.c.w", "p.a.v", "q.a.v")
    assert [module.path for module in split.modules] == ["", "p", "q", "q.b", "q.b.c", "p.a", "q.a"]
    assert px.verify(split) == () and px.join(split) == base


def test_parts_whose_state_is_not_the_same_any_more_are_not_joined() -> None:
    split = px.split_by_tags(px.parse(BODIES), ("p", "q"), tag_of={"y": "p", "z": "q", "t": "q"})
    slots = dict(split.state.pairs)
    slots["q.a.v"] = px.ir.Slot(px.ir.SlotKind.PARAMETER, torch.ones(1), 7, 7)
    with pytest.raises(px.errors.UnsupportedProgram) as found:
        px.join(split.evolve(state=px.ir.State(split.state.order, px.ir.pmap(slots))))
    assert str(found.value) == (
        "'a.v' was one tensor in several parts, and 'q.a.v' is another one now, so the parts cannot be joined; replace it in "
        "all of them, or in none"
    )


@pytest.mark.parametrize(
    ("tags", "tag_of", "error", "text"),
    [
        ("ab", None, TypeError, "tags is a sequence"),
        ((1,), None, TypeError, "a tag is a string"),
        ((), None, px.errors.PartitionError, "pass at least one"),
        (("a", "a"), None, px.errors.PartitionError, "are repeated"),
        (("a.b",), None, px.errors.PartitionError, "cannot be the name of a part"),
        (("forward",), None, px.errors.PartitionError, "cannot be the name of a part"),
        (("a",), {"y": "b"}, px.errors.PartitionError, "not one of the tags"),
        (("a",), {"yy": "a"}, px.errors.PartitionError, "did you mean 'y'"),
        (("a",), 3, TypeError, "tag_of is a mapping"),
        (("a",), lambda _: 3, px.errors.PartitionError, "the tag 3"),
    ],
)
def test_what_can_not_be_meant_is_told(tags: object, tag_of: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        px.split_by_tags(flat([node("y", NEG, "x")], px.Ref("y"), "x"), tags, tag_of=tag_of)
