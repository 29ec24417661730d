"""Compositions of import, transform and lower: ``capture`` a module, ``unflatten`` an exported program, ``to_ep`` a program."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from attrs import evolve

from purefx.ir.calls.uncertain_names import KNOWN_OBJECTS, LAST_NAME
from purefx.ir.effects.declared import Effects
from purefx.ir.errors import CaptureError
from purefx.ir.forks import new_lock
from purefx.ir.importing import import_ep
from purefx.ir.persistent import grouped
from purefx.ir.program import Program
from purefx.ir.torch_private import (
    ENTER_AUTOCAST,
    traced_joint,
)
from purefx.ir.validation import EXPORTED, MODULE, a_program, call_arguments
from purefx.ir.verify import check
from purefx.lowering import lower
from purefx.lowering.to_ep import DIALECTS, make_ep
from purefx.transforms import functionalize, inline, lift_state, regions_to_bodies, transform

from ._assigned import Attributes
from ._dropped import Dropped

if TYPE_CHECKING:
    from torch.export import ExportedProgram, FlatArgsAdapter, UnflattenedModule

LOCK = new_lock()
"""Held while the exporter runs; reentrant, for modules that capture another one."""

NOT_THE_USERS = (
    f"{Path(torch.__file__).parent}{os.sep}",
    str(Path(__file__)),
    str(Path(__file__).with_name("_joint.py")),
    str(Path(__file__).with_name("_assigned.py")),
    str(Path(__file__).with_name("_dropped.py")),
    f"{Path(traced_joint.__code__.co_filename).parents[1]}{os.sep}",
    "<",
)
"""Prefixes of files that are not the user's code."""
PYTHON = Path(os.__file__).parent
"""The folder of the standard library: its files are not the user's code, but folders in it can be packages of the user."""


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
    """Export a module and import the exported program.

    Args:
        module: the module to export; it is not changed.
        args: positional arguments of an example call.
        kwargs: keyword arguments of the call.
        dynamic_shapes: the sizes that may change, as in ``torch.export.export``.
        strict: trace Python bytecode with Dynamo, instead of running the module.
        preserve_module_call_signature: paths of modules whose call signature is kept.
        effects: the effects of operators of other libraries, as in ``import_ep``.

    Warns:
        CaptureWarning: the exported program drops something that the module does: a custom backward, a reentrant checkpoint,
            a hook on a tensor, an assignment of a tensor that cannot be a write of a buffer, a seed or state of a random
            number generator.  With ``strict`` this is not detected.

    Returns:
        A flat program, as from ``import_ep``, except that a module with several names is one object.  Any number of threads
        may call this; the exports run one after the other.

    Raises:
        CaptureError: the exporter refuses the module; the message names the line, and the exporter's error is its cause.
        InvalidProgram: the exporter returned an inconsistent program.
        UnsupportedProgram: it cannot be represented faithfully.
        TypeError: ``module`` is not a module, or ``args`` is not a tuple.

    >>> import torch, purefx as px
    >>> px.capture(torch.nn.ReLU(), (torch.ones(2),)).main.nodes[0].do.name
    'aten.relu.default'
    """
    MODULE.check(module, "capture")
    call_arguments(args, kwargs, "capture")
    with LOCK:
        # In the lock: another thread may be running the same module.
        dropped, before = Dropped(module), Attributes(module)
        try:
            with ExitStack() as stack:
                stack.callback(before.restore)
                if not strict:
                    stack.enter_context(dropped.watching())
                exported = torch.export.export(
                    module,
                    args,
                    dict(kwargs) if kwargs is not None else None,
                    dynamic_shapes=dynamic_shapes,
                    strict=strict,
                    preserve_module_call_signature=tuple(preserve_module_call_signature),
                )
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(capture_message(module, error)) from error
    program = import_ep(exported, effects=effects)
    dropped.warn(program)
    return _with_objects(program, module)


def _with_objects(program: Program, module: torch.nn.Module) -> Program:
    # The exporter records paths; only the module knows which paths are one object.
    paths = grouped(
        [(id(part), path) for path, part in module.named_modules(remove_duplicate=False)]
    )
    shared = [found for found in paths.values() if len(found) > 1]
    if not shared:
        certain = program.facts - {LAST_NAME}
        return program.evolve(facts=certain) if certain != program.facts else program
    known = {each.path: each for each in program.modules}
    for cell, found in enumerate(shared):
        type_name = next(
            (known[path].type_name for path in found if path in known and known[path].type_name),
            None,
        )
        for path in [path for path in found if path in known]:
            known[path] = evolve(
                known[path], cell=cell, type_name=type_name or known[path].type_name
            )
    facts = program.facts | {KNOWN_OBJECTS} if LAST_NAME in program.facts else program.facts
    return program.evolve(modules=tuple(known.values()), facts=facts)


def capture_message(
    module: torch.nn.Module, error: Exception, refuses: str = "torch.export cannot export"
) -> str:
    """Return the error message for a module that a tracer refuses, with the user's line.

    Args:
        module: the traced module.
        error: the error of the tracer.
        refuses: the beginning of the message.

    >>> print(capture_message(torch.nn.ReLU(), ValueError("no")))
    torch.export cannot export ReLU: ValueError: no
    """
    place = next(_lines(error), None)
    message = str(error).strip() or type(error).__name__
    head = f"{refuses} {type(module).__qualname__}"
    if place is None:
        return f"{head}: {type(error).__name__}: {message}"
    file, number, function = place
    line = linecache.getline(file, number).strip()
    return f'{head}\n  File "{file}", line {number}, in {function}\n    {line}\n{type(error).__name__}: {message}'


def _lines(error: BaseException) -> Iterator[tuple[str, int, str]]:
    # The user's innermost line: that of the error, or the one that Dynamo was tracing.
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        for frames in (
            getattr(found, "real_stack", None) or (),
            traceback.extract_tb(found.__traceback__),
        ):
            lines = [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(frames)]
            yield from [
                line
                for line in lines
                if not line[0].startswith(NOT_THE_USERS) and Path(line[0]).parent != PYTHON
            ]
        found = found.__cause__ or found.__context__


def unflatten(
    module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
) -> UnflattenedModule:
    """Return a module with the hierarchy and the call signature of the exported module.

    Args:
        module: the exported program; it is not changed or kept.
        flat_args_adapter: converts arguments with another nesting to that of the export.

    Returns:
        An ``UnflattenedModule`` of ``InterpreterModule``s. ``lower`` makes faster ones of generated code, and has more options.

    Raises:
        InvalidProgram: the exported program's graph and signature disagree.
        UnsupportedProgram: it cannot be represented or run faithfully; the message names the cause.
        TypeError: it is not an exported program, or the adapter is not an adapter.

    >>> import torch, purefx as px
    >>> ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    >>> px.unflatten(ep)(torch.ones(1, 2)).shape
    torch.Size([1, 1])
    """
    EXPORTED.check(module, "unflatten")
    lowered = lower(
        transform(import_ep(module)), to="interpreter", flat_args_adapter=flat_args_adapter
    )
    return cast("UnflattenedModule", lowered)


def to_ep(
    program: Program,
    *,
    state: Literal["copy", "share"] = "copy",
    dialect: Literal["TRAINING", "ATEN"] | None = None,
    example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> ExportedProgram:
    """Convert a program to an exported program, which saves, loads, decomposes, compiles and exports like any other.

    Module calls are inlined (``inline``), reads of state become inputs (``lift_state``), and last writes to state and inputs
    become outputs (``functionalize``); other writes stay in place.  Nodes keep their names, module stacks, stack traces and
    custom meta; nodes from rewrites get fake values by running their operators on fake arguments.

    Args:
        program: at any stage; it is not changed.
        state: ``"copy"`` copies the tensors of the program, ``"share"`` shares them, so that writes to one are writes to the
            other. Fake values, and the symbols of dynamic sizes, are shared either way.
        dialect: the dialect of torch that the result declares. None is ``"TRAINING"``, as from ``torch.export.export``, or
            ``"ATEN"`` if it has effect tokens; pass ``"ATEN"`` for a decomposed program.
        example_inputs: ``(args, kwargs)`` to keep in it. None makes zeros of the exported sizes: a program does not keep the
            inputs of its export, and torch enforces guards only if a program has them.

    Returns:
        An exported program that passes torch's verifier. ``import_ep`` returns the flattened program, up to names.

    Raises:
        InvalidProgram: the program breaks invariants; the message lists all violations.
        UnsupportedProgram: an exported program cannot represent this one; the message names the cause.
        InputError: the example inputs are structured differently from the program's arguments.
        ValueError: an option has another value.
        TypeError: ``program`` is not a Program.

    >>> import torch, purefx as px
    >>> program = px.transform(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))))
    >>> px.to_ep(program).graph_signature.parameters
    ('weight', 'bias')
    """
    a_program(program, "to_ep")
    if state not in ("copy", "share"):
        raise ValueError(f'state={state!r}: it is "copy" or "share"')
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f'dialect={dialect!r}: it is None, "TRAINING" or "ATEN"')
    check(program)
    flat = inline(program)
    if any(node.target is ENTER_AUTOCAST for _, node in flat.nodes()):
        flat = regions_to_bodies(flat)  # exported programs have no markers of autocast
    flat = functionalize(lift_state(flat))
    return make_ep(flat, state=state, dialect=dialect, example_inputs=example_inputs)
