"""Tensors that a module assigns to attributes while ``capture`` runs it.

``torch.export`` writes an assigned buffer back only if the exported module itself owns it, and without a check of its size.
Other assignments are dropped without a warning.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType
from typing import Any

import torch
from attrs import frozen

from purefx.ir.errors import CaptureError
from purefx.ir.persistent import grouped
from purefx.ir.tensors import tensors_among
from purefx.ir.torch_private import buffers_dict, device_of, pytree, storage_key

DEPTH = 8
"""How many containers and objects an attribute is followed through."""
LONGEST = 10_000
"""Longer containers are data, such as a vocabulary, and hold no state."""
FOREIGN = frozenset({"torch", "purefx", *sys.stdlib_module_names})
"""The packages whose objects, except for modules, hold no state of a user's module."""
ITEMS = (dict, list, deque, set)
STANDARD = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
"""The containers of a module whose items are its attributes."""


@frozen
class Held:
    """A container, or the attributes of an object, at one moment."""

    path: Callable[[object], str]
    """Maps a key to the path of its item."""
    live: Any
    """The container itself."""
    items: Mapping[Any, Any]
    """What was in it, by key or position."""
    only_tensors: bool
    """Whether ``restore`` leaves everything but tensors: true for objects that are not modules."""

    def restore(self) -> None:
        """Put back what was in it."""
        now, live = items_of(self.live), self.live
        if same_objects(self.items, now):
            return
        if self.only_tensors:
            _restore_tensors(live, self.items, now)
        elif isinstance(live, dict):
            # Subclasses may do more on an assignment.
            dict.clear(live)
            dict.update(live, self.items)
        elif isinstance(live, set):
            live.clear()
            live.update(self.items)
        else:
            live.clear()
            live.extend(self.items.values())


def _restore_tensors(
    live: dict[Any, Any], items: Mapping[Any, Any], now: Mapping[Any, Any]
) -> None:
    for key in {**items, **now}:
        before, after = items.get(key), now.get(key)
        if before is after or not any(isinstance(each, torch.Tensor) for each in (before, after)):
            continue
        if key in items:
            live[key] = before
        else:
            del live[key]


def items_of(live: Any) -> dict[Any, Any]:
    """Return what is in a container now, by key or position.

    >>> items_of(["a", "b"])
    {0: 'a', 1: 'b'}
    """
    if isinstance(live, dict):
        return dict(live)
    return dict.fromkeys(live) if isinstance(live, set) else dict(enumerate(live))


def same_objects(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Return whether two containers have the same objects at the same keys, in the same order."""
    return list(one) == list(other) and all(one[key] is other[key] for key in one)


@frozen
class Write:
    """A buffer that was assigned."""

    path: str
    owner: torch.nn.Module
    name: str
    old: torch.Tensor
    new: torch.Tensor


class Attributes:
    """What the attributes of a module refer to at one moment.

    The attributes of the modules in it count, and so do items of lists and dicts and the attributes of other objects there.

    Args:
        module: the module; it is not changed.

    >>> module = torch.nn.BatchNorm1d(2)
    >>> before = Attributes(module)
    >>> module.running_mean = torch.ones(2)
    >>> before.restore()
    >>> module.running_mean
    tensor([0., 0.])
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.held: list[Held] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.buffers: dict[str, tuple[torch.nn.Module, str]] = {}
        """The owner and the name of each buffer."""
        self.state: dict[str, torch.Tensor] = {}
        """All parameters and buffers."""
        self.generators: dict[str, torch.Generator] = {}
        self._seen = {id(vars(part)) for part in module.modules()}
        for path, part in module.named_modules():
            self._add_module(f"{path}." if path else "", part)

    def _add_module(self, prefix: str, part: torch.nn.Module) -> None:
        def path(key: object) -> str:
            return f"{prefix}{key}"

        own = vars(part)
        self._add(own, path, DEPTH, skipped=STANDARD)
        for key in STANDARD & own.keys():
            self._add(own[key], path, 1)
        for name, buffer in buffers_dict(part).items():
            self.buffers[path(name)] = part, name
            if buffer is not None:
                self.state[path(name)] = buffer
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            self.state[path(name)] = parameter

    def _add(
        self,
        live: Any,
        path: Callable[[object], str],
        depth: int,
        *,
        skipped: Collection[str] = (),
        only_tensors: bool = False,
    ) -> None:
        self._seen.add(id(live))
        held = Held(path, live, items_of(live), only_tensors)
        self.held.append(held)
        for key, value in held.items.items():
            if isinstance(value, torch.Tensor):
                self.tensors[path(key)] = value
            elif depth > 1 and not (isinstance(key, str) and (key in skipped or "hook" in key)):
                self._follow(value, path(key), depth - 1)

    def _follow(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, torch.Generator):
            self.generators[path] = value
        elif isinstance(value, tuple):
            for number, each in enumerate(value):
                if isinstance(each, torch.Tensor):
                    self.tensors[f"{path}[{number}]"] = each
                elif depth > 1:
                    self._follow(each, f"{path}[{number}]", depth - 1)
        elif isinstance(value, ITEMS):
            if id(value) not in self._seen and len(value) <= LONGEST:
                self._add(value, lambda key: f"{path}[{key!r}]", depth)
        elif has_state(value) and id(vars(value)) not in self._seen:
            self._add(vars(value), lambda key: f"{path}.{key}", depth, only_tensors=True)

    def restore(self) -> None:
        """Put back what the attributes referred to."""
        for held in self.held:
            held.restore()

    def write_back(self, args: Iterable[Any], result: Any) -> tuple[Any, list[str]]:
        """Write assigned buffers to their tensors, as the last operators of a trace, and restore all attributes.

        Args:
            args: the arguments of the run.
            result: what the run returned.

        Returns:
            The result, without memory of the tensors that are written; the paths of the assignments that are no writes.

        Raises:
            CaptureError: the module registers a buffer while it runs, which the exporter confuses with another input.
        """
        now = Attributes(self.module)
        # Layers keep lists of their parameters, which change when the exporter replaces these by fake ones.
        own = {id(tensor) for tensor in self.state.values()}
        paths = [
            path
            for path in {**self.tensors, **now.tensors}
            if self.tensors.get(path) is not now.tensors.get(path)
            and (path in self.state or id(now.tensors.get(path)) not in own)
        ]
        for path in paths:
            owner = now.buffers.get(path, (None, ""))[0]
            if owner is self.module and path not in self.buffers:
                raise CaptureError(
                    f"{type(self.module).__qualname__} registers the buffer {path!r} in forward, which torch.export "
                    "cannot trace; register it in __init__"
                )
        writes = self._writes(now, paths)
        result = self._write(writes, args, result)
        lost = [path for path in paths if path not in {write.path for write in writes}]
        for path in lost:
            self._cancel(path)
        self.restore()
        return result, lost

    def _writes(self, now: Attributes, paths: Iterable[str]) -> list[Write]:
        possible = [
            Write(path, *self.buffers[path], self.tensors[path], now.tensors[path])
            for path in paths
            if path in self.buffers and path in self.tensors and path in now.tensors
        ]
        fitting = [write for write in possible if fits(write.old, write.new)]
        # A write changes the memory under all names, an assignment only one name, which may join another memory.
        before, after = names_by_memory(self.state), names_by_memory(now.state)
        alone: list[Write] = []
        for write in fitting:
            names = before[storage_key(write.old)]
            others = [other for other in fitting if other.path in names]
            same = all(other.old is write.old and other.new is write.new for other in others)
            if same and len(others) == len(names) and after[storage_key(write.new)] == names:
                alone.append(write)
        return alone

    def _write(self, writes: list[Write], args: Iterable[Any], result: Any) -> Any:
        written = {storage_key(write.old) for write in writes}
        known = memory_of([*pytree.tree_leaves(args), *self.state.values()])
        values: list[torch.Tensor] = []
        for write in writes:
            # The exporter's own copies fail if the value is an input of the graph.
            inputs = known if self._is_root(write.owner) else written
            is_input = storage_key(write.new) in inputs
            values.append(write.new.clone() if is_input else write.new)
        if written & memory_of(pytree.tree_leaves(result)):
            result = pytree.tree_map(lambda leaf: _apart(leaf, written), result)
        done: set[int] = set()
        for write, value in zip(writes, values, strict=True):
            if self._is_root(write.owner):
                torch.nn.Module.__setattr__(write.owner, write.name, value)
            elif id(write.old) not in done:
                done.add(id(write.old))
                write.old.copy_(value)
        return result

    def _is_root(self, owner: torch.nn.Module) -> bool:
        return buffers_dict(owner) is buffers_dict(self.module)

    def _cancel(self, path: str) -> None:
        # The exporter copies what a buffer of the root was assigned last.
        owner, name = self.buffers.get(path, (None, ""))
        if owner is not None and self._is_root(owner) and path in self.tensors:
            torch.nn.Module.__setattr__(owner, name, self.tensors[path].clone())


def _apart(leaf: Any, written: Collection[int]) -> Any:
    return leaf.clone() if memory_of([leaf]) & set(written) else leaf


def memory_of(leaves: Iterable[Any]) -> set[int]:
    """Return the memory of the tensors among some values."""
    tensors = tensors_among(leaves)
    return {storage_key(tensor) for tensor in tensors if tensor.layout is torch.strided}


def names_by_memory(state: Mapping[str, torch.Tensor]) -> dict[int, list[str]]:
    """Return the names of the tensors in each memory.

    >>> x = torch.ones(2)
    >>> list(names_by_memory({"a": x, "b": x[1:], "c": x.clone()}).values())
    [['a', 'b'], ['c']]
    """
    return grouped([(key, name) for name in state for key in memory_of([state[name]])])


def fits(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Return whether writing the values of one tensor to another has the effect of an assignment.

    >>> fits(torch.zeros(2), torch.ones(2)), fits(torch.zeros(2), torch.ones(1))
    (True, False)
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return (
        type(old) is type(new)
        and (old.dtype, old.layout, device_of(old)) == (new.dtype, new.layout, device_of(new))
        and old.layout is torch.strided
        and not old.requires_grad
        and old.dim() == new.dim()
        # A comparison of symbolic sizes would be a guard.
        and all(statically_known_true(a == b) for a, b in zip(old.shape, new.shape, strict=True))
    )


def has_state(value: Any) -> bool:
    """Return whether the attributes of an object may be state of a user's module.

    >>> has_state(torch.nn.ReLU()), has_state(torch.float32), has_state(has_state)
    (True, False, False)
    """
    if isinstance(value, torch.nn.Module):
        return True
    if isinstance(value, type | ModuleType | torch.Tensor) or callable(value):
        return False
    package = type(value).__module__.partition(".")[0]
    return package not in FOREIGN and isinstance(getattr(value, "__dict__", None), dict)
