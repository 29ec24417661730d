"""``Devices``: where each device of a program goes; the one place that says which operands of a node name a device.

``moved_graph`` and ``moved_program`` replace what nodes say; state is moved in ``memory``, fake values in ``to_device``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve, field, frozen

from ...ir.arguments import CONTAINERS, Arg, children_of, with_children
from ...ir.graph import Graph, Node, Op
from ...ir.program import Program
from ...ir.torch_private import OpOverload, parameters_of

__all__ = ["Devices", "device_said", "moved_arg", "moved_program", "names_device_type"]

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

    def types(self, kind: str) -> tuple[str, ...]:
        """Return to which types of devices those of a type go.

        >>> Devices.of({"cuda:0": "cpu"}).types("cuda"), Devices.of("meta").types("cpu")
        (('cpu', 'cuda'), ('meta',))
        """
        if self.everything is not None:
            return (self.everything.type,)
        found = {made.type for device, made in self.pairs.items() if device.type == kind}
        is_all = torch.device(kind) in self.pairs or (len(found) == 1 and kind in found)
        return tuple(sorted(found if is_all else found | {kind}))


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
        types = devices.types(args[0])
        args = (types[0], *args[1:]) if len(types) == 1 else args
    elif type(node.do) is Op and isinstance(node.do.target, OpOverload):
        args, kwargs = _by_schema(node.do.target, args, kwargs, devices)
    return node.evolve(args=args, kwargs=kwargs)


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


@cache
def _device_at(target: Any) -> tuple[int, bool] | None:
    # Where an operator takes a device, and whether it makes tensors out of none.
    parameters = parameters_of(target)
    places = [index for index, one in enumerate(parameters) if one.name == "device"]
    if not places:
        return None
    is_factory = parameters[places[0]].kwarg_only and not any("Tensor" in one.kind for one in parameters)
    return places[0], is_factory


def _by_schema(target: Any, args: tuple[Arg, ...], kwargs: Any, devices: Devices) -> tuple[Any, Any]:
    # Devices that are strings, and those that are not said: what makes tensors makes them on the CPU.
    found = _device_at(target)
    if found is None:
        return args, kwargs
    place, is_factory = found
    if place < len(args) and type(args[place]) is str:
        args = (*args[:place], _moved_name(args[place], devices), *args[place + 1 :])
    known = dict(kwargs)
    device = known.get("device")
    if type(device) is str:
        known["device"] = _moved_name(device, devices)
    elif device is None and is_factory and devices[CPU] is not CPU:
        known["device"] = devices[CPU]
    if known.get("pin_memory") is True and is_factory and torch.device(known.get("device") or CPU).type != "cpu":
        known["pin_memory"] = False  # only memory of the CPU can be
    made = tuple(known.items())
    return args, kwargs if made == kwargs else made


def _moved_name(name: Any, devices: Devices) -> str:
    device = torch.device(name)
    made = devices[device]
    return name if made == device else str(made)
