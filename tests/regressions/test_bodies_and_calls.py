"""Bodies and calls of modules: programs that were once deduplicated, inlined, cut or joined wrongly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.calls.call_graph import instance_paths, signatures_of_bodies
from tests.models import NEG, exported, parent
from tests.transforms.small import tree

# Bodies that call the next one twice each, two hundred deep, and one preserved signature: to verify it took for ever.


DEEP = 200


def test_verified_at_once() -> None:
    """What is found is what it was: the signature of the outermost body, and a place for each."""
    program = tree(
        """
        graph @""(x) {
          a = call @g0(x) as m
          return (a,)
        }
        graph @g0(x) {
          a = aten.neg.default(x)
          return a
        }
        """
    )
    twice = [px.Node(name, px.Call(px.Frame(name), ""), (px.Ref("x"),)) for name in ("l", "r")]
    graphs = {f"g{DEEP}": program.graphs["g0"]}
    for number in range(DEEP):
        nodes = tuple(evolve(node, do=evolve(node.do, graph=f"g{number + 1}")) for node in twice)
        graphs[f"g{number}"] = px.Graph((px.Input("x"),), nodes, px.Ref("r"))
    signature = px.ir.CallSignature(None, None)
    deep = program.evolve(
        graphs=px.ir.pmap({"": program.main, **graphs}),
        call_signatures=px.ir.pmap({px.Frame("m.l.r"): signature}),
        modules=(),
    )
    assert not px.verify(deep)
    assert signatures_of_bodies(deep) == {"g2": signature}
    assert instance_paths(deep)["g3"] == "m.l.l.l" and len(instance_paths(deep)) == DEEP + 2


def negate(*calls: tuple[px.Frame, str]) -> px.Graph:
    """Return a body that calls others one after the other."""
    nodes = [
        px.Node(f"y{index}", px.Call(*call), (px.Ref(f"y{index - 1}" if index else "x"),))
        for index, call in enumerate(calls)
    ]
    return px.Graph((px.Input("x"),), tuple(nodes), px.Ref(nodes[-1].name))


def test_a_shared_body_whose_calls_are_numbered_differently_where_it_stands() -> None:
    """In module ``a`` call 1 of ``a.f`` has the body of call 0 and gets its number; in ``b`` it has not."""
    leaf = px.Graph((px.Input("x"),), (px.Node("y", NEG, (px.Ref("x"),)),), px.Ref("y"))
    twice = px.Graph(
        (px.Input("x"),),
        (px.Node("y", NEG, (px.Ref("x"),)), px.Node("z", NEG, (px.Ref("y"),))),
        px.Ref("z"),
    )
    second = negate((px.Frame("f", 1), "leaf"))
    root = negate(
        (px.Frame("a"), "first_a"), (px.Frame("a", 1), "second"), (px.Frame("b"), "first_b"), (px.Frame("b", 1), "second")
    )  # fmt: skip
    firsts = {
        "first_a": negate((px.Frame("f"), "leaf")),
        "first_b": negate((px.Frame("f"), "twice")),
    }
    root = px.Graph(root.inputs, root.nodes, (root.output,))
    program = px.Program.of({"": root, **firsts, "second": second, "leaf": leaf, "twice": twice})
    result = px.deduplicate(program)
    assert [node.do for node in result.main.nodes[:2]] == [
        px.Call(px.Frame("a"), "first_a"),
        px.Call(px.Frame("a"), "first_a"),
    ]
    assert [node.do for node in result.main.nodes[2:]] == [
        px.Call(px.Frame("b"), "first_b"),
        px.Call(px.Frame("b", 1), "second"),
    ]
    assert result.graphs["second"] is second
    assert px.deduplicate(result) is result


def test_a_body_that_calls_itself_is_refused() -> None:
    """It would stand in infinitely many modules."""
    graph = negate((px.Frame("f"), "loop"))
    root = px.Graph(graph.inputs, graph.nodes, (graph.output,))
    program = px.Program.of(
        {"": root, "loop": graph}, signature=px.ir.Signature((), (px.ir.UserOutput(),))
    )
    with pytest.raises(px.errors.InvalidProgram, match="loop"):
        px.deduplicate(program)


# ``deduplicate`` numbers the calls of a module part by part; ``join`` must not make one call of two.


class Scale(parent(weight=lambda: nn.Parameter(torch.tensor([2.0, 3.0])))):
    """Has another body for each number."""

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x * self.weight + number


class Caller(nn.Module):
    def __init__(self, shared: nn.Module, number: int) -> None:
        super().__init__()
        self.box, self.number = [shared], number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.box[0](x, self.number).relu()


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Scale()
        self.a, self.b = Caller(self.shared, 1), Caller(self.shared, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def test_calls_of_a_shared_module_are_not_mixed_up() -> None:
    """Calls of one module in two parts keep their numbers, merged or not."""
    model, x = Two(), torch.ones(2)
    program = px.transform(px.import_ep(exported(copy.deepcopy(model), x)))
    split = px.split_by_module(program, {"a": "p", "b": "q"})
    assert px.alpha_equal(px.join(split), program)
    merged = px.deduplicate(split)
    results: list[Any] = [px.lower(found)(x) for found in (split, merged)]
    assert all(torch.equal(result, model(x)) for result in results)
    assert px.alpha_equal(px.join(merged), program)


# Programs whose modules are not listed stay so when they are split, renumbered and joined; inputs follow the names of state.


def test_renumbering_lists_nothing_beside_parts() -> None:
    node = px.Node("y", NEG, (px.Ref("x"),), stack=(px.Frame("a", 3),))
    signature = px.ir.Signature(
        (px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), "x"),), (px.ir.UserOutput(),)
    )
    program = px.Program.of(
        {"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))}, signature=signature
    )
    split = px.inline(px.split_by_tags(program, ("part",), tag_of={"y": "part"}))
    numbered = px.normalize_stacks(split)
    assert numbered.main.nodes[0].stack[-1] == px.Frame("part.a")
    joined = px.join(numbered)
    assert px.verify(numbered) == px.verify(joined) == ()
    assert joined.modules == ()


def test_constants_of_a_split_program_that_was_inlined() -> None:
    """The part is then in the stacks of nodes, and in no graph."""
    node = px.Node("y", NEG, (px.Ref("x"),))
    signature = px.ir.Signature(
        (px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), "x"),), (px.ir.UserOutput(),)
    )
    program = px.Program.of(
        {"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))}, signature=signature
    )
    flat = px.inline(px.split_by_tags(program, ("part",), tag_of={"y": "part"}))
    constant = evolve(flat.main.nodes[0], args=(torch.ones(2),))
    lifted = px.lift_constants(flat.with_main(evolve(flat.main, nodes=(constant,))))
    assert lifted.state.order == ("part._constant0",)
    assert px.verify(lifted) == ()
    assert px.join(lifted).state.order == ("_constant0",)
