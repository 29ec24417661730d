"""Fake values of an exported program: those that the program carries, and those of nodes that a rewrite has put in.

One idea: an exported program says what every value is, so what can not be worked out is refused, with the place.  How values
are worked out is in ``ir/fakes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import UnsupportedProgram
from ...ir.fakes import FakeValues, running
from ...ir.node import Node, Op
from ...ir.places import place_of

__all__ = ["Values"]


class Values(FakeValues):
    """The fake values of one program that is to be exported."""

    def of_operand(self, formal: Any, owner: Node, operand: Any) -> Any:
        """Return the fake value of an input of an operator's body: its own, or that of what the operator hands over."""
        if "val" in formal.meta and self.is_ours(formal.meta["val"]):
            return formal.meta["val"]
        assert type(owner.do) is Op
        if operand is None or owner.do.name.rpartition(".")[2] in SLICING:
            raise UnsupportedProgram(
                f"{place_of(owner)}: the input {formal.name!r} of its body has no fake value, and it can not be told from the "
                "operands; put one into its meta['val']"
            )
        return operand

    def inferred(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operator gives for fake arguments.

        Args:
            node: whose value it is.
            target: its callable.
            args: fake values and literals; for a body, its module.
            kwargs: the same by name.

        Raises:
            UnsupportedProgram: the operator refuses them, or can not be run on fake values.
        """
        try:
            with running(self.mode):
                return self.run(node, target, args, kwargs)
        except Exception as error:
            said = (str(error) or type(error).__name__).splitlines()[0]
            raise UnsupportedProgram(
                f"{place_of(node)}: it has no fake value, and its operator does not take those of its arguments ({said}); "
                "mend the node, or put what it gives into meta['val']"
            ) from error


SLICING = frozenset({"map_impl", "map", "scan", "associative_scan", "flex_attention", "flex_attention_backward"})
"""Operators whose bodies take other shapes than the operator."""
