"""``lower``: convert a program to torch modules.

A program at any stage is first made executable: reduced to user inputs and user outputs, with reads of state, writes in place
and no effect tokens.
"""

from __future__ import annotations

from typing import Literal

import torch
from attrs import evolve
from torch.export import FlatArgsAdapter

from ..ir.arguments import Ref
from ..ir.calls.call_graph import instances
from ..ir.errors import ArgumentError
from ..ir.forks import collector_paused
from ..ir.graph import Graph, Input, Node, Op
from ..ir.names import join, word_of
from ..ir.program import Program
from ..ir.signature import GIVEN, StateInput, StateMutation
from ..ir.state import SlotKind
from ..ir.validation import a_program, kind_of
from ..ir.verify import check
from ..transforms import inplace_mutations, remove_effect_tokens, sink_state
from ..transforms.convert.devices import Devices, materialise, moved_program
from .calls.arguments import CallPlan
from .calls.root import bound_class, class_of, root_of
from .code.compiled import bodies_of
from .modules.context import LoweringContext, StateNames
from .modules.module import Bound, Place, new_module
from .modules.tree import Tree, grow


def lower(
    program: Program,
    *,
    to: Literal["graph_module", "interpreter"] = "graph_module",
    device: torch.device | str | None = None,
    state: Literal["copy", "share"] = "copy",
    flat_args_adapter: FlatArgsAdapter | None = None,
) -> torch.nn.Module:
    """Lower a program to torch modules that run on CPU or CUDA.

    Args:
        program: a program at any stage; a flat program becomes one module, an outlined one a module tree.
        to: ``"graph_module"`` for modules that run generated code (``torch.fx.GraphModule``), ``"interpreter"`` for torch's
            ``InterpreterModule`` objects, which run their graph once it has been accessed.
        device: the target device of the state and of every device argument in the program. None changes nothing.
        state: ``"copy"`` copies the tensors of the program, ``"share"`` shares them with the modules.
        flat_args_adapter: converts arguments whose nesting differs from the exported one.

    Returns:
        The root module. It accepts the arguments of the original ``forward`` and checks them.

    Raises:
        InvalidProgram: the program breaks invariants; all violations are listed.
        UnsupportedProgram: an operator of the program has no callable.
        ArgumentError: ``program`` is not a Program, or an option has an invalid value.

    >>> import torch, purefx as px
    >>> ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    >>> px.lower(px.transform(px.import_ep(ep)))(torch.ones(1, 2)).shape
    torch.Size([1, 1])
    """
    _check_options(program, to, state, flat_args_adapter)
    check(program)
    with collector_paused():
        made = lower_unchecked(
            program, to, torch.device(device) if device is not None else None, copy=state == "copy"
        )
    made.__dict__["flat_args_adapter"] = flat_args_adapter
    return made


def _check_options(program: Program, to: str, state: str, adapter: object) -> None:
    a_program(program, "lower")
    for name, value, known in (
        ("to", to, ("graph_module", "interpreter")),
        ("state", state, ("copy", "share")),
    ):
        if value not in known:
            raise ArgumentError(f"{name}={value!r}: pass one of {', '.join(map(repr, known))}")
    if adapter is not None and (
        isinstance(adapter, type) or not callable(getattr(adapter, "adapt", None))
    ):
        raise ArgumentError(
            f"flat_args_adapter must be a torch.export.FlatArgsAdapter, not {kind_of(adapter)}"
        )


def lower_unchecked(
    original: Program,
    to: str,
    device: torch.device | None = None,
    *,
    copy: bool = False,
    names: StateNames | None = None,
) -> torch.nn.Module:
    """Lower a program that is known to be valid."""
    program = writing_parameters(executable(original))
    devices = None if device is None else Devices(device)
    if devices is not None:
        program = moved_program(program, devices)
    context = LoweringContext.of(program, original, to, names)
    bodies, codes = bodies_of(context)
    classes = {name: class_of(body, to) for name, body in bodies.items()}
    callers = [node for name in program.order for node in program.graphs[name].callers]
    for key in dict.fromkeys([body for node in callers for body in node.bodies]):
        kind = bound_class(classes[key], Bound, bodies[key])
        context.nested[key] = new_module(kind, Place(bodies[key], "", 0, None, context))
    plan = CallPlan(program)
    cells = materialise(program, copy=copy, devices=devices)
    made = grow(
        Tree(program, bodies, classes, bound_class, context), cells, root_of(plan, codes, to)
    )
    made.__dict__["purefx_plan"] = plan
    return made


def executable(program: Program) -> Program:
    """Return a program whose root has only user inputs and user outputs.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> executable(program) is program
    True
    """
    signature = program.signature
    if len(signature.users) == len(signature.inputs) and all(
        type(spec) in GIVEN for spec in signature.outputs
    ):
        return program
    read = set(program.state_inputs.values())
    written = dict.fromkeys(
        [
            spec.slot
            for spec in signature.outputs
            if type(spec) is StateMutation and spec.slot not in read
        ]
    )
    if written:  # a write needs a read of the slot
        names, inputs = program.main.names(), program.main.inputs
        main = evolve(
            program.main, inputs=(*inputs, *[Input(names.fresh(word_of(slot))) for slot in written])
        )
        program = program.with_boundary(main, (*signature.inputs, *map(StateInput, written)))
    for step in (remove_effect_tokens, inplace_mutations, sink_state):
        program = step.apply(
            program
        )  # works on trees too; only the laws of these passes require flat programs
    return program


COPY = "aten.copy_.default"


def write_parameter(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Copy a value into a parameter.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> write_parameter(weight, torch.ones(2)).tolist(), weight.requires_grad
    ([1.0, 1.0], True)
    """
    if not target.requires_grad:
        return target.copy_(value)
    with torch.no_grad():
        return target.copy_(value)


def writing_parameters(program: Program) -> Program:
    """Replace copies into parameters by ``write_parameter``; return the same object if there are none.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> writing_parameters(program) is program
    True
    """
    copies = {
        name: found for name in program.order if (found := _copies_into_state(program.graphs[name]))
    }
    changed = [
        (name, node)
        for name, path in (instances(program) if copies else ())
        for node, slot in copies.get(name, {}).items()
        if (there := program.state.slots.get(join(path, slot))) is not None
        and there.kind is SlotKind.PARAMETER
    ]
    for name, found in changed:
        graph = program.graphs[name]
        nodes = [_into_parameter(node) if node.name == found else node for node in graph.nodes]
        program = program.with_graphs({name: graph.with_nodes(nodes)})
    return program


def _into_parameter(node: Node) -> Node:
    assert type(node.do) is Op
    return evolve(node, do=evolve(node.do, target=write_parameter))


def _copies_into_state(graph: Graph) -> dict[str, str]:
    # The slot that each copy into state writes, by node name.
    copies = [node for node in graph.nodes if node.op_name == COPY]
    return {
        node.name: graph.reads[arg.name]
        for node in copies
        if type(arg := node.args[0]) is Ref and arg.name in graph.reads
    }
