"""``evaluate``: compute the meaning of a program by running its nodes in order.

``Contents`` holds the contents of a tensor, so that meanings are compared bit by bit or within a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from attrs import cmp_using, define, field, frozen

from ..ir.arguments import Arg, Body, Ref, thawed
from ..ir.calls.argument_tree import key_paths
from ..ir.calls.parts import original, part_names
from ..ir.effects.resolved import written_slots
from ..ir.graph import Call, Get, Input, Node
from ..ir.names import join
from ..ir.program import Program
from ..ir.signature import GIVEN, InputMutation, StateInput, StateMutation, Token, UserInput
from ..ir.state import SlotKind, is_plain, same_contents
from ..ir.state_changes import as_plain, has_window
from ..ir.tensors import tensors_among
from ..ir.torch_private import (
    current_modes,
    device_of,
    mode_objects,
    pytree,
    restore_modes,
    storage_key,
)

SHOWN = 12
"""The number of elements of a tensor in messages."""

LISTED = 4
"""The number of differing values in messages; the rest is counted."""


@frozen
class Tolerance:
    """A tolerance for numbers: ``|given - expected| <= atol + rtol * |expected|``.

    >>> bool(Tolerance(atol=1e-6)), bool(Tolerance())
    (True, False)
    """

    rtol: float = 0.0
    atol: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol)

    def allows(self, given: torch.Tensor, expected: torch.Tensor) -> bool:
        """Return whether floating point numbers are within the tolerance.

        >>> Tolerance(atol=1e-3).allows(torch.tensor(1.0), torch.tensor(1.0001)), EXACT.allows(torch.ones(1), torch.ones(1))
        (True, False)
        """
        if not self or not (expected.is_complex() or expected.is_floating_point()):
            return False
        wide = torch.complex128 if expected.is_complex() else torch.float64
        return torch.allclose(
            given.to(wide), expected.to(wide), rtol=self.rtol, atol=self.atol, equal_nan=True
        )


EXACT = Tolerance()

USUAL = Tolerance(rtol=1e-5, atol=1e-6)
"""The usual tolerance in single precision."""


def _are_alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    # A parameter is a tensor like any other.
    return (type(left) is type(right) or (is_plain(left) and is_plain(right))) and same_contents(
        left, right
    )


@frozen(repr=False)
class Contents:
    """The contents of a tensor; equal to others with the same bits, parameters or not.

    >>> Contents(torch.tensor([[1.0, -0.5]]))
    float32[1, 2] (1.0, -0.5)
    >>> zero = torch.zeros(1)
    >>> Contents(zero) == Contents(-zero), Contents(zero) == Contents(torch.nn.Parameter(zero))
    (False, True)
    """

    tensor: torch.Tensor = field(eq=cmp_using(eq=_are_alike, require_same_type=False))
    """Nobody else may write to it."""

    @property
    def kind(self) -> str:
        """The dtype, the shape and the device as text."""
        place = "" if device_of(self.tensor).type == "cpu" else f" on {device_of(self.tensor)}"
        return f"{str(self.tensor.dtype).removeprefix('torch.')}{list(self.tensor.shape)}{place}"

    def __repr__(self) -> str:
        if not has_window(self.tensor):
            return f"{self.kind} in a {type(self.tensor).__name__}"
        numbers = as_plain(self.tensor).reshape(-1)
        shown = [repr(value.item()) for value in numbers[:SHOWN]]
        more = [f"and {numbers.numel() - SHOWN:,} more"] if numbers.numel() > SHOWN else []
        return f"{self.kind} ({', '.join([*shown, *more])})"


def tensor_difference(given: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> str:
    """Return how the contents of two tensors differ beyond a tolerance, in words; an empty text if they do not.

    Args:
        given: the result.
        expected: a tensor of the same dtype, shape and device.
        tolerance: for floating numbers; others have to be equal.

    >>> tensor_difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), EXACT)
    '1 of 2 numbers differ, by up to 0.5'
    >>> tensor_difference(torch.tensor(1.0), torch.tensor(1.000001), EXACT)
    '1 of 1 numbers differ, by up to 9.5e-07 (allowed by rtol=1e-05, atol=1e-06)'
    >>> nan, zero = torch.tensor(float("nan")), torch.tensor(0.0)
    >>> tensor_difference(nan, -nan, EXACT), tensor_difference(zero, -zero, EXACT)
    ('', 'the numbers are equal, but not their bits (a signed zero)')
    """
    if not (has_window(given) and has_window(expected)):
        same = type(given) is type(expected) and same_contents(given, expected)
        return (
            ""
            if same
            else f"the contents of a {type(given).__name__} and a {type(expected).__name__} differ"
        )
    given, expected = as_plain(given), as_plain(expected)
    if same_contents(given, expected) or tolerance.allows(given, expected):
        return ""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    left, right = given.to(wide), expected.to(wide)
    differs = (left != right) & ~(left.isnan() & right.isnan())
    if not differs.any():
        # Torch's conversions choose the bits of a NaN by its place in a vector.
        equal = expected.is_floating_point() and same_contents(
            left.nan_to_num(), right.nan_to_num()
        )
        return "" if equal else "the numbers are equal, but not their bits (a signed zero)"
    usual = not tolerance and USUAL.allows(given, expected)
    hint = f" (allowed by rtol={USUAL.rtol:g}, atol={USUAL.atol:g})" if usual else ""
    most = (left - right).abs()[differs].max().item()
    return f"{int(differs.sum())} of {given.numel()} numbers differ, by up to {most:.2g}{hint}"


def differences(given: Any, expected: Any, where: str, tolerance: Tolerance = EXACT) -> list[str]:
    """Return the differences of two pytrees of observations beyond a tolerance, one sentence for each.

    Args:
        given: a pytree of tensors, contents and other values.
        expected: the same.
        where: the begin of each sentence.
        tolerance: for floating numbers; everything else has to be equal.

    >>> one, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])
    >>> differences((one,), (other,), "outputs")
    ['outputs[0]: got float32[2] (1.0, 2.0), expected float32[2] (1.0, 2.5): 1 of 2 numbers differ, by up to 0.5']
    >>> differences((one,), (other,), "outputs", Tolerance(rtol=0.3)), differences(1, 2, "calls")
    ([], ['calls: got 1, expected 2'])
    """
    mine, spec = pytree.tree_flatten(given)
    theirs, other = pytree.tree_flatten(expected)
    if spec != other:
        return [f"{where}: the structure differs: got {given}, expected {expected}"]
    leaves = zip(key_paths(spec, given), mine, theirs, strict=True)
    found = [(path, _leaf_difference(left, right, tolerance)) for path, left, right in leaves]
    return [
        f"{where}{pytree.keystr(path)}: {difference}" for path, difference in found if difference
    ]


def _leaf_difference(given: Any, expected: Any, tolerance: Tolerance) -> str:
    given, expected = (
        Contents(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in (given, expected)
    )
    if type(given) is type(expected) and (given is expected or bool(given == expected)):
        return ""
    how = ""
    if type(given) is type(expected) is Contents and given.kind == expected.kind:
        how = tensor_difference(given.tensor, expected.tensor, tolerance)
        if not how:
            return ""
    return f"got {given!r}, expected {expected!r}{how and f': {how}'}"


@frozen
class Meaning:
    """The observable results of a program over several calls.

    >>> Meaning((), (), (), ()) == Meaning((), (), (), ())
    True
    """

    outputs: tuple[Any, ...]
    """For each call, the contents of the user outputs."""
    inputs: tuple[Any, ...]
    """For each call, the contents of the user inputs afterwards."""
    state: tuple[tuple[str, Any], ...]
    """The contents of each slot after the last call, without unchanged constants."""
    effects: tuple[tuple[str, tuple[Any, ...]], ...]
    """The effects of each kind, in order."""


FACTS = ("outputs", "inputs", "state", "effects")
"""The facts by which two meanings are compared."""


def evaluate(
    program: Program,
    calls: Sequence[Sequence[Any]],
    machine: Any,
    *,
    seen: Callable[[str, Input | Node, Any], object] = lambda *_: None,
    leaves_alone: frozenset[str] | None = None,
) -> Meaning:
    """Run a program and return its meaning.

    Args:
        program: a valid program at any stage.
        calls: the leaves of the user inputs, for each call.
        machine: a new ``TensorMachine`` or ``ToyMachine``: it runs operators and copies values.
        seen: called with the graph, the input or node, and the value of each.
        leaves_alone: if not None, the caller writes into the results of each call before the next, and so into returned
            state, except for the state with these names and its aliases.

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
    run, names = _Run(program, machine, seen, leaves_alone), _state_names(program)
    machine.load(program.state)

    def contents(kinds: Container[SlotKind]) -> Mapping[str, Any]:
        chosen = {name: slot for name, slot in names.items() if program.state[slot].kind in kinds}
        return {
            name: machine.shown(machine.save(machine.slots[slot])) for name, slot in chosen.items()
        }

    before = contents({SlotKind.CONSTANT}).items()
    made = [run.call(leaves) for leaves in calls]
    # Unchanged constants show in the results: equal programs may have other constants.
    state = [pair for pair in contents(SlotKind).items() if pair not in before]
    effects = [(kind, tuple(happened)) for kind, happened in sorted(machine.effects.items())]
    return Meaning(
        tuple([one for one, _ in made]),
        tuple([one for _, one in made]),
        tuple(state),
        tuple(effects),
    )


def _state_names(program: Program) -> dict[str, str]:
    # Use the names from before a split: the place of a tensor is not part of the meaning.
    names = part_names(program)
    return {original(slot, names): slot for slot in program.state}


def written_state(program: Program) -> frozenset[str]:
    """Return the names of the state that a call may write.

    A result may be such state or a copy of it, depending on the form of the mutation, so callers that write into results
    skip it.

    >>> from purefx.ir import Graph
    >>> written_state(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    slots = written_slots(program)
    return frozenset([name for name, slot in _state_names(program).items() if slot in slots])


@define
class _Run:
    program: Program
    machine: Any
    seen: Callable[[str, Input | Node, Any], object]
    leaves_alone: frozenset[str] | None

    def call(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Run the root once; return the contents of its user outputs, and of its user inputs afterwards."""
        machine, signature = self.machine, self.program.signature
        rest = iter(leaves)
        sources = {
            StateInput: lambda spec: machine.slots[spec.slot],
            UserInput: lambda _: machine.given(next(rest)),
            Token: lambda _: None,
        }
        values = [sources[type(spec)](spec) for spec in signature.inputs]
        results = self.body(self.program.root, values, "")
        # Save all results before the first write: a new value may be the old contents of another.
        pairs = list(zip(signature.outputs, map(machine.save, results), strict=True))
        for spec, result in pairs:
            if type(spec) is StateMutation:
                machine.write(machine.slots[spec.slot], result)
            elif type(spec) is InputMutation:
                machine.write(values[spec.index], result)
        outputs = tuple(machine.shown(result) for spec, result in pairs if type(spec) in GIVEN)
        users = [
            value
            for spec, value in zip(signature.inputs, values, strict=True)
            if type(spec) is UserInput
        ]
        inputs = tuple(machine.shown(machine.save(value)) for value in users)
        if self.leaves_alone is not None:
            self._write_results(results, self.leaves_alone)
        return outputs, inputs

    def _write_results(self, results: Sequence[Any], leaves_alone: frozenset[str]) -> None:
        values = [
            self.machine.slots[slot]
            for name, slot in _state_names(self.program).items()
            if name in leaves_alone
        ]
        alone = set(map(storage_key, tensors_among(values)))
        for spec, result in zip(self.program.signature.outputs, results, strict=True):
            if (
                type(spec) in GIVEN
                and isinstance(result, torch.Tensor)
                and storage_key(result) not in alone
            ):
                with suppress(RuntimeError):  # torch does not write to elements that share memory
                    result.detach().copy_(result.detach() + 1)

    def body(self, name: str, values: Sequence[Any], path: str) -> Any:
        """Run a graph as the body of the module at a path."""
        graph = self.program.graphs[name]
        known = {formal.name: value for formal, value in zip(graph.inputs, values, strict=True)}
        for formal in graph.inputs:
            self.seen(name, formal, known[formal.name])

        def value(leaf: Arg) -> Any:
            if type(leaf) is Ref:
                return known[leaf.name]
            return (
                (lambda *values: self.body(leaf.graph, values, path))
                if type(leaf) is Body
                else leaf
            )

        before = current_modes()
        try:
            for node in graph.nodes:
                known[node.name] = self.node(node, value, path)
                self.seen(name, node, known[node.name])
                for closed in node.refs() if node.declared.scope < 0 else ():
                    known.pop(closed, None)
        except BaseException:
            restore_modes(
                before, mode_objects([known.get(node.name) for node in reversed(graph.nodes)])
            )
            raise
        return thawed(graph.output, value)

    def node(self, node: Node, value: Callable[[Arg], Any], path: str) -> Any:
        """Run one node."""
        do = node.do
        if type(do) is Get:
            return self.machine.slots[join(path, do.slot)]
        args = thawed(node.args, value)
        if type(do) is Call:
            return self.body(do.graph, args, join(path, do.instance.path))
        function = self.machine.functions.get(do.name) or do.target
        if function is None:
            raise KeyError(f"{do.name} has no target and is unknown to the machine")
        return function(*args, **{key: thawed(arg, value) for key, arg in node.kwargs})


def meaning_differences(
    given: Meaning, expected: Meaning, *, what: Sequence[str] = FACTS, tolerance: Tolerance = EXACT
) -> list[str]:
    """Return the differences of two meanings, one sentence for each fact.

    Args:
        given: the meaning of a rewritten program.
        expected: the meaning of the original.
        what: the facts to compare, by default all.
        tolerance: for floating point numbers; by default they are compared bit by bit.

    >>> meaning_differences(Meaning(((1,),), (), (), ()), Meaning(((2,),), (), (), ()))
    ['outputs: got ((1,),), expected ((2,),)']
    """
    found: list[str] = []
    for fact in what:
        mine, theirs = getattr(given, fact), getattr(expected, fact)
        if mine != theirs:
            has_contents = any(type(leaf) is Contents for leaf in pytree.tree_leaves(mine))
            several = (
                differences(mine, theirs, fact, tolerance)
                if has_contents
                else [f"{fact}: got {mine}, expected {theirs}"]
            )
            found += several[:LISTED]
            found += (
                [f"{fact}: {len(several) - LISTED} more values differ"]
                if len(several) > LISTED
                else []
            )
    return found
