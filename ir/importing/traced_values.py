"""The contents of a traced graph and of its modules: operators, arguments, meta, parameters, constants.

Modules that are called as they are become opaque modules of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx
from attrs import frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import Arg, Record, Ref
from ..callables import Method, class_name, op_name
from ..effects.registered import effects_of, only_overload
from ..errors import InvalidProgram, Violation
from ..graph import Op
from ..meta import Meta, freeze_meta
from ..names import FROM_ROOT, is_path, join
from ..operators import Said
from ..persistent import pmap
from ..program import Module
from ..state import Slot, SlotKind, State
from ..tensors import TensorIds
from ..torch_private import pytree, unsaved_buffers
from ..verify.findings import PLAIN, short
from .graphs import container_of

VALUES = (torch.Tensor, int, float, bool, complex, str, *SYMBOLIC, type(None))


class Operators:
    """One ``Op`` for each function and method; functions of one name get different ones.

    >>> operators = Operators()
    >>> operators.function(lambda: 1).name == operators.function(lambda: 2).name
    False
    """

    def __init__(self, said: Said | None = None) -> None:
        self._said = said or {}
        self._known: dict[int, tuple[Any, Op]] = {}
        self._methods: dict[Method, Op] = {}
        self._bearers: dict[str, Any] = {}

    def function(self, target: Any) -> Op:
        """Return the op that calls a function."""
        found = self._known.get(id(target))
        if found is None:
            found = self._known[id(target)] = (target, self._made(target))
        return found[1]

    def method(self, name: str, *, of_tensor: bool) -> Op:
        """Return the op that calls a method."""
        method = Method(name, of_tensor)
        if of_tensor and effects_of(method).unknown:
            method = Method(name)
        if method not in self._methods:
            self._methods[method] = self._made(method)
        return self._methods[method]

    def _made(self, target: Any) -> Op:
        target = only_overload(target)
        name, number = op_name(target), 1
        wanted = name
        while self._bearers.setdefault(name, target) is not target:
            number += 1
            name = f"{wanted}#{number}"
        said = self._said.get(target) if self._said and type(target).__hash__ is not None else None
        return Op(name, effects_of(target) if said is None else said, target)


@frozen
class Literals:
    """Converts the arguments of fx nodes; objects that no argument can be stay, until ``constants.py`` makes them state.

    Args:
        known: what stands for each fx node.
        build: adds a node that calls a class, and returns its use.
    """

    known: Mapping[Any, Arg]
    build: Callable[[Any, tuple[Arg, ...], Any], Ref]

    def convert(self, arg: Any, at: Any) -> Arg:
        """Return an argument of a node as a value."""
        kind = type(arg)
        if kind is torch.fx.Node:
            return self.known[arg] if arg in self.known else Ref(arg.name)
        if kind in PLAIN:
            return arg
        found = container_of(arg, lambda part: self.convert(part, at))
        # fx keeps named tuples, and makes plain ones of all others.
        return arg if found is None else self.build(kind, found, at) if pytree.is_namedtuple_instance(arg) else found

    def packed(self, value: Any) -> Arg:
        """Return what was bound to a parameter as a value: the dict of the rest of the keywords becomes a ``Record``."""
        return Record(tuple(value.items())) if type(value) is dict else value


def meta_of(fx_node: Any, values: Mapping[Any, Any]) -> Meta:
    """Return the meta of a node: what its tracer wrote, ``val`` where it can be known, and ``tag``."""
    meta: dict[str, Any] = dict(fx_node.meta)
    if "val" not in meta:
        value = value_of(fx_node, values)
        if value is not None:
            meta["val"] = value
    tag = getattr(fx_node, "tag", None)
    if tag is not None:
        meta["tag"] = tag
    return freeze_meta(meta)


def value_of(fx_node: Any, values: Mapping[Any, Any]) -> Any:
    """Return the fake value of a node from its tracer or an example; None if it is unknown."""
    for found in (fx_node.meta.get("val"), fx_node.meta.get("example_value"), values.get(fx_node)):
        if found is not None and _is_value(found):
            return found
    return None


def _is_value(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_value, value))
    return isinstance(value, VALUES)


def is_tensor(arg: Any, values: Mapping[Any, Any]) -> bool:
    """Return whether an argument is known to be a tensor."""
    return isinstance(arg, torch.fx.Node) and (
        isinstance(value_of(arg, values), torch.Tensor) or type(arg.meta.get("tensor_meta")).__name__ == "TensorMetadata"
    )


MISSING = object()
"""The result of looking up a name that a module does not have."""


class Attributes:
    """The state of one root module, as far as it was found.

    Args:
        root: the module.

    Raises:
        InvalidProgram: a module or a piece of state has a name that no graph can have.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.modules: dict[str, torch.nn.Module] = {}
        self.paths: dict[int, list[str]] = {}
        """All paths of each module, by its identity."""
        self.constants: dict[str, Any] = {}
        """What graphs read that is neither parameter nor buffer nor module, by path from the root."""
        self.held: dict[str, torch.nn.Module] = {}
        """Modules that are called as they are, by path from the root."""
        for path, module in root.named_modules(remove_duplicate=False):
            self.modules[path] = module
            self.paths.setdefault(id(module), []).append(path)

    def find(self, module: torch.nn.Module, target: str) -> tuple[torch.nn.Module, Any]:
        """Return the module that holds an attribute, and the attribute; MISSING where there is none."""
        owner: Any = module
        *above, last = target.split(".")
        for part in above:
            owner = getattr(owner, part, MISSING)
            if not isinstance(owner, torch.nn.Module):
                return module, MISSING
        return owner, getattr(owner, last, MISSING)

    def read(self, holder: torch.nn.Module, target: str, value: Any) -> None:
        """Remember that a graph of a module reads an attribute that need not be a parameter or a buffer."""
        for path in self._places(holder):
            self.constants.setdefault(join(path, target), value)

    def hold(self, holder: torch.nn.Module, target: str, module: torch.nn.Module) -> None:
        """Remember that a graph of a module calls a module as it is."""
        for path in self._places(holder):
            self.held[join(path, target)] = module

    def _places(self, holder: torch.nn.Module) -> list[str]:
        return self.paths.get(id(holder), [])

    def state(self) -> State:
        """Return all state, in the order in which ``state_dict`` has it."""
        numbers = TensorIds()
        slots: dict[str, Slot] = {}
        for path, module in self.modules.items():
            if path in self.held:
                slots[path] = numbers.slot(module, SlotKind.MODULE, persistent=True)
            elif not self._is_inside(path):
                for name, slot in self._own(module, numbers):
                    slots[join(path, name)] = slot
        for path, module in self.held.items():
            if path not in slots:
                slots[path] = numbers.slot(module, SlotKind.MODULE, persistent=True)
        for path, value in self.constants.items():
            if path not in slots:
                slots[path] = numbers.slot(value, SlotKind.CONSTANT, persistent=False)
        for path in slots:
            check_path(path)
        return State(tuple(slots), pmap(slots))

    def _is_inside(self, path: str) -> bool:
        above = path.rpartition(".")[0]
        while above and above not in self.held:
            above = above.rpartition(".")[0]
        return bool(above)

    def _own(self, module: torch.nn.Module, numbers: TensorIds) -> Iterator[tuple[str, Slot]]:
        for name, value in module.named_parameters(recurse=False, remove_duplicate=False):
            yield name, numbers.slot(value, SlotKind.PARAMETER, persistent=True)
        unsaved = unsaved_buffers(module)
        for name, value in module.named_buffers(recurse=False, remove_duplicate=False):
            yield name, numbers.slot(value, SlotKind.BUFFER, persistent=name not in unsaved)

    def hierarchy(self, traced: dict[str, str]) -> tuple[Module, ...]:
        """Return the modules: those that are there, then those that only stacks name, with all that hold them."""
        # A graph module has a class of its own.
        graph = torch.fx.GraphModule
        types = {path: class_name(graph if isinstance(found, graph) else type(found)) for path, found in self.modules.items()}
        for path in self.modules:
            if path:
                check_path(path)
        kinds: dict[str, str | None] = {path: kind for path, kind in types.items() if not self._is_inside(path)}
        for path, kind in traced.items():
            parts = path.split(".") if path and not self._is_inside(path) else []
            for depth in range(1, len(parts)):
                kinds.setdefault(".".join(parts[:depth]), None)
            if parts and (kinds.get(path) is None or kinds[path] == PLAIN_MODULE):
                kinds[path] = kind or None
        if traced.get(""):
            kinds[""] = traced[""]
        return tuple([Module(path, kind) for path, kind in kinds.items()])


PLAIN_MODULE = "torch.nn.modules.module.Module"
"""What a GraphModule puts where a tracer went through a module; the stacks know what it was."""


def check_path(path: object) -> None:
    """Refuse a path that is none.

    Raises:
        InvalidProgram: it has empty parts, quotes or signs that cannot be seen.

    >>> check_path("layers.0.weight")
    """
    if not is_path(path):
        said = f"{short(path)} is not an attribute path: names are separated by dots and have no quotes and no control characters"
        raise InvalidProgram([Violation("names", said, advice="rename the module, parameter or attribute")])


def relative_path(target: str) -> str:
    """Return the path that a target names, as the body of its module writes it: lowered modules reach the root through ``/``.

    >>> relative_path("a.b"), relative_path("/.a.b")
    ('a.b', '/a.b')
    """
    return f"{FROM_ROOT}{target[2:]}" if target.startswith(f"{FROM_ROOT}.") else target


def is_computed(owner: torch.nn.Module, name: str) -> bool:
    """Return whether an attribute of a module is computed when it is read.

    >>> is_computed(torch.nn.Linear(1, 1), "weight"), is_computed(torch.nn.Linear(1, 1), "T_destination")
    (False, False)
    """
    return isinstance(getattr(type(owner), name, None), property) and not any(
        name in owner.__dict__.get(kind, ()) for kind in HOLDERS
    )


HOLDERS = ("_parameters", "_buffers", "_modules")
