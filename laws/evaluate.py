"""``evaluate``: what a program means, by running it one node after the other.

One idea: the meaning is what can be seen from outside over several calls: outputs, inputs and state afterwards, the
order of effects.  What a value is and how an operator acts on it is the business of a *machine*, one of integer cells
(``toy.py``) or one of tensors (``tensors.py``).  It shares no code with ``lowering/`` and is made to be read, not to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import fields_dict, frozen

from ..ir.arguments import Arg, Body, Items, Record, Ref
from ..ir.graph import Input
from ..ir.node import Call, Get, Node
from ..ir.parts import original, part_names
from ..ir.paths import join
from ..ir.program import Program
from ..ir.signature import GIVEN, InputMutation, StateInput, StateMutation, Token, UserInput
from ..ir.state import State
from .contents import EXACT, Tolerance, differences

__all__ = ["Machine", "Meaning", "evaluate", "meaning_differences"]


class Machine(Protocol):
    """What values are, and what operators do to them.  A machine is used for one evaluation."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """What runs for an operator, by its name; operators that are left out run their target."""
        ...

    @property
    def effects(self) -> Mapping[str, list[Any]]:
        """What was seen of the outside world so far: for each kind of effect, what happened in order."""
        ...

    def load(self, state: State) -> Mapping[str, Any]:
        """Return a value for each slot; slots of one cell give one value, cells of one storage share memory."""
        ...

    def given(self, leaf: Any) -> Any:
        """Return the value of an input, made from what the caller passes, which stays as it is."""
        ...

    def save(self, value: Any) -> Any:
        """Return a copy that later writes do not reach."""
        ...

    def write(self, target: Any, saved: Any) -> None:
        """Give a value new contents."""
        ...

    def shown(self, saved: Any) -> Any:
        """Return the contents of a saved value as something that ``==`` compares exactly."""
        ...


@frozen
class Meaning:
    """What is seen of a program over several calls.

    >>> Meaning((), (), (), ()) == Meaning((), (), (), ())
    True
    """

    outputs: tuple[Any, ...]
    """For each call, the contents of the user outputs."""
    inputs: tuple[Any, ...]
    """For each call, the contents of the user inputs afterwards."""
    state: tuple[tuple[str, Any], ...]
    """Each slot's contents after the last call."""
    effects: tuple[tuple[str, tuple[Any, ...]], ...]
    """For each kind of effect, what happened in order."""


def evaluate(
    program: Program,
    calls: Sequence[Sequence[Any]],
    machine: Machine,
    *,
    seen: Callable[[str, Input | Node, Any], object] | None = None,
) -> Meaning:
    """Return what a program means.

    Args:
        program: a valid program at any stage.
        calls: the leaves of the user inputs, for each call.
        machine: a fresh one.
        seen: is told of every input and node that gets a value, and in which graph.

    Raises:
        KeyError: an operator has neither a function of the machine nor a target.

    >>> from .toy import NEG, ToyMachine
    >>> from purefx.ir import Graph, Input, Ref, Signature, TensorType, UserOutput
    >>> import torch
    >>> signature = Signature((UserInput(TensorType(torch.int64, ())),), (UserOutput(),))
    >>> graph = Graph((Input("x"),), (Node("y", NEG, (Ref("x"),)),), (Ref("y"),))
    >>> evaluate(Program.of({"": graph}, signature=signature), [(2,), (3,)], ToyMachine()).outputs
    ((-2,), (-3,))
    """
    run = _Run(program, machine, seen)
    made = [run.call(leaves) for leaves in calls]
    return Meaning(
        outputs=tuple(outputs for outputs, _ in made),
        inputs=tuple(inputs for _, inputs in made),
        state=tuple((name, machine.shown(machine.save(run.slots[slot]))) for name, slot in _state_names(program).items()),
        effects=tuple((kind, tuple(happened)) for kind, happened in sorted(machine.effects.items())),
    )


def _state_names(program: Program) -> dict[str, str]:
    # State is called as before the program was split: where a tensor is kept is no part of what a program means.
    names = frozenset(part_names(program))
    return {original(slot, names): slot for slot in program.state}


class _Run:
    def __init__(self, program: Program, machine: Machine, seen: Callable[[str, Input | Node, Any], object] | None) -> None:
        self.program = program
        self.machine = machine
        self.seen = seen
        self.slots = machine.load(program.state)

    def call(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Run the root once; return the contents of its user outputs, and of its user inputs afterwards."""
        machine, signature = self.machine, self.program.signature
        rest = iter(leaves)
        values: list[Any] = []
        for spec in signature.inputs:
            match spec:
                case StateInput(slot=slot):
                    values.append(self.slots[slot])
                case UserInput():
                    values.append(machine.given(next(rest)))
                case Token():
                    values.append(None)
        results = self.body(self.program.root, values, "")
        # All results are saved before the first is written: new values may be one another's old contents.
        saved = [machine.save(result) for result in results]
        for spec, result in zip(signature.outputs, saved, strict=True):
            if type(spec) is StateMutation:
                machine.write(self.slots[spec.slot], result)
            elif type(spec) is InputMutation:
                machine.write(values[spec.index], result)
        pairs = zip(signature.outputs, saved, strict=True)
        outputs = tuple(machine.shown(result) for spec, result in pairs if type(spec) in GIVEN)
        users = [value for spec, value in zip(signature.inputs, values, strict=True) if type(spec) is UserInput]
        return outputs, tuple(machine.shown(machine.save(value)) for value in users)

    def body(self, name: str, values: Sequence[Any], path: str) -> Any:
        """Run a graph as the body of the module at a path."""
        graph = self.program.graphs[name]
        known = {formal.name: value for formal, value in zip(graph.inputs, values, strict=True)}
        if self.seen is not None:
            for formal in graph.inputs:
                self.seen(name, formal, known[formal.name])
        for node in graph.nodes:
            known[node.name] = self.node(node, known, path)
            if self.seen is not None:
                self.seen(name, node, known[node.name])
        return self.resolve(graph.output, known, path)

    def node(self, node: Node, known: Mapping[str, Any], path: str) -> Any:
        """Run one node."""
        do = node.do
        if type(do) is Get:
            return self.slots[join(path, do.slot)]
        args = [self.resolve(arg, known, path) for arg in node.args]
        if type(do) is Call:
            return self.body(do.graph, args, join(path, do.instance.path))
        function = self.machine.functions.get(do.name) or do.target
        if function is None:
            raise KeyError(f"{do.name} has no target, and the machine does not know it")
        return function(*args, **{key: self.resolve(value, known, path) for key, value in node.kwargs})

    def resolve(self, arg: Arg, known: Mapping[str, Any], path: str) -> Any:
        """Return an argument with the values in the place of their names."""
        match arg:
            case Ref(name=name):
                return known[name]
            case Body(graph=graph):
                return lambda *values: self.body(graph, values, path)
            case Items():
                return [self.resolve(part, known, path) for part in arg]
            case tuple():
                return tuple(self.resolve(part, known, path) for part in arg)
            case Record(items=items):
                return {self.resolve(key, known, path): self.resolve(value, known, path) for key, value in items}
            case slice():
                return slice(*(self.resolve(part, known, path) for part in (arg.start, arg.stop, arg.step)))
            case _:
                return arg


def meaning_differences(
    given: Meaning, expected: Meaning, *, what: Sequence[str] = tuple(fields_dict(Meaning)), tolerance: Tolerance = EXACT
) -> list[str]:
    """Return how two meanings differ, one sentence for each fact; empty means equal.

    Args:
        given: what a rewritten program means.
        expected: what the original means.
        what: the facts to compare, by default all.
        tolerance: how far floating point numbers may be apart; by default not at all, to the last bit.

    >>> meaning_differences(Meaning(((1,),), (), (), ()), Meaning(((2,),), (), (), ()))
    ['outputs: got ((1,),), expected ((2,),)']
    """
    return [line for fact in what for line in differences(getattr(given, fact), getattr(expected, fact), fact, tolerance)]
