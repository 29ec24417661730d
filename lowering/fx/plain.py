"""``to_fx``: a flat program as a plain ``torch.fx.GraphModule``, as graph passes of torch and others expect it.

``lower`` gives modules that know more than fx does (calling conventions, guards, hooks for assignment); a pass that rebuilds
a graph or its module would meet these half-way.  Here are torch's own classes alone: inputs and outputs are flat, state is
read with ``get_attr``, what operators are given are graph modules again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx.graph import CodeGen

from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call
from ...ir.program import Program
from ...ir.taking import a_program
from ..lower import lower
from ..modules.module import Lowered, copy_graph

__all__ = ["to_fx"]


def to_fx(program: Program) -> torch.fx.GraphModule:
    """Return a program as a plain ``torch.fx.GraphModule``, for passes over fx graphs.

    Args:
        program: a flat one; state that it takes as inputs is read, and what it gives as new contents is written at the end.

    Returns:
        A module of torch's own class.  It is called with the leaves of the user inputs and returns a tuple of the leaves of the
        outputs; its tensors are copies of the program's, tied as those are.  Nodes have the meta of the program's.

    Raises:
        UnsupportedProgram: the program calls bodies (``purefx.inline`` brings them in place), or has preserved signatures.
        InvalidProgram: the program breaks invariants.

    >>> import torch, purefx as px
    >>> module = px.to_fx(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))))
    >>> type(module).__mro__[1].__name__, [node.op for node in module.graph.nodes]
    ('GraphModule', ['placeholder', 'get_attr', 'get_attr', 'call_function', 'output'])
    >>> module(torch.ones(1, 2))[0].shape
    torch.Size([1, 1])
    """
    _check_flat(program)
    lowered = lower(program)
    made: dict[int, torch.fx.GraphModule] = {}
    todo: list[Any] = [lowered]
    while todo:
        module = todo.pop()
        if id(module) not in made:
            made[id(module)] = _plain(module)
            todo += [inner for inner in _attributes(made[id(module)]).values() if isinstance(inner, Lowered)]
    for module in made.values():
        for path, inner in _attributes(module).items():
            if isinstance(inner, Lowered):
                _put(module, path, made[id(inner)])
    root = made[id(lowered)]
    _keep_unread(root, lowered)
    return root


def _check_flat(program: Program) -> None:
    a_program(program, "to_fx")
    called = [node.name for _, node in program.nodes() if type(node.do) is Call]
    if called:
        raise UnsupportedProgram(
            f"the program is a tree of bodies, and {called[0]!a} calls one; to_fx takes a flat one: px.to_fx(px.inline(program))"
        )
    if program.call_signatures:
        frame = next(iter(program.call_signatures))
        raise UnsupportedProgram(
            f"the module call {str(frame)!a} has a preserved signature, which a plain fx graph has no place for; export the "
            "model without preserve_module_call_signature"
        )


def _plain(module: Any) -> torch.fx.GraphModule:
    graph = copy_graph(module.graph)
    graph.set_codegen(CodeGen())
    return torch.fx.GraphModule(module, graph, class_name="GraphModule")


def _attributes(module: torch.fx.GraphModule) -> dict[str, Any]:
    paths = [str(node.target) for node in module.graph.nodes if node.op in ("get_attr", "call_module")]
    return {path: _at(module, path) for path in paths}


def _at(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _put(module: Any, path: str, value: Any) -> None:
    *outer, name = path.split(".")
    for step in outer:
        if not hasattr(module, step):
            setattr(module, step, torch.nn.Module())
        module = getattr(module, step)
    setattr(module, name, value)


def _keep_unread(module: torch.fx.GraphModule, lowered: torch.nn.Module) -> None:
    # A graph module takes over what its graph reads, all tensors as buffers that are saved; the rest is state all the same.
    saved = lowered.state_dict().keys()
    for path, value in lowered.named_parameters(remove_duplicate=False):
        if not _has(module, path):
            _put(module, path, value)
    buffers = dict(lowered.named_buffers(remove_duplicate=False))
    for path, value in (dict(module.named_buffers(remove_duplicate=False)) | buffers).items():
        if path not in saved or not _has(module, path):
            outer, _, name = path.rpartition(".")
            _put(module, path, None)
            holder: Any = _at(module, outer) if outer else module
            delattr(holder, name)
            holder.register_buffer(name, value, persistent=path in saved)


def _has(module: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(module, name):
            return False
        module = getattr(module, name)
    return True
