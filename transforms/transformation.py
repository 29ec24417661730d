"""``Transformation``: a pure function ``Program -> Program`` with a name, facts and laws; and ``Fuel``.

Fuel limits the number of rewrites of one application, so that ``bisect`` can find the first bad one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from inspect import Parameter, signature
from typing import Any

from attrs import evolve, field, frozen

from ..ir.errors import ArgumentError, FuelError, PipelineError, PurefxError
from ..ir.forks import cached_property, collector_paused
from ..ir.graph import Call, Get
from ..ir.names import did_you_mean
from ..ir.program import Program, Step
from ..ir.signature import InputMutation, StateInput, StateMutation, Token
from ..ir.state import reads_value
from ..ir.validation import a_program, a_result, kind_of
from ..ir.verify import check, trust

MISSING: Any = object()
"""The default for a program that was not passed."""


class Fuel:
    """A budget of rewrites for one application of a transformation, with a log of the rewrites done.

    Args:
        limit: the maximum number of rewrites; None for all.

    Raises:
        FuelError: the limit is not an int of at least 0.

    >>> fuel = Fuel(2)
    >>> fuel.burn("fold", "x"), fuel.burn("fold", "y", graph="mlp"), fuel.burn("fold", "z")
    (True, True, False)
    >>> fuel.labels, fuel.refused
    (('fold x', "fold y in 'mlp'"), True)
    """

    __slots__ = ("_burnt", "limit", "refused")

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise FuelError(
                f"fuel is a number of rewrites, an int of at least 0, or None for no limit, not {limit!r}"
            )
        self.limit = limit
        self.refused = False
        """Whether a rewrite was not allowed: the transformation is incomplete."""
        self._burnt: list[tuple[object, ...]] = []

    def burn(self, *label: object, graph: str = "") -> bool:
        """Count one more rewrite, and return whether it is allowed.

        Args:
            label: the description of the rewrite; values become strings only if the label is read, so pass them as they are.
            graph: the id of the graph of the rewrite; it is added to the label for bodies.
        """
        if self.limit is None:
            return True
        if len(self._burnt) >= self.limit:
            self.refused = True
            return False
        self._burnt.append((*label, "in", repr(graph)) if graph else label)
        return True

    @property
    def limited(self) -> bool:
        """Whether rewrites are counted."""
        return self.limit is not None

    @property
    def burnt(self) -> int:
        """The number of rewrites done."""
        return len(self._burnt)

    @property
    def labels(self) -> tuple[str, ...]:
        """The rewrites, in order."""
        return tuple([" ".join(map(str, label)) for label in self._burnt])


UNLIMITED = Fuel()
"""Nothing is counted without a limit, so one value suffices."""


def without_fuel(name: str) -> FuelError:
    """Return the error for a transformation that cannot be stopped.

    >>> str(without_fuel("soften")).splitlines()[0]
    'soften takes no fuel, so it cannot be stopped after some rewrites.'
    """
    return FuelError(
        f"{name} takes no fuel, so it cannot be stopped after some rewrites.\n"
        "Add a keyword `fuel: Fuel` to its function, make it a transformation with @transformation(), and call\n"
        '`fuel.burn("description")` before each rewrite; if it returns False, skip the rewrite.'
    )


@frozen(slots=False)
class Transformation:
    """A named pure function from programs to programs.

    Called with a program, it returns the transformed program; the same object if nothing changes.

    >>> import purefx as px
    >>> px.deduplicate.name, px.deduplicate.inverse
    ('deduplicate', 'expand')
    """

    name: str
    apply: Callable[..., Program] = field(repr=False)
    requires: frozenset[str] = frozenset()
    """Facts that must hold for its argument."""
    establishes: frozenset[str] = frozenset()
    """Facts that hold for its result."""
    forgets: frozenset[str] = frozenset()
    """Facts that may no longer hold."""
    inverse: str | None = None
    laws: tuple[str, ...] = ()
    """Its laws beyond those of every transformation (``purefx.laws.law.GENERIC``), one sentence each."""
    proven: bool = False
    """Its laws are part of purefx's own tests: its result on a valid program is not verified again."""
    options: tuple[tuple[str, Any], ...] = ()

    def __attrs_post_init__(self) -> None:
        # help(), doctest and editors read these from a function; a frozen class has to set them in its dict.
        attributes = {
            name: getattr(self.apply, name, None)
            for name in ("__doc__", "__module__", "__name__", "__qualname__")
        }
        self.__dict__.update(attributes, __wrapped__=self.apply)

    def __call__(
        self, program: Program = MISSING, *given: Any, fuel: int | None = None, **options: Any
    ) -> Program:
        """Return the transformed program.

        Args:
            program: any valid program; it is not changed.
            given: options by position.
            fuel: the maximum number of rewrites; all by default.  If it does not suffice, the result is not marked with the facts
                that the transformation establishes.
            options: override bound options.

        Raises:
            UnsupportedProgram: the transformation cannot handle the program faithfully.
            PipelineError: a fact that it requires does not hold.
            FuelError: it takes no fuel, or ``fuel`` is not a number of rewrites.
            ArgumentError: ``program`` is not a Program, or a keyword-only option is passed by position.
            TypeError: an option is unknown (an ArgumentError), or has a value that the function does not accept.
        """
        if program is MISSING:
            step = (
                f"{self.name}.bind({', '.join([f'{name}=...' for name in options])})"
                if options
                else f"{self.name}, not called"
            )
            raise ArgumentError(
                f"{self.name} takes a purefx Program, but was passed none; as a step of px.transform write {step}"
            )
        chosen = {**dict(self.options), **(self._by_position(given, options) if given else options)}
        bound = chosen.pop("fuel", None)
        limit = bound if fuel is None else fuel
        return self.spend(program, UNLIMITED if limit is None else Fuel(limit), **chosen)

    def _applied(self, program: Program, options: Mapping[str, Any]) -> Program:
        try:
            return self.apply(program, **options)
        except (LookupError, ValueError, RecursionError) as error:
            if not isinstance(error, PurefxError):
                check(
                    program
                )  # an invalid program, or one that nests too deep, is reported as such
            raise
        except TypeError:
            self._known(options)
            raise

    def spend(self, program: Program, fuel: Fuel, **options: Any) -> Program:
        """Transform the program as far as the fuel allows, and record the rewrites in it.

        Args:
            program: any valid program; it is not changed.
            fuel: the budget; several transformations may share it.
            options: all options, including bound ones.

        Raises:
            FuelError: it takes no fuel.

        >>> import purefx as px
        >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
        >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
        >>> fuel = px.Fuel(1)
        >>> len(px.outline.spend(program, fuel).graphs), fuel.labels
        (2, ('cut out a',))
        """
        self.check_facts(a_program(program, self.name, **options), asked_by=self.name)
        if fuel.limited and not self.takes_fuel:
            raise without_fuel(self.name)
        before = fuel.burnt
        with collector_paused() if self.proven else nullcontext():
            result = self._applied(
                program, {**options, "fuel": fuel} if self.takes_fuel else options
            )
        if a_result(result, self.name) is program:
            return program
        recorded = {**options, "fuel": fuel.burnt - before} if fuel.limited else options
        return self.with_step(program, result, tuple(recorded.items()), whole=not fuel.refused)

    def check_facts(self, program: Program, *, asked_by: str) -> None:
        """Raise ``PipelineError`` if a fact that it requires does not hold.

        Args:
            program: the program.
            asked_by: the function that the user called, for the message.

        >>> import purefx as px
        >>> px.outline.check_facts(px.Program.of({"": px.Graph((), (), ())}), asked_by="outline")
        """
        lacking = self.lacks(program.facts) and self.lacks(program.facts | observed(program))
        if lacking:
            raise PipelineError(
                f"{asked_by} requires a program that is {lacking!r}, but this one is not; {ADVICE[lacking]}"
            )

    def with_step(
        self,
        program: Program,
        result: Program,
        options: tuple[tuple[str, Any], ...] = (),
        *,
        whole: bool = True,
        before: tuple[Program, Callable[[Program], Program]] | None = None,
    ) -> Program:
        """Return the result of the function with updated facts and one more step in the trail.

        Args:
            program: the argument of the function.
            result: the result of the function, another program.
            options: the options of the run.
            whole: whether the fuel sufficed.
            before: another step that ran as one with this one, with its argument; its result is the argument of this one.

        >>> import purefx as px
        >>> program = px.Program.of({"": px.Graph((), (), ())})
        >>> [str(step) for step in px.outline.with_step(program, program.evolve()).trail]
        ['outline()']
        """
        # The function may have called other transformations, so start from the facts of its result.
        made = result.evolve(
            facts=(result.facts - self.forgets) | (self.establishes if whole else frozenset()),
            trail=(*program.trail, Step(self.name, options, *(before or (program, None)))),
        )
        return trust(made) if self.proven and program.checked else made

    @cached_property
    def _parameters(self) -> Mapping[str, Parameter]:
        # The options of the function, by name.
        return dict(list(signature(self.apply).parameters.items())[1:])

    def _by_position(self, given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        names = [
            name for name, one in self._parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        if len(given) > len(names):
            by_position = " and ".join(["a program", *names])
            raise ArgumentError(
                f"{self.name} takes {by_position} by position, and other options by keyword"
            )
        twice = [name for name in names[: len(given)] if name in options]
        if twice:
            raise ArgumentError(f"{self.name} was passed {twice[0]!r} by position and by keyword")
        return {**dict(zip(names, given, strict=False)), **options}

    def _known(self, options: Iterable[str]) -> None:
        # Raise if the function has no such option.
        known = [name for name, one in self._parameters.items() if one.kind is not one.VAR_KEYWORD]
        unknown = [name for name in options if name not in known]
        if unknown and len(known) == len(self._parameters):
            there = ", ".join([f"{one}=" for one in known]) or "none"
            raise ArgumentError(
                f"{self.name} has no option {unknown[0]!a}{did_you_mean(unknown[0], known)}; it has {there}"
            )

    @property
    def takes_fuel(self) -> bool:
        """Whether it can be stopped after some rewrites: whether its function has a keyword ``fuel``."""
        return "fuel" in self._parameters

    def lacks(self, facts: frozenset[str]) -> str | None:
        """Return a required fact that does not hold; None if it can run, or has nothing to do."""
        if self.requires <= facts or (self.establishes and self.establishes <= facts):
            return None
        return min(self.requires - facts)

    def bind(self, **options: Any) -> Transformation:
        """Return the transformation with options fixed, including ``fuel`` if it takes fuel.

        Raises:
            ArgumentError: it has no such option; the message lists its options.
            FuelError: it takes no fuel.
        """
        if options.get("fuel") is not None and not self.takes_fuel:
            raise without_fuel(self.name)
        self._known([name for name in options if name != "fuel"])
        return evolve(self, options=tuple({**dict(self.options), **options}.items()))


def transformation(
    function: None = None,
    /,
    *,
    requires: Iterable[str] = (),
    establishes: Iterable[str] = (),
    forgets: Iterable[str] = (),
    inverse: str | None = None,
    laws: Iterable[str] = (),
    proven: bool = False,
) -> Callable[[Callable[..., Program]], Transformation]:
    """Turn a function ``program, *, options -> program`` into a transformation of the same name.

    The facts of the result are those of the returned program, without ``forgets`` and with ``establishes``; so a function that
    calls other transformations need not repeat what they forget.

    A function with a keyword ``fuel`` gets a ``Fuel``.  If it calls ``fuel.burn("description")`` before each rewrite and
    skips those that are not allowed, it can be stopped after any number of rewrites, and ``bisect`` can search them.

    Args:
        function: not accepted; write ``@transformation()``.
        requires: facts that must hold for the argument.
        establishes: facts that hold for the result.
        forgets: facts that may no longer hold.
        inverse: the name of the inverse transformation.
        laws: its laws beyond the generic ones, as sentences.
        proven: whether its result on a valid program is trusted; leave it False for your own.

    >>> @transformation(laws=["it does nothing"])
    ... def idle(program):
    ...     return program
    >>> idle.name
    'idle'
    """
    if function is not None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ArgumentError(
            f"transformation makes a decorator, so call it: @transformation(); it was passed {kind_of(function)}"
        )

    def make(apply: Callable[..., Program]) -> Transformation:
        return Transformation(
            apply.__name__,
            apply,
            requires=frozenset(requires),
            establishes=frozenset(establishes),
            forgets=frozenset(forgets),
            inverse=inverse,
            laws=tuple(laws),
            proven=proven,
        )

    return make


ADVICE = defaultdict(
    lambda: "first run a transformation that establishes it",
    {
        "flat": "run it before outline, or after inline",
        "state as inputs": "run it before sink_state, or after lift_state",
        "state sunk": "run sink_state, or transform, first",
        "token free": "run remove_effect_tokens, or transform, first",
        "split": "run split_by_tags first",
    },
)


def observed(program: Program) -> frozenset[str]:
    """Return the facts that can be observed, whatever the program claims.

    >>> from purefx.ir import Graph, Program
    >>> sorted(observed(Program.of({"": Graph((), (), ())})))
    ['flat', 'mutations in place', 'state as inputs', 'state sunk', 'token free']
    """
    signature = program.signature
    state = program.state
    done = [node.do for node in program.main.nodes]
    present = {type(do) for do in done if type(do) is not Get or reads_value(state, do)}
    present |= {type(spec) for spec in (*signature.inputs, *signature.outputs)}
    if signature.lifted:
        present.add(
            Get
        )  # sunk state that is unused, or read by bodies only, is not an input either
    return frozenset(fact for fact, kinds in ABSENT.items() if present.isdisjoint(kinds))


ABSENT: dict[str, tuple[type, ...]] = {
    "flat": (Call,),
    "state as inputs": (Get,),
    "state sunk": (StateInput,),
    "mutations in place": (StateMutation, InputMutation),
    "token free": (Token,),
}
"""The operations and specs that a program lacks if a fact holds."""
