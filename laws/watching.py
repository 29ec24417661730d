"""``watched``: a function that should be a transformation, watched for what no law could survive.

One idea: what gives no program, or writes into the program it was given, is told at once and in its own words, before it
spoils the cases that come later; contents that were written over are put back.  It says nothing about what a result means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import torch
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from ..ir.errors import PurefxError
from ..ir.opaque import tensors_of
from ..ir.program import Program
from ..ir.state import same_contents
from ..transforms import Transformation
from .law import Transform

__all__ = ["NoTransformation", "watched"]


class NoTransformation(PurefxError, TypeError):
    """A function gives no program, or changes the one that it was given.

    Args:
        message: what it does, and what to do about it.
        writes: whether it changes the program; else it gives none.

    >>> issubclass(NoTransformation, TypeError)
    True
    """

    def __init__(self, message: str, *, writes: bool = False) -> None:
        super().__init__(message)
        self.writes = writes


def watched(transform: Transform) -> Transform:
    """Return a function that does the same and is looked at whenever it is called; a Transformation stays one.

    Args:
        transform: the function from programs to programs.

    Raises:
        NoTransformation: when called: it gave no program, or wrote into the one it got.

    >>> from purefx.ir import Graph
    >>> watched(lambda program: None)(Program.of({"": Graph((), (), ())}))
    Traceback (most recent call last):
    ...
    purefx.laws.watching.NoTransformation: it gave None; give back a program, and the same object when there is nothing to do
    """
    if isinstance(transform, Transformation):
        return evolve(transform, apply=_watched(transform.apply))
    return _watched(transform)


def _watched(transform: Callable[..., Any]) -> Callable[..., Program]:
    @wraps(transform)
    def looked_at(program: Program, **options: Any) -> Program:
        before = [(name, tensor, tensor.detach().clone()) for name, tensor in _tensors(program) if not tensor.is_meta]
        try:
            result = transform(program, **options)
        except (FrozenInstanceError, TypeError) as error:
            if isinstance(error, TypeError) and "item assignment" not in str(error):
                raise
            raise NoTransformation(
                f"it assigns to a part of a value ({error}); make a changed copy, with attrs.evolve(node, ...), "
                "program.with_main(graph) or program.evolve(...)",
                writes=True,
            ) from error
        finally:
            written = _put_back(before)
        if written:
            raise NoTransformation(
                f"it writes into the tensors of {', '.join(map(repr, written))}, which all versions of the program share; "
                "clone a tensor before you write, and give the result a state of its own",
                writes=True,
            )
        if not isinstance(result, Program):
            what = "None" if result is None else f"a {type(result).__name__}"
            raise NoTransformation(f"it gave {what}; give back a program, and the same object when there is nothing to do")
        return result

    return looked_at


def _tensors(program: Program) -> Iterator[tuple[str, torch.Tensor]]:
    # Those of modules that the program holds as they are, too.
    for name, slot in program.state.pairs:
        if isinstance(slot.value, torch.Tensor):
            yield name, slot.value
        elif isinstance(slot.value, torch.nn.Module):
            yield from ((name, tensor) for tensor in tensors_of(slot.value))


def _put_back(before: Iterable[tuple[str, torch.Tensor, torch.Tensor]]) -> list[str]:
    written: list[str] = []
    for name, tensor, contents in before:
        if not same_contents(tensor.detach(), contents):
            written.append(name)
            with torch.no_grad():
                tensor.copy_(contents)
    return written
