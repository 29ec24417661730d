"""``to_device``: the program on another device, as ``module.to(device)`` and its arguments there.

State is moved as ``lower(device=)`` moves it, fake values are described anew: no operator runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, evolve

from ...ir.errors import UnsupportedProgram
from ...ir.graph import Meta
from ...ir.own_operators import tensors_of
from ...ir.program import Program
from ...ir.signature import LiteralType, TensorType, UserInput
from ...ir.state import Slot, SlotKind, State
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
            meta); or a region under autocast that the other device has not.
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
    _refuse_regions(program, devices)
    moved = moved_program(program, devices)
    state, memo = _moved_state(program, devices)
    signature = evolve(program.signature, inputs=tuple([_moved_input(spec, devices) for spec in program.signature.inputs]))
    described = _Described(devices, memo)
    graphs = {
        name: graph.with_nodes(
            [node.evolve(meta=described.meta(node.meta)) for node in graph.nodes],
            inputs=tuple(
                [
                    formal if (meta := described.meta(formal.meta)) is formal.meta else evolve(formal, meta=meta)
                    for formal in graph.inputs
                ]
            ),
        )
        for name, graph in [(name, moved.graphs[name]) for name in moved.order]
    }
    made = moved.with_graphs(graphs)
    if made is program and state is program.state and signature == program.signature:
        return program
    return made.evolve(state=state, signature=signature)


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


def _moved_state(program: Program, devices: Devices) -> tuple[State, dict[int, Any]]:
    # The state, and what became of each tensor that moved, by its id.
    going = {slot.cell: name for name, slot in program.state.pairs if _moves(slot, devices)}
    if not going:
        return program.state, {}
    try:
        with torch.no_grad():
            made = materialise(program, copy=False, devices=devices)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).partition("\n")[0]
        raise UnsupportedProgram(
            f"the state {', '.join(map(repr, going.values()))} cannot be moved ({said}): state needs contents and "
            "its device on this machine, or move to the meta device"
        ) from error
    changed = {name: evolve(slot, value=made[slot.cell]) for name, slot in program.state.pairs if slot.cell in going}
    memo = {id(slot.value): made[slot.cell] for _, slot in program.state.pairs if slot.cell in going}
    return State(program.state.order, program.state.slots.update(changed)), memo


def _moves(slot: Slot, devices: Devices) -> bool:
    value = slot.value
    if isinstance(value, torch.device):
        return devices[value] is not value
    tensors = tensors_of(value) if slot.kind is SlotKind.MODULE else [value] if isinstance(value, torch.Tensor) else ()
    return any(devices[at := device_of(tensor)] is not at for tensor in tensors)


def _refuse_regions(program: Program, devices: Devices) -> None:
    for name, node in program.nodes():
        if names_device_type(node):
            kind: Any = node.args[0]
            target = devices[torch.device(kind)].type
            if target != kind and not torch.amp.is_autocast_available(target):
                raise UnsupportedProgram(
                    f"{name or 'the root'} / {node.name} is a region under autocast of {kind!r}, and there is no autocast on "
                    f"{target!r}: export the module there, or without autocast"
                )


@define
class _Described:
    """Fake values, described on their new devices; what is one value stays one."""

    devices: Devices
    memo: dict[int, Any]

    def meta(self, meta: Meta) -> Meta:
        value = meta.get("val")
        leaves, tree = pytree.tree_flatten(value)
        made = [self._tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        if all(one is other for one, other in zip(made, leaves, strict=True)):
            return meta
        return MappingProxyType({**meta, "val": pytree.tree_unflatten(made, tree)})

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        device = device_of(value)
        target = self.devices[device]
        if target is device:
            return value
        if id(value) not in self.memo:
            self.memo[id(value)] = _described(value, target)
        return self.memo[id(value)]


def _described(value: Any, device: torch.device) -> torch.Tensor:
    if isinstance(value, FakeTensor) and value.layout is torch.strided:
        return fake_on(value, device)
    try:
        with torch.no_grad():
            if value.is_meta:  # it has no contents to copy
                return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            return value.to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).partition("\n")[0]
        raise UnsupportedProgram(f"a value of layout {value.layout} cannot be described on {device}: {said}") from error
