"""The signature of an exported program: what each input and output of the flat graph is for.

One idea: names of values are resolved to positions here and never stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument, InputKind, OutputKind

from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..graph import Graph
from ..numbers import SYMBOLIC
from ..signature import (
    ArgumentType,
    InputGradient,
    InputMutation,
    InputSpec,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    OutputSpec,
    Signature,
    StateGradient,
    StateInput,
    StateMutation,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from ..torch_private import pytree
from .expressions import read_size

__all__ = ["argument_keys", "argument_paths", "read_signature"]

STATE_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ)


def read_signature(ep: ExportedProgram, root: Graph) -> Signature:
    """Return the signature of an exported program.

    Raises:
        UnsupportedProgram: it has outputs of an unknown kind.
    """
    _check_lengths(ep, root)
    call = ep.module_call_graph[0].signature
    in_spec, out_spec = (None, None) if call is None else (call.in_spec, call.out_spec)
    if ep.graph_signature.backward_signature is not None:
        out_spec = None  # it is that of the forward's results alone
    names = tuple((call.forward_arg_names or ()) if call is not None else ())
    paths = iter(argument_paths(in_spec, names))
    inputs: list[InputSpec] = []
    for spec, formal in zip(ep.graph_signature.input_specs, root.inputs, strict=True):
        if spec.kind in STATE_KINDS:
            inputs.append(StateInput(str(spec.target)))
        elif spec.kind is InputKind.TOKEN:
            inputs.append(Token())
        else:
            inputs.append(UserInput(_type_of(spec.arg, formal.meta.get("val")), next(paths, formal.name)))
    return Signature(tuple(inputs), _outputs(ep, root), in_spec, out_spec, names)


def _check_lengths(ep: ExportedProgram, root: Graph) -> None:
    specs = ep.graph_signature
    results = root.output if isinstance(root.output, tuple) else (root.output,)
    counts = (("input", len(specs.input_specs), len(root.inputs)), ("output", len(specs.output_specs), len(results)))
    wrong = [
        Violation(
            f"signature-{what}s",
            f"the signature speaks of {said} {what}s, the graph has {there}",
            advice="a pass that adds or removes one must change ep.graph_signature too",
        )
        for what, said, there in counts
        if said != there
    ]
    if wrong:
        raise InvalidProgram(wrong)


def _outputs(ep: ExportedProgram, root: Graph) -> tuple[OutputSpec, ...]:
    index = {formal.name: number for number, formal in enumerate(root.inputs)}
    leaves = _leaf_names(ep, root)
    found: list[OutputSpec] = []
    for spec in ep.graph_signature.output_specs:
        match spec.kind:
            case OutputKind.USER_OUTPUT:
                found.append(UserOutput())
            case OutputKind.BUFFER_MUTATION:
                found.append(StateMutation(str(spec.target)))
            case OutputKind.USER_INPUT_MUTATION:
                found.append(InputMutation(index.get(str(spec.target), -1)))
            case OutputKind.TOKEN:
                found.append(Token())
            case OutputKind.LOSS_OUTPUT:
                found.append(LossOutput())
            case OutputKind.GRADIENT_TO_PARAMETER:
                found.append(StateGradient(str(spec.target)))
            case OutputKind.GRADIENT_TO_USER_INPUT:
                found.append(InputGradient(leaves.get(str(spec.target), -1)))
            case kind if kind.name == "PARAMETER_MUTATION":
                found.append(StateMutation(str(spec.target)))
            case kind:
                raise UnsupportedProgram(f"an output of kind {kind.name} is not supported")
    return tuple(found)


def _leaf_names(ep: ExportedProgram, root: Graph) -> dict[str, int]:
    # The target of a gradient to an input is the name that the input had before torch (2.13) renamed it: "arg11_1" is input 11.
    users = [number for number, spec in enumerate(ep.graph_signature.input_specs) if spec.kind is InputKind.USER_INPUT]
    names = {f"arg{number}_1": leaf for leaf, number in enumerate(users)}
    return names | {root.inputs[number].name: leaf for leaf, number in enumerate(users)}


def _type_of(arg: Any, value: Any) -> ArgumentType:
    if isinstance(arg, ConstantArgument):
        return LiteralType(arg.value)
    if isinstance(arg, CustomObjArgument):
        return ObjectType(arg.class_fqn)
    if isinstance(value, torch.Tensor):
        return TensorType(value.dtype, tuple(read_size(size) for size in value.shape), str(value.device))
    if isinstance(value, SYMBOLIC):
        kind = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}[type(value)]
        return NumberType(kind, read_size(value) if kind == "int" else None)
    if value is None or isinstance(value, bool | int | float | str):
        return LiteralType(value)
    return ObjectType(type(value).__name__)


def argument_paths(in_spec: Any, names: tuple[str, ...]) -> list[str]:
    """Return how a caller would write each leaf of the inputs: ``x``, ``batch['ids'][0]``.

    Args:
        in_spec: the pytree of ``(args, kwargs)``, or None.
        names: the argument names of the original ``forward``.
    """
    return [head + pytree.keystr(rest) for head, rest in argument_keys(in_spec, names)]


def argument_keys(in_spec: Any, names: tuple[str, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return for each leaf of the inputs the argument that it is in, and the keys of the pytree that lead to it there.

    Args:
        in_spec: the pytree of ``(args, kwargs)``, or None.
        names: the argument names of the original ``forward``.
    """
    if in_spec is None:
        return []
    leaves = pytree.tree_unflatten(list(range(in_spec.num_leaves)), in_spec)
    found: list[tuple[str, tuple[Any, ...]]] = []
    for path, _ in pytree.tree_flatten_with_path(leaves)[0]:
        side, first, *rest = path
        if side.idx == 0:
            head = names[first.idx] if first.idx < len(names) else f"args[{first.idx}]"
        else:
            head = str(first.key)
        found.append((head, tuple(rest)))
    return found
