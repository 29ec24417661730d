"""What AOTAutograd says of the inputs and outputs of its graphs: descriptors (``meta["desc"]``), or lists of names.

Descriptors are read by the names of their classes, so that AOTAutograd is not imported.  What has no role is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch.fx
from attrs import frozen

from ..errors import UnsupportedProgram
from ..torch_private import aot_descriptors


@frozen
class Described:
    """The inputs and outputs of a graph, each with what its tracer says of it: its descriptor, or None where it is unused."""

    inputs: tuple[tuple[torch.fx.Node, Any], ...]
    outputs: tuple[tuple[Any, Any], ...]
    loss: int | None = None
    """Which of the results is the loss, where there are no tangents."""

    @property
    def is_joint(self) -> bool:
        """Whether there are gradients among the outputs."""
        return any(kind(desc) == "GradAOTOutput" for _, desc in self.outputs)


def described(graph: torch.fx.Graph) -> Described | None:
    """Return the inputs and outputs of a graph with their descriptors; None if it has none.

    Args:
        graph: of any tracer.

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


def listed(graph: torch.fx.Graph, names: Any) -> Described:
    """Return the inputs and outputs of a graph that comes with lists of their names.

    Args:
        graph: as ``aot_export_module`` returns it.
        names: the signature that it returns with it.

    Raises:
        UnsupportedProgram: the lists are not of this graph.
    """
    descs = aot_descriptors()
    formals = [node for node in graph.nodes if node.op == "placeholder"]
    users = {name: descs.PlainAOTInput(number) for number, name in enumerate(names.user_inputs)}
    known = {
        **{name: descs.ParamAOTInput(target) for name, target in names.inputs_to_parameters.items()},
        **{name: descs.BufferAOTInput(target) for name, target in names.inputs_to_buffers.items()},
        **{name: descs.ForwardTokenAOTInput(number) for number, name in enumerate(names.input_tokens)},
        **users,
    }
    by_target = {desc.target: desc for desc in known.values() if hasattr(desc, "target")}
    written = {**names.buffers_to_mutate, **names.parameters_to_mutate, **names.user_inputs_to_mutate}
    backward = names.backward_signature
    gradients = {} if backward is None else {**backward.gradients_to_parameters, **backward.gradients_to_user_inputs}
    made = [
        *[descs.ForwardTokenAOTOutput(number) for number, _ in enumerate(names.output_tokens)],
        *[descs.InputMutationAOTOutput(by_target.get(target) or users[target]) for target in written.values()],
        *[descs.PlainAOTOutput(number) for number, _ in enumerate(names.user_outputs)],
        *[descs.GradAOTOutput(by_target.get(target) or users[target]) for target in gradients.values()],
    ]
    results = next(iter(reversed(graph.nodes))).args[0]
    if len(results) != len(made) or any(node.name not in known for node in formals):
        raise UnsupportedProgram("signature= lists other inputs and outputs than the graph has; give what came with this graph")
    loss = None if backward is None else _loss(list(results), backward.loss_output, made)
    return Described(tuple([(node, known[node.name]) for node in formals]), tuple(zip(results, made, strict=True)), loss)


def _loss(results: list[Any], name: str, descs: list[Any]) -> int:
    # Torch (2.13) counts the loss among all outputs and not behind new contents, so the name is that of another one where there
    # are some; a loss has one element.
    first = next((number for number, desc in enumerate(descs) if kind(desc) == "PlainAOTOutput"), 0)
    place = next((number for number, node in enumerate(results) if getattr(node, "name", None) == name), 0)
    users = [node for node, desc in zip(results, descs, strict=True) if kind(desc) == "PlainAOTOutput"]
    for number in (place, place - first):
        value = users[number].meta.get("val") if 0 <= number < len(users) and isinstance(users[number], torch.fx.Node) else None
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return number
    raise UnsupportedProgram(f"signature= says that the loss is {name!r}, and the graph returns nothing of one element there")


def kind(desc: Any) -> str:
    """Return the name of the class of a descriptor; that of a class derived from one of torch's is its own.

    >>> kind(None)
    'NoneType'
    """
    return type(desc).__name__


SHARED = (
    "several arguments, parameters or buffers share memory and one of them is written, which the graph replaces by one input; "
    "give each memory of its own (clone())"
)
SUBCLASS = "it is a part of a tensor subclass, of which the graph has the parts alone; trace the module with plain tensors"
SEEDED = "random numbers come from a seed that is passed (torch._functorch.config.functionalize_rng_ops); trace without it"
WRITTEN = "what needs a gradient is written, and what is written needs one, too; write to a clone of it"

REFUSED: Mapping[str, str] = {
    "ViewBaseAOTInput": SHARED,
    "SyntheticBaseAOTInput": SHARED,
    "SubclassGetAttrAOTInput": SUBCLASS,
    "SubclassSizeAOTInput": SUBCLASS,
    "SubclassStrideAOTInput": SUBCLASS,
    "SubclassGetAttrAOTOutput": SUBCLASS,
    "SubclassSizeAOTOutput": SUBCLASS,
    "SubclassStrideAOTOutput": SUBCLASS,
    "PhiloxForwardSeedAOTInput": SEEDED,
    "PhiloxForwardBaseOffsetAOTInput": SEEDED,
    "PhiloxBackwardSeedAOTInput": SEEDED,
    "PhiloxBackwardBaseOffsetAOTInput": SEEDED,
    "PhiloxUpdatedForwardOffsetAOTOutput": SEEDED,
    "PhiloxUpdatedBackwardOffsetAOTOutput": SEEDED,
    "IntermediateBaseAOTOutput": "several results are views of one tensor, which the graph returns in their place; return clones",
    "MetadataMutationAOTOutput": "the sizes or strides of an argument are changed in place; use a view of it",
    "SavedForBackwardsAOTOutput": "the graph is a forward that was cut from a joint one; import the joint one",
    "SavedForBackwardsNoVcCheckAOTOutput": "the graph is a forward that was cut from a joint one; import the joint one",
}
"""Why what has such a descriptor cannot be an input or output of a program, and what to do."""


def refusal(desc: Any, what: str, *, named: Callable[[str], str] = str, said: str = "") -> UnsupportedProgram:
    """Return the error for an input or output that has no role.

    Args:
        desc: its descriptor.
        what: what it is, and where.
        named: from the name of a parameter or buffer in a descriptor to its own.
        said: why it has none, where its kind alone does not tell.

    >>> print(refusal(7, "input 0"))
    input 0 is described as int, which is none of the descriptors that purefx knows
    """
    said = said or REFUSED.get(kind(desc), "")
    if not said:
        return UnsupportedProgram(f"{what} is described as {kind(desc)}, which is none of the descriptors that purefx knows")
    text = re.sub(r"get_(parameter|buffer)\('([^']*)'\)", lambda found: f"get_{found[1]}({named(found[2])!r})", desc.expr())
    return UnsupportedProgram(f"{what} is {text}: {said}")
