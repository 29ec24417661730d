"""Module calls in patterns: the calls of a tree, by the path or the class of the module that is called.

Such a term stands for one call, whatever its operands are.  In a flat program there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import frozen

from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.names import join
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from .overloads import arranged
from .terms import Term

__all__ = ["Called", "ModuleCall", "arguments_of", "called", "calls_in", "module"]


@frozen(eq=False, repr=False)
class ModuleCall(Term):
    """A call of a module, whatever it is called with."""

    glob: str | None
    type_name: str | None

    def __repr__(self) -> str:
        return f"module({self.glob or self.type_name})"

    def is_at(self, node: Node, path: str, program: Program) -> bool:
        """Return whether a node calls a module that is meant.

        Args:
            node: of a body.
            path: where the body stands, from the root.
            program: says which class modules are of.
        """
        if type(node.do) is not Call:
            return False
        called = join(path, node.do.instance.path)
        if self.glob is not None:
            return fnmatchcase(called, self.glob)
        names = [each.type_name or "" for each in program.modules if each.path == called]
        return any(self.type_name in (name, name.rpartition(".")[2]) for name in names)


def module(where: Any) -> ModuleCall:
    """Return what ``px.rule(at=...)`` takes to look at calls of modules, in a tree.

    Args:
        where: the path of a module from the root, in which ``*`` and ``?`` stand for any characters; or a class of modules.

    >>> module("layers.*.mlp"), module(torch.nn.Linear)
    (module(layers.*.mlp), module(torch.nn.modules.linear.Linear))

    Raises:
        RuleError: it is neither.
    """
    if isinstance(where, type) and issubclass(where, torch.nn.Module):
        return ModuleCall(None, f"{where.__module__}.{where.__qualname__}")
    if not isinstance(where, str):
        raise RuleError(f"px.module takes the path of a module, with * for any characters, or a class of modules, not {where!r}")
    return ModuleCall(where, None)


@frozen(eq=False, repr=False)
class Called(Term):
    """A call of a module that is written: what another call of the body calls, with other operands."""

    do: Call
    args: tuple[Any, ...]

    def _parts(self) -> tuple[Any, ...]:
        return self.args

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"{self.do.instance}({', '.join(map(part, self.args))})"


def called(program: Program, graph: str, path: str, operands: Sequence[Any]) -> Called:
    """Return a call of a module that a body calls already, with other operands.

    Args:
        program: has the body.
        graph: the id of the body.
        path: the module, as the body writes it.
        operands: one for each input of the module's body.

    Raises:
        RuleError: the body calls no such module, it is called with something else, or its call has a preserved signature.
    """
    found = [node.do for node in program.graphs[graph].callers if type(node.do) is Call]
    do = next((each for each in found if each.instance.path == path), None)
    where = graph or "the root"
    if do is None:
        paths = ", ".join(dict.fromkeys([each.instance.path for each in found])) or "none"
        raise RuleError(
            f"{where} calls no module {path!r}: a call that is written is of one that it calls, and those are {paths}"
        )
    body = program.graphs[do.graph]
    if len(operands) != len(body.inputs):
        names = ", ".join([formal.name for formal in body.inputs])
        raise RuleError(f"the module {path} in {where} takes {len(body.inputs)} operands ({names}), not {len(operands)}")
    if any(map(is_boundary, body.nodes)):
        raise RuleError(f"the call of {path} in {where} has a preserved signature, and cannot be made once more by a rule")
    return Called(do, tuple(operands))


def arguments_of(program: Program, node: Node) -> Mapping[str, Any]:
    """Return what each parameter of an operator gets, defaults included, or each input of the body that a node calls."""
    if type(node.do) is Call:
        return dict(zip([formal.name for formal in program.graphs[node.do.graph].inputs], node.args, strict=True))
    return (arranged(node.do.target, node.args, dict(node.kwargs)) if type(node.do) is Op else None) or {}


def calls_in(terms: Iterable[Any]) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that calls are of modules that are meant; none where no term is a call.

    Args:
        terms: the parts of what a rule looks for.
    """
    if not any(isinstance(each, ModuleCall) for each in terms):
        return ()

    def are_meant(m: Any) -> bool:
        found = [(term, node) for term, node in zip(m.found.terms, m.found.nodes, strict=True) if isinstance(term, ModuleCall)]
        around = m.scope.paths[m.instance] if found else ""
        m.notes.asked |= len(m.scope.paths) > 1
        if not all(term.is_at(node, around, m.program) for term, node in found):
            return False
        for _, node in found:
            _check_replaceable(m, node)
        return True

    return (are_meant,)


def _check_replaceable(m: Any, node: Node) -> None:
    do = node.do
    assert type(do) is Call
    if isinstance(m.val(node.name), tuple | list):
        raise RuleError(
            f"{m.place}: the module {do.instance} returns several values, and a rule of a call replaces one;\n"
            "write a rule over operators with across_modules=True, or edit with px.editing"
        )
    if any(map(is_boundary, m.program.graphs[do.graph].nodes)):
        raise RuleError(f"{m.place}: the call of {do.instance} has a preserved signature, which a rule would break")
