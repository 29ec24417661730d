"""Private names of torch for fake tensors and symbolic sizes.

The type and its mode, what operators refuse, symbols with their environments and bounds.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._traceback import CapturedTraceback

from ..forks import undone_by
from .joints import Late, assigned, sympy
from .modes import outside_of_levels

__all__ = [
    "FAKE_REFUSALS", "FakeTensor", "FakeTensorMode", "UnsupportedOperatorException", "autocast_is_on", "device_of", "fake_copy",
    "fake_of", "fake_on", "fake_state", "finite", "forkable", "fresh_bindings", "has_fixed_sizes",
    "is_refusal", "new_guards", "new_shape_env", "new_symbol", "per_example", "ranges_in",
    "silence", "size_number", "symbol_facts", "symbolic_range", "symbols_of", "unguarded",
    "without_cache", "without_kernels", "without_overrides",
]  # fmt: skip

# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.


_symbolic: Any = Late("torch.fx.experimental.symbolic_shapes")

FAKE_REFUSALS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)
"""Errors of operators whose result depends on the contents of tensors."""


autocast_is_on: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Return whether autocast is on for any device; the public function checks one device at a time."""


def fake_copy(module: torch.fx.GraphModule, mode: Any) -> torch.fx.GraphModule:
    """Copy a module with fake tensors in place of its tensors; all public ways copy the contents."""
    # Fake tensors draw no random numbers, and a generator cannot be copied with a fake state.
    kept = {
        id(held): held
        for part in module.modules()
        for held in vars(part).values()
        if isinstance(held, torch.Generator)
    }
    with FakeCopyMode(mode):
        return copy.deepcopy(module, kept)


def per_example(value: torch.Tensor) -> torch.Tensor:
    """Return one example of a batched fake tensor whose vmap level is closed; return other values as they are.

    An exporter keeps the values that it traced inside a level, and operators do not accept them after it is closed.
    """
    inner: Any = outside_of_levels(value)
    if inner is value:
        return value
    shape, stride, device = value.shape, value.stride(), device_of(inner)
    if not isinstance(inner, FakeTensor):
        return torch.empty_strided(shape, stride, dtype=value.dtype, device=device)
    env = inner.fake_mode.shape_env
    with nullcontext() if env is None else env.suppress_guards():
        return cast(torch.Tensor, fake_of(inner.fake_mode, value.dtype, shape, stride, device))


def device_of(tensor: Any) -> torch.device:
    """Return the device of a tensor, real or fake.

    While one thread runs an operator on fake tensors, ``tensor.device`` returns ``meta`` for all of them on every thread.

    >>> device_of(torch.ones(2))
    device(type='cpu')
    """
    return tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device


def fake_of(mode: Any, dtype: torch.dtype, shape: Any, stride: Any, device: torch.device) -> Any:
    """Return a new fake tensor of fixed sizes; making one under the mode, the public way, takes 6x as long.

    >>> fake_of(FakeTensorMode(), torch.float32, (2, 3), (3, 1), torch.device("cpu"))
    FakeTensor(..., size=(2, 3))
    """
    with torch._C._DisableTorchDispatch():  # active modes must not intercept it
        plain = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return cast(Any, FakeTensor)(mode, plain, device)


def fake_state(mode: Any, tensor: torch.Tensor) -> Any:
    """Return a fake tensor of static sizes for a tensor of any layout, also while a fake mode is active.

    >>> with FakeTensorMode() as mode:
    ...     fake_state(mode, torch.ones(2))
    FakeTensor(..., size=(2,))
    """
    with unset_fake_temporarily():  # torch reads the indices of a sparse tensor
        return mode.from_tensor(tensor, static_shapes=True)


def fake_on(tensor: Any, device: torch.device) -> Any:
    """Return a fake tensor on another device, which need not exist on this machine.

    Sizes, strides and shared memory stay the same.

    >>> fake_on(FakeTensorMode().from_tensor(torch.ones(2, 3).t()), torch.device("meta")).stride()
    (1, 3)
    """
    with torch._C._DisableTorchDispatch():
        plain = torch.empty(0, dtype=tensor.dtype, device="meta")
        plain.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    made = cast(Any, FakeTensor)(tensor.fake_mode, plain, device)
    return made.requires_grad_() if tensor.requires_grad else made


def is_refusal(error: BaseException) -> bool:
    """Return whether an operator failed because its result depends on contents, not because its operands are wrong.

    >>> is_refusal(NotImplementedError()), is_refusal(RuntimeError("sizes do not match"))
    (True, False)
    """
    # One is looked up by name: its module takes long to import, and its raiser has imported it.  A torch.library.custom_op
    # without a fake kernel raises a plain RuntimeError.
    known = (*FAKE_REFUSALS, UnsupportedOperatorException, NotImplementedError)
    is_known = isinstance(error, known) or type(error).__name__ == "GuardOnDataDependentSymNode"
    return is_known or (
        isinstance(error, RuntimeError)
        and str(error).startswith("There was no fake impl registered")
    )


def without_cache(mode: Any) -> AbstractContextManager[None]:
    """Keep a mode from returning cached results of operators; torch has no public switch for it.

    The cached result shares memory with an operand only if the schema states it, so the first and second results of an
    operator with undeclared aliasing differ.
    """
    return assigned(mode, "cache_enabled", value=False)


def without_kernels(mode: Any) -> AbstractContextManager[None]:
    """Keep a mode from running real kernels on zeros for operators without a fake kernel; torch has no public switch for it."""
    return assigned(mode, "allow_fallback_kernels", value=False)


def forkable(mode: Any) -> AbstractContextManager[None]:
    """Let other threads fork while this one runs operators under a mode.

    In the child, the mode would stay inside the kernel of a thread that does not exist, and all its tensors on ``meta``.
    """
    return assigned(mode, "in_kernel_invocation", mode.in_kernel_invocation)


@contextmanager
def silence() -> Generator[None, None, None]:
    """Keep this thread's work on fake tensors, symbolic sizes and files out of torch's log."""

    # torch logs refused arguments, undecided guards and files that it cannot load; messages of other threads must stay.
    def is_theirs(record: logging.LogRecord, mine: int = threading.get_ident()) -> bool:
        return record.thread != mine

    loggers = FakeTensorMode.__module__, "torch.export", "torch.fx.experimental.symbolic_shapes"
    filtered = [*map(logging.getLogger, loggers)]

    def undo() -> None:
        for logger in filtered:
            logger.removeFilter(is_theirs)

    with undone_by(undo):
        for logger in filtered:
            logger.addFilter(is_theirs)
        yield


def has_fixed_sizes(tensor: Any) -> bool:
    """Return whether sizes and strides of a fake tensor are plain numbers, so that comparing them installs no guard.

    Checking the type of each number, the public way, takes 5x as long as the comparison.

    >>> import torch
    >>> has_fixed_sizes(torch.ones(2))
    True
    """
    return not tensor._has_symbolic_sizes_strides


without_overrides = torch._C.DisableTorchFunctionSubclass
"""A context, for one thread, that reads attributes of tensors without a look-up of ``__torch_function__``, twice as fast."""


def size_number(size: Any, fixed: Mapping[str, int] | None = None) -> int | float | bool | None:
    """Return the value of a symbolic number at export; None if only a run determines it.

    Its symbols are replaced by the numbers that the exporter saw.  The public ways, comparison and conversion, install a guard.

    Args:
        size: the symbolic number.
        fixed: other numbers for some symbols, by name.
    """
    numbers, expr = size.node.shape_env.backed_var_to_val, size.node.expr
    if fixed:
        numbers = dict(numbers)
        for symbol in expr.free_symbols:
            if str(symbol) in fixed:
                numbers[symbol] = sympy.Integer(fixed[str(symbol)])
    number = expr.xreplace(numbers)
    return None if number.free_symbols else cast("int | float | bool", size.node.pytype(number))


def new_shape_env() -> Any:
    """Return an environment for symbolic sizes; its class is not public."""
    return _symbolic.ShapeEnv()


def new_symbol(
    env: Any, name: str, number: int | None, low: int | None, high: int | None
) -> torch.SymInt:
    """Return a symbolic integer with a name, as torch does when it loads an exported program.

    Args:
        env: its environment.
        name: of the symbol; ``u0`` is one that no input determines.
        number: its value where a size must be decided; None if it is unknown.
        low: the lower bound, included; None for 0.
        high: the upper bound, included; None for infinity.
    """
    symbol = _symbol(name)
    is_backed = name.startswith("s") and number is not None
    if is_backed:
        env.add_backed_var_to_val(symbol, number)
    infinite = _symbolic.int_oo
    env.constrain_symbol_range(
        symbol,
        compiler_min=0 if low is None else low,
        compiler_max=infinite if high is None else high,
    )
    env.var_to_stack[symbol] = CapturedTraceback.extract(skip=1)
    return cast(torch.SymInt, env.create_symintnode(symbol, hint=number if is_backed else None))


def _symbol(name: str) -> Any:
    # As in torch, a size that an input determines is positive.
    return (
        sympy.Symbol(name, integer=True, positive=True)
        if name.startswith("s")
        else sympy.Symbol(name, integer=True)
    )


@contextmanager
def new_guards(env: Any) -> Generator[list[str]]:
    """Collect the guards that are installed in the context, and remove them afterwards; the list is filled at the end.

    Args:
        env: the shape environment of fake values that others use too.

    >>> env = new_shape_env()
    >>> size = new_symbol(env, "s0", 4, 2, 9)
    >>> with new_guards(env) as found:
    ...     _ = bool(size > 3)
    >>> found, len(env.guards)
    (['s0 > 3'], 0)
    """
    found: list[str] = []
    ranges, replacements, count = dict(env.var_to_range), dict(env.replacements), len(env.guards)
    try:
        yield found
    finally:
        found += [str(guard.expr) for guard in env.guards[count:]]
        del env.guards[count:]
        for symbol in ranges.keys() & env.replacements.keys() - replacements.keys():
            del env.replacements[symbol]
        env.var_to_range.update(ranges)
        env._update_version_counter()


def symbols_of(env: Any) -> dict[str, Any]:
    """Return the symbolic integers of an environment by name."""
    if env is None:
        return {}
    numbers: Mapping[Any, Any] = env.backed_var_to_val
    symbols = [symbol for symbol in env.var_to_range if symbol not in env.replacements]
    hints = {symbol: int(numbers[symbol]) if symbol in numbers else None for symbol in symbols}
    return {str(symbol): env.create_symintnode(symbol, hint=hint) for symbol, hint in hints.items()}


def ranges_in(values: Iterable[Any]) -> dict[Any, Any]:
    """Return the bounds that their environment has for the symbols in fake values, in order of first occurrence."""
    sizes: list[Any] = []
    for part in (
        part
        for value in values
        for part in (value if isinstance(value, tuple | list) else (value,))
    ):
        is_fake = isinstance(part, FakeTensor)
        sizes += (
            (*part.shape, *(part.stride() if part.layout is torch.strided else ()))
            if is_fake
            else (part,)
        )
    found: dict[Any, Any] = {}
    for node in [
        size.node
        for size in sizes
        if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool)
    ]:
        known = node.shape_env.var_to_range
        symbols = sorted(node.expr.free_symbols, key=str)
        found.update(
            (symbol, known[symbol]) for symbol in symbols if symbol in known and symbol not in found
        )
    return found


def fresh_bindings(env: Any, value: Any) -> Any:
    """Return the places of new symbols in a fake value, and remove them from the environment's list of symbols to bind."""
    return _symbolic.compute_unbacked_bindings(env, value)


def symbolic_range(expr: Any, low: int | None, high: int | None) -> tuple[Any, Any] | None:
    """Return a symbol and its bounds as ``ep.range_constraints`` has them; None for an expression.

    >>> from purefx.ir.expression import Sym
    >>> symbolic_range(Sym("s0"), 2, None)
    (s0, VR[2, int_oo])
    """
    name = getattr(expr, "name", None)
    if name is None:
        return None
    infinite = _symbolic.int_oo
    return _symbol(name), _symbolic.ValueRanges(
        -infinite if low is None else low, infinite if high is None else high
    )


def symbol_facts(node: Any, symbol: Any) -> tuple[int | None, int | None, int | None]:
    """Return the example value and the bounds of a symbol, from the environment of a symbolic number.

    Args:
        node: the node of a symbolic number.
        symbol: one of the symbols in its expression.
    """
    bounds = node.shape_env.var_to_range.get(symbol)
    ends = (None, None) if bounds is None else (bounds.lower, bounds.upper)
    return finite(node.shape_env.backed_var_to_val.get(symbol)), finite(ends[0]), finite(ends[1])


def finite(number: Any) -> int | None:
    """Return a bound of a symbol as a number; None if it is infinite, or a number that stands for infinity in some files.

    >>> finite(sympy.Integer(3)), finite(2**63 - 1), finite(sympy.oo)
    (3, None, None)
    """
    is_number = isinstance(number, int) or getattr(number, "is_Integer", False)
    return int(number) if is_number and abs(int(number)) < 2**62 else None


def unguarded(environment: Any, function: Callable[[], Any]) -> Any:
    """Call a function and return its result; return None if it needs a new guard on sizes.

    Args:
        environment: of the symbols; None if all sizes are numbers.
        function: takes no arguments; other errors that it raises pass through.

    >>> unguarded(None, lambda: 1), unguarded(new_shape_env(), lambda: False)
    (1, False)
    """
    if environment is None:
        return function()
    undecided = _symbolic._ShapeEnvGuardError, _symbolic.GuardOnDataDependentSymNode
    with suppress(*undecided), environment.error_on_new_guards():
        return function()
    return None
