"""Meta of fx nodes: that of the program, thawed, and fake values of nodes that a rewrite added.

Stacks and source lines are kept; where nodes come from is said as torch says it (``from_node``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from attrs import evolve
from torch.fx.traceback import NodeSource, NodeSourceAction

from ...ir.analysis.history import versions
from ...ir.calls.parts import first_paths
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Node, Op, Stack, place_of
from ...ir.inference import FakeValues, running
from ...ir.meta import ORIGIN, Meta, is_backward, spelled_stack, thaw
from ...ir.names import join
from ...ir.origins import INPUT, Imported, Made, Origin, origin_of, roots_at
from ...ir.program import Program
from ...ir.signature import LossOutput
from ...ir.torch_private import per_example, pytree, read_node_source

__all__ = ["Metas", "Values"]


class Values(FakeValues):
    """The fake values of one program that is to be exported."""

    def of_operand(self, formal: Any, owner: Node, operand: Any) -> Any:
        """Return the fake value of an input of an operator's body: its own, or that of the operand passed for it."""
        if "val" in formal.meta and self.is_ours(formal.meta["val"]):
            return formal.meta["val"]
        assert type(owner.do) is Op
        if operand is None or owner.do.name.rpartition(".")[2] in SLICING:
            raise UnsupportedProgram(
                f"{place_of(owner)}: the input {formal.name!r} of its body has no fake value, and the operands do not "
                f"determine it; put one into its meta['val']"
            )
        return operand

    def inferred(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operator returns for fake arguments.

        Args:
            node: whose value it is.
            target: its callable.
            args: fake values and literals; for a body, its module.
            kwargs: the same by name.

        Raises:
            UnsupportedProgram: the operator refuses them, or cannot be run on fake values.
        """
        try:
            with running(self.mode):
                args, kwargs = pytree.tree_map_only(torch.Tensor, per_example, (tuple(args), dict(kwargs)))
                return self.run(node, target, args, kwargs)
        except Exception as error:
            said = (str(error) or type(error).__name__).splitlines()[0]
            raise UnsupportedProgram(
                f"{place_of(node)}: it has no fake value, and its operator does not take those of its arguments ({said}); "
                "fix the node, or put what it gives into meta['val']"
            ) from error


SLICING = frozenset({"map_impl", "map", "scan", "associative_scan", "flex_attention", "flex_attention_backward"})
"""Operators whose bodies take other shapes than the operator."""

LISTS = frozenset({"from_node", "source_fn_stack"})
"""Entries that torch keeps in lists, which meta has as tuples."""

PLAIN = (str, int, bool, float, type(None))


class Metas:
    """Writes meta for the nodes of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.types = {module.path: module.type_name for module in program.modules}
        self.first = first_paths(program.modules)
        self._stacks: dict[Stack, dict[str, tuple[str, str]]] = {}
        self._forward = _forward_calls(program)

    def of_input(self, node: Any, value: Any) -> dict[str, Any]:
        """Return the meta of an input, with its fake value."""
        meta = _thawed(node.meta)
        meta["val"] = value
        return meta

    def of_node(self, node: Node, base: Stack, value: Any) -> dict[str, Any]:
        """Return the meta of a node.

        Args:
            node: of any graph.
            base: the module calls around the operator whose body it is in; () in the root.
            value: its fake value.
        """
        meta = _thawed(node.meta)
        meta["val"] = value
        stack = node.stack
        if self._forward and stack and is_backward(node.meta):
            stack = tuple([evolve(frame, call=frame.call - self._forward.get(frame.path, 0)) for frame in stack])
        stack = self.absolute(base, stack)
        meta["nn_module_stack"] = self.spelled(stack)
        told = self._from_node(node, stack, meta)
        if told is not None:
            meta["from_node"] = told
        return meta

    def absolute(self, base: Stack, stack: Stack) -> Stack:
        """Return the module calls around a node of a body, from the root on."""
        if not base:
            return stack
        return (*base, *[evolve(frame, path=join(base[-1].path, frame.path)) for frame in stack])

    def spelled(self, stack: Stack) -> dict[str, tuple[str, str]]:
        """Return the exporter's spelling of a stack: a new dict of key to (path, class)."""
        found = self._stacks.get(stack)
        if found is None:
            found = self._stacks[stack] = spelled_stack([(frame.path, frame.call) for frame in stack], self.types, self.first)
        return dict(found)

    def _from_node(self, node: Node, stack: Stack, meta: Mapping[str, Any]) -> list[Any] | None:
        # Where a node comes from, as torch tells it: None where its meta says that already.
        assert type(node.do) is Op
        origin, op = origin_of(node.meta), node.do.name
        if origin is None:
            if "from_node" in meta or "stack_trace" in meta:
                return None
            return [NodeSource(None, f"purefx.{self._untold.get((node.name, op), 'to_ep')}", NodeSourceAction.CREATE)]
        if isinstance(origin, Imported) and origin.op == op:
            return None
        roots = [root for root in roots_at([origin], stack[-1].path if stack else "") if root.op != INPUT]
        if len(roots) == 1 and roots[0].op == op and getattr(origin, "is_one", False):
            return self._imported.get(roots[0])
        maker = origin
        while isinstance(maker, Made) and maker.is_one:
            maker = maker.of[0]  # it stands for others that were made alike
        made_by = f"purefx.{getattr(maker, 'by', '') or self._steps.get((maker, op), 'to_ep')}"
        return [self._source(root, made_by) for root in roots] or [NodeSource(None, made_by, NodeSourceAction.CREATE)]

    def _source(self, root: Imported, made_by: str) -> Any:
        before = [source.to_dict() for source in self._imported.get(root, ())]
        told = {"name": root.name, "target": root.op, "graph_id": -1, "pass_name": made_by, "action": "replace"}
        return read_node_source({**told, "from_node": before})

    @cached_property
    def _imported(self) -> Mapping[Origin, list[Any]]:
        # What torch said of the nodes as they were imported, where the program has its trail.
        first = self.program.trail[0].before if self.program.trail else self.program
        metas = [(origin_of(node.meta), node.meta.get("from_node")) for _, node in first.nodes()]
        return {origin: list(told) for origin, told in metas if origin is not None and told}

    @cached_property
    def _untold(self) -> Mapping[tuple[str, str], str]:
        # The step after which a node first was there that does not say what it was made of, by its name and operator.
        trail = self.program.trail
        steps = zip([step.name for step in trail], [*[step.before for step in trail[1:]], self.program], strict=False)
        nodes = [(node, step) for step, version in reversed(list(steps)) for _, node in version.nodes()]
        return {(node.name, node.do.name): step for node, step in nodes if type(node.do) is Op and ORIGIN not in node.meta}

    @cached_property
    def _steps(self) -> Mapping[tuple[Origin, str], str]:
        # The step after which something first had its operator.
        found: dict[tuple[Origin, str], str] = {}
        for version in versions(self.program):
            for origin, places in version.places.items():
                for place in places:
                    found.setdefault((origin, place.op), version.step)
        return found


def _thawed(meta: Meta) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in meta.items():
        if key == ORIGIN:
            continue  # ``from_node`` says it
        if type(value) not in PLAIN:
            value = list(value) if key in LISTS and isinstance(value, tuple) else thaw(value)
        made[key] = value
    return made


def _forward_calls(program: Program) -> dict[str, int]:
    # How often the forward calls each module; nothing for a program without backward.
    if not any(type(spec) is LossOutput for spec in program.signature.outputs):
        return {}
    counts: dict[str, int] = {}
    for node in program.main.nodes:
        if not is_backward(node.meta):
            for frame in node.stack:
                counts[frame.path] = max(counts.get(frame.path, 0), frame.call + 1)
    return counts
