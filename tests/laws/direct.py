"""What an exported program means when its fx graph is run as it is, and what a lowered module means: no purefx inside.

The graph's own operators run one after the other on copies of the state, then the signature's mutations are
applied; so a mistake in reading or in evaluating programs cannot hide.  It compares nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from purefx.laws.evaluate import Meaning
from purefx.laws.purity import seeded

hop: Any = torch.ops.higher_order


def shown(value: Any) -> Any:
    """Return dtype, shape and bytes of a tensor; type and text of a constant."""
    if not isinstance(value, torch.Tensor):
        return (type(value).__name__, repr(value))
    plain = value.detach().reshape(-1).clone(memory_format=torch.contiguous_format)
    return (str(value.dtype), tuple(value.shape), bytes(plain.view(torch.uint8).tolist()) if plain.numel() else b"")


def copied(leaf: Any) -> Any:
    """Return a copy of a tensor; another leaf as it is."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def copied_state(ep: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return copies of state and constants that share memory as the originals do."""
    memories: dict[int, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    state: dict[str, Any] = {**ep.state_dict, **ep.constants}
    for name, value in state.items():
        storage = value.untyped_storage()
        count = storage.nbytes() // value.element_size()
        whole = memories.setdefault(storage.data_ptr(), torch.as_strided(value.detach(), (count,), (1,), 0).clone())
        found[name] = torch.as_strided(whole, value.shape, value.stride(), value.storage_offset())
    return found


def direct_meaning(ep: ExportedProgram, calls: Sequence[Sequence[Any]], *, seed: int = 0) -> Meaning:
    """Return the meaning of an exported program by running its graph."""
    state, printed = copied_state(ep), list[str]()
    outputs: list[Any] = []
    inputs: list[Any] = []
    with seeded(seed), torch.no_grad():
        for leaves in calls:
            given = [copied(leaf) for leaf in leaves]
            outputs.append(_call(ep, state, given, printed))
            inputs.append(tuple(shown(leaf) for leaf in given))
    contents = tuple((name, shown(value)) for name, value in state.items())
    return Meaning(tuple(outputs), tuple(inputs), contents, (("emitted", tuple(printed)),))


def _call(ep: ExportedProgram, state: dict[str, torch.Tensor], given: list[Any], printed: list[str]) -> tuple[Any, ...]:
    rest = iter(given)
    values: list[Any] = []
    for spec in ep.graph_signature.input_specs:
        if spec.kind in (InputKind.USER_INPUT, InputKind.TOKEN):
            values.append(None if spec.kind is InputKind.TOKEN else next(rest))
        else:
            values.append(state[str(spec.target)])
    results = [copied(result) for result in _run(ep.graph_module, values, printed)]
    named = {spec.arg.name: value for spec, value in zip(ep.graph_signature.input_specs, values, strict=True)}
    for spec, result in zip(ep.graph_signature.output_specs, results, strict=True):
        if spec.kind is OutputKind.BUFFER_MUTATION:
            state[str(spec.target)].copy_(result)
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            named[str(spec.target)].copy_(result)
    pairs = zip(ep.graph_signature.output_specs, results, strict=True)
    return tuple(shown(result) for spec, result in pairs if spec.kind is OutputKind.USER_OUTPUT)


def _run(module: torch.fx.GraphModule, given: Sequence[Any], printed: list[str]) -> Any:
    known: dict[torch.fx.Node, Any] = {}
    rest = iter(given)
    for node in module.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
        match node.op:
            case "placeholder":
                known[node] = next(rest)
            case "get_attr":
                known[node] = _body(getattr(module, node.target), printed)
            case "output":
                return args[0]
            case _:
                known[node] = _apply(node.target, args, kwargs, printed)
    raise AssertionError("the graph gives nothing back")


def _body(module: torch.fx.GraphModule, printed: list[str]) -> Callable[..., Any]:
    return lambda *values: _run(module, values, printed)


def _apply(target: Any, args: Any, kwargs: Any, printed: list[str]) -> Any:
    if target is hop.cond:
        return (args[1] if args[0] else args[2])(*args[3])
    if target is hop.wrap_with_set_grad_enabled:
        return args[1](*args[2:])
    if target is hop.with_effects:
        return (None, _apply(args[1], args[2:], kwargs, printed))
    if target is torch.ops.aten._print.default:
        return printed.append(args[0])
    return target(*args, **kwargs)


def lowered_meaning(module: Any, ep: ExportedProgram, calls: Sequence[Sequence[Any]], *, seed: int = 0) -> Meaning:
    """Return the meaning of a module by calling it with pytrees; what it prints is what ``aten._print`` wrote."""
    call = ep.module_call_graph[0].signature
    assert call is not None
    outputs: list[Any] = []
    inputs: list[Any] = []
    with seeded(seed), torch.no_grad(), stdout() as printed:
        for leaves in calls:
            given = [copied(leaf) for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(given, call.in_spec)
            results, spec = pytree.tree_flatten(module(*args, **kwargs))
            assert spec == call.out_spec, f"{spec} is not {call.out_spec}"
            outputs.append(tuple(map(shown, results)))
            inputs.append(tuple(map(shown, given)))
    contents = tuple((name, shown(_attribute(module, name))) for name in (*ep.state_dict, *ep.constants))
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
