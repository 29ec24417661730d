"""What is hard for a transformation, and the tiers whose generated programs must have it: ``test_laws`` looks at its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import purefx as px
from purefx.laws.strategies import Stage
from purefx.laws.tiers import Tier

Reached = Callable[[px.Program], bool]


LEAST: dict[Tier, int] = {"toy": 20, "aten": 20, "modules": 2}
"""In how many programs it must be."""


def slots(program: px.Program) -> list[px.ir.Slot]:
    """Return the state."""
    return [slot for _, slot in program.state.pairs]


def frames(program: px.Program) -> set[px.Frame]:
    """Return the module calls on the stacks of the root."""
    return {frame for node in program.main.nodes for frame in node.stack}


def calls(program: px.Program) -> list[tuple[str, str]]:
    """Return the paths of modules, each with that of a module that it calls."""
    paths = {("", *[frame.path for frame in node.stack]) for node in program.main.nodes}
    return [
        (f"{outer}." if outer else "", inner) for path in paths for outer, inner in pairwise(path)
    ]


def outputs(program: px.Program, kind: type) -> int:
    """Return how many outputs of a kind there are."""
    return sum(type(spec) is kind for spec in program.signature.outputs)


def inputs(program: px.Program, kind: type, used: bool = False) -> set[str]:
    """Return the names of the inputs of a kind."""
    names = [formal.name for formal, spec in program.inputs if type(spec) is kind]
    return {name for name in names if not used or name in program.main.users}


def written(program: px.Program) -> list[str]:
    """Return the values that in-place operators write."""
    nodes = [
        node
        for node in program.main.nodes
        if isinstance(node.do, px.Op) and node.do.name.split(".")[1].endswith("_")
    ]
    return [node.args[0].name for node in nodes if isinstance(node.args[0], px.Ref)]


def node_of(program: px.Program, name: str) -> str:
    """Return the operator of a value; nothing for an input."""
    return str(program.main.by_name[name].do) if name in program.main.by_name else ""


REACHED: dict[str, tuple[str, Reached]] = {
    "tied state": ("toy aten modules", lambda p: len({slot.cell for slot in slots(p)}) < len(slots(p))),
    "shared memory": (
        "toy aten modules", lambda p: len({slot.storage for slot in slots(p)}) < len({slot.cell for slot in slots(p)}),
    ),
    "unused state": ("toy aten", lambda p: len(inputs(p, px.ir.StateInput, used=True)) < len(slots(p))),
    "constants": ("aten modules", lambda p: any(slot.kind is px.ir.SlotKind.CONSTANT for slot in slots(p))),
    "parameters": ("aten modules", lambda p: any(slot.kind is px.ir.SlotKind.PARAMETER for slot in slots(p))),
    "unsaved buffers": (
        "aten modules", lambda p: any(slot.kind is px.ir.SlotKind.BUFFER and not slot.persistent for slot in slots(p)),
    ),
    "a module called twice": ("toy aten modules", lambda p: len({frame.path for frame in frames(p)}) < len(frames(p))),
    "three levels": ("toy aten modules", lambda p: any(len(node.stack) > 2 for node in p.main.nodes)),
    "a skipped module": (
        "toy aten modules", lambda p: any(inner.removeprefix(outer).count(".") > 0 for outer, inner in calls(p)),
    ),
    "a module of elsewhere": ("toy aten modules", lambda p: any(not inner.startswith(outer) for outer, inner in calls(p))),
    "new contents of two buffers": ("toy aten", lambda p: outputs(p, px.ir.StateMutation) > 1),
    "new contents of an input": ("toy aten", lambda p: outputs(p, px.ir.InputMutation) > 0),
    "a constant output": ("toy aten modules", lambda p: any(type(arg) is not px.Ref for arg in p.main.output)),
    "a constant argument": (
        "aten", lambda p: any(type(s) is px.ir.UserInput and type(s.type) is not px.ir.TensorType for s in p.signature.inputs),
    ),
    "an input returned": ("toy aten", lambda p: not inputs(p, px.ir.UserInput).isdisjoint(p.main.output_refs())),
    "keywords": ("aten modules", lambda p: p.signature.in_spec.children()[1].num_leaves > 0),
    "nested outputs": ("aten modules", lambda p: any(not child.is_leaf() for child in p.signature.out_spec.children())),
    "a dynamic size": ("aten modules", lambda p: bool(p.constraints.ranges)),
    "a value written twice": ("aten", lambda p: len(set(written(p))) < len(written(p))),
    "state written in place": ("toy aten", lambda p: not inputs(p, px.ir.StateInput).isdisjoint(written(p))),
    "a view written": ("aten", lambda p: any("select" in node_of(p, name) or "slice" in node_of(p, name) for name in written(p))),
}  # fmt: skip


OPERATORS: dict[Tier, tuple[str, ...]] = {
    "toy": ("toy.enter", "toy.leave", "toy.cond", "toy.send", "toy.wait", "toy.count", "toy.rand", "toy.pair", "getitem"),
    "aten": (
        "aten.select_scatter", "aten.slice_scatter", "aten.add.out", "aten.batch_norm", "higher_order.cond", "aten.rand_like",
        "higher_order.wrap_with_set_grad_enabled", "aten.native_dropout", "aten.normal_", "aten.uniform_", "aten._print",
        "higher_order.with_effects", "aten._assert_async", "aten.split", "aten.unbind", "aten.max", "aten.sym_size",
    ),
    "modules": (
        "aten.add.out", "aten.mul_", "higher_order.cond", "wrap_with_set_grad", "aten.rand_like", "aten.dropout",
        "aten.batch_norm", "aten.embedding",
    ),
}  # fmt: skip


OF_STAGES: dict[Stage, Reached] = {
    "in place": lambda p: any(node.name.startswith("clone") for node in p.main.nodes),
    "deduplicated": lambda p: (
        0 < len(p.order) - 1 < sum(isinstance(node.do, px.Call) for _, node in p.nodes())
    ),
    "tokens": lambda p: any("with_effects" in str(node.do) for node in p.main.nodes),
}
