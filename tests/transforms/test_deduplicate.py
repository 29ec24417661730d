"""Deduplication: equal bodies become one; callees, state and literals tell bodies apart."""

from __future__ import annotations

import torch
from torch import nn

import purefx as px
from tests.programs import ADD, MUL, NEG, Counter, Tower, exported, flat


def whole(module: nn.Module, *args: object, **kwargs: object) -> px.Program:
    """Return the program after the default pipeline."""
    return px.transform(px.import_ep(exported(module, *args, **kwargs)))


def test_equal_blocks_are_one_body() -> None:
    """The blocks of a tower are one body, and so are all their linear layers."""
    program = whole(Tower(5), torch.ones(2, 4))
    assert program.order == ("", "layers.0", "layers.0.up")
    assert {node.do.graph for node in program.main.nodes if isinstance(node.do, px.Call)} == {"layers.0"}
    assert px.deduplicate(program) is program


def test_bodies_that_differ_in_a_child_only_stay_apart() -> None:
    """Two calls of one module with the same nodes that call different children."""

    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.ReLU(), nn.Tanh()

        def forward(self, x: torch.Tensor, *, first: bool) -> torch.Tensor:
            return self.one(x) if first else self.two(x)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.choice = Choice()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.choice(self.choice(x, first=True), first=False)

    model, x = Both(), torch.randn(3)
    program = whole(model, x)
    assert {"choice", "choice@1"} <= set(program.order)
    assert torch.equal(px.lower(program)(x), model(x))


def test_literals_are_compared_with_their_type() -> None:
    """x * 1, x * 1.0 and x * True are three bodies."""
    nodes = [
        px.Node(f"n{index}", MUL, (px.Ref("x"), value), (), (px.Frame(f"m{index}"),))
        for index, value in enumerate([1, 1.0, True, 1])
    ]
    program = px.deduplicate(px.outline(flat(nodes, tuple(px.Ref(node.name) for node in nodes), "x")))
    assert [node.do.graph for node in program.main.nodes if isinstance(node.do, px.Call)] == ["m0", "m1", "m2", "m0"]


def test_state_is_part_of_a_body() -> None:
    """Reading ``a`` is not reading ``b``, though both are one tensor read."""

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor, *, which: str) -> torch.Tensor:
            return x * getattr(self, which)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reads = Reads()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.reads(self.reads(x, which="a") + 1, which="b") + self.reads(x, which="a")

    model, x = Twice(), torch.randn(2)
    program = whole(model, x)
    called = [(str(node.do.instance), node.do.graph) for node in program.main.nodes if isinstance(node.do, px.Call)]
    assert called == [("reads", "reads"), ("reads@1", "reads@1"), ("reads", "reads")]
    assert torch.equal(px.lower(program)(x), model(x))


def test_calls_of_one_module_with_one_body_are_one() -> None:
    """A stateful module called three times has one body, and eager's numbers."""

    class Thrice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counter = Counter()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.counter(self.counter(self.counter(x)))

    model, x = Thrice(), torch.randn(2, 4)
    program = whole(model, x)
    assert set(program.order) == {"", "counter", "counter.linear"}
    module = px.lower(program)
    assert torch.equal(module(x), model(x))
    assert list(module.state_dict()) == list(model.state_dict())


def test_operator_bodies_are_shared_too() -> None:
    """The branches of two equal conds are one pair of bodies."""

    class Conds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
            return x

    model, x = Conds(), torch.randn(3)
    program = whole(model, x)
    assert len([name for name in program.order if name.startswith("$")]) == 2
    assert torch.equal(px.lower(program)(x), model(x))


def test_independent_of_the_table_and_of_names() -> None:
    """Graph ids and the order of the table do not matter: the result is the same up to names."""
    nodes = [px.Node(f"n{index}", op, (px.Ref("x"),), (), (px.Frame(f"m{index}"),)) for index, op in enumerate([NEG, NEG, ADD])]
    program = px.outline(flat(nodes, tuple(px.Ref(node.name) for node in nodes), "x"))
    backwards = program.evolve(graphs=px.pmap({name: program.graphs[name] for name in reversed(program.order)}))
    assert px.deduplicate(program) == px.deduplicate(backwards)
