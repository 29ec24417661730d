"""A program of 1 operator, and the pass `a_pass` to test on it."""

from __future__ import annotations

import builtins
import copy
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx


def program(tensors: dict[str, torch.Tensor]) -> torch.fx.GraphModule:
    """Return the program as a graph module."""
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    z = graph.placeholder('z')
    clone = graph.create_node("call_function", torch.ops.aten.clone.default, (z,), {}, 'clone')
    graph.output((clone,))
    return torch.fx.GraphModule(root, graph)


def state() -> dict[str, torch.Tensor]:
    """Return the state by name; tied names are one tensor."""
    found: dict[str, torch.Tensor] = {}
    return found


def arguments(call: int) -> list[Any]:
    """Return the arguments of a call."""
    draw = torch.Generator().manual_seed(call)
    return [
        drawn([1], torch.float32, draw),
    ]


GraphModule = torch.fx.GraphModule

def the_pass(module: GraphModule) -> GraphModule:
    from torch.fx.experimental.normalize import NormalizeArgs
    return NormalizeArgs(module).transform()


def a_pass(gm):
    result = the_pass(gm)
    gm = getattr(result, "graph_module", result) if result is not None else gm
    gm.recompile()
    gm.graph.lint()
    last = [*gm.graph.nodes][-1]
    if last.op != "output":
        raise AssertionError(f"{last.format_node()} is after the output, so it never runs")
    return gm


def drawn(sizes: Sequence[int], dtype: torch.dtype, draw: torch.Generator) -> torch.Tensor:
    """Return a random tensor: normally distributed, or of zeros and ones for integers, which are valid indices nearly everywhere."""
    if dtype.is_complex or dtype.is_floating_point:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(list(sizes), generator=draw, dtype=wide).to(dtype)
    return torch.randint(0, 2, list(sizes), generator=draw, dtype=torch.int64).to(dtype)


def attach(root: torch.nn.Module, path: str, value: Any, *, persistent: bool = True) -> None:
    """Register a tensor under a dotted path; create missing modules."""
    *way, name = path.split(".")
    for part in way:
        if part not in dict(root.named_children()):
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    if isinstance(value, torch.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value, persistent=persistent)


def observed(module: torch.nn.Module, arguments: Callable[[int], list[Any]], *, calls: int) -> list[tuple[str, Any]]:
    """Return the results of several calls, the arguments after each call, and the state after the last."""
    seen: list[tuple[str, Any]] = []
    for call in range(calls):
        torch.manual_seed(call)
        args = arguments(call)
        with torch.no_grad():
            seen.append((f"call {call}, results", module(*args)))
        seen.append((f"call {call}, arguments afterwards", args))
    return [*seen, *module.named_parameters(), *module.named_buffers()]


def difference(actual: Any, expected: Any) -> str | None:
    """Return the difference of two values, or None: tensors in dtype, shape and bits, containers in their elements."""
    if isinstance(expected, (list, tuple)) and type(actual) is type(expected) and len(actual) == len(expected):
        found = [difference(mine, theirs) for mine, theirs in zip(actual, expected, strict=True)]
        return next((one for one in found if one is not None), None)
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return None if actual == expected else f"{actual!r} instead of {expected!r}"
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype} of {list(actual.shape)} instead of {expected.dtype} of {list(expected.shape)}"
    if torch.allclose(actual, expected, rtol=0, atol=0, equal_nan=True):
        return None
    wide = torch.complex128 if actual.is_complex() else torch.float64
    return f"up to {(actual.to(wide) - expected.to(wide)).abs().max().item():.6g}"


def differences(actual: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> list[str]:
    """Return a line for each difference."""
    there = dict(actual)
    found = [(name, difference(there[name], value) if name in there else "missing") for name, value in expected]
    return [f"{name}: {message}" for name, message in found if message is not None]


if __name__ == "__main__":
    module = program(state())
    try:
        expected = observed(copy.deepcopy(module), arguments, calls=3)
    except Exception as error:
        print(f"the program itself raises {type(error).__name__}: {error}; change arguments()")
        sys.exit(2)
    rewritten = a_pass(copy.deepcopy(module))
    try:
        actual = observed(rewritten, arguments, calls=3)
    except Exception as error:
        print(f"the transformed program raises {type(error).__name__}: {error}")
        sys.exit(1)
    found = differences(actual, expected)
    print("\n".join(found) or "no difference")
    sys.exit(bool(found))
