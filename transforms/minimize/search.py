"""``Search``: the best program so far, the tested candidates, and the cost of a program.

A candidate is tested if it is valid, smaller, and new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...ir.arguments import CONTAINERS, Arg, Body, Ref, children_of
from ...ir.errors import MinimizeError, PurefxError
from ...ir.expression import symbols_in
from ...ir.graph import Call, Get, Node, Op
from ...ir.program import Program
from ...ir.signature import LiteralType, TensorType
from ...ir.tensors import tensors_among
from ...ir.verify import verify
from ..cleanup import infer

USUAL = frozenset({torch.float32, torch.int64, torch.bool})
"""The dtypes of simple programs."""


def cost(program: Program) -> tuple[int, ...]:
    """Return the cost of a program, which the search minimizes.

    >>> from purefx.ir import Graph
    >>> cost(Program.of({"": Graph((), ())})) < cost(Program.of({"": Graph((), (Node("y", Op("toy.neg")),))}))
    True
    """
    kinds = [type(node.do) for _, node in program.nodes()]
    types = [spec.type for spec in program.signature.users.values()]
    tensors = [kind for kind in types if type(kind) is TensorType]
    values = tensors_among(slot.value for _, slot in program.state.pairs)
    sizes = [size for one in (*tensors, *values) for size in one.shape]
    literals = [literal for _, node in program.nodes() for literal in literals_in(node)]
    literals += [kind.value for kind in types if type(kind) is LiteralType]
    return (
        kinds.count(Op),
        kinds.count(Call) + len(program.graphs),
        kinds.count(Get) + len(program.state_inputs) + len(program.state),
        len(program.signature.outputs),
        len(program.signature.inputs),
        len({name for kind in tensors for size in kind.shape for name in symbols_in(size)}),
        sum(size if type(size) is int else 2 for size in sizes),
        sum(dtype not in USUAL for dtype in [one.dtype for one in (*tensors, *values)])
        + sum(isinstance(literal, torch.dtype) and literal not in USUAL for literal in literals),
        len(literals),
        sum(map(_effort, literals)),
        _description(program),
    )


def literals_in(node: Node) -> Iterator[Arg]:
    """Iterate over the literals among the arguments of a node.

    >>> list(literals_in(Node("y", Op("toy.mul"), (Ref("x"), (2, 3)))))
    [2, 3]
    """
    todo: list[Arg] = [*reversed([arg for _, arg in node.kwargs]), *reversed(node.args)]
    while todo:
        arg = todo.pop()
        if type(arg) in CONTAINERS:
            todo.extend(reversed(children_of(arg)))
        elif type(arg) not in (Ref, Body):
            yield arg


def _effort(literal: Any) -> int:
    if literal is None or literal is False:
        return 0
    if type(literal) is int:
        return abs(literal).bit_length() + (literal < 0)
    if type(literal) is float:
        return 2 if literal == 1.0 else 2 + len(repr(literal))
    return 1


def _description(program: Program) -> int:
    signature, bounds = program.signature, program.constraints
    frames = sum(len(node.stack) for _, node in program.nodes())
    trees = (
        (signature.in_spec is not None)
        + (signature.out_spec is not None)
        + len(signature.arg_names)
        + len(signature.lifted)
    )
    return (
        frames
        + len(program.modules)
        + len(program.call_signatures)
        + len(bounds.ranges)
        + len(bounds.guards)
        + trees
    )


Predicate = Callable[[Program], bool]

Change = Callable[[Program], Program | None]
"""Returns a candidate, or returns None or raises a ``PurefxError`` without one."""


class TimeIsUp(Exception):
    """The time limit is reached."""


class Search:
    """A reduction in progress.

    Args:
        program: the valid program to start with.
        is_wrong: the predicate.
        seconds: the time limit.

    >>> from purefx.ir import Graph, Node, Op
    >>> nodes = tuple(Node(name, Op("toy.neg"), (1,)) for name in "ab")
    >>> search = Search(Program.of({"": Graph((), nodes)}), lambda program: bool(program.main.nodes), seconds=9)
    >>> search.offer("all but one", lambda program: program.with_main(Graph((), nodes[:1])))
    True
    >>> search.tried, len(search.program.main.nodes)
    (1, 1)
    """

    def __init__(self, program: Program, is_wrong: Predicate, *, seconds: float) -> None:
        self.program = program
        self.best = program
        """The smallest wrong program."""
        self.steps: list[str] = []
        self.tried = 0
        self._is_wrong = is_wrong
        self._tested: set[Program] = {program}
        """The programs that were tested."""
        self._began = time.monotonic()
        self._ends = self._began + seconds

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Test the program itself.

        Raises:
            MinimizeError: the program is not wrong, or the predicate raises.
        """
        self.tried += 1
        advice = "is_wrong(program) has to return True for the program that you pass"
        try:
            wrong = bool(self._is_wrong(self.program))
        except Exception as error:
            reason = f"is_wrong raised {type(error).__name__} for the given program: {error}"
            raise MinimizeError(
                f"{reason}; {advice}. If the exception is the fault, catch it and return True"
            ) from error
        if not wrong:
            raise MinimizeError(
                f"there is nothing to reduce: {advice}; make the arguments from the program that it gets"
            )

    def offer(self, step: str, change: Change, *, larger: bool = False) -> bool:
        """Test a candidate, and continue with it if it is wrong, too.

        Args:
            step: the change, for the list of steps.
            change: makes the candidate.
            larger: whether it may be larger, because it enables later reductions.

        Raises:
            TimeIsUp: the time limit is reached.
        """
        if time.monotonic() > self._ends:
            raise TimeIsUp
        try:
            made = change(self.program)
            candidate = (
                None if made is None or made is self.program else self._valid(made, larger=larger)
            )
        except PurefxError:
            return False
        if candidate is None or not self._test(candidate):
            return False
        self.program = candidate
        self.steps.append(step)
        if cost(candidate) < cost(self.best):
            self.best = candidate
        return True

    def _valid(self, made: Program, *, larger: bool) -> Program | None:
        # Inference needs a valid program, so dropped types are inferred last.
        if not larger and cost(made) >= cost(self.program):
            return None
        if made in self._tested or verify(made):
            return None
        candidate = infer(made)
        return candidate.evolve(trail=()) if candidate is made or not verify(candidate) else None

    def _test(self, candidate: Program) -> bool:
        self.tried += 1
        try:
            wrong = bool(self._is_wrong(candidate))
        except Exception:  # noqa: BLE001  another fault than the one searched for
            wrong = False
        self._tested.add(candidate)
        return wrong
