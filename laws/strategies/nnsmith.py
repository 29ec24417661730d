"""``nnsmith_programs``: programs of another generator, for any check that takes ``programs=``.

nnsmith draws a graph of operators symbolically and has a solver choose the sizes, so its programs are unlike those of
``strategies/aten``: deep chains over many ranks, and no writes, draws, state that is tied, or branches.  It is the optional extra
``nnsmith``; nothing here is needed without it.
"""

from __future__ import annotations

import importlib
import logging
import random
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from ...ir.errors import PurefxError
from ..purity import seeded

__all__ = ["NnsmithMissing", "nnsmith_programs"]

ATTEMPTS = 4
"""How many seeds are tried for each program: a few have no solution in time, and some cannot be exported."""

MILLISECONDS = 5_000
"""How long the solver may take for one."""


class NnsmithMissing(PurefxError, ImportError):
    """The package is not installed."""


def nnsmith_programs(
    count: int, *, seed: int = 0, operators: int = 8
) -> Iterator[tuple[torch.export.ExportedProgram, tuple[torch.Tensor, ...]]]:
    """Iterate over exported modules that nnsmith draws, each with the arguments that it is called with.

    Args:
        count: how many; fewer where no more are found.
        seed: draws others; which ones also depends on what nnsmith drew before in the process.
        operators: how many each has at most.

    Raises:
        NnsmithMissing: nnsmith is not installed.

    >>> programs = nnsmith_programs(20)  # for check_fx_pass(my_pass, programs=programs, examples=0)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: Any = importlib.import_module("nnsmith.materialize").Model
    except ImportError as error:
        raise NnsmithMissing(f"nnsmith cannot be imported ({error}): pip install 'purefx[nnsmith]'") from error
    kind: Any = made.init("torch", backend_target="cpu")
    numbers = range(seed * ATTEMPTS * count, (seed + 1) * ATTEMPTS * count)
    drawn = (_drawn(kind, number, operators) for number in numbers)
    yield from islice((each for each in drawn if each is not None), count)


def _drawn(kind: Any, number: int, operators: int) -> tuple[torch.export.ExportedProgram, tuple[torch.Tensor, ...]] | None:
    known = sorted(set(kind.operators()), key=lambda each: each.__name__)
    with _undisturbed(number):
        model_gen: Any = importlib.import_module("nnsmith.graph_gen").model_gen
        try:
            drawn = model_gen(opset=known, seed=number, max_nodes=operators, timeout_ms=MILLISECONDS)
            module = kind.from_gir(drawn.make_concrete()).native_model.eval()
            module.debug_numeric = _nothing  # it looks at numbers, which no exporter follows
            args = _arguments(module, number)
            ep = torch.export.export(module, args)
            ep.module()(*args)  # some operators are refused by the kernel alone
        except Exception:  # noqa: BLE001  no solution in time, or one that its own operators or the exporter refuse
            return None
        return ep, args


def _arguments(module: Any, number: int) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(number)
    found: list[torch.Tensor] = []
    for name in module.ir.input_var():
        kind = module.ir.vars[name]
        wide = torch.randn(list(kind.shape), generator=draw) * 2
        found.append(wide > 0 if kind.dtype.torch() is torch.bool else wide.to(kind.dtype.torch()))
    return tuple(found)


def _nothing(_: Any) -> None:
    """Take the place of what looks at numbers."""


@contextmanager
def _undisturbed(number: int) -> Generator[None]:
    # It seeds all generators, logs, and warns.
    numpy = importlib.import_module("numpy")
    states, disabled = (random.getstate(), numpy.random.get_state()), logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with seeded(number), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        random.setstate(states[0])
        numpy.random.set_state(states[1])
