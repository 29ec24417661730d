"""``lower``: a program becomes torch modules.

One idea: bodies are compiled once each, the module tree is grown around them, and what only a reader needs (fx graphs,
fx code) is made when somebody reads it.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from ..ir.collector import collector_paused
from ..ir.program import Program
from ..ir.verify import check
from .arguments import CallPlan
from .compiled import by_code, compile_bodies
from .devices import moved
from .executable import executable
from .hierarchy import Tree, grow
from .interpreter import LoweredInterpreter
from .module import RESERVED, LoweredModule, Place, make_class, new_module
from .root import LoweredInterpreterRoot, LoweredRoot
from .tensors import materialise

__all__ = ["lower"]


def lower(
    program: Program,
    *,
    to: Literal["graph_module", "interpreter"] = "graph_module",
    device: torch.device | str | None = None,
    state: Literal["copy", "share"] = "copy",
) -> torch.nn.Module:
    """Lower a program to torch modules that run on CPU or CUDA.

    Args:
        program: a program at any stage; a flat one gives one flat module, an outlined one the module tree.
        to: ``"graph_module"`` for ``torch.fx.GraphModule``s that run generated code, ``"interpreter"`` for
            ``torch.export.unflatten.InterpreterModule``s that run one operator at a time.
        device: where the state goes; every device that the program names is replaced. None changes nothing.
        state: ``"copy"`` gives the modules tensors of their own, ``"share"`` those of the program.

    Returns:
        The root module. It takes the arguments of the original ``forward`` and checks them.

    Raises:
        InvalidProgram: the program breaks invariants; all violations are listed, and nothing was made.
        UnsupportedProgram: an operator of the program has no callable behind it.
        ValueError: an option is none of those above.
        TypeError: ``program`` is not a Program.

    >>> import torch, purefx as px
    >>> ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    >>> px.lower(px.transform(px.import_ep(ep)))(torch.ones(1, 2)).shape
    torch.Size([1, 1])
    """
    _check_options(program, to, state)
    check(program)
    with collector_paused():
        return _lower(program, to, torch.device(device) if device is not None else None, copy=state == "copy")


def _check_options(program: Program, to: str, state: str) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"lower takes a purefx Program, not a {type(program).__name__}; start with import_ep(ep)")
    if to not in ("graph_module", "interpreter"):
        raise ValueError(f'to={to!r}: it is "graph_module" or "interpreter"')
    if state not in ("copy", "share"):
        raise ValueError(f'state={state!r}: it is "copy" or "share"')


def _lower(program: Program, to: str, device: torch.device | None, *, copy: bool) -> torch.nn.Module:
    program = executable(program)
    if device is not None:
        program = moved(program, device)
    bodies, table = compile_bodies(program, reserved=RESERVED)
    base, root_base = (LoweredModule, LoweredRoot) if to == "graph_module" else (LoweredInterpreter, LoweredInterpreterRoot)
    classes: dict[str, Any] = {}
    for name, body in bodies.items():
        classes[name] = make_class(base, {"forward": body.run} if to == "graph_module" else {})
    nested: dict[str, torch.nn.Module] = {}
    for key in table.nested():
        nested[key] = new_module(classes[key], Place(bodies[key], "", 0, None, nested))
        table.fill(("body", key), nested[key])
    plan, codes = CallPlan(program), by_code(bodies.values())
    root = make_class(root_base, {"purefx_codes": codes})
    made = grow(Tree(program, bodies, classes, nested), materialise(program, copy=copy, device=device), root)
    made.__dict__["purefx_plan"] = plan
    return made
