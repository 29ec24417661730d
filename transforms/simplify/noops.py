"""``remove_noops``: drop operators whose result equals their operand to the last bit.

A table has a rule for each operator.  Sizes are compared as expressions, and as numbers at sizes 0 and 1 if the program accepts
them, because torch records values as if they were at least 2.  Strides of an input are unknown before the program
runs, so a copy is dropped only if its operand is fresh memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.arguments import Arg, Ref
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.graph import Get, Graph, Node
from ...ir.inference import Border, borders_of, values_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.torch_private import OpOverload, device_of, schema_of
from ..memory import Memory, computes
from ..transformation import UNLIMITED, Fuel, transformation


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "values are the same to the last bit",
        "outputs share memory as they did",
        "no node is added, and the remaining nodes keep their operators",
    ],
)
def remove_noops(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Remove operators whose result equals their operand.

    Before::

        a = aten.view.default(x, [2, 3])        # x: f32[2, 3]
        b = aten.exp.default(a)
        c = aten.clone.default(b)
        d = aten.dropout.default(c, 0.5, False)
        y = aten.neg.default(d)

    After::

        b = aten.exp.default(x)
        y = aten.neg.default(b)

    No-ops are:

    - ``view``, ``reshape`` and ``expand`` to the same sizes; ``permute``, ``transpose`` and ``slice`` that change nothing
    - ``to`` the same dtype and device; ``dropout`` that drops nothing
    - ``clone`` and ``_to_copy`` of fresh memory
    - of fresh memory ``mul`` and ``div`` by one, ``sub`` of zero, and ``add`` of zero to integers (-0.0 + 0 is 0.0)

    Views and copies are dropped if this holds for all sizes that the program accepts, also 0 and 1.

    ``detach`` stays, because it ends gradients.  A module that is converted with ``half()`` after lowering lacks casts to float
    that were no-ops before.  A program with regions as nodes (a level of vmap) is unchanged: its fake values have other sizes.
    Written memory is unchanged.  A returned tensor stays distinct from the operand if that is an input, state, or also returned.

    Args:
        program: a program at any stage, with fake values; operators on values without one stay.
        fuel: a rewrite is one dropped node; bodies before their callers, in order.

    Returns:
        The program without no-ops.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.exp().clone().neg()
    >>> program = px.import_ep(torch.export.export(Twice(), (torch.ones(2),)))
    >>> [node.name for node in px.remove_noops(program).main.nodes]
    ['exp', 'neg']
    """
    borders: Sequence[Border] = ()
    while True:
        effects, borders = program_effects(program), borders_of(program, borders)
        if any(effect.scope != (0, 0) for of in effects.values() for effect in of):
            return program
        result = program.with_graphs(
            {
                name: _Walk(program, name, effects[name], borders, fuel).run()
                for name in program.bottom_up
            }
        )
        if result is program:
            return program
        program = (
            result  # a value that was written or returned through a dropped view may be fresh now
        )


class _Walk:
    """One walk over a graph."""

    def __init__(
        self,
        program: Program,
        name: str,
        effects: Sequence[NodeEffects],
        borders: Sequence[Border],
        fuel: Fuel,
    ) -> None:
        self.name = name
        self.borders = borders
        self.graph = program.graphs[name]
        self.fuel = fuel
        self.memory = Memory(program, name, effects)
        self.values = values_of(self.graph)
        self.edit = Rewriter(self.graph)
        self.known: dict[str, Ref] = {}
        """The substitutes of the dropped nodes."""

    def run(self) -> Graph:
        """Return the graph without no-ops; the same object if it has none."""
        for node in self.graph.nodes:
            step = self._step(node)
            if step is None:
                continue
            source = self.known.get(step.source.name, step.source)
            is_unseen = self._is_unseen(node.name, source.name)
            # The borders are asked last: their values are expensive.
            holds = is_unseen and self._holds_at_borders(node, step)
            if holds and self.fuel.burn("remove", node.name, "of", source.name, graph=self.name):
                self.edit.drop(node.name, source)
                self.known[node.name] = source
                if node.name in self.memory.given:
                    self.memory.given.add(source.name)
        return self.edit.graph()

    def _step(self, node: Node) -> _Step | None:
        # The node, if it returns its operand at the recorded values.
        target = node.target
        if not isinstance(target, OpOverload) or not computes(self.memory.effects[node.name]):
            return None
        rule = RULES.get(str(target))
        arguments = _arguments(node, target)
        source = arguments.get("self", arguments.get("input"))
        if rule is None or type(source) is not Ref:
            return None
        step = _Step(
            self, arguments, source, self.values.get(source.name), self.values.get(node.name)
        )
        return step if rule(step) else None

    def _holds_at_borders(self, node: Node, step: _Step) -> bool:
        rule = RULES[str(node.target)]
        if rule is _drops_nothing:  # it reads no values
            return True
        return all(rule(step.at(border, node.name)) for border in self.borders)

    def is_fresh(self, name: str) -> bool:
        """Return whether a value is the result of an operator that allocates memory, in the layout of that operator."""
        node = self.graph.by_name.get(self.known.get(name, Ref(name)).name)
        if node is None or not isinstance(node.target, OpOverload):
            return False
        effect = self.memory.effects[node.name]
        return (
            not effect.aliases
            and not effect.writes
            and node.op_name.startswith("aten.")
            and "empty" not in node.op_name
        )

    def _is_unseen(self, name: str, source: str) -> bool:
        memory = self.memory
        if memory.is_written(name) or memory.is_written(source):
            return False
        if any(map(is_boundary, self.graph.users_of(name))):
            return False
        if name not in memory.given:
            return True
        # A returned tensor is a separate one: not an input or state, and not returned twice.
        made = self.graph.by_name.get(source)
        only = (
            self.graph.users.get(source, ()) == (name,) and source not in self.graph.output_refs()
        )
        return only and made is not None and type(made.do) is not Get


@frozen
class _Step:
    """A node as a rule sees it: its arguments by name, the operand, and both values."""

    walk: _Walk
    arguments: Mapping[str, Arg]
    source: Ref
    before: Any
    after: Any

    def at(self, border: Border, name: str) -> _Step:
        """Return the step of a node at sizes 0 or 1, where its values may have another rank.

        Args:
            border: the sizes.
            name: of the node.
        """
        graph = self.walk.name
        before, after = (border.value(graph, one) for one in (self.source.name, name))
        return evolve(self, before=before, after=after)

    def is_alike(self) -> bool:
        """Whether both values are known, and have the same dtype, device, layout and sizes."""
        one, other = self.before, self.after
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            return False
        same = (
            one.dtype == other.dtype
            and device_of(one) == device_of(other)
            and one.layout == other.layout is torch.strided
        )
        same = same and one.is_conj() == other.is_conj() and one.is_neg() == other.is_neg()
        return same and [str(size) for size in one.shape] == [str(size) for size in other.shape]

    @property
    def is_fresh(self) -> bool:
        """Whether the operand is fresh memory of an operator of torch, in the layout of the result."""
        strides = [[str(size) for size in value.stride()] for value in (self.before, self.after)]
        return strides[0] == strides[1] and self.walk.is_fresh(self.source.name)


Rule = Callable[[_Step], bool]
"""Whether a node returns its operand."""


def _arguments(node: Node, target: Any) -> dict[str, Arg]:
    schema = schema_of(target).arguments
    found: dict[str, Arg] = {
        one.name: one.default_value for one in schema if one.has_default_value()
    }
    found.update({one.name: arg for one, arg in zip(schema, node.args, strict=False)})
    found.update(node.kwargs)
    return found


def _slice(step: _Step) -> bool:
    return step.arguments["start"] in (None, 0) and step.arguments["step"] == 1 and step.is_alike()


def _same_order(step: _Step) -> bool:
    if not isinstance(step.before, torch.Tensor):
        return False
    rank: Any = step.before.dim()
    dims: Any = step.arguments.get(
        "dims", (step.arguments.get("dim0", 0), step.arguments.get("dim1", 1))
    )
    if not all(type(dim) is int for dim in dims):
        return False
    if "dims" in step.arguments:
        return [dim % rank for dim in dims] == list(range(rank))
    return rank < 2 or (dims[0] - dims[1]) % rank == 0


def _keeps_layout(step: _Step) -> bool:
    kept = step.arguments.get("memory_format") in (
        None,
        torch.preserve_format,
    ) and not step.arguments.get("pin_memory")
    return kept and step.is_alike()


def _cast(step: _Step) -> bool:
    # Without a copy, `to` returns an operand of the requested type.
    return not step.arguments.get("copy") and _keeps_layout(step)


def _copy(step: _Step) -> bool:
    return _keeps_layout(step) and step.is_fresh


def _drops_nothing(step: _Step) -> bool:
    rate = step.arguments["p"]
    return step.arguments["train"] is False or (type(rate) is float and rate == 0.0)


def _plus_zero(step: _Step) -> bool:
    return (
        isinstance(step.before, torch.Tensor)
        and not step.before.is_floating_point()
        and _exact(step, neutral=0)
    )


def _exact(step: _Step, *, neutral: int) -> bool:
    # Not for complex numbers, where infinity times zero is NaN; x - (-0.0) is not x for x = -0.0.
    number = step.arguments["other"]
    plain = (
        type(number) in (int, float)
        and number == neutral
        and str(number) in (f"{neutral}", f"{neutral}.0")
    )
    exact = (
        plain
        and step.arguments.get("alpha", 1) == 1
        and step.is_alike()
        and not step.before.is_complex()
    )
    return exact and step.is_fresh


RULES: Mapping[str, Rule] = MappingProxyType({
    **dict.fromkeys(["aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"], _Step.is_alike),
    **dict.fromkeys(["aten.expand.default", "aten.alias.default"], _Step.is_alike),
    "aten.slice.Tensor": _slice,
    **dict.fromkeys(["aten.permute.default", "aten.transpose.int", "aten.t.default"], _same_order),
    **dict.fromkeys(["aten.to.dtype", "aten.to.device", "aten.to.dtype_layout"], _cast),
    **dict.fromkeys(["aten.clone.default", "aten._to_copy.default"], _copy),
    **dict.fromkeys(["aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"], _drops_nothing),
    **dict.fromkeys(["aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"], partial(_exact, neutral=1)),
    **dict.fromkeys(["aten.sub.Tensor", "aten.sub.Scalar"], partial(_exact, neutral=0)),
    **dict.fromkeys(["aten.add.Tensor", "aten.add.Scalar"], _plus_zero),
})  # fmt: skip
"""The condition under which an operator returns its first operand."""
