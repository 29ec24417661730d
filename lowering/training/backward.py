"""``Backward``: the backward program of a training module, which runs on a list of operands, in versions.

A version leaves out what nobody asked for, and what no gradient reaches.  Versions hold no tensor and are shared by all copies of
a module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...ir.arguments import Ref
from ...ir.graph import Graph, Input, Op
from ...ir.program import Program
from ...ir.signature import GIVEN
from ...ir.torch_private import device_of
from .boxed import Boxed, boxed
from .explicit import explicit, reached, with_results

__all__ = ["Backward", "Request"]

VERSIONS = 64
"""How many versions of a backward are kept."""


class Request(NamedTuple):
    """What one backward is asked for."""

    needed: tuple[bool, ...]
    """For each operand of the step whether it needs a gradient."""
    given: tuple[bool, ...]
    """For each tangent whether something used that output."""


class Backward:
    """A backward program that runs on a list of operands, in versions.

    Args:
        program: flat; it takes what was saved, then tangents, and reads state.
        places: for each operand of the step, which result is its gradient; None for no gradient.
        tangents: which of its inputs are tangents.
        device: replaces every device that the program names.
    """

    def __init__(
        self, program: Program, places: Sequence[int | None], tangents: Sequence[Input], device: torch.device | None
    ) -> None:
        self.places = tuple(places)
        self.tangents = tuple([formal.name for formal in tangents])
        self.layouts = [_strides(formal) for formal in tangents]
        self.moved_to = device
        whole = explicit(program)
        self.program = whole.program
        self.state = whole.state
        """The slots whose contents it takes."""
        self.full: Boxed = boxed(whole.program, device=device)
        self.versions: dict[Request, Boxed] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A lowered program is pickled as data; what runs it is made again.
        kept = {name: value for name, value in self.__dict__.items() if name not in ("program", "full", "versions")}
        return {**kept, "context": self.full.module.__dict__["purefx_place"].bodies}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self.program = self.__dict__.pop("context").program
        self.full = boxed(self.program)
        self.versions = {}

    def laid(self, tangents: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return tangents that lie in memory as those that the program was captured with.

        Formulas of autograd copy a tangent that is not contiguous before some kernels; a trace has no such branch.
        """
        if torch.compiler.is_compiling():
            return list(tangents)
        return [_laid(tangent, strides) for tangent, strides in zip(tangents, self.layouts, strict=True)]

    def run(self, box: list[Any], request: Request) -> Any:
        """Return the results of the backward; None for what was not asked for.

        Args:
            box: what was saved, the tangents, the state; empty afterwards.
            request: what is asked.
        """
        if torch.compiler.is_compiling():
            return self.full.run(self.full.module, box)
        return (self.versions.get(request) or self.version(request))(box)

    def version(self, request: Request) -> Boxed:
        """Return the version that answers a request, made when it is first asked for."""
        wanted = self._wanted(request)
        found = self.full if all(wanted) else boxed(with_results(self.program, wanted), device=self.moved_to)
        if len(self.versions) >= VERSIONS:
            self.versions.clear()
        self.versions[request] = found
        return found

    def _wanted(self, request: Request) -> list[bool]:
        # What is no gradient is always wanted.
        asked = {place for place, needed in zip(self.places, request.needed, strict=True) if needed and place is not None}
        graph = self.program.main
        alive = self._alive(graph, request)
        specs = zip(graph.output, self.program.signature.outputs, strict=True)
        results = [arg for arg, spec in specs if type(spec) in GIVEN]
        gradient = {place for place in self.places if place is not None}
        return [
            number not in gradient or (number in asked and (alive is None or type(arg) is not Ref or arg.name in alive))
            for number, arg in enumerate(results)
        ]

    def _alive(self, graph: Graph, request: Request) -> frozenset[str] | None:
        # What depends on a tangent that is there; None for all, also where memory that is written may carry one on.
        if all(request.given) or any(type(node.do) is Op and node.do.effects.writes for node in graph.nodes):
            return None
        return reached(graph, {name for name, there in zip(self.tangents, request.given, strict=True) if there})


def _strides(formal: Input) -> tuple[int, ...] | None:
    # None where they depend on sizes.
    value = formal.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    strides = tuple(value.stride())
    return strides if all(type(stride) is int for stride in strides) else None


def _laid(tangent: torch.Tensor, strides: tuple[int, ...] | None) -> torch.Tensor:
    if strides is None:
        return tangent.contiguous()
    if tangent.stride() == strides:
        return tangent
    return torch.empty_strided(tangent.shape, strides, dtype=tangent.dtype, device=device_of(tangent)).copy_(tangent)
