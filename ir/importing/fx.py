"""``import_fx``: any ``torch.fx.GraphModule`` becomes a ``Program``; ``traced.py`` reads its graphs.

Its signature is read from its placeholders and pytrees, or from the descriptors of AOTAutograd, which give the roles of the
inputs and outputs of a joint forward and backward graph.  Fake values come from an example if the graph has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from attrs import evolve, frozen

from ..analysis.history import tracked
from ..arguments import Arg, Items, thawed
from ..callables import bind
from ..calls.argument_tree import ArgumentTree
from ..calls.parts import is_part, part_names
from ..effects.declared import Effects
from ..errors import ArgumentError, InputValueError, InvalidProgram, UnsupportedProgram, Violation
from ..forks import collector_paused
from ..graph import Call, Get, Graph, Input
from ..names import is_identifier, way_to
from ..operators import Declared, checked_declarations
from ..persistent import pmap
from ..program import Program
from ..signature import (
    InputGradient,
    InputMutation,
    InputSpec,
    LiteralType,
    ObjectType,
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
from ..text.arguments import frozen_arg
from ..torch_private import (
    FAKE_REFUSALS,
    TRACING,
    FakeTensorMode,
    PyTreeCodeGen,
    codegen_of,
    fake_copy,
    generator_of_code,
    hooks_of,
    pytree,
)
from ..validation import FX, check_identifiers, kind_of
from ..verify import check
from ..verify.findings import PLAIN, leaves, short
from .constants import with_constants
from .constraints import type_of
from .traced import PRESERVED, Attributes, TracedFront, parameters_of, repacks


def read_traced_signature(
    module: torch.fx.GraphModule, output: Arg
) -> tuple[Signature, tuple[Arg, ...]]:
    """Return the signature of a traced graph module, and the flat output of its root graph.

    Args:
        module: the graph module.
        output: the output of its graph, as it was read.

    Raises:
        InvalidProgram: an argument has an invalid name.
        UnsupportedProgram: code around the graph does more than the graph shows.
    """
    codegen = generator_of_code(module)
    if codegen is None:
        maker = type(codegen_of(module.graph)).__name__
        raise UnsupportedProgram(
            f"{maker} generates the code of this graph, which does more than the graph shows; to import the graph alone, call "
            f"graph.set_codegen(torch.fx.graph.CodeGen()){_REPLAYED.get(maker, '')}"
        )
    for hook in hooks_of(module):
        if getattr(hook, "__module__", None) != TRACING:
            raise UnsupportedProgram(
                "the module has forward hooks, which are not part of the graph; remove them first"
            )
    if repacks(module):
        raise UnsupportedProgram(PRESERVED)
    if "forward" in module.__dict__:
        raise UnsupportedProgram(
            "`forward` is set on the module itself and overrides its graph; delete module.forward first"
        )
    info = codegen.pytree_info if isinstance(codegen, PyTreeCodeGen) else None
    inputs, in_spec, names = _plain_inputs(module) if info is None else _nested_inputs(module, info)
    if info is None:
        found, out_spec = pytree.tree_flatten(thawed(output, _Leaf))
        results = tuple([leaf.arg for leaf in found])
    else:
        results, out_spec = tuple(output) if isinstance(output, tuple) else (output,), info.out_spec
    return Signature(inputs, (UserOutput(),) * len(results), in_spec, out_spec, names), results


_REPLAYED = {
    "_DynamoBytecodeCodeGen": ". Before it, keep inputs = graph_module._dynamo_bytecode_flatten(*args), the inputs of the graph; "
    "after the import, restore_names(program, module, inputs=inputs) turns tensors of the module into state"
}
"""Further advice where Dynamo's bytecode is replayed around a graph."""


def _plain_inputs(
    module: torch.fx.GraphModule,
) -> tuple[tuple[UserInput, ...], Any, tuple[str, ...]]:
    inputs: list[UserInput] = []
    for parameter in parameters_of(module):
        default = [frozen_arg(value) for value in parameter.default]
        if not all(type(leaf) in PLAIN for value in default for leaf in leaves(value)):
            raise UnsupportedProgram(
                f"the default of the argument {parameter.name} is {short(default[0])}, not a literal; pass it in each call"
            )
        literal = LiteralType(default[0]) if default else None
        inputs.append(UserInput(parameter.rest or ObjectType(), parameter.name, literal))
    in_spec = pytree.tree_structure((tuple(range(len(inputs))), {}))
    return tuple(inputs), in_spec, tuple([spec.argument for spec in inputs])


def _nested_inputs(
    module: torch.fx.GraphModule, info: Any
) -> tuple[tuple[UserInput, ...], Any, tuple[str, ...]]:
    in_spec, names = info.in_spec, tuple([name for name in info.orig_args if name != "self"])
    parts = in_spec.children()
    if (
        in_spec.type is tuple
        and list(info.orig_args[:1]) == ["self"]
        and len(parts) == len(info.orig_args)
    ):
        in_spec = pytree.treespec_tuple(
            parts[1:]
        )  # without the module, which symbolic_trace notes first
        parts = in_spec.children()
    if [part.type for part in parts] != [
        tuple,
        dict,
    ] or in_spec.type is not tuple:  # not (args, kwargs)
        in_spec = pytree.treespec_tuple([pytree.treespec_tuple(parts), pytree.treespec_dict()])
    tree = ArgumentTree.of(in_spec, names)
    if not all(map(is_identifier, tree.keyword)):
        raise InvalidProgram(
            [
                Violation(
                    "names",
                    "a keyword argument has an invalid name",
                    advice="pass identifiers of Python",
                )
            ]
        )
    count = sum(fx_node.op == "placeholder" for fx_node in module.graph.nodes)
    if count != in_spec.num_leaves:
        fault = f"its code takes {in_spec.num_leaves} leaves, the graph has {count} placeholders"
        raise InvalidProgram(
            [
                Violation(
                    "signature-leaves",
                    fault,
                    advice="change the pytree of the code with the placeholders",
                )
            ]
        )
    return tuple([UserInput(ObjectType(), path) for path in tree.paths]), in_spec, names


@frozen
class _Leaf:
    """A placeholder for any value in a pytree."""

    arg: Arg


def bound_example(
    module: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Return the value of each placeholder of a graph module in a call.

    Raises:
        InputError: the module does not take these arguments.

    >>> bound_example(torch.fx.symbolic_trace(torch.nn.ReLU()), (), {"input": 3})
    [3]
    """
    codegen = generator_of_code(module)
    if not isinstance(codegen, PyTreeCodeGen):
        return list(bind(parameters_of(module), args, kwargs).values())
    _, in_spec, names = _nested_inputs(module, codegen.pytree_info)
    return list(ArgumentTree.of(in_spec, names).bind(args, kwargs))


def example_values(module: torch.fx.GraphModule, inputs: Any) -> Mapping[Any, Any]:
    """Return the fake value of each node of a graph module.

    Args:
        module: the graph module; it is not changed.
        inputs: the arguments of an example call: a tuple, or a dict of them by name.

    Raises:
        InputValueError: the graph does not run on the example; the message names the node.

    >>> traced = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> [tuple(value.shape) for value in example_values(traced, (torch.ones(2, 3),)).values()]
    [(2, 3), (2, 3), (2, 3)]
    """
    if not isinstance(inputs, tuple | dict):
        raise InputValueError(
            f"example_inputs must be a tuple, or a dict by name, not a {type(inputs).__name__}"
        )
    args = bound_example(module, *((inputs, {}) if isinstance(inputs, tuple) else ((), inputs)))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    copied = fake_copy(module, mode)
    formals = [node for node in copied.graph.nodes if node.op == "placeholder"]
    fakes = dict(
        zip(formals, pytree.tree_map_only(torch.Tensor, mode.from_tensor, args), strict=True)
    )
    run = torch.fx.Interpreter(copied, garbage_collect_values=False)
    run.extra_traceback = False
    with mode, torch.no_grad():
        try:
            run.run(initial_env=fakes, enable_io_processing=False)
        except FAKE_REFUSALS:
            pass  # a value that depends on contents stays unknown, with all that follow from it
        except Exception as error:
            name = next(node.name for node in copied.graph.nodes if node not in run.env)
            fault = f"the graph does not run on example_inputs: {name} raises {type(error).__name__}: {error}"
            raise InputValueError(fault) from error
    pairs = zip(module.graph.nodes, copied.graph.nodes, strict=True)
    return {fx_node: run.env[other] for fx_node, other in pairs if other in run.env}


def import_fx(
    graph_module: torch.fx.GraphModule,
    *,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | None = None,
    state: torch.nn.Module | Mapping[str, torch.Tensor] | None = None,
    effects: Mapping[Callable[..., Any], Effects] | None = None,
    provenance: bool = True,
) -> Program:
    """Import any fx graph module as an immutable value.

    Args:
        graph_module: from ``torch.fx.symbolic_trace``, ``make_fx``, Dynamo, ``ep.module()``, a part
            of a lowered tree, or built by hand; it is not changed, and its tensors are shared, not
            copied.  Its graph is read, so an edited one need not be recompiled.
        example_inputs: arguments of one call.  They give nodes fake values where the tracer left none, so that tensor methods
            become known operators.  Other inputs may still be passed.
        state: the module that AOTAutograd traced, or a mapping from names to its tensors: inputs that the graph describes as its
            parameters and buffers (``meta["desc"]``) become state, and outputs that it describes as gradients or new contents
            have these roles. A joint graph becomes a joint program, called with ``tangents=``, the gradients of its results.
        effects: effects of functions and operators of other libraries, as in ``declare``, for this import alone.
        provenance: whether every node records its origin, for ``history`` and ``became``.

    Returns:
        A program with the graph as its root.  Called graph modules become bodies, other called modules stay as they are, and
        every attribute becomes state.  Paths of a part begin at the part.

    Raises:
        EffectsError: an operator is declared with fewer effects than its schema states.
        InvalidProgram: a name is invalid, or the graph cannot be read.  ``transform`` and ``lower`` verify the rest.
        UnsupportedProgram: it cannot be represented faithfully; the message names the cause.  A
            part of a lowered tree must not use modules or state outside of it.
        InputValueError: the graph does not run on the example.
        TypeError: it is not a GraphModule.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x, scale=2):
    ...         return {"y": torch.relu(x) * scale}
    >>> program = px.import_fx(torch.fx.symbolic_trace(Twice()))
    >>> [node.do.name for node in program.main.nodes], px.lower(program)(torch.ones(2))
    (['torch.relu', 'operator.mul'], {'y': tensor([2., 2.])})
    """
    FX.check(graph_module, "import_fx")
    values = {} if example_inputs is None else example_values(graph_module, example_inputs)
    with collector_paused():
        declared = checked_declarations(effects)
        program = (
            _read(graph_module, values, declared)
            if state is None
            else _described(graph_module, state, declared)
        )
        return tracked(program) if provenance else program


def _described(module: torch.fx.GraphModule, state: Any, declared: Declared) -> Program:
    if not isinstance(state, torch.nn.Module | Mapping):
        raise ArgumentError(
            f"state must be the traced module or a mapping from names to its tensors, not {kind_of(state)}"
        )
    found = described(module.graph)
    if found is None:
        raise UnsupportedProgram(
            "state= needs a graph that describes its inputs (meta['desc'], from aot_export_joint_with_descriptors); for other "
            "graphs, restore_names(import_fx(graph_module), module, inputs=...) turns inputs that are tensors of it into state"
        )
    return check(
        read_joint(module, found, state, Convention.flat(found), declared)
    )  # the state of the caller may not fit


def _read(module: torch.fx.GraphModule, values: Mapping[Any, Any], declared: Declared) -> Program:
    reader = TracedFront(module, values, declared)
    root = reader.graphs[""]
    signature, leaves = read_traced_signature(module, root.output)
    reader.graphs[""] = evolve(root, output=leaves)
    called = any(type(node.do) is Call for graph in reader.graphs.values() for node in graph.nodes)
    program = Program(
        graphs=pmap(reader.graphs),
        state=reader.attributes.state(),
        signature=signature,
        modules=reader.attributes.hierarchy(reader.stacks.types),
        facts=frozenset({"state sunk"} if called else {"flat", "state sunk"}),
    )
    if len(program.order) != len(program.graphs):  # bodies that nodes name but nothing uses
        program = program.evolve(
            graphs=pmap({name: program.graphs[name] for name in program.order})
        )
    program = check_identifiers(with_constants(_without_parts_of_others(program)))
    # A part of a tree can use more than it contains; other graphs are verified by their users.
    return check(program) if called or reader.own or reader.attributes.held else program


def _without_parts_of_others(program: Program) -> Program:
    # Stacks of a split program name its parts.  They are parts here only if they contain all of it.
    parts = part_names(program)
    owners = [*[module.path for module in program.modules if module.path], *program.state]
    if not parts or ("flat" in program.facts and {way_to(path)[0] for path in owners} <= {*parts}):
        return program
    modules = [
        evolve(module, type_name=None) if is_part(module) else module for module in program.modules
    ]
    return program.evolve(modules=tuple(modules))


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
    if (
        output is None
        or not isinstance(descs, list | tuple)
        or not all("desc" in node.meta for node in formals)
    ):
        return None
    results = output.args[0]
    if not isinstance(results, list | tuple) or len(results) != len(descs):
        return None
    return Described(
        tuple([(node, node.meta["desc"]) for node in formals]),
        tuple(zip(results, descs, strict=True)),
    )


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


def refusal(
    desc: Any, what: str, *, named: Callable[[str], str] = str, fault: str = ""
) -> UnsupportedProgram:
    """Return the error for an input or output that has no role.

    Args:
        desc: its descriptor.
        what: the input or output, for the message.
        named: maps the name of a parameter or buffer in a descriptor to the user's name.
        fault: the reason, if its kind does not determine it.

    >>> print(refusal(7, "input 0"))
    input 0 is described as int, which has no role in a program
    """
    fault = fault or next(
        (text for start, text in REFUSED.items() if kind(desc).startswith(start)), ""
    )
    if not fault:
        return UnsupportedProgram(
            f"{what} is described as {kind(desc)}, which has no role in a program"
        )
    text = re.sub(
        r"get_(parameter|buffer)\('([^']*)'\)",
        lambda found: f"get_{found[1]}({named(found[2])!r})",
        desc.expr(),
    )
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
        return cls(
            structure(((0,) * len(leaves), {})), (), leaves, structure((0,) * len(results)), results
        )


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
    arguments, results = _tensors_among(convention.leaves), _tensors_among(convention.results)
    root, signature = _Roles(found, convention, state, named, arguments, results).applied(
        reader.graphs[""]
    )
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
        slots[name] = numbers.slot(
            value, SlotKind.PARAMETER if is_parameter else SlotKind.BUFFER, persistent=True
        )
    return State(tuple(slots), pmap(slots))


def _with_constants(state: State, constants: State) -> State:
    # The graph reads these itself: tensors that are not parameters or buffers of the module.
    numbers = TensorIds(state)
    if twice := [name for name in constants if name in state]:
        raise UnsupportedProgram(
            f"rename the constant {twice[0]!r} of the graph: the module has other state of that name"
        )
    added = {
        name: numbers.slot(slot.value, SlotKind.CONSTANT, persistent=False)
        for name, slot in constants.pairs
    }
    return State((*state.order, *added), pmap({**state.slots, **added}))


@frozen(eq=False)
class _Roles:
    """Finds the roles of the inputs and outputs of one graph."""

    found: Described
    convention: Convention
    state: State
    named: Callable[[str], str]
    arguments: Sequence[int]
    """For each tensor argument, its number among all arguments."""
    results: Sequence[int]
    """Likewise for results."""

    def applied(self, graph: Graph) -> tuple[Graph, Signature]:
        """Return the graph, with its inputs in the order state, arguments, tangents, and its signature."""
        state: list[tuple[Input, InputSpec]] = []
        users: dict[int, Input] = {}
        tangents: list[tuple[int, Input]] = []
        for number, (formal, (_, desc)) in enumerate(
            zip(graph.inputs, self.found.inputs, strict=True)
        ):
            place = f"input {number} ({formal.name})"
            if kind(desc) in ("ForwardTokenAOTInput", "BackwardTokenAOTInput"):
                state.append((formal, Token()))
            elif kind(desc) == "TangentAOTInput":
                tangents.append((self.tangent(desc, place), formal))
            elif type(target := self.target(desc, place)) is str:
                state.append((formal, StateInput(target)))
            else:
                users[int(target)] = formal
        in_spec = self.in_spec(len(tangents))
        pairs = [
            *state,
            *self.user_inputs(graph, users, sorted(tangents, key=lambda pair: pair[0]), in_spec),
        ]
        output, outputs = self.outputs(graph.output, len(state))
        out_spec = self.convention.out_spec
        if self.found.is_joint:
            gradients = sum(type(spec) in (StateGradient, InputGradient) for spec in outputs)
            out_spec = pytree.TreeSpec(
                tuple, None, [out_spec, pytree.tree_structure((0,) * gradients)]
            )
        signature = Signature(
            tuple([spec for _, spec in pairs]), outputs, in_spec, out_spec, self.convention.names
        )
        return Graph(tuple([formal for formal, _ in pairs]), graph.nodes, output), signature

    def tangent(self, desc: Any, place: str) -> int:
        """Return the number of the user output that an input is the tangent of."""
        output = desc.output
        if kind(output) == "InputMutationAOTOutput":
            raise refusal(desc, place, named=self.named, fault=WRITTEN)
        if kind(output) != "PlainAOTOutput" or output.idx >= len(self.results):
            raise refusal(output, f"{place} is the tangent of an output which", named=self.named)
        return self.results[output.idx]

    def in_spec(self, tangents: int) -> Any:
        """Return the pytree of the arguments, with any tangents as a keyword argument."""
        if not tangents:
            return self.convention.in_spec
        args, kwargs = self.convention.in_spec.children()
        specs: dict[str, Any] = dict(zip(kwargs.context or (), kwargs.children(), strict=True))
        specs["tangents"] = pytree.tree_structure((0,) * tangents)
        return pytree.TreeSpec(
            tuple, None, [args, pytree.TreeSpec(dict, list(specs), list(specs.values()))]
        )

    def user_inputs(
        self,
        graph: Graph,
        users: Mapping[int, Input],
        tangents: Sequence[tuple[int, Input]],
        in_spec: Any,
    ) -> list[tuple[Input, InputSpec]]:
        """Return the arguments, literals included, and the tangents."""
        paths = ArgumentTree.of(in_spec, self.convention.names).paths
        names = graph.names()
        pairs: list[tuple[Input, InputSpec]] = []
        for number, (leaf, path) in enumerate(zip(self.convention.leaves, paths, strict=False)):
            formal = users.get(number)
            leaf_type = LiteralType(leaf) if formal is None else type_of(formal.meta.get("val"))
            pairs.append(
                (formal or Input(names.fresh(f"arg_{number}")), UserInput(leaf_type, path))
            )
        behind = zip(tangents, paths[len(pairs) :], strict=True)
        return pairs + [
            (one, UserInput(type_of(one.meta.get("val")), path, tangent_of=of))
            for (of, one), path in behind
        ]

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
                case "PlainAOTOutput" if desc.idx < len(self.results):
                    results[self.results[desc.idx]] = arg
                case "InputMutationAOTOutput":
                    target = self.target(
                        desc.mutated_input, f"{place} is the new contents of an input which"
                    )
                    written.append(
                        (
                            arg,
                            StateMutation(target)
                            if type(target) is str
                            else InputMutation(before + int(target)),
                        )
                    )
                case "ForwardTokenAOTOutput" | "BackwardTokenAOTOutput":
                    written.append((arg, Token()))
                case "GradAOTOutput":
                    target = self.target(desc.grad_of, f"{place} is the gradient to an input which")
                    gradients.append(
                        (
                            arg,
                            StateGradient(target)
                            if type(target) is str
                            else InputGradient(int(target)),
                        )
                    )
                case "NoneType" if arg is None:
                    pass  # the input requires no gradient
                case _:
                    raise refusal(desc, place, named=self.named)
        returned: list[tuple[Arg, OutputSpec]] = [
            (results[number] if leaf is TENSOR else leaf, UserOutput())
            for number, leaf in enumerate(self.convention.results)
        ]
        pairs = [*written, *returned, *gradients]
        return tuple([arg for arg, _ in pairs]), tuple([spec for _, spec in pairs])

    def target(self, desc: Any, place: str) -> str | int:
        """Return the slot of a parameter or buffer, or the index of an argument, to which an output belongs."""
        if kind(desc) in ("ParamAOTInput", "BufferAOTInput"):
            name = self.named(desc.target)
            if name not in self.state:
                raise UnsupportedProgram(
                    f"{place} is {name!r}, but `state` has no tensor of that name; pass the traced module"
                )
            return name
        if kind(desc) != "PlainAOTInput" or desc.idx >= len(self.arguments):
            raise refusal(desc, place, named=self.named)
        return self.arguments[desc.idx]


def _tensors_among(leaves: tuple[Any, ...]) -> list[int]:
    return [number for number, leaf in enumerate(leaves) if leaf is TENSOR]
