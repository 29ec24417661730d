"""The root of a lowered program: its ``forward`` has the signature of the original.

Binding, checks and pytrees are around the body, not in it; an error inside is annotated with its place.

The classes of inner modules are made here too: one for each distinct body, and one for each root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, cast

import torch
from torch.export.unflatten import UnflattenedModule

from ...ir.errors import InputError
from ...ir.names import FROM_ROOT
from ...ir.torch_private import buffers_dict, is_tracing, parameters_dict, pytree
from ..code.compiled import Body, Codes
from ..modules.context import FIRST
from ..modules.interpreter import LoweredInterpreter, note_from_traceback, run_body
from ..modules.module import MADE, Bound, Lowered, LoweredModule, OtherName, Place, make_class, runs_on
from .arguments import CallPlan, adapted
from .preserved import handling

__all__ = ["LoweredInterpreterRoot", "LoweredRoot", "bound_class", "class_of", "root_class", "root_of"]


class _Root(Lowered):
    """What both kinds of root share."""

    purefx_plan: CallPlan
    purefx_codes: Codes
    flat_args_adapter: Any = None

    def _run_body(self, leaves: Any) -> Any:
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program as the original module.

        Raises:
            InputError: the arguments are structured differently from the exported ones.
            InputValueError: an argument has a wrong type, shape, dtype or value.
        """
        if is_tracing():
            return self._trace(*args, **kwargs)
        plan = self.purefx_plan
        leaves = plan.leaves(args, kwargs) if self.flat_args_adapter is None else adapted(self, args, kwargs)
        try:
            results = self._run_body(leaves)
        except Exception as error:
            note_from_traceback(error, self.purefx_codes)
            raise
        return plan.result(results)

    def _trace(self, *args: Any, **kwargs: Any) -> Any:
        # A tracer returns proxies, which cannot be checked: for the flat inputs, or nested as the original's arguments where a
        # module around calls this one or concrete_args say so.  As in torch's unflatten, it takes a flat result.
        try:
            leaves = self.purefx_plan.bound(args, kwargs)
        except InputError:
            leaves = pytree.tree_leaves((args, kwargs))
        results = self._run_body(leaves)
        return results[0] if len(results) == 1 else results

    def process_forward_inputs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the flat inputs of a call, adapted and checked."""
        return list(self.purefx_plan.leaves(args, kwargs) if self.flat_args_adapter is None else adapted(self, args, kwargs))

    @property
    def check_input_constraints(self) -> bool:
        """Whether shapes, dtypes and values of inputs are checked; it can be set."""
        return not self.purefx_plan.unchecked

    @check_input_constraints.setter
    def check_input_constraints(self, check: bool) -> None:
        self.purefx_plan.unchecked = not check

    @property
    def input_placeholders(self) -> list[torch.fx.Node]:
        """The placeholders of the root's graph."""
        return [node for node in cast("Any", self.graph).nodes if node.op == "placeholder"]

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """Iterate over the modules, as eager has them."""
        yield from super().named_modules(*args, **kwargs)
        if is_tracing():
            yield from self.purefx_hidden()

    def purefx_hidden(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Iterate over the modules that are not children: later calls of one module, and bodies of operators."""
        for path, module in list(super().named_modules()):
            for name, found in list(module.__dict__.items()):
                if isinstance(found, Lowered) and name not in (FROM_ROOT, FIRST):
                    yield f"{path}.{name}" if path else name, found

    def _apply(self, fn: Any, recurse: bool = True) -> Any:  # noqa: FBT001, FBT002  torch's signature
        # After .double() or .half() the exported dtypes of floating inputs no longer hold.
        before = _floating_dtype(self)
        result = super()._apply(fn, recurse)
        if _floating_dtype(self) is not before:
            self.purefx_plan.checks.floating = True
        return result


def _floating_dtype(module: torch.nn.Module) -> torch.dtype | None:
    parts = list(module.modules())
    for registered in (parameters_dict, buffers_dict):
        for part in parts:
            for tensor in registered(part).values():
                if tensor is not None and tensor.is_floating_point():
                    return tensor.dtype
    return None


class LoweredRoot(_Root, LoweredModule):
    """The root module made by ``lower``: a ``torch.fx.GraphModule`` that accepts and returns pytrees."""

    def _run_body(self, leaves: Any) -> Any:
        return self.purefx_place.body.run(self, *leaves)


class LoweredInterpreterRoot(_Root, LoweredInterpreter, UnflattenedModule):
    """The root module made by ``lower(..., to="interpreter")``: an ``UnflattenedModule``."""

    def _run_body(self, leaves: Any) -> Any:
        return run_body(self, self.purefx_place, leaves)

    def print_readable(self, *args: Any, **kwargs: Any) -> str:
        """Return the code of all graphs as readable text; printed as well, unless ``print_output`` is False."""
        return UnflattenedModule.print_readable(self, *args, **kwargs)


def root_class(base: type[torch.nn.Module], plan: CallPlan, codes: Codes) -> type[torch.nn.Module]:
    """Return the class of one root, whose ``forward`` has the signature of the original's."""
    members: dict[str, Any] = {"purefx_codes": codes}
    if plan.signature is not None:
        members["forward"] = forward = _copied(_Root.forward)
        forward.__signature__ = plan.signature  # type: ignore[attr-defined]
    return make_class(base, members)


def _copied(function: Callable[..., Any]) -> FunctionType:
    assert isinstance(function, FunctionType)
    # Code of its own: dynamo keeps what it compiled with the code object, and not for any number of roots.
    code = function.__code__.replace()
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__doc__ = function.__doc__
    return copy


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
        return {"forward": handling(_run_code if to == "graph_module" else run_body)}
    return {"forward": body.run} if to == "graph_module" else {}


def _run_code(module: torch.nn.Module, place: Place, values: list[Any]) -> Any:
    return place.body.run(runs_on(module), *values)
