"""``Instance``: the nodes that a pattern is on some operands, as torch traces them; and the same with one thing changed.

The function that a rule was written as runs under torch's own tracer, as the exporter would run it; so what the rule takes its
operators to be is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch.fx.experimental.proxy_tensor import make_fx

from ...ir.arguments import Arg, Items, Ref, same_arg, thawed
from ...ir.graph import Get, Node, Op
from ...ir.importing import import_fx
from ...ir.torch_private import OpOverload, Parameter, parameters_of
from .operands import Assignment, Operand, leaves_of, quiet, with_leaves

__all__ = ["Instance", "changed", "instance_of", "run_node"]

OF_NO_RESULT = frozenset(
    {"device", "layout", "memory_format", "pin_memory", "generator", "non_blocking", "copy", "requires_grad"}
)
"""Parameters that no pattern is about."""

OF_NONE: Mapping[str, Any] = {"Optional[int]": 0, "Optional[float]": 0.5, "Optional[number]": 0.5, "Optional[str]": "floor"}
"""What stands for None in the place of an argument, by the type of the parameter."""

WORDS = (("none", "tanh"), ("floor", "trunc"), ("mean", "sum"), ("reflect", "constant", "replicate"))
"""Words that operators choose among."""


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
    """What the pattern gives: mostly one value."""
    variables: tuple[str, ...] = ()
    from_state: frozenset[str] = frozenset()
    """The tensors that have to be read from the state: the rule asks what is in them."""
    constants: frozenset[str] = frozenset()
    """The tensors that have to be constants: those that stand in the pattern, or the rule asks what is always in them."""

    def __repr__(self) -> str:
        shown = [f"{name}={one!r}" for name, one in zip(self.variables, self.operands, strict=False)]
        return f"({', '.join(shown or map(repr, self.operands))})"

    @property
    def size(self) -> tuple[int, int, int]:
        """What the simplest one has least of."""
        floats = all(one.value.dtype is torch.float32 for _, one in self.leaves)
        return (not floats, sum(one.value.numel() for _, one in self.leaves), sum(one.value.dim() for _, one in self.leaves))


def instance_of(
    pattern: Callable[..., Any], operands: Assignment, *, rule: str, variables: tuple[str, ...] = ()
) -> Instance | None:
    """Return what a pattern is on operands; None if it does not run there, or gives no tensor.

    Args:
        pattern: the function that the rule was written as.
        operands: what its variables are.
        rule: the name of the rule.
        variables: their names.
    """
    leaves = [*leaves_of(operands)]
    tensors = [one.at(0) for one in leaves]

    def computed(*tensors: Any) -> Any:
        return pattern(*with_leaves(operands, tensors))

    try:
        with quiet():
            module = make_fx(computed, pre_dispatch=True)(*tensors)
            program = import_fx(module)
    except Exception:  # noqa: BLE001  whatever torch or its tracer have against it
        return None
    output = program.main.output
    results = tuple([each.name for each in (output if type(output) is tuple else (output,)) if type(each) is Ref])
    names = [formal.name for formal in program.main.inputs]
    if not results or not all(name in program.main.by_name for name in results) or len(names) != len(leaves):
        return None
    held = {node.name: program.state[node.do.slot].value for node in program.main.nodes if type(node.do) is Get}
    nodes = tuple([node for node in program.main.nodes if node.name not in held])
    if not all(isinstance(value, torch.Tensor) for value in held.values()):
        return None
    given = [*zip(names, leaves, strict=True), *[(name, Operand(value.detach(), "held")) for name, value in held.items()]]
    return Instance(rule, operands, tuple(given), nodes, results, variables, constants=frozenset(held))


def run_node(node: Node, known: Mapping[str, Any]) -> Any:
    """Return what an operator gives for values by name.

    Raises:
        Exception: whatever the operator raises.

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


def changed(instance: Instance, place: int) -> Instance | None:
    """Return an instance with one literal changed, or another tensor where a variable is used again; None if it has neither.

    Arguments that have their defaults are literals too.

    Args:
        instance: a pattern on operands.
        place: chooses what is changed.

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
    # Arguments that were left out too: a pass that drops one is right as long as all of them have their defaults.
    for number, node in enumerate(instance.nodes):
        for position, arg in enumerate(node.args):
            if not same_arg(other := _another(arg), arg):
                args = (*node.args[:position], other, *node.args[position + 1 :])
                yield _with_node(instance, number, evolve(node, args=args))
        parameters = parameters_of(node.do.target) if type(node.do) is Op and isinstance(node.do.target, OpOverload) else ()
        named = dict(node.kwargs)
        for one in parameters[len(node.args) :]:
            if one.name in named or one.has_default:
                for other in _other_values(one, named.get(one.name, one.default)):
                    kwargs = tuple({**named, one.name: other}.items())
                    yield _with_node(instance, number, evolve(node, kwargs=kwargs))


def _other_values(parameter: Parameter, value: Any) -> Iterator[Arg]:
    if parameter.name in OF_NO_RESULT or "Tensor" in parameter.kind:
        return
    if value is None and parameter.kind in OF_NONE:
        yield OF_NONE[parameter.kind]
    elif parameter.name == "dtype":
        yield torch.float64
    elif isinstance(value, str):
        yield from [other for group in WORDS if value in group for other in group if other != value]
    elif not same_arg(other := _another(value), value):
        yield other


def _with_other_operands(instance: Instance) -> Iterator[Instance]:
    # The last use of a tensor that is used more than once is another tensor like it.
    for name, operand in instance.leaves:
        uses = [
            (number, position)
            for number, node in enumerate(instance.nodes)
            for position, arg in enumerate(node.args)
            if type(arg) is Ref and arg.name == name
        ]
        if len(uses) > 1:
            number, position = uses[-1]
            node, other = instance.nodes[number], f"{name}_other"
            args = (*node.args[:position], Ref(other), *node.args[position + 1 :])
            yield evolve(_with_node(instance, number, evolve(node, args=args)), leaves=(*instance.leaves, (other, operand)))


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
