"""Devices and memory: where each device of a program goes, and the tensors of a state made anew.

The one place that says which operands of a node name a device.  State is copied or shared, moved, tied and aliased exactly as in
the program; opaque modules are copied together.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from ...ir.arguments import CONTAINERS, children_of, with_children
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Graph, Node, Op
from ...ir.own_operators import tensors_of
from ...ir.program import Program
from ...ir.state import Slot, SlotKind
from ...ir.state_changes import as_plain, copy_value, dressed, has_window
from ...ir.torch_private import FakeTensor, OpOverload, device_of, fake_on, parameters_of, storage_key, window_on

__all__ = ["Devices", "materialise", "moved_arg", "moved_program", "names_device_type"]

CPU = torch.device("cpu")


@frozen
class Devices:
    """Says where each device goes: all to one, or some of them each to its own.

    >>> devices = Devices.of({"cuda:0": "cuda:1", "cuda": "cpu"})
    >>> [str(devices[torch.device(name)]) for name in ("cuda:0", "cuda:7", "cpu")]
    ['cuda:1', 'cpu', 'cpu']
    """

    everything: torch.device | None = None
    """Where all devices go."""
    pairs: Mapping[torch.device, torch.device] = field(factory=lambda: MappingProxyType({}))
    """Where some go; a device without an index stands for all of its type that are not said themselves."""

    @classmethod
    def of(cls, given: object) -> Devices:
        """Return what a device, its name, or a mapping of devices means.

        Raises:
            TypeError: it is none of these.
            ValueError: torch knows no such device.
        """
        if isinstance(given, Mapping):
            keys = {device_said(key): _with_index(device_said(value)) for key, value in given.items()}  # type: ignore[misc]
            return cls(None, MappingProxyType(keys))
        return cls(_with_index(device_said(given)))

    def __getitem__(self, device: torch.device) -> torch.device:
        if self.everything is not None:
            made = self.everything
        else:
            exact = self.pairs.get(device) or self.pairs.get(_with_index(device))
            made = exact or self.pairs.get(torch.device(device.type), device)
        return device if made == device else made


def device_said(given: object) -> torch.device:
    """Return a device that is given as such or by name.

    >>> device_said("cuda:1"), device_said("cpu:0")
    (device(type='cuda', index=1), device(type='cpu'))
    """
    if not isinstance(given, str | torch.device):
        raise TypeError(f"a device is a torch.device or its name, such as 'cuda:0', not {given!r}")
    try:
        device = torch.device(given)
    except RuntimeError as error:
        raise ValueError(f"{given!r} is no device ({str(error).splitlines()[0]}); say 'cpu', 'cuda:0' or 'meta'") from error
    return torch.device(device.type) if device.type in ("cpu", "meta") else device


def _with_index(device: torch.device) -> torch.device:
    # "cuda" is the current device; tensors on it say its number.
    index: Any = device.index
    if index is not None or device.type in ("cpu", "meta"):
        return device
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    is_here = current is not None and current.type == device.type
    return torch.device(device.type, torch.accelerator.current_device_index() if is_here else 0)


DEVICE_TYPE_OPERATORS = frozenset({"higher_order.wrap_with_autocast", "torch.amp.autocast_mode._enter_autocast"})
"""Operators whose first argument names a device type as a string."""


def names_device_type(node: Node) -> bool:
    """Return whether the first argument of a node is the type of the devices for which it changes something.

    >>> names_device_type(Node("y", Op("toy.neg")))
    False
    """
    return type(node.do) is Op and node.do.name in DEVICE_TYPE_OPERATORS and bool(node.args) and type(node.args[0]) is str


def moved_program(program: Program, devices: Devices) -> Program:
    """Return the program with every device that its nodes say replaced; the same object if none differs.

    >>> from purefx.ir import Graph, Node, Op, Program
    >>> node = Node("a", Op("aten.arange.default"), (4,), (("device", torch.device("cpu")),))
    >>> moved_program(Program.of({"": Graph((), (node,))}), Devices.of("meta")).main.nodes[0].kwargs
    (('device', device(type='meta')),)
    """
    return program.with_graphs({name: _moved_graph(program.graphs[name], devices) for name in program.order})


def _moved_graph(graph: Graph, devices: Devices) -> Graph:
    made = graph.with_nodes([_moved_node(node, devices) for node in graph.nodes])
    output = moved_arg(graph.output, devices)
    return made if output is graph.output else evolve(made, output=output)


def _moved_node(node: Node, devices: Devices) -> Node:
    args, kwargs = moved_arg(node.args, devices), moved_arg(node.kwargs, devices)
    if names_device_type(node):
        args = (devices[torch.device(args[0])].type, *args[1:])
    elif type(node.do) is Op and _makes_tensors(node.do.target):
        # A device that is not said is the CPU, of which alone memory can be pinned.
        known = dict(kwargs)
        if known.get("device") is None and devices[CPU] is not CPU:
            known["device"] = devices[CPU]
        if known.get("pin_memory") is True and torch.device(known.get("device") or CPU).type != "cpu":
            known["pin_memory"] = False
        made = tuple(known.items())
        kwargs = kwargs if made == kwargs else made
    return node.evolve(args=args, kwargs=kwargs)


@cache
def _makes_tensors(target: Any) -> bool:
    # Whether an operator makes tensors out of none, on a device that it takes by name.
    parameters = parameters_of(target) if isinstance(target, OpOverload) else ()
    by_name = any(one.name == "device" and one.kwarg_only for one in parameters)
    return by_name and not any("Tensor" in one.kind for one in parameters)


def moved_arg(arg: Any, devices: Devices) -> Any:
    """Return an argument with the devices in it replaced; the same object if none differs.

    >>> moved_arg((1, torch.device("cpu")), Devices.of("meta"))
    (1, device(type='meta'))
    """
    if isinstance(arg, torch.device):
        return devices[arg]
    if type(arg) not in CONTAINERS:
        return arg
    return with_children(arg, [moved_arg(part, devices) for part in children_of(arg)])


@define
class StorageViews:
    """What became of memory that several tensors look at.

    >>> a, windows = torch.ones(4), StorageViews(copy=True)
    >>> windows.window(a).zero_() is a, windows.window(a[1:]).tolist(), a.tolist()
    (False, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """

    copy: bool
    devices: Devices | None = None
    """Where they go; None leaves them."""
    memories: dict[int, torch.Tensor] = field(factory=dict)
    """The new memory, by the key of the old."""
    memo: dict[int, Any] = field(factory=dict)
    """What became of the rest, as ``copy.deepcopy`` has it."""

    def goes_to(self, tensor: torch.Tensor) -> torch.device | None:
        """Return the device that a tensor moves to; None if it stays."""
        if self.devices is None:
            return None
        device = device_of(tensor)
        made = self.devices[device]
        return None if made == device else made

    def window(self, plain: torch.Tensor) -> torch.Tensor:
        """Return what stands for a tensor, which is strided and needs no gradient."""
        key = storage_key(plain)
        memory = self.memories.get(key)
        if memory is None:
            whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
            device = self.goes_to(plain)
            memory = self.memories[key] = whole.to(device) if device is not None else whole.clone() if self.copy else whole
        return window_on(memory.untyped_storage(), plain)


def copied_modules(
    modules: Sequence[tuple[str, torch.nn.Module]], tensors: Iterable[tuple[Any, Any]], windows: StorageViews
) -> list[torch.nn.Module]:
    """Return the modules to register.

    Args:
        modules: the modules, each with its slot.
        tensors: what the program has in slots of its own, and what became of it.
        windows: what became of memory that several look at, and whether to copy and to move; without a copy modules are new
            only where one must move.

    Raises:
        UnsupportedProgram: Python cannot copy a module.

    >>> linear = torch.nn.Linear(2, 2)
    >>> [copied] = copied_modules([("a", linear)], [(linear.weight, "new")], StorageViews(copy=True))
    >>> copied.__dict__["_parameters"]["weight"]
    'new'
    """
    memo = windows.memo | {id(old): new for old, new in tensors}
    held = [(name, tensor) for name, module in modules for tensor in tensors_of(module)]
    if not windows.copy and all(windows.goes_to(tensor) is None for _, tensor in held):
        return [module for _, module in modules]
    several = _seen_twice([tensor for _, tensor in held]) | windows.memories.keys()
    for name, tensor in held:
        device = windows.goes_to(tensor)
        if id(tensor) in memo:
            continue
        if not has_window(tensor):
            copy_value(name, tensor, memo, device=device)
        elif isinstance(tensor, FakeTensor):
            memo[id(tensor)] = tensor if device is None else dressed(as_plain(tensor).to(device), tensor, memo)
        elif device is not None or storage_key(tensor) in several:
            memo[id(tensor)] = dressed(windows.window(as_plain(tensor)), tensor, memo)
    return [_copied(name, module, memo) for name, module in modules]


def _seen_twice(tensors: Iterable[torch.Tensor]) -> set[int]:
    # Memory that several tensors look at: copying tensor by tensor would part them.
    seen: dict[int, int] = {}
    twice: set[int] = set()
    for tensor in tensors:
        if has_window(tensor):
            key = storage_key(tensor)
            if seen.setdefault(key, id(tensor)) != id(tensor):
                twice.add(key)
    return twice


def _copied(name: str, module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    try:
        return copying.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedProgram(
            f"the module {type(module).__qualname__} at {name!r} cannot be copied ({type(error).__name__}: {error}); "
            'lower with state="share" to use it as it is, or give it a __deepcopy__'
        ) from error


def materialise(program: Program, *, copy: bool, devices: Devices | None = None) -> dict[int, Any]:
    """Return the value to register for each cell.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.
        devices: where they go; None leaves them.

    Returns:
        Tensors, parameters, modules and other objects by cell.

    Raises:
        UnsupportedProgram: a module that the program holds cannot be copied.
    """
    shared = _shared_storages(program) if copy or devices is not None else frozenset()
    windows = StorageViews(copy, devices)
    cells: dict[int, Any] = {}
    modules: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, slot in program.state.pairs:
        if slot.cell in cells or slot.cell in modules:
            continue
        if slot.kind is SlotKind.MODULE:
            modules[slot.cell] = (name, slot.value)
        else:
            cells[slot.cell] = _value(name, slot, windows, shared)
    if modules and (copy or devices is not None):
        tensors = [(slot.value, cells[slot.cell]) for _, slot in program.state.pairs if slot.cell in cells]
        copies = copied_modules(list(modules.values()), tensors, windows)
        return cells | dict(zip(modules, copies, strict=True))
    return cells | {cell: module for cell, (_, module) in modules.items()}


def _shared_storages(program: Program) -> frozenset[int]:
    cells: dict[int, int] = {}
    shared: set[int] = set()
    for _, slot in program.state.pairs:
        if cells.setdefault(slot.storage, slot.cell) != slot.cell:
            shared.add(slot.storage)
    return frozenset(shared).union(*program.state.entangled)


def _value(name: str, slot: Slot, windows: StorageViews, shared: frozenset[int]) -> Any:
    value = slot.value
    if isinstance(value, torch.device) and windows.devices is not None:
        return windows.devices[value]
    if not isinstance(value, torch.Tensor):
        return copy_value(name, value, windows.memo) if windows.copy else value
    device = windows.goes_to(value)
    is_shared, moves = slot.storage in shared, device is not None
    if not (is_shared or moves or windows.copy) and (
        isinstance(value, torch.nn.Parameter) or slot.kind is not SlotKind.PARAMETER
    ):
        return value
    if not has_window(value):
        return copy_value(name, value, windows.memo, device=device) if moves or windows.copy else value
    plain = as_plain(value)
    if device is not None and isinstance(plain, FakeTensor):
        plain = fake_on(plain, device)
    elif is_shared or ((moves or windows.copy) and not _is_whole(plain)):
        plain = windows.window(plain)
    elif moves:
        plain = plain.to(device)
    elif windows.copy:
        plain = plain.clone()
    made = dressed(plain, value, windows.memo)
    if slot.kind is SlotKind.PARAMETER and not isinstance(made, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=value.requires_grad)
    return made


def _is_whole(plain: torch.Tensor) -> bool:
    # A clone of it lies in memory as it does: nothing overlaps, and there is nothing around it that a view could reach.
    return type(plain) is FakeTensor or (plain.is_contiguous() and plain.nbytes == plain.untyped_storage().nbytes())
