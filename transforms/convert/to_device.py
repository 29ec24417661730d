"""``to_device``: the program on another device, as ``module.to(device)`` and its arguments there.

State is moved as ``lower(device=)`` moves it, fake values are described anew: no operator runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ...ir.errors import UnsupportedProgram
from ...ir.graph import Graph, Input, Meta, Node
from ...ir.own_operators import tensors_of
from ...ir.program import Program
from ...ir.signature import LiteralType, TensorType, UserInput
from ...ir.state import LITERALS, SlotKind, State
from ...ir.torch_private import FakeTensor, device_of, fake_on, pytree
from ..transformation import transformation
from .devices import Devices, materialise, moved_arg, moved_program, names_device_type

__all__ = ["to_device"]


@transformation(
    proven=True,
    laws=[
        "on the meta device every value is what is said of it",
        "back from the meta device everything is where it was",
        "state that was tied, or shared memory, still does",
        "a program of that device is the same object",
    ],
)
def to_device(program: Program, device: torch.device | str | Mapping[Any, Any]) -> Program:
    """Move a program to a device: its state, its inputs, and every device that it names.

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

    A trace does not tell ``torch.zeros(3)`` from ``torch.zeros(3, device=x.device)``, nor ``x.cpu()`` from ``x.to(y.device)``:
    all devices move, those that the code of the module wrote down too, and so does the device type of a region under autocast.
    No operator runs: sizes and strides of values stay.  What moves to the meta device loses its contents.

    Args:
        program: a program at any stage.
        device: a device or its name, to which everything goes; or a mapping of devices, which all move at once.  A key without an
            index (``"cuda"``) stands for all of its type that are not keys themselves; devices that are no key stay.  A target
            without an index is the current one.

    Returns:
        The moved program, with state of its own where it moved; the same object if nothing does.

    Raises:
        UnsupportedProgram: the device is not on this machine and there are contents to move; contents are missing (moving from
            meta); the program holds objects that cannot be moved, or a region under autocast that the other device has not.
        ValueError: torch knows no such device.
        TypeError: ``device`` is no device, name or mapping.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))
    >>> moved = px.to_device(program, "meta")
    >>> moved.state["weight"].value.device, moved.main.nodes[-1].meta["val"].device
    (device(type='meta'), device(type='meta'))
    >>> px.lower(moved)(torch.ones(1, 2, device="meta")).shape
    torch.Size([1, 3])
    """
    devices = Devices.of(device)
    moved = moved_program(program, devices)
    values = _Values(devices)
    state = _moved_state(program, devices, values)
    signature = evolve(program.signature, inputs=tuple([_moved_input(spec, devices) for spec in program.signature.inputs]))
    moved = moved.with_graphs({name: values.graph(moved.graphs[name]) for name in moved.order})
    if moved is program and state is program.state and signature == program.signature:
        return program
    _refuse_objects(program)
    _refuse_regions(program, devices)
    return moved.evolve(state=state, signature=signature)


def _moved_input(spec: Any, devices: Devices) -> Any:
    if not isinstance(spec, UserInput):
        return spec
    kind, default = spec.type, spec.default
    if isinstance(kind, TensorType):
        kind = evolve(kind, device=str(devices[torch.device(kind.device)]))
    elif isinstance(kind, LiteralType):
        kind = LiteralType(moved_arg(kind.value, devices))
    if default is not None:
        default = LiteralType(moved_arg(default.value, devices))
    return evolve(spec, type=kind, default=default)


def _moved_state(program: Program, devices: Devices, values: _Values) -> State:
    slots = dict(program.state.pairs)
    going = {name: [_checked(name, tensor, devices) for tensor in found] for name, found in _going(program.state, devices)}
    if not going:
        return program.state
    for name, targets in going.items():
        _require(name, targets)
    try:
        with torch.no_grad():
            made = materialise(program, copy=False, devices=devices)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).partition("\n")[0]
        raise UnsupportedProgram(f"the state {', '.join(map(repr, going))} cannot be moved: {said}") from error
    cells = {slots[name].cell for name in going}
    values.memo.update({id(slot.value): made[slot.cell] for slot in slots.values() if slot.cell in cells})
    changed = {name: evolve(slot, value=made[slot.cell]) for name, slot in slots.items() if slot.cell in cells}
    return State(program.state.order, program.state.slots.update(changed))


def _going(state: State, devices: Devices) -> Iterator[tuple[str, list[Any]]]:
    # The slots whose contents move, with the tensors that do.
    for name, slot in state.pairs:
        value = slot.value
        if isinstance(value, torch.device):
            if devices[value] is not value:
                yield name, []
        elif isinstance(value, torch.Tensor) or slot.kind is SlotKind.MODULE:
            tensors = [value] if isinstance(value, torch.Tensor) else list(tensors_of(value))
            found = [tensor for tensor in tensors if devices[at := device_of(tensor)] is not at]
            if found:
                yield name, found


def _checked(name: str, tensor: torch.Tensor, devices: Devices) -> torch.device | None:
    # The device that must be here.
    target = devices[device_of(tensor)]
    if isinstance(tensor, FakeTensor) or target.type == "meta":
        return None
    if tensor.is_meta:
        raise UnsupportedProgram(
            f"the state {name!r} is on the meta device and has no contents to move to {target}: give the program tensors first"
        )
    return target


def _require(name: str, targets: list[torch.device | None]) -> None:
    for target in {target for target in targets if target is not None}:
        try:
            torch.empty(0, device=target)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            said = str(error).partition("\n")[0]
            raise UnsupportedProgram(
                f"the state {name!r} cannot be moved: the device {target} is not here ({said}); move to the meta device, or "
                "move on a machine that has it"
            ) from error


def _refuse_objects(program: Program) -> None:
    for name, slot in program.state.pairs:
        value = slot.value
        known = isinstance(value, torch.Tensor) or slot.kind is SlotKind.MODULE or type(value) in LITERALS
        if not known:
            raise UnsupportedProgram(
                f"the state {name!r} is a {type(value).__qualname__}, and to_device cannot move what is in it: move the module "
                "before exporting it"
            )


def _refuse_regions(program: Program, devices: Devices) -> None:
    for name, node in program.nodes():
        if names_device_type(node):
            _refuse_region(f"{name or 'the root'} / {node.name}", node, devices)


def _refuse_region(where: str, node: Node, devices: Devices) -> None:
    kind: Any = node.args[0]
    target, *others = devices.types(kind)
    if others:
        raise UnsupportedProgram(
            f"{where} is a region under autocast of {kind!r}, and devices of that type go to "
            f"{', '.join((target, *others))}: map all of them with the key {kind!r}"
        )
    if target != kind and not torch.amp.is_autocast_available(target):
        raise UnsupportedProgram(
            f"{where} is a region under autocast of {kind!r}, and there is no autocast on {target!r}: export the module there, "
            "or without autocast"
        )


class _Values:
    """Fake values, described on their new devices; what is one value stays one."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.memo: dict[int, Any] = {}

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple([self._input(formal) for formal in graph.inputs])
        return graph.with_nodes([self._node(node) for node in graph.nodes], inputs=inputs)

    def _input(self, formal: Input) -> Input:
        meta = self._meta(formal.meta)
        return formal if meta is formal.meta else evolve(formal, meta=meta)

    def _node(self, node: Node) -> Node:
        return node.evolve(meta=self._meta(node.meta))

    def _meta(self, meta: Meta) -> Meta:
        value = meta.get("val")
        made = self._value(value)
        return meta if made is value else MappingProxyType({**meta, "val": made})

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if not isinstance(value, tuple | list | dict):
            return value
        leaves, tree = pytree.tree_flatten(value)
        made = [self._tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return value if all(one is other for one, other in zip(made, leaves, strict=True)) else pytree.tree_unflatten(made, tree)

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        device = device_of(value)
        target = self.devices[device]
        if target is device:
            return value
        found = self.memo.get(id(value))
        if found is None:
            found = self.memo[id(value)] = _described(value, target)
        return found


def _described(value: Any, device: torch.device) -> torch.Tensor:
    if isinstance(value, FakeTensor) and value.layout is torch.strided:
        return fake_on(value, device)
    try:
        with torch.no_grad():
            if value.is_meta and value.layout is torch.strided:  # it has no contents to copy
                return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            return value.to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).partition("\n")[0]
        raise UnsupportedProgram(f"a value of layout {value.layout} cannot be described on {device}: {said}") from error
