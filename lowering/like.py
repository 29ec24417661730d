"""``lowered_like``: a program is lowered to what another version of it was lowered to, as far as the two agree.

Modules are the same objects where their bodies are, and where nothing that was edited calls them or reads their state; the
others, and those around them, are made anew, with the tensors of the old.  So the time is that of the edit and not of the model.
Where the two differ in more than bodies (other calls, preserved signatures, modules that are called twice) all modules are made
anew, and only the tensors are shared, see ``cells_of``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from attrs import define, field

from ..ir.calls.call_graph import INSTANCES, calls_alike
from ..ir.errors import ArgumentError
from ..ir.facts import Edit, edit_between
from ..ir.graph import Call, Get, Graph
from ..ir.names import FROM_ROOT, join, way_to
from ..ir.own_operators import is_boundary
from ..ir.program import Program
from ..ir.signature import GIVEN, UserInput
from ..ir.torch_private import blank_module, children_dict
from .calls.classes import class_of, root_of
from .code.compiled import Body, Codes, check_runs
from .modules.context import LoweringContext
from .modules.module import FIRST, Lowered, Place
from .modules.state import copies_into_state
from .swaps.hooks import LoweredContainer, Where

__all__ = ["cells_of", "lowered_like", "taken_like"]


def taken_like(program: Program, like: object, device: object) -> Lowered:
    """Return the module that ``lower`` was given to reuse, if it can.

    Args:
        program: what is lowered.
        like: what was given.
        device: what was given for the device.

    Raises:
        ArgumentError: it is no root that ``lower`` made, has other state, or was put together anew by the user.
    """
    if not isinstance(like, Lowered) or "purefx_plan" not in like.__dict__:
        said = f"a {type(like).__name__}" if not isinstance(like, Lowered) else "a module inside of one"
        raise ArgumentError(f"lower(like=) takes the root that a version of the program was lowered to, not {said}")
    if device is not None:
        raise ArgumentError(
            "lower(like=, device=): the tensors are those of the module, and stay where they are; move it with .to"
        )
    context = like.purefx_context
    if context.origin.state() is not program.state:
        raise ArgumentError(
            "lower(like=) shares the tensors of a module, which was lowered from a program with other state; edits of bodies "
            "(program.evolve(graphs=...)) keep the state; lower this one without like="
        )
    if context.assigned:
        where = ", ".join(sorted(context.assigned))[:200]
        raise ArgumentError(f"lower(like=): in that module others, or edited graphs, stand at {where}, which no program has")
    return like


def cells_of(program: Program, like: Lowered) -> dict[int, Any]:
    """Return what a module holds, by cell of the state that it was lowered from.

    Args:
        program: with that state.
        like: the root of the module.

    Raises:
        ArgumentError: the module no longer has it.
    """
    cells: dict[int, Any] = {}
    for name, slot in program.state.pairs:
        if slot.cell in cells:
            continue
        path, _, last = name.rpartition(".")
        try:
            owner = like.get_submodule(path)
        except AttributeError:
            owner = torch.nn.Module()
        attributes = owner.__dict__
        found = next(
            (attributes[kind] for kind in ("_parameters", "_buffers", "_modules") if last in attributes[kind]), attributes
        )
        if last not in found:
            raise ArgumentError(f"lower(like=): that module has no {name!r} any more")
        cells[slot.cell] = found[last]
    return cells


def lowered_like(program: Program, like: Lowered, to: str) -> torch.nn.Module | None:
    """Return the root of a program that shares with another root what an edit left as it was; None where that cannot be told.

    Args:
        program: valid, and with the state of what the other was lowered from.
        like: the other root.
        to: which kind of modules, as ``lower`` takes it.
    """
    context = like.purefx_context
    edit = edit_between(context.origin.program, program)
    if edit is None or context.to != to or not _is_regular(context) or not _keeps_the_frame(context, edit):
        return None
    before, after = edit.before.graphs, edit.after.graphs
    if not all(_is_plain_edit(before[name], after[name]) for name in edit.changed):
        return None
    check_runs(node for name in edit.changed for node in after[name].nodes)
    work = _Reuse(program, edit.changed, like, to, context.following(program))
    return work.root() if work.can() else None


def _keeps_the_frame(context: LoweringContext, edit: Edit) -> bool:
    kept = edit.keeps("signature", "modules", "call_signatures", "constraints")
    return kept and context.origin.as_given and context.origin.agrees(edit.after)


def _is_regular(context: LoweringContext) -> bool:
    # Whether every module is one object under one path, and every body is run by the module that it is in.
    program = context.program
    odd = context.same or context.hooked or context.twins or len(program.call_signatures) or len(context)
    signature = program.signature
    users = all(type(spec) is UserInput for spec in signature.inputs) and all(type(spec) in GIVEN for spec in signature.outputs)
    return users and not odd


def _is_plain_edit(old: Graph, new: Graph) -> bool:
    if old is new or not calls_alike(old, new):
        return old is new
    odd = any(map(is_boundary, (*old.nodes, *new.nodes))) or any(type(node.do) is not Call for node in new.callers)
    return not (
        odd or any(path.startswith(FROM_ROOT) for graph in (old, new) for path in _named(graph)) or copies_into_state(new)
    )


def _named(graph: Graph) -> Iterator[str]:
    # The modules that a body calls, and those whose state it reads.
    for node in graph.nodes:
        if type(node.do) is Call:
            yield node.do.instance.path
        elif type(node.do) is Get:
            yield node.do.slot if node.do.slot.startswith(FROM_ROOT) else node.do.slot.rpartition(".")[0]


@define
class _Reuse:
    """One lowering that reuses modules."""

    program: Program
    changed: Sequence[str]
    like: Lowered
    to: str
    context: LoweringContext
    bodies: dict[str, Body] = field(factory=dict)
    """The bodies that were edited, by path of the modules that run them."""
    anew: dict[str, torch.nn.Module] = field(factory=dict)
    """The modules that are made anew, by path, as they were: outer ones first."""

    def can(self) -> bool:
        """Return whether all that is to be made anew is as ``lower`` made it."""
        places = INSTANCES(self.program)
        graphs, before = self.program.graphs, self.like.purefx_context.origin.program.graphs
        paths: dict[str, None] = {"": None}
        for name in self.changed:
            for place in places.get(name, ()):
                for graph in (graphs[name], before[name]):
                    for path in (place, *[join(place, inner) if inner else place for inner in _named(graph)]):
                        paths.update(dict.fromkeys(way_to(path) if path else ()))
        for path in sorted(paths, key=lambda path: (path.count("."), path)):
            above, _, last = path.rpartition(".")
            found = children_dict(self.anew[above]).get(last) if path and above in self.anew else self.like
            if found is None or not self._is_as_made(found, path):
                return False
            self.anew[path] = found
        return True

    def _is_as_made(self, module: torch.nn.Module, path: str) -> bool:
        where = getattr(module, "purefx_where", None)
        if where is None or where.path != path or where.family.to != self.to:
            return False
        # Later calls of what is in it, and the way to the root, are modules that are no children.
        return not any(isinstance(value, Lowered) for value in module.__dict__.values()) and FIRST not in module.__dict__

    def root(self) -> torch.nn.Module:
        """Return the root."""
        codes: Codes = cast(Any, self.like).purefx_codes
        classes: dict[str, tuple[Body, type[torch.nn.Module]]] = {}
        for name in self.changed:
            body = codes.body(self.context, name, self.program.graphs[name], None, {})
            classes[name] = body, class_of(body, self.to)
        made: dict[str, torch.nn.Module] = {}
        for path, old in self.anew.items():
            new = made[path] = self._made(path, old, classes, codes)
            for kind in ("_parameters", "_buffers", "_modules"):
                new.__dict__[kind].update(old.__dict__[kind])
            new.__dict__["_non_persistent_buffers_set"].update(old.__dict__["_non_persistent_buffers_set"])
            new.__dict__.update(
                {name: old.__dict__[name] for name in self.context.constants.get(path, ()) if name in old.__dict__}
            )
            new.training = old.training
            if path:
                above, _, last = path.rpartition(".")
                children_dict(made[above])[last] = new
        return made[""]

    def _made(
        self, path: str, old: torch.nn.Module, classes: dict[str, tuple[Body, type[torch.nn.Module]]], codes: Codes
    ) -> torch.nn.Module:
        if isinstance(old, LoweredContainer):
            return blank_module(type(old), purefx_at=Where(self.context, path))
        was: Place = old.__dict__["purefx_place"]
        body, kind = classes.get(was.body.name, (was.body, type(old)))
        place = Place(body, path, was.call, was.type_name, self.context)
        if path:
            return blank_module(kind, purefx_place=place)
        plan = copy.deepcopy(self.like.__dict__["purefx_plan"])
        return blank_module(root_of(plan, codes, self.to), purefx_place=place, purefx_plan=plan)
