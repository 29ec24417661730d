"""``lower``: a program becomes torch modules.

A program at any stage is first made executable: user inputs in, user outputs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch
from attrs import evolve
from torch.export import FlatArgsAdapter

from ..ir.arguments import Ref, bodies_in
from ..ir.calls.call_graph import instances
from ..ir.errors import ArgumentError
from ..ir.graph import Get, Graph, Node, Op
from ..ir.names import join
from ..ir.persistent import collector_paused
from ..ir.program import Program
from ..ir.state import SlotKind
from ..ir.taking import a_program, kind_of
from ..ir.verify import check
from ..transforms.convert.devices import Devices, materialise, moved_program
from .calls.arguments import CallPlan
from .calls.root import bound_class, class_of, root_of
from .code.compiled import bodies_of
from .executable import executable
from .modules.context import LoweringContext
from .modules.module import RESERVED, Bound, Place, new_module
from .modules.tree import Tree, grow

__all__ = ["copies_into_state", "lower", "lower_unchecked", "write_parameter", "writing_parameters"]


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
        program: a program at any stage; a flat one gives one flat module, an outlined one the module tree.
        to: ``"graph_module"`` for modules that run generated code (``torch.fx.GraphModule``), ``"interpreter"`` for torch's
            ``InterpreterModule`` objects, whose graph runs as soon as somebody looked at it.
        device: where the state goes; every device that the program names is replaced. None changes nothing.
        state: ``"copy"`` gives the modules tensors of their own, ``"share"`` those of the program.
        flat_args_adapter: makes arguments that are nested differently from the exported ones into the exported ones.

    Returns:
        The root module. It takes the arguments of the original ``forward`` and checks them.

    Raises:
        InvalidProgram: the program breaks invariants; all violations are listed, and nothing was made.
        UnsupportedProgram: an operator of the program has no callable behind it.
        ArgumentError: ``program`` is not a Program, or an option has another value than those above.

    >>> import torch, purefx as px
    >>> ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    >>> px.lower(px.transform(px.import_ep(ep)))(torch.ones(1, 2)).shape
    torch.Size([1, 1])
    """
    _check_options(program, to, state, flat_args_adapter)
    check(program)
    with collector_paused():
        made = lower_unchecked(program, to, torch.device(device) if device is not None else None, copy=state == "copy")
    made.__dict__["flat_args_adapter"] = flat_args_adapter
    return made


def _check_options(program: Program, to: str, state: str, adapter: object) -> None:
    a_program(program, "lower")
    for name, value, known in (("to", to, ("graph_module", "interpreter")), ("state", state, ("copy", "share"))):
        if value not in known:
            raise ArgumentError(f"{name}={value!r}: pass one of {', '.join(map(repr, known))}")
    if adapter is not None and (isinstance(adapter, type) or not callable(getattr(adapter, "adapt", None))):
        raise ArgumentError(f"flat_args_adapter must be a torch.export.FlatArgsAdapter, not {kind_of(adapter)}")


def lower_unchecked(
    given: Program,
    to: str,
    device: torch.device | None = None,
    *,
    copy: bool = False,
    hooked: Mapping[str, str] = MappingProxyType({}),
) -> torch.nn.Module:
    """Lower a program that is known to be valid, or that was lowered before."""
    program = writing_parameters(executable(given))
    devices = None if device is None else Devices(device)
    if devices is not None:
        program = moved_program(program, devices)
    context = LoweringContext.of(program, given, to, hooked)
    bodies, codes = bodies_of(context, reserved=RESERVED)
    classes = {name: class_of(body, to) for name, body in bodies.items()}
    callers = [node for name in program.order for node in program.graphs[name].callers]
    for key in dict.fromkeys([body for node in callers for body in bodies_in(node.args, node.kwargs)]):
        kind = bound_class(classes[key], Bound, bodies[key])
        context.nested[key] = new_module(kind, Place(bodies[key], "", 0, None, context))
    plan = CallPlan(program)
    cells = materialise(program, copy=copy, devices=devices)
    made = grow(Tree(program, bodies, classes, bound_class, context), cells, root_of(plan, codes, to))
    made.__dict__["purefx_plan"] = plan
    return made


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
    """Return the program with its copies into parameters made by ``write_parameter``; the same object if it has none.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> writing_parameters(program) is program
    True
    """
    copies = {name: found for name in program.order if (found := copies_into_state(program.graphs[name]))}
    if not copies:
        return program
    changed: dict[str, set[str]] = {}
    for name, path in instances(program):
        for node, slot in copies.get(name, {}).items():
            there = program.state.slots.get(join(path, slot))
            if there is not None and there.kind is SlotKind.PARAMETER:
                changed.setdefault(name, set()).add(node)
    graphs: dict[str, Graph] = {}
    for name, found in changed.items():
        nodes = [_into_parameter(node) if node.name in found else node for node in program.graphs[name].nodes]
        graphs[name] = evolve(program.graphs[name], nodes=tuple(nodes))
    return program.evolve(graphs=program.graphs.update(graphs)) if graphs else program


def _into_parameter(node: Node) -> Node:
    assert type(node.do) is Op
    return evolve(node, do=evolve(node.do, target=write_parameter))


def copies_into_state(graph: Graph) -> dict[str, str]:
    """Return the slot that each copy into state writes, by name of node.

    >>> copies_into_state(Graph((), (), ()))
    {}
    """
    copies = [node for node in graph.nodes if type(node.do) is Op and node.do.name == COPY]
    if not copies:
        return {}
    slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
    pairs = [(node.name, node.args[0]) for node in copies]
    return {name: slots[arg.name] for name, arg in pairs if type(arg) is Ref and arg.name in slots}
