"""Meta of fx nodes: that of the program, thawed, and fake values of nodes that a rewrite added.

Stacks and source lines are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve
from torch.fx.traceback import NodeSource, NodeSourceAction

from ...ir.calls.parts import first_paths
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Node, Op, Stack, place_of
from ...ir.inference import FakeValues, running
from ...ir.meta import Meta, is_backward, spelled_stack, thaw
from ...ir.names import join
from ...ir.program import Program
from ...ir.signature import LossOutput

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
