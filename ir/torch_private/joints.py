"""Private names of torch for joint forward and backward graphs: the trace of a module with its backward.

AOTAutograd is imported with the first joint graph, because its import takes longer than that of purefx.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
import torch._logging._internal as logs
import torch.fx
from attrs import define

from ..forks import new_lock, undone_by

__all__ = [
    "TRACING", "Late", "backward_numbered", "calls_wrapped", "generator_key", "is_freshly_seeded", "is_traced",
    "random_state_kept", "register_all", "sympy", "traced_joint", "write_artifact",
]  # fmt: skip


def is_traced() -> bool:
    """Return whether the structured trace of torch has a reader.

    Two handlers do not count as readers: the logger's own, which without a folder removes itself at the first record, and
    pytest's, which it adds to every logger for messages.

    >>> is_traced()
    False
    """
    handlers, lazy = cast(Any, logs).trace_log.handlers, logs.LazyTraceHandler
    return any(
        one.root_dir is not None if type(one) is lazy else type(one).__module__ != "_pytest.logging"
        for one in handlers
    )


def write_artifact(name: str, text: Callable[[], str]) -> None:
    """Write a text to the structured trace.

    Args:
        name: the file name in the pages of ``tlparse``.
        text: called if the trace has a reader.
    """
    if is_traced():
        logs.trace_structured_artifact(name, "string", text)


TRACING = "torch.export._unlift"
"""The module with all imports of torch's first trace, and with the hooks that check the inputs of ``ep.module()``."""


class Late:
    """A module that is imported when one of its attributes is first read.

    >>> fractions = Late("fractions")
    >>> fractions.Fraction(2, 4)
    Fraction(1, 2)
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks these up on any object
            raise AttributeError(name)
        found = self.__dict__[name] = getattr(importlib.import_module(self._module), name)
        return found


sympy: Any = Late("sympy")
"""The library of size expressions; torch imports it with the first dynamic size."""


def register_all() -> None:
    """Import the modules that register operators for streams, collectives and exporters, as torch does at its first trace."""
    importlib.import_module(TRACING)


# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.


LOCK = new_lock()
"""Held while functions of torch are wrapped, so that other threads wait before they wrap them."""


@contextmanager
def assigned(owner: Any, name: str, value: Any) -> Generator[None]:
    """Give an attribute another value in the context.

    >>> from types import SimpleNamespace
    >>> owner = SimpleNamespace(size=1)
    >>> with assigned(owner, "size", 2):
    ...     owner.size
    2
    >>> owner.size
    1
    """
    before = vars(owner).get(name, owner)

    def undo() -> None:
        if before is not owner:
            setattr(owner, name, before)
        elif name in vars(owner):
            delattr(owner, name)  # one of its class appears again

    with undone_by(undo):
        setattr(owner, name, value)
        yield


@contextmanager
def calls_wrapped(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Generator[None]:
    """Wrap all calls of modules, in all threads, in the context.

    Hooks do not suffice: while torch compiles, it does not run the hooks of a module that raises.  Tracers replace
    ``Module.__call__`` by functions that call the wrapped one.

    Args:
        around: maps the function that torch calls with a module and its arguments to its replacement.
    """
    with LOCK, assigned(torch.nn.Module, "_call_impl", around(torch.nn.Module._call_impl)):
        yield


def generator_key(generator: torch.Generator) -> int:
    """Return a number that is equal for objects with one state; torch makes a new object when an operator returns it."""
    return cast(int, cast(Any, generator)._cdata)


def is_freshly_seeded(generator: torch.Generator) -> bool:
    """Return whether a generator has drawn nothing since its seed was set.

    >>> is_freshly_seeded(torch.Generator().manual_seed(3))
    True
    """
    fresh = generator.clone_state().manual_seed(generator.initial_seed())
    return torch.equal(fresh.get_state(), generator.get_state())


@define(eq=False)
class _Watched:
    """Stands for the default generator of the CPU, and asks before it sets the state."""

    is_kept: Callable[[str], bool]

    def __getattr__(self, name: str) -> Any:
        method = getattr(torch.default_generator, name)
        if name not in SETTERS:
            return method

        def guarded(*args: Any) -> Any:
            if not self.is_kept(name):
                return method(*args)
            return torch.default_generator if name == "manual_seed" else torch.initial_seed()

        return guarded


SETTERS = frozenset({"manual_seed", "seed", "set_state"})
"""The methods of a generator that set its state."""


@contextmanager
def random_state_kept(is_kept: Callable[[str], bool]) -> Generator[None]:
    """Ask, in the context, before a function sets the state of a default generator.

    The functions are ``torch.manual_seed`` under any name, ``fork_rng``, ``set_rng_state``, and those of devices.  Methods of
    ``torch.default_generator`` cannot be replaced.

    Args:
        is_kept: called with the name of the method or of the device; if it returns True, the state is not set.

    >>> with random_state_kept(lambda name: True):
    ...     before = torch.get_rng_state()
    ...     _ = torch.manual_seed(1)
    ...     torch.equal(before, torch.get_rng_state())
    True
    """

    def guarded(device: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def later(*args: Any, **kwargs: Any) -> None:
            if not is_kept(device):
                call(*args, **kwargs)

        return later

    with LOCK, ExitStack() as stack:
        stack.enter_context(assigned(torch.random, "default_generator", _Watched(is_kept)))
        # The functions of these devices wait with all changes of the state until the device is used.
        for device in (torch.cuda, torch.xpu):
            home: Any = device.random
            call = guarded(device.__name__, home._lazy_call)
            stack.enter_context(assigned(home, "_lazy_call", call))
        yield


@contextmanager
def backward_numbered() -> Generator[None]:
    """Give the nodes that autograd traces in the context the numbers of their forward operators.

    AOTAutograd does so for its traces; ``make_fx`` does not.
    """
    from torch._functorch._aot_autograd.logging_utils import (
        setup_stacktrace_preservation_hooks_from_tensors,
    )

    autograd: Any = torch.autograd  # its functions call the names that it imported
    run = autograd._engine_run_backward

    def numbered(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        setup_stacktrace_preservation_hooks_from_tensors(outputs)
        return run(outputs, *args, **kwargs)

    with LOCK, assigned(autograd, "_engine_run_backward", numbered):
        yield


def traced_joint(module: torch.nn.Module, args: tuple[Any, ...]) -> torch.fx.GraphModule:
    """Return the joint forward and backward graph of a module, with descriptors of its inputs and outputs.

    Args:
        module: takes tensors and returns a tuple of tensors.
        args: fake tensors.
    """
    from torch._export.utils import _compiling_state_context
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    # As in torch.export: modules that check for tracing skip branches on values.
    with _compiling_state_context(), ExitStack() as stack:
        # After the stack closes, the result can no longer be compiled, but its graph is complete.
        return aot_export_joint_with_descriptors(stack, module, args).graph_module
