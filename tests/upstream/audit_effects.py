"""The audit of what operators do: each overload of the installed torch is run, and what it did is compared with what we say.

A schema is a claim.  Every overload is called on drawn arguments, in forked children (some of them crash); contents,
version counters, storages and the state of the generator are compared before and after.  What was seen and is not said is a
finding; what is said and was never seen is reported and is none, because a few draws prove no absence.

``python -m tests.upstream.audit_effects`` runs all of it and prints what it found; ``make audit-effects`` does that.
"""

from __future__ import annotations

import copy
import faulthandler
import os
import pickle
import random
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from attrs import frozen

from purefx.ir.effects.declared import Effects
from purefx.ir.effects.registered import effects_of
from purefx.ir.effects.schema import DRAWS_NOTHING, SILENT_ALIASES, SILENT_DRAWS, SILENT_WRITES
from purefx.ir.torch_private import resolve_operator, schema_of

from .drawn_arguments import Arguments, samples_of_torch, with_room

NOT_RUN = frozenset(
    {
        "aten::from_file", "aten::_print", "aten::save", "aten::record_stream", "aten::manual_seed", "aten::set_num_threads",
        "aten::sym_constrain_range", "aten::wait", "aten::fork", "aten::awaitable", "aten::confirmed_by_owner",
        "aten::get_gradients", "aten::backward", "aten::_backward", "aten::warn", "aten::_dist_broadcast_coalesced",
    }
)  # fmt: skip
"""Operators that the audit leaves alone: they touch files, print, or set what is global."""

COMMUNICATION = ("c10d", "_c10d", "symm_mem", "_dtensor", "dist")


@frozen
class Seen:
    """What runs of one overload did, by name of argument."""

    writes: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    draws: bool = False
    runs: int = 0

    def __or__(self, other: Seen) -> Seen:
        return Seen(
            self.writes | other.writes,
            self.aliases | other.aliases,
            self.draws or other.draws,
            self.runs + other.runs,
        )


def overloads() -> list[Any]:
    """Return every overload of torch's own namespaces that can be run in one process, in order of name."""
    found: dict[str, Any] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if schema.name in NOT_RUN or space.startswith(COMMUNICATION):
            continue
        target = resolve_operator(space, name, schema.overload_name or "default")
        if target is not None:
            found[str(target)] = target
    return [found[name] for name in sorted(found)]


def observe(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Seen:
    """Run an overload once and return what it did to its operands and to the generator.

    Raises:
        Exception: what the operator raises.
    """
    named = _by_name(target, args, kwargs)
    tensors = [(name, each) for name, value in named.items() for each in _tensors(value)]
    before = [(each._version, each.detach().clone()) for _, each in tensors]
    state = torch.get_rng_state()
    result = target(*args, **kwargs)
    draws = not torch.equal(state, torch.get_rng_state())
    writes = {
        name
        for (name, each), (version, copy) in zip(tensors, before, strict=True)
        if each._version != version or not _same(each, copy)
    }
    memory: dict[int, set[str]] = {}
    for name, each in tensors:
        for key in _memory(each):
            memory.setdefault(key, set()).add(name)
    aliases = {
        name for each in _tensors(result) for key in _memory(each) for name in memory.get(key, ())
    }
    return Seen(frozenset(writes), frozenset(aliases), draws, 1)


def _by_name(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {
        **dict(
            zip([argument.name for argument in schema_of(target).arguments], args, strict=False)
        ),
        **kwargs,
    }


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for item in value.values() for each in _tensors(item)]
    return (
        [each for item in value for each in _tensors(item)]
        if isinstance(value, list | tuple)
        else []
    )


def _memory(tensor: torch.Tensor) -> list[int]:
    # Sparse tensors hold tensors; a tensor without elements overlaps with nothing.
    if tensor.layout is torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout is torch.strided:
        parts = [tensor]
    else:
        return [id(tensor)]
    return [
        part.untyped_storage().data_ptr()
        for part in parts
        if part.untyped_storage().nbytes() and not part.is_meta
    ]


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype or left.layout != right.layout:
        return False
    if left.is_meta or left.layout is not torch.strided:
        return left.is_meta or _same(left.to_dense(), right.to_dense())
    if left.is_quantized:
        left, right = left.int_repr(), right.int_repr()
    return torch.equal(_bits(left), _bits(right))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    # NaN is itself.
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def study(
    target: Any, *, tries: int, enough: int, given: Sequence[Any] = (), seconds: float = 2.0
) -> Seen:
    """Run an overload on drawn arguments and on given ones, and return what it did and is not said to do.

    Args:
        target: the overload.
        tries: how many calls to draw.
        enough: how many calls that did not raise are enough.
        given: arguments of further calls.
        seconds: when to stop.
    """
    effects = effects_of(target)
    switches = [
        {flag.arg.name: flag.value} for flag in (*effects.random_unless, *effects.writes_unless)
    ]
    found, start = Seen(), time.monotonic()
    for number in range(tries + len(given)):
        torch.manual_seed(number)
        forced = switches[number // 2 % len(switches)] if switches and number % 2 else {}
        try:
            if number < len(given):
                args, kwargs = copy.deepcopy(given[number])
                kwargs = with_room(target, args, kwargs)
            else:
                args, kwargs = Arguments(target, random.Random(f"{target}-{number}"), forced).draw()
            seen = observe(target, args, kwargs)
        except NotImplementedError:
            if number > 4 and not found.runs:
                break
            continue
        except Exception:  # most drawn arguments fit no operator
            continue
        found |= unsaid(target, effects, args, kwargs, seen)
        if found.runs >= enough + len(given) or time.monotonic() - start > seconds:
            break
    return found


def unsaid(
    target: Any, effects: Effects, args: Sequence[Any], kwargs: dict[str, Any], seen: Seen
) -> Seen:
    """Return the part of what was seen that the effects do not say of this very call."""
    literal, named = tuple(args), tuple(kwargs.items())

    def off(flags: Any) -> bool:
        return any(flag.spares(literal, named) for flag in flags)

    if effects.unknown:
        return Seen(runs=1, draws=seen.draws and not effects.random)
    writes = (
        frozenset() if off(effects.writes_unless) else frozenset(at.name for at in effects.writes)
    )
    same = frozenset(at.name for at in effects.returns if at is not None)
    aliases = same | frozenset(at.name for at in effects.aliases)
    draws = effects.random and not off(effects.random_unless)
    return Seen(seen.writes - writes, seen.aliases - aliases, seen.draws and not draws, 1)


Given = dict[str, list[tuple[list[Any], dict[str, Any]]]]


def audited(
    targets: Sequence[Any], *, tries: int = 100, enough: int = 16, given: Given | None = None
) -> Iterator[tuple[Any, Seen | None]]:
    """Study overloads in forked children; None for one whose child died.

    Args:
        targets: the overloads.
        tries: how many calls to draw for each.
        enough: how many calls that did not raise are enough.
        given: arguments of further calls, by name of operator.
    """
    left = list(targets)
    while left:
        done = 0
        for target, seen in _child(left, tries, enough, given or {}):
            done += 1
            yield target, seen
        if done < len(left):
            yield left[done], None
            done += 1
        left = left[done:]


def _child(
    targets: Sequence[Any], tries: int, enough: int, given: Given
) -> Iterator[tuple[Any, Seen]]:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _work(targets, write, tries, enough, given)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as stream:
            for target in targets:
                try:
                    yield target, pickle.load(stream)
                except EOFError:
                    return
    finally:
        os.waitpid(pid, 0)


def _work(targets: Iterable[Any], write: int, tries: int, enough: int, given: Given) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.disable()  # crashes are expected, and nothing but the pipe is read
    with os.fdopen(write, "wb") as stream:
        for target in targets:
            signal.alarm(15)
            name = schema_of(target).name.removeprefix("aten::")
            pickle.dump(
                study(target, tries=tries, enough=enough, given=given.get(name, ())), stream
            )
            stream.flush()
    os._exit(0)


def missing(seen: Seen | None) -> bool:
    """Say whether an overload did what is not said of it."""
    return seen is not None and bool(seen.writes or seen.aliases or seen.draws)


def main() -> None:
    """Audit everything and print what is not said; ``--short`` draws little, and of a sample."""
    start, every = time.monotonic(), overloads()
    short = "--short" in sys.argv
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    every = sampled(every) if short else every
    every = [target for target in every if not words or any(word in str(target) for word in words)]
    done = audited(every, tries=8, enough=2) if short else audited(every, given=samples_by_name())
    found: dict[str, list[str]] = {"died": [], "never ran": [], "ran": []}
    count = 0
    for target, seen in done:
        found["died" if seen is None else "ran" if seen.runs else "never ran"].append(str(target))
        if seen is not None and missing(seen):
            count += 1
            say(
                f"{target}: writes {sorted(seen.writes)} aliases {sorted(seen.aliases)} draws {seen.draws}"
            )
    for what in ("died", "never ran"):
        say(f"{what}: {len(found[what])}: {' '.join(found[what])}")
    say(
        f"{count} findings, {len(found['ran'])} of {len(every)} overloads ran in {time.monotonic() - start:.0f} s"
    )
    sys.exit(bool(count))


def sampled(every: Sequence[Any]) -> list[Any]:
    """Return the overloads of our tables and a third of the others that may stand in an exported program.

    These have no ``out``, and are none of TorchScript's own.
    """
    listed = {*SILENT_WRITES, *SILENT_ALIASES, *SILENT_DRAWS, *DRAWS_NOTHING}
    usual = [
        target for target in every if target.namespace in ("aten", "prims", "quantized", "inductor")
    ]
    usual = [target for target in usual if "out" not in target._overloadname.split("_")]
    return [
        target
        for number, target in enumerate(usual)
        if number % 3 == 0 or schema_of(target).name in listed
    ]


def samples_by_name() -> Given:
    """Return torch's own samples by name of operator, in-place and internal ones of the name included."""
    given: Given = {}
    for name, args, kwargs in samples_of_torch():
        for each in (name, f"{name}_", f"_{name}"):
            given.setdefault(each, []).append((args, kwargs))
    return given


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
