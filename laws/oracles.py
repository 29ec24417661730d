"""Compare a lowered module with the eager one: structure, behaviour over several calls, gradients.

Every oracle returns the differences and their places as text.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import torch

from ..ir.calls.parts import original, part_names
from ..ir.persistent import grouped
from ..ir.program import Program
from ..ir.state import State, is_strided
from ..ir.tensors import tensors_among
from ..ir.torch_private import pytree, storage_key
from .evaluate import Contents, Tolerance, differences, evaluate
from .purity import seeded
from .toy import TensorMachine


class GradientMachine(TensorMachine):
    """Runs the operators of torch under autograd; use it for one call.

    >>> machine = GradientMachine()
    >>> machine.given(torch.ones(2)).requires_grad, machine.given(torch.ones(2, dtype=torch.int64)).requires_grad
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves: dict[str, torch.Tensor] = {}
        """The tensors with gradients, by their names in messages."""
        self.count = 0

    def load(self, state: State) -> None:
        """Copy the tensors with the same ``requires_grad``."""
        super().load(state)
        for name, *_ in state.by_cell.values():
            value = self.slots[name]
            if isinstance(value, torch.Tensor) and state[name].value.requires_grad:
                self.leaves[name] = value.requires_grad_()

    def given(self, leaf: Any) -> Any:
        """Return a copy of a tensor, with ``requires_grad`` if possible; other leaves unchanged."""
        name, self.count = f"input {self.count}", self.count + 1
        if not isinstance(leaf, torch.Tensor) or not (
            leaf.is_floating_point() or leaf.is_complex()
        ):
            return super().given(leaf)
        self.leaves[name] = leaf.detach().clone().requires_grad_()
        return self.leaves[name].clone()

    def save(self, value: Any) -> Any:
        """Return a differentiable copy."""
        return value.clone() if isinstance(value, torch.Tensor) else value


def tensor_gradients(program: Program, calls: Sequence[Sequence[Any]]) -> Mapping[str, Any]:
    """Return the gradients of all outputs, for each parameter and input; None if no output depends on it.

    Args:
        program: a program of real operators at any stage, on the CPU; its state is not changed.
        calls: the leaves of the user inputs, for each call; each call starts with the original state.

    >>> from purefx.ir.importing import import_ep
    >>> linear = torch.nn.Linear(2, 1, bias=False)
    >>> program = import_ep(torch.export.export(linear, (torch.ones(1, 2),)))
    >>> tensor_gradients(program, [(torch.tensor([[3.0, 5.0]]),)])["call 0, weight"]
    tensor([[3., 5.]])
    """
    found: dict[str, Any] = {}
    for number, leaves in enumerate(calls):
        machine = GradientMachine()
        # A program may write to values that are needed to go back.
        with seeded(0), torch.enable_grad(), torch.autograd.graph.allow_mutation_on_saved_tensors():
            meaning = evaluate(program, [leaves], machine)
            values = [
                shown.tensor
                for shown in (*meaning.outputs[0], *meaning.inputs[0])
                if type(shown) is Contents
            ]
            parts = [_weighted(value) for value in values if value.requires_grad]
            wanted = [leaf for leaf in machine.leaves.values() if parts]
            grads = (
                torch.autograd.grad(parts, wanted, allow_unused=True)
                if wanted
                else [None] * len(machine.leaves)
            )
        names = frozenset(
            part_names(program)
        )  # parameters of a split program keep their original names
        found.update(
            (f"call {number}, {original(name, names)}", grad)
            for name, grad in zip(machine.leaves, grads, strict=True)
        )
    return found


class _Unsaved(TensorMachine):
    """Shows results themselves in place of copies."""

    def save(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def write(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy contents into a tensor that may share memory with them."""
        target.copy_(saved.clone())


def memory_differences(
    given: Program, expected: Program, calls: Sequence[Sequence[Any]]
) -> list[str]:
    """Return which inputs, outputs and state share memory in one of two programs only.

    Args:
        given: the result of a transformation.
        expected: its argument; only state of both is compared.
        calls: the leaves of the user inputs, for each call.

    >>> from purefx.ir.importing import import_ep
    >>> view, copy = (torch.export.export(layer, (torch.ones(2),)) for layer in (torch.nn.Flatten(0), torch.nn.ReLU()))
    >>> memory_differences(import_ep(copy), import_ep(view), [(torch.ones(2),)])
    ['shared memory: missing input 0 of call 0 = output 0 of call 0']
    """
    mine, theirs = (_memory(program, calls) for program in (given, expected))
    both = [name for name in theirs if name in mine]
    after, before = (groups({name: each[name] for name in both}) for each in (mine, theirs))
    return sequence_differences("shared memory", after, before)


def _memory(program: Program, calls: Sequence[Sequence[Any]]) -> dict[str, int]:
    machine = _Unsaved()
    with seeded(0), torch.no_grad():
        meaning = evaluate(program, calls, machine)
    found: dict[str, Any] = {f"state {name}": value for name, value in machine.slots.items()}
    for what, values in (("input", meaning.inputs), ("output", meaning.outputs)):
        for call, shown in enumerate(values):
            found.update(
                (f"{what} {number} of call {call}", getattr(one, "tensor", None))
                for number, one in enumerate(shown)
            )
    strided = {name: one for name, one in found.items() if is_strided(one)}
    return {name: storage_key(one) for name, one in strided.items() if one.numel()}


def _weighted(value: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(value) if value.is_complex() else value
    weights = (
        torch.arange(real.numel(), dtype=torch.float64).cos().to(real.dtype).reshape(real.shape)
    )
    return (real * weights).sum()


Calls = Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
"""The positional and keyword arguments of each call."""

Check = Literal["structure", "behaviour", "gradients"]


def assert_same_as_eager(
    module: torch.nn.Module,
    eager: torch.nn.Module,
    calls: Calls,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    checks: Iterable[Check] = get_args(Check),
) -> None:
    """Raise unless a module is observably the same as in eager mode.

    Args:
        module: the lowered module.
        eager: the original, in the mode (``train`` or ``eval``) of the export.
        calls: arguments for several calls in a row; state is compared after the last.
        rtol: relative tolerance of floating values; by default they are compared bit by bit.
        atol: absolute tolerance.
        checks: the oracles to use.

    Raises:
        AssertionError: they differ; the message lists every difference.

    >>> eager = torch.nn.BatchNorm1d(2)
    >>> assert_same_as_eager(copy.deepcopy(eager), eager, [((torch.ones(3, 2),), {}), ((torch.zeros(3, 2),), {})])
    """
    wanted = frozenset(checks)
    found = structure_differences(module, eager) if "structure" in wanted else []
    if "behaviour" in wanted:
        found += behaviour_differences(module, eager, calls, rtol=rtol, atol=atol)
    if "gradients" in wanted:
        found += gradient_differences(module, eager, calls, rtol=rtol, atol=atol)
    if found:
        raise AssertionError(
            "\n".join([f"the module differs from eager in {len(found)} places:", *found])
        )


def structure_differences(module: torch.nn.Module, eager: torch.nn.Module) -> list[str]:
    """Return the differences of module trees and state: names, order, ties, aliasing, persistence, ``requires_grad``.

    Args:
        module: the lowered module.
        eager: the original.

    Returns:
        One sentence for each fact that differs; the contents of tensors are not compared.

    >>> structure_differences(torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(2, 1))[0]
    'state_dict keys: missing bias'
    """
    return fact_differences(structure_of(module), structure_of(eager))


def structure_of(module: torch.nn.Module) -> dict[str, list[str]]:
    """Return the facts that ``structure_differences`` compares, each as a list of texts.

    >>> structure_of(torch.nn.Linear(2, 1))["state_dict keys"]
    ['weight', 'bias']
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    tensors = parameters | buffers
    keys = list(module.state_dict())
    return {
        "state_dict keys": keys,
        "modules": [name for name, _ in module.named_modules(remove_duplicate=False)],
        "parameters": [
            f"{name} requires_grad={tensor.requires_grad}" for name, tensor in parameters.items()
        ],
        "buffers": [
            f"{name} persistent={name in keys} requires_grad={tensor.requires_grad}"
            for name, tensor in buffers.items()
        ],
        "tensors": [
            f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}"
            for name, tensor in tensors.items()
        ],
        "tied tensors": groups({name: id(tensor) for name, tensor in tensors.items()}),
        "tensors that share memory": groups(
            {name: storage_key(tensor) for name, tensor in tensors.items()}
        ),
    }


def behaviour_differences(
    module: torch.nn.Module,
    eager: torch.nn.Module,
    calls: Calls,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> list[str]:
    """Return the differences of outputs and mutated inputs, and of the state after all calls.

    Args:
        module: the lowered module.
        eager: the original.
        calls: arguments for several calls in a row; each call starts both sides with the same random seed.
        rtol: relative tolerance of floating values; by default they are compared bit by bit.
        atol: absolute tolerance.

    Returns:
        One sentence for each value that differs.

    >>> behaviour_differences(torch.nn.ReLU(), torch.nn.GELU(), [((-torch.ones(1),), {})])
    ['call 0, output: got float32[1] (0.0), expected float32[1] (-0.15865525603294373): 1 of 1 numbers differ, by up to 0.16']
    """
    module, eager, tolerance = copy.deepcopy(module), copy.deepcopy(eager), Tolerance(rtol, atol)
    found: list[str] = []
    for number, call in enumerate(calls):
        given, expected = copy.deepcopy(call), copy.deepcopy(call)
        with torch.no_grad():
            result, wanted = _run(module, given, number), _run(eager, expected, number)
        found += differences(result, wanted, f"call {number}, output", tolerance)
        found += differences(given, expected, f"call {number}, arguments after it", tolerance)
    return found + named_differences(
        _state(module), _state(eager), f"after {len(calls)} calls, state", tolerance
    )


def gradient_differences(
    module: torch.nn.Module,
    eager: torch.nn.Module,
    calls: Calls,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> list[str]:
    """Return the differences of the gradients of the sum of all floating outputs, accumulated over the calls.

    Args:
        module: the lowered module.
        eager: the original.
        calls: arguments for several calls in a row.
        rtol: relative tolerance; by default gradients are compared bit by bit.
        atol: absolute tolerance.

    Returns:
        One sentence for each parameter whose gradient differs or is missing on one side.

    >>> linear = torch.nn.Linear(2, 1)
    >>> gradient_differences(copy.deepcopy(linear), linear, [((torch.ones(1, 2),), {})])
    []
    """
    return named_differences(
        _gradients(module, calls), _gradients(eager, calls), "gradient of", Tolerance(rtol, atol)
    )


def value_differences(
    given: Any, expected: Any, *, rtol: float = 0.0, atol: float = 0.0, where: str = "value"
) -> list[str]:
    """Return the differences of two pytrees: structure, types, dtypes, shapes, devices, contents.  NaN equals itself.

    Args:
        given: the result.
        expected: the expected one.
        rtol: relative tolerance of floating tensors; by default they are compared bit by bit (-0.0 is not 0.0).
        atol: absolute tolerance.
        where: the begin of each sentence.

    >>> value_differences({"a": torch.ones(2)}, {"a": torch.ones(2).double()})
    ["value['a']: got float32[2] (1.0, 1.0), expected float64[2] (1.0, 1.0)"]
    """
    return differences(given, expected, where, Tolerance(rtol, atol))


def named_differences(
    given: Mapping[str, Any], expected: Mapping[str, Any], what: str, tolerance: Tolerance
) -> list[str]:
    """Return the differences of named values.

    >>> named_differences({"w": 1}, {"w": 2, "b": 3}, "gradient of", Tolerance())
    ['gradient of: missing b', 'gradient of w: got 1, expected 2']
    """
    found = sequence_differences(what, sorted(given), sorted(expected))
    for name in sorted(given.keys() & expected.keys()):
        found += differences(given[name], expected[name], f"{what} {name}", tolerance)
    return found


def _run(module: torch.nn.Module, call: tuple[tuple[Any, ...], dict[str, Any]], seed: int) -> Any:
    # Both sides draw the same random numbers, so models with dropout are comparable.
    with seeded(seed):
        return module(*call[0], **call[1])


def _state(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    # Include the buffers that state_dict leaves out.
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _gradients(module: torch.nn.Module, calls: Calls) -> Mapping[str, torch.Tensor | None]:
    module = copy.deepcopy(module)
    module.zero_grad()
    for number, call in enumerate(copy.deepcopy(calls)):
        tensors = tensors_among(pytree.tree_leaves(_run(module, call, number)))
        parts = [each.sum() for each in tensors if each.is_floating_point() and each.requires_grad]
        if parts:
            torch.autograd.backward(parts)
    return {name: tensor.grad for name, tensor in module.named_parameters()}


def groups(keys: Mapping[str, int]) -> list[str]:
    """Return the names that share a key, each group as one text.

    >>> groups({"a": 1, "b": 2, "c": 1})
    ['a = c']
    """
    found = grouped([(key, name) for name, key in keys.items()]).values()
    return sorted([" = ".join(names) for names in found if len(names) > 1])


def fact_differences(
    given: Mapping[str, Sequence[str]], expected: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the differences of facts, each a list of texts.

    >>> fact_differences({"ties": ["a = b"]}, {"ties": []})
    ['ties: invented a = b']
    """
    found = (sequence_differences(fact, given[fact], expected[fact]) for fact in expected)
    return list(chain.from_iterable(found))


def sequence_differences(
    what: str, given: Sequence[str], expected: Sequence[str], *, shown: int = 5
) -> list[str]:
    """Return the differences of two lists of texts: missing and additional entries, and the first difference of order.

    >>> sequence_differences("keys", ["a", "b"], ["b", "c"])
    ['keys: missing c', 'keys: invented a']
    """
    found: list[str] = []
    for word, these, others in (("missing", expected, given), ("invented", given, expected)):
        known = set(others)
        extra = [item for item in these if item not in known]
        if extra:
            more = f" and {len(extra) - shown} more" if len(extra) > shown else ""
            found.append(f"{what}: {word} {', '.join(extra[:shown])}{more}")
    if not found and list(given) != list(expected):
        pairs = zip(given, expected, strict=False)
        place = next(
            (index for index, (mine, other) in enumerate(pairs) if mine != other),
            min(len(given), len(expected)),
        )
        got, wanted = list(given[place : place + 3]), list(expected[place : place + 3])
        found.append(f"{what}: the order differs at entry {place}: {got}, expected {wanted}")
    return found
