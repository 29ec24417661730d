"""``capture``: a module becomes a program, in one call.

One idea: it is ``import_ep(torch.export.export(...))``, one at a time in a process, because the exporter patches torch while it
runs and two at once break each other; and what goes wrong is told with the line of the module that it goes wrong at.
"""

from __future__ import annotations

import linecache
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from purefx.ir.effects.declared import Effects
from purefx.ir.errors import CaptureError
from purefx.ir.importing import import_ep
from purefx.ir.program import Program

__all__ = ["capture"]

LOCK = threading.RLock()
"""Held while the exporter runs; a module that captures another one while it is captured does not wait for itself."""

NOT_THE_USERS = (f"{Path(torch.__file__).parent}{os.sep}", str(Path(__file__)), "<")
"""Where the code is that is not the user's."""


def capture(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
    effects: Mapping[Callable[..., Any], Effects] | None = None,
) -> Program:
    """Export a module and import what the exporter made of it.

    Args:
        module: what to export; it is not changed.
        args: positional arguments of an example call.
        kwargs: keyword arguments of it.
        dynamic_shapes: which sizes may change, as ``torch.export.export`` takes them.
        strict: trace Python bytecode with Dynamo, instead of running the module.
        preserve_module_call_signature: paths of modules whose call signature is kept.
        effects: what operators of other libraries do, as ``import_ep`` takes it.

    Returns:
        A flat program, as ``import_ep`` gives it.  Any number of threads may call this; they wait for one another.

    Raises:
        CaptureError: the exporter refuses the module; the message names the line, and the exporter's own error is its cause.
        InvalidProgram: what the exporter made is nonsense.
        UnsupportedProgram: it has something that can not be represented faithfully.
        TypeError: ``module`` is no module, or ``args`` is no tuple.

    >>> import torch, purefx as px
    >>> px.capture(torch.nn.ReLU(), (torch.ones(2),)).main.nodes[0].do.name
    'aten.relu.default'
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"capture takes a torch.nn.Module, not a {type(module).__name__}")
    if not isinstance(args, tuple):
        raise TypeError(f"args is the tuple of the positional arguments, not a {type(args).__name__}; for one, write (x,)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs maps names to arguments, and is no {type(kwargs).__name__}; options of capture go by name")
    with LOCK:
        try:
            exported = torch.export.export(
                module,
                args,
                dict(kwargs) if kwargs is not None else None,
                dynamic_shapes=dynamic_shapes,
                strict=strict,
                preserve_module_call_signature=tuple(preserve_module_call_signature),
            )
        except Exception as error:
            raise CaptureError(_message(module, error)) from error
        return import_ep(exported, effects=effects)


def _message(module: torch.nn.Module, error: Exception) -> str:
    place = next(_lines(error), None)
    said = str(error).strip() or type(error).__name__
    head = f"torch.export can not export {type(module).__qualname__}"
    if place is None:
        return f"{head}: {type(error).__name__}: {said}"
    file, number, function = place
    line = linecache.getline(file, number).strip()
    return f'{head}\n  File "{file}", line {number}, in {function}\n    {line}\n{type(error).__name__}: {said}'


def _lines(error: BaseException) -> Iterator[tuple[str, int, str]]:
    # The innermost line of the user's: where the error was raised, or what Dynamo says that it was tracing.
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        raised = [(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(found.__traceback__)]
        traced = [(frame.filename, frame.lineno or 0, frame.name) for frame in getattr(found, "real_stack", None) or ()]
        for frames in (traced, raised):
            yield from [frame for frame in reversed(frames) if not frame[0].startswith(NOT_THE_USERS)]
        found = found.__cause__ or found.__context__
