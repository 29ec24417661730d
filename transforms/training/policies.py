"""Policies: which values of the forward are kept for the backward; all others are computed again.

A policy is a function from candidates, in the order of the graph, to the names of those to keep.  What must not be computed
again is kept whatever it says, and what the backward does not need is not kept, so a policy cannot make a wrong program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from attrs import field, frozen

from ...ir.errors import ArgumentError, NamingError
from ...ir.graph import Stack
from ...ir.taking import kind_of
from .candidates import Candidate
from .operators import base_name

__all__ = ["Policy", "by_operator", "recompute", "save_all"]

Policy = Callable[[Sequence[Candidate]], Collection[str]]
"""What ``partition_joint`` takes: gives the names of the candidates to keep."""


@frozen
class save_all:  # noqa: N801 - a value that reads like a function
    """Keep every value that the forward computes and the backward needs, as autograd does.

    >>> from purefx.transforms.training.candidates import Candidate
    >>> sorted(save_all()([Candidate("y", "aten.relu.default", 16), Candidate("m", "aten.le.Scalar", 4, forward=False)]))
    ['y']
    """

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to keep."""
        return {one.name for one in candidates if one.forward}


@frozen
class recompute:  # noqa: N801
    """Compute again what is inside some module calls, and keep what they are given: ``torch.utils.checkpoint`` of each.

    Args:
        globs: of paths of modules; a call of a module that one of them matches is computed again with all calls inside it.  What
            it gives to something else of the forward is kept if the backward needs it.

    Raises:
        ArgumentError: a glob is no text, or there is none.
        NamingError: a glob matches no module that the forward calls (when it is applied).

    >>> from purefx.ir import Frame
    >>> from purefx.transforms.training.candidates import Candidate
    >>> inside = Candidate("y", "aten.relu.default", 16, stack=(Frame("layers.0"), Frame("layers.0.act")))
    >>> sorted(recompute("layers.*")([Candidate("x", "aten.exp.default", 16), inside]))
    ['x']
    """

    globs: tuple[str, ...]

    def __init__(self, *globs: str) -> None:
        texts: tuple[object, ...] = globs
        for glob in texts:
            if type(glob) is not str:
                raise ArgumentError(f'recompute takes globs of module paths, "layers.*", not {kind_of(glob)}')
        if not globs:
            raise ArgumentError('recompute takes globs of module paths, as in recompute("layers.*"); "*" is every module')
        self.__attrs_init__(globs)  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to keep."""
        paths = dict.fromkeys([frame.path for one in candidates for frame in one.stack])
        chosen: set[str] = set()
        for glob in self.globs:
            found = [path for path in paths if fnmatchcase(path, glob)]
            if not found:
                raise NamingError(f"recompute({glob!r}) matches no module that the forward calls; those are {sorted(paths)[:50]}")
            chosen.update(found)
        of = {one.name: _chosen_call(one.stack, chosen) for one in candidates}
        users = [one for one in candidates if one.forward]
        given = {name for one in users for name in one.operands if name in of and of[name] != of[one.name]}
        return {one.name for one in candidates if one.forward and (not of[one.name] or one.name in given)}


def _chosen_call(stack: Stack, chosen: Collection[str]) -> Stack:
    # The outermost call of a chosen module, with those around it.
    for number, frame in enumerate(stack):
        if frame.path in chosen:
            return stack[: number + 1]
    return ()


@frozen
class by_operator:  # noqa: N801
    """Keep or compute again by operator, and do the one or the other with the rest.

    An operator is meant by its full name (``"aten.mm.default"``), without overload (``"aten.mm"``) or by its own name (``"mm"``).

    Args:
        save: operators whose results are kept.
        recompute: operators whose results are computed again.

    One of them may be left out: with ``save`` alone everything else is computed again, otherwise everything else is kept.

    Raises:
        ArgumentError: both are left out; one of them is a text where a sequence of texts belongs.

    >>> from purefx.transforms.training.candidates import Candidate
    >>> values = [Candidate("y", "aten.mm.default", 16), Candidate("z", "aten.relu.default", 16)]
    >>> sorted(by_operator(save=["mm"])(values)), sorted(by_operator(recompute=["aten.mm"])(values))
    (['y'], ['z'])
    """

    save: tuple[str, ...] | None = field(default=None, kw_only=True)
    recompute: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __init__(self, *, save: Iterable[str] | None = None, recompute: Iterable[str] | None = None) -> None:
        if save is None and recompute is None:
            raise ArgumentError('by_operator takes save=[...] or recompute=[...], names of operators like "mm"')
        for name, given in (("save", save), ("recompute", recompute)):
            if isinstance(given, str):
                raise ArgumentError(f"{name} of by_operator is a sequence of names of operators, not a str; write [{given!r}]")
        kept, again = (None if given is None else tuple(given) for given in (save, recompute))
        self.__attrs_init__(save=kept, recompute=again)  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to keep."""
        rest = self.save is None or (self.recompute is not None)

        def keeps(one: Candidate) -> bool:
            if self.save is not None and _is_among(one.operator, self.save):
                return True
            return rest and one.forward and not _is_among(one.operator, self.recompute or ())

        return {one.name for one in candidates if keeps(one)}


def _is_among(operator: str, names: Collection[str]) -> bool:
    return not {operator, operator.rpartition(".")[0], base_name(operator)}.isdisjoint(names)
