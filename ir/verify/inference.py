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
from ..inference import CallValues, disagreement_of_branches, running
from ..inference.walk import Called
from ..tensors import geometry, value_in
from ..torch_private import FakeTensorMode, OpOverload, device_of, is_refusal, pytree, size_number
from .findings import INPUTS, Finding
from .survey import Census, Survey


def check_calls(survey: Survey, silent: Collection[str]) -> Iterator[Finding]:
    """Find values in shared bodies that are others in one of the calls.

    Args:
        survey: the program.
        silent: graphs whose values cannot be inferred.
    """
    values = CallValues(survey.program)
    try:
        root = values.root
    except Exception:  # noqa: BLE001  a program that other rules find fault with need not have values
        return
    seen: set[tuple[str, str]] = set()
    for call in [] if root is None else _calls(root):
        if call.graph not in silent and call.graph in values.shared:
            yield from _differing(call, seen)


def _calls(root: Called) -> list[Called]:
    found = {id(root): root}
    todo = [root]
    while todo:
        for called in [called for inner in todo.pop().inner.values() for called in inner]:
            if id(called) not in found:
                found[id(called)] = called
                todo.append(called)
    return list(found.values())


def _differing(call: Called, seen: set[tuple[str, str]]) -> Iterator[Finding]:
    source = call.source
    moved: set[str] = set()
    for place, (now, was) in enumerate(zip((*call.inputs, *call.nodes), (*source.inputs, *source.nodes), strict=True)):
        if now is was or "val" not in was.meta:
            continue
        follows = isinstance(now, Node) and not moved.isdisjoint(now.refs())
        moved.add(now.name)
        if "val" in now.meta and not follows and (call.graph, now.name) not in seen:
            seen.add((call.graph, now.name))
            yield Finding(_sentence(now, was), call.graph, max(INPUTS, place - len(source.inputs)), now.name)


def _sentence(now: Node | Input, was: Node | Input) -> str:
    what = f"the input {now.name}" if isinstance(now, Input) else "it"
    said = f"its meta says {shown(was.meta['val'])}"
    return f"calls of other sizes share the body: {said}, and in one of them {what} is {shown(now.meta['val'])}"


def shown(value: Any) -> str:
    """Return a value in words.

    >>> shown(3), shown((1, 2))
    ('the int 3', '2 values')
    """
    if isinstance(value, torch.Tensor):
        return geometry(value)
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    return f"the {type(value).__name__} {value}"


NUMBERS = frozenset({int, bool})
"""Types of results that are compared exactly; floats are not, they are rounded."""


REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
"""What operators raise that are given what they do not take; assertions are torch's own."""


class Unknown(Exception):
    """A value, or a number in it, is not known before the program runs."""


def check_inferred(survey: Survey) -> Iterator[Finding]:
    """Find nodes whose operator, or a branch of it, returns something else than their meta says, or refuses its arguments."""
    silent = _under_autocast(survey)
    inference = _Inference()
    with running(inference.mode):
        found = [inference.graph(census) for name, census in survey.censuses.items() if name not in silent]
    for findings in found:
        yield from findings
    yield from check_calls(survey, silent)
    yield from _check_branches(survey, silent)


def _check_branches(survey: Survey, silent: Collection[str]) -> Iterator[Finding]:
    # Operators of which a branch gives something else than another one, or than they do.
    for name, census in survey.censuses.items():
        for index in dict.fromkeys([index for index, _ in census.bodies]) if name not in silent else ():
            difference = disagreement_of_branches(census.graph.nodes[index], survey.program.graphs)
            if difference is not None:
                yield census.at(index, difference)


def _under_autocast(survey: Survey) -> set[str]:
    # Whatever is reached from a body that runs under autocast, even if it is called elsewhere too.
    found: set[str] = set()
    todo: list[str] = []
    for census in survey.censuses.values():
        for index, callee in census.bodies:
            do = census.graph.nodes[index].do
            if type(do) is Op and "autocast" in do.name:
                todo.append(callee)
    if any("autocast" in op.name and not op.effects.through_bodies for op, _, _ in survey.ops.values()):
        return set(survey.censuses)  # switched on and off by nodes: it holds from there on, wherever that leads
    while todo:
        name = todo.pop()
        if name not in found and name in survey.censuses:
            found.add(name)
            todo.extend(callee for _, callee in survey.censuses[name].callees)
    return found


class _Inference:
    """Runs operators on fake values at the sizes of the export; values that several operators take are made once."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode()
        self.twins: dict[int, Any] = {}

    def graph(self, census: Census) -> list[Finding]:
        """Return what is wrong in one graph."""
        found: list[Finding] = []
        known = {formal.name: value_in(formal.meta) for formal in census.graph.inputs}
        for index, node in census.nodes:
            known[node.name] = value_in(node.meta)
            if type(node.do) is not Op or not _is_inferable(node.do):
                continue
            try:
                difference = self.difference(node, node.do, known)
            except Exception:  # noqa: BLE001, S112  no fake kernel, a size that depends on data: not inferable
                continue
            if difference is not None:
                found.append(census.at(index, difference))
        return found

    def difference(self, node: Node, op: Op, known: dict[str, Any]) -> str | None:
        """Return how the meta of a node and the result of its operator differ, or None."""
        target: Any = op.target
        changes = isinstance(target, OpOverload) and bool(op.effects.writes)

        def leaf(arg: Arg) -> Any:
            value = known.get(arg.name) if type(arg) is Ref else arg
            if type(arg) is Body or (type(arg) is Ref and value is None):
                raise Unknown(arg)
            return pytree.tree_map(lambda part: self.twin(part, fresh=changes), value) if type(arg) is Ref else value

        args = [thawed(arg, leaf) for arg in node.args]
        kwargs = {key: thawed(value, leaf) for key, value in node.kwargs}
        if too_much_work(target, args) is not None:
            raise Unknown(node.name)
        try:
            result = target(*args, **kwargs)
        except REFUSALS as error:
            if is_refusal(error):
                raise
            said = (str(error).splitlines() or [type(error).__name__])[0]
            return f"its operator refuses its arguments: {said[:200]}"
        if changes and torch.Tag.inplace_view in target.tags and node.args and type(node.args[0]) is Ref:
            known[node.args[0].name] = None  # has another shape from here on, under its old name
        return self.compared(result, known[node.name])

    def twin(self, value: Any, *, fresh: bool) -> Any:
        """Return a value at the sizes of the export; a fresh one for an operator that may change it."""
        if isinstance(value, SYMBOLIC):
            return _number(value)
        if not isinstance(value, torch.Tensor):
            return value
        twin = self.twins.get(id(value)) if not fresh else None
        if twin is None:
            if value.layout is not torch.strided or value.is_quantized:
                raise Unknown(value)
            sizes, strides = ([_number(number) for number in numbers] for numbers in (value.shape, value.stride()))
            twin = torch.empty_strided(sizes, strides, dtype=value.dtype, device=device_of(value))
            if not fresh:
                self.twins[id(value)] = twin
        return twin

    def compared(self, given: Any, said: Any) -> str | None:
        """Return how a result and the value in meta differ, or None."""
        todo = [(given, said)]
        while todo:
            mine, theirs = todo.pop()
            if theirs is None:
                continue
            if isinstance(mine, tuple | list) and isinstance(theirs, tuple | list):
                if len(mine) != len(theirs):
                    return f"its meta says that it gives {len(theirs)} values, but it gives {len(mine)}"
                todo.extend(reversed(list(zip(mine, theirs, strict=True))))
            elif _facts(mine) != _facts(theirs):
                return f"its meta says {_shown(theirs)}, but its operator returns {_shown(mine)}"
        return None


def _is_inferable(op: Op) -> bool:
    if op.effects.ordered or op.effects.unknown or op.effects.through_bodies:
        return False
    target: Any = op.target
    return isinstance(target, OpOverload) or target is operator.getitem or (target is not None and is_scalar_function(target))


def _number(value: Any) -> Any:
    if not isinstance(value, SYMBOLIC):
        return value
    number = size_number(value)
    if number is None:
        raise Unknown(value)
    return number


def _facts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        # "cuda" is the current device, whichever that is
        return (value.dtype, device_of(value).type, *(_number(size) for size in value.shape))
    number = _number(value)
    return (type(number), number) if type(number) in NUMBERS else (type(number),)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} of shape {tuple(value.shape)} on {device_of(value).type}"
    return (
        f"the {type(value).__name__} {value}"
        if type(value) in NUMBERS or isinstance(value, SYMBOLIC)
        else f"a {type(value).__name__}"
    )
