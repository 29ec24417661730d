"""``Match``: where a rule matched, what a condition or a replacement can ask there, and what it can make.

A body that several modules share is rewritten once where they all agree.  A rule that asks which of them it is (``m.path``,
``m.tensor``, new state) is asked for each; where the answers differ, the body gets one version for each (``application.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from attrs import Factory, define, evolve, field, frozen

from ...ir.arguments import Arg, Items, Ref
from ...ir.calls.call_graph import all_instances, bodies_of
from ...ir.errors import NamingError, PurefxError, RuleError
from ...ir.graph import Call, Get, Node, Op, Stack, place_of
from ...ir.inference import CallValues, FakeValues, values_of
from ...ir.names import did_you_mean, join, nested
from ...ir.program import Program
from ...ir.signature import StateInput, StateMutation
from ...ir.state import SlotKind
from ...ir.torch_private import FAKE_REFUSALS, FakeTensor, Recorder, unguarded
from .matching import Found, Search, holds
from .new_state import Addition, NewState, parameter_of
from .operators import arranged
from .pattern import Pattern, Through
from .trace import KEPT, Operands, Template, Unknown

__all__ = ["Match", "Places", "Scope"]

COPYING = frozenset([f"aten.{name}.default" for name in ("lift_fresh_copy", "lift_fresh", "detach_", "detach", "alias", "clone")])
"""Operators that the exporter puts behind a tensor that was made in the program, and others that keep its contents."""


class Places:
    """The instances of the graphs of a program, worked out on demand."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def _all(self) -> Mapping[str, tuple[str, ...]]:
        return all_instances(self.program)

    def of(self, graph: str) -> tuple[str, ...]:
        """Return the modules that a graph is the body of."""
        return self._all[graph]

    @cached_property
    def decided(self) -> frozenset[str]:
        """The graphs in which more decides about values than the operators and their operands.

        Operators run them, or what they call them from, or regions are opened in them.
        """
        program, found = self.program, set[str]()
        for name in reversed(program.bottom_up):
            graph = program.graphs[name]
            found.update([body for node in graph.callers if name in found or type(node.do) is Op for body in bodies_of(node)])
            if any(type(do) is Op and do.effects.scope for do in graph.distinct):
                found.add(name)
        return frozenset(found)


@frozen(eq=False)
class Scope:
    """One graph while it is rewritten."""

    program: Program
    graph: str
    places: Callable[[], tuple[str, ...]] = field(repr=False)
    known: Mapping[str, Any] = field(repr=False)
    """The fake values of the graph, by name."""
    node_of: Callable[[str], Node | None] = field(repr=False)
    """Returns the current node of a value; None for an input."""
    state: NewState = field(repr=False)
    calls: CallValues = field(repr=False)
    """The fake values of each call, where those that share the graph have others."""
    is_changed: Callable[[str], bool] = field(repr=False)
    """Says whether something writes the memory of a value."""
    values: FakeValues = field(repr=False)
    _at: dict[int, Mapping[str, Any]] = field(factory=dict, repr=False, init=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules that the graph is the body of, from the root."""
        return self.places()

    @property
    def environment(self) -> Any:
        """The constraints on symbolic sizes; None where all sizes are numbers."""
        return self.values.mode.shape_env

    def recorded(self, function: Callable[[Any], Any], value: torch.Tensor) -> list[tuple[Any, Any, Any]]:
        """Return the operators that a function calls on a value, with their arguments."""
        recorder = Recorder()
        with recorder.recording():
            with recorder.paused():
                given = value.detach()
            function(recorder.operand(given))
        calls = recorder.calls()
        return [
            (node.target, [_plain(arg) for arg in node.args], dict(node.kwargs))
            for node in calls
            if isinstance(node.meta.get("val"), torch.Tensor)
        ]

    def values_at(self, instance: int) -> Mapping[str, Any]:
        """Return the fake values at one instance, by name; those that differ between its calls are left out."""
        if instance not in self._at:
            several = [values_of(graph) for graph in self.calls.at(self.graph, self.paths[instance])]
            self._at[instance] = several[0] if len(several) == 1 else {}
        return self._at[instance]


@define(eq=False)
class Notes:
    """What was asked and made at one match, for one instance."""

    asked: bool = False
    """Whether the instance was asked for."""
    added: dict[str, Addition] = Factory(dict)
    """New state, by the name that the body writes."""
    dropped: dict[str, None] = Factory(dict)
    reads: dict[str, None] = Factory(dict)
    """The reads of dropped state, and the nodes that compute constants and numbers of the pattern."""
    generators: list[torch.Tensor] = Factory(list)
    """The states of torch's generators when the replacement was called, or brought new state the last time."""
    looked: bool = False
    """Whether a replacement asked more than what its operands are: it may write something else elsewhere."""


@frozen(eq=False)
class Match:
    """Where a rule matched: what its variables are there, and the nodes that its operators are.

    Conditions on sizes hold where the program's own constraints prove them.

    >>> import torch, purefx as px
    >>> square = px.rule(where=lambda m: m.shape("x") == (2, 2))(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> programs = [px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(size),))) for size in ((2, 2), (3,))]
    >>> [square(program) is program for program in programs]
    [False, True]
    """

    scope: Scope = field(repr=False)
    stack: Stack = field(repr=False)
    """The module calls around the match, below the module of the body."""
    instance: int = field(repr=False)
    found: Found
    variables: Sequence[str] = ()
    """The variables of the rule: one that is in an alternative that did not match is None."""
    notes: Notes = field(factory=Notes, repr=False, init=False)
    operands: Operands = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "operands", Operands(self.scope.values))

    # -- where it is ------------------------------------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The program before the rewrite."""
        return self.scope.program

    @property
    def graph(self) -> str:
        """The id of the graph; a body that several modules share is rewritten once."""
        return self.scope.graph

    @property
    def path(self) -> str:
        """The module that is called here, from the root; each of them in turn where they share a body."""
        self.notes.asked = self.notes.looked = True
        return self.paths[self.instance]

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules that share what is written here, from the root."""
        self.notes.looked = True
        owner = self._owner
        return tuple([join(path, owner) for path in self.scope.paths]) if owner else self.scope.paths

    @property
    def _owner(self) -> str:
        return self.stack[-1].path if self.stack else ""

    @property
    def root(self) -> Node:
        """The node whose value is replaced; the last one in the graph where there are several."""
        self.notes.looked = True
        return self.found.nodes[0]

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes whose values are replaced, in the order of the pattern."""
        return self.found.roots

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The matched nodes, the root first, each once."""
        self.notes.looked = True
        return self.found.distinct

    @property
    def place(self) -> str:
        """The place of the root, for messages."""
        return place_of(self.found.nodes[0])

    # -- what is there ----------------------------------------------------------------------------------------------------------

    def __getitem__(self, variable: str) -> Arg:
        """Return what a variable matched: the use of a value, or a number, a type, a list as it is.

        It is None where the variable is in a term of ``any_of`` that did not match.

        Raises:
            NamingError: the rule has no such variable.
        """
        self.notes.looked = True
        values = self.found.values
        if variable not in values and variable not in self.variables:
            raise NamingError(f"the rule has no variable {variable!r}{did_you_mean(variable, self.variables)}")
        return values.get(variable)

    def given(self, arg: Arg) -> Any:
        """Return an argument as an operand of a replacement; a value of the program needs a fake value."""
        if type(arg) is Ref:
            value = self._val(arg)
            if value is None:
                raise Unknown(f"{self.place}: the value of {arg.name} is not known; apply px.infer before the rule")
            return self.operands.of(arg, value)
        if isinstance(arg, tuple):
            given = [self.given(one) for one in arg]
            return given if type(arg) is Items else type(arg)(given)
        return evolve(arg, value=self.given) if isinstance(arg, Through) else arg

    def arg(self, what: Any) -> Any:
        """Return the argument behind a variable, a value, or the name of a value.

        Raises:
            NamingError: nothing has that name.
        """
        self.notes.looked = True
        if type(what) is not str:
            source = self.operands.source_of(what)
            return what if source is None else source
        if what in self.found.values or what in self.variables:
            return self.found.values.get(what)
        graph = self.program.graphs[self.graph]
        if self.scope.node_of(what) is None and what not in {formal.name for formal in graph.inputs}:
            where = f"the body {self.graph!r}" if self.graph else "the program"
            near = did_you_mean(what, [*self.variables, *[node.name for node in graph.nodes]])
            raise NamingError(f"the rule has no variable {what!r}, and {where} no value{near}")
        return Ref(what)

    def val(self, what: Any) -> Any:
        """Return the fake value of a value, or of the name of one; None if unknown; anything else is returned as it is."""
        arg = self.arg(what)
        value = self._val(arg)
        # In a replacement its sizes are computed with.
        return self.given(arg) if type(arg) is Ref and value is not None and self.operands.are_recorded else value

    def _val(self, arg: Any) -> Any:
        if type(arg) is not Ref:
            return arg
        known = self.scope.known.get(arg.name)
        if known is None and len(self.scope.paths) > 1:  # it may be known of each instance: they differ there
            self.notes.asked = True
            known = self.scope.values_at(self.instance).get(arg.name)
        return known

    def shape(self, what: Any) -> tuple[Any, ...] | None:
        """Return the sizes of a tensor; None if it is unknown, or is not a tensor."""
        value = self.val(what)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else None

    def dtype(self, what: Any) -> torch.dtype | None:
        """Return the data type of a tensor; None if it is unknown, or is not a tensor."""
        value = self.val(what)
        return value.dtype if isinstance(value, torch.Tensor) else None

    def slot(self, what: Any) -> str | None:
        """Return the name of the state that a value reads, from the root; None if it reads none."""
        slot = self._slot(what)
        if slot is None:
            return None
        self.notes.asked = True
        return join(self.scope.paths[self.instance], slot)

    def _slot(self, what: Any) -> str | None:
        # As the body names it.
        arg = self.arg(what)
        node = self.scope.node_of(arg.name) if type(arg) is Ref else None
        if node is not None:
            return node.do.slot if type(node.do) is Get else None
        if type(arg) is Ref and self.graph == self.program.root:
            spec = next((spec for formal, spec in self.program.inputs if formal.name == arg.name), None)
            return spec.slot if type(spec) is StateInput else None
        return None

    def tensor(self, what: Any) -> Any:
        """Return the tensor that a value reads from the state; None if it reads none, or the program writes to it."""
        slot = self.slot(what)
        return None if slot is None else self.scope.state.tensor(slot)

    def constant(self, what: Any, *, buffers: bool = False, parameters: bool = False) -> Any:
        """Return the tensor that a value always is, a copy of state included; None if there is none, or something writes it.

        The nodes that copy it go with the match, where nothing else uses them.

        Args:
            what: a value, or its name.
            buffers: whether persistent buffers are constants too, for programs into which no others are loaded.
            parameters: whether parameters are, for programs that are not trained either.
        """
        arg, passed = self.arg(what), dict[str, None]()
        while type(arg) is Ref:
            node = self.scope.node_of(arg.name)
            if node is not None:
                passed[arg.name] = None
            if self.scope.is_changed(arg.name):
                return None
            if node is None or type(node.do) is not Op or node.do.name not in COPYING:
                break
            arg = node.args[0]
        self.notes.reads.update(passed)
        slot = self.slot(arg)
        return None if slot is None else self.scope.state.constant(slot, buffers=buffers, parameters=parameters)

    @property
    def value(self) -> Any:
        """The value of the root as it was, for a rule that makes something of it; its operator stays (pass ``once=True``)."""
        self.notes.looked = True
        value = self._val(Ref(self.root.name))
        if value is None:
            raise Unknown(f"{self.place}: its value is not known; apply px.infer before the rule")
        return self.operands.of(KEPT, value)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The argument of each parameter of the operator at the root, defaults included; of a module, each input of its body."""
        self.notes.looked = True
        do, args = self.root.do, self.root.args
        if type(do) is Call:
            found: Mapping[str, Any] = dict(zip([each.name for each in self.program.graphs[do.graph].inputs], args, strict=True))
        else:
            found = (arranged(do.target, args, dict(self.root.kwargs)) if type(do) is Op else None) or {}
        return {name: self.given(arg) for name, arg in found.items()}

    def match(self, pattern: Callable[..., Any], what: Any) -> tuple[Any, ...] | None:
        """Match one of the values further: its operators are part of the match from then on.

        Args:
            pattern: plain torch code over variables, as of a rule.
            what: a value that the rule was given.

        Returns:
            The value of each variable, in order; None where the pattern does not match.
        """
        traced = Pattern.of(pattern)
        for found in Search(self.scope.node_of).match(traced.results[0], self.arg(what)):
            place = Match(self.scope, self.stack, self.instance, found, traced.variables)
            is_match = holds(place)
            self.notes.asked |= place.notes.asked
            if not is_match:
                continue
            self.notes.reads.update(place.notes.reads)
            here, more = {node.name for node in self.found.nodes}, self.found
            for node, part in zip(found.nodes, found.parts, strict=True):
                more = more if node.name in here else more.with_nodes([node], part)
            object.__setattr__(self, "found", more)  # the match is made while the rule looks
            return tuple([self.given(found.values[name]) for name in traced.variables])
        return None

    def traced(self, replacement: Callable[[], Any], rule: Any) -> Template | None:
        """Return what a replacement computes at the match; None where it leaves the match as it is.

        Raises:
            RuleError: it computes with the contents of a value, or torch refuses its operands.
        """
        names = [name for node in self.found.nodes for name in (node.name, *node.refs())]
        if len(self.scope.paths) > 1 and any(self.scope.known.get(name) is None for name in names):
            self.scope.values_at(self.instance)  # worked out now: while the replacement is recorded nothing else may run
        self.notes.generators = generator_states()
        try:
            count, may_leave = len(self.found.several), rule.may_leave
            made = unguarded(
                self.scope.environment, lambda: (self.operands.traced(replacement, count, self.place, may_leave=may_leave),)
            )
        except FAKE_REFUSALS as error:
            raise RuleError(
                f"{self.place}: the replacement computes with the contents of a value, which only a run knows"
            ) from error
        except RuntimeError as error:
            if isinstance(error, PurefxError):
                raise
            raise RuleError(f"{self.place}: the replacement cannot be computed: {error}") from error
        has_constants = any(isinstance(source, torch.Tensor) for source in self.operands.sources)
        if has_constants and not all(map(torch.equal, self.notes.generators, generator_states())):
            raise RuleError(
                f"{self.place}: the replacement draws a tensor now, so each run would have the same numbers; draw when the\n"
                "program runs (torch.rand_like(x), or m.call(torch.ops.aten.rand, [3, 4]) with any_effects=True), or use m.buffer"
            )
        if made is None and not may_leave:
            raise RuleError("a comparison of sizes is decided only when the program runs: look at them in `where=`")
        return None if made is None else made[0]  # what is not proven does not hold

    # -- what is made -----------------------------------------------------------------------------------------------------------

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value that an operator computes when the program runs.

        Args:
            op: an operator without a function of torch, as of a library of yours, or one that makes a tensor.
            args: values and arguments.
            kwargs: those that are passed by name.
        """
        with self.operands.called():
            return op(*args, **kwargs)

    def parameter(self, name: str, value: torch.Tensor) -> Any:
        """Return a new parameter of the module that is called here.

        Args:
            name: of the attribute; it is numbered where it is taken.
            value: its tensor; where modules share the body, the tensor of each.

        Raises:
            RuleError: the value is not a tensor.
        """
        return self._new(name, SlotKind.PARAMETER, parameter_of(_checked(name, value)))

    def buffer(self, name: str, value: torch.Tensor, *, persistent: bool = True) -> Any:
        """Return a new buffer of the module that is called here.

        Args:
            name: of the attribute; it is numbered where it is taken.
            value: its tensor; where modules share the body, the tensor of each.
            persistent: whether ``state_dict`` has it.

        Raises:
            RuleError: the value is not a tensor.
        """
        return self._new(name, SlotKind.BUFFER, _checked(name, value).detach(), persistent=persistent)

    def read(self, name: str) -> Any:
        """Return state that is there: an attribute of the module that is called here, or ``"/a.b"`` from the root.

        Raises:
            RuleError: there is no such state, or the program returns its new contents instead of writing them.
        """
        slot = nested(self._owner, name)
        self.notes.asked = self.notes.looked = True
        found = join(self.scope.paths[self.instance], slot)
        check_current(self.program, found)
        return self.operands.of_state(Get(slot), self.program.state[found].value)

    def drop(self, what: Any) -> None:
        """Drop the state that a value reads; it goes from the program once nothing reads it.

        Raises:
            RuleError: the value reads none.
        """
        slot, arg = self._slot(what), self.arg(what)
        if slot is None:
            raise RuleError(f"{what!r} reads no state, so there is none to drop")
        self.notes.dropped[slot] = self.notes.reads[arg.name] = None

    def _new(self, name: str, kind: SlotKind, value: torch.Tensor, *, persistent: bool = True) -> Any:
        self.notes.asked = self.notes.looked = True
        slot = self.scope.state.free(self._owner, name, self.scope.paths, self.notes.added)
        self.notes.added[slot] = Addition(kind, value, persistent)
        self.notes.generators = generator_states()
        return self.operands.of_state(Get(slot), value)


def _checked(name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        raise RuleError(f"new state {name!r} is a tensor with numbers, not {value!r}; m.tensor(w) is the one that w reads")
    return value


def _plain(arg: Any) -> Any:
    # An argument of a recorded operator; a symbolic number in place of the node that computes it.
    if isinstance(arg, list | tuple):
        return [_plain(each) for each in arg]
    return (
        arg.meta.get("val", arg) if isinstance(arg, torch.fx.Node) and not isinstance(arg.meta.get("val"), torch.Tensor) else arg
    )


def generator_states() -> list[torch.Tensor]:
    """Return the states of torch's generators: they differ after a draw."""
    others = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [generator.get_state() for generator in (torch.default_generator, *others)]


def check_current(program: Program, slot: str) -> None:
    """Check that a read of state returns its current contents, wherever the read is.

    Raises:
        RuleError: there is no such state; or the program returns its new contents, and computes with versions of them.
    """
    state = program.state
    if slot not in state:
        raise RuleError(f"there is no state {slot!r} to read")
    outputs = program.signature.outputs
    returned = {state[spec.slot].storage for spec in outputs if type(spec) is StateMutation and spec.slot in state}
    if state[slot].storage in returned:
        raise RuleError(
            f"a read of {slot!r} would give its contents before the call: the program returns the new contents instead of\n"
            "writing them. Apply the rule before run_decompositions or after px.transform, or match the value with a variable."
        )
