"""The meaning of a module that is called as a user calls it: with pytrees, printing to the standard output.

``Direct`` runs the fx graph of an exported program with the interpreter of torch.  Nothing here reads programs of purefx.
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
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from purefx.laws.evaluate import Meaning
from purefx.laws.purity import seeded
from purefx.laws.toy import TensorMachine


class Direct:
    """The graph of an exported program as a module: it applies the mutations of the signature after each call."""

    def __init__(self, ep: ExportedProgram) -> None:
        self.ep = ep
        state: dict[str, Any] = {**ep.state_dict, **ep.constants}
        self.state = copy.deepcopy({name: value.detach() for name, value in state.items()})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        signature, call = self.ep.graph_signature, self.ep.module_call_graph[0].signature
        assert call is not None
        leaves = iter(pytree.tree_leaves((args, kwargs)))
        given: dict[str, Any] = {}
        for spec in signature.input_specs:
            is_token = spec.kind is InputKind.TOKEN
            is_user = spec.kind is InputKind.USER_INPUT
            given[spec.arg.name] = (
                None if is_token else next(leaves) if is_user else self.state[str(spec.target)]
            )
        results = torch.fx.Interpreter(self.ep.graph_module).run(*given.values())
        results = [
            result.clone() if isinstance(result, torch.Tensor) else result for result in results
        ]
        for spec, result in zip(signature.output_specs, results, strict=True):
            if spec.kind is OutputKind.BUFFER_MUTATION:
                self.state[str(spec.target)].copy_(result)
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                given[str(spec.target)].copy_(result)
        pairs = zip(signature.output_specs, results, strict=True)
        return pytree.tree_unflatten(
            [each for spec, each in pairs if spec.kind is OutputKind.USER_OUTPUT], call.out_spec
        )


def called_meaning(
    module: Any, ep: ExportedProgram, calls: Sequence[Sequence[Any]], *, seed: int = 0
) -> Meaning:
    """Return the meaning of a module with the state and the signature of an exported program."""
    machine, call = TensorMachine(), ep.module_call_graph[0].signature
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
    state = (
        module.state
        if isinstance(module, Direct)
        else {name: _attribute(module, name) for name in (*ep.state_dict, *ep.constants)}
    )
    contents = tuple((name, machine.shown(value)) for name, value in state.items())
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
