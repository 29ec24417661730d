"""Detect changes of a program or the process by an action; run a transformation on several threads.

All parts of a program and the settings of torch and Python are compared.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..ir.analysis.digest import digest
from ..ir.errors import FlatCallWarning
from ..ir.graph import Graph
from ..ir.own_operators import tensors_of
from ..ir.persistent import pmap
from ..ir.program import Program
from ..ir.state import same_contents, slot_values
from ..ir.torch_private import FakeTensor, current_modes, mode_stacks, storage_key


def changes_in_program(program: Program, action: Callable[[], object]) -> list[str]:
    """Return the facts that an action changed in a program; there should be none.

    Args:
        program: a program at any stage.
        action: such as ``lambda: lower(program)``.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> changes_in_program(program, lambda: hash(program))
    []
    """
    state = slot_values(program.state)
    return changes_by(lambda: _program_facts(program), state, action)


def changes_in_process(action: Callable[[], object]) -> list[str]:
    r"""Return the settings of the process that an action changed, its output and its warnings.

    Text that bypasses ``sys.stdout`` and ``sys.stderr`` is not detected.

    Args:
        action: a function without side effects.

    >>> changes_in_process(lambda: 1)
    []
    >>> changes_in_process(lambda: print("here"))
    ["printed 'here\\n'"]
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        before = _process_facts()
        action()
        found = _changed(before, _process_facts())
    found += [f"printed {stream.getvalue()!a}" for stream in (out, err) if stream.getvalue()]
    # `FlatCallWarning` is about the program: exporters do not write such an order of nodes.
    return found + [
        f"warned {str(one.message)!a}"
        for one in warned
        if not isinstance(one.message, FlatCallWarning)
    ]


def _process_facts() -> dict[str, object]:
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (
            *map(_autocast, ("cpu", "cuda")),
            torch.is_autocast_cache_enabled(),
            torch.autocast_increment_nesting(),
        ),
        "the nesting of autocast": torch.autocast_decrement_nesting(),
        "other modes": current_modes()[1:],
        "modes that see functions or operators": mode_stacks(),
        "the number of threads of torch": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the random state of torch": bytes(torch.random.get_rng_state().tolist()),
        "the random state of Python": random.getstate(),
        "the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "the recursion limit": sys.getrecursionlimit(),
        "the switch interval": sys.getswitchinterval(),
        "the import path": tuple(sys.path),
        "the working directory": os.getcwd(),  # noqa: PTH109  compared as text
        "the environment": dict(os.environ),
        "the running threads": threading.active_count(),
        "the warning filters": tuple(warnings.filters),
        "hooks": (sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile()),
    }


def _autocast(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _program_facts(program: Program) -> dict[str, object]:
    slots = slot_values(program.state)
    parts = [
        part
        for graph in map(program.graphs.__getitem__, program.order)
        for part in (*graph.inputs, *graph.nodes)
    ]
    values = [(part.name, value) for part in parts if isinstance(value := part.val, FakeTensor)]
    environments = {
        id(env): env for _, value in values if (env := value.fake_mode.shape_env) is not None
    }
    return {
        "digest": digest(program),
        "names": tuple(
            (name, tuple(node.name for node in program.graphs[name].nodes))
            for name in program.order
        ),
        "meta": [(node.name, tuple(node.meta)) for _, node in program.nodes()],
        # A symbol that was specialized prints as a number.
        "the sizes of its values": [f"{name}: {[*value.shape]}" for name, value in values],
        "the guards on its sizes": [
            str(guard.expr) for env in environments.values() for guard in env.guards
        ],
        "facts": program.facts,
        "trail": tuple(map(str, program.trail)),
        **tensor_facts(slots),
    }


def tensors_in(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors of state, also of modules that are state."""
    found = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    for name, value in state.items():
        if isinstance(value, torch.nn.Module):
            found.update(
                (f"{name} #{number}", tensor) for number, tensor in enumerate(tensors_of(value))
            )
    return found


def tensor_facts(state: Mapping[str, Any]) -> dict[str, object]:
    """Return the identity, the memory and the gradients of the tensors of state."""
    tensors = tensors_in(state)
    return {
        f"tensor {name}": (
            id(value),
            storage_key(value),
            value.requires_grad,
            not value.is_leaf or value.grad is None,
        )
        for name, value in tensors.items()
    }


def changes_by(
    facts: Callable[[], dict[str, object]], state: Mapping[str, Any], action: Callable[[], object]
) -> list[str]:
    """Return the facts, and the tensors of state, that an action changed."""
    before, copies = (
        facts(),
        {name: value.detach().clone() for name, value in tensors_in(state).items()},
    )
    action()
    found, now = _changed(before, facts()), tensors_in(state)
    written = [name for name, copy in copies.items() if not same_contents(copy, now[name].detach())]
    return found + [f"the contents of {name} changed" for name in written]


def _changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [
        f"{fact} changed" for fact in {**before, **after} if before.get(fact) != after.get(fact)
    ]


SWITCH = 1e-5
"""The switch interval of threads, in seconds; the default of 5 ms is longer than a small program takes."""


def as_imported(program: Program) -> Program:
    """Return a copy in the state in which the importer returns a program: not verified, without cached properties.

    Args:
        program: a program at any stage, valid or not.

    >>> fresh = as_imported(Program.of({"": Graph((), (), ())}))
    >>> fresh.imported, fresh.checked
    (True, False)
    """
    graphs = {
        name: Graph(graph.inputs, graph.nodes, graph.output)
        for name, graph in program.graphs.items()
    }
    fresh = program.evolve(graphs=pmap(graphs))
    object.__setattr__(fresh, "imported", True)  # evolve clears it
    return fresh


def outcome(transform: Callable[[Program], Program], program: Program) -> Program | Exception:
    """Return the result of a transformation, or the exception that it raises.

    >>> outcome(lambda program: program.evolve(root=1 / 0), Program.of({}))
    ZeroDivisionError('division by zero')
    """
    try:
        return transform(program)
    except Exception as error:  # noqa: BLE001  returned as a result
        return error


def on_threads(
    transform: Callable[[Program], Program], program: Program, *, threads: int = 8
) -> list[Program | Exception]:
    """Return the results or exceptions of a transformation on several threads at once.

    Args:
        transform: the function from programs to programs.
        program: the argument of all threads; ``as_imported`` makes one without cached properties.
        threads: their number.

    >>> empty = Program.of({"": Graph((), (), ())})
    >>> [result == empty for result in on_threads(lambda program: program, empty, threads=2)]
    [True, True]
    """
    start = threading.Barrier(threads)

    def run(_: int) -> Program | Exception:
        start.wait()
        return outcome(transform, program)

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, range(threads)))
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed torch's generator inside a block, and restore it afterwards.

    Without an accelerator, only the CPU generator is seeded: ``torch.manual_seed`` would keep a traceback for each possible
    device, which takes longer than a program of the laws.

    Args:
        seed: of the generator.

    >>> with seeded(1):
    ...     first = torch.rand(1)
    >>> with seeded(1):
    ...     bool(torch.rand(1) == first)
    True
    """
    seeding = (
        torch.manual_seed
        if torch.accelerator.is_available()
        else torch.default_generator.manual_seed
    )
    with torch.random.fork_rng(devices=[]):
        seeding(seed)
        yield
