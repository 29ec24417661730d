"""Rules that run operators again on fake values: meta says what the operator returns, in every call of a shared body.

Run by ``verify(infer=True)`` only.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from typing import Any

import torch

from ..analysis.numbers import SYMBOLIC, too_much_work
from ..arguments import Arg, Body, Ref, thawed
from ..effects.registered import is_scalar_function
from ..graph import Input, Node, Op
from ..inference import CallValues, disagreement_of_branches, running, shown_value
from ..inference.walk import Called
from ..tensors import value_in
from ..torch_private import FakeTensorMode, OpOverload, device_of, is_refusal, pytree, size_number
from .findings import INPUTS, Finding
from .survey import Survey

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
"""What operators raise that are given what they do not take; assertions are torch's own."""


class Unknown(Exception):
    """A value, or a number in it, is not known before the program runs."""


def check_inferred(survey: Survey) -> Iterator[Finding]:
    """Find nodes whose operator, or a branch of it, returns something else than their meta says, or refuses its arguments."""
    silent = _under_autocast(survey)
    inference, found = _Inference(), list[Finding]()
    censuses = [census for name, census in survey.censuses.items() if name not in silent]
    with running(inference.mode):
        for census in censuses:
            known = {formal.name: value_in(formal.meta) for formal in census.graph.inputs}
            for index, node in census.nodes:
                known[node.name] = value_in(node.meta)
                difference = inference.difference(node, known)
                if difference is not None:
                    found.append(census.at(index, difference))
    yield from found
    yield from _check_calls(survey, silent)
    for census in censuses:
        for index in dict.fromkeys([index for index, _ in census.bodies]):
            difference = disagreement_of_branches(census.graph.nodes[index], survey.program.graphs)
            if difference is not None:
                yield census.at(index, difference)


def _under_autocast(survey: Survey) -> set[str]:
    # Whatever is reached from a body that runs under autocast, even if it is called elsewhere too.
    if any("autocast" in op.name and not op.effects.through_bodies for op, _, _ in survey.ops.values()):
        return set(survey.censuses)  # switched on and off by nodes: it holds from there on, wherever that leads
    found = {
        callee: None
        for census in survey.censuses.values()
        for index, callee in census.bodies
        if "autocast" in getattr(census.graph.nodes[index].do, "name", "")
    }
    todo = list(found)
    for name in todo:  # grows while it is walked
        todo += [callee for _, callee in survey.censuses[name].callees if callee not in todo]
    return set(todo)


def _check_calls(survey: Survey, silent: Collection[str]) -> Iterator[Finding]:
    # Values in shared bodies that are others in one of the calls.
    values = CallValues(survey.program)
    try:
        root = values.root
    except Exception:  # noqa: BLE001  a program that other rules find fault with need not have values
        return
    seen, met = set[tuple[str, str]](), set[int]()
    calls: list[Called] = [] if root is None else [root]
    for call in calls:  # grows while it is walked
        calls += [called for found in call.inner.values() for called in found] if id(call) not in met else []
        is_met = id(call) in met
        met.add(id(call))
        if is_met or call.graph in silent or call.graph not in values.shared:
            continue
        moved: set[str] = set()
        source = call.source
        for place, (now, was) in enumerate(zip((*call.inputs, *call.nodes), (*source.inputs, *source.nodes), strict=True)):
            if now is was or "val" not in was.meta:
                continue
            follows = type(now) is Node and not moved.isdisjoint(now.refs())
            moved.add(now.name)
            if "val" in now.meta and not follows and (call.graph, now.name) not in seen:
                seen.add((call.graph, now.name))
                what = f"the input {now.name}" if type(now) is Input else "it"
                said = (
                    f"its meta says {shown_value(was.meta['val'])}, and in one of them {what} is {shown_value(now.meta['val'])}"
                )
                text = f"calls of other sizes share the body: {said}"
                yield Finding(text, call.graph, max(INPUTS, place - len(source.inputs)), now.name)


class _Inference:
    """Runs operators on fake values at the sizes of the export; values that several operators take are made once."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode()
        self.twins: dict[int, Any] = {}

    def difference(self, node: Node, known: dict[str, Any]) -> str | None:
        """Return how the meta of a node and the result of its operator differ; None if they agree, or that is not known."""
        if type(node.do) is not Op or not _is_inferable(node.do):
            return None
        try:
            return _compared(self._result(node, node.do, known), known[node.name])
        except REFUSALS as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            return None if is_refusal(error) else f"its operator refuses its arguments: {said[:200]}"
        except Exception:  # noqa: BLE001  no fake kernel, a size that depends on data: not inferable
            return None

    def _result(self, node: Node, op: Op, known: dict[str, Any]) -> Any:
        target: Any = op.target
        changes = isinstance(target, OpOverload) and bool(op.effects.writes)

        def leaf(arg: Arg) -> Any:
            if type(arg) is Body or (type(arg) is Ref and known.get(arg.name) is None):
                raise Unknown(arg)
            return pytree.tree_map(lambda part: self._twin(part, fresh=changes), known[arg.name]) if type(arg) is Ref else arg

        args = [thawed(arg, leaf) for arg in node.args]
        kwargs = {key: thawed(value, leaf) for key, value in node.kwargs}
        if too_much_work(target, args) is not None:
            raise Unknown(node.name)
        result = target(*args, **kwargs)
        if changes and torch.Tag.inplace_view in target.tags and node.args and type(node.args[0]) is Ref:
            known[node.args[0].name] = None  # has another shape from here on, under its old name
        return result

    def _twin(self, value: Any, *, fresh: bool) -> Any:
        # A value at the sizes of the export; a fresh one for an operator that may change it.
        if not isinstance(value, torch.Tensor):
            return _number(value)
        twin = self.twins.get(id(value)) if not fresh else None
        if twin is None:
            if value.layout is not torch.strided or value.is_quantized:
                raise Unknown(value)
            sizes, strides = (list(map(_number, numbers)) for numbers in (value.shape, value.stride()))
            twin = torch.empty_strided(sizes, strides, dtype=value.dtype, device=device_of(value))
            if not fresh:
                self.twins[id(value)] = twin
        return twin


def _compared(mine: Any, theirs: Any) -> str | None:
    # How a result and the value in meta differ.
    if theirs is None:
        return None
    if isinstance(mine, tuple | list) and isinstance(theirs, tuple | list):
        if len(mine) != len(theirs):
            return f"its meta says that it gives {len(theirs)} values, but it gives {len(mine)}"
        return next((fault for pair in zip(mine, theirs, strict=True) if (fault := _compared(*pair)) is not None), None)
    if _facts(mine) == _facts(theirs):
        return None
    return f"its meta says {shown_value(theirs)}, but its operator returns {shown_value(mine)}"


def _is_inferable(op: Op) -> bool:
    if op.effects.ordered or op.effects.unknown or op.effects.through_bodies:
        return False
    target: Any = op.target
    return isinstance(target, OpOverload) or target is operator.getitem or (target is not None and is_scalar_function(target))


def _number(value: Any) -> Any:
    number = size_number(value) if isinstance(value, SYMBOLIC) else value
    if number is None and value is not None:
        raise Unknown(value)
    return number


def _facts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        # "cuda" is the current device, whichever that is
        return (value.dtype, device_of(value).type, *map(_number, value.shape))
    number = _number(value)  # floats are not compared: they are rounded
    return (type(number), number) if type(number) in (int, bool) else (type(number),)
