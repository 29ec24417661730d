"""Modules that a program holds as they are, and calls without looking inside.

One idea: such a module is a piece of state (``SlotKind.MODULE``) that a ``Get`` reads and ``purefx.call_module`` calls, the way
eager calls a module: hooks run, and any arguments go.  Nothing is known of what it does, so the call is ordered, may draw
random numbers and may write to all that it is handed, its own state included; nothing moves across it.  One is known: the
module of ``ep.module()`` that asserts what holds of the inputs, called with ``purefx.call_guards``: it writes nothing, and
whatever acts stays after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .effects.declared import ANYTHING, Effects
from .node import Get, Node, Op
from .torch_private import checks_inputs, storage_key

__all__ = [
    "CALLS", "CALL_GUARDS", "CALL_MODULE", "attribute_of", "call_guards", "call_module", "entangled", "is_module_call",
    "op_to_call", "read_modules", "tensors_of",
]  # fmt: skip


def call_module(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a module as eager does.

    Raises:
        TypeError: it is another callable, which a text or a file may have put there.

    >>> call_module(torch.nn.Identity(), 3)
    3
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"purefx.call_module calls modules, not a {type(module).__name__}")
    return module(*args, **kwargs)


def call_guards(module: Any, /, *args: Any) -> None:
    """Call the module of ``ep.module()`` that asserts what holds of the inputs.

    >>> call_guards(torch.nn.Identity(), 3)
    """
    module(*args)


for function in (call_module, call_guards):
    function.__module__ = "purefx"  # the text says purefx.call_module, wherever this file is

CALL_MODULE = Op("purefx.call_module", ANYTHING, call_module)
"""``purefx.call_module(module, *args, **kwargs)``; the first argument is a read of a module slot."""


CALL_GUARDS = Op("purefx.call_guards", Effects(ordered=True), call_guards)
"""``purefx.call_guards(module, *inputs)``; see ``torch_private.checks_inputs``."""

CALLS = frozenset({CALL_MODULE.name, CALL_GUARDS.name})


def op_to_call(module: torch.nn.Module) -> Op:
    """Return the operator that calls a module that a program holds.

    >>> op_to_call(torch.nn.ReLU()).name
    'purefx.call_module'
    """
    return CALL_GUARDS if checks_inputs(module) else CALL_MODULE


def is_module_call(node: Node) -> bool:
    """Say whether a node calls a module that the program holds.

    >>> is_module_call(Node("y", CALL_MODULE)), is_module_call(Node("y", Op("toy.neg")))
    (True, False)
    """
    return type(node.do) is Op and node.do.name in CALLS


def read_modules(nodes: tuple[Node, ...]) -> Mapping[str, str]:
    """Return the slots of the modules that are called, by the name of the read.

    >>> from .arguments import Ref
    >>> read_modules((Node("m", Get("block")), Node("y", CALL_MODULE, (Ref("m"), Ref("x")))))
    {'m': 'block'}
    """
    called = {node.args[0].name for node in nodes if is_module_call(node) and node.args and hasattr(node.args[0], "name")}
    if not called:
        return {}
    return {node.name: node.do.slot for node in nodes if type(node.do) is Get and node.name in called}


def tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Iterate over the tensors that a module holds, each once: parameters, buffers, and plain attributes of it and its children.

    >>> [tuple(tensor.shape) for tensor in tensors_of(torch.nn.Linear(2, 3))]
    [(3, 2), (3,)]
    """
    seen: set[int] = set()
    for part in module.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False), *vars(part).values()]
        for value in own:
            if isinstance(value, torch.Tensor) and id(value) not in seen:
                seen.add(id(value))
                yield value


def attribute_of(module: torch.nn.Module, path: str) -> Any:
    """Return what a module has under a dotted path, None where it has nothing.

    >>> attribute_of(torch.nn.Sequential(torch.nn.Linear(2, 3)), "0.weight").shape
    torch.Size([3, 2])
    """
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def entangled(pairs: tuple[tuple[int, Any], ...]) -> tuple[tuple[int, int], ...]:
    """Return the storages that share memory because of what modules hold.

    Args:
        pairs: number of the storage and value, for each slot.

    Returns:
        The number of a module's storage with that of a slot that it shares memory with, for each such pair.

    >>> linear = torch.nn.Linear(2, 2)
    >>> entangled(((0, linear.weight), (1, linear.bias.clone()), (2, linear)))
    ((2, 0),)
    """
    modules = [(number, value) for number, value in pairs if isinstance(value, torch.nn.Module)]
    if not modules:
        return ()
    memory: dict[int, int] = {}
    for number, value in pairs:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            memory.setdefault(storage_key(value), number)
    found: dict[tuple[int, int], None] = {}
    for number, module in modules:
        for tensor in tensors_of(module):
            if tensor.layout is torch.strided:
                other = memory.setdefault(storage_key(tensor), number)
                if other != number:
                    found[number, other] = None
    return tuple(found)
