"""The root of a lowered program, whose ``forward`` has the signature of the original.

The root binds and checks arguments and builds the result around the body; it annotates errors with their place.

It also creates the classes of inner modules: one for each distinct body, and one for each root.
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
from ..modules.module import MADE, Bound, Lowered, LoweredModule, OtherName, make_class, runs_on
from .arguments import CallPlan, adapted
from .preserved import handling


class _Root(Lowered):
    """Base class of both kinds of root."""

    purefx_plan: CallPlan
    purefx_codes: Codes
    flat_args_adapter: Any = None

    def _run_body(self, leaves: Any) -> Any:
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program like the original module.

        Raises:
            InputError: the nesting of the arguments differs from the exported one.
            InputValueError: an argument has a wrong type, shape, dtype or value.
        """
        if is_tracing():
            return self._trace(args, kwargs)
        plan = self.purefx_plan
        leaves = (
            plan.leaves(args, kwargs)
            if self.flat_args_adapter is None
            else adapted(self, args, kwargs)
        )
        try:
            results = self._run_body(leaves)
        except Exception as error:
            note_from_traceback(error, self.purefx_codes)
            raise
        return plan.result(results)

    def _trace(self, args: Any, kwargs: Any) -> Any:
        # Tracers pass proxies, which cannot be checked: flat inputs, or the original nesting if an outer module calls this one
        # or with concrete_args; one for all inputs if fx traces this module.  Like torch's unflatten, return the flat result.
        try:
            is_one, plan = isinstance(args, torch.fx.Proxy), self.purefx_plan
            leaves = (
                [args[number] for number in range(plan.checks.count)]
                if is_one
                else plan.bound(args, kwargs)
            )
        except InputError:
            leaves = pytree.tree_leaves((args, kwargs))
        results = self._run_body(leaves)
        return results[0] if len(results) == 1 else results

    def process_forward_inputs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the flat inputs of a call, adapted and checked."""
        return list(
            self.purefx_plan.leaves(args, kwargs)
            if self.flat_args_adapter is None
            else adapted(self, args, kwargs)
        )

    @property
    def check_input_constraints(self) -> bool:
        """Whether shapes, dtypes and values of inputs are checked; settable."""
        return not self.purefx_plan.unchecked

    @check_input_constraints.setter
    def check_input_constraints(self, check: bool) -> None:
        self.purefx_plan.unchecked = not check

    @property
    def input_placeholders(self) -> list[torch.fx.Node]:
        """The placeholders of the root's graph."""
        return [node for node in cast("Any", self.graph).nodes if node.op == "placeholder"]

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """Iterate over the modules, as in eager mode; while tracing, over hidden ones too."""
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
        # After .double() or .half(), floating inputs no longer have the exported dtypes.
        before = _floating_dtype(self)
        result = super()._apply(fn, recurse)
        if _floating_dtype(self) is not before:
            self.purefx_plan.checks.floating = True
        return result


def _floating_dtype(module: torch.nn.Module) -> torch.dtype | None:
    every = (
        tensor
        for kind in (parameters_dict, buffers_dict)
        for part in module.modules()
        for tensor in kind(part).values()
    )
    return next(
        (tensor.dtype for tensor in every if tensor is not None and tensor.is_floating_point()),
        None,
    )


class LoweredRoot(_Root, LoweredModule):
    """The root module that ``lower`` returns: a ``torch.fx.GraphModule`` that accepts and returns pytrees."""

    def _run_body(self, leaves: Any) -> Any:
        return self.purefx_place.body.run(self, *leaves)


class LoweredInterpreterRoot(_Root, LoweredInterpreter, UnflattenedModule):
    """The root module that ``lower(..., to="interpreter")`` returns: an ``UnflattenedModule``."""

    def _run_body(self, leaves: Any) -> Any:
        return run_body(self, self.purefx_place, leaves)

    def print_readable(self, *args: Any, **kwargs: Any) -> str:
        """Return the code of all graphs as readable text; print it unless ``print_output`` is False."""
        return UnflattenedModule.print_readable(self, *args, **kwargs)


def root_of(plan: CallPlan, codes: Codes, to: str) -> type[torch.nn.Module]:
    """Return the class of one root, whose ``forward`` has the original signature.

    Args:
        plan: binds and checks its arguments.
        codes: the bodies by code object.
        to: the kind of module, see ``lower``.
    """
    members: dict[str, Any] = {"purefx_codes": codes}
    if plan.signature is not None:
        members["forward"] = forward = _copied(_Root.forward)
        forward.__signature__ = plan.signature  # type: ignore[attr-defined]
    return make_class(LoweredRoot if to == "graph_module" else LoweredInterpreterRoot, members)


def _copied(function: Callable[..., Any]) -> FunctionType:
    assert isinstance(function, FunctionType)
    # A separate code object: dynamo caches compiled code on it, for a limited number of roots.
    code = function.__code__.replace()
    copy = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__doc__ = function.__doc__
    return copy


def class_of(body: Body, to: str) -> type[torch.nn.Module]:
    """Return the class of the modules that run a body.

    Args:
        body: the body.
        to: the kind of module, see ``lower``.
    """
    compiled = to == "graph_module"
    base = LoweredModule if compiled else LoweredInterpreter
    if body.convention is not None:
        run = (
            (lambda module, place, values: place.body.run(runs_on(module), *values))
            if compiled
            else run_body
        )
        return make_class(base, {"forward": handling(run)})
    return make_class(base, {"forward": body.run} if compiled else {})


def bound_class(kind: type[torch.nn.Module], how: type[Bound], body: Body) -> type[torch.nn.Module]:
    """Return the class of the modules that run a body on the state of another module.

    Args:
        kind: the class of modules that run it on their own state.
        how: the mixin for the difference.
        body: the body.
    """
    members: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__, MADE: True}
    if kind.__dict__.get("forward") is body.run and not issubclass(how, OtherName):
        run = body.run
        members["forward"] = lambda self, *args: run(self.__dict__.get(FIRST, self), *args)
    return type(kind.__name__, (how, kind), members)
