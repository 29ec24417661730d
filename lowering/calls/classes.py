"""The classes of lowered modules: one for each distinct body, and one for each root.

What they run is in the body; nothing here makes a module.
"""

from __future__ import annotations

from typing import Any

import torch

from ..code.compiled import Body, Codes
from ..modules.context import FIRST
from ..modules.interpreter import LoweredInterpreter, run_body
from ..modules.module import MADE, Bound, LoweredModule, OtherName, Place, make_class, runs_on
from .arguments import CallPlan
from .preserved import answering
from .root import LoweredInterpreterRoot, LoweredRoot, root_class

__all__ = ["bound_class", "class_of", "root_of"]


def class_of(body: Body, to: str) -> type[torch.nn.Module]:
    """Return the class of the modules that run a body.

    Args:
        body: what they run.
        to: which kind of modules they are, as ``lower`` takes it.
    """
    return make_class(LoweredModule if to == "graph_module" else LoweredInterpreter, _members(body, to))


def bound_class(kind: type[torch.nn.Module], how: type[Bound], body: Body) -> type[torch.nn.Module]:
    """Return the class of the modules that run a body on another module.

    Args:
        kind: the class of those that run it on their own state.
        how: in what they differ from those.
        body: what they run.
    """
    members: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__, MADE: True}
    if kind.__dict__.get("forward") is body.run and not issubclass(how, OtherName):
        run = body.run
        members["forward"] = lambda self, *args: run(self.__dict__.get(FIRST, self), *args)
    return type(kind.__name__, (how, kind), members)


def root_of(plan: CallPlan, codes: Codes, to: str) -> type[torch.nn.Module]:
    """Return the class of a root.

    Args:
        plan: how it is called.
        codes: the body that each code runs.
        to: which kind of module it is.
    """
    return root_class(LoweredRoot if to == "graph_module" else LoweredInterpreterRoot, plan, codes)


def _members(body: Body, to: str) -> dict[str, Any]:
    if body.convention is not None:
        return {"forward": answering(_run_code if to == "graph_module" else run_body)}
    return {"forward": body.run} if to == "graph_module" else {}


def _run_code(module: torch.nn.Module, place: Place, values: list[Any]) -> Any:
    return place.body.run(runs_on(module), *values)
