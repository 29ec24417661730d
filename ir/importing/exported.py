"""``import_ep``: an ``ExportedProgram`` becomes a ``Program``, with its state and its signature.

Each input and output of the flat graph keeps its role.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument, InputKind

from ..analysis.history import tracked
from ..arguments import Arg
from ..calls.argument_tree import ArgumentTree
from ..effects.declared import Effects
from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..forks import collector_paused
from ..graph import Graph, Stack
from ..names import last_name, parent_of, way_to
from ..operators import Declared, checked_declarations
from ..persistent import pmap
from ..program import Module, Program
from ..signature import (
    ArgumentType,
    InputGradient,
    InputMutation,
    InputSpec,
    LiteralType,
    LossOutput,
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
from ..state import Slot, SlotKind, State, registered_kind
from ..tensors import TensorIds, cell_key, disagreement, value_in
from ..torch_private import OpOverloadPacket, without_overrides
from ..validation import EXPORTED, check_identifiers
from ..verify.findings import known_names, short
from .calls import (
    check_paths,
    frame_of,
    is_from_region,
    place_boundaries,
    place_strays,
    read_call_signatures,
    settle_bodies,
    with_boundaries,
)
from .constants import KEPT
from .constraints import read_constraints, type_of
from .reader import Front, GraphReader
from .stacks import ExportedStacks, Traced, traced_backward, with_backward_calls

KINDS = {
    id(InputKind.PARAMETER): SlotKind.PARAMETER,
    id(InputKind.BUFFER): SlotKind.BUFFER,
    id(InputKind.CONSTANT_TENSOR): SlotKind.CONSTANT,
    id(InputKind.CUSTOM_OBJ): SlotKind.CONSTANT,
}
"""By identity, because hashing a member of an enumeration calls a Python method."""


FUNCTIONS: tuple[Any, ...] = (*KEPT, torch.ScriptObject, OpOverloadPacket, partial)
"""Types of arguments besides literals: values, and callables that are not instances of user classes."""


class ExportedFront(Front):
    """Reads the graphs of an exported program.

    Args:
        ep: the program; it is not changed.
        paths: of its module hierarchy, in order.
        declared: the declared effects of operators of other libraries.
        origins: whether nodes and inputs get an origin.
    """

    def __init__(
        self, ep: ExportedProgram, paths: Collection[str], declared: Declared, *, origins: bool
    ) -> None:
        super().__init__(declared, origins=origins)
        root, signature = ep.graph_module, ep.graph_signature
        nested = [found for found in root.modules() if isinstance(found, torch.fx.GraphModule)]
        self.stacks = ExportedStacks(
            paths, (node for found in nested for node in found.graph.nodes)
        )
        is_joint = signature.backward_signature is not None
        self.traced = traced_backward(root.graph) if is_joint else Traced({}, frozenset())
        state_kinds = (InputKind.PARAMETER, InputKind.BUFFER)
        self.outside = {
            spec.arg.name for spec in signature.input_specs if spec.kind not in state_kinds
        }
        """Inputs of the root that are not state."""
        self.renamed: Mapping[str, str] = {}
        """Values of the root that alias an input: the results of in-place operators on it."""
        self.unplaced: dict[str, frozenset[str]] = {}
        """The nodes without a stack from the exporter, by graph."""
        self.read(root)
        if len(self.graphs) > 1:
            settle_bodies(self.graphs, self.unplaced)
        self.graphs[""] = with_backward_calls(self.graphs[""], self.traced.backward)

    def settled(self, at: GraphReader, graph: Graph) -> Graph:
        """Return the graph with nodes that the exporter left in no call moved into the calls of their neighbours."""
        is_root, nodes, stacks = not at.job.name, at.nodes, at.stacks
        if is_root:
            self.renamed = at.renamed
        self.unplaced[at.job.name] = unplaced = frozenset(
            [name for name, stack in stacks.items() if stack is None]
        )
        strays = {
            node.name
            for node in nodes
            if not node.stack and (node.name in unplaced or is_from_region(node.meta))
        }
        if strays:
            outside = {
                formal for formal in at.inputs if not is_root or formal in self.outside
            }.union(graph.output_refs())
            nodes = place_strays(graph, strays, outside)
        if any(op.effects.scope for op in self.operators.all()):
            nodes = place_boundaries(nodes)
        return graph.with_nodes(nodes)

    def stack(self, at: GraphReader, fx_node: Any) -> Stack | None:
        """Return the module calls around a node; a projection has those of its operand."""
        whole = (
            getattr(next(iter(fx_node.args), None), "name", None)
            if fx_node.target is operator.getitem
            else None
        )
        if whole in at.stacks:
            return at.stacks[whole]
        return self.stacks.read(
            self.traced.stacks.get(fx_node) or fx_node.meta.get("nn_module_stack")
        )

    def object(self, value: Any) -> Arg:
        """Return an object among arguments; errors name its type only, because its repr may be anything."""
        kind = type(value)
        if not isinstance(value, FUNCTIONS):
            raise UnsupportedProgram(
                f"an argument of type {kind.__module__}.{kind.__qualname__} is not supported"
            )
        return value


def read_state(ep: ExportedProgram) -> State:
    """Return the state of an exported program: its ``state_dict`` with the buffers that it leaves out, then constants."""
    declared = {
        str(spec.target): (kind, spec.persistent is not False)
        for spec in ep.graph_signature.input_specs
        if (kind := KINDS.get(id(spec.kind))) is not None
    }
    numbers = TensorIds()
    saved, constants = ep.state_dict, ep.constants
    for name in (*saved, *constants):
        if type(name) is not str:
            fault, advice = (
                f"the state has a tensor under {short(name)}, which is not a valid name",
                "rename it in ep.state_dict",
            )
            raise InvalidProgram([Violation("well-formed", fault, node="state", advice=advice)])
    tensors = saved.values() if any(map(is_lifted, constants)) else ()
    parameters = {
        cell_key(value)[0]: value for value in tensors if isinstance(value, torch.nn.Parameter)
    }
    slots: dict[str, Slot] = {}
    earlier = _unsaved_before(ep)
    for name, value in saved.items():
        for unsaved in earlier.get(name, ()) if earlier else ():
            slots[unsaved] = numbers.slot(constants[unsaved], SlotKind.BUFFER, persistent=False)
        usual = registered_kind(value)
        slots[name] = numbers.slot(value, declared.get(name, (usual,))[0], persistent=True)
    for name, value in constants.items():
        kind, persistent = declared.get(name, (SlotKind.CONSTANT, False))
        if name not in slots:
            # The exporter detaches parameters that are not registered in the module.
            found = parameters.get(cell_key(value)[0], value) if is_lifted(name) else value
            slots[name] = numbers.slot(
                found, kind, persistent=persistent and kind is not SlotKind.CONSTANT
            )
    state = State.of(slots)
    state.derived[known_names] = frozenset({"state"})
    return state


def is_lifted(name: str) -> bool:
    """Return whether the exporter generated the name of a constant, as for tensors in containers and closures.

    >>> is_lifted("a.lifted_tensor_0"), is_lifted("a.mask")
    (True, False)
    """
    return last_name(name).startswith("lifted_tensor_")


def _unsaved_before(ep: ExportedProgram) -> dict[str, list[str]]:
    # Unsaved buffers are among the constants; only the inputs list all buffers in the order of the modules.
    found: dict[str, list[str]] = {}
    unsaved: list[str] = []
    for spec in [spec for spec in ep.graph_signature.input_specs if spec.kind is InputKind.BUFFER]:
        if spec.persistent is False and spec.target in ep.constants:
            unsaved.append(str(spec.target))
        elif unsaved:
            found[str(spec.target)], unsaved = unsaved, []
    return found


def read_signature(ep: ExportedProgram, root: Graph) -> Signature:
    """Return the signature of an exported program.

    Raises:
        UnsupportedProgram: it has outputs of an unknown kind.
    """
    _check_lengths(ep, root)
    call = ep.module_call_graph[0].signature
    in_spec, out_spec = (None, None) if call is None else (call.in_spec, call.out_spec)
    if ep.graph_signature.backward_signature is not None:
        out_spec = None  # it describes only the results of the forward
    names = tuple((call.forward_arg_names or ()) if call is not None else ())
    paths = iter(
        ArgumentTree.of(in_spec, names, ep.example_inputs).paths if in_spec is not None else ()
    )
    inputs: list[InputSpec] = []
    for spec, formal in zip(ep.graph_signature.input_specs, root.inputs, strict=True):
        if id(spec.kind) in KINDS:
            inputs.append(StateInput(str(spec.target)))
        elif spec.kind is InputKind.TOKEN:
            inputs.append(Token())
        else:
            inputs.append(UserInput(_type_of(spec.arg, formal.val), next(paths, formal.name)))
    return Signature(tuple(inputs), _outputs(ep, root), in_spec, out_spec, names)


def _check_lengths(ep: ExportedProgram, root: Graph) -> None:
    specs = ep.graph_signature
    counts = (
        ("input", len(specs.input_specs), len(root.inputs)),
        ("output", len(specs.output_specs), len(root.results)),
    )
    for what, described, there in counts:
        if described != there:
            text = f"the number of {what}s is {described} in the signature and {there} in the graph"
            raise InvalidProgram(
                [
                    Violation(
                        f"signature-{what}s",
                        text,
                        advice="update ep.graph_signature with the graph",
                    )
                ]
            )


def _outputs(ep: ExportedProgram, root: Graph) -> tuple[OutputSpec, ...]:
    index = {formal.name: number for number, formal in enumerate(root.inputs)}
    # A gradient targets the name that its input had before torch (2.13) renamed it: "arg11_1" is input 11.
    users = [
        number
        for number, spec in enumerate(ep.graph_signature.input_specs)
        if spec.kind is InputKind.USER_INPUT
    ]
    leaves = {
        name: leaf
        for leaf, number in enumerate(users)
        for name in (f"arg{number}_1", root.inputs[number].name)
    }
    makers: Mapping[str, Callable[[str], OutputSpec]] = {
        "USER_OUTPUT": lambda _: UserOutput(),
        "TOKEN": lambda _: Token(),
        "LOSS_OUTPUT": lambda _: LossOutput(),
        "BUFFER_MUTATION": StateMutation,
        "PARAMETER_MUTATION": StateMutation,
        "USER_INPUT_MUTATION": lambda name: InputMutation(index.get(name, -1)),
        "GRADIENT_TO_PARAMETER": StateGradient,
        "GRADIENT_TO_USER_INPUT": lambda name: InputGradient(leaves.get(name, -1)),
    }
    specs = ep.graph_signature.output_specs
    unknown = next((spec.kind.name for spec in specs if spec.kind.name not in makers), None)
    if unknown is not None:
        raise UnsupportedProgram(f"an output of kind {unknown} is not supported")
    return tuple([makers[spec.kind.name](str(spec.target)) for spec in specs])


def _type_of(arg: Any, value: Any) -> ArgumentType:
    if isinstance(arg, ConstantArgument):
        return LiteralType(arg.value)
    if isinstance(arg, CustomObjArgument):
        return ObjectType(arg.class_fqn)
    if isinstance(value, torch.Tensor) and value.is_nested:
        raise UnsupportedProgram(
            f"the input {arg.name!r} is a nested tensor: export a module that takes its values and offsets"
        )
    return type_of(value)


def import_ep(
    ep: ExportedProgram,
    *,
    effects: Mapping[Callable[..., Any], Effects] | None = None,
    provenance: bool = True,
) -> Program:
    """Import an exported program as an immutable value.

    Args:
        ep: the result of ``torch.export.export``, before or after ``run_decompositions``; it is not changed, and its
            tensors are shared, not copied.
        effects: effects of operators of other libraries, as in ``declare``, for this import alone: ``{op: px.PURE}``.
        provenance: whether every node records its origin, for ``history`` and ``became``.

    Returns:
        A flat program: one root graph that takes state and user inputs, plus the bodies of higher-order operators.  A joint
        program returns a flat tuple: the results, including the loss, then the gradients to parameters and user inputs.
        torch drops the module stacks of joint programs, so their nodes are in the root.

    Raises:
        EffectsError: an operator is declared with fewer effects than its schema states.
        InvalidProgram: its graph and signature disagree, or a node uses a value that no earlier node defines.  ``transform``
            and ``lower`` verify the rest.
        UnsupportedProgram: it cannot be represented faithfully; the message names the cause.
        TypeError: ``ep`` is not an exported program.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + x
    >>> program = px.import_ep(torch.export.export(Twice(), (torch.ones(2),)))
    >>> [node.do.name for node in program.main.nodes]
    ['aten.add.Tensor']
    """
    EXPORTED.check(ep, "import_ep")
    with collector_paused():
        program = check_identifiers(_read(ep, checked_declarations(effects), provenance=provenance))
        slots = dict(program.state.pairs)
        with without_overrides():
            for formal, spec in program.inputs:
                name = spec.slot if type(spec) is StateInput else ""
                if name in slots and (
                    wrong := disagreement(value_in(formal.meta), slots[name].value)
                ):
                    text = f"it is the state {name!r}, but the graph reads it as {wrong}"
                    raise InvalidProgram([Violation("state-geometry", text, "", formal.name)])
    object.__setattr__(program, "imported", True)
    return program


def _read(ep: ExportedProgram, declared: Declared, *, provenance: bool) -> Program:
    entries = [entry.fqn for entry in ep.module_call_graph]
    paths = dict.fromkeys(
        [fqn if type(fqn) is str and "@" not in fqn else frame_of(fqn).path for fqn in entries]
    )
    reader = ExportedFront(ep, paths, declared, origins=provenance)
    state = read_state(ep)
    signatures, records = read_call_signatures(ep.module_call_graph)
    root = reader.graphs[""] = with_boundaries(reader.graphs[""], records, reader.renamed)
    # Modules that the hierarchy lacks stay calls, at the path from the exporter; `run_decompositions` splits a tensor subclass
    # into state of modules that it makes up.
    types = reader.stacks.types
    for path in (*types, *[parent_of(name) for name in state.order]):
        if path not in paths:
            paths.update(dict.fromkeys(way_to(path)))
    paths.setdefault("")
    check_paths(paths)
    cells = reader.stacks.cells(paths)
    program = Program(
        graphs=pmap(reader.graphs),
        state=state,
        signature=read_signature(ep, root),
        modules=tuple([Module(path, types.get(path), cells.get(path)) for path in paths]),
        call_signatures=pmap(signatures),
        constraints=read_constraints(ep),
        facts=frozenset({"flat", "state as inputs", *reader.stacks.facts()}),
    )
    # The reader recorded the origins.
    return tracked(program) if provenance and records else program
