"""The operators of purefx itself: call boundaries, pytrees in graphs, and calls of opaque modules.

They occur in graphs like any operator; lowering writes each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .effects.declared import ANYTHING, ArgAt, Effects
from .errors import CallError
from .graph import Get, Node, Op, Stack
from .torch_private import pytree, storage_key


def takes(*_leaves: Any) -> None:
    """Name the leaves of the arguments of the call around this node."""


def gives(*_leaves: Any) -> None:
    """Name the leaves of the results of the call around this node."""


TAKES = Op("purefx.takes", target=takes)
"""``purefx.takes(leaf, ...)``; a leaf that the exporter lost is None."""
GIVES = Op("purefx.gives", target=gives)
"""``purefx.gives(leaf, ...)``."""

_NAMES = frozenset({TAKES.name, GIVES.name})


def is_boundary(node: Node) -> bool:
    """Return whether a node is a call boundary; its operands are not uses of their contents.

    >>> is_boundary(Node("t", TAKES)), is_boundary(Node("y", Op("toy.neg")))
    (True, False)
    """
    return node.op_name in _NAMES


def user_stack(node: Node) -> Stack:
    """Return the calls around the use of a value: operands of a call are used by its caller.

    >>> from purefx.ir import Frame
    >>> user_stack(Node("t", TAKES, (), (), (Frame("a"), Frame("a.b"))))
    (Frame(path='a', call=0),)
    """
    return node.stack[:-1] if node.op_name == TAKES.name else node.stack


def pack(leaves: Sequence[Any], spec: Any) -> Any:
    """Return the pytree of some leaves.

    Raises:
        CallError: a registered pytree type refuses them.

    >>> pack([1, 2], pytree.tree_structure({"a": 0, "b": 0}))
    {'a': 1, 'b': 2}
    """
    try:
        return pytree.tree_unflatten(list(leaves), spec)
    except Exception as error:
        raise CallError(
            f"the leaves cannot be combined as {str(spec)[:200]}: {type(error).__name__}: {error}"
        ) from error


def unpack(value: Any, spec: Any, called: str = "a module") -> Any:
    """Return the leaves of a value; a value that is a leaf is returned as it is.

    Args:
        value: the result of a module.
        spec: its structure.
        called: the module call, for the error.

    Raises:
        CallError: the value is structured differently.

    >>> unpack({"b": 2, "a": 1}, pytree.tree_structure({"a": 0, "b": 0}))
    (1, 2)
    """
    if spec.is_leaf() and type(value) not in (tuple, list, dict):
        return value
    try:
        leaves = () if spec.is_leaf() else tuple(spec.flatten_up_to(value))
    except ValueError:
        leaves = ()
    if len(leaves) != spec.num_leaves:
        raise CallError(
            f"{called} returned a {type(value).__name__}; return the structure of the original"
        )
    return leaves


PACK = Op("purefx.pack", Effects(aliases=(ArgAt(0, "leaves"),)), pack)
"""``purefx.pack([leaf, ...], spec)``."""

UNPACK = Op("purefx.unpack", Effects(aliases=(ArgAt(0, "value"),)), unpack)
"""``purefx.unpack(value, spec)``: a tuple of leaves."""


def call_module(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a module as in eager mode.

    Raises:
        TypeError: it is another callable, as a crafted text or file may contain.

    >>> call_module(torch.nn.Identity(), 3)
    3
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"purefx.call_module calls modules, not a {type(module).__name__}")
    return module(*args, **kwargs)


def call_guards(module: Any, /, *args: Any) -> None:
    """Call the module of ``ep.module()`` that checks the guards of the inputs.

    >>> call_guards(torch.nn.Identity(), 3)
    """
    module(*args)


for function in (takes, gives, pack, unpack, call_module, call_guards):
    function.__module__ = "purefx"  # the text form prints purefx.takes, wherever this file is

CALL_MODULE = Op("purefx.call_module", ANYTHING, call_module)
"""``purefx.call_module(module, *args, **kwargs)``; the first argument is a read of a module slot."""


CALL_GUARDS = Op("purefx.call_guards", Effects(ordered=True), call_guards)
"""``purefx.call_guards(module, *inputs)``; see ``torch_private.checks_inputs``."""

CALLS = frozenset({CALL_MODULE.name, CALL_GUARDS.name})


def is_module_call(node: Node) -> bool:
    """Return whether a node calls a module that the program holds.

    >>> is_module_call(Node("y", CALL_MODULE)), is_module_call(Node("y", Op("toy.neg")))
    (True, False)
    """
    return node.op_name in CALLS


def read_modules(nodes: tuple[Node, ...]) -> Mapping[str, str]:
    """Return the slots of the modules that are called, by the name of the read.

    >>> from .arguments import Ref
    >>> read_modules((Node("m", Get("block")), Node("y", CALL_MODULE, (Ref("m"), Ref("x")))))
    {'m': 'block'}
    """
    called = {
        node.args[0].name
        for node in nodes
        if is_module_call(node) and node.args and hasattr(node.args[0], "name")
    }
    if not called:
        return {}
    return {
        node.name: node.do.slot for node in nodes if type(node.do) is Get and node.name in called
    }


def tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Iterate over the tensors that a module holds, each once: parameters, buffers, and plain attributes of it and its children.

    >>> [tuple(tensor.shape) for tensor in tensors_of(torch.nn.Linear(2, 3))]
    [(3, 2), (3,)]
    """
    found: dict[int, Any] = {}
    for part in module.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False), *vars(part).values()]
        found.update((id(value), value) for value in own if isinstance(value, torch.Tensor))
    return iter(found.values())


def attribute_of(module: torch.nn.Module, path: str) -> Any:
    """Return the attribute of a module at a dotted path, or None.

    >>> attribute_of(torch.nn.Sequential(torch.nn.Linear(2, 3)), "0.weight").shape
    torch.Size([3, 2])
    """
    return functools.reduce(lambda found, part: getattr(found, part, None), path.split("."), module)


def entangled(pairs: tuple[tuple[int, Any], ...]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of storages that share memory through tensors inside modules.

    Args:
        pairs: number of the storage and value, for each slot.

    Returns:
        The storage numbers of a module and of a slot that it shares memory with, for each pair.

    >>> linear = torch.nn.Linear(2, 2)
    >>> entangled(((0, linear.weight), (1, linear.bias.clone()), (2, linear)))
    ((2, 0),)
    """
    modules = [
        (number, tensors_of(value)) for number, value in pairs if isinstance(value, torch.nn.Module)
    ]
    if not modules:
        return ()
    tensors = [(number, [value]) for number, value in pairs if isinstance(value, torch.Tensor)]
    memory: dict[int, int] = {}
    found: dict[tuple[int, int], None] = {}
    for number, held in (*tensors, *modules):
        for tensor in held:
            if (
                tensor.layout is torch.strided
                and (other := memory.setdefault(storage_key(tensor), number)) != number
            ):
                found[number, other] = None
    return tuple(found)
