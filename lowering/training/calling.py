"""How a training module is called: as the module that was captured, without tangents and gradients.

The joint program says how arguments and results are nested; its forward is cut out of a flat copy of it, in which the loss is an
output like others, whose gradient the caller passes.  Autograd begins with a one at the loss; the tangent takes the place of that
node, so a loss that is scaled before ``backward()`` is scaled inside, as in eager.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from ...ir.arguments import Arg, Ref
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Graph, Input, Node, Op
from ...ir.program import Program
from ...ir.signature import GIVEN, InputGradient, LossOutput, ObjectType, StateGradient, UserInput, UserOutput
from ...ir.torch_private import pytree
from ...transforms.minimize.cutting import type_of
from ...transforms.training import phases
from ...transforms.training.partition import TANGENTS, without_tangents
from .backward import reached

__all__ = ["called_like", "result_spec", "uncalled", "with_tangent_of_loss"]


def uncalled(program: Program) -> Program:
    """Return a program whose arguments and results are flat."""
    return program.evolve(signature=evolve(program.signature, in_spec=None, out_spec=None, arg_names=()))


def called_like(joint: Program, forward: Program) -> Program:
    """Return the forward of a joint program, called as what was captured.

    Args:
        joint: says how arguments are nested.
        forward: it takes the arguments flat.
    """
    signature = joint.signature
    inputs = [spec for spec in signature.inputs if type(spec) is UserInput and spec.tangent_of is None]
    named = iter(inputs)
    specs = tuple([next(named) if type(spec) is UserInput else spec for spec in forward.signature.inputs])
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
    """Return the pytree of what the module that was captured returns; None for a tuple of all that it gives.

    Args:
        joint: its result stands before its gradients.  Where nothing is known of it, one value is returned by itself.
    """
    signature = joint.signature
    given = [spec for spec in signature.outputs if type(spec) in GIVEN]
    own = sum(type(spec) in (UserOutput, LossOutput) for spec in given)
    spec = signature.out_spec
    if spec is not None and spec.num_leaves == own:
        return spec
    if spec is not None and spec.num_children and spec.child(0).num_leaves == own:
        return spec.child(0)
    return pytree.tree_structure(0) if own == 1 else None


def with_tangent_of_loss(program: Program) -> Program:
    """Return a joint program in which the loss is a user output with a tangent; the same object if it has no loss.

    Args:
        program: flat, as its arguments and results are.

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
            f"the gradients of the loss {loss.name!r} do not all begin with one node that is one like it, so a scaled loss would "
            "scale nothing: make the training module of the program as it was captured, before other transformations"
        )
    number = sum(type(spec) is UserOutput for spec in outputs[:at])
    spec = UserInput(type_of(value) or ObjectType("Tensor"), tangent.name, tangent_of=number)
    given = [UserOutput() if type(each) is LossOutput else each for each in outputs]
    return program.with_boundary(main, (*program.signature.inputs, spec), given)


def _from_seed(program: Program, loss: str, tangent: Input) -> Graph | None:
    # The graph with the tangent in the place of what autograd began with, if exactly one node can be that.
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
    # Ones like the loss, of its own type.
    if type(node.do) is not Op or node.args[:1] != (Ref(loss),):
        return False
    number = {"aten.full_like.default": (1,), "aten.ones_like.default": ()}.get(node.do.name)
    retyped = any(value is not None for key, value in node.kwargs if key in ("dtype", "device", "layout"))
    return number is not None and tuple(node.args[1:]) == number and not retyped


def _gradients(program: Program, graph: Graph) -> list[Ref]:
    pairs = zip(graph.output, program.signature.outputs, strict=True)
    return [arg for arg, spec in pairs if type(spec) in (StateGradient, InputGradient) and type(arg) is Ref]
