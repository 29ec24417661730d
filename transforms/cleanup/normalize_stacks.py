"""``normalize_stacks``: module stacks in one spelling, aliases under one path, calls numbered as they are first made.

One idea: a call is told by the calls around it, the module and its number; each gets the next free number of its module, in the
order of the nodes.  So two traces of one model, which number and name calls each in its own way, come to say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...ir.errors import NamingError
from ...ir.importing.spellings import is_path
from ...ir.names import did_you_mean
from ...ir.program import Program
from ..transformation import transformation
from .renumbering import Renumbering

__all__ = ["normalize_stacks"]


@transformation(
    proven=True,
    requires={"flat"},
    laws=["nodes of one call stay in one call", "calls of a module are numbered from 0 without gaps, in the order of the nodes"],
)
def normalize_stacks(program: Program, *, aliases: Mapping[str, str] | torch.nn.Module | None = None) -> Program:
    """Write the module stacks of all nodes in one way.

    Before::

        y = aten.relu.default(x)   in L['self'].act@3
        z = aten.relu.default(y)   in other            # the same module, under another name
        w = aten.neg.default(z)    # meta has nn_module_stack: {"L__self___up": ("L['self'].up[0]", Up)}

    After, with ``aliases={"other": "act"}``::

        y = aten.relu.default(x)   in act
        z = aten.relu.default(y)   in act@1
        w = aten.neg.default(z)    in up.0

    A stack in meta (``nn_module_stack``, as any tracer spells it) is read by a grammar and takes the place of the node's own;
    a part of one that makes no sense is dropped, and text is never evaluated.  A call that is made inside itself is left out,
    and one that two calls seem to make is two calls.  What reads state below a module that is called otherwise then names it
    there.  Preserved call signatures move with their calls.

    Args:
        program: a flat program.
        aliases: for paths that lead to a module which has another path too, that path; or the original module, which is asked
            for them.  What is below an alias is an alias.  A program does not know them by itself: equal state is no proof.

    Returns:
        The program with normal stacks; the same object where they are.

    Raises:
        PipelineError: the program calls modules.
        NamingError: an alias names no module of the program.
        TypeError: ``aliases`` is neither a mapping of paths nor a module.

    >>> import purefx as px
    >>> nodes = [px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("L['self'].act", 3),))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), ())})
    >>> px.normalize_stacks(program).main.nodes[0].stack
    (Frame(path='act', call=0, part=0),)
    """
    return Renumbering(program, _checked(program, aliases)).program()


def _checked(program: Program, aliases: object) -> dict[str, str]:
    if aliases is None:
        return {}
    if isinstance(aliases, torch.nn.Module):
        return _of_module(aliases)
    if not isinstance(aliases, Mapping):
        raise TypeError(f"normalize_stacks(aliases=) takes a mapping of paths, or the module, not a {type(aliases).__name__}")
    given: Mapping[Any, Any] = aliases
    known = {module.path for module in program.modules}
    known.update(frame.path for _, node in program.nodes() for frame in node.stack)
    for path in (*given, *given.values()):
        if not is_path(path) or path not in known:
            raise NamingError(f"normalize_stacks(aliases=): the program has no module {path!r}{did_you_mean(path, known)}")
    return {alias: _end(alias, given) for alias in given}


def _end(alias: str, given: Mapping[str, str]) -> str:
    seen = [alias]
    while seen[-1] in given:
        seen.append(given[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise NamingError(f"normalize_stacks(aliases=): {' is '.join(map(repr, seen))}: one of them must be the path to keep")
    return seen[-1]


def _of_module(module: torch.nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for path, inner in module.named_modules(remove_duplicate=False):
        kept = first.setdefault(id(inner), path)
        if kept != path:
            found[path] = kept
    return found
