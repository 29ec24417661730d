"""Rules about types: every value is of the type that it is declared with, and meta can at least be read.

One idea: garbage is found here, once, and every other rule only sees the parts that are well-formed.  Meta is never compared and
never trusted, but transformations read ``val`` and messages read ``stack_trace``.  No name and no meaning is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..node import Frame
from ..program import CallSignature, Module, Program, Step
from ..signature import Constraints, Signature
from ..state import State
from .kinds import short
from .rule import INPUTS, Finding
from .survey import Survey
from .well_formed import MAP_TYPE, graph_faults, is_formal, meta_faults, node_faults

__all__ = ["check_meta", "check_structure"]

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
    """Find meta that is no mapping, has keys that are no strings, an absurd value or an unreadable stack trace."""
    for census in survey.suspects:
        for formal in survey.inputs_of(census):
            for fault in meta_faults(formal.meta):
                yield Finding(f"input {formal.name}: {fault}", census.name, INPUTS, formal.name)
        for index, node in survey.nodes_of(census):
            for fault in meta_faults(node.meta):
                yield Finding(fault, census.name, index, node.name)
