"""Splitting: which part a node goes to, what has to stay in one part, where ``split_balanced`` cuts, and what is refused."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import purefx as px
from purefx.laws.law import made_anew
from purefx.transforms.partition.split import balanced
from tests.models import ADD, ADD_, NEG, Tower, exported, flat, node, parent
from tests.transforms.small import tree


def by_first_letter(of: px.Node) -> str:
    """Return the first letter of a node's name: what most of these tests tag by."""
    return of.name[0]


def names_in(split: px.Program) -> dict[str, list[str]]:
    """Return the names of the operators in each part."""
    parts = {part.name: split.graphs[part.graph].nodes for part in px.parts(split)}
    return {
        name: [each.name for each in nodes if not isinstance(each.do, px.Get)]
        for name, nodes in parts.items()
    }


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

    sunk = px.transform(px.import_ep(exported(Two(), torch.ones(2, 4))), *px.DEFAULT[:3])
    program = px.split_by_tags(sunk, ("a", "b"), tag_of=tag_of)
    assert asked == ["mul", "max_1", "add"]
    assert px.split_provenance(program).state == {"w": ("a.w", "b.w")}
    assert program.state["a.w"].cell == program.state["b.w"].cell
    assert [
        len([n for n in program.graphs[name].nodes if isinstance(n.do, px.Get)]) for name in "ab"
    ] == [1, 1]


@pytest.mark.parametrize("stack", [(), (px.Frame("m"),)], ids=["flat", "outlined"])
def test_a_tag_without_nodes_is_a_part_that_does_nothing(stack: tuple[px.Frame, ...]) -> None:
    base = px.outline(flat([node("a", NEG, "x", stack=stack)], px.Ref("a"), "x"))
    program = px.split_by_tags(base, ("z", "a", "q"), tag_of=lambda _: "a")
    assert [part.name for part in px.parts(program)] == ["z", "a", "q"]
    assert px.verify(program) == ()
    assert px.join(program) == base


def region(scope: int) -> px.Op:
    """Return an operator that opens or closes a region."""
    return px.Op(f"toy.region{scope}", px.Effects(ordered=True, scope=scope))


def test_a_region_is_in_one_part() -> None:
    nodes = [
        px.Node("open", region(1)),
        node("a", NEG, "x"),
        node("c", NEG, "a"),
        px.Node("shut", region(-1)),
    ]
    program = px.split_by_tags(
        flat([node("b", NEG, "x"), *nodes], (px.Ref("b"), px.Ref("c")), "x"),
        ("b", "a"),
        tag_of={"b": "b", "a": "a"},
    )
    assert names_in(program) == {"b": ["b"], "a": ["open", "a", "c", "shut"]}


def test_a_preserved_call_is_in_one_part() -> None:
    module, x = Tower(2), torch.ones(2, 4)
    ep = torch.export.export(module, (x,), preserve_module_call_signature=("layers.1",))
    base = px.transform(px.import_ep(ep))
    program = px.split_by_module(base, {"layers.0": "a", "layers.1": "b"})
    assert list(program.call_signatures) == [px.Frame("b.layers.1")]
    assert torch.equal(px.lower(program).get_submodule("b.layers.1")(x), module.layers[1](x))
    with pytest.raises(
        px.errors.PartitionError,
        match=r"layers\.1, whose call signature was preserved, would be cut",
    ):
        px.split_by_module(base, {"layers.1.up": "a", "layers.1.down": "b"})


UNITS = """
program {
  facts (flat)
  modules {
    "": toy.Module
    m: toy.Module
    n: toy.Module
  }
  takes {
    user x: i64[]
  }
  gives {
    user
    user
  }
  signatures {
    m: in_spec ((*,), {}) out_spec (*, *)
    n: in_spec ((*,), {}) out_spec *
  }
  graph @""(x) {
    takes = purefx.takes(x)     in m
    a = toy.neg(x) ! pure       in m
    b = toy.neg(a) ! pure       in m
    gives = purefx.gives(a, b)  in m
    takes_1 = purefx.takes(b)   in n
    c = toy.neg(x) ! pure       in n
    gives_1 = purefx.gives(c)   in n
    early = toy.neg(a) ! pure
    late = toy.neg(b) ! pure
    return (early, late)
  }
}
"""


def test_a_preserved_call_without_a_tag_goes_to_one_part() -> None:
    """To the first that uses any of it, or behind the last that it depends on, though none of its operators does."""
    split = px.split_by_tags(px.parse(UNITS), ("t0", "t1"), tag_of={"early": "t0", "late": "t1"})
    assert px.verify(split) == ()
    assert {"a", "b", "early"} <= {*names_in(split)["t0"]} and "late" in names_in(split)["t1"]
    text = UNITS.replace(
        "takes_1 = purefx.takes(b)   in n",
        "mid = toy.neg(b) ! pure\n    takes_1 = purefx.takes(mid) in n",
    )
    found = names_in(
        px.split_by_tags(px.parse(text), ("t0", "t1"), tag_of={"early": "t0", "mid": "t1"})
    )
    assert {"a", "b", "early"} <= {*found["t0"]} and {"mid", "takes_1", "c", "gives_1"} <= {
        *found["t1"]
    }
    # The call needs a value of the second part, and the first one needs the call.
    text = UNITS.replace(
        "takes = purefx.takes(x)     in m",
        "mid = toy.neg(x) ! pure\n    takes = purefx.takes(mid)   in m",
    )
    with pytest.raises(px.errors.PartitionError, match="early"):
        px.split_by_tags(px.parse(text), ("t0", "t1"), tag_of={"early": "t0", "mid": "t1"})
    # A region begins in one call and ends behind another.
    program, scopes = px.parse(UNITS), {"a": 1, "early": -1}
    nodes = [
        one.evolve(do=region(scopes[one.name])) if one.name in scopes else one
        for one in program.main.nodes
    ]
    with pytest.raises(
        px.errors.PartitionError,
        match=r"'a' in m opens together with m, .* together with n, .* would be cut",
    ):
        px.split_by_tags(
            program.with_main(program.main.with_nodes(nodes)),
            ("t0", "t1"),
            tag_of={"b": "t0", "c": "t1"},
        )


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
    """And so does the module that has it, however deep the body is; parts with other state are not joined."""
    base = px.parse(BODIES)
    split = px.split_by_tags(base, ("p", "q"), tag_of={"y": "p", "z": "q", "t": "q"})
    assert split.state.order == ("q.b.c.w", "p.a.v", "q.a.v")
    assert [module.path for module in split.modules] == ["", "p", "q", "q.b", "q.b.c", "p.a", "q.a"]
    assert px.verify(split) == () and px.join(split) == base
    slots = dict(split.state.pairs)
    slots["q.a.v"] = px.ir.Slot(px.ir.SlotKind.PARAMETER, torch.ones(1), 7, 7)
    with pytest.raises(px.errors.UnsupportedProgram) as found:
        px.join(split.evolve(state=px.ir.State(split.state.order, px.ir.pmap(slots))))
    assert str(found.value) == (
        "'a.v' was one tensor in several parts, and 'q.a.v' is another one now, so the parts cannot be joined; replace it in "
        "all of them, or in none"
    )


def test_a_body_that_the_split_leaves_as_it_is_stays_the_same_object() -> None:
    graphs = """
        graph @""(x) {
          a = call @a(x) as a
          c = higher_order.cond(a, @$then, @$other, (a,))
          r = operator.getitem(c, 0)
          return (r,)
        }
        graph @a(x) {
          n = aten.neg.default(x)
          return n
        }
        graph @$then(p) {
          t = get t
          n = aten.add.Tensor(p, t)
          return (n,)
        }
        graph @$other(p) {
          n = aten.abs.default(p)
          return (n,)
        }
    """
    program = tree(graphs, "state {\nbuffer t: f32[2]\n}")
    split = px.split_by_tags(program, ("one", "two"), tag_of={"a": "one", "": "two"})
    assert split.graphs["$then"] is program.graphs["$then"]
    assert made_anew(program, split) == []


class Held(parent(first=lambda: nn.Linear(4, 4), second=lambda: nn.Linear(4, 4))):
    """Holds the second module under a name that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = self.second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_a_name_that_nobody_reads_goes_where_its_tensor_is_read() -> None:
    split = px.split_by_module(
        px.transform(px.import_ep(exported(Held(), torch.ones(1, 4)))),
        {"first": "a", "second": "b"},
    )
    names = {name for name in split.state.order if name.endswith("weight")}
    assert names == {"a.first.weight", "b.second.weight", "b.spare.weight"}


def by_hand(sizes: list[int], depths: list[int], parts: int) -> list[int]:
    """Return where the parts end, found among all ways to cut: the smallest bound, then cut by cut the best that is left."""
    count = len(sizes)
    ways = [(*inner, count) for inner in combinations(range(1, count), parts - 1)]

    def largest(ends: tuple[int, ...]) -> int:
        return max(sum(sizes[start:end]) for start, end in zip((0, *ends), ends, strict=False))

    bound = min(map(largest, ways))
    left = [ends for ends in ways if largest(ends) == bound]
    start = 0
    for number in range(parts - 1):
        shares = parts - number

        def worth(end: int, start: int = start, shares: int = shares) -> tuple[int, int]:
            return depths[end], abs(sum(sizes[start:end]) * shares - sum(sizes[start:]))

        start = min({ends[number] for ends in left}, key=lambda end: (*worth(end), end))
        left = [ends for ends in left if ends[number] == start]
    return list(left[0])


@given(st.data())
def test_the_largest_part_is_as_small_as_it_can_be(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
    depths = data.draw(
        st.lists(st.integers(0, 2), min_size=len(sizes) + 1, max_size=len(sizes) + 1)
    )
    parts = data.draw(st.integers(1, len(sizes)))
    assert balanced(sizes, depths, parts) == by_hand(sizes, depths, parts)


@pytest.mark.parametrize("last", [[3, 4, 4], [2, 9]])
def test_the_size_of_a_parameter_is_its_bytes(last: list[int]) -> None:
    """The first parameter is of float64, and has fewest numbers; the large buffer in front counts for nothing."""
    values = [
        torch.ones(100),
        *[
            nn.Parameter(torch.ones(n, dtype=torch.float32 if at else torch.float64))
            for at, n in enumerate(last)
        ],
    ]
    nodes: list[px.Node] = []
    for number in range(len(values)):
        nodes.append(px.Node(f"r{number}", px.Get(f"s{number}")))
        nodes.append(node(f"n{number}", ADD, f"n{number - 1}" if number else "x", f"r{number}"))
    base = flat(nodes, px.Ref(nodes[-1].name), "x", facts=frozenset({"flat", "state sunk"}))
    program = base.with_state(add={f"s{number}": value for number, value in enumerate(values)})
    assert names_in(px.split_balanced(program, 2))["stage0"] == ["n0", "n1"]


def test_it_is_not_cut_inside_of_a_region() -> None:
    nodes = [
        node("a", NEG, "x"),
        px.Node("o", region(1)),
        node("b", NEG, "a"),
        node("c", NEG, "b"),
        px.Node("s", region(-1)),
    ]
    program = flat([*nodes, node("d", NEG, "c")], px.Ref("d"), "x")
    with pytest.raises(
        px.errors.PartitionError, match="split_balanced: the program can be split into 1 to 3 parts"
    ):
        px.split_balanced(program, 4)
    assert [*names_in(px.split_balanced(program, 3)).values()] == [
        ["a"],
        ["o", "b", "c", "s"],
        ["d"],
    ]


def test_flops_are_counted_as_torch_counts_them() -> None:
    """A convolution has few parameters and many operations."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(256, 8), nn.Linear(8, 200)
    )
    program = px.transform(px.capture(model, (torch.ones(2, 1, 8, 8),)))

    def first(cost: Any) -> list[str]:
        split = px.split_balanced(program, 2, cost=cost)
        return [module.path for module in split.modules if module.path.startswith("stage0.")]

    assert first("flops") == ["stage0.0"]
    assert first("bytes") == ["stage0.0", "stage0.1", "stage0.2"]


WRITES = [node("a1", NEG, "x"), node("b", ADD_, "x", 1), node("a2", NEG, "x")]
CUT = [
    px.Node("open", region(1)),
    node("a", NEG, "x"),
    node("b", NEG, "a"),
    px.Node("shut", region(-1)),
]


@pytest.mark.parametrize(
    ("tags", "tag_of", "error", "words"),
    [
        ("ab", None, TypeError, "tags is a sequence"),
        ((1,), None, TypeError, "a tag is a string"),
        ((), None, px.errors.PartitionError, "pass at least one"),
        (("a", "a"), None, px.errors.PartitionError, "are repeated"),
        (("a.b",), None, px.errors.PartitionError, "cannot be the name of a part"),
        (("forward",), None, px.errors.PartitionError, "cannot be the name of a part"),
        (("a",), {"b": "c"}, px.errors.PartitionError, "not one of the tags"),
        (("a",), {"bb": "a"}, px.errors.PartitionError, "did you mean 'b'"),
        (("a",), 3, TypeError, "tag_of is a mapping"),
        (("a",), lambda _: 3, px.errors.PartitionError, "the tag 3"),
        (("a", "b"), by_first_letter, px.errors.PartitionError, "the region that node 'open' opens would be cut"),
        (WRITES, by_first_letter, px.errors.PartitionError, "node 'a2' has the tag 'a'[\\s\\S]*reads memory that 'b' writes"),
        (None, {"cost": "time"}, ValueError, 'split_balanced: cost=\'time\': pass "bytes", "flops" or a function'),
        (None, {"cost": 3}, TypeError, "split_balanced: cost is .* not a int"),
        (None, {"cost": lambda _: -1}, ValueError, "split_balanced: cost returns -1 for node 'a'"),
        (None, {"k": 2.0}, TypeError, "split_balanced: k is the number of parts"),
    ],
)  # fmt: skip
def test_what_can_not_be_meant_is_refused(
    tags: Any, tag_of: Any, error: type[Exception], words: str
) -> None:
    nodes, tags = (WRITES, ("a", "b")) if tags is WRITES else (CUT, tags)
    program = flat(nodes, px.Ref("b"), "x")
    with pytest.raises(error, match=words):
        px.split_balanced(program, **{"k": 1, **tag_of}) if tags is None else px.split_by_tags(
            program, tags, tag_of=tag_of
        )


def test_state_has_to_be_sunk() -> None:
    program = px.capture(nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(px.errors.PipelineError, match="split_balanced requires"):
        px.split_balanced(program, 1)
