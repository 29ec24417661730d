"""Read a joint forward and backward graph of AOTAutograd as a flat program, whose descriptors give the roles of its values.

Parameters and buffers are the tensors of a module, shared; gradients and new contents of state are outputs with these roles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.fx
from attrs import frozen

from ..arguments import Arg, Items
from ..calls.argument_tree import ArgumentTree
from ..errors import UnsupportedProgram
from ..graph import Get, Graph, Input
from ..names import Names
from ..operators import Declared
from ..persistent import pmap
from ..program import Program
from ..signature import (
    InputGradient,
    InputMutation,
    InputSpec,
    LiteralType,
    OutputSpec,
    Signature,
    StateGradient,
    StateInput,
    StateMutation,
    Token,
    UserInput,
    UserOutput,
)
from ..state import Slot, SlotKind, State
from ..tensors import TensorIds
from ..torch_private import pytree
from .constraints import type_of
from .traced import Attributes, TracedFront


@frozen
class Described:
    """The inputs and outputs of a graph, each with its descriptor from the tracer, or None where it is unused."""

    inputs: tuple[tuple[torch.fx.Node, Any], ...]
    outputs: tuple[tuple[Any, Any], ...]

    @property
    def is_joint(self) -> bool:
        """Whether there are gradients among the outputs."""
        return any(kind(desc) == "GradAOTOutput" for _, desc in self.outputs)


def described(graph: torch.fx.Graph) -> Described | None:
    """Return the inputs and outputs of a graph with their descriptors; None if it has none.

    Args:
        graph: from any tracer.

    >>> described(torch.fx.symbolic_trace(torch.nn.ReLU()).graph) is None
    True
    """
    formals = [node for node in graph.nodes if node.op == "placeholder"]
    output = next((node for node in reversed(graph.nodes) if node.op == "output"), None)
    descs = output.meta.get("desc") if output is not None else None
    if output is None or not isinstance(descs, list | tuple) or not all("desc" in node.meta for node in formals):
        return None
    results = output.args[0]
    if not isinstance(results, list | tuple) or len(results) != len(descs):
        return None
    return Described(tuple([(node, node.meta["desc"]) for node in formals]), tuple(zip(results, descs, strict=True)))


def kind(desc: Any) -> str:
    """Return the name of the class of a descriptor.

    >>> kind(None)
    'NoneType'
    """
    return type(desc).__name__


SHARED = "several arguments, parameters or buffers share memory, and one of them is mutated; clone each of them"

WRITTEN = "a tensor that is mutated in place requires a gradient; mutate a clone of it"

REFUSED: Mapping[str, str] = {
    "ViewBase": SHARED,
    "SyntheticBase": SHARED,
    "IntermediateBase": "several results are views of one tensor, which the graph returns in their place; return clones",
}
"""Fault and advice for descriptors that cannot be inputs or outputs of a program, by the prefix of their class."""


def refusal(desc: Any, what: str, *, named: Callable[[str], str] = str, fault: str = "") -> UnsupportedProgram:
    """Return the error for an input or output that has no role.

    Args:
        desc: its descriptor.
        what: the input or output, for the message.
        named: maps the name of a parameter or buffer in a descriptor to the user's name.
        fault: the reason, if its kind does not determine it.

    >>> print(refusal(7, "input 0"))
    input 0 is described as int, which has no role in a program
    """
    fault = fault or next((text for start, text in REFUSED.items() if kind(desc).startswith(start)), "")
    if not fault:
        return UnsupportedProgram(f"{what} is described as {kind(desc)}, which has no role in a program")
    text = re.sub(r"get_(parameter|buffer)\('([^']*)'\)", lambda found: f"get_{found[1]}({named(found[2])!r})", desc.expr())
    return UnsupportedProgram(f"{what} is {text}: {fault}")


TENSOR: Any = object()
"""A leaf that is a tensor, where other leaves are literals."""


@frozen
class Convention:
    """The calling convention of the traced module: each leaf is a literal or ``TENSOR``."""

    in_spec: Any
    """The pytree of ``(args, kwargs)``."""
    names: tuple[str, ...]
    """The names of the positional arguments, as far as they are known."""
    leaves: tuple[Any, ...]
    out_spec: Any
    results: tuple[Any, ...]

    @classmethod
    def flat(cls, found: Described) -> Convention:
        """Return the convention of a graph with descriptors alone: all arguments and results are flat.

        Args:
            found: the inputs and outputs of the graph.
        """
        leaves = (TENSOR,) * sum(kind(desc) == "PlainAOTInput" for _, desc in found.inputs)
        results = (TENSOR,) * sum(kind(desc) == "PlainAOTOutput" for _, desc in found.outputs)
        structure = pytree.tree_structure
        return cls(structure(((0,) * len(leaves), {})), (), leaves, structure((0,) * len(results)), results)


def read_joint(
    module: torch.fx.GraphModule,
    found: Described,
    source: torch.nn.Module | Mapping[str, torch.Tensor],
    convention: Convention,
    declared: Declared,
    *,
    named: Callable[[str], str] = str,
) -> Program:
    """Return the program of a graph with descriptors.

    Args:
        module: the graph; it is not changed.
        found: its inputs and outputs.
        source: has the tensors of parameters and buffers.
        convention: how to call the program.
        declared: the declared effects of operators of other libraries.
        named: maps the name of a parameter or buffer in a descriptor to that in the source.

    Raises:
        UnsupportedProgram: an input or output has no role in a signature; the message names it.
    """
    reader = TracedFront(module, {}, declared)
    attributes = Attributes(source) if isinstance(source, torch.nn.Module) else None
    own = _state_of(source) if attributes is None else attributes.state()
    state = _with_constants(own, reader.attributes.state())
    roles = _Roles(found, convention, state, named)
    root, signature = roles.applied(reader.graphs[""])
    reader.graphs[""] = root
    reads = any(type(node.do) is Get for node in root.nodes)
    return Program(
        graphs=pmap(reader.graphs),
        state=state,
        signature=signature,
        modules=(attributes or reader.attributes).hierarchy(reader.stacks.types),
        facts=frozenset({"flat"} if reads else {"flat", "state as inputs"}),
    )


def _state_of(tensors: Any) -> State:
    numbers = TensorIds()
    slots: dict[str, Slot] = {}
    for name, value in tensors.items():
        is_parameter = isinstance(value, torch.nn.Parameter)
        slots[name] = numbers.slot(value, SlotKind.PARAMETER if is_parameter else SlotKind.BUFFER, persistent=True)
    return State(tuple(slots), pmap(slots))


def _with_constants(state: State, constants: State) -> State:
    # The graph reads these itself: tensors that are not parameters or buffers of the module.
    numbers = TensorIds(state)
    if twice := [name for name in constants if name in state]:
        raise UnsupportedProgram(
            f"the graph reads a constant {twice[0]!r}, and the module has other state of that name; rename it"
        )
    added = {name: numbers.slot(slot.value, SlotKind.CONSTANT, persistent=False) for name, slot in constants.pairs}
    return State((*state.order, *added), pmap({**state.slots, **added}))


@frozen(eq=False)
class _Roles:
    """Finds the roles of the inputs and outputs of one graph."""

    found: Described
    convention: Convention
    state: State
    named: Callable[[str], str]

    @cached_property
    def leaf_of(self) -> Mapping[int, int]:
        """Maps the index of a tensor among the tensor arguments to that among all arguments."""
        return _tensors_among(self.convention.leaves)

    @cached_property
    def result_of(self) -> Mapping[int, int]:
        """Likewise for results."""
        return _tensors_among(self.convention.results)

    def applied(self, graph: Graph) -> tuple[Graph, Signature]:
        """Return the graph, with its inputs in the order state, arguments, tangents, and its signature."""
        state: list[tuple[Input, InputSpec]] = []
        users: dict[int, Input] = {}
        tangents: list[tuple[int, Input]] = []
        for number, (formal, (_, desc)) in enumerate(zip(graph.inputs, self.found.inputs, strict=True)):
            place = f"input {number} ({formal.name})"
            match kind(desc):
                case "ParamAOTInput" | "BufferAOTInput":
                    state.append((formal, StateInput(self.slot(desc, place))))
                case "ForwardTokenAOTInput" | "BackwardTokenAOTInput":
                    state.append((formal, Token()))
                case "PlainAOTInput" if desc.idx in self.leaf_of:
                    users[self.leaf_of[desc.idx]] = formal
                case "TangentAOTInput":
                    tangents.append((self.tangent(desc, place), formal))
                case _:
                    raise refusal(desc, place, named=self.named)
        in_spec = self.in_spec(len(tangents))
        pairs = [*state, *self.user_inputs(graph, users, sorted(tangents, key=lambda pair: pair[0]), in_spec)]
        output, outputs = self.outputs(graph.output, len(state))
        out_spec = self.convention.out_spec
        if self.found.is_joint:
            gradients = sum(type(spec) in (StateGradient, InputGradient) for spec in outputs)
            out_spec = pytree.TreeSpec(tuple, None, [out_spec, pytree.tree_structure((0,) * gradients)])
        signature = Signature(tuple([spec for _, spec in pairs]), outputs, in_spec, out_spec, self.convention.names)
        return Graph(tuple([formal for formal, _ in pairs]), graph.nodes, output), signature

    def slot(self, desc: Any, place: str) -> str:
        """Return the slot that a descriptor of a parameter or buffer names."""
        name = self.named(desc.target)
        if name not in self.state:
            raise UnsupportedProgram(f"{place} is {name!r}, but `state` has no tensor of that name; pass the traced module")
        return name

    def tangent(self, desc: Any, place: str) -> int:
        """Return the number of the user output that an input is the tangent of."""
        output = desc.output
        if kind(output) == "InputMutationAOTOutput":
            raise refusal(desc, place, named=self.named, fault=WRITTEN)
        if kind(output) != "PlainAOTOutput" or output.idx not in self.result_of:
            raise refusal(output, f"{place} is the tangent of an output which", named=self.named)
        return self.result_of[output.idx]

    def in_spec(self, tangents: int) -> Any:
        """Return the pytree of the arguments, with any tangents as a keyword argument."""
        if not tangents:
            return self.convention.in_spec
        args, kwargs = self.convention.in_spec.children()
        specs: dict[str, Any] = dict(zip(kwargs.context or (), kwargs.children(), strict=True))
        specs["tangents"] = pytree.tree_structure((0,) * tangents)
        keywords = pytree.TreeSpec(dict, list(specs), list(specs.values()))
        return pytree.TreeSpec(tuple, None, [args, keywords])

    def user_inputs(
        self, graph: Graph, users: Mapping[int, Input], tangents: Sequence[tuple[int, Input]], in_spec: Any
    ) -> list[tuple[Input, InputSpec]]:
        """Return the arguments, literals included, and the tangents."""
        paths = ArgumentTree.of(in_spec, self.convention.names).paths
        names = Names([formal.name for formal in graph.inputs] + [node.name for node in graph.nodes])
        pairs: list[tuple[Input, InputSpec]] = []
        for number, (leaf, path) in enumerate(zip(self.convention.leaves, paths, strict=False)):
            formal = users.get(number)
            leaf_type = LiteralType(leaf) if formal is None else type_of(formal.meta.get("val"))
            pairs.append((formal or Input(names.fresh(f"arg_{number}")), UserInput(leaf_type, path)))
        behind = zip(tangents, paths[len(pairs) :], strict=True)
        return pairs + [(one, UserInput(type_of(one.meta.get("val")), path, tangent_of=of)) for (of, one), path in behind]

    def outputs(self, output: Arg, before: int) -> tuple[tuple[Arg, ...], tuple[OutputSpec, ...]]:
        """Return the outputs of the graph and their roles: new contents, results (literals included), gradients.

        Args:
            output: the output of the graph.
            before: the number of inputs before the arguments.
        """
        assert isinstance(output, tuple | Items)
        written: list[tuple[Arg, OutputSpec]] = []
        results: dict[int, Arg] = {}
        gradients: list[tuple[Arg, OutputSpec]] = []
        for number, (arg, (_, desc)) in enumerate(zip(output, self.found.outputs, strict=True)):
            place = f"output {number}"
            match kind(desc):
                case "PlainAOTOutput" if desc.idx in self.result_of:
                    results[self.result_of[desc.idx]] = arg
                case "InputMutationAOTOutput":
                    target = self.target(desc.mutated_input, f"{place} is the new contents of an input which")
                    written.append((arg, StateMutation(target) if type(target) is str else InputMutation(before + int(target))))
                case "ForwardTokenAOTOutput" | "BackwardTokenAOTOutput":
                    written.append((arg, Token()))
                case "GradAOTOutput":
                    target = self.target(desc.grad_of, f"{place} is the gradient to an input which")
                    gradients.append((arg, StateGradient(target) if type(target) is str else InputGradient(int(target))))
                case "NoneType" if arg is None:
                    pass  # the input requires no gradient
                case _:
                    raise refusal(desc, place, named=self.named)
        returned: list[tuple[Arg, OutputSpec]] = [
            (results[number] if leaf is TENSOR else leaf, UserOutput()) for number, leaf in enumerate(self.convention.results)
        ]
        pairs = [*written, *returned, *gradients]
        return tuple([arg for arg, _ in pairs]), tuple([spec for _, spec in pairs])

    def target(self, desc: Any, place: str) -> str | int:
        """Return the slot of a parameter or buffer, or the index of an argument, to which an output belongs."""
        match kind(desc):
            case "ParamAOTInput" | "BufferAOTInput":
                return self.slot(desc, place)
            case "PlainAOTInput" if desc.idx in self.leaf_of:
                return self.leaf_of[desc.idx]
            case _:
                raise refusal(desc, place, named=self.named)


def _tensors_among(leaves: tuple[Any, ...]) -> Mapping[int, int]:
    return dict(enumerate([number for number, leaf in enumerate(leaves) if leaf is TENSOR]))
