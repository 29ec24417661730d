"""Compatibility of a module with a call in a lowered program.

With a preserved call signature, a replacement is called with the original's arguments, which its ``forward`` must accept.
Without one, bodies take tensors by position, so any module is accepted only where that is unambiguous: one tensor in and one
out.  Lowered modules are checked against the call that they were lowered for.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from attrs import evolve

from ...ir.calls.call_sites import CallSite, Convention, flat_convention, site_of, unclear_results, uses_of_passed
from ...ir.calls.compatibility import check_module, check_program, check_structure
from ...ir.calls.parts import PART
from ...ir.errors import SwapError
from ...ir.graph import Call, Graph
from ...ir.program import CallSignature, Program
from ...ir.torch_private import uncompiled
from ...transforms.swap.bodies import checked_interface
from ..code.fx_view import as_it_was
from ..executable import executable
from ..modules.context import LoweringContext
from ..modules.interface import ExternalUse
from ..modules.module import Lowered
from .hooks import Watched

__all__ = ["check_call", "is_home", "put_in"]


def is_home(family: LoweringContext, path: str, value: Any) -> bool:
    """Return whether a module is what ``lower`` put at a path, or a copy of it, also where it was compiled or loaded.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> is_home(LoweringContext(program, program, "graph_module"), "a", torch.nn.ReLU())
    False
    """
    value = uncompiled(value)
    if not isinstance(value, Watched) or "purefx_plan" in value.__dict__:
        return False
    where = value.purefx_where
    return (
        where is not None
        and where.path == path
        and (where.family is family or _bodies(where.family, path) == _bodies(family, path))
    )


def _bodies(family: LoweringContext, path: str) -> list[Any]:
    calls = family.bodies_at.get(path, ())
    return [(frame, family.program.graphs[name], family.conventions.get(name)) for frame, name in calls]


def put_in(path: str) -> str:
    """Return the advice to replace a module, or one call of it, in the program.

    >>> put_in("a")
    "put it in with px.swap_modules(program, {'a': module}) before lowering"
    """
    return f"put it in with px.swap_modules(program, {{{path!r}: module}}) before lowering"


def check_call(family: LoweringContext, asked: ExternalUse, value: Any) -> None:
    """Refuse what cannot answer a call.

    Args:
        family: the lowering that the call is in.
        asked: the call.
        value: a module other than the one that was lowered there, or a program.

    Raises:
        SwapError: it cannot, or the convention of the call is unknown.
    """
    program, do = family.program, asked.node.do
    assert type(do) is Call
    path = asked.path
    convention = family.conventions.get(do.graph)
    caller = program.graphs[asked.graph]
    site = site_of(program, path, caller, asked.node, convention or flat_convention(program.graphs[do.graph]))
    for why in unclear_results(caller, site, is_root=caller is program.main):
        raise SwapError(f"{why}; {put_in(path)}, and say which with through=")
    if convention is not None:
        _check_passed(family, asked, site)
    elif not _knows(family, path, do.graph, value):
        _check_single(family, site, value)
    _check_answer(family, site, asked, value, flat=convention is None)


def _check_passed(family: LoweringContext, asked: ExternalUse, site: CallSite) -> None:
    # A value that was returned as it was given: the code uses the argument, whatever is answered.
    graph = family.program.graphs[asked.graph]
    if not site.through:
        return
    inputs = set() if graph is family.program.main else {formal.name for formal in graph.inputs}
    for name, uses in uses_of_passed(graph, site).items():
        if uses or name in inputs:
            raise SwapError(
                f"module {site.path!r}: it returned {name} as it was given, so the exported program uses that and not the "
                f"result, and an assigned module would not be asked; {put_in(site.path)}"
            )


def _knows(family: LoweringContext, path: str, body: str, value: Any) -> bool:
    # Who wrote the replacement knows the tensors that a body takes: a part that split made, which has no other arguments; a
    # module around the one that is there; one that has the same body.
    mine = uncompiled(value)
    if family.types.get(path) in (None, PART):
        return True
    if isinstance(mine, Lowered):
        place = mine.purefx_place
        return place.bodies is family and place.body.name == body
    return isinstance(mine, torch.nn.Module) and any(is_home(family, path, part) for part in mine.modules())


def _check_single(family: LoweringContext, site: CallSite, value: Any) -> None:
    graph = family.program.graphs[site.call.graph]
    path, takes = site.path, [formal.name for formal in graph.inputs]
    said = f"module {path!r} has no preserved call signature"
    todo = (
        f"export again with preserve_module_call_signature=({path!r},), or say that it is to take the tensors of the body by "
        f'position: px.swap_modules(program, {{{path!r}: module}}, signature="flat") before lowering'
    )
    if len(takes) > 1 or type(graph.output) is tuple:
        count = len(graph.output) if type(graph.output) is tuple else 1
        raise SwapError(
            f"{said}, and its body takes ({', '.join(takes)}) and gives {count} value{'' if count == 1 else 's'}, so what was "
            f"which argument and which result is not known; {todo}"
        )
    mine = uncompiled(value)
    if isinstance(mine, Program | Lowered) or family.types.get(path) in _layers():
        return
    more = _more(mine, len(takes))
    if more:
        raise SwapError(
            f"{said}, and {type(mine).__name__}.forward takes {more} besides, and it is not known whether the original "
            f"was given it; {todo}"
        )


@functools.cache
def _layers() -> frozenset[str]:
    # The layers of torch that take one argument and nothing else: with those it is known what the original was given.
    kinds: list[Any] = [kind for kind in vars(torch.nn).values() if isinstance(kind, type) and issubclass(kind, torch.nn.Module)]
    one = [kind for kind in kinds if len(inspect.signature(kind.forward).parameters) == 2 and not _more(kind, 2)]
    return frozenset([f"{kind.__module__}.{kind.__qualname__}" for kind in one])


def _more(module: Any, count: int) -> str:
    # What a forward may be given besides some arguments.
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return "what it does not say"
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    more = [each for number, each in enumerate(parameters) if each.kind in stars or number >= count]
    optional = [each for each in more if each.kind in stars or each.default is not each.empty]
    return ", ".join([f"{stars.get(each.kind, '')}{each.name}" for each in optional])


def _check_answer(family: LoweringContext, site: CallSite, asked: ExternalUse, value: Any, *, flat: bool) -> None:
    mine = uncompiled(value)
    if isinstance(mine, Program):
        check_program(site, checked_interface(site.path, executable(mine)), family.program, _callers(family, asked))
    elif isinstance(mine, Lowered) and "purefx_plan" in mine.__dict__:
        if mine.__dict__.get("flat_args_adapter") is None:
            check_structure(site, mine.purefx_context.program)
    elif isinstance(mine, Lowered):
        _check_ours(site, mine, flat=flat)
    else:
        check_module(site, mine)
        for part in mine.modules():
            if isinstance(part, Lowered):
                _check_one_body(site, part)


def _callers(family: LoweringContext, asked: ExternalUse) -> list[Graph]:
    # The body that calls, with the values of each call of it there.
    graph, found = family.program.graphs[asked.graph], list[Graph]()
    for frame, name in family.bodies_at.get(asked.caller, ()):
        was = family.before_merging(frame.path, frame.call) if name == asked.graph else None
        if was is not None:
            found.append(as_it_was(graph, was))
    return found or family.values_by_call.at(asked.graph, asked.caller)


def _check_ours(site: CallSite, module: Lowered, *, flat: bool) -> None:
    # A module inside of a lowered program that was made for another place.
    body = module.purefx_place.body
    theirs: Convention = body.convention or flat_convention(body.graph)
    mine = site.convention
    if body.name == site.call.graph and flat:
        return
    _check_one_body(site, module)
    plain = _bare(theirs.signature) == _bare(mine.signature) and theirs.is_closed
    if not plain or (body.convention is None and not flat and len(theirs.inputs) + len(theirs.outputs) > 2):
        raise SwapError(
            f"module {site.path!r}: the lowered module {module.purefx_place.path!r} takes or gives something else than the call "
            f"{site.node.name} does; wrap it in a module that takes what the original took"
        )


def _bare(signature: CallSignature) -> CallSignature:
    return evolve(signature, arg_names=(), shared=False)


def _check_one_body(site: CallSite, module: Lowered) -> None:
    answers = module.__dict__.get("purefx_answers") or {}
    if len({id(answer.place.body) for answer in answers.values()}) > 1:
        raise SwapError(
            f"module {site.path!r}: {module.purefx_place.path!r} is a lowered module whose calls run different bodies, and "
            "called from elsewhere it runs the first; give an eager module"
        )
