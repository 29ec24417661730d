"""``swap_modules``: modules of a program are replaced by other modules, or by other programs.

A call is swapped at its boundary.  The replacement gets the arguments that the preserved signature states, and its results
replace those of the original in the caller; everything else stays the same objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from attrs import define, evolve, field

from ...ir.analysis.versions import made_of_value
from ...ir.calls.call_graph import Instance, all_instances, calls_by_label
from ...ir.calls.call_sites import Convention, Through, conventions, flat_convention, passed_on, site_of
from ...ir.calls.compatibility import check_module, check_program
from ...ir.calls.parts import with_listed
from ...ir.errors import PipelineError, SwapError
from ...ir.graph import Call, Frame, Get, Graph, Node
from ...ir.inference import CallValues
from ...ir.names import Names, join, relative, way_to
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Module, Program
from ...ir.signature import StateGradient
from ...ir.state import Slot, SlotKind
from ..transformation import UNLIMITED, Fuel, transformation
from .bodies import Graft, Swap, graft, prepared
from .plan import Decision, instances, new_graphs, read_requests
from .state import covering, found_in, new_lifted, new_modules, new_state, stands_for

__all__ = ["swap_modules"]


@transformation(
    requires={"state sunk", "mutations in place"},
    forgets={"deduplicated", "state as inputs", "flat"},
    laws=[
        "a module that is swapped for its own body keeps the meaning",
        "swapping nothing gives the same object",
        "graphs that do not lead to a swapped module stay the same objects",
        "the replacement is called as often as the module was",
    ],
)
def swap_modules(
    program: Program,
    modules: Mapping[str, torch.nn.Module | Program],
    *,
    signature: Literal["preserved", "flat"] = "preserved",
    through: Through = "refuse",
    fuel: Fuel = UNLIMITED,
) -> Program:
    """Replace modules by other modules or programs.

    Before::

        up = call layers.0.mlp(x)                            # purefx.takes(x), purefx.gives(up) in its body

    After::

        mlp_module = get layers.0.mlp                        # a module of the state
        up = purefx.call_module(mlp_module, x)

    All calls of a module go to its replacement, which gets the arguments of the original in eager: constants, keywords and
    containers as in the preserved call signature.  The state of the module goes; that of the replacement comes, under the same
    path.  A program becomes a body like any other; a module is called as it is, so nothing moves across the call.

    Args:
        program: an outlined program, as ``transform(program)`` gives it.
        modules: for each path the replacement: a ``torch.nn.Module`` (eager, fx, compiled) or a program.
        signature: ``"flat"`` takes modules without a preserved call signature as well, and gives the replacement the inputs
            of the body by position; say it only where you know them.  A program that is put in so has no signature either.
        through: what uses of a value that the module returned as it was given mean afterwards: ``"result"`` or
            ``"argument"``.  By default one use means the result, and several are refused.
        fuel: a rewrite is one module that is swapped, in the order in which they are given.

    Returns:
        The program with the replacements; ``program`` itself if nothing is swapped.

    Raises:
        SwapError: a path or a replacement is not known or does not fit.  Nothing was done.
        PipelineError: the module's call is not outlined yet.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> ep = torch.export.export(model, (torch.ones(1, 2),), preserve_module_call_signature=("1",))
    >>> swapped = px.swap_modules(px.transform(px.import_ep(ep)), {"1": torch.nn.Softplus()})
    >>> px.lower(swapped).get_submodule("1")
    Softplus(beta=1.0, threshold=20.0)
    """
    _check_options(signature, through)
    requests = {path: by for path, by in read_requests(program, modules).items() if fuel.burn("swap", path)}
    if not requests:
        return program
    work = _Swapping(program, requests, signature == "flat", through)
    work.check_calls()
    return work.program_after()


def _check_options(signature: str, through: str) -> None:
    if signature not in ("preserved", "flat"):
        raise SwapError(f'signature={signature!r}: it is "preserved" or "flat"')
    if through not in ("refuse", "result", "argument"):
        raise SwapError(f'through={through!r}: it is "refuse", "result" or "argument"')


@define
class _Swapping:
    """One swap: the request, and the analysis of the program."""

    program: Program
    requests: dict[str, torch.nn.Module | Program]
    flat: bool
    through: Through
    names: Names = field(init=False)
    known: dict[str, Convention] = field(init=False)
    values: CallValues = field(init=False)
    grafts: dict[tuple[str, tuple[int, ...], bool], Graft] = field(factory=dict)
    programs: dict[str, Program] = field(init=False)
    """What stands in, ready to be a body."""
    signed: dict[Frame, CallSignature] = field(factory=dict)
    """The signatures of calls that go to programs."""
    read: dict[str, Slot] = field(factory=dict)
    """State of replacements that others read, by slot."""

    def __attrs_post_init__(self) -> None:
        self.names = Names(self.program.graphs)
        self.known = conventions(self.program)
        self.values = CallValues(self.program)
        self.programs = {path: prepared(path, by) for path, by in self.requests.items() if isinstance(by, Program)}

    def check_calls(self) -> None:
        """Refuse modules that nothing calls."""
        calls = calls_by_label(self.program)
        for path in self.requests:
            if path not in calls and not self._stands(path):
                raise SwapError(
                    f"module {path!r} is not called in this program, or its call did nothing that was exported; export again "
                    f"with preserve_module_call_signature=({path!r},) to keep the call"
                )

    def _stands(self, path: str) -> bool:
        # Whether nodes are in a call that is not outlined; a later check has a better message.
        program = self.program
        found = {name: {frame.path for node in program.graphs[name].nodes for frame in node.stack} for name in program.order}
        places = all_instances(program) if any(found.values()) else {}
        return any(join(place, inner) == path for name, several in places.items() for place in several for inner in found[name])

    def program_after(self) -> Program:
        """Return the program with the replacements."""
        program = self.program
        decisions = {place: self._decision(place) for place in instances(program, self.requests)}
        graphs = new_graphs(program, decisions, self.names)
        for made in self.grafts.values():
            graphs.update(made.graphs)
        paths = set(self.requests)
        state = new_state(program.state, self._arrivals())
        self._check_gradients(paths)
        after = program.evolve(
            graphs=pmap(graphs),
            state=state,
            modules=new_modules(program, {path: self._modules(path) for path in self.requests}),
            call_signatures=pmap(self._call_signatures(paths)),
            signature=evolve(program.signature, lifted=new_lifted(program, paths, state)),
        )
        after = after.evolve(modules=with_listed(after.modules, calls_by_label(after)))
        return after.pruned()

    def _decision(self, place: Instance) -> Decision:
        name, path = place
        graph = self.program.graphs[name]
        self._check_stacks(graph, name, path)
        swaps: dict[str, Swap] = {}
        slots: dict[str, str] = {}
        for node in graph.nodes:
            do = node.do
            if type(do) is Call:
                target = join(path, do.instance.path)
                if covering(self.requests, target) is not None:
                    swaps[node.name] = self._swap(place, node, do, target)
            elif type(do) is Get:
                slot = join(path, do.slot)
                gone = covering(self.requests, slot)
                if gone is not None:
                    self._reads(slot, gone, f"{path or 'the root'} ({node.name})", slots, node.name, path)
        return Decision(swaps, slots)

    def _check_stacks(self, graph: Graph, name: str, path: str) -> None:
        for node in graph.nodes:
            for frame in node.stack:
                if covering(self.requests, join(path, frame.path)) is not None:
                    raise PipelineError(
                        f"swap_modules requires a program in which the calls of {frame.path!r} are outlined, and {node.name} in "
                        f"{name or 'the root'} stands in one; run transform, or outline, first, or where that is the body of an "
                        "operator, swap a module around it"
                    )

    def _swap(self, place: Instance, node: Node, call: Call, path: str) -> Swap:
        program, (name, outer) = self.program, place
        graph = program.graphs[name]
        convention = self.known.get(call.graph)
        if convention is None and self.flat and Frame(path, call.instance.call) not in program.call_signatures:
            convention = flat_convention(program.graphs[call.graph])
        site = site_of(program, path, graph, node, convention)
        through = passed_on(graph, site, self.through, is_root=graph is program.main)
        kept, origin = site.same if self.through == "argument" else {}, made_of_value(program, name, node.name)
        by = self.programs.get(path)
        if by is None:
            check_module(site, self._module(path))
            return Swap(site, origin, None, (), through, kept)
        order = check_program(site, by, program, self.values.at(name, outer))
        signed = call.graph in self.known
        if (path, order, signed) not in self.grafts:
            count = site.convention.signature.in_spec.num_leaves if signed else None
            self.grafts[path, order, signed] = graft(path, by, self.names, order, count)
        if signed:
            self.signed[Frame(path, site.call.instance.call)] = site.convention.signature
        return Swap(site, origin, self.grafts[path, order, signed], order, through, kept)

    def _module(self, path: str) -> torch.nn.Module:
        # What stands in for a module; for one below it that others call, what that has there.
        outer = covering(self.requests, path)
        assert outer is not None
        by: Any = self.requests[outer]
        if outer != path:
            by = found_in(self.programs.get(outer) or by, path[len(outer) + 1 :])
            if not isinstance(by, torch.nn.Module):
                raise SwapError(
                    f"module {path!r} is called from outside of {outer!r}, which is replaced together with it, and the "
                    f"replacement has no such module to call; swap a module around both"
                )
            self.read[path] = Slot(SlotKind.MODULE, by, 0, 0)
        return by

    def _reads(self, slot: str, gone: str, reader: str, slots: dict[str, str], node: str, path: str) -> None:
        # The same tensor under a name that stays; else what the replacement has there, as eager would find it.
        state = self.program.state
        others = [name for name in state.by_cell[state[slot].cell] if covering(self.requests, name) is None]
        if others:
            slots[node] = relative(others[0], path)
        else:
            self.read[slot] = stands_for(self.program, gone, slot, self.programs.get(gone, self.requests[gone]), reader)

    def _arrivals(self) -> dict[str, dict[str, Slot]]:
        found: dict[str, dict[str, Slot]] = {}
        for path, given in self.requests.items():
            by = self.programs.get(path)
            if by is None:
                found[path] = {path: Slot(SlotKind.MODULE, given, 0, 0)}
                found[path].update({slot: kept for slot, kept in self.read.items() if covering({path}, slot) is not None})
            else:
                found[path] = {f"{path}.{name}": slot for name, slot in by.state.pairs}
        return found

    def _modules(self, path: str) -> tuple[Module, ...]:
        by = self.programs.get(path)
        if by is None:
            kind = type(self.requests[path])
            return (Module(path, f"{kind.__module__}.{kind.__qualname__}"),)
        types = {module.path: module.type_name for module in by.modules}
        inner = dict.fromkeys(inner for inner in types if inner)
        for called in calls_by_label(by):
            inner.update(dict.fromkeys(way_to(called)))
        return (Module(path, types.get("")), *(Module(f"{path}.{name}", types.get(name)) for name in inner))

    def _call_signatures(self, paths: set[str]) -> dict[Frame, CallSignature]:
        before = self.program.call_signatures
        found = {frame: before[frame] for frame in before if covering(paths, frame.path) is None}
        found.update(self.signed)
        for made in self.grafts.values():
            found.update(made.call_signatures())
        return found

    def _check_gradients(self, paths: set[str]) -> None:
        for spec in self.program.signature.outputs:
            if type(spec) is StateGradient and covering(paths, spec.slot) is not None:
                raise SwapError(
                    f"module {covering(paths, spec.slot)!r}: the program returns the gradient of its {spec.slot}, which "
                    "would go; swap modules of the program that was exported without gradients"
                )
