"""The meaning of a module that is called as a user calls it: with pytrees, on a copy, printing to the standard output.

The module of an exported program, from torch, and the one that we lower it to are compared with the meaning of the program.
"""

from __future__ import annotations

import copy
import ctypes
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from purefx.laws.evaluate import Meaning
from purefx.laws.purity import seeded
from purefx.laws.toy import TensorMachine


def called_meaning(module: Any, ep: ExportedProgram, calls: Sequence[Sequence[Any]], *, seed: int = 0) -> Meaning:
    """Return the meaning of a module with the state and the signature of an exported program."""
    module, machine, call = copy.deepcopy(module), TensorMachine(), ep.module_call_graph[0].signature
    assert call is not None
    outputs: list[Any] = []
    inputs: list[Any] = []
    with seeded(seed), torch.no_grad(), stdout() as printed:
        for leaves in calls:
            given = [machine.given(leaf) for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(given, call.in_spec)
            results, spec = pytree.tree_flatten(module(*args, **kwargs))
            assert spec == call.out_spec, f"{spec} is not {call.out_spec}"
            outputs.append(tuple(machine.shown(machine.save(result)) for result in results))
            inputs.append(tuple(machine.shown(machine.save(leaf)) for leaf in given))
    contents = tuple((name, machine.shown(_attribute(module, name))) for name in (*ep.state_dict, *ep.constants))
    return Meaning(tuple(outputs), tuple(inputs), contents, (("emitted", tuple(printed)),))


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


@contextmanager
def stdout() -> Generator[list[str], None, None]:
    """Collect the lines that are written to the standard output, by C++ too."""
    lines: list[str] = []
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            sys.stdout.flush()
            ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            lines.extend(file.read().decode().splitlines())
