"""Implement ``.to``, ``.double``, ``.train`` and ``.eval`` of lowered modules.

Ties are kept; constants move with the state and keep their dtype; changing a mode that was baked in at export warns.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from attrs import Factory, define

from ...ir.calls.call_graph import instances
from ...ir.errors import ModeWarning
from ...ir.graph import Node, Op
from ...ir.names import escaped
from ...ir.persistent import derived
from ...ir.torch_private import OpOverload, parameters_dict, schema_of
from .context import LoweringContext

FLAGS = ("train", "training", "use_input_stats")
"""Names of the arguments of operators that select training mode."""
RATES = ("p", "dropout", "dropout_p")
"""Names of dropout rates; with rate 0 the mode has no effect."""
SHOWN = 5
"""The most modules that a warning lists."""


def written_mode(node: Node) -> bool | None:
    """Return the mode that is baked into a node, True for training; None if there is none or it has no effect.

    >>> from purefx.ir import Ref
    >>> from purefx.ir.operators import op_of
    >>> dropout = op_of(torch.ops.aten.dropout.default)
    >>> [written_mode(Node("y", dropout, (Ref("x"), p, train))) for p, train in ((0.5, True), (0.5, False), (0.0, True))]
    [True, False, None]
    """
    if not isinstance(node.target, OpOverload) or "backward" in node.op_name:
        return None
    arguments = {**dict(zip(_names(node.target), node.args, strict=False)), **dict(node.kwargs)}
    rate = next((arguments[name] for name in RATES if name in arguments), None)
    if (
        rate == 0 or arguments.get("running_mean", 0) is None
    ):  # without running statistics both modes use those of the batch
        return None
    unflagged = False if "running_mean" in arguments else True if "dropout_p" in arguments else None
    return next((bool(arguments[name]) for name in FLAGS if name in arguments), unflagged)


@functools.cache
def _names(operator: Any) -> tuple[str, ...]:
    return tuple([argument.name for argument in schema_of(operator).arguments])


def warn_of_modes(context: LoweringContext, module: torch.nn.Module, *, train: bool) -> None:
    """Warn once about baked-in modes that a call of ``train`` or ``eval`` cannot change.

    Args:
        context: the context of the module.
        module: the lowered module.
        train: the new mode.
    """
    written = _written_modes(context)[not train]
    if context.warned or not written:
        return
    place: Any = module.__dict__["purefx_place"]
    bodies = [
        (body, path)
        for body, path in instances(context.program, place.body.name, place.path)
        if body in written
    ]
    places: list[Any] = [part.__dict__.get("purefx_place") for part in module.modules()]
    present = {place.path for place in places if place is not None}  # other modules were replaced
    found = [(path, op) for body, path in bodies if path in present for op in written[body]]
    names = list(dict.fromkeys(f"{path or 'the root'} ({op})" for path, op in found))
    if not names:
        return
    context.warned.add(not train)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    call, mode = ("train()", "evaluation") if train else ("eval()", "training")
    message = (
        f"{call} cannot change modes that were baked into the program at export: "
        f"{', '.join(names[:SHOWN])}{more} will run in {mode} mode. Export the model in the other mode instead; "
        f"modules that you assigned are switched."
    )
    warnings.warn(escaped(message), ModeWarning, stacklevel=3 if train else 4)


@derived
def _written_modes(context: LoweringContext) -> dict[bool, dict[str, tuple[str, ...]]]:
    # The operators with baked-in modes, by mode and body.
    found: dict[bool, dict[str, tuple[str, ...]]] = {True: {}, False: {}}
    for name, graph in context.program.graphs.items():
        for node in graph.nodes:
            mode = written_mode(node)
            if mode is not None and type(node.do) is Op:
                found[mode][name] = (*found[mode].get(name, ()), node.do.name)
    return found


Places = list[tuple[dict[str, Any], str]]
"""The module dicts that contain one parameter, with its name in each."""


@define(eq=False)
class Once:
    """A conversion that converts each tensor once.

    >>> twice = Once(lambda tensor: tensor * 2)
    >>> x = torch.ones(1)
    >>> twice(x) is twice(x)
    True
    """

    convert: Callable[[torch.Tensor], torch.Tensor]
    results: dict[int, tuple[torch.Tensor, torch.Tensor]] = Factory(dict)
    devices: dict[torch.device, torch.device] = Factory(dict)

    def device_from(self, device: torch.device) -> torch.device:
        """Return the target device for tensors on a device, probed with an empty tensor."""
        found = self.devices.get(device)
        if found is None:
            with torch.no_grad():
                found = self.devices[device] = self.convert(torch.empty(0, device=device)).device
        return found

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor, or return the earlier result."""
        found = self.results.get(id(tensor))
        if found is None:
            result = self.convert(tensor)
            found = self.results[id(tensor)] = (tensor, result)
            self.results[id(result)] = (result, result)
        return found[1]


REAL = "@real"
"""The attribute with the constants of a module while it is on the meta device, where tensors have no contents."""


def convert_constants(module: torch.nn.Module, names: Iterable[str], convert: Once) -> None:
    """Move the constants of a module, tensors that are neither parameters nor buffers; they keep dtype and contents.

    In eager mode, constants are plain attributes that conversions skip: ``half()`` does not change them, nor does
    ``to_empty``, after which ``load_state_dict`` would not restore them.

    Args:
        module: the module.
        names: the names of the attributes; deleted and replaced ones are skipped.
        convert: the conversion of parameters and buffers; constants go to the same device.
    """
    attributes: dict[str, Any] = module.__dict__
    for name in names:
        value = attributes.get(name)
        if isinstance(value, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
            continue  # a tied parameter: its module converts it in place
        device = convert.device_from(value.device)
        if device == value.device:
            continue
        if device.type == "meta":
            attributes.setdefault(REAL, {})[name] = value
        real = attributes.get(REAL, {}).pop(name, None) if value.is_meta else None
        with torch.no_grad():
            new = (
                real.to(device, copy=True)
                if real is not None
                else convert(value)
                if value.is_meta
                else value.to(device)
            )
        attributes[name] = new


def tied_parameters(module: torch.nn.Module) -> list[Places]:
    """Return the places of tied parameters; a move to another device type replaces parameters."""
    places: dict[int, Places] = {}
    parts = list(module.modules())
    for part in parts:
        for name, value in parameters_dict(part).items():
            if value is not None:
                places.setdefault(id(value), []).append(
                    (cast("dict[str, Any]", parameters_dict(part)), name)
                )
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
