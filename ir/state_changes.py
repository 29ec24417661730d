"""Changes of the state of a program: new slots, and removal of unused ones.

``Program.with_state`` is the public function; rules, edits and clean-up use the same ones.  Nothing here reads or writes a
tensor or makes a node: the caller adds the nodes that read new state.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from .calls.call_graph import all_instances
from .calls.parts import part_names, with_listed
from .errors import NamingError, UnsupportedProgram
from .graph import Input, Node, place_of
from .names import did_you_mean, join, parent_of, way_to
from .program import Program, state_changed
from .signature import InputMutation, InputSpec, StateGradient, StateInput, StateMutation, UserInput
from .state import Slot, describe_tensor, exporter_name, is_plain, registered_kind
from .tensors import TensorIds
from .torch_private import FakeTensor


def has_window(value: torch.Tensor) -> bool:
    """Return whether a tensor of any class has one block of memory.

    >>> has_window(torch.ones(2)), has_window(torch.eye(2).to_sparse())
    (True, False)
    """
    kind = type(value)
    if kind in ORDINARY:
        return kind is FakeTensor or is_plain(value)
    own = hasattr(kind, "__tensor_flatten__") or _dispatches(kind)
    return not own and not _copies_itself(value) and is_plain(value.as_subclass(torch.Tensor))


def _dispatches(kind: Any) -> bool:
    tensor: Any = torch.Tensor
    return kind.__torch_dispatch__ is not tensor.__torch_dispatch__


def _copies_itself(value: Any) -> bool:
    return type(value).__deepcopy__ not in (
        torch.Tensor.__deepcopy__,
        torch.nn.Parameter.__deepcopy__,
    )


def as_plain(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same memory, of torch's own class and without gradient.

    >>> as_plain(torch.nn.Parameter(torch.ones(2)))
    tensor([1., 1.])
    """
    return value.detach() if type(value) in ORDINARY else value.as_subclass(torch.Tensor).detach()


ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})


def dressed(plain: torch.Tensor, like: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Return a tensor with the class, the attributes and ``requires_grad`` of another.

    Args:
        plain: a tensor with the contents; it may be changed.
        like: the original.
        memo: as in ``copy.deepcopy``.

    >>> type(dressed(torch.ones(2), torch.nn.Parameter(torch.zeros(2)), {})).__name__
    'Parameter'
    """
    kind, grad = type(like), like.requires_grad and like.is_leaf
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(plain, requires_grad=grad)
    made = plain if type(plain) is kind else plain.as_subclass(kind)
    if kind not in ORDINARY:
        for name, part in vars(like).items():
            if name not in vars(made):
                vars(made)[name] = part if callable(part) else copy.deepcopy(part, memo)
    return made.requires_grad_(grad) if grad or made.requires_grad else made


COPIED = '__deepcopy__ in its class, or pass state="share" to lower and to_ep'
PICKLED = "__reduce_ex__ in its class"


def copy_value(
    name: str, value: Any, memo: dict[int, Any], *, device: torch.device | None = None
) -> Any:
    """Return a copy of a piece of state that has the class and the metadata of the original.

    Args:
        name: of the slot, for messages.
        value: a tensor of any kind, or an object.
        memo: as in ``copy.deepcopy``; one for all state that is copied together.
        device: the device of the copy; None keeps it.

    Raises:
        UnsupportedProgram: it cannot be copied, or its copy is another type.

    >>> copy_value("rng", torch.Generator().manual_seed(3), {}).initial_seed()
    3
    """
    if id(value) in memo:
        return memo[id(value)]
    if torch.distributed.is_available() and isinstance(value, torch.distributed.ProcessGroup):
        return value  # the name of a connection
    try:
        made = (
            _remade(value, memo, device)
            if isinstance(value, torch.Tensor)
            else copy.deepcopy(value, memo)
        )
    except Exception as error:
        raise _refusal(
            name, value, f"cannot be copied ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    if fault := _lost(value, made):
        raise _refusal(name, value, f"cannot be copied: {fault}")
    memo[id(value)] = made
    return made


def _refusal(name: str, value: Any, fault: str, advice: str = COPIED) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"the state {name!r} is a {kind_of_state(value)}, which {fault}; define {advice}"
    )


def _lost(value: Any, made: Any) -> str:
    if type(made) is not type(value):
        return f"its copy is a {kind_of_state(made)}"
    if not isinstance(value, torch.Tensor):
        return ""
    names = ("is_parameter", "dtype", "shape", "stride", "device", "requires_grad", "layout")
    facts = zip(names, describe_tensor(value), describe_tensor(made), strict=False)
    skipped = {"device"} if value.is_leaf else {"device", "requires_grad"}
    return ", ".join(
        [
            f"its {name} is {new}, not {old}"
            for name, old, new in facts
            if old != new and name not in skipped
        ]
    )


def kind_of_state(value: Any) -> str:
    """Return the class of a piece of state, and its layout if it is not strided.

    >>> kind_of_state(torch.eye(2).to_sparse())
    'torch.Tensor (torch.sparse_coo)'
    """
    layout = (
        f" ({value.layout})"
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided
        else ""
    )
    kind = type(value)
    return f"{kind.__qualname__ if kind.__module__ == 'builtins' else f'{kind.__module__}.{kind.__qualname__}'}{layout}"


def _remade(value: Any, memo: dict[int, Any], device: torch.device | None) -> torch.Tensor:
    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if device is None else tensor.to(device)

    if id(value) in memo:
        return memo[id(value)]
    if has_window(value):
        made = dressed(moved(copy.deepcopy(as_plain(value), memo)), value, memo)
    elif hasattr(value, "__tensor_flatten__") and not _copies_itself(value):
        # torch's protocol for subclasses; `clone` may return another class and drop the context.
        names, context = value.__tensor_flatten__()
        parts = {name: _remade(getattr(value, name), memo, device) for name in names}
        made = dressed(
            type(value).__tensor_unflatten__(parts, context, value.size(), value.stride()),
            value,
            memo,
        )
    elif _copies_itself(value) or _dispatches(type(value)):
        made = moved(copy.deepcopy(value, memo))
    else:
        made = dressed(moved(as_plain(value).clone()), value, memo)
    memo[id(value)] = made
    return made


def check_picklable(name: str, value: Any) -> None:
    """Refuse a piece of state that pickle cannot write, or reads as another type.

    Args:
        name: of the slot, for messages.
        value: its value.

    Raises:
        UnsupportedProgram: pickle cannot preserve it.

    >>> check_picklable("rng", torch.Generator())
    """
    if is_plain(value):
        return
    kind = type(value)
    if (
        isinstance(value, torch.nn.Parameter)
        and kind.__reduce_ex__ is torch.nn.Parameter.__reduce_ex__
        and kind not in ORDINARY
    ):
        raise _refusal(
            name, value, "cannot be pickled (torch pickles it as a torch.nn.Parameter)", PICKLED
        )
    try:
        if isinstance(value, torch.Tensor):
            value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        else:
            pickle.dumps(value)
    except Exception as error:
        raise _refusal(
            name, value, f"cannot be pickled ({type(error).__name__}: {str(error)[:200]})", PICKLED
        ) from error


def with_slots(program: Program, added: Mapping[str, Slot]) -> Program:
    """Return a program with more state; new slots of a module follow its others, as if registered last.

    Args:
        program: any valid program.
        added: by path; numbered consistently with the state (``TensorIds``).

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> from purefx.ir import SlotKind
    >>> with_slots(program, {"lin.w": Slot(SlotKind.BUFFER, torch.ones(2), 0, 0)}).state.order
    ('lin.w',)
    """
    owners = [parent_of(name) for name in added]
    return program.evolve(
        state=program.state.with_slots(added), modules=with_listed(program.modules, owners)
    )


def without_slots(program: Program, gone: Iterable[str]) -> Program:
    """Return a program without some state and its inputs; the same object if nothing is removed.

    Args:
        program: any valid program.
        gone: slots that nothing uses (``state_uses``).
    """
    slots = frozenset(gone)
    if slots.isdisjoint(program.state.order):
        return program
    left = [
        (formal, spec)
        for formal, spec in program.inputs
        if type(spec) is not StateInput or spec.slot not in slots
    ]
    if len(left) < len(program.inputs):
        main = program.main.with_nodes(
            program.main.nodes, inputs=tuple([formal for formal, _ in left])
        )
        program = program.with_boundary(main, [spec for _, spec in left])
    lifted = tuple([place for place in program.signature.lifted if place.slot not in slots])
    return program.evolve(
        state=program.state.without(slots), signature=evolve(program.signature, lifted=lifted)
    )


def state_uses(program: Program) -> Mapping[str, Node | None]:
    """Return the used slots, each with a user; None if the signature uses it.

    Args:
        program: a program at any stage.  An unused input does not count as a use of its slot.

    >>> from purefx.ir import Get, Graph
    >>> node = Node("w", Get("weight"))
    >>> dict(state_uses(Program.of({"": Graph((), (node,))}))) == {"weight": node}
    True
    """
    specs = program.signature.outputs
    found: dict[str, Node | None] = {
        spec.slot: None for spec in specs if isinstance(spec, StateMutation | StateGradient)
    }
    main, by_name = program.main, program.main.by_name
    returned, mutated = (
        main.output_refs(),
        {spec.index for spec in specs if type(spec) is InputMutation},
    )
    for number, (formal, spec) in enumerate(program.inputs):
        if type(spec) is StateInput and (
            formal.name in main.users or formal.name in returned or number in mutated
        ):
            users = main.users.get(formal.name)
            found.setdefault(spec.slot, by_name[users[0]] if users else None)
    for name, paths in all_instances(program).items():
        graph = program.graphs[name]
        for path in paths if graph.reads else ():
            for read, slot in graph.reads.items():
                found.setdefault(join(path, slot), graph.by_name[read])
    return found


def _changed(program: Program, add: Mapping[str, Any], remove: Iterable[str]) -> Program:
    if isinstance(remove, str):
        raise TypeError(f"remove is a list of paths, not {remove!r}: write [{remove!r}]")
    program = _without(program, list(dict.fromkeys(remove)))
    if not add:
        return program
    ids = TensorIds(program.state)
    added = {path: _slot(path, value, ids) for path, value in add.items()}
    tied = {slot.cell: (path, slot.kind) for path, slot in reversed(program.state.pairs)}
    for path, slot in added.items():
        _check_place(program, path, added)
        there, kind = tied.setdefault(slot.cell, (path, slot.kind))
        if kind is not slot.kind:
            fault = f"{path!r} would be a {slot.kind.value} and is the same tensor as {there!r}, a {kind.value}"
            raise NamingError(
                f"{fault}: clone it, or pass px.ir.Slot(px.ir.SlotKind.{kind.name}, ...)"
            )
    program = with_slots(program, added)
    return _with_inputs(program, added) if "state as inputs" in program.facts else program


def _without(program: Program, gone: Sequence[str]) -> Program:
    used = state_uses(program) if gone else {}
    for path in gone:
        if path not in program.state:
            raise NamingError(f"no state is called {path!r}{did_you_mean(path, program.state)}")
        if path in used:
            by = "the signature of the program" if (user := used[path]) is None else place_of(user)
            raise NamingError(
                f"the state {path!r} is used by {by}, so it cannot be removed: replace that use first"
            )
    return without_slots(program, gone)


def _with_inputs(program: Program, added: Mapping[str, Slot]) -> Program:
    # Add one input for each new tensor, after those of the other state.
    state, names, pairs = program.state, program.main.names(), list(program.inputs)
    given = {state[spec.slot].cell for _, spec in pairs if type(spec) is StateInput}
    new: list[tuple[Input, InputSpec]] = []
    for path, slot in added.items():
        if slot.cell not in given:
            given.add(slot.cell)
            new.append((Input(names.fresh(exporter_name(path, slot))), StateInput(path)))
    place = next(
        (number for number, (_, spec) in enumerate(pairs) if type(spec) is UserInput), len(pairs)
    )
    pairs[place:place] = new
    main = program.main.with_nodes(
        program.main.nodes, inputs=tuple([formal for formal, _ in pairs])
    )
    return program.with_boundary(main, [spec for _, spec in pairs]) if new else program


def _slot(path: str, value: Any, ids: TensorIds) -> Slot:
    if isinstance(value, Slot):
        return ids.renumbered(value)
    if not isinstance(value, torch.Tensor):
        advice = (
            "pass a torch.nn.Parameter, a tensor (a persistent buffer), or a px.ir.Slot of any kind"
        )
        raise TypeError(f"the state {path!r} is a {type(value).__name__}: {advice}")
    return ids.slot(value, registered_kind(value), persistent=True)


def _check_place(program: Program, path: str, added: Mapping[str, Slot]) -> None:
    if type(path) is not str or not all(path.split(".")):
        raise NamingError(
            f"{path!r} cannot be the path of state: write names with dots between, 'layers.0.weight'"
        )
    if path in program.state:
        raise NamingError(
            f"the state {path!r} exists already: remove it first, or choose another name"
        )
    if any(module.path == path for module in program.modules):
        raise NamingError(f"{path!r} is a module: choose another name for its new state")
    for above in way_to(path)[:-1]:
        if above in program.state or above in added:
            raise NamingError(
                f"{path!r} would be inside {above!r}, which is a tensor: choose another name"
            )
    parts = part_names(program)
    if parts and path.partition(".")[0] not in parts:
        names = ", ".join([name for name in program.types if name in parts])
        raise NamingError(
            f"the program is split: choose a path below one of its parts {names}, not {path!r}"
        )


state_changed.register(Program, _changed)
