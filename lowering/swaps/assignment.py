"""Replace a module of a lowered program by assignment: ``module.path = replacement``.

Before anything changes, the interface of the replacement is checked against the calls of the original.  With a preserved call
signature, the ``forward`` of the replacement must accept the arguments of the original.  Without one, bodies accept tensors by
position, so any module is accepted only if that is unambiguous: one tensor in and one out.  A program is lowered, and checks
types and sizes when it is called.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, NoReturn

import torch

from ...ir.calls.call_sites import (
    CallSite,
    flat_convention,
    site_of,
    unclear_results,
    uses_of_passed,
)
from ...ir.calls.compatibility import check_forward, check_module, check_structure
from ...ir.calls.parts import PART
from ...ir.calls.uncertain_names import not_called, warn_of_other_names
from ...ir.errors import SwapError
from ...ir.graph import Call
from ...ir.names import is_below
from ...ir.own_operators import attribute_of
from ...ir.program import Program
from ...ir.torch_private import children_dict, uncompiled
from ..lower import lower
from ..modules.context import (
    ExternalUse,
    ExternalUses,
    LoweringContext,
    bodies_at,
    conventions_of,
    external_uses,
)
from ..modules.module import GRAPHS, Lowered
from ..modules.pickling import edited
from .hooks import Watched


def admitted(owner: Watched, name: str, value: Any) -> Any:
    """Return the new child for an assignment: the module itself, or the lowered program.

    Args:
        owner: the parent module.
        name: the attribute.
        value: a module, a program, or None.

    Raises:
        SwapError: the program calls or reads the child in a way that the replacement does not support.

    >>> import torch, purefx as px
    >>> module = px.unflatten(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),)))
    >>> admitted(module, "0", torch.nn.Tanh())
    Tanh()
    """
    where, there = owner.purefx_where, children_dict(owner).get(name)
    if where is None or value is there:
        return value
    context, uses, types = where.context, external_uses(where.context), where.context.program.types
    paths = [f"{above}.{name}" if above else name for above in context.paths_of(where.path)]
    # Further names of one object may have no calls.
    known = [path for path in paths if path in uses]
    if not known and value is not None:
        known = [path for path in paths if path in types]
    if not known:
        for path in paths:
            module, _, number = path.rpartition("@")
            if number.isdecimal() and module in uses and value is not None:
                raise SwapError(
                    f"{path!r} is one call of {module!r}; assign {module!r}, which replaces all of its calls"
                )
        return value
    if isinstance(value, Program):
        value = lower(value, to=context.to)  # type: ignore[arg-type]
    if value is not None:
        _check_one_object(context, where.path, name)
    changed: list[str] = []
    for path in known:
        if not is_home(context, path, value) and not _was_edited(
            owner
        ):  # users who edit a graph know its calls
            _check(context, path, uses.get(path), value, there)
            changed.append(path)
    for path in changed:
        if path in context.names.uncertain:
            warn_of_other_names(context.program, path, context.names.uncertain[path])
    return value


def _refuse(path: str, why: str, advice: str = "") -> NoReturn:
    instead = f"replace it with px.swap_modules(program, {{{path!r}: module}}) before lowering"
    raise SwapError(f"module {path!r}: {why}; {f'{advice}, or ' if advice else ''}{instead}")


def is_home(context: LoweringContext, path: str, value: Any) -> bool:
    """Return whether a module is the one that ``lower`` made for a path, or a copied, compiled or loaded version of it."""
    value = uncompiled(value)
    if not isinstance(value, Watched) or "purefx_plan" in value.__dict__:
        return False
    where = value.purefx_where
    if where is None or where.path != path:
        return False
    return where.context is context or _bodies(where.context, path) == _bodies(context, path)


def _bodies(context: LoweringContext, path: str) -> list[Any]:
    calls = bodies_at(context).get(path, ())
    return [
        (frame, context.program.graphs[name], conventions_of(context).get(name))
        for frame, name in calls
    ]


def _was_edited(owner: Watched) -> bool:
    graphs = [
        owner.__dict__[key] for key in GRAPHS if isinstance(owner.__dict__.get(key), torch.fx.Graph)
    ]
    return any(edited(owner, graph) for graph in graphs)


def _check_one_object(context: LoweringContext, outer: str, name: str) -> None:
    # In eager mode a child is below all names of its parent; here, names whose calls run other bodies have separate children.
    names = context.names_of(outer)
    called = [path for each in names if (path := f"{each}.{name}") in external_uses(context)]
    if len(names) > 1 and len(called) > 1:
        swapped = ", ".join(f"{path!r}: module" for path in called)
        raise SwapError(
            f"module {f'{outer}.{name}'!r}: {' and '.join(map(repr, names))} are one module whose calls run different bodies, so "
            f"this would replace it for one name only; replace it for all names with px.swap_modules(program, {{{swapped}}}) "
            "before lowering"
        )


def _check(
    context: LoweringContext, path: str, needs: ExternalUses | None, value: Any, there: Any
) -> None:
    if needs is None:
        if path in context.names.uncertain:
            raise SwapError(not_called(path, context.names.uncertain[path]))
        export_again = f"export again with preserve_module_call_signature=({path!r},)"
        why = "it is not called in this program, or its call exported no operators, so nothing would call the replacement"
        raise SwapError(f"module {path!r}: {why}; {export_again}, and then assign it")
    if value is None:
        _refuse(path, "it is called or read, so it cannot be None", "assign torch.nn.Identity()")
    if needs.inside:
        caller, node = needs.inside[0].caller or "the root", needs.inside[0].node.name
        advice = "lower an outlined program (px.transform makes one)"
        _refuse(
            path,
            f"its operators are in the code of {caller} ({node}), so assigning it changes nothing",
            advice,
        )
    if needs.calls and all(use.path != path for use in needs.calls):
        _refuse(
            path,
            "the program calls the modules in it one by one, so it cannot be replaced as a whole",
            "assign those modules",
        )
    for use in (*needs.calls, *needs.held):
        rest = use.path[len(path) + 1 :]
        found = attribute_of(value, rest) if rest else value
        if not isinstance(found, torch.nn.Module):
            _refuse(
                path,
                f"{use.caller or 'the root'} calls its {rest}, and a {type(value).__name__} has no such module",
            )
        if use in needs.held:
            check_forward(use.path, use.node, found, use.node.args[1:], dict(use.node.kwargs))
        elif not is_home(context, use.path, found):
            _check_call(context, use, found)
    for use in needs.reads:
        rest = use.path[len(path) + 1 :]
        found, old = attribute_of(value, rest), attribute_of(there, rest)
        ties = context.names.ties.get(use.path, ())  # it may be read under any name
        tied = [name for name in ties if not is_below(name, path)]
        fits = isinstance(found, torch.Tensor) and (
            not isinstance(old, torch.Tensor) or old.shape == found.shape
        )
        if not fits or (tied and found is not old):
            also = f" (the same tensor as {' and '.join(tied)})" if tied else ""
            reads = f"{use.caller or 'the root'} reads its {rest}{also}"
            _refuse(
                path,
                f"{reads}, and the {type(value).__name__} has not the same tensor there",
                "keep the original's",
            )


def _check_call(context: LoweringContext, use: ExternalUse, value: Any) -> None:
    program, call, path = context.program, use.node.do, use.path
    assert type(call) is Call
    caller, convention = program.graphs[use.graph], conventions_of(context).get(call.graph)
    again = f"export again with preserve_module_call_signature=({path!r},)"
    if call.instance.call and not (convention is not None and convention.signature.shared):
        _refuse(
            path,
            "its calls run different bodies, so none of them defines how a replacement is called",
            again,
        )
    site = site_of(
        program, path, caller, use.node, convention or flat_convention(program.graphs[call.graph])
    )
    for why in unclear_results(caller, site, is_root=caller is program.main):
        _refuse(path, f"{why}, so a replacement needs through=")
    inputs = set() if caller is program.main else set(caller.input_names)
    for name, uses in uses_of_passed(caller, site).items():
        if uses or name in inputs:
            _refuse(
                path,
                f"it returned {name} unchanged, so the program uses that value and would ignore a replacement's result",
            )
    mine = uncompiled(value)
    is_same = (
        isinstance(mine, Lowered)
        and mine.purefx_place.context is context
        and mine.purefx_place.body.name == call.graph
    )
    _check_interface(site, mine, is_same=is_same and (convention is None or convention.is_closed))
    around = isinstance(mine, torch.nn.Module) and any(
        is_home(context, path, part) for part in mine.modules()
    )
    if (
        convention is None
        and not is_same
        and not around
        and context.program.types.get(path) not in (None, PART)
    ):
        _check_flat(context, site, mine, again)


def _check_interface(site: CallSite, value: Any, *, is_same: bool) -> None:
    if isinstance(value, Lowered) and "purefx_plan" in value.__dict__:
        if value.__dict__.get("flat_args_adapter") is None:
            check_structure(site, value.purefx_context.program)
        return
    if isinstance(value, Lowered):
        if not is_same:
            path = value.purefx_place.path
            _refuse(
                site.path, f"{path!r} is a lowered module for other calls", "wrap it in a module"
            )
        return
    check_module(site, value)
    for part in value.modules():
        handlers = part.__dict__.get("purefx_handlers") or {} if isinstance(part, Lowered) else {}
        if len({id(handler.place.body) for handler in handlers.values()}) > 1:
            part_of = f"{part.purefx_place.path!r} in it is a lowered module whose calls run different bodies"
            _refuse(
                site.path,
                f"{part_of}, so other callers would run the first one",
                "assign an eager module",
            )


def _check_flat(context: LoweringContext, site: CallSite, value: Any, again: str) -> None:
    # Bodies accept the tensors that the module used, by position; other arguments of the original are unknown.
    graph = context.program.graphs[site.call.graph]
    names, more = graph.input_names, _optional(value, len(graph.inputs))
    if len(names) > 1 or type(graph.output) is tuple:
        results = f"{len(graph.output)} values" if type(graph.output) is tuple else "1 value"
        why = f"its body takes ({', '.join(names)}) and returns {results}, maybe not in the order of its arguments and results"
    elif (
        more
        and not isinstance(value, Lowered)
        and context.program.types.get(site.path) not in _layers()
    ):
        why = f"{type(value).__name__}.forward also takes {more}, which the calls of the original may have passed"
    else:
        return
    how = f'px.swap_modules(program, {{{site.path!r}: module}}, signature="flat") before lowering passes tensors by position'
    raise SwapError(
        f"module {site.path!r} has no preserved call signature, and {why}; {again}; {how}"
    )


@functools.cache
def _layers() -> frozenset[str]:
    # The layers of torch that take exactly one argument.
    kinds: list[Any] = [
        kind
        for kind in vars(torch.nn).values()
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module)
    ]
    one = [
        kind
        for kind in kinds
        if len(inspect.signature(kind.forward).parameters) == 2 and not _optional(kind, 2)
    ]
    return frozenset([f"{kind.__module__}.{kind.__qualname__}" for kind in one])


def _optional(module: Any, count: int) -> str:
    # The parameters of a forward beyond some arguments.
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return "unknown arguments"
    stars = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return ", ".join(
        [
            each.name
            for number, each in enumerate(parameters)
            if each.kind in stars or number >= count
        ]
    )
