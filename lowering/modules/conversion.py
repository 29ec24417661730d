"""``.to``, ``.double``, ``.train``, ``.eval`` of lowered modules.

Ties stay, constants move with the state and keep their type; changing a mode that the exporter baked into the program warns.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch

from ...ir.calls.call_graph import instances
from ...ir.errors import ModeWarning
from ...ir.graph import Node, Op
from ...ir.names import escaped
from ...ir.persistent import derived
from ...ir.torch_private import OpOverload, parameters_dict, schema_of
from .context import LoweringContext

__all__ = [
    "Once",
    "convert_constants",
    "restore_ties",
    "tied_parameters",
    "warn_of_modes",
    "written_mode",
]

FLAGS = ("train", "training", "use_input_stats")
"""How operators call the argument that says whether they train."""
RATES = ("p", "dropout", "dropout_p")
"""Arguments that are 0 where an operator drops nothing, whatever the mode."""
SHOWN = 5
"""How many modules a warning names."""


def written_mode(node: Node) -> bool | None:
    """Return the mode that is written into a node: True trains; None if there is none, or where it changes nothing.

    >>> from purefx.ir import Ref
    >>> from purefx.ir.operators import op_of
    >>> dropout = op_of(torch.ops.aten.dropout.default)
    >>> [written_mode(Node("y", dropout, (Ref("x"), p, train))) for p, train in ((0.5, True), (0.5, False), (0.0, True))]
    [True, False, None]
    """
    if type(node.do) is not Op:
        return None
    places = _places(node.do.target)
    if not places:
        return None
    given = {name: node.args[index] for name, index in places.items() if index < len(node.args)}
    given.update(node.kwargs)
    if "running_mean" in places:
        # Without running statistics both modes use those of the batch.
        return None if given.get("running_mean") is None else bool(next((given[name] for name in FLAGS if name in given), False))
    rate = next((given.get(name, 0) for name in RATES if name in places), None)
    if rate == 0:
        return None
    return bool(next((given[name] for name in FLAGS if name in given), True))


@functools.cache
def _places(target: Any) -> dict[str, int]:
    # Where an operator has what its mode depends on; nothing for one that has no mode.
    if not isinstance(target, OpOverload):
        return {}
    schema = schema_of(target)
    places = {argument.name: index for index, argument in enumerate(schema.arguments)}
    normalises = "batch_norm" in schema.name or "instance_norm" in schema.name
    if "backward" in schema.name or (normalises and "running_mean" not in places):
        return {}
    drops = "dropout_p" in places or ("train" in places and any(name in places for name in RATES))
    return places if normalises or drops or "rrelu" in schema.name else {}


def warn_of_modes(context: LoweringContext, module: torch.nn.Module, *, train: bool) -> None:
    """Warn, once, of what a switch of modes does not reach.

    Args:
        context: what the module was lowered with.
        module: the lowered module that is switched.
        train: the mode that it is switched to.
    """
    written = _written_modes(context)[not train]
    if context.has_warned or not written:
        return
    place: Any = module.__dict__["purefx_place"]
    bodies = [(body, path) for body, path in instances(context.program, place.body.name, place.path) if body in written]
    present = {part.purefx_place.path for part in module.modules() if "purefx_place" in part.__dict__}  # others were replaced
    found = [(path, op) for body, path in bodies if path in present for op in written[body]]
    names = list(dict.fromkeys(f"{path or 'the root'} ({op})" for path, op in found))
    if not names:
        return
    context.has_warned = True
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    asked, mode = ("train()", "evaluation") if train else ("eval()", "training")
    said = (
        f"{asked} cannot change modes that were written into the program when it was exported: "
        f"{', '.join(names[:SHOWN])}{more} will run as in {mode}. Export the model in the other mode to have that; "
        f"modules that you assigned obey."
    )
    warnings.warn(escaped(said), ModeWarning, stacklevel=3 if train else 4)


@derived
def _written_modes(context: LoweringContext) -> dict[bool, dict[str, tuple[str, ...]]]:
    # The operators that a mode is written into, by the mode and the body.
    found: dict[bool, dict[str, tuple[str, ...]]] = {True: {}, False: {}}
    for name, graph in context.program.graphs.items():
        for node in graph.nodes:
            mode = written_mode(node)
            if mode is not None and type(node.do) is Op:
                found[mode][name] = (*found[mode].get(name, ()), node.do.name)
    return found


Places = list[tuple[dict[str, Any], str]]
"""Dicts of modules that hold one parameter, with its name in each."""


class Once:
    """A conversion that converts each tensor once.

    >>> twice = Once(lambda tensor: tensor * 2)
    >>> x = torch.ones(1)
    >>> twice(x) is twice(x)
    True
    """

    def __init__(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.convert = convert
        self.results: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.devices: dict[torch.device, torch.device] = {}

    def device_from(self, device: torch.device) -> torch.device:
        """Return the target device of a tensor on a device; it is probed with an empty tensor."""
        found = self.devices.get(device)
        if found is None:
            with torch.no_grad():
                found = self.devices[device] = self.convert(torch.empty(0, device=device)).device
        return found

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor, or return what it was converted to."""
        found = self.results.get(id(tensor))
        if found is None:
            result = self.convert(tensor)
            found = self.results[id(tensor)] = (tensor, result)
            self.results[id(result)] = (result, result)
        return found[1]


REAL = "@real"
"""Under which attribute a module has its constants while it is on the meta device, where tensors have no contents."""


def convert_constants(module: torch.nn.Module, names: Iterable[str], convert: Once) -> None:
    """Move the constants of a module: tensors that are neither parameters nor buffers; they keep their type and contents.

    Eager's constants are plain attributes that no conversion reaches: ``half()`` leaves them as they are, and so does
    ``to_empty``, after which ``load_state_dict`` would not bring them back.

    Args:
        module: whose attributes they are.
        names: of the attributes; one that is gone or was replaced by something else is left.
        convert: what is done with parameters and buffers; where it puts them is where constants go.
    """
    attributes: dict[str, Any] = module.__dict__
    for name in names:
        value = attributes.get(name)
        if isinstance(value, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
            continue  # a parameter that is tied: the module that registers it converts it in place
        device = convert.device_from(value.device)
        if device == value.device:
            continue
        if device.type == "meta":
            attributes.setdefault(REAL, {})[name] = value
        real = attributes.get(REAL, {}).pop(name, None) if value.is_meta else None
        with torch.no_grad():
            if real is not None:
                attributes[name] = real.to(device, copy=True)
            else:
                attributes[name] = convert(value) if value.is_meta else value.to(device)


def tied_parameters(module: torch.nn.Module) -> list[Places]:
    """Return where the parameters are that stand in several places; a move to another kind of device makes new ones."""
    places: dict[int, Places] = {}
    parts = list(module.modules())
    for part in parts:
        for name, value in parameters_dict(part).items():
            if value is not None:
                places.setdefault(id(value), []).append((cast("dict[str, Any]", parameters_dict(part)), name))
    for part in parts:
        for name, value in part.__dict__.copy().items():
            if id(value) in places:
                places[id(value)].append((part.__dict__, name))
    return [found for found in places.values() if len(found) > 1]


def restore_ties(ties: Iterable[Places]) -> None:
    """Put the first parameter of each group in all its places."""
    for (attributes, first), *others in ties:
        for holder, name in others:
            holder[name] = attributes[first]
