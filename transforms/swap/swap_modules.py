"""``swap_modules``: replace modules of a program by other modules or programs.

A call is swapped at its boundary.  The replacement gets the arguments of the preserved signature, and its results replace those
of the original in the caller; all other objects stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from attrs import Factory, define, evolve, field

from ...ir.analysis.history import made_of_value
from ...ir.calls.call_graph import Instance, calls_by_label, instances
from ...ir.calls.call_sites import (
    Convention,
    Through,
    conventions,
    flat_convention,
    passed_on,
    site_of,
)
from ...ir.calls.compatibility import check_module, check_program, described_call
from ...ir.calls.parts import with_listed
from ...ir.calls.uncertain_names import not_called, uncertain_names, warn_of_other_names
from ...ir.errors import PipelineError, SwapError
from ...ir.graph import Call, Frame, Get, Graph, Node
from ...ir.inference import CallValues
from ...ir.names import Names, did_you_mean, join, parent_of, relative, way_to
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Module, Program
from ...ir.signature import StateGradient
from ...ir.state import Slot, SlotKind
from ..shared_bodies import specialised
from ..transformation import UNLIMITED, Fuel, transformation
from .bodies import (
    Decision,
    Graft,
    Rewriting,
    Swap,
    covering,
    found_in,
    graft,
    new_modules,
    new_state,
    prepared,
    replaced_slot,
)

Replacement = torch.nn.Module | Program


def read_requests(program: Program, modules: Any) -> dict[str, Replacement]:
    """Validate the replacements.

    Args:
        program: the program that has the modules.
        modules: a mapping from paths to replacements, or pairs of them.

    Returns:
        The replacements by path.

    Raises:
        SwapError: a path is unknown, repeated or the root, or a replacement has the wrong type.

    >>> from purefx.ir import Graph, Program
    >>> read_requests(Program.of({"": Graph((), ())}), {})
    {}
    """
    if not isinstance(modules, Mapping):
        wrong = f"swap_modules takes a mapping from paths to replacements, not a {type(modules).__name__}"
        raise SwapError(f'{wrong}: swap_modules(program, {{"layers.0.mlp": module}})')
    stacks = [frame.path for node in program.main.nodes for frame in node.stack]
    known = {path for path in (*program.types, *calls_by_label(program), *stacks) if path}
    for path, by in modules.items():
        if path not in known:
            why = (
                "the root cannot be swapped: nothing calls it"
                if path == ""
                else f"the program has no module {path!r}"
            )
            raise SwapError(f"{why}{did_you_mean(str(path), known)}")
        if not isinstance(by, torch.nn.Module | Program):
            kind = (
                f"{by.__name__} is a class"
                if isinstance(by, type)
                else f"a {type(by).__name__} cannot replace a module"
            )
            raise SwapError(
                f"module {path!r}: {kind}; pass a torch.nn.Module (eager, fx or compiled) or a purefx Program"
            )
    _check_outermost(modules)
    return dict(modules)


def _check_outermost(found: Mapping[str, Replacement]) -> None:
    for path, by in found.items():
        outer = covering(found, parent_of(path))
        if outer is not None:
            inside = path[len(outer) + 1 :]
            how = (
                f"px.swap_modules(program, {{{inside!r}: ...}})"
                if isinstance(found[outer], Program)
                else f"{inside} = ..."
            )
            raise SwapError(
                f"module {path!r} is below {outer!r}, which a {type(found[outer]).__name__} replaces too: put the "
                f"{type(by).__name__} into that first ({how}), or remove one of the two"
            )


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

    All calls of a module call its replacement, with the arguments of the original in eager mode: constants, keywords and
    containers as in the preserved call signature.  The state of the replacement replaces that of the module, under the same
    path.  A program becomes a body; a module stays opaque, so nothing moves across its calls.

    Args:
        program: an outlined program, as ``transform(program)`` returns it.
        modules: the replacement of each path: a ``torch.nn.Module`` (eager, fx, compiled) or a program.
        signature: ``"flat"`` also accepts modules without a preserved call signature, and passes the inputs of the body to the
            replacement by position; use it only if you know them.  The calls of a replacing program then have no signature.
        through: the meaning of later uses of an argument that the module returned unchanged: ``"result"`` or ``"argument"``.
            By default a single use means the result, and several are refused.
        fuel: the maximum number of modules to swap, in the order of ``modules``.

    Returns:
        The program with the replacements; ``program`` itself if nothing is swapped.

    Warns:
        SwapWarning: a strict export recorded calls of the module under one of its names, so all of them are swapped.

    Raises:
        SwapError: a path or a replacement is unknown or does not fit.
        PipelineError: the call of the module is not outlined yet.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> ep = torch.export.export(model, (torch.ones(1, 2),), preserve_module_call_signature=("1",))
    >>> swapped = px.swap_modules(px.transform(px.import_ep(ep)), {"1": torch.nn.Softplus()})
    >>> px.lower(swapped).get_submodule("1")
    Softplus(beta=1.0, threshold=20.0)
    """
    for name, value, known in (
        ("signature", signature, ("preserved", "flat")),
        ("through", through, ("refuse", "result", "argument")),
    ):
        if value not in known:
            raise SwapError(f"{name}={value!r}: pass one of {', '.join(map(repr, known))}")
    requests = {
        path: by for path, by in read_requests(program, modules).items() if fuel.burn("swap", path)
    }
    if not requests:
        return program
    return _Swapping(program, requests, signature == "flat", through).program_after()


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
    grafts: dict[tuple[str, tuple[int, ...], bool], Graft] = Factory(dict)
    programs: dict[str, Program] = field(init=False)
    """The replacing programs, in the form of bodies."""
    signed: dict[Frame, CallSignature] = Factory(dict)
    """The signatures of calls of replacing programs."""
    read: dict[str, Slot] = Factory(dict)
    """State of replacements with outside readers, by slot."""

    def __attrs_post_init__(self) -> None:
        self.names = Names(self.program.graphs)
        self.known = conventions(self.program)
        self.values = CallValues(self.program)
        self.programs = {
            path: prepared(path, by)
            for path, by in self.requests.items()
            if isinstance(by, Program)
        }

    def program_after(self) -> Program:
        """Return the program with the replacements."""
        program = self.program
        places = [
            place for place in instances(program) if covering(self.requests, place[1]) is None
        ]
        decisions = {place: self._decision(place) for place in places}
        calls = calls_by_label(program)
        uncertain = uncertain_names(program)
        for path in self.requests:
            if path not in calls and path in uncertain:
                raise SwapError(not_called(path, uncertain[path]))
            if path not in calls:
                raise SwapError(
                    f"module {path!r} is not called in this program, or its call exported no operators; export again "
                    f"with preserve_module_call_signature=({path!r},) to keep the call"
                )
        keys = {place: decision.key for place, decision in decisions.items()}
        graphs, _ = specialised(
            program,
            keys,
            lambda place: Rewriting(program.graphs[place[0]], decisions[place]).run(),
            self.names,
        )
        for made in self.grafts.values():
            graphs.update(made.graphs)
        paths = set(self.requests)
        state = new_state(program.state, self._arrivals())
        self._check_gradients(paths)
        places_left = [
            place for place in program.signature.lifted if covering(paths, place.slot) is None
        ]
        lifted = tuple([place for place in places_left if place.slot in state])
        after = program.evolve(
            graphs=pmap(graphs),
            state=state,
            modules=new_modules(program, {path: self._modules(path) for path in self.requests}),
            call_signatures=pmap(self._call_signatures(paths)),
            signature=evolve(program.signature, lifted=lifted),
        )
        after = after.evolve(modules=with_listed(after.modules, calls_by_label(after)))
        for path, by in self.requests.items():
            others = uncertain.get(path, ())
            if any(self.requests.get(other) is not by for other in others):
                warn_of_other_names(program, path, others)
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
                    self._reads(
                        slot, gone, f"{path or 'the root'} ({node.name})", slots, node.name, path
                    )
        return Decision(swaps, slots)

    def _check_stacks(self, graph: Graph, name: str, path: str) -> None:
        for node in graph.nodes:
            for frame in node.stack:
                if covering(self.requests, join(path, frame.path)) is not None:
                    raise PipelineError(
                        f"swap_modules requires a program in which the calls of {frame.path!r} are outlined, and {node.name} in "
                        f"{name or 'the root'} is inside one; run transform or outline first; in the body of an operator, swap a "
                        "module around it"
                    )

    def _swap(self, place: Instance, node: Node, call: Call, path: str) -> Swap:
        program, (name, outer) = self.program, place
        graph = program.graphs[name]
        convention = self.known.get(call.graph)
        if (
            convention is None
            and self.flat
            and Frame(path, call.instance.call) not in program.call_signatures
        ):
            convention = flat_convention(program.graphs[call.graph])
        site = site_of(program, path, graph, node, convention)
        through = passed_on(graph, site, self.through, is_root=graph is program.main)
        kept, origin = (
            site.same if self.through == "argument" else {},
            made_of_value(program, name, node.name),
        )
        by = self.programs.get(path)
        if by is None:
            module = self._module(path)
            check_module(site, module)
            called = described_call(path, site.convention.signature, module)
            return Swap(site, origin, None, (), through, kept, called)
        order = check_program(site, by, program, self.values.at(name, outer))
        signed = call.graph in self.known
        if (path, order, signed) not in self.grafts:
            count = site.convention.signature.in_spec.num_leaves if signed else None
            self.grafts[path, order, signed] = graft(path, by, self.names, order, count)
        if signed:
            self.signed[Frame(path, site.call.instance.call)] = site.convention.signature
        return Swap(site, origin, self.grafts[path, order, signed], order, through, kept)

    def _module(self, path: str) -> torch.nn.Module:
        # The replacement of a module; for a module below it with outside callers, the one at the same path in the replacement.
        outer = covering(self.requests, path)
        assert outer is not None
        by: Any = self.requests[outer]
        if outer != path:
            by = found_in(self.programs.get(outer) or by, path[len(outer) + 1 :])
            if not isinstance(by, torch.nn.Module):
                raise SwapError(
                    f"module {path!r} is called from outside of {outer!r}, which is replaced too, and the replacement has no "
                    "such module; swap a module around both"
                )
            self.read[path] = Slot(SlotKind.MODULE, by, 0, 0)
        return by

    def _reads(
        self, slot: str, gone: str, reader: str, slots: dict[str, str], node: str, path: str
    ) -> None:
        # Read the same tensor under a name that stays; else the tensor of the replacement, as in eager mode.
        state = self.program.state
        others = [
            name
            for name in state.by_cell[state[slot].cell]
            if covering(self.requests, name) is None
        ]
        if others:
            slots[node] = relative(others[0], path)
        else:
            self.read[slot] = replaced_slot(
                self.program, gone, slot, self.programs.get(gone, self.requests[gone]), reader
            )

    def _arrivals(self) -> dict[str, dict[str, Slot]]:
        found: dict[str, dict[str, Slot]] = {}
        for path, replacement in self.requests.items():
            by = self.programs.get(path)
            if by is None:
                found[path] = {path: Slot(SlotKind.MODULE, replacement, 0, 0)}
                found[path].update(
                    {
                        slot: kept
                        for slot, kept in self.read.items()
                        if covering({path}, slot) is not None
                    }
                )
            else:
                found[path] = {f"{path}.{name}": slot for name, slot in by.state.pairs}
        return found

    def _modules(self, path: str) -> tuple[Module, ...]:
        by = self.programs.get(path)
        if by is None:
            kind = type(self.requests[path])
            return (Module(path, f"{kind.__module__}.{kind.__qualname__}"),)
        types = by.types
        inner = dict.fromkeys(inner for inner in types if inner)
        for called in calls_by_label(by):
            inner.update(dict.fromkeys(way_to(called)))
        return (
            Module(path, types.get("")),
            *(Module(f"{path}.{name}", types.get(name)) for name in inner),
        )

    def _call_signatures(self, paths: set[str]) -> dict[Frame, CallSignature]:
        before = self.program.call_signatures
        found = {frame: before[frame] for frame in before if covering(paths, frame.path) is None}
        found.update(self.signed)
        for made in self.grafts.values():
            inner = made.program.call_signatures
            found.update(
                {evolve(frame, path=f"{made.path}.{frame.path}"): inner[frame] for frame in inner}
            )
        return found

    def _check_gradients(self, paths: set[str]) -> None:
        for spec in self.program.signature.outputs:
            if type(spec) is StateGradient and covering(paths, spec.slot) is not None:
                raise SwapError(
                    f"module {covering(paths, spec.slot)!r}: the program returns the gradient of its {spec.slot}, which "
                    "would be removed; swap modules of the program exported without gradients"
                )
