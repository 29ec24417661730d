"""Assignment in place of a module of a lowered program: ``module.path = replacement``.

Before anything changes, a replacement is checked against the calls of the original.  With a preserved call signature, it is
called with the arguments of the original, which its ``forward`` must accept.  Without one, bodies take tensors by position, so
any module is accepted only where that is unambiguous: one tensor in and one out.  Replace a module whose children or state others
use with ``swap_modules``.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from ...ir.calls.call_sites import CallSite, flat_convention, site_of, unclear_results, uses_of_passed
from ...ir.calls.compatibility import check_forward, check_module, check_program, check_structure
from ...ir.calls.parts import PART
from ...ir.errors import SwapError
from ...ir.graph import Call, Graph
from ...ir.names import is_below
from ...ir.own_operators import attribute_of
from ...ir.program import Program
from ...ir.torch_private import children_dict, uncompiled
from ...transforms.swap.bodies import checked_interface, found_in
from ..code.fx_view import as_it_was
from ..executable import executable
from ..lower import lower
from ..modules.context import LoweringContext
from ..modules.interface import ExternalUse, ExternalUses
from ..modules.module import GRAPHS, Lowered
from ..modules.pickling import edited
from .hooks import Watched

__all__ = ["admitted"]


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
    if do.instance.call and not (convention is not None and convention.signature.shared):
        raise SwapError(
            f"module {path!r} is called several times, and what its calls run differs, so none of them says how another module "
            f"is called; export again with preserve_module_call_signature=({path!r},), or {put_in(path)}"
        )
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
        same = mine.purefx_place.bodies is family and mine.purefx_place.body.name == site.call.graph
        if not (same and (flat or site.convention.is_closed)):
            raise SwapError(
                f"module {site.path!r}: {mine.purefx_place.path!r} is a lowered module that was made for other calls; wrap it "
                "in a module that takes what the original took"
            )
    else:
        check_module(site, mine)
        for part in mine.modules():
            answers = part.__dict__.get("purefx_answers") or {} if isinstance(part, Lowered) else {}
            if len({id(answer.place.body) for answer in answers.values()}) > 1:
                raise SwapError(
                    f"module {site.path!r}: {part.purefx_place.path!r} is a lowered module whose calls run different bodies, and "
                    "called from elsewhere it runs the first; give an eager module"
                )


def _callers(family: LoweringContext, asked: ExternalUse) -> list[Graph]:
    # The body that calls, with the values of each call of it there.
    graph, found = family.program.graphs[asked.graph], list[Graph]()
    for frame, name in family.bodies_at.get(asked.caller, ()):
        was = family.before_merging(frame.path, frame.call) if name == asked.graph else None
        if was is not None:
            found.append(as_it_was(graph, was))
    return found or family.values_by_call.at(asked.graph, asked.caller)


def admitted(owner: Watched, name: str, value: Any) -> Any:
    """Return what is put in place of a child: the module that is assigned, or what a program is lowered to.

    Args:
        owner: the module that gets it.
        name: the attribute.
        value: a module, a program, or None.

    Raises:
        SwapError: the program asks something of the child that this does not answer.

    >>> import torch, purefx as px
    >>> module = px.unflatten(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),)))
    >>> admitted(module, "0", torch.nn.Tanh())
    Tanh()
    """
    where = owner.purefx_where
    if where is None:
        return value
    family: LoweringContext = where.family
    if family.hooked and isinstance(value, _MODULES) and children_dict(owner).get(name) is not value:
        _check_one_object(family, where.path, name)
    known = [_replaces(family, f"{above}.{name}" if above else name, owner, value) for above in family.paths_of(where.path)]
    return _lowered(value, family) if isinstance(value, Program) and any(known) else value


_MODULES = (torch.nn.Module, Program)


def _check_one_object(family: LoweringContext, outer: str, name: str) -> None:
    # In eager what is below a module is below all of its names; here those whose calls run other bodies have their own children.
    first = family.hooked.get(outer, outer)
    names = [first, *(path for path, other in family.hooked.items() if other == first)]
    called = [path for each in names if (path := f"{each}.{name}") in family.needs]
    if len(names) > 1 and len(called) > 1:
        swapped = ", ".join(f"{path!r}: module" for path in called)
        raise SwapError(
            f"module {f'{outer}.{name}'!r}: {' and '.join(map(repr, names))} are one module, and under each name its calls run "
            f"other bodies, so this would replace it for one of them; replace all: px.swap_modules(program, {{{swapped}}}) "
            "before lowering"
        )


def _replaces(family: LoweringContext, path: str, owner: Watched, value: Any) -> bool:
    # Say whether the program knows what is replaced, and if so, whether this answers all that it asks.
    needs = family.needs.get(path)
    module, _, number = path.rpartition("@")
    if needs is None and path not in family.types and number.isdecimal() and module in family.needs and value is not None:
        raise SwapError(f"{path!r} is one call of {module!r}, and only all calls of a module can be replaced; {put_in(module)}")
    there = children_dict(owner).get(path.rpartition(".")[2])
    if value is there or (needs is None and (value is None or path not in family.types)):
        return False
    if not is_home(family, path, value) and not _was_edited(owner):  # what an edited graph asks is the user's to know
        _check(family, path, needs, value, there)
    return True


def _check(family: LoweringContext, path: str, needs: ExternalUses | None, value: Any, there: Any) -> None:
    # Refuse what does not answer.
    export_again = f"export again with preserve_module_call_signature=({path!r},)"
    if needs is None:
        raise SwapError(
            f"module {path!r} is not called in this program, or its call did nothing that was exported, so nothing would call "
            f"what is assigned; {export_again}, and {put_in(path)}"
        )
    if value is None:
        raise SwapError(
            f"module {path!r} is called, or read from, so it cannot be None; assign torch.nn.Identity() to {path!r} for one that "
            "does nothing, or delete it"
        )
    if needs.inside:
        raise SwapError(
            f"module {path!r}: what it does stands in the code of {needs.inside[0].caller or 'the root'} "
            f"({needs.inside[0].node.name}), so assigning it changes nothing; lower a program in which its calls are "
            "outlined (transform does that), or where that is a branch of an operator, replace a module around it"
        )
    if needs.calls and not any(asked.path == path for asked in needs.calls):
        raise SwapError(
            f"module {path!r}: the program calls the modules in it one by one, so it cannot be replaced as a whole; "
            f"assign the modules in it, or {put_in(path)}"
        )
    for asked in (*needs.calls, *needs.held):
        found = value if asked.path == path else found_in(value, asked.path[len(path) + 1 :])
        if asked.path != path and not isinstance(found, torch.nn.Module):
            raise SwapError(
                f"module {path!r}: {asked.caller or 'the root'} calls its {asked.path[len(path) + 1 :]}, and a "
                f"{type(value).__name__} has no such module; give one that has, or {put_in(path)}"
            )
        if asked in needs.held:
            if not isinstance(found, Program):  # its root asks when it is called
                check_forward(asked.path, asked.node, found, asked.node.args[1:], dict(asked.node.kwargs))
        elif not is_home(family, asked.path, found):
            check_call(family, asked, found)
    for asked in needs.reads:
        _check_read(family, path, asked, value, attribute_of(there, asked.path[len(path) + 1 :]))


def _check_read(family: LoweringContext, path: str, asked: ExternalUse, value: Any, old: Any) -> None:
    # What others read has to be there; where it has other names, an exported program cannot tell which was read.
    rest = asked.path[len(path) + 1 :]
    found = found_in(value, rest)
    tied = [name for name in family.ties.get(asked.path, ()) if not is_below(name, path)]
    fits = isinstance(found, torch.Tensor) and (not isinstance(old, torch.Tensor) or old.shape == found.shape)
    if not fits or (tied and found is not old):
        said = f", or the same tensor as {' or '.join(tied)}" if tied else ""
        raise SwapError(
            f"module {path!r}: {asked.caller or 'the root'} reads its {rest}{said}, and the {type(value).__name__} has another "
            f"tensor or none there; give it that of the original, or {put_in(path)}"
        )


def _lowered(program: Program, family: LoweringContext) -> torch.nn.Module:
    return lower(program, to=family.to)  # type: ignore[arg-type]


def _was_edited(owner: Watched) -> bool:
    graphs = [owner.__dict__[key] for key in GRAPHS if isinstance(owner.__dict__.get(key), torch.fx.Graph)]
    return any(edited(owner, graph) for graph in graphs)
