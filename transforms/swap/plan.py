"""The plan of a swap: the requested replacements, and the result of every body at each of its instances.

Nothing is rewritten here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from attrs import define, field, frozen

from ...ir.calls.call_graph import Instance, called_at, calls_by_label, inner_instances
from ...ir.errors import SwapError
from ...ir.graph import Graph
from ...ir.names import Names, did_you_mean
from ...ir.program import Program
from .bodies import Changes, Swap, rewritten
from .state import covering

__all__ = ["Decision", "instances", "new_graphs", "read_requests"]

Replacement = torch.nn.Module | Program


def read_requests(program: Program, modules: Any) -> dict[str, Replacement]:
    """Return what is to be swapped, by path.

    Args:
        program: whose modules they are.
        modules: a mapping from paths to replacements, or pairs of them.

    Returns:
        The replacements by path.

    Raises:
        SwapError: a path is unknown, given twice or the root's; or something is not a replacement.

    >>> from purefx.ir import Graph, Program
    >>> read_requests(Program.of({"": Graph((), ())}), {})
    {}
    """
    found: dict[str, Replacement] = {}
    known = _known_paths(program)
    for path, by in _pairs(modules):
        if not isinstance(path, str):
            raise SwapError(f"modules are named by their paths, which are strings; {path!r} is a {type(path).__name__}")
        if path in found:
            raise SwapError(f"module {path!r} is given twice; give one replacement for each path")
        if not path:
            raise SwapError("the root cannot be swapped, because nothing calls it; use the replacement itself instead")
        if path not in known:
            raise SwapError(f"there is no module {path!r}{_suggestion(path, known)}")
        found[path] = _replacement(path, by)
    _check_outermost(found)
    return found


def _pairs(modules: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(modules, Mapping):
        return list(modules.items())
    try:
        return [(path, by) for path, by in modules]
    except (TypeError, ValueError):
        said = f"swap_modules takes a mapping from paths to replacements, not a {type(modules).__name__}"
        raise SwapError(f'{said}: swap_modules(program, {{"layers.0.mlp": module}})') from None


def _replacement(path: str, by: Any) -> Replacement:
    if isinstance(by, Program):
        return by
    if isinstance(by, type) and issubclass(by, torch.nn.Module):
        raise SwapError(f"module {path!r}: {by.__name__} is a class; give an instance of it")
    if not isinstance(by, torch.nn.Module):
        raise SwapError(
            f"module {path!r}: a {type(by).__name__} cannot stand in for a module; give a torch.nn.Module (eager, fx or "
            "compiled) or a purefx Program"
        )
    return by


def _check_outermost(found: Mapping[str, Replacement]) -> None:
    for path, by in found.items():
        outer = covering(found, path.rpartition(".")[0])
        if outer is not None:
            inside = path[len(outer) + 1 :]
            how = f"px.swap_modules(program, {{{inside!r}: ...}})" if isinstance(found[outer], Program) else f"{inside} = ..."
            raise SwapError(
                f"module {path!r} is below {outer!r}, which is swapped as well for a {type(found[outer]).__name__}: put the "
                f"{type(by).__name__} into that first ({how}), or leave one of the two out"
            )


def _suggestion(path: str, known: set[str]) -> str:
    near = did_you_mean(path, known)
    if near:
        return near
    few = sorted(known, key=lambda path: (path.count("."), path))[:5]
    return f"; the program has {', '.join(map(repr, few))}{' ...' if len(known) > len(few) else ''}" if few else ""


def _known_paths(program: Program) -> set[str]:
    listed = [module.path for module in program.modules]
    stacks = [frame.path for node in program.main.nodes for frame in node.stack]
    return {path for path in (*listed, *calls_by_label(program), *stacks) if path}


def instances(program: Program, swapped: Mapping[str, Any]) -> list[Instance]:
    """Return the instances of bodies, callees first; those of swapped modules are left out.

    >>> from purefx.ir import Graph, Program
    >>> instances(Program.of({"": Graph((), ())}), {})
    [('', '')]
    """
    done: dict[Instance, None] = {}
    opened: set[Instance] = set()
    todo = [((program.root, ""), False)]
    while todo:
        place, closing = todo.pop()
        if closing:
            done.setdefault(place)
        elif place not in opened:
            opened.add(place)
            todo.append((place, True))
            inner = inner_instances(program, place)
            todo.extend((found, False) for found in reversed(inner) if covering(swapped, found[1]) is None)
    return list(done)


@frozen(eq=False)
class Decision:
    """What is done in one body at one place, besides what its callees have become."""

    swaps: dict[str, Swap]
    slots: dict[str, str]

    @property
    def key(self) -> Hashable:
        """Equal for decisions that give the same graph."""
        swaps = [(name, id(swap.graft), swap.order, swap.through, tuple(swap.kept.items())) for name, swap in self.swaps.items()]
        return tuple(swaps), tuple(self.slots.items())


def new_graphs(program: Program, decisions: Mapping[Instance, Decision], names: Names) -> dict[str, Graph]:
    """Return the graphs of the program, each as what it has become; more of them where a shared body has become several.

    Args:
        program: the program.
        decisions: what is done in the bodies where they stand, callees first.
        names: ids of graphs that are taken.
    """
    work = _Renewal(program, decisions, names)
    for place in decisions:
        work.renew(place)
    return work.graphs


@define
class _Renewal:
    program: Program
    decisions: Mapping[Instance, Decision]
    names: Names
    graphs: dict[str, Graph] = field(factory=dict)
    ids: dict[Instance, str] = field(factory=dict)
    """What became of a body at a place."""
    made: dict[tuple[str, Hashable], str] = field(factory=dict)
    touched: set[Instance] = field(factory=set)
    kept: set[str] = field(factory=set)
    """Bodies that stay as they are in some place, or whose id went to the first that came of them."""

    def __attrs_post_init__(self) -> None:
        for place, decision in self.decisions.items():
            if decision.swaps or decision.slots or not self.touched.isdisjoint(self._inner(place, decision)):
                self.touched.add(place)
        self.kept.update(place[0] for place in self.decisions if place not in self.touched)
        self.made.update({(name, None): name for name in self.kept})

    def _inner(self, place: Instance, decision: Decision) -> list[Instance]:
        callers = self.program.graphs[place[0]].callers
        return [found for node in callers if node.name not in decision.swaps for found in called_at(node, place[1])]

    def renew(self, place: Instance) -> None:
        """Make the graph of a body at a place, where it is not there yet."""
        name, path = place
        graph, decision = self.program.graphs[name], self.decisions[place]
        if place not in self.touched:
            self.ids[place], self.graphs[name] = name, graph
            return
        callees: dict[tuple[str, str], str] = {}
        for node in graph.callers:
            if node.name not in decision.swaps:
                callees.update({(node.name, body): self.ids[body, where] for body, where in called_at(node, path)})
        # What it calls may have become something else under the same id: then it is what it was.
        same = all(body == became for (_, body), became in callees.items()) and not (decision.swaps or decision.slots)
        key = (name, None if same else (decision.key, tuple(callees.items())))
        if key not in self.made:
            self.made[key] = self.names.fresh(name) if name in self.kept else name
            self.kept.add(name)
            changes = Changes(decision.swaps, callees, decision.slots)
            self.graphs[self.made[key]] = graph if same else rewritten(graph, changes)
        self.ids[place] = self.made[key]
