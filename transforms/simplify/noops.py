"""``remove_noops``: operators that give their operand, to the last bit, are their operand.

A table says for each operator when it gives back what it takes.  Sizes are compared as expressions; strides of an input are known
only when the program runs, so a copy goes only where its operand is fresh memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from ...ir.arguments import Arg, Ref
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.graph import Get, Graph, Node, Op
from ...ir.inference import values_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.torch_private import OpOverload, device_of, schema_of
from ..memory import Memory, computes
from ..transformation import UNLIMITED, Fuel, transformation

__all__ = ["remove_noops"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "values are the same to the last bit",
        "outputs share memory as they did",
        "no node is added, and none changes what it does",
    ],
)
def remove_noops(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Remove operators that give what they take.

    Before::

        a = aten.view.default(x, [2, 3])        # x: f32[2, 3]
        b = aten.exp.default(a)
        c = aten.clone.default(b)
        d = aten.dropout.default(c, 0.5, False)
        y = aten.neg.default(d)

    After::

        b = aten.exp.default(x)
        y = aten.neg.default(b)

    These are: ``view``, ``reshape``, ``expand`` to the sizes that are there, ``permute``, ``transpose`` and ``slice`` that change
    nothing, two ``transpose``, ``t`` or ``permute`` that undo one another, ``to`` of the dtype and device that are there,
    ``dropout`` that drops nothing, ``clone`` and ``_to_copy`` of fresh memory, and of fresh memory ``mul`` and ``div`` by one and
    ``sub`` of zero, ``add`` of zero for whole numbers alone (-0.0 + 0 is 0.0).  ``detach`` stays: it says where gradients end.

    The program's dtypes are taken at their word: a module that is made ``half()`` after it was lowered has no casts to float
    where they changed nothing before.  A program with regions as nodes (a level of vmap) stays as it is: there sizes are not what
    values say.  Memory that anybody writes stays as it is, and a tensor that is returned stays another one than the operand, if
    that is an input, state, or returned too.

    Args:
        program: a program at any stage, with fake values; where a value is missing, what depends on its sizes stays.
        fuel: a rewrite is one node that goes; bodies before their callers, in order.

    Returns:
        The program without them.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.exp().clone().neg()
    >>> program = px.import_ep(torch.export.export(Twice(), (torch.ones(2),)))
    >>> [node.name for node in px.remove_noops(program).main.nodes]
    ['exp', 'neg']
    """
    while True:
        effects = program_effects(program)
        if any(does.scope != (0, 0) for of in effects.values() for does in of):
            return program
        result = program.with_graphs({name: _Walk(program, name, effects[name], fuel).run() for name in program.bottom_up})
        if result is program:
            return program
        program = result  # what was written or returned through a view that is gone may be free now


class _Walk:
    """One walk over a graph."""

    def __init__(self, program: Program, name: str, effects: Sequence[NodeEffects], fuel: Fuel) -> None:
        self.name = name
        self.graph = program.graphs[name]
        self.fuel = fuel
        self.memory = Memory(program, name, effects)
        self.values = values_of(self.graph)
        self.edit = Rewriter(self.graph)
        self.known: dict[str, Ref] = {}
        """What stands for the nodes that go."""

    def run(self) -> Graph:
        """Return the graph without operators that do nothing; the same object if it has none."""
        for node in self.graph.nodes:
            found = self._same_as(node)
            if found is None:
                continue
            source = self.known.get(found.name, found)
            told = "remove", node.name, "of", source.name
            if self._is_unseen(node.name, source.name) and self.fuel.burn(*told, graph=self.name):
                self.edit.drop(node.name, source)
                self.known[node.name] = source
                if node.name in self.memory.given:
                    self.memory.given.add(source.name)
        return self.edit.graph()

    def _same_as(self, node: Node) -> Ref | None:
        # The value that a node gives.
        target: Any = node.do.target if type(node.do) is Op else None
        if not isinstance(target, OpOverload) or not computes(self.memory.effects[node.name]):
            return None
        rule = RULES.get(str(target))
        given = _arguments(node, target)
        source = given.get("self", given.get("input"))
        if rule is None or type(source) is not Ref:
            return None
        step = _Step(self, node, given, source, self.values.get(source.name), self.values.get(node.name))
        return rule(step)

    def maker(self, name: str) -> Node | None:
        """Return the node that makes a value, behind nodes that are gone."""
        return self.graph.by_name.get(self.known.get(name, Ref(name)).name)

    def is_fresh(self, name: str) -> bool:
        """Return whether a value is the result of an operator that makes new memory, laid out as the operator does."""
        node = self.maker(name)
        if node is None or type(node.do) is not Op or not isinstance(node.do.target, OpOverload):
            return False
        does = self.memory.effects[node.name]
        return not does.aliases and not does.writes and node.do.name.startswith("aten.") and "empty" not in node.do.name

    def _is_unseen(self, name: str, source: str) -> bool:
        memory = self.memory
        if memory.is_written(name) or memory.is_written(source):
            return False
        if any(is_boundary(self.graph.by_name[user]) for user in self.graph.users.get(name, ()) if user in self.graph.by_name):
            return False
        if name not in memory.given:
            return True
        # What is handed out is a tensor of its own: not an input or state, and not handed out by another way.
        made = self.graph.by_name.get(source)
        users = self.graph.users.get(source, ())
        only = users == (name,) and source not in self.graph.output_refs()
        return only and made is not None and type(made.do) is not Get


class _Step:
    """What a rule sees of a node: its arguments by name, the operand, and both values."""

    def __init__(self, walk: _Walk, node: Node, given: Mapping[str, Arg], source: Ref, before: Any, after: Any) -> None:
        self.walk = walk
        self.node = node
        self.given = given
        self.source = source
        self.before = before
        self.after = after

    @property
    def is_alike(self) -> bool:
        """Whether both values are known, and have one dtype, device, layout and equal sizes."""
        one, other = self.before, self.after
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            return False
        same = one.dtype == other.dtype and device_of(one) == device_of(other) and one.layout == other.layout is torch.strided
        same = same and one.is_conj() == other.is_conj() and one.is_neg() == other.is_neg()
        return same and [str(size) for size in one.shape] == [str(size) for size in other.shape]

    @property
    def is_fresh(self) -> bool:
        """Whether the operand is memory that an operator of torch made for it, laid out as the result is."""
        strides = [[str(size) for size in value.stride()] for value in (self.before, self.after)]
        return strides[0] == strides[1] and self.walk.is_fresh(self.source.name)


Rule = Callable[[_Step], Ref | None]
"""Returns the value that a node gives; None if it is another."""


def _arguments(node: Node, target: Any) -> dict[str, Arg]:
    schema = schema_of(target).arguments
    found: dict[str, Arg] = {one.name: one.default_value for one in schema if one.has_default_value()}
    found.update({one.name: arg for one, arg in zip(schema, node.args, strict=False)})
    found.update(node.kwargs)
    return found


def _same_sizes(step: _Step) -> Ref | None:
    return step.source if step.is_alike else None


def _slice(step: _Step) -> Ref | None:
    whole = step.given["start"] in (None, 0) and step.given["step"] == 1
    return step.source if whole and step.is_alike else None


def _dims(step: _Step, node: Node, given: Mapping[str, Arg]) -> tuple[int, ...] | None:
    # Where each dimension of the result comes from.
    value = step.walk.values.get(node.name)
    rank = value.dim() if isinstance(value, torch.Tensor) else None
    dims: Any = given.get("dims", (0, 1) if "dim0" not in given else (given["dim0"], given["dim1"]))
    if rank is None or not all(type(dim) is int for dim in dims):
        return None
    order = list(range(rank))
    if "dims" in given:
        return tuple([dim % rank for dim in dims])
    if rank > 1 or ("dim0" in given and rank):
        one, other = (dim % rank for dim in dims)
        order[one], order[other] = other, one
    return tuple(order)


def _reordered(step: _Step) -> Ref | None:
    mine = _dims(step, step.node, step.given)
    if mine is None or not isinstance(step.before, torch.Tensor):
        return None
    if mine == tuple(range(len(mine))):
        return step.source
    inner = step.walk.maker(step.source.name)
    target: Any = inner.do.target if inner is not None and type(inner.do) is Op else None
    if inner is None or RULES.get(str(target)) is not _reordered:
        return None
    given = _arguments(inner, target)
    theirs, source = _dims(step, inner, given), given["self"]
    undone = theirs is not None and [theirs[dim] for dim in mine] == list(range(len(mine)))
    return source if undone and type(source) is Ref else None


def _cast(step: _Step) -> Ref | None:
    # Without a copy, `to` gives its operand where that is of the type already.
    free = (
        not step.given.get("copy")
        and not step.given.get("pin_memory")
        and step.given.get("memory_format") in (None, torch.preserve_format)
    )
    return step.source if free and step.is_alike else None


def _copy(step: _Step) -> Ref | None:
    kept = step.given.get("memory_format") in (None, torch.preserve_format) and not step.given.get("pin_memory")
    return step.source if kept and step.is_alike and step.is_fresh else None


def _drops_nothing(step: _Step) -> Ref | None:
    rate = step.given["p"]
    none = step.given["train"] is False or (type(rate) is float and rate == 0.0)
    return step.source if none else None


def _by_one(step: _Step) -> Ref | None:
    return _exact(step, step.given["other"], 1)


def _less_zero(step: _Step) -> Ref | None:
    return _exact(step, step.given["other"], 0)


def _plus_zero(step: _Step) -> Ref | None:
    whole = isinstance(step.before, torch.Tensor) and not step.before.is_floating_point()
    return _exact(step, step.given["other"], 0) if whole else None


def _exact(step: _Step, number: Arg, neutral: int) -> Ref | None:
    # Of complex numbers the parts are multiplied crosswise, and infinity times zero is no number; -0.0 is not neutral to minus.
    plain = type(number) in (int, float) and number == neutral and str(number) in (f"{neutral}", f"{neutral}.0")
    exact = plain and step.given.get("alpha", 1) == 1 and step.is_alike and not step.before.is_complex()
    return step.source if exact and step.is_fresh else None


RULES: Mapping[str, Rule] = MappingProxyType({
    **dict.fromkeys(["aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"], _same_sizes),
    **dict.fromkeys(["aten.expand.default", "aten.alias.default"], _same_sizes),
    "aten.slice.Tensor": _slice,
    **dict.fromkeys(["aten.permute.default", "aten.transpose.int", "aten.t.default"], _reordered),
    **dict.fromkeys(["aten.to.dtype", "aten.to.device", "aten.to.dtype_layout"], _cast),
    **dict.fromkeys(["aten.clone.default", "aten._to_copy.default"], _copy),
    **dict.fromkeys(["aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"], _drops_nothing),
    **dict.fromkeys(["aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"], _by_one),
    **dict.fromkeys(["aten.sub.Tensor", "aten.sub.Scalar"], _less_zero),
    **dict.fromkeys(["aten.add.Tensor", "aten.add.Scalar"], _plus_zero),
})  # fmt: skip
"""When an operator gives its first operand, or what that was made of."""
