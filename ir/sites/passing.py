"""What a module gave back as it was given: does a later use of that value mean the argument or the result?

One idea: the exporter keeps one name for both, that of the argument or, where an operator gave it back (``x.to(x.dtype)``), that
of the result; so a program can not tell.  A value with one later use means the result, or nobody would use that; with several,
whoever swaps must say.  What a module wrote to in place and gave back means the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from ..arguments import Ref
from ..borders import GIVES, is_border
from ..effects.aliasing import item_of
from ..errors import SwapError
from ..graph import Graph
from .sites import Site

__all__ = ["Through", "passed_on", "unclear_results", "uses_of_passed"]

Through = Literal["refuse", "result", "argument"]


def passed_on(graph: Graph, site: Site, through: Through, *, is_root: bool) -> frozenset[str]:
    """Return the values that mean the result of a call from there on.

    Args:
        graph: the caller.
        site: the call; what it gives back as it was given is in ``through``.
        through: what later uses mean, where that is asked.
        is_root: whether the caller is the root.

    Raises:
        SwapError: several later uses may mean either.
    """
    if through == "refuse":
        for why in unclear_results(graph, site, is_root=is_root):
            raise SwapError(f'{why}; pass through="result" or through="argument" to say which, or swap a module around it')
    if not site.through or through == "argument":
        return frozenset()
    later = uses_of_passed(graph, site)
    if through == "refuse":
        inputs = set() if is_root else {formal.name for formal in graph.inputs}
        for name in site.through:
            _check(graph, site, name, later[name], escapes=name in inputs)
    return frozenset([name for name in site.through if later[name]])


def uses_of_passed(graph: Graph, site: Site) -> Mapping[str, list[str]]:
    """Return who uses what a call gives back as it was given, after it: for each value, the names of nodes.

    Args:
        graph: the caller.
        site: the call.
    """
    found: dict[str, list[str]] = {name: [] for name in site.through}
    place = next(number for number, node in enumerate(graph.nodes) if node is site.node)
    for node in graph.nodes[place + 1 :]:
        if not is_border(node):
            for name in node.refs():
                if name in found:
                    found[name].append(node.name)
    for name in graph.output_refs():
        if name in found:
            found[name].append("the result of the caller")
    return found


def unclear_results(graph: Graph, site: Site, *, is_root: bool) -> Iterator[str]:
    """Yield why what a call gives back under a name of its own, and is an argument, may be meant as either.

    Args:
        graph: the caller.
        site: the call; what it gives back so is in ``same``.
        is_root: whether the caller is the root.
    """
    outputs = site.convention.outputs
    for place, leaf in enumerate(outputs):
        if leaf not in site.same:
            continue
        names = {site.node.name} if site.convention.single else _taken(graph, site.node.name, place)
        users = [node for node in graph.nodes if not is_border(node)]
        uses = [node.name for node in users for name in node.refs() if name in names]
        given = [name for name in graph.output_refs() if name in names]
        said = f"module {site.path!r}: the call {site.node.name} gives back {site.same[leaf]}, the very object that it was given"
        if len(uses) + len(given) > 1:
            every: list[str] = list(dict.fromkeys([*uses, *(["the result of the caller"] if given else [])]))
            count = len(uses) + len(given)
            yield f"{said}, and {', '.join(every)} use it {count} times afterwards, which may mean the argument or the result"
        elif given and not is_root:
            yield f"{said}, and so does the module that calls it, where the program can not tell the argument from the result"


def _taken(graph: Graph, call: str, place: int) -> set[str]:
    users = (graph.by_name[name] for name in graph.users.get(call, ()))
    return {node.name for node in users if item_of(node) == (call, place)}


def _check(graph: Graph, site: Site, name: str, uses: list[str], *, escapes: bool) -> None:
    # An input of the caller that its own border gives back may mean the result as well, one level up.
    borders = [node for node in graph.nodes if node.do == GIVES and not node.stack]
    given_back = escapes and any(Ref(name) in node.args for node in borders)
    if len(uses) == 1 and not given_back:
        return
    if not uses and not escapes:
        return
    said = f"module {site.path!r}: the call {site.node.name} gives back {name} as it was given"
    if uses and not given_back:
        why = (
            f"and {', '.join(dict.fromkeys(uses))} use it {len(uses)} times afterwards, which may mean the argument or the result"
        )
    else:
        why = "and so may the module that calls it, where the program can not tell the argument from the result"
    raise SwapError(f'{said}, {why}; pass through="result" or through="argument" to say which, or swap a module around it')
