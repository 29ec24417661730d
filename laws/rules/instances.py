"""``Instance``: a pattern traced by torch on some operands; and its near misses.

torch's tracer runs the user's function, as the exporter does, independently of the matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve, field, frozen
from torch.fx.experimental.proxy_tensor import make_fx

from ...ir.arguments import Arg, Items, Ref, same_arg, thawed
from ...ir.graph import Get, Node, Op
from ...ir.importing import import_fx
from ...ir.torch_private import OpOverload, Parameter, parameters_of
from ..tiers import examples_of
from .operands import Assignment, Operand, assignments, leaves_of, only_finite, quiet, ways_of, with_leaves

__all__ = ["Instance", "changed", "instance_of", "instances", "is_drawable", "run_node"]

ATTEMPTS = 2500
"""Attempts to draw operands for a rule."""

GIVEN = 40
"""Operands that are drawn from the user's strategy."""

COARSE = (torch.float16, torch.bfloat16)

IRRELEVANT = ("device", "layout", "memory_format", "pin_memory", "generator", "non_blocking", "copy", "requires_grad")
"""Parameters that patterns ignore."""

OF_NONE: Mapping[str, Any] = {"Optional[int]": 0, "Optional[float]": 0.5, "Optional[number]": 0.5, "Optional[str]": "floor"}
"""The value that replaces None, by the type of the parameter."""

WORDS = (("none", "tanh"), ("floor", "trunc"), ("mean", "sum"), ("reflect", "constant", "replicate"))
"""Alternatives of string arguments."""


@frozen(eq=False)
class Instance:
    """A pattern on operands.

    >>> from .operands import Operand
    >>> found = instance_of(lambda x: torch.relu(x), [Operand(torch.ones(2))], rule="r")
    >>> [node.do.name for node in found.nodes], found
    (['aten.relu.default'], (float32[2]))
    """

    rule: str
    operands: Assignment
    leaves: tuple[tuple[str, Operand], ...]
    """The tensors among the operands, each with the name that the nodes use."""
    nodes: tuple[Node, ...] = field(repr=False)
    results: tuple[str, ...]
    variables: tuple[str, ...] = ()
    from_state: frozenset[str] = frozenset()
    """Tensors that must be read from the state: the rule reads their contents."""
    constants: frozenset[str] = frozenset()
    """Tensors that must be constants: of the pattern, or required by the rule."""

    def __repr__(self) -> str:
        shown = [f"{name}={one!r}" for name, one in zip(self.variables, self.operands, strict=False)]
        return f"({', '.join(shown or map(repr, self.operands))})"

    @property
    def size(self) -> tuple[int, int, int]:
        """The sort key; the simplest instance has the smallest."""
        floats = all(one.value.dtype is torch.float32 for _, one in self.leaves)
        return (not floats, sum(one.value.numel() for _, one in self.leaves), sum(one.value.dim() for _, one in self.leaves))


def instance_of(
    pattern: Callable[..., Any], operands: Assignment, *, rule: str, variables: tuple[str, ...] = ()
) -> Instance | None:
    """Trace a pattern on operands; return None if it raises or does not return tensors.

    Args:
        pattern: the function of the rule.
        operands: the values of its variables.
        rule: the name of the rule.
        variables: their names.
    """
    leaves = [*leaves_of(operands)]

    def computed(*tensors: Any) -> Any:
        return pattern(*with_leaves(operands, tensors))

    try:
        with quiet():
            program = import_fx(make_fx(computed, pre_dispatch=True)(*[one.at(0) for one in leaves]))
    except Exception:  # noqa: BLE001  torch and its tracer raise any exceptions
        return None
    output = program.main.output
    results = tuple([each.name for each in (output if type(output) is tuple else (output,)) if type(each) is Ref])
    names = [formal.name for formal in program.main.inputs]
    held = {node.name: program.state[node.do.slot].value for node in program.main.nodes if type(node.do) is Get}
    is_usable = len(names) == len(leaves) and all(isinstance(value, torch.Tensor) for value in held.values())
    if not results or not is_usable or not all(name in program.main.by_name for name in results):
        return None
    nodes = tuple([node for node in program.main.nodes if node.name not in held])
    constants = [(name, Operand(value.detach(), "held")) for name, value in held.items()]
    named = (*zip(names, leaves, strict=True), *constants)
    return Instance(rule, operands, named, nodes, results, variables, constants=frozenset(held))


def is_drawable(rule: Any) -> bool:
    """Return whether a rule has a pattern that programs can be drawn around.

    >>> import purefx as px
    >>> is_drawable(px.rule(lambda x: torch.relu(x))), is_drawable(px.sink_state)
    (True, False)
    """
    # The function of `at=` has no variables.
    return bool(getattr(rule, "variables", ())) and not getattr(rule, "may_leave", False)


def instances(
    rule: Any, *, number: int, operands: Any = None, finite: bool = False, exact: bool = True
) -> Iterator[Instance | None]:
    """Iterate over distinct instances of the pattern of a rule; None for each failed attempt.

    Args:
        rule: a rule with a pattern.
        number: the seed.
        operands: a strategy of tuples, or a function of ``draw`` that returns one; by default they are searched.
        finite: whether to leave out infinities and NaN.
        exact: whether results are compared bit by bit; otherwise types coarser than single precision are left out.

    >>> import purefx as px
    >>> next(each for each in instances(px.rule(lambda x: torch.relu(x)), number=0) if each)
    (x=int32[2, 1])
    """
    seen: set[tuple[int, str]] = set()
    drawn = _searched(rule, number) if operands is None else _given(rule, operands, number)
    for pattern, found in drawn:
        if found is None:
            yield None
            continue
        is_coarse = not exact and operands is None and any(one.value.dtype in COARSE for one in leaves_of(found))
        if (key := (id(pattern), repr(found))) not in seen and not is_coarse:
            seen.add(key)
            assignment = only_finite(found) if finite else found
            yield instance_of(pattern, assignment, rule=rule.name, variables=rule.variables)


Drawn = Iterator[tuple[Callable[..., Any], Assignment | None]]


def _searched(rule: Any, number: int) -> Drawn:
    # Alternate between the alternatives of a pattern.
    sources = [(function, assignments(way, number=number + place)) for place, (way, function) in enumerate(ways_of(rule))]
    for _, (pattern, source) in zip(range(ATTEMPTS), cycle(sources), strict=False):
        with quiet():
            found = next(source)
        yield pattern, found


def _given(rule: Any, operands: Any, number: int) -> Drawn:
    if not isinstance(operands, st.SearchStrategy):
        operands = st.composite(lambda draw, function: function(draw))(operands)
    with quiet():
        drawn = examples_of(operands, GIVEN, number, longest=GIVEN)
    patterns = [function for _, function in ways_of(rule)]
    for start in range(len(patterns)):  # each pattern in turn, finally each on all drawn operands
        for place, values in enumerate(drawn):
            yield patterns[(start + place) % len(patterns)], _assignment(rule, values)


def _assignment(rule: Any, values: Any) -> Assignment:
    def operand(value: Any) -> Operand:
        return Operand(value.detach(), "given") if isinstance(value, torch.Tensor) else Operand(value)

    def is_list(value: Any) -> bool:
        return isinstance(value, list) and any(isinstance(one, torch.Tensor) for one in value)

    named = [values[name] for name in rule.variables] if isinstance(values, Mapping) else values
    named = named if isinstance(named, tuple | list) else (named,)
    return [[operand(one) for one in each] if is_list(each) else operand(each) for each in named]


def run_node(node: Node, known: Mapping[str, Any]) -> Any:
    """Run an operator on values by name.

    >>> from ...ir.operators import op_of
    >>> run_node(Node("y", op_of(torch.ops.aten.neg.default), (Ref("x"),)), {"x": torch.ones(1)})
    tensor([-1.])
    """
    assert type(node.do) is Op
    assert node.do.target is not None

    def leaf(arg: Arg) -> Any:
        return known[arg.name] if type(arg) is Ref else arg

    args = thawed(node.args, leaf)
    return node.do.target(*args, **{name: thawed(arg, leaf) for name, arg in node.kwargs})


# -- near misses -----------------------------------------------------------------------------------------------------------------


def changed(instance: Instance, place: int) -> Instance | None:
    """Change one literal, or one of several uses of a tensor; return None if the instance has neither.

    Arguments at their defaults are literals too.

    Args:
        instance: a pattern on operands.
        place: selects the change.

    >>> from .operands import Operand
    >>> found = instance_of(lambda x: x.transpose(0, 1), [Operand(torch.ones(2, 2))], rule="r")
    >>> [changed(found, place).nodes[0].args[1:] for place in range(2)]
    [(1, 1), (0, 2)]
    >>> found = instance_of(lambda x: x + x, [Operand(torch.ones(2, 2))], rule="r")
    >>> changed(found, 0).nodes[0].kwargs, len(changed(found, 1).leaves)
    ((('alpha', 2),), 2)
    """
    ways = [*_with_other_literals(instance), *_with_other_operands(instance)]
    return ways[place % len(ways)] if ways else None


def _with_other_literals(instance: Instance) -> Iterator[Instance]:
    for number, node in enumerate(instance.nodes):
        parameters = parameters_of(node.do.target) if type(node.do) is Op and isinstance(node.do.target, OpOverload) else ()
        # Change omitted arguments too: a pass that ignores one is only right for the default.
        given = dict(node.kwargs)
        left_out = [one for one in parameters[len(node.args) :] if one.name in given or one.has_default]
        for position, arg in enumerate(node.args):
            if not same_arg(other := _another(arg), arg):
                yield _with_arg(instance, number, position, other)
        for one in left_out:
            for other in _other_values(one, given.get(one.name, one.default)):
                yield _with_node(instance, number, evolve(node, kwargs=tuple({**given, one.name: other}.items())))


def _other_values(parameter: Parameter, value: Any) -> list[Arg]:
    if parameter.name in IRRELEVANT or "Tensor" in parameter.kind:
        return []
    if parameter.name == "dtype":
        return [torch.float64]
    if isinstance(value, str):
        return [other for group in WORDS if value in group for other in group if other != value]
    other = OF_NONE.get(parameter.kind) if value is None else _another(value)
    return [] if same_arg(other, value) else [other]


def _with_other_operands(instance: Instance) -> Iterator[Instance]:
    # Replace the last of several uses of a tensor by another tensor with the same type.
    for name, operand in instance.leaves:
        uses = [
            (number, position)
            for number, node in enumerate(instance.nodes)
            for position, arg in enumerate(node.args)
            if type(arg) is Ref and arg.name == name
        ]
        if len(uses) > 1:
            found = _with_arg(instance, *uses[-1], Ref(f"{name}_other"))
            yield evolve(found, leaves=(*instance.leaves, (f"{name}_other", operand)))


def _with_arg(instance: Instance, number: int, position: int, arg: Arg) -> Instance:
    node = instance.nodes[number]
    return _with_node(instance, number, evolve(node, args=(*node.args[:position], arg, *node.args[position + 1 :])))


def _with_node(instance: Instance, number: int, node: Node) -> Instance:
    return evolve(instance, nodes=(*instance.nodes[:number], node, *instance.nodes[number + 1 :]))


def _another(arg: Arg) -> Arg:
    match arg:
        case bool():
            return not arg
        case int():
            return arg + 1
        case float():
            return arg * 2 + 1
        case Items() if arg and all(type(one) is int for one in arg):
            return Items([*arg[:-1], arg[-1] + 1])  # type: ignore[operator]
        case _:
            return arg
