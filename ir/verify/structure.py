"""Rules about structure: every value is of its declared type, every argument of an immutable kind, every name defined once.

These rules run first; all others may rely on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..arguments import Body, Ref
from ..graph import Frame
from ..program import CallSignature, Module, Program, Step
from ..signature import Constraints, Signature
from ..state import State
from .findings import INPUTS, Finding, depth_fault, is_argument, leaves, short
from .survey import Census, Survey
from .well_formed import MAP_TYPE, graph_faults, is_formal, meta_faults, node_faults

__all__ = ["check_defined", "check_earlier", "check_keywords", "check_kinds", "check_meta", "check_structure", "check_unique"]

FIELDS: tuple[tuple[str, type], ...] = (
    ("graphs", MAP_TYPE), ("root", str), ("state", State), ("signature", Signature), ("modules", tuple),
    ("call_signatures", MAP_TYPE), ("constraints", Constraints), ("facts", frozenset), ("trail", tuple),
)  # fmt: skip
"""The fields of a program and their types."""


def check_structure(survey: Survey) -> Iterator[Finding]:
    """Find every field of the program, its graphs and its nodes that has a wrong type."""
    yield from _program_faults(survey.program)
    yield from survey.table_faults
    for census in survey.suspects:
        graph = census.graph
        for fault in graph_faults(graph):
            yield Finding(fault, census.name)
        for number, formal in enumerate(graph.inputs if type(graph.inputs) is tuple else ()):
            if not is_formal(formal):
                yield Finding(f"input {number} is {short(formal)}, not an Input with a name", census.name, INPUTS)
        for index, node in enumerate(graph.nodes if type(graph.nodes) is tuple else ()):
            for fault in node_faults(node):
                name: Any = getattr(node, "name", None)
                yield Finding(fault, census.name, index, name if type(name) is str else f"node {index}")


def _program_faults(program: Program) -> Iterator[Finding]:
    for name, kind in FIELDS:
        value: Any = getattr(program, name)
        if type(value) is not kind:
            yield Finding(f"program.{name} is {short(value)}, not a {kind.__name__}")
    for name, kind in (("modules", Module), ("trail", Step)):
        for number, value in enumerate(_tuple(getattr(program, name))):
            if type(value) is not kind:
                yield Finding(f"program.{name}[{number}] is {short(value)}, not a {kind.__name__}")
    calls: Any = program.call_signatures
    for frame, signature in dict(calls.items()).items() if type(calls) is MAP_TYPE else ():
        if type(frame) is not Frame or type(signature) is not CallSignature:
            yield Finding(f"program.call_signatures has {short(frame)} with {short(signature)}, not a Frame with a CallSignature")


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else ()


def check_meta(survey: Survey) -> Iterator[Finding]:
    """Find meta that is not a mapping, has keys that are not strings, an absurd value or an unreadable stack trace."""
    for census in survey.suspects:
        for formal in survey.inputs_of(census):
            for fault in meta_faults(formal.meta):
                yield Finding(f"input {formal.name}: {fault}", census.name, INPUTS, formal.name)
        for index, node in survey.nodes_of(census):
            for fault in meta_faults(node.meta):
                yield Finding(fault, census.name, index, node.name)


def check_kinds(survey: Survey) -> Iterator[Finding]:
    """Find arguments of kinds that no argument can have, and bodies among what a graph returns."""
    for census in survey.suspects:
        for index, node in survey.nodes_of(census):
            for value in (*node.args, *(value for _, value in node.kwargs)):
                if (fault := depth_fault(value)) is not None:
                    yield Finding(f"among its arguments is {short(value)}: {fault}", census.name, index, node.name)
                for leaf in leaves(value):
                    if not is_argument(leaf):
                        yield Finding(f"among its arguments is {short(leaf)}", census.name, index, node.name)
        if (fault := depth_fault(census.graph.output)) is not None:
            yield Finding(f"what the graph returns: {fault}", census.name, len(survey.nodes_of(census)), "output")
        for leaf in leaves(census.graph.output):
            if type(leaf) is Body or not is_argument(leaf):
                end = len(survey.nodes_of(census))
                yield Finding(f"among what the graph returns is {short(leaf)}", census.name, end, "output")


def check_keywords(survey: Survey) -> Iterator[Finding]:
    """Find keywords that are not strings or that come twice."""
    for census in survey.suspects:
        for index, node in survey.nodes_of(census):
            seen: set[str] = set()
            for key, _ in node.kwargs:
                if type(key) is not str:
                    yield Finding(f"it has the keyword {short(key)}, not a string", census.name, index, node.name)
                elif key in seen:
                    yield Finding(f"it has the keyword {key!r} twice", census.name, index, node.name)
                else:
                    seen.add(key)


def check_unique(survey: Survey) -> Iterator[Finding]:
    """Find names that a second input or node of a graph takes."""
    for census in survey.suspects:
        taken: dict[str, str] = {}
        for number, formal in enumerate(survey.inputs_of(census)):
            if formal.name in taken:
                text = f"the name {formal.name!r} is taken already by {taken[formal.name]}"
                yield Finding(text, census.name, INPUTS, formal.name)
            taken.setdefault(formal.name, f"input {number}")
        for index, node in survey.nodes_of(census):
            if node.name in taken:
                yield Finding(f"the name {node.name!r} is taken already by {taken[node.name]}", census.name, index, node.name)
            taken.setdefault(node.name, f"node {index}")


def check_defined(survey: Survey) -> Iterator[Finding]:
    """Find references to values that their graph does not define at all."""
    for census in survey.suspects:
        if type(census.graph.nodes) is not tuple:
            continue  # which values there are is not known
        defined = _definitions(survey, census)
        for name, index, user in _uses(survey, census):
            if name not in defined:
                yield Finding(f"it uses {name!r}, which its graph does not define", census.name, index, user)


def check_earlier(survey: Survey) -> Iterator[Finding]:
    """Find references to values that their graph defines at or after the use."""
    for census in survey.suspects:
        defined = _definitions(survey, census)
        for name, index, user in _uses(survey, census):
            if defined.get(name, INPUTS) == index:
                yield Finding(f"it uses {name!r}, its own result", census.name, index, user)
            elif defined.get(name, INPUTS) > index:
                yield Finding(f"it uses {name!r}, which is defined {defined[name] - index} nodes later", census.name, index, user)


def _definitions(survey: Survey, census: Census) -> dict[str, int]:
    # Malformed nodes count too: their users are not to blame.
    defined: dict[str, int] = {formal.name: INPUTS for formal in survey.inputs_of(census)}
    nodes: Any = census.graph.nodes
    for index, node in enumerate(nodes if type(nodes) is tuple else ()):
        name = getattr(node, "name", None)
        if type(name) is str:
            defined.setdefault(name, index)
    return defined


def _uses(survey: Survey, census: Census) -> Iterator[tuple[str, int, str | None]]:
    for index, node in survey.nodes_of(census):
        for part in (node.args, *(value for _, value in node.kwargs)):
            for leaf in leaves(part):
                if type(leaf) is Ref and type(leaf.name) is str:
                    yield leaf.name, index, node.name
    nodes: Any = census.graph.nodes
    for leaf in leaves(census.graph.output):
        if type(leaf) is Ref and type(leaf.name) is str:
            yield leaf.name, len(nodes) if type(nodes) is tuple else 0, "output"
