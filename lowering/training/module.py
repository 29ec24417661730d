"""``training_module``: convert a joint program to a module that trains like the captured one.

It is a lowered forward program with its state under the original names; if gradients are enabled, each call is one ``Step``.
The joint program defines the nesting of arguments and results; its forward is cut from a flat copy, in which the loss is an
ordinary output with a tangent.  The tangent replaces the node with the initial one of autograd at the loss, so
scaling the loss before ``backward()`` scales the gradients, as in eager mode.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref
from ...ir.errors import ArgumentError, UnsupportedProgram
from ...ir.graph import Graph, Input, Node, place_of
from ...ir.program import Program
from ...ir.signature import (
    GIVEN,
    InputGradient,
    LossOutput,
    ObjectType,
    StateGradient,
    UserInput,
    UserOutput,
)
from ...ir.torch_private import is_tracing, pytree
from ...ir.validation import a_program
from ...ir.verify import check
from ...transforms.effect_tokens import remove_effect_tokens
from ...transforms.inline import inline
from ...transforms.minimize.cutting import type_of
from ...transforms.training import Policy, partition_joint
from ...transforms.training.partition import TANGENTS, without_tangents
from ...transforms.training.phases import is_joint, phases
from ..calls.arguments import result_builder
from ..calls.root import LoweredRoot
from ..lower import lower
from ..modules.module import MADE
from .backward import TrainingPrograms, reached
from .step import Step, as_captured


def training_module(
    program: Program,
    *,
    policy: Policy | None = None,
    device: torch.device | str | None = None,
    state: Literal["copy", "share"] = "copy",
) -> TrainingModule:
    """Convert a joint program to a module that trains like the captured one.

    It has the signature and the state of the original. If gradients are enabled, a call is one node of autograd, whose
    backward is the backward program: optimizers, hooks of parameters, ``zero_grad``, accumulation, ``torch.no_grad`` and
    ``torch.compile`` work as usual. Inner modules contain state, but are not called, since the program is flat.

    Args:
        program: a joint program, which returns gradients, and has a loss or tangents. Module calls are inlined.
        policy: selects the values to save for the backward, see ``px.training.partition_joint``; by default all.
        device: the target device of the state and of every device argument in the program. None changes nothing.
        state: ``"copy"`` copies the tensors of the program, ``"share"`` shares them with the module.

    Returns:
        The module.

    Raises:
        ArgumentError: the program is not a joint program.
        InvalidProgram: the program breaks invariants.
        PartitionError: it cannot be cut into a forward and a backward.
        UnsupportedProgram: an operator saves nothing for its backward here; the message says how to capture another.

    >>> import torch, purefx as px
    >>> model, x = torch.nn.Linear(3, 1), torch.ones(2, 3)
    >>> module = px.training_module(px.training.capture_joint(model, (x,)))
    >>> module(x).sum().backward()
    >>> module.weight.grad
    tensor([[2., 2., 2.]])
    """
    a_program(program, "training_module")
    if not is_joint(program):
        raise ArgumentError(
            "training_module takes a joint program, with forward and backward, but this one returns no gradients; "
            "px.training.capture_joint(module, args) makes one"
        )
    flat = inline(remove_effect_tokens(check(program)))
    _check_operators(flat)
    signature = evolve(
        flat.signature, in_spec=None, out_spec=None, arg_names=()
    )  # flat arguments and results
    cut = partition_joint(with_tangent_of_loss(flat.evolve(signature=signature)), policy=policy)
    programs = TrainingPrograms(cut, None if device is None else torch.device(device))
    made: Any = lower(called_like(flat, cut.forward), device=device, state=state)
    return training(made, programs, result_spec(flat))


BY_GRADIENT_MODE = {
    "aten.mkldnn_rnn_layer.default": "with torch.backends.mkldnn.flags(enabled=False)"
}
"""Operators that save nothing for the backward while gradients are disabled, as inside an autograd node, each with the way to
capture others instead."""


def _check_operators(program: Program) -> None:
    for node in program.main.nodes:
        if node.op_name in BY_GRADIENT_MODE:
            raise UnsupportedProgram(
                f"{place_of(node)}: {node.op_name} saves values for its backward only if gradients are on, which they are not "
                f"inside an autograd node; capture the program {BY_GRADIENT_MODE[node.op_name]}"
            )


class TrainingModule(LoweredRoot):
    """A lowered forward program whose calls are nodes of autograd; see ``training_module``."""

    purefx_programs: TrainingPrograms
    purefx_result: Any

    def _run_body(self, leaves: Any) -> Any:
        programs = self.purefx_programs
        if is_tracing():
            return self.purefx_run(leaves)[: programs.outputs]
        with as_captured():
            if not torch.is_grad_enabled():
                return self.purefx_run(leaves)[: programs.outputs]
            programs.check(self, leaves)
            return Step.apply(self, *programs.read_slots(self), *leaves)

    def purefx_run(self, leaves: Any) -> Any:
        """Run the forward program on the leaves of a call; return the results and the saved values."""
        return super()._run_body(leaves)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise, because its programs cannot be pickled.

        Raises:
            UnsupportedProgram: always.
        """
        raise UnsupportedProgram(
            "a training module cannot be pickled: save the joint program (px.save) and the state_dict() of the module, and make "
            "a new one from them"
        )

    def recompile(self) -> Any:
        """Raise, because the backward of an edited forward is unknown.

        Raises:
            UnsupportedProgram: always.
        """
        raise UnsupportedProgram(
            "the graph of a training module cannot be edited, because the backward would not change: "
            "transform the joint program, and make a new training module from it"
        )


def training(module: Any, programs: TrainingPrograms, result: Any) -> TrainingModule:
    """Convert a lowered forward program to a training module.

    Args:
        module: a lowered module.
        programs: the forward and the backward.
        result: the pytree of its result.
    """
    kind = type(module)
    module.__class__ = type(
        "TrainingModule",
        (TrainingModule, kind),
        {"__module__": TrainingModule.__module__, MADE: True},
    )
    module.__dict__["purefx_programs"] = programs
    module.__dict__["purefx_result"] = result
    module.__dict__["purefx_plan"].result = result_builder(result)
    return cast(TrainingModule, module)


def called_like(joint: Program, forward: Program) -> Program:
    """Return the forward of a joint program with the signature of the captured module.

    Args:
        joint: the joint program, with the nesting of the arguments.
        forward: the forward program, with flat arguments.
    """
    signature = joint.signature
    named = iter([spec for spec in signature.users.values() if spec.tangent_of is None])
    specs = tuple(
        [next(named) if type(spec) is UserInput else spec for spec in forward.signature.inputs]
    )
    return forward.evolve(
        signature=evolve(
            forward.signature,
            inputs=specs,
            in_spec=without_tangents(signature.in_spec),
            out_spec=None,
            arg_names=tuple([name for name in signature.arg_names if name != TANGENTS]),
        )
    )


def result_spec(joint: Program) -> Any:
    """Return the pytree of the result of the captured module; None for a tuple.

    Args:
        joint: a joint program, with results before gradients.  If their nesting is unknown, a single result is a leaf.
    """
    signature = joint.signature
    results = [spec for spec in signature.outputs if type(spec) in GIVEN]
    own = sum(type(spec) in (UserOutput, LossOutput) for spec in results)
    spec = signature.out_spec
    if spec is not None and spec.num_leaves == own:
        return spec
    if spec is not None and spec.num_children and spec.child(0).num_leaves == own:
        return spec.child(0)
    return pytree.tree_structure(0) if own == 1 else None


def with_tangent_of_loss(program: Program) -> Program:
    """Return a joint program in which the loss is a user output with a tangent; the same object if it has no loss.

    Args:
        program: a flat program with flat arguments and results.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_tangent_of_loss(program) is program
    True
    """
    graph, outputs = program.main, program.signature.outputs
    at = next((number for number, spec in enumerate(outputs) if type(spec) is LossOutput), None)
    if at is None or type(loss := graph.output[at]) is not Ref:
        return program
    value = graph.metas[loss.name].get("val")
    tangent = Input(graph.names().fresh("tangent"), {"val": value} if value is not None else {})
    main = _from_seed(program, loss.name, tangent)
    if main is None:
        raise UnsupportedProgram(
            f"the gradients of the loss {loss.name!r} do not all start at one node (ones_like), so scaling the loss would not "
            "scale them: make the training module from the captured program, before other transformations"
        )
    number = sum(type(spec) is UserOutput for spec in outputs[:at])
    spec = UserInput(type_of(value) or ObjectType("Tensor"), tangent.name, tangent_of=number)
    specs = [UserOutput() if type(each) is LossOutput else each for each in outputs]
    return program.with_boundary(main, (*program.signature.inputs, spec), specs)


def _from_seed(program: Program, loss: str, tangent: Input) -> Graph | None:
    # Replace the initial gradient of autograd by the tangent, if exactly one node can be it.
    graph, late = program.main, set(phases(program).backward)
    seeds = [node.name for node in graph.nodes if node.name in late and _is_one_like(node, loss)]
    if len(seeds) != 1:
        return None
    known: dict[str, Arg] = {seeds[0]: Ref(tangent.name)}
    nodes = tuple([node.using(known) for node in graph.nodes if node.name != seeds[0]])
    output = tuple([known.get(arg.name, arg) if type(arg) is Ref else arg for arg in graph.output])
    made = Graph((*graph.inputs, tangent), nodes, output)
    alive = reached(made, {tangent.name})
    return made if all(arg.name in alive for arg in _gradients(program, made)) else None


def _is_one_like(node: Node, loss: str) -> bool:
    # Ones with the shape and dtype of the loss.
    if node.args[:1] != (Ref(loss),):
        return False
    number = {"aten.full_like.default": (1,), "aten.ones_like.default": ()}.get(node.op_name)
    retyped = any(
        value is not None for key, value in node.kwargs if key in ("dtype", "device", "layout")
    )
    return number is not None and tuple(node.args[1:]) == number and not retyped


def _gradients(program: Program, graph: Graph) -> list[Ref]:
    pairs = zip(graph.output, program.signature.outputs, strict=True)
    return [
        arg
        for arg, spec in pairs
        if type(spec) in (StateGradient, InputGradient) and type(arg) is Ref
    ]
