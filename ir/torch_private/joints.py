"""Private names of torch for joint forward and backward graphs: the trace of a module with its backward.

Importing AOTAutograd takes longer than all of purefx, so it is done where a joint graph is asked for.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, cast

import torch
import torch._logging._internal as logs
import torch.fx

__all__ = [
    "TRACING", "Late", "backward_numbered", "calls_wrapped", "is_traced", "register_all", "sympy", "traced_joint",
    "write_artifact",
]  # fmt: skip


def is_traced() -> bool:
    """Return whether the structured trace of torch has a reader.

    Its logger always has a handler, which without a folder takes one record and removes itself; pytest adds a handler to every
    logger, for messages, which a trace does not have.  Neither of them is a reader.

    >>> is_traced()
    False
    """
    handlers, lazy = cast(Any, logs).trace_log.handlers, logs.LazyTraceHandler
    return any(one.root_dir is not None if type(one) is lazy else type(one).__module__ != "_pytest.logging" for one in handlers)


def write_artifact(name: str, text: Callable[[], str]) -> None:
    """Write a text to the structured trace.

    Args:
        name: becomes the name of a file in the pages that ``tlparse`` makes.
        text: is called if the trace has a reader.
    """
    if is_traced():
        logs.trace_structured_artifact(name, "string", text)


TRACING = "torch.export._unlift"
"""The module that imports all that torch imports when it first traces."""


class Late:
    """A module that is imported when one of its attributes is first read.

    >>> fractions = Late("fractions")
    >>> fractions, fractions.Fraction(2, 4)
    (Late('fractions'), Fraction(1, 2))
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __repr__(self) -> str:
        return f"Late({self._module!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks these up on any object
            raise AttributeError(name)
        found = getattr(importlib.import_module(self._module), name)
        self.__dict__[name] = found
        return found


sympy: Any = Late("sympy")
"""What expressions of sizes are made of; torch imports it with the first dynamic size."""


@cache
def register_all() -> None:
    """Import what registers operators for streams, collectives and exporters, which torch does when it first traces."""
    importlib.import_module(TRACING)


# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.


LOCK = threading.RLock()
"""Held while functions of torch are wrapped; other threads that want to wrap them, wait."""


@contextmanager
def calls_wrapped(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Generator[None]:
    """Wrap all calls of modules, in all threads, while this is open.

    Hooks would not do: while torch says that it compiles it does not run those of a module that raises.  Tracers replace
    ``Module.__call__`` themselves, by what calls this.

    Args:
        around: gives what is called with a module and its arguments, made of what torch calls.
    """
    with LOCK:
        call: Any = torch.nn.Module._call_impl
        torch.nn.Module._call_impl = around(call)
        try:
            yield
        finally:
            torch.nn.Module._call_impl = call


@contextmanager
def backward_numbered() -> Generator[None]:
    """Let what autograd runs while this is open be traced with the numbers of the forward operators that it is for.

    AOTAutograd does it for what it traces; ``make_fx`` does not.
    """
    from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks_from_tensors

    asked: Any = torch.autograd  # whose functions call what it imported
    run = asked._engine_run_backward

    def numbered(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        setup_stacktrace_preservation_hooks_from_tensors(outputs)
        return run(outputs, *args, **kwargs)

    with LOCK:
        asked._engine_run_backward = numbered
        try:
            yield
        finally:
            asked._engine_run_backward = run


def traced_joint(module: torch.nn.Module, args: tuple[Any, ...]) -> torch.fx.GraphModule:
    """Return the joint forward and backward graph of a module, with descriptors of its inputs and outputs.

    Args:
        module: takes tensors and returns a tuple of tensors.
        args: fake tensors.
    """
    from torch._export.utils import _compiling_state_context
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with ExitStack() as stack:
        # As torch.export does: modules that ask whether they are traced leave out what depends on values.
        stack.enter_context(_compiling_state_context())
        # Once the stack is left nothing can be compiled of the result, but its graph is whole.
        return aot_export_joint_with_descriptors(stack, module, args).graph_module
