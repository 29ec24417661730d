"""``Signature``: the roles of the inputs and outputs of the root graph, by position.

``signature.inputs[i]`` refers to ``root.inputs[i]`` and ``signature.outputs[i]`` to ``root.output[i]``, so that renaming a
value cannot make the two disagree.  ``lowering/`` checks inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, field, frozen

from .arguments import Arg, Strict
from .expression import Expr


@frozen
class TensorType:
    """A tensor argument: dtype, sizes (integers or expressions) and the device it was exported on.

    >>> TensorType(torch.float32, (2, 3)).shape
    (2, 3)
    """

    dtype: torch.dtype
    shape: tuple[Expr, ...]
    device: str = "cpu"


@frozen
class NumberType:
    """A number argument that may differ from call to call: int, float or bool, with its symbol where it has one.

    >>> NumberType("int").expr is None
    True
    """

    kind: str
    expr: Expr | None = None


@frozen
class LiteralType:
    """An argument that was baked into the program: every call must pass this value.

    >>> LiteralType(1) == LiteralType(1), LiteralType(1) == LiteralType(True)
    (True, False)
    """

    value: Arg = field(eq=Strict)


@frozen
class ObjectType:
    """Anything else (a script object): passed through unchecked, described for messages only.

    >>> ObjectType("ScriptObject").description
    'ScriptObject'
    """

    description: str = ""


@frozen
class RestType:
    """The remaining arguments, as in ``*args`` or ``**kwargs``: a tuple, or a dict.

    >>> RestType(keywords=True) == RestType()
    False
    """

    keywords: bool = False


ArgumentType = TensorType | NumberType | LiteralType | ObjectType | RestType


@frozen
class UserInput:
    """A leaf of the arguments of the caller; ``argument`` is its path in messages (``batch['ids']``).

    >>> UserInput(TensorType(torch.float32, (2, 3)), "x").argument
    'x'
    """

    type: ArgumentType
    argument: str = ""
    default: LiteralType | None = None
    """Its default; None if it must be passed."""
    tangent_of: int | None = None
    """In a joint program: the number of the user output whose gradient the caller passes here; None for any other argument."""
    only: tuple[type, ...] | None = field(default=None, eq=False, repr=False)
    """In a program from outside, the classes that it may have besides data: functions on containers call methods of their
    arguments. None accepts any class. It depends on the author of the program, not on its meaning, and is not compared."""


@frozen
class StateInput:
    """State that the flat program takes as an input.

    >>> StateInput("layers.0.weight").slot
    'layers.0.weight'
    """

    slot: str


@frozen
class Token:
    """An effect token; ``remove_effect_tokens`` turns it into order.

    >>> Token() == Token()
    True
    """


@frozen
class UserOutput:
    """A leaf of the result of the caller.

    >>> Signature(outputs=(UserOutput(),)).outputs
    (UserOutput(),)
    """


@frozen
class StateMutation:
    """The new value of a slot.

    >>> StateMutation("running_mean").slot
    'running_mean'
    """

    slot: str


@frozen
class InputMutation:
    """The new value of the root input number ``index``.

    >>> InputMutation(0).index
    0
    """

    index: int


@frozen
class LossOutput:
    """The loss of a joint forward and backward program: the output that is differentiated.

    >>> LossOutput() == LossOutput()
    True
    """


@frozen
class StateGradient:
    """The gradient of the loss to the parameter in a slot.

    >>> StateGradient("lin.weight").slot
    'lin.weight'
    """

    slot: str


@frozen
class InputGradient:
    """The gradient of the loss to a user input: number ``leaf`` of the leaves that the caller passes.

    >>> InputGradient(0).leaf
    0
    """

    leaf: int


InputSpec = UserInput | StateInput | Token
OutputSpec = (
    UserOutput | StateMutation | InputMutation | Token | LossOutput | StateGradient | InputGradient
)

GIVEN: tuple[type, ...] = (UserOutput, LossOutput, StateGradient, InputGradient)
"""The outputs that the caller receives, in order; others are written to state or inputs, or are tokens."""


@frozen
class Range:
    """The bounds of a size, both included; None is unbounded.

    >>> Range("s77", 2, None).low
    2
    """

    expr: Expr
    low: int | None
    high: int | None


@frozen
class Constraints:
    """Requirements on the user inputs beyond their types: ranges of symbols and guards.

    >>> Constraints((Range("s77", 2, None),)).guards
    ()
    """

    ranges: tuple[Range, ...] = ()
    guards: tuple[Expr, ...] = ()


@frozen
class SunkInput:
    """A state input that was turned into reads: its position, and whether it was used.

    If several inputs are one tensor, the exporter uses one of them, and all reads came from it.

    >>> SunkInput("layers.0.weight").behind
    0
    """

    slot: str
    behind: int = 0
    """The number of user inputs before it."""
    used: bool = True


@frozen
class Signature:
    """The contract of the root graph.

    >>> Signature().inputs
    ()
    """

    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    in_spec: Any = field(default=None, hash=False, repr=False)
    """The pytree of ``(args, kwargs)``; None for flat user inputs."""
    out_spec: Any = field(default=None, hash=False, repr=False)
    """The pytree of the result, in a joint program followed by the gradients; None for one flat tuple."""
    arg_names: tuple[str, ...] = ()
    """The names of the arguments of the original ``forward``, positional ones first."""
    lifted: tuple[SunkInput, ...] = field(default=(), eq=False)
    """The state inputs that ``sink_state`` turned into reads, in order.

    ``lift_state`` restores them.  Like the trail, they record the history of a program, not its meaning: they are neither
    compared nor part of the digest, so a sunk program equals one that was written with reads."""

    @property
    def users(self) -> dict[int, UserInput]:
        """The user inputs, by their number among all inputs.

        >>> list(Signature((StateInput("w"), UserInput(ObjectType(), "x"))).users)
        [1]
        """
        return {number: spec for number, spec in enumerate(self.inputs) if type(spec) is UserInput}

    def with_slots(self, rename: Callable[[str], str]) -> Signature:
        """Return a copy with other names of state.

        >>> Signature((StateInput("w"),)).with_slots(lambda slot: f"a.{slot}").inputs
        (StateInput(slot='a.w'),)
        """

        def named(specs: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(
                [type(spec)(rename(spec.slot)) if hasattr(spec, "slot") else spec for spec in specs]
            )

        lifted = tuple(
            [SunkInput(rename(spec.slot), spec.behind, spec.used) for spec in self.lifted]
        )
        return evolve(self, inputs=named(self.inputs), outputs=named(self.outputs), lifted=lifted)
