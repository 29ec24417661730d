"""The rule that runs operators again on fake values: meta has what they return, in every call of a shared body.

Checked by ``verify(infer=True)`` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..errors import PurefxError
from ..graph import Graph, Input
from ..inference import UNKNOWN, ExampleValues, Interpreter, Run, disagreement_of_branches, shown_value
from ..torch_private import device_of
from .findings import INPUTS, Finding
from .survey import Survey

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
"""The errors of operators whose arguments are wrong; assertions are torch's own."""


def check_inferred(survey: Survey) -> Iterator[Finding]:
    """Find nodes whose operator, or a branch of it, returns something else than their meta has, or refuses its arguments."""
    values = ExampleValues(survey.program)
    work = Interpreter(survey.program, lenient=True, values=values)
    work.walk()
    found: dict[tuple[str, str], Finding] = {}
    for name, census in survey.censuses.items():
        graph = census.graph
        for run in work.runs.get(name, ()):
            for place, text in _differences(run, graph, values, is_shared=name in work.shared):
                value = (*graph.inputs, *graph.nodes)[place]
                finding = Finding(text, name, max(INPUTS, place - len(graph.inputs)), value.name)
                found.setdefault((name, value.name), finding)
        for index, node in census.nodes:
            error = work.refusals.get((name, node.name))
            if isinstance(error, REFUSALS) and not isinstance(error, PurefxError):
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                found[name, node.name] = census.at(index, f"its operator refuses its arguments: {reason[:200]}")
        for index in dict.fromkeys([index for index, _ in census.bodies]):
            difference = disagreement_of_branches(graph.nodes[index], survey.program.graphs)
            if difference is not None:
                found[name, graph.nodes[index].name] = census.at(index, difference)
    yield from found.values()


def _differences(run: Run, graph: Graph, values: ExampleValues, *, is_shared: bool) -> Iterator[tuple[int, str]]:
    # The values that differ from the meta, without those that follow from another one.
    wrong: set[str] = set()
    for place, (now, was) in enumerate(zip((*run.inputs, *run.nodes), (*graph.inputs, *graph.nodes), strict=True)):
        if now is was or "val" not in was.meta or "val" not in now.meta:
            continue
        recorded = values.recorded(was)
        if recorded is UNKNOWN or _facts(now.meta["val"]) == _facts(recorded):
            continue
        if isinstance(now, Input) or wrong.isdisjoint(now.refs()):
            source = "a call passes" if isinstance(now, Input) else "its operator returns"
            text = f"its meta has {shown_value(was.meta['val'])}, but {source} {shown_value(now.meta['val'])}"
            yield place, f"{text} (calls of other sizes share the body)" if is_shared else text
        wrong.add(now.name)


def _facts(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_facts(part) for part in value]
    if isinstance(value, torch.Tensor):
        return value.dtype, device_of(value).type, *value.shape  # "cuda" is the current device, whichever that is
    return (type(value), value) if type(value) in (int, bool) else type(value)  # floats are rounded
