"""Layout identities: remove redundant reshapes, permutations, splits, concatenations and copies.

Strides of inputs are known only at run time.  So an operator that may return a view or a copy stays where the difference is
observable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...ir.arguments import Ref
from ..rules import any_of
from ..rules.match import Match
from ..rules.rule import Rule, RuleSet, rule

__all__ = ["alike", "is_float", "layout", "named", "turned"]

aten: Any = torch.ops.aten

Function = Callable[..., Any]


def named(
    name: str,
    pattern: Function,
    replacement: Function,
    where: Callable[[Match], bool] | None = None,
) -> Rule:
    """Make a named rule from a pattern, a replacement and a condition.

    >>> named("neg_neg", lambda x: -(-x), lambda m, x: x)  # doctest: +ELLIPSIS
    Rule(written=<function neg_neg at ...>, variables=('x',), ...)
    """
    pattern.__name__ = pattern.__qualname__ = name
    return rule(pattern, where=where).becomes(replacement)


def alike(m: Match, variable: str = "x") -> bool:
    """Return whether the root has the sizes, the strides and the dtype of a variable.

    >>> import purefx as px
    >>> once = named("once", lambda x, y: x * y, lambda m, x, y: x, lambda m: m["y"] == 1 and alike(m))
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> once(program) is program
    True
    """
    mine, theirs = m.val(Ref(m.root.name)), m.val(variable)
    if (
        not isinstance(mine, torch.Tensor)
        or not isinstance(theirs, torch.Tensor)
        or mine.dtype != theirs.dtype
    ):
        return False
    return (*mine.shape, *mine.stride()) == (*theirs.shape, *theirs.stride())


# -- dimensions ---------------------------------------------------------------------------------------------------------------------


def _rank(m: Match) -> int | None:
    shape = m.shape("x")
    return None if shape is None else len(shape)


def _swapped(x: Any, one: int, other: int) -> list[int]:
    order = list(range(x.dim()))
    order[one], order[other] = order[other], order[one]
    return order


def _is_swapped_back(m: Match) -> bool:
    rank = _rank(m)
    return bool(rank) and {m["a"] % rank, m["b"] % rank} == {m["c"] % rank, m["d"] % rank}  # type: ignore[operator]


def _is_in_order(m: Match) -> bool:
    dims: Any = m["dims"]
    return [dim % len(dims) for dim in dims] == [*range(len(dims))]


def _has_rank(m: Match) -> bool:
    return bool(_rank(m))


def _twice(x: Any, first: Any, then: Any) -> Any:
    first, then = ([dim % x.dim() for dim in dims] for dims in (first, then))
    return x.permute([first[dim] for dim in then])


def _any_reshape(x: Any, size: Any) -> Any:
    # An inner reshape must be a view: a copy that is written to must remain.
    return any_of(x.reshape(size), aten.view.default(x, size))


def is_float(m: Match) -> bool:
    """Return whether ``x`` and the root have the same floating-point dtype."""
    dtype = m.dtype("x")
    return dtype is not None and dtype.is_floating_point and m.dtype(Ref(m.root.name)) == dtype


def turned(w: Any) -> Any:
    """Return a pattern of a transposed matrix, in all spellings."""
    return any_of(
        w.t(),
        aten.mT.default(w),
        aten.numpy_T.default(w),
        w.transpose(0, 1),
        w.transpose(-2, -1),
        w.permute([1, 0]),
    )


DIMENSIONS = RuleSet(
    (
        named(
            "view_reshape",
            lambda x, a, b: _any_reshape(
                any_of(aten.view.default(x, a), x.unsqueeze(a), aten.squeeze.dim(x, a)), b
            ),
            lambda m, x, a, b: x.reshape(b),
        ),
        named(
            "view_flatten",
            lambda x, a: aten.view.default(x, a).flatten(0, -1),
            lambda m, x, a: x.reshape([-1]),
            # The size of -1 is ambiguous for an empty tensor.
            lambda m: all(size != 0 for size in m.shape("x") or (0,)),
        ),
        named("reshape_to_the_same", lambda x, a: _any_reshape(x, a), lambda m, x, a: x, alike),
        named("flatten_nothing", lambda x, a, b: x.flatten(a, b), lambda m, x, a, b: x, alike),
        named(
            "transpose_transpose",
            lambda x, a, b, c, d: x.transpose(a, b).transpose(c, d),
            lambda m, x, a, b, c, d: x,
            _is_swapped_back,
        ),
        named(
            "turn_turn",
            lambda x: turned(turned(x)),
            lambda m, x: x,
            lambda m: len(m.shape("x") or ()) == 2,
        ),
        named(
            "permute_permute",
            lambda x, a, b: x.permute(a).permute(b),
            lambda m, x, a, b: _twice(x, a, b),
            _has_rank,
        ),
        named(
            "transpose_permute",
            lambda x, a, b, c: x.transpose(a, b).permute(c),
            lambda m, x, a, b, c: _twice(x, _swapped(x, a, b), c),
            _has_rank,
        ),
        named(
            "permute_transpose",
            lambda x, a, b, c: x.permute(a).transpose(b, c),
            lambda m, x, a, b, c: _twice(x, a, _swapped(x, b, c)),
            _has_rank,
        ),
        named(
            "permute_nothing", lambda x, dims: x.permute(dims), lambda m, x, dims: x, _is_in_order
        ),
        named(
            "transpose_nothing",
            lambda x, a, b: x.transpose(a, b),
            lambda m, x, a, b: x,
            lambda m: _is_one_dim(m, "a", "b"),
        ),
        named(
            "unsqueeze_squeeze",
            lambda x, a, b: aten.squeeze.dim(x.unsqueeze(a), b),
            lambda m, x, a, b: x,
            lambda m: _is_one_dim(m, "a", "b", 1),
        ),
        named(
            "squeeze_unsqueeze",
            lambda x, a, b: aten.squeeze.dim(x, a).unsqueeze(b),
            lambda m, x, a, b: x,
            lambda m: alike(m) and _is_one_dim(m, "a", "b"),
        ),
        named("expand_nothing", lambda x, a: x.expand(a), lambda m, x, a: x, alike),
        named(
            "expand_expand",
            lambda x, a, b: x.expand(a).expand(b),
            lambda m, x, a, b: x.expand(b),
            lambda m: all(type(size) is not int or size >= 0 for size in m["b"]),
        ),
    )
)


def _is_one_dim(m: Match, one: str, other: str, more: int = 0) -> bool:
    rank = _rank(m)
    return rank is not None and (rank + more == 0 or (m[one] - m[other]) % (rank + more) == 0)  # type: ignore[operator]


# -- parts and copies ---------------------------------------------------------------------------------------------------------------


CUTS = {
    "split": aten.split.Tensor,
    "split_sizes": aten.split_with_sizes.default,
    "chunk": aten.chunk.default,
}


def _rejoined(count: int, name: str) -> Rule:
    # All parts of a value, concatenated in order along the dimension of the split.
    def joined(x: Any, n: Any, dim: Any) -> Any:
        parts = CUTS[name](x, n, dim)
        return torch.cat([parts[number] for number in range(count)], dim)

    return named(f"{name}_cat_{count}", joined, lambda m, x, n, dim: x, alike)


@rule(at=aten.cat.default)
def cat_cat(m: Match) -> Any:
    """Merge nested concatenations along one dimension."""
    dim, rank = m.arguments["dim"], len(m.shape(Ref(m.root.name)) or ())
    parts: list[Any] = []
    for each in m.arguments["tensors"]:
        found = m.match(lambda xs, d: torch.cat(xs, d), each)
        is_same = found is not None and rank and (found[1] - dim) % rank == 0
        parts += found[0] if is_same and found is not None else [each]
    return torch.cat(parts, dim) if len(parts) > len(m.arguments["tensors"]) else None


PARTS = RuleSet(
    (
        *[_rejoined(count, name) for count in (2, 3, 4) for name in CUTS],
        named("cat_of_one", lambda x, dim: torch.cat([x], dim), lambda m, x, dim: x, alike),
        named(
            "slice_of_all",
            lambda x, d, a, b, step: aten.slice.Tensor(x, d, a, b, step),
            lambda m, x, d, a, b, step: x,
            lambda m: m["step"] == 1 and alike(m),
        ),
        named(
            "clone_clone",
            lambda x, how: torch.clone(torch.clone(x), memory_format=how),
            lambda m, x, how: torch.clone(x, memory_format=how),
        ),
        named("alias", lambda x: aten.alias.default(x), lambda m, x: x),
        cat_cat,
    )
)

layout = DIMENSIONS + PARTS
"""All layout identities."""
