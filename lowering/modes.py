"""What ``.train()`` and ``.eval()`` can not change: modes that the exporter wrote into the program.

One idea: an exported dropout or batch norm has its mode as an argument.  The switch still sets ``training`` everywhere, which
modules put in by the user obey; where a written mode says otherwise, it warns, once for all modules of a lowering.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch

from ..ir.errors import ModeWarning
from ..ir.names import escaped
from ..ir.node import Node, Op
from ..ir.paths import is_below
from ..ir.torch_private import OpOverload, schema_of
from .family import Family, calls_below

__all__ = ["warn_of_modes", "written_mode"]

FLAGS = ("train", "training", "use_input_stats")
"""How operators call the argument that says whether they train."""
RATES = ("p", "dropout", "dropout_p")
"""Arguments that are 0 where an operator drops nothing, whatever the mode."""
SHOWN = 5
"""How many modules a warning names."""


def written_mode(node: Node) -> bool | None:
    """Return the mode that is written into a node: True trains; None where there is none, or where it changes nothing.

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


def warn_of_modes(family: Family, module: torch.nn.Module, *, train: bool) -> None:
    """Warn of what a switch of modes does not reach.

    Args:
        family: what the module was lowered with.
        module: the lowered module that is switched.
        train: the mode that it is switched to.
    """
    if family.said_modes or train not in _other_modes(family):
        return
    place: Any = module.__dict__["purefx_place"]
    fixed: dict[str, None] = {}
    for frame, name in calls_below(family.program, place.body.name, place.path):
        modes = written_modes(family, name)
        if (
            (not train) in modes
            and (frame.path == place.path or is_below(frame.path, place.path))
            and _stands(module, place.path, frame.path, family)
        ):
            fixed.update(dict.fromkeys(f"{frame.path or 'the root'} ({op})" for op in modes[not train]))
    if not fixed:
        return
    family.said_modes = True
    names = list(fixed)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    asked, written = ("train()", "evaluation") if train else ("eval()", "training")
    said = (
        f"{asked} can not change modes that were written into the program when it was exported: "
        f"{', '.join(names[:SHOWN])}{more} will run as in {written}. Export the model in the other mode to have that; modules "
        "that you put in obey."
    )
    warnings.warn(escaped(said), ModeWarning, stacklevel=3 if train else 4)


def _other_modes(family: Family) -> frozenset[bool]:
    # The modes that some operator does not run in, because the other one is written into it.
    found: frozenset[bool] | None = family.derived.get("other_modes")
    if found is None:
        modes = [not mode for name in family.program.order for mode in written_modes(family, name)]
        found = family.derived["other_modes"] = frozenset(modes)
    return found


def written_modes(family: Family, name: str) -> dict[bool, tuple[str, ...]]:
    """Return the operators with a written mode in one body, by mode."""
    found: dict[bool, dict[str, None]] = {}
    for node in family.program.graphs[name].nodes:
        mode = written_mode(node)
        if mode is not None and type(node.do) is Op:
            found.setdefault(mode, {})[node.do.name] = None
    return {mode: tuple(names) for mode, names in found.items()}


def _stands(module: torch.nn.Module, above: str, path: str, family: Family) -> bool:
    # Whether the module at a path is still the lowered one; a user may have put another there.
    for part in path[len(above) :].strip(".").split(".") if path != above else []:
        found = module.__dict__["_modules"].get(part)
        if found is None:
            return True
        module = found
    place = module.__dict__.get("purefx_place")
    return place is not None and place.bodies is family
