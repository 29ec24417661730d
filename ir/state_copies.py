"""Copies of the state that is not a plain tensor: tensor subclasses, sparse and quantized tensors, generators, objects.

A copy has the class and the metadata of the original, or there is none: ``lower``, ``to_ep`` and ``deepcopy`` ask here.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import torch

from .errors import UnsupportedProgram
from .state import describe_tensor, is_plain
from .torch_private import FakeTensor


def has_window(value: torch.Tensor) -> bool:
    """Return whether the numbers of a tensor are a window on memory, whatever class it has.

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
    return type(value).__deepcopy__ not in (torch.Tensor.__deepcopy__, torch.nn.Parameter.__deepcopy__)


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
        plain: has the contents; it may be changed.
        like: what it is a copy of.
        memo: as ``copy.deepcopy`` has it.

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


def copy_value(name: str, value: Any, memo: dict[int, Any], *, device: torch.device | None = None) -> Any:
    """Return a copy of a piece of state that has the class and the metadata of the original.

    Args:
        name: of the slot, for messages.
        value: a tensor of any kind, or an object.
        memo: as ``copy.deepcopy`` has it; one for all state that is copied together.
        device: where a tensor goes; None leaves it.

    Raises:
        UnsupportedProgram: it cannot be copied, or its copy is another type.

    >>> copy_value("rng", torch.Generator().manual_seed(3), {}).initial_seed()
    3
    """
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, _handles()):
        return value
    try:
        made = _remade(value, memo, device) if isinstance(value, torch.Tensor) else copy.deepcopy(value, memo)
    except Exception as error:
        raise _refusal(name, value, f"cannot be copied ({type(error).__name__}: {str(error)[:200]})") from error
    if type(made) is not type(value):
        raise _refusal(name, value, f"cannot be copied: its copy is a {kind_of_state(made)}")
    if isinstance(value, torch.Tensor) and (fault := _lost(value, made)):
        raise _refusal(name, value, f"cannot be copied: {fault}")
    memo[id(value)] = made
    return made


def _refusal(name: str, value: Any, fault: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"the state {name!r} is a {kind_of_state(value)}, which {fault}; define __deepcopy__ in its class, or use it as it is: "
        'state="share" in lower and to_ep'
    )


def _lost(value: torch.Tensor, made: torch.Tensor) -> str:
    names = ("is_parameter", "dtype", "shape", "stride", "device", "requires_grad", "layout")
    told = zip(names, describe_tensor(value), describe_tensor(made), strict=False)
    skipped = {"device"} if value.is_leaf else {"device", "requires_grad"}
    return ", ".join([f"its {name} is {new}, not {old}" for name, old, new in told if old != new and name not in skipped])


def kind_of_state(value: Any) -> str:
    """Return the class of a piece of state, and its layout where that is not the usual one.

    >>> kind_of_state(torch.eye(2).to_sparse())
    'torch.Tensor (torch.sparse_coo)'
    """
    layout = f" ({value.layout})" if isinstance(value, torch.Tensor) and value.layout is not torch.strided else ""
    kind = type(value)
    return f"{kind.__qualname__ if kind.__module__ == 'builtins' else f'{kind.__module__}.{kind.__qualname__}'}{layout}"


def _handles() -> tuple[type, ...]:
    # A process group is a name for a connection: whoever has it uses the same one.
    return (torch.distributed.ProcessGroup,) if torch.distributed.is_available() else ()


def _remade(value: torch.Tensor, memo: dict[int, Any], device: torch.device | None) -> torch.Tensor:
    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if device is None else tensor.to(device)

    if id(value) in memo:
        return memo[id(value)]
    if has_window(value):
        made = dressed(moved(copy.deepcopy(as_plain(value), memo)), value, memo)
    elif _copies_itself(value):
        made = moved(copy.deepcopy(value, memo))
    elif hasattr(value, "__tensor_flatten__"):
        made = _rebuilt(value, lambda part: _remade(part, memo, device), memo)
    elif _dispatches(type(value)):
        made = moved(copy.deepcopy(value, memo))
    else:
        made = dressed(moved(as_plain(value).clone()), value, memo)
    memo[id(value)] = made
    return made


def _rebuilt(value: Any, each: Callable[[torch.Tensor], torch.Tensor], memo: dict[int, Any]) -> torch.Tensor:
    # The protocol by which torch takes subclasses apart; `clone` may give another class, and forget what the context keeps.
    names, context = value.__tensor_flatten__()
    parts = {name: each(getattr(value, name)) for name in names}
    made = type(value).__tensor_unflatten__(parts, context, value.size(), value.stride())
    return dressed(made, value, memo)


def check_picklable(name: str, value: Any) -> None:
    """Refuse a piece of state that pickle cannot write, or reads as another type.

    Args:
        name: of the slot, for messages.
        value: what it holds.

    Raises:
        UnsupportedProgram: it is.

    >>> check_picklable("rng", torch.Generator())
    """
    if is_plain(value):
        return
    kind = type(value)
    if isinstance(value, torch.nn.Parameter) and kind.__reduce_ex__ is torch.nn.Parameter.__reduce_ex__ and kind not in ORDINARY:
        raise _unpicklable(name, value, "torch pickles it as a torch.nn.Parameter")
    try:
        if isinstance(value, torch.Tensor):
            value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        else:
            pickle.dumps(value)
    except Exception as error:
        raise _unpicklable(name, value, f"{type(error).__name__}: {str(error)[:200]}") from error


def _unpicklable(name: str, value: Any, fault: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"the state {name!r} is a {kind_of_state(value)}, which cannot be pickled ({fault}); define __reduce_ex__ in its class"
    )
