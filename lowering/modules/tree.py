"""Build the module tree: a module for each path of the original hierarchy, with its state and bodies.

Children, parameters and buffers are written directly to the modules' dicts, in declaration order, so that ``state_dict`` has
the same keys in the same order as in eager mode.  The bodies of later calls of one module (``lin@1``) are views: they share its
dicts and are not children, so they add no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import Factory, define

from ...ir.calls.call_graph import Label, calls_by_label, instances
from ...ir.graph import Call, Graph, Op
from ...ir.names import FROM_ROOT, parent_of
from ...ir.program import Program
from ...ir.state import SlotKind
from ...ir.torch_private import (
    blank_module,
    buffers_dict,
    children_dict,
    member_of,
    parameters_dict,
    unsaved_buffers,
)
from ..calls.preserved import CallHandler, CallHandlers
from ..code.compiled import Body
from ..swaps.hooks import LoweredContainer, LoweredList, Where
from .context import FIRST, LoweringContext
from .module import LaterCall, OtherName, Place, new_module


@define
class Tree:
    """The module tree under construction."""

    program: Program
    bodies: dict[str, Body]
    classes: dict[str, type[torch.nn.Module]]
    bound: Callable[[type[torch.nn.Module], type[LaterCall], Body], type[torch.nn.Module]]
    """Makes the class of modules that run a body on another module, see ``bound_class``."""
    context: LoweringContext
    modules: dict[str, torch.nn.Module] = Factory(dict)
    later: dict[tuple[str, type[LaterCall]], type[torch.nn.Module]] = Factory(dict)
    """The class of each body for later calls and other names."""

    def real(self, path: str) -> str:
        """Return the first path of a module."""
        return self.context.same.get(path, path)


class Above(torch.nn.Module):
    """A module as bodies below it see it: the child that contains them is the lowered one, even if the user wraps it."""

    __deepcopy__ = None  # not the one of the module

    def __init__(self, module: torch.nn.Module, name: str, child: torch.nn.Module) -> None:
        self.__dict__.update(
            {FIRST: module, "_modules": {name: child}, "_parameters": {}, "_buffers": {}}
        )

    def __getattr__(self, name: str) -> Any:
        return member_of(self.__dict__[FIRST], name)


def grow(tree: Tree, cells: dict[int, Any], root: type[torch.nn.Module]) -> torch.nn.Module:
    """Return the root of the module tree.

    Args:
        tree: the program, its compiled bodies and their classes.
        cells: the value to register for each cell of the state.
        root: the class of the root module.
    """
    program = tree.program
    types = program.types
    every = calls_by_label(program)
    calls = _merged(tree, every)
    tree.modules[""] = new_module(
        root, Place(tree.bodies[program.root], "", 0, types.get(""), tree.context)
    )
    paths = dict.fromkeys(filter(None, types))
    paths.update(dict.fromkeys(every))
    paths.update(dict.fromkeys(parent_of(slot) for slot in program.state.order))
    for path in paths:
        _grow_path(tree, path, calls, types)
    _share_state(tree)
    for path in calls:
        _add_views(tree, path, calls[path], types)
    for path in [path for path in every if tree.real(path) != path]:
        _add_names(tree, path, every[path])
    _give_root(tree)
    _register(tree, cells)
    for module in tree.modules.values():
        names = children_dict(module) if type(module) is LoweredContainer else ()
        if "0" in names and all(name == str(number) for number, name in enumerate(names)):
            # An uncalled container with numbered children: make it indexable like the original.
            object.__setattr__(module, "__class__", LoweredList)
    return tree.modules[""]


def _merged(tree: Tree, calls: dict[str, dict[Label, str]]) -> dict[str, dict[Label, str]]:
    # The calls of each module under all its paths.
    if not tree.context.same:
        return calls
    found: dict[str, dict[Label, str]] = {}
    for path, labels in calls.items():
        found[tree.real(path)] = {**labels, **found.get(tree.real(path), {})}
    return found


def _grow_path(
    tree: Tree, path: str, calls: dict[str, dict[Label, str]], types: Mapping[str, str | None]
) -> None:
    missing: list[str] = []
    while path not in tree.modules:
        missing.append(path)
        path = parent_of(path)
    for place in reversed(missing):
        above, _, name = place.rpartition(".")
        real = tree.real(place)
        if real != place:
            # Listed earlier, so it exists.
            tree.modules[place] = children_dict(tree.modules[above])[name] = tree.modules[real]
            continue
        labels = calls.get(place)
        if labels:
            first = min(labels)
            body = tree.bodies[labels[first]]
            kind = (
                _class_of(tree, body, OtherName)
                if place in tree.context.names.hooked
                else tree.classes[body.name]
            )
            made = new_module(kind, Place(body, place, first, types.get(place), tree.context))
            _handle(tree, made, place, labels, first)
        else:
            made = blank_module(LoweredContainer, purefx_at=Where(tree.context, place))
        tree.modules[place] = made
        children_dict(tree.modules[above])[name] = made


def _handle(
    tree: Tree, module: torch.nn.Module, path: str, labels: dict[Label, str], mine: Label
) -> None:
    # A module with a preserved signature has a handler for each of its calls.
    convention = tree.bodies[labels[mine]].convention
    if convention is None:
        return
    handlers = CallHandlers()
    for label in sorted(labels) if convention.signature.shared else [mine]:
        body = tree.bodies[labels[label]]
        if body.convention is not None:
            handlers[label] = CallHandler(
                Place(body, path, label, None, tree.context), body.convention
            )
    module.__dict__["purefx_handlers"] = handlers


def _add_views(
    tree: Tree, path: str, labels: dict[Label, str], types: Mapping[str, str | None]
) -> None:
    first = min(labels)
    if len(labels) == 1 and first == 0:
        return
    main = tree.modules[path]
    above, _, name = path.rpartition(".")
    for call in sorted(labels.keys() - {0}):
        view = main
        body = tree.bodies[labels[call]]
        if body.convention is not None and body.convention.signature.shared:
            continue
        if call != first:
            kind = _class_of(tree, body, LaterCall)
            view = new_module(kind, Place(body, path, call, types.get(path), tree.context))
            _handle(tree, view, path, labels, call)
            view.__dict__[FIRST] = main
            for shared in ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules"):
                view.__dict__[shared] = main.__dict__[shared]
        tree.modules[above].__dict__[f"{name}@{call}"] = view


def _add_names(tree: Tree, path: str, labels: dict[Label, str]) -> None:
    # Later calls under another path look up their bodies beside that path.
    real = tree.real(path)
    above, _, name = path.rpartition(".")
    first, _, own = real.rpartition(".")
    for call in labels:
        view = tree.modules[first].__dict__.get(f"{own}@{call}") if call else None
        if view is not None:
            tree.modules[above].__dict__[f"{name}@{call}"] = view


def _class_of(tree: Tree, body: Body, how: type[LaterCall]) -> type[torch.nn.Module]:
    if (body.name, how) not in tree.later:
        tree.later[body.name, how] = tree.bound(tree.classes[body.name], how, body)
    return tree.later[body.name, how]


def _share_state(tree: Tree) -> None:
    # A module under another name shares the state and hooks of the first.
    for path, first in tree.context.names.hooked.items():
        module, main = tree.modules[path], tree.modules[first]
        if isinstance(module, OtherName):
            module.__dict__[FIRST] = main
            # Its children have other names and bodies too; without children, future ones are shared.
            inner = () if children_dict(module) else ("_modules",)
            for shared in ("_parameters", "_buffers", "_non_persistent_buffers_set", *inner):
                module.__dict__[shared] = main.__dict__[shared]


def _give_root(tree: Tree) -> None:
    # Bodies reach modules that are not below them through the root.  It is not a child, so no module is listed twice,
    # and the bodies call modules that the user has replaced in the tree.
    leaving = {name for name, graph in tree.program.graphs.items() if _leaves(graph)}
    for name, path in instances(tree.program) if leaving else ():
        if name in leaving:
            tree.modules[path].__dict__[FROM_ROOT] = _root_above(tree, parent_of(path))


def _root_above(tree: Tree, path: str) -> torch.nn.Module:
    # The root, as the children of the module at a path see it.
    found = tree.modules[path]
    while path:
        path, _, name = path.rpartition(".")
        found = Above(tree.modules[path], name, found)
    return found


def _leaves(graph: Graph) -> bool:
    paths = [
        do.instance.path if type(do) is Call else do.slot
        for do in graph.distinct
        if type(do) is not Op
    ]
    return any(path.startswith(FROM_ROOT) for path in paths)


def _register(tree: Tree, cells: dict[int, Any]) -> None:
    for slot_name, slot in tree.program.state.pairs:
        path, _, name = slot_name.rpartition(".")
        module, value = tree.modules[path], cells[slot.cell]
        match slot.kind:
            case SlotKind.PARAMETER:
                parameters_dict(module)[name] = value
            case SlotKind.BUFFER:
                buffers_dict(module)[name] = value
                if not slot.persistent:
                    unsaved_buffers(module).add(name)
            case SlotKind.MODULE:
                children_dict(module)[name] = value
            case SlotKind.CONSTANT:
                module.__dict__[name] = value
