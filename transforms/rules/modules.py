"""Module calls in patterns: the calls of a tree, by the path or the class of the module that is called.

Such a term stands for one call, whatever its operands are.  In a flat program there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Ref
from ...ir.calls.call_graph import calls_from
from ...ir.errors import RuleError
from ...ir.graph import Call, Frame, Node, Op
from ...ir.names import FROM_ROOT, is_below, join, relative, way_to
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from .overloads import arranged
from .terms import Term, subterms

__all__ = ["Called", "ModuleCall", "arguments_of", "called", "calls_in", "module", "results_of_call"]


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
    """A call of a module that is written, with other operands than those it has elsewhere."""

    do: Call
    args: tuple[Any, ...]
    gives_tensor: bool | None = None

    def _gives_tensor(self) -> bool | None:
        return self.gives_tensor

    def _parts(self) -> tuple[Any, ...]:
        return self.args

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"{self.do.instance}({', '.join(map(part, self.args))})"


def called(program: Program, graph: str, places: Sequence[str], path: str, operands: Sequence[Any]) -> Called:
    """Return a call of a module, with operands.

    Args:
        program: has the body that calls it.
        graph: the id of that body.
        places: the modules that it is the body of, from the root.
        path: the module, as the body writes it; or ``"/a.b"`` from the root.
        operands: one for each input of the module's body.

    Raises:
        RuleError: there is no such module below, its body is not the same for all that share this one, it is called with
            something else, or its call has a preserved signature.
    """
    where = f"the body {graph!r}" if graph else "the root"
    do = _call_of(program, graph, places, _below(path, places, where), where)
    body = program.graphs[do.graph]
    if len(operands) != len(body.inputs):
        names = ", ".join([formal.name for formal in body.inputs])
        raise RuleError(f"the module {path} in {where} takes {len(body.inputs)} operands ({names}), not {len(operands)}")
    if any(map(is_boundary, body.nodes)):
        raise RuleError(f"the call of {path} in {where} has a preserved signature, and cannot be made once more by a rule")
    return Called(do, tuple(operands), type(body.output) is Ref)


def _below(path: str, places: Sequence[str], where: str) -> str:
    # A path as the body writes it.
    if not path.startswith(FROM_ROOT):
        return path
    outside = [place for place in places if not is_below(path[1:], place)]
    if outside:
        raise RuleError(f"{where} is the body of {outside[0]}, and calls modules below that: {path[1:]} is none")
    return relative(path[1:], places[0])


def _call_of(program: Program, graph: str, places: Sequence[str], path: str, where: str) -> Call:
    # A call that the body has, or one of a module below it that others call.
    own = [node.do for node in program.graphs[graph].callers if type(node.do) is Call and node.do.instance.path == path]
    if own:
        return own[0]
    wanted = {join(place, path): None for place in places}
    among = {"", *(above for at in wanted for above in way_to(at))}
    bodies = {at: call.graph for _, call, at in calls_from(program, among=among) if at in wanted}
    if len(bodies) == len(wanted) and len(set(bodies.values())) == 1:
        return Call(Frame(path), next(iter(bodies.values())))
    if bodies:
        found = ", ".join(sorted(set(bodies.values())))
        raise RuleError(f"{path} is not called with one body below all modules that share {where}, but with {found}")
    called = dict.fromkeys([node.do.instance.path for node in program.graphs[graph].callers if type(node.do) is Call])
    raise RuleError(
        f"nothing calls a module {path!r} below {where}, so the program has no code of it; this body calls\n"
        f"{', '.join(called) or 'none'}. What a module computes that no forward called is written with operators, of m.read(...)"
    )


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
        # Several results are replaced together, when the last of them is there.
        return all(
            term.is_at(node, around, m.program) and (node is not m.root or type(_output(m.program, node)) is not tuple)
            for term, node in found
        )

    return (are_meant,)


def results_of_call(m: Any, term: Any) -> Any:
    """Return what stands in the place of the values that a match replaces: of a call of a module the results that are used.

    Args:
        m: a match.
        term: what the rule returned; of a module that returns several values as many.

    Raises:
        RuleError: they are fewer or more, or a call goes whose signature is preserved.
    """
    node = m.origin
    if type(node.do) is not Call or term is None:
        return term
    body, name = m.program.graphs[node.do.graph], node.do.instance
    if any(map(is_boundary, body.nodes)) and not any(each is m.kept for each in subterms(term)):
        raise RuleError(
            f"{m.place}: the call of {name} has a preserved signature, which a rule would break: make something of m.value,\n"
            "which keeps the call, or export without preserve_module_call_signature"
        )
    if not m.found.several:
        if isinstance(term, list | tuple):
            raise RuleError(f"{m.place}: the module {name} gives one value here, since nothing uses others, and a rule one too")
        return term
    count = len(body.output)
    if not isinstance(term, list | tuple) or len(term) != count:
        raise RuleError(f"{m.place}: the module {name} returns {count} values, and a rule as many in a tuple, not {term!r}")
    return tuple([term[root.projection[1]] for root in m.roots])


def _output(program: Program, node: Node) -> Any:
    return program.graphs[node.do.graph].output if type(node.do) is Call else None
