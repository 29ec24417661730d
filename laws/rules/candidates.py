"""Candidates: what a variable of a rule may be, where its operators take it, beside what the other variables are already.

What an operator takes says the kind; sizes follow those of the tensors that are there.  Which candidates fit is found out by
trying them (``operands.py``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...ir.torch_private import schema_of
from ...transforms.rules.amounts import Amount, Computed, Rest, Sizes
from ...transforms.rules.terms import Applied, Item, Var, parts_of, subterms
from .chains import Passed
from .contents import Operand

__all__ = ["candidate", "kinds_of"]

SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4), (4,), (2, 3, 4), (4, 4), (), (1, 4), (1,), (0, 4), (2, 1), (2, 3, 4, 4), (3, 0), (1, 3, 6, 6),
    (2, 2, 4, 6), (2, 4, 6),
)  # fmt: skip
"""Sizes of the first tensor."""

DTYPES = (
    (torch.float32,) * 8 + (torch.float64,) * 2 + (torch.int64,) * 3
    + (torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool)
)  # fmt: skip
"""Types of the first tensor.  Complex ones are for ``operands``: the sign that a zero of theirs gets depends on how it lies in
memory, so hardly a rule is right of them to the last bit."""

LITERALS: dict[str, tuple[Any, ...]] = {
    "int": (-1, 0, 1, 2, -2, 3, 4),
    "float": (0.5, 2.0, 1.0, -1.0, 0.0, 1e-5, 8.0, -0.0),
    "number": (2, 0.5, 1, -1.5, 0, 3.0, 8.0, 1.0, -0.0),
    "bool": (False, True),
    "str": ("none", "tanh", "floor", "trunc", "mean", "sum"),
    "ScalarType": (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.int32),
    "None": (None,),
}

HINTS = {"mask": "mask", "attn_mask": "mask", "condition": "mask", "indices": "index", "index": "index", "target": "index"}
"""Names of parameters that take tensors of truth values, or of positions."""

OPTIONAL = 0.25
"""How often an argument that may be left out is None."""


LIKE_THE_LAST = 0.35
"""How often a tensor is like the one before it, as scale, shift, mean and variance are."""


def kinds_of(term: Any, variable: Var) -> list[str]:
    """Return what the operators of a term take where they are given a variable.

    >>> x, y = Var("x"), Var("y")
    >>> kinds_of(torch.add(x, y), y), kinds_of(torch.transpose(x, 0, y), y)
    (['Tensor', 'number'], ['int'])
    """
    found: dict[str, None] = {}  # in order
    if isinstance(term, Passed) and term.whole is variable:
        return ["Tensor"]
    if isinstance(term, Applied):
        for overload, given in term.overloads.items():
            types = {one.name: str(one.real_type) for one in schema_of(overload).arguments}
            for name, value in given.items():
                if value is variable:
                    found.update(dict.fromkeys(_simple(types[name])))
                    found.update({HINTS[name]: None} if name in HINTS else {})
                elif isinstance(value, list | tuple) and any(part is variable for part in value):
                    found[types[name].removeprefix("List[").removesuffix("]")] = None
                else:
                    found.update(dict.fromkeys(_in_amounts(value, variable, types[name])))
    return sorted(found, key=lambda kind: (kind != "Tensor", kind))


def _in_amounts(value: Any, variable: Var, kind: str) -> Iterator[str]:
    # Numbers that are computed of it, sizes that it has, and the rest of a list.
    for each in (one for one in subterms(value) if isinstance(one, Amount | Sizes | Rest)):
        if any(part is variable for part in parts_of(each)):
            yield "int" if isinstance(each, Computed) else _simple(kind)[0] if isinstance(each, Rest) else "Tensor"


def _simple(kind: str) -> list[str]:
    optional = kind.startswith("Optional[")
    plain = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    plain = "List[int]" if plain.startswith(("List[int", "List[SymInt")) else plain.replace("SymInt", "int")
    return [plain, "None"] if optional else [plain]


def candidate(draw: random.Random, kinds: Sequence[str], near: Sequence[torch.Tensor], *, tensors: float = 0.7) -> Any:
    """Return something that a variable may be.

    Args:
        draw: chooses.
        kinds: what its operators take.
        near: the other operands of the operator that are known already.
        tensors: how often it is a tensor where it may be something else; operators take either for all that limits them.

    >>> candidate(random.Random(0), ["bool"], [])
    False
    """
    known = [kind for kind in kinds if kind in LITERALS or kind in ("Tensor", "List[Tensor]", "List[int]")]
    plain = [kind for kind in known if kind != "None"]
    if not plain or ("None" in known and draw.random() < OPTIONAL):
        return Operand(None)
    kind = plain[0] if draw.random() < tensors else draw.choice(plain[1:] or plain)
    match kind:
        case "Tensor":
            hint = next((one for one in kinds if one in HINTS.values() and draw.random() < 0.8), "")
            return _tensor(draw, near, hint)
        case "List[Tensor]":
            first = _tensor(draw, near)
            return [first, *[first if draw.random() < 0.7 else _tensor(draw, [first.value]) for _ in range(draw.randint(0, 2))]]
        case "List[int]":
            return Operand(_sizes(draw, near))
        case _:
            return Operand(draw.choice(LITERALS[kind]))


def _tensor(draw: random.Random, near: Sequence[torch.Tensor], hint: str = "") -> Operand:
    other = draw.choice(near) if near else None
    if near and draw.random() < LIKE_THE_LAST:
        shape, dtype = tuple(near[-1].shape), near[-1].dtype
    elif other is None:
        shape, dtype = draw.choice(SHAPES) if draw.random() < 0.6 else draw.choice(SHAPES[:3]), draw.choice(DTYPES)
    else:
        shape = draw.choice(_related(tuple(other.shape), draw))
        dtype = other.dtype if draw.random() < 0.85 else draw.choice((*DTYPES, torch.bool, torch.bool, torch.int64))
    dtype = {"mask": torch.bool, "index": torch.int64}.get(hint, dtype)
    style = "signed" if draw.random() < (0.85 if dtype.is_floating_point else 0.5) and hint != "index" else "few"
    style = "between" if style == "few" and dtype.is_floating_point else style
    found = Operand(torch.empty(shape, dtype=dtype), style)
    return Operand(found.at(0), style, finite=dtype is torch.bfloat16)  # how it lies in memory decides about the sign of NaN


def _related(shape: torch.Size | tuple[int, ...], draw: random.Random) -> list[tuple[int, ...]]:
    # Sizes that something beside a tensor of these sizes often has: the same, a row, a column, one that broadcasts, a weight.
    number = draw.choice((1, 2, 3, 4, 5))
    found: list[tuple[int, ...]] = [shape, shape, shape, (), draw.choice(SHAPES)]
    if len(shape) > 0:
        channels = shape[1] if len(shape) > 1 else shape[0]
        place = draw.randrange(len(shape))
        found += [shape[-1:], (number, shape[-1]), (shape[-1], number), (channels,), shape[:1], shape[1:], (number, *shape)]
        found += [(*shape[:place], 1, *shape[place + 1 :]), (*shape[:-1], number), (*shape[:-2], number, *shape[-1:])]
        found += [(*shape[:-2], *shape[:-3:-1]), (*shape[:-2], shape[-1], number)]
    if len(shape) > 2:
        kernel = draw.choice((1, 3))
        found += [(number, shape[1], *([kernel] * (len(shape) - 2)))] * 2
    return found


def _sizes(draw: random.Random, near: Sequence[torch.Tensor]) -> list[int]:
    # Sizes to reshape or expand to, dimensions, permutations of them, strides and kernels.
    shape = list(draw.choice(near).shape) if near else [2, 2]
    count, axes = len(shape), list(range(len(shape)))
    number = 1
    for size in shape:
        number *= size
    found = [
        shape,
        [-1],
        [number],
        shape[::-1],
        [1, *shape],
        [2, *shape],
        shape[-1:],
        shape[-1:],
        shape[-2:],
        axes[::-1],
        axes[:1],
        [-1],
        [-1, -2],
        [1],
        [2],
        [0],
    ]
    found += [[*shape[:-2], -1], [*shape[:-1], 1, *shape[-1:]], [1] * count, [2] * count, [0] * max(count - 2, 1), [1, 1], [2, 2]]
    return draw.choice(found)


def operators_in(term: Any, parts: Any) -> list[Any]:
    """Return the operators of a term, each after those that it is applied to.

    Args:
        term: what a rule looks for, without alternatives.
        parts: gives what a term is made of.

    >>> from ...transforms.rules.terms import parts_of
    >>> operators_in(torch.relu(torch.exp(Var("x"))), parts_of)
    [exp(x), relu(exp(x))]
    """
    done: dict[int, Any] = {}
    todo: list[tuple[Any, bool]] = [(term, False)]
    while todo:
        each, closing = todo.pop()
        if id(each) in done:
            continue
        if closing:
            done[id(each)] = each
        else:
            todo += [(each, True)] if isinstance(each, Applied | Item | Passed) else []
            todo += [(part, False) for part in reversed(parts(each))]
    return list(done.values())
