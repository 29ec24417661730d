"""``to_device``; and copies of state that preserve ties, shared memory and overlaps.

No operator runs: fake values are made again on the new devices.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from attrs import Factory, define, evolve, frozen

from ...ir.arguments import map_leaves
from ...ir.errors import UnsupportedProgram, first_line
from ...ir.graph import Graph, Node, Op
from ...ir.meta import Meta
from ...ir.own_operators import tensors_of
from ...ir.program import Program
from ...ir.signature import LiteralType, TensorType, UserInput
from ...ir.state import SlotKind, State
from ...ir.state_changes import as_plain, copy_value, dressed, has_window
from ...ir.tensors import has_numbers
from ...ir.torch_private import (
    FakeTensor,
    OpOverload,
    device_of,
    fake_on,
    parameters_of,
    pytree,
    storage_key,
    window_on,
)  # fmt: skip
from ..transformation import transformation

CPU = torch.device("cpu")


@frozen
class Devices:
    """Maps devices: all to one, or each of some to another.

    >>> devices = Devices.of({"cuda:0": "cuda:1", "cuda": "cpu"})
    >>> [str(devices[torch.device(name)]) for name in ("cuda:0", "cuda:7", "cpu")]
    ['cuda:1', 'cpu', 'cpu']
    """

    everything: torch.device | None = None
    """The target of all devices, if there is only one."""
    pairs: Mapping[torch.device, torch.device] = Factory(lambda: MappingProxyType({}))
    """The targets by device; a device without an index means all of its type that are not keys themselves."""

    @classmethod
    def of(cls, given: object) -> Devices:
        """Return the map for a device, a name of one, or a mapping of devices.

        Raises:
            TypeError: the argument is none of these.
            ValueError: torch does not know the device.
        """
        if isinstance(given, Mapping):
            return cls(
                None,
                MappingProxyType(
                    {_device(key): _with_index(_device(value)) for key, value in given.items()}
                ),
            )
        return cls(_with_index(_device(given)))

    def __getitem__(self, device: torch.device) -> torch.device:
        made = self.everything
        if made is None:
            exact = self.pairs.get(device) or self.pairs.get(_with_index(device))
            made = exact or self.pairs.get(torch.device(device.type), device)
        return device if made == device else made

    def target(self, tensor: torch.Tensor) -> torch.device | None:
        """Return the target of a tensor; None if it stays."""
        device = device_of(tensor)
        return None if self[device] is device else self[device]

    def argument(self, arg: Any) -> Any:
        """Return an argument with its devices mapped; the same object if none differs."""
        return map_leaves(arg, lambda leaf: self[leaf] if isinstance(leaf, torch.device) else leaf)


STAYING = Devices.of({})


def _device(given: object) -> torch.device:
    if not isinstance(given, str | torch.device):
        raise TypeError(f"a device is a torch.device or its name, such as 'cuda:0', not {given!r}")
    try:
        device = torch.device(given)
    except RuntimeError as error:
        raise ValueError(
            f"{given!r} is not a device ({first_line(error)}); pass 'cpu', 'cuda:0' or 'meta'"
        ) from error
    return torch.device(device.type) if device.type in ("cpu", "meta") else device


def _with_index(device: torch.device) -> torch.device:
    # "cuda" is the current device; tensors on it have its index.
    if ":" in str(device) or device.type in ("cpu", "meta"):
        return device
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device(
        device.type,
        torch.accelerator.current_device_index() if current and current.type == device.type else 0,
    )


WITH_DEVICE_TYPE = frozenset(
    {"higher_order.wrap_with_autocast", "torch.amp.autocast_mode._enter_autocast"}
)
"""Operators whose first argument is a device type as a string."""


def moved_program(
    program: Program, devices: Devices, described: Callable[[Meta], Meta] = lambda meta: meta
) -> Program:
    """Return the program with the devices in the arguments of its nodes mapped; the same object if none differs.

    Args:
        program: the program.
        devices: the map.
        described: returns the new meta of a node or an input.

    >>> from purefx.ir import Graph, Node, Op, Program
    >>> node = Node("a", Op("aten.arange.default"), (4,), (("device", torch.device("cpu")),))
    >>> moved_program(Program.of({"": Graph((), (node,))}), Devices.of("meta")).main.nodes[0].kwargs
    (('device', device(type='meta')),)
    """
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        metas = [described(formal.meta) for formal in graph.inputs]
        inputs = [
            one if meta is one.meta else evolve(one, meta=meta)
            for one, meta in zip(graph.inputs, metas, strict=True)
        ]
        nodes = [_moved_node(node, devices, described(node.meta)) for node in graph.nodes]
        made, output = graph.with_nodes(nodes, inputs=tuple(inputs)), devices.argument(graph.output)
        graphs[name] = made if output is graph.output else evolve(made, output=output)
    return program.with_graphs(graphs)


def _moved_node(node: Node, devices: Devices, meta: Meta) -> Node:
    args, kwargs = devices.argument(node.args), devices.argument(node.kwargs)
    if node.op_name in WITH_DEVICE_TYPE and type(args[0]) is str:
        args = (_autocast_device(node.name, args[0], devices), *args[1:])
    elif type(node.do) is Op and _makes_tensors(node.target):
        # The default device is the CPU, the only one with pinned memory.
        known = dict(kwargs)
        if known.get("device") is None and devices[CPU] is not CPU:
            known["device"] = devices[CPU]
        if (
            known.get("pin_memory") is True
            and torch.device(known.get("device") or CPU).type != "cpu"
        ):
            known["pin_memory"] = False
        kwargs = kwargs if tuple(known.items()) == kwargs else tuple(known.items())
    return node.evolve(args=args, kwargs=kwargs, meta=meta)


def _autocast_device(name: str, kind: str, devices: Devices) -> str:
    target = devices[torch.device(kind)].type
    if target != kind and not torch.amp.is_autocast_available(target):
        raise UnsupportedProgram(
            f"{name} runs under autocast of {kind!r}; autocast does not support {target!r}: export without it"
        )
    return target


@cache
def _makes_tensors(target: Any) -> bool:
    # Whether an operator takes no tensor, but a device by name.
    parameters = parameters_of(target) if isinstance(target, OpOverload) else ()
    by_name = any(one.name == "device" and one.kwarg_only for one in parameters)
    return by_name and not any("Tensor" in one.kind for one in parameters)


@define
class Copies:
    """Copies of tensors and modules that share memory like the originals.

    >>> a, copies = torch.ones(4), Copies(True, STAYING)
    >>> copies.tensor("a", a).zero_() is a, copies.tensor("b", a[1:]).tolist(), a.tolist()
    (False, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """

    copy: bool
    """Whether to copy tensors that do not move."""
    devices: Devices
    memories: dict[int, torch.Tensor] = Factory(dict)
    """The new memory by the key of the old memory."""
    memo: dict[int, Any] = Factory(dict)
    """The copies, in the form of the memo of ``copy.deepcopy``."""

    def tensor(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return the copy of a tensor; the same object if it neither moves nor has to be copied."""
        device = None if self.devices is STAYING else self.devices.target(value)
        if device is None and not self.copy:
            return value
        if not has_window(value):
            return copy_value(name, value, self.memo, device=device)
        plain = as_plain(value)
        if isinstance(plain, FakeTensor):
            plain = plain.clone() if device is None else fake_on(plain, device)
        else:
            plain = self._window(plain, device)
        return dressed(plain, value, self.memo)

    def _window(self, plain: torch.Tensor, device: torch.device | None) -> torch.Tensor:
        key, storage = storage_key(plain), plain.untyped_storage()
        if key in self.memories:
            return window_on(self.memories[key].untyped_storage(), plain)
        # The copy of a tensor that fills its memory is the new memory, unless copying applies a lazy conjugate or sign.
        # torch does not copy tensors of packed dtypes, only their bytes.
        is_whole = (
            has_numbers(plain.dtype)
            and plain.is_contiguous()
            and plain.nbytes == storage.nbytes()
            and not (plain.is_conj() or plain.is_neg())
        )
        whole = (
            plain
            if is_whole
            else torch.empty(0, dtype=torch.uint8, device=plain.device).set_(storage)
        )
        made = self.memories[key] = whole.clone() if device is None else whole.to(device)
        return made if is_whole else window_on(made.untyped_storage(), plain)

    def module(self, name: str, module: torch.nn.Module) -> torch.nn.Module:
        """Return the copy of a module; the same object if nothing in it moves and it need not be copied."""
        held = list(tensors_of(module))
        if not self.copy and not any(map(self.devices.target, held)):
            return module
        for tensor in held:
            if id(tensor) not in self.memo:
                self.memo[id(tensor)] = self.tensor(name, tensor)
        try:
            return copying.deepcopy(module, self.memo)
        except Exception as error:
            raise UnsupportedProgram(
                f"the module {type(module).__qualname__} at {name!r} cannot be copied ({type(error).__name__}: {error}); "
                'lower with state="share" to use it without a copy, or define __deepcopy__ in its class'
            ) from error


def materialise(program: Program, *, copy: bool, devices: Devices | None = None) -> dict[int, Any]:
    """Return the value to register for each cell.

    Args:
        program: the owner of the state.
        copy: whether to copy all tensors; otherwise those that do not move are shared.
        devices: the map of devices; by default, all tensors stay.

    Returns:
        Tensors, parameters, modules and other objects by cell.

    Raises:
        UnsupportedProgram: a module in the state cannot be copied.
    """
    copies, cells = Copies(copy, devices or STAYING), dict[int, Any]()
    for name, slot in sorted(program.state.pairs, key=lambda pair: pair[1].kind is SlotKind.MODULE):
        if slot.cell in cells:
            continue
        value = slot.value
        if slot.kind is SlotKind.MODULE:
            made = copies.module(name, value)
        elif isinstance(value, torch.Tensor):
            made = copies.memo[id(value)] = copies.tensor(name, value)
            if slot.kind is SlotKind.PARAMETER and not isinstance(made, torch.nn.Parameter):
                made = torch.nn.Parameter(made, requires_grad=value.requires_grad)
        elif isinstance(value, torch.device):
            made = copies.devices[value]
        else:
            made = copy_value(name, value, copies.memo) if copy else value
        cells[slot.cell] = made
    return cells


@transformation(
    proven=True,
    laws=[
        "on the meta device every value has its recorded type",
        "back from the meta device everything is where it was",
        "state that was tied, or shared memory, still does",
        "a program of that device is the same object",
    ],
)
def to_device(program: Program, device: torch.device | str | Mapping[Any, Any]) -> Program:
    """Move a program to a device: its state, its inputs, and every device in it.

    Before::

        takes: user x: f32[4, 8];  parameter weight: f32[8, 8]
        w = get weight                                                      # on cpu
        y = aten.linear.default(x, w)
        n = aten.arange.default(4, device=device("cpu"), pin_memory=False)

    After ``to_device(program, "cuda:1")``::

        takes: user x: f32[4, 8] on cuda:1;  parameter weight: f32[8, 8] on cuda:1
        w = get weight                                                      # on cuda:1
        y = aten.linear.default(x, w)
        n = aten.arange.default(4, device=device("cuda:1"), pin_memory=False)

    A trace does not distinguish ``torch.zeros(3)`` from ``torch.zeros(3, device=x.device)``, or ``x.cpu()`` from
    ``x.to(y.device)``.  So all devices are replaced, also those in the code of the module, and the device types of autocast
    regions.  No operator runs: sizes and strides of values stay.  State on the meta device has no contents.

    Args:
        program: a program at any stage.
        device: the target, a device or its name; or a mapping of devices.  A key without an index (``"cuda"``) means all devices
            of its type that are not keys themselves; devices that are not keys stay.  A target without an index is the current
            device of its type.

    Returns:
        The moved program, with new state where it moved; the same object if nothing moves.

    Raises:
        UnsupportedProgram: the device is not on this machine and there are contents to move; contents are missing (moving from
            meta); or autocast does not support the device.
        ValueError: torch does not know the device.
        TypeError: ``device`` is not a device, name or mapping.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))
    >>> moved = px.to_device(program, "meta")
    >>> moved.state["weight"].value.device, moved.main.nodes[-1].meta["val"].device
    (device(type='meta'), device(type='meta'))
    >>> px.lower(moved)(torch.ones(1, 2, device="meta")).shape
    torch.Size([1, 3])
    """
    devices = Devices.of(device)
    going = {name: slot for name, slot in program.state.pairs if _moves(slot.value, devices)}
    try:
        with torch.no_grad():
            cells = materialise(program, copy=False, devices=devices) if going else {}
            memo = {id(slot.value): cells[slot.cell] for slot in going.values()}
            made = moved_program(program, devices, lambda meta: _moved_meta(meta, devices, memo))
    except UnsupportedProgram:
        raise
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        what, reason = (
            f"the state {', '.join(map(repr, going))}" if going else "a value",
            str(error).partition("\n")[0],
        )
        raise UnsupportedProgram(
            f"{what} cannot be moved ({reason}): tensors need contents and a device on this machine; or move to the meta device"
        ) from error
    signature = evolve(
        program.signature,
        inputs=tuple([_moved_input(spec, devices) for spec in program.signature.inputs]),
    )
    if made is program and not going and signature == program.signature:
        return program
    changed = {name: evolve(slot, value=cells[slot.cell]) for name, slot in going.items()}
    state = (
        State(program.state.order, program.state.slots.update(changed))
        if changed
        else program.state
    )
    return made.evolve(state=state, signature=signature)


def _moved_input(spec: Any, devices: Devices) -> Any:
    if not isinstance(spec, UserInput):
        return spec
    kind, default = spec.type, spec.default
    if isinstance(kind, TensorType):
        kind = evolve(kind, device=str(devices[torch.device(kind.device)]))
    elif isinstance(kind, LiteralType):
        kind = LiteralType(devices.argument(kind.value))
    return evolve(spec, type=kind, default=default and LiteralType(devices.argument(default.value)))


def _moves(value: Any, devices: Devices) -> bool:
    if isinstance(value, torch.device):
        return devices[value] is not value
    tensors = (
        tensors_of(value)
        if isinstance(value, torch.nn.Module)
        else [value]
        if isinstance(value, torch.Tensor)
        else []
    )
    return any(map(devices.target, tensors))


def _moved_meta(meta: Meta, devices: Devices, memo: dict[int, Any]) -> Meta:
    # Tensors that several values share stay shared.
    leaves, tree = pytree.tree_flatten(meta.get("val"))
    made = [
        _described(leaf, devices, memo) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    ]
    if all(one is other for one, other in zip(made, leaves, strict=True)):
        return meta
    return MappingProxyType({**meta, "val": pytree.tree_unflatten(made, tree)})


def _described(value: Any, devices: Devices, memo: dict[int, Any]) -> torch.Tensor:
    device = devices.target(value)
    if device is None:
        return value
    if id(value) not in memo:
        is_fake = isinstance(value, FakeTensor) and value.layout is torch.strided
        memo[id(value)] = (
            fake_on(value, device) if is_fake else torch.empty_like(value, device=device)
        )
    return memo[id(value)]
