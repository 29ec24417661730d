"""``lower(like=)``: what an edit left alone is shared with another lowering, and the result is that of a lowering from nothing.

Compared to the last bit, over several calls: outputs, state and gradients, for both kinds of modules, over chains of edits.
"""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.facts import FIELDS
from tests.programs import exported, parent


class Block(parent(lin=lambda: torch.nn.Linear(4, 4))):
    """Counts its calls, and scales."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + torch.nn.functional.gelu(self.lin(x)) * self.scale + self.count


class Tower(torch.nn.Module):
    """Several blocks; the same one twice on request."""

    def __init__(self, *, twice: bool = False) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(0.5 + number) for number in range(4)])
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.blocks[1](x) if self.twice else x


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def tower(*, twice: bool = False) -> px.Program:
    """Return a program of a tower."""
    torch.manual_seed(0)
    return px.transform(px.import_ep(exported(Tower(twice=twice), X)))


def scaled(program: px.Program, block: int, by: float) -> px.Program:
    """Return a program in which a block scales otherwise."""
    names = [name for name in program.order if any(is_scale(node) for node in program.graphs[name].nodes)]
    graph = program.graphs[names[block]]
    nodes = [node.evolve(args=(node.args[0], by)) if is_scale(node) else node for node in graph.nodes]
    return program.evolve(graphs=program.graphs.set(names[block], evolve(graph, nodes=tuple(nodes))))


def is_scale(node: px.Node) -> bool:
    """Return whether a node multiplies by a number."""
    return isinstance(node.do, px.Op) and node.do.name == "aten.mul.Tensor" and type(node.args[1]) is float


def ran(module: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor], list[Any]]:
    """Return outputs of three calls, the state after them, and the gradients."""
    module.zero_grad()
    outputs = [module(X) for _ in range(3)]
    outputs[-1].sum().backward()
    return outputs, list(module.state_dict().values()), [weight.grad for weight in module.parameters()]


def assert_same(module: torch.nn.Module, program: px.Program, to: Any) -> None:
    """Compare a module with what its program is lowered to from nothing, with equal state."""
    state = copy.deepcopy(module.state_dict())
    reference = lowered(px.Program(*[getattr(program, name) for name in FIELDS]), to=to)
    reference.load_state_dict(state)
    assert list(reference.state_dict()) == list(state)
    assert [name for name, _ in reference.named_modules()] == [name for name, _ in module.named_modules()]
    for mine, theirs in zip(ran(module), ran(reference), strict=True):
        assert all(map(torch.equal, mine, theirs))


def lowered(program: px.Program, **options: Any) -> Any:
    """Lower a program; modules have the attributes of the original."""
    return px.lower(program, **options)


KINDS = ("graph_module", "interpreter")


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("twice", [False, True])
def test_chains_of_edits_are_lowered_as_from_nothing(to: Any, twice: bool) -> None:
    program = tower(twice=twice)
    module = lowered(program, to=to)
    module(X)
    for step in range(8):
        program = scaled(program, step % 4, step + 0.25)
        module = lowered(program, to=to, like=module)
        assert_same(module, program, to)


def test_what_was_not_edited_is_the_same_module_with_the_same_tensors() -> None:
    program = tower()
    module = lowered(program)
    other = lowered(scaled(program, 0, 7.0), like=module)
    assert other.blocks[1] is module.blocks[1] and other.blocks[2].lin is module.blocks[2].lin
    assert other.blocks[0] is not module.blocks[0] and other.blocks is not module.blocks and other is not module
    assert all(mine is theirs for mine, theirs in zip(other.parameters(), module.parameters(), strict=True))
    assert all(mine is theirs for mine, theirs in zip(other.buffers(), module.buffers(), strict=True))
    before = module(X)
    with torch.no_grad():
        other.blocks[3].lin.weight.zero_()
    assert not torch.equal(module(X) - module.blocks[3].count, before), "a step of the one is one of the other"


def test_the_first_is_what_it_was() -> None:
    program = tower()
    module, reference = lowered(program), lowered(program)
    lowered(scaled(program, 0, 7.0), like=module)(X)
    reference.load_state_dict(copy.deepcopy(module.state_dict()))
    assert torch.equal(module(X), reference(X))
    assert [name for name, _ in module.named_modules()] == [name for name, _ in reference.named_modules()]


@pytest.mark.parametrize("to", KINDS)
def test_it_is_copied_pickled_and_converted(to: Any) -> None:
    program = scaled(tower(), 1, 3.0)
    module = lowered(program, to=to, like=lowered(tower_of(program), to=to))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        other.load_state_dict(copy.deepcopy(module.state_dict()))
        for mine, theirs in zip(ran(module), ran(other), strict=True):
            assert all(map(torch.equal, mine, theirs))
        other.load_state_dict(module.state_dict())
    half = copy.deepcopy(module).double()
    assert half(X.double()).dtype is torch.float64
    assert lowered(scaled(program, 2, 5.0), to=to, like=half)(X.double()).dtype is torch.float64


def tower_of(program: px.Program) -> px.Program:
    """Return an earlier version of a program, with its state."""
    return scaled(program, 1, 1.5)


def test_an_error_is_told_where_it_is() -> None:
    program = tower()
    name = next(name for name in program.order if any(is_scale(node) for node in program.graphs[name].nodes))
    graph = program.graphs[name]
    bad = [node.evolve(args=(node.args[0], px.Ref(graph.inputs[0].name))) if is_scale(node) else node for node in graph.nodes]
    view = px.Node("bad", px.ir.operators.op_of(torch.ops.aten.view.default), (px.Ref(graph.inputs[0].name), px.ir.Items([3, 5])))
    broken = program.evolve(graphs=program.graphs.set(name, evolve(graph, nodes=(view, *bad))))
    module = lowered(broken, like=lowered(program))
    with pytest.raises(RuntimeError) as raised:
        module(X)
    assert "blocks.0" in "".join(raised.value.__notes__) and "bad" in "".join(raised.value.__notes__)


def test_what_cannot_be_shared_is_refused() -> None:
    program = tower()
    module = lowered(program)
    with pytest.raises(px.errors.ArgumentError, match="takes the root"):
        lowered(program, like=module.blocks[0])
    with pytest.raises(px.errors.ArgumentError, match="takes the root"):
        lowered(program, like=torch.nn.Linear(2, 2))
    with pytest.raises(px.errors.ArgumentError, match="other state"):
        lowered(tower(), like=module)
    with pytest.raises(px.errors.ArgumentError, match="device"):
        lowered(program, like=module, device="cpu")
    other = lowered(program)
    other.blocks[0].lin = torch.nn.Linear(4, 4)
    with pytest.raises(px.errors.ArgumentError, match=r"blocks\.0\.lin"):
        lowered(scaled(program, 2, 2.0), like=other)
    edited = lowered(program)
    edited.blocks[1].recompile()
    with pytest.raises(px.errors.ArgumentError, match=r"blocks\.1"):
        lowered(program, like=edited)


def test_a_swap_asks_the_program_that_runs() -> None:
    # A callee of what was edited asks what it is called with now.
    program = tower()
    module = lowered(scaled(program, 0, 2.0), like=lowered(program))
    module.blocks[0].lin = torch.nn.Linear(4, 4)
    assert module(X).shape == X.shape
    with pytest.raises(px.errors.SwapError):
        module.blocks[0].lin = None


@pytest.mark.usefixtures("quick_collection")
def test_variants_leave_nothing_behind() -> None:
    program = tower()
    module = lowered(program)
    module(X)

    def variants(count: int) -> None:
        for number in range(count):
            other = lowered(scaled(program, 0, float(number)), like=module)
            other(X)
            px.digest(scaled(program, 0, float(number)))

    variants(20)
    gc.collect()
    before, codes = len(gc.get_objects()), len(type(module).purefx_codes)
    variants(200)
    gc.collect()
    assert len(type(module).purefx_codes) <= codes
    assert len(gc.get_objects()) - before < 200


def test_any_number_of_versions_is_compiled() -> None:
    # Dynamo keeps eight compilations of one code object: each root has its own.
    program = px.transform(px.import_ep(exported(torch.nn.Linear(4, 4), X)))
    module = lowered(program)
    for _ in range(9):
        other = lowered(program, like=module)
        assert torch.equal(torch.compile(other, fullgraph=True, backend="eager")(X), module(X))
    torch.compiler.reset()
