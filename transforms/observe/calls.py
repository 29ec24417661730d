"""``found_calls``: the module calls that are observed, and why others cannot be.

It looks at a tree of calls; it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from attrs import frozen

from ...ir.arguments import Arg, Ref, bodies_in
from ...ir.calls.call_sites import Convention, conventions
from ...ir.errors import NamingError, UnsupportedProgram
from ...ir.graph import Call, Get, Graph, Op
from ...ir.names import did_you_mean, is_below, join
from ...ir.program import Program

__all__ = ["Chain", "Observed", "found_calls", "results_of"]

Chain = tuple[str, ...]
"""The nodes that call one another, from a graph down to the call that is observed."""


@frozen
class Observed:
    """One call that is observed."""

    name: str
    """The path of the module; with ``@1`` for its second call."""
    chain: Chain
    graph: str
    """The body."""
    convention: Convention | None = None
    """How the body is called, where its call signature is preserved."""

    def given_by(self, body: Graph) -> list[Ref]:
        """Return the values that the call gives: what its forward returned if that is known, else what the program uses."""
        return given(body, self.convention)


def found_calls(program: Program, globs: Sequence[str]) -> list[Observed]:
    """Return the calls that are observed, in the order in which they run.

    Args:
        program: a tree of calls.
        globs: of module paths.

    Raises:
        NamingError: a glob matches no module that is called, or none that gives a value.
        UnsupportedProgram: a module stands inside of an operator, or state in between would pass for what it gives.

    >>> from purefx.ir import Node
    >>> bodies = {"": Graph((), (Node("y", Call(Frame("m"), "m")),)), "m": Graph((), (Node("z", Get("b")),), Ref("z"))}
    >>> found_calls(Program.of(bodies), ["m"])
    [Observed(name='m', chain=('y',), graph='m', convention=None)]
    """
    counts: Counter[str] = Counter()
    known = conventions(program)
    used: set[str] = set()
    found: list[Observed] = []
    for called in _calls(program):
        path, number = called.path, counts[called.path]
        counts[path] += 1
        matching = [glob for glob in globs if fnmatchcase(path, glob)]
        convention = known.get(called.graph)
        if matching and given(program.graphs[called.graph], convention):
            used.update(matching)
            found.append(Observed(f"{path}@{number}" if number else path, called.chain, called.graph, convention))
    _check_all(program, globs, used, counts)
    _check_versions(program, {path: count for path, count in counts.items() if any(fnmatchcase(path, glob) for glob in globs)})
    return found


@frozen
class _Called:
    """A call that is met on the way from the root, and those around it."""

    path: str
    chain: Chain
    graph: str


def _calls(program: Program) -> Iterator[_Called]:
    # All calls, in the order in which they run.
    todo = [_Called("", (), program.root)]
    while todo:
        met = todo.pop()
        if met.chain:
            yield met
        for node in reversed(program.graphs[met.graph].callers):
            if type(do := node.do) is Call:
                path = join(met.path, do.instance.path)
                todo.append(_Called(path, (*met.chain, node.name), do.graph))


def _check_all(program: Program, globs: Sequence[str], used: set[str], called: Mapping[str, Any]) -> None:
    # Whether each glob was of use, and nothing that it asks for is out of reach.
    hidden = _hidden(program)
    for glob in globs:
        lost = [path for path in hidden if fnmatchcase(path, glob)]
        if lost:
            raise UnsupportedProgram(
                f"observe: {lost[0]} runs inside of {hidden[lost[0]]}, whose body gives nothing else: "
                f"observe the module around it, and name those that you want"
            )
        if glob in used:
            continue
        if any(fnmatchcase(path, glob) for path in called):
            raise NamingError(f"observe: of what {glob!r} gives, the program uses nothing, so there is no value in it")
        if any(fnmatchcase(path, glob) for path in [module.path for module in program.modules] if path):
            raise NamingError(
                f"observe: {glob!r} is in the program, but no call of it: it gives what it takes, or runs inside of an operator "
                f"(cond, a loop), or the exporter kept no trace of it; observe the module around it"
            )
        raise NamingError(f"observe: no module {glob!r} is called that gives a value{did_you_mean(glob, called)}")


def _check_versions(program: Program, counts: Mapping[str, int]) -> None:
    # In a program that was functional, state that a module has written and that is written again is a value of its own, and would
    # pass for what the module gives.
    if "mutations in place" not in program.facts:
        return
    for where, slot in _written(program):
        for path, count in counts.items():
            if is_below(slot, path) and (count > 1 or not is_below(join(where, "x"), path)):
                raise UnsupportedProgram(
                    f"observe: {path} writes {slot}, "
                    f"which is written {'in several calls' if count > 1 else 'outside of it as well'}, "
                    f"so here a state in between is a value like those that {path} gives: "
                    f"observe the program as it was before run_decompositions"
                )


def _written(program: Program) -> Iterator[tuple[str, str]]:
    # Modules, and the state that each writes.
    for called in (_Called("", (), program.root), *_calls(program)):
        body = program.graphs[called.graph]
        for node in body.nodes:
            if type(node.do) is Op and node.do.effects.writes and type(node.args[0]) is Ref:
                read = body.by_name.get(node.args[0].name)
                if read is not None and type(read.do) is Get:
                    yield called.path, join(called.path, read.do.slot)


def _hidden(program: Program) -> dict[str, str]:
    # Modules in the bodies of operators, with the operator.
    found: dict[str, str] = {}
    todo = [("", program.root, ""), *((met.path, met.graph, "") for met in _calls(program))]
    while todo:
        path, graph, operator = todo.pop()
        for node in program.graphs[graph].nodes if operator else program.graphs[graph].callers:
            here = join(path, node.stack[-1].path) if node.stack else path
            if operator:
                inner = [frame.path for frame in node.stack] + ([node.do.instance.path] if type(node.do) is Call else [])
                found.update((join(path, each), operator) for each in inner)
            if type(node.do) is Op:
                todo += [(here, body, node.do.name) for body in bodies_in(node.args, node.kwargs)]
    return found


def given(body: Graph, convention: Convention | None) -> list[Ref]:
    """Return the values that a call of a body gives, see ``Observed.given_by``.

    >>> given(Graph((), (), (1, Ref("x"))), None)
    [Ref(name='x')]
    """
    return [leaf for leaf in (results_of(body) if convention is None else convention.gives) if type(leaf) is Ref]


def results_of(body: Graph) -> tuple[Arg, ...]:
    """Return the results of a body, also where it has one.

    >>> results_of(Graph((), (), 1))
    (1,)
    """
    return body.output if type(body.output) is tuple else (body.output,)
