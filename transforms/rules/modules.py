"""Module calls in patterns: the calls of a tree, by the path or the class of the module that is called.

Such a term stands for one call, whatever its operands are.  In a flat program there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from .terms import Term, subterms

__all__ = ["ModuleCall", "arguments_of", "calls_in", "check_call", "module"]


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
        around = m.scope.paths[m.instance]
        m.notes.asked |= len(m.scope.paths) > 1
        found = zip(m.found.terms, m.found.nodes, strict=True)
        return all(term.is_at(node, around, m.program) for term, node in found if isinstance(term, ModuleCall))

    return (are_meant,)


def check_call(m: Any, term: Any) -> None:
    """Check that a rule may replace a call of a module.

    Args:
        m: a match.
        term: the term that the rule returned.

    Raises:
        RuleError: the module has several results, or a call goes whose signature is preserved.
    """
    node = m.root
    if type(node.do) is not Call or term is None:
        return
    body, name = m.program.graphs[node.do.graph], node.do.instance
    if type(body.output) is tuple:
        raise RuleError(
            f"{m.place}: the module {name} returns {len(body.output)} values, and rules replace calls with one: leave it out in\n"
            "`where=`, match the operators of its body, or apply the rule before outline"
        )
    if any(map(is_boundary, body.nodes)) and not any(each is m.kept for each in subterms(term)):
        raise RuleError(
            f"{m.place}: the call of {name} has a preserved signature, which a rule would break: make something of m.value,\n"
            "which keeps the call, or export without preserve_module_call_signature"
        )
