"""The state that lowered modules hold: copied or shared, moved to devices, tied and aliased exactly as in the program.

Opaque modules are copied together; writes to parameters run without gradients, as in the original.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from attrs import define, evolve, field

from ...ir.arguments import CONTAINERS, Arg, Ref, children_of, with_children
from ...ir.calls.call_graph import instances
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Get, Graph, Node, Op
from ...ir.names import join
from ...ir.own_operators import tensors_of
from ...ir.program import Program
from ...ir.state import Slot, SlotKind
from ...ir.torch_private import storage_key, window_on

__all__ = ["StorageViews", "copied_modules", "materialise", "moved", "write_parameter", "writing_parameters"]


@define
class StorageViews:
    """What became of memory that several tensors look at.

    >>> a, windows = torch.ones(4), StorageViews(copy=True, device=None)
    >>> windows.window(a).zero_() is a, windows.window(a[1:]).tolist(), a.tolist()
    (False, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """

    copy: bool
    device: torch.device | None
    memories: dict[int, torch.Tensor] = field(factory=dict)
    """The new memory, by the key of the old."""

    def window(self, plain: torch.Tensor) -> torch.Tensor:
        """Return what stands for a tensor, which is strided and needs no gradient."""
        key = storage_key(plain)
        memory = self.memories.get(key)
        if memory is None:
            whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
            moves = self.device is not None and plain.device != self.device
            memory = self.memories[key] = whole.to(self.device) if moves else whole.clone() if self.copy else whole
        return window_on(memory.untyped_storage(), plain)


DEVICE_TYPE_OPERATORS = frozenset({"higher_order.wrap_with_autocast"})
"""Operators whose first argument names a device type as a string."""


def moved(program: Program, device: torch.device) -> Program:
    """Return the program with every device literal replaced; the same object if none differs.

    >>> from purefx.ir import Graph, Node, Op, Program
    >>> node = Node("a", Op("aten.arange.default"), (4,), (("device", torch.device("cpu")),))
    >>> moved(Program.of({"": Graph((), (node,))}), torch.device("meta")).main.nodes[0].kwargs
    (('device', device(type='meta')),)
    """
    return program.with_graphs({name: _moved_graph(program.graphs[name], device) for name in program.order})


def _moved_graph(graph: Graph, device: torch.device) -> Graph:
    return graph.with_nodes([_moved_node(node, device) for node in graph.nodes])


def _moved_node(node: Node, device: torch.device) -> Node:
    args, kwargs = _moved_arg(node.args, device), _moved_arg(node.kwargs, device)
    if type(node.do) is Op and node.do.name in DEVICE_TYPE_OPERATORS and args and isinstance(args[0], str):
        args = (device.type, *args[1:])
    return node.evolve(args=args, kwargs=kwargs)


def _moved_arg(arg: Arg, device: torch.device) -> Arg:
    if isinstance(arg, torch.device):
        return arg if arg == device else device
    if type(arg) not in CONTAINERS:
        return arg
    return with_children(arg, [_moved_arg(part, device) for part in children_of(arg)])


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
    >>> [copied] = copied_modules([("a", linear)], [(linear.weight, "new")], StorageViews(copy=True, device=None))
    >>> copied.__dict__["_parameters"]["weight"]
    'new'
    """
    memo: dict[int, Any] = {id(old): new for old, new in tensors}
    device = windows.device
    held = [tensor for _, module in modules for tensor in tensors_of(module)]
    if not windows.copy and all(tensor.device == device for tensor in held if device is not None):
        return [module for _, module in modules]
    several = _seen_twice(held) | windows.memories.keys()
    for tensor in held:
        moves = device is not None and tensor.device != device
        if id(tensor) not in memo and (moves or (_is_plain(tensor) and storage_key(tensor) in several)):
            memo[id(tensor)] = _remade(tensor, windows)
    return [_copied(name, module, memo) for name, module in modules]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and type(tensor.detach()) is torch.Tensor


def _seen_twice(tensors: Iterable[torch.Tensor]) -> set[int]:
    # Memory that several tensors look at: copying tensor by tensor would part them.
    seen: dict[int, int] = {}
    twice: set[int] = set()
    for tensor in tensors:
        if _is_plain(tensor):
            key = storage_key(tensor)
            if seen.setdefault(key, id(tensor)) != id(tensor):
                twice.add(key)
    return twice


def _remade(tensor: torch.Tensor, windows: StorageViews) -> torch.Tensor:
    plain = windows.window(tensor.detach()) if _is_plain(tensor) else tensor.detach().to(windows.device)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=tensor.requires_grad)
    return plain.requires_grad_(tensor.requires_grad)


def _copied(name: str, module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    try:
        return copying.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedProgram(
            f"the module {type(module).__qualname__} at {name!r} cannot be copied ({type(error).__name__}: {error}); "
            'lower with state="share" to use it as it is, or give it a __deepcopy__'
        ) from error


COPY = "aten.copy_.default"


def write_parameter(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Copy a value into a parameter.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> write_parameter(weight, torch.ones(2)).tolist(), weight.requires_grad
    ([1.0, 1.0], True)
    """
    if not target.requires_grad:
        return target.copy_(value)
    with torch.no_grad():
        return target.copy_(value)


def writing_parameters(program: Program) -> Program:
    """Return the program with its copies into parameters made by ``write_parameter``; the same object if it has none.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> writing_parameters(program) is program
    True
    """
    copies = {name: found for name in program.order if (found := _copies(program.graphs[name]))}
    if not copies:
        return program
    changed: dict[str, set[str]] = {}
    for name, path in instances(program):
        for node, slot in copies.get(name, {}).items():
            found = program.state.slots.get(join(path, slot))
            if found is not None and found.kind is SlotKind.PARAMETER:
                changed.setdefault(name, set()).add(node)
    if not changed:
        return program
    graphs = {name: _changed(program.graphs[name], nodes) for name, nodes in changed.items()}
    return program.evolve(graphs=program.graphs.update(graphs))


def _copies(graph: Graph) -> dict[str, str]:
    # The slot that each copy into state writes, by name of node.
    copies = [node for node in graph.nodes if type(node.do) is Op and node.do.name == COPY]
    if not copies:
        return {}
    slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
    pairs = [(node.name, node.args[0]) for node in copies]
    return {name: slots[arg.name] for name, arg in pairs if type(arg) is Ref and arg.name in slots}


def _changed(graph: Graph, names: set[str]) -> Graph:
    return evolve(graph, nodes=tuple([_written(node) if node.name in names else node for node in graph.nodes]))


def _written(node: Node) -> Node:
    assert type(node.do) is Op
    return evolve(node, do=evolve(node.do, target=write_parameter))


def materialise(program: Program, *, copy: bool, device: torch.device | None) -> dict[int, Any]:
    """Return the value to register for each cell.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.
        device: where they go; None leaves them.

    Returns:
        Tensors, parameters, modules and other objects by cell.

    Raises:
        UnsupportedProgram: a module that the program holds cannot be copied.
    """
    shared = _shared_storages(program) if copy or device is not None else frozenset()
    windows = StorageViews(copy, device)
    cells: dict[int, Any] = {}
    modules: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, slot in program.state.pairs:
        if slot.cell in cells or slot.cell in modules:
            continue
        if slot.kind is SlotKind.MODULE:
            modules[slot.cell] = (name, slot.value)
        else:
            cells[slot.cell] = _value(slot, windows, shared)
    if modules and (copy or device is not None):
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


def _value(slot: Slot, windows: StorageViews, shared: frozenset[int]) -> Any:
    value, device = slot.value, windows.device
    if not isinstance(value, torch.Tensor):
        return value
    is_shared, moves = slot.storage in shared, device is not None and value.device != device
    if not (is_shared or moves or windows.copy) and (
        isinstance(value, torch.nn.Parameter) or slot.kind is not SlotKind.PARAMETER
    ):
        return value
    plain = value.detach()
    if is_shared or ((moves or windows.copy) and not _is_whole(plain)):
        plain = windows.window(plain)
    elif moves:
        plain = plain.to(device)
    elif windows.copy:
        plain = plain.clone()
    if slot.kind is SlotKind.PARAMETER or isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=value.requires_grad)
    return plain.requires_grad_(value.requires_grad) if value.requires_grad and value.is_leaf else plain


def _is_whole(plain: torch.Tensor) -> bool:
    # A clone of it lies in memory as it does: nothing overlaps, and there is nothing around it that a view could reach.
    if type(plain) is not torch.Tensor or plain.layout is not torch.strided or plain.is_quantized:
        return True  # no window can be made of it
    return plain.is_contiguous() and plain.nbytes == plain.untyped_storage().nbytes()
