"""Meta of fx nodes: what the program carries, thawed, with the fake value, the module stack and where the node comes from.

One idea: the exporter's spelling of a stack of calls is made once for each distinct stack.  Containers are copied, so that
who edits the exported program does not edit the program; the leaves (fake tensors, sizes) are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve
from torch.fx.traceback import NodeSource, NodeSourceAction

from ...ir.listing import first_paths
from ...ir.meta import Meta, is_backward, spelled_stack, thaw
from ...ir.node import Node, Op, Stack
from ...ir.paths import join
from ...ir.program import Program
from ...ir.signature import LossOutput

__all__ = ["Metas"]

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
        self._made_by: Mapping[tuple[str, str], str] | None = None

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
        meta["nn_module_stack"] = self.spelled(self.absolute(base, stack))
        maker = self._maker(node) if "from_node" not in meta and "stack_trace" not in meta else ""
        if maker:
            meta["from_node"] = [NodeSource(None, f"purefx.{maker}", NodeSourceAction.CREATE)]
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

    def _maker(self, node: Node) -> str:
        # The step of the trail that made a node: the first one after which there is a node of that name and operator;
        # none for one that was there before.
        if self._made_by is None:
            found: dict[tuple[str, str], str] = {}
            steps = self.program.trail
            versions = [*[step.before for step in steps], self.program]
            for maker, version in zip(["", *[step.name for step in steps]], versions, strict=True):
                for _, other in version.nodes():
                    if type(other.do) is Op:
                        found.setdefault((other.name, other.do.name), maker)
            self._made_by = found
        assert type(node.do) is Op
        return self._made_by.get((node.name, node.do.name), "to_ep")


def _thawed(meta: Meta) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in meta.items():
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
