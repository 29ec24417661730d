"""``Place``: where something is written into a program, and ``Match``, where a rule matched: what can be asked and made there.

Whoever asks which instance it is gets the answer for each of them in turn: a body that several modules share is rewritten once
where all agree, and otherwise gets a body for each of the answers (``specialise.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import field, frozen

from ...ir.arguments import Arg, Items, Ref
from ...ir.errors import NamingError, RuleError
from ...ir.graph import Call, Get, Node, Stack, place_of
from ...ir.names import FROM_ROOT, did_you_mean, join, nested
from ...ir.program import Program
from ...ir.signature import StateInput
from ...ir.state import SlotKind
from .given import Given, Kept, Read, known_of
from .matching import Found, match
from .modules import Called, ModuleCall, arguments_of, called
from .new_state import Addition, parameter_of
from .patterns import is_found, term_of, variables_of
from .reading import check_current, copied_from
from .scope import Notes, Scope
from .terms import Applied, Item, Term, applied

__all__ = ["Match", "Place"]


@frozen(eq=False)
class Place:
    """Where something is written: the graph, the module call, and one of the modules that share the graph."""

    scope: Scope = field(repr=False)
    stack: Stack = field(repr=False)
    """The module calls around what is written, below the module of the body."""
    instance: int = field(repr=False)
    """The number of the instance."""
    notes: Notes = field(factory=Notes, repr=False, init=False)

    @property
    def program(self) -> Program:
        """The program as it is before the rewrite."""
        return self.scope.program

    @property
    def graph(self) -> str:
        """The id of the graph; a body that several modules share is rewritten once."""
        return self.scope.graph

    @property
    def path(self) -> str:
        """The module that is called here, from the root; each of them in turn where they share a body."""
        self.notes.asked = True
        return self.paths[self.instance]

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules that share what is written here, from the root."""
        owner = self._owner
        return tuple([join(path, owner) for path in self.scope.paths]) if owner else self.scope.paths

    @property
    def _owner(self) -> str:
        return self.stack[-1].path if self.stack else ""

    # -- what is there ----------------------------------------------------------------------------------------------------------

    def given(self, arg: Arg) -> Any:
        """Return an argument in the form that a replacement is written with."""
        if type(arg) is Ref:
            return Given(arg, self._val)
        if isinstance(arg, tuple):
            given = [self.given(one) for one in arg]
            return given if type(arg) is Items else type(arg)(given)
        return arg

    def arg(self, what: Any) -> Any:
        """Return the argument behind a value, or behind the name of one."""
        match what:
            case Given(ref=ref):
                return ref
            case str():
                return Ref(what)
            case _:
                return what

    def val(self, what: Any) -> Any:
        """Return the fake value of a value, or the name of one; None if unknown; anything else is returned as it stands.

        Where only a run knows a size it can be asked for the same, and its sizes are ``Size``.
        """
        arg = self.arg(what)
        return known_of(self._val(arg), arg if type(arg) is Ref else None)

    def _val(self, arg: Any) -> Any:
        if type(arg) is not Ref:
            return arg
        known = self.scope.known.get(arg.name)
        if known is None and len(self.scope.paths) > 1:  # it may be known of each instance: they differ there
            self.notes.asked = True
            known = self.scope.values_at(self.instance).get(arg.name)
        return known

    def shape(self, what: Any) -> tuple[Any, ...] | None:
        """Return the sizes of a tensor, numbers or ``Size``; None if it is unknown, or is not a tensor."""
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
        if type(arg) is Ref and self.graph == self.scope.program.root:
            specs = {formal.name: spec for formal, spec in self.scope.program.inputs}
            spec = specs.get(arg.name)
            return spec.slot if type(spec) is StateInput else None
        return None

    def tensor(self, what: Any) -> Any:
        """Return the tensor that a value reads from the state; None if it reads none, or the program writes to it."""
        slot = self.slot(what)
        return None if slot is None else self.scope.state.tensor(slot)

    def constant(self, what: Any, *, buffers: bool = False, parameters: bool = False) -> Any:
        """Return the tensor that a value always is, a copy of state included; None if there is none, or something writes it.

        What copies it goes with the match, where nothing else uses it.

        Args:
            what: a value, or its name.
            buffers: whether persistent buffers are constants too, for programs into which no others are loaded.
            parameters: whether parameters are, for programs that are not trained either.
        """
        found = copied_from(self.arg(what), self.scope.node_of, self.scope.is_changed)
        if found is None:
            return None
        arg, reads = found
        self.notes.reads.update(reads)
        slot = self.slot(arg)
        return None if slot is None else self.scope.state.constant(slot, buffers=buffers, parameters=parameters)

    # -- what is made -----------------------------------------------------------------------------------------------------------

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Applied:
        """Return the value that an operator computes: one without a function of torch, as of a library of yours.

        Args:
            op: an operator or one of its overloads, ``torch.ops.<library>.<operator>``.
            args: values and arguments as they stand.
            kwargs: those that are given by name.

        Raises:
            RuleError: the arguments fit none of its overloads.
        """
        return applied(op, args, kwargs)

    def module_call(self, path: str, *operands: Any) -> Called:
        """Return the result of a module below this one, with operands of yours.

        Args:
            path: as the body writes it, or ``"/a.b"`` from the root; the body need not call it, but something has to.
            operands: one for each input of the module's body.
        """
        places = self.scope.paths
        if path.startswith(FROM_ROOT):
            self.notes.asked, places = True, (places[self.instance],)
        return called(self.scope.program, self.graph, places, path, operands)

    def parameter(self, name: str, value: torch.Tensor) -> Any:
        """Return a new parameter of the module that is called here.

        Args:
            name: of the attribute; it is numbered where it is taken.
            value: its tensor; where modules share the body, what each of them gets.

        Raises:
            RuleError: the value is not a tensor.
        """
        return self._new(name, SlotKind.PARAMETER, parameter_of(self._checked(name, value)))

    def buffer(self, name: str, value: torch.Tensor, *, persistent: bool = True) -> Any:
        """Return a new buffer of the module that is called here.

        Args:
            name: of the attribute; it is numbered where it is taken.
            value: its tensor; where modules share the body, what each of them gets.
            persistent: whether ``state_dict`` has it.

        Raises:
            RuleError: the value is not a tensor.
        """
        return self._new(name, SlotKind.BUFFER, self._checked(name, value).detach(), persistent=persistent)

    def read(self, name: str) -> Any:
        """Return state that is there: an attribute of the module that is called here, or ``"/a.b"`` from the root.

        Raises:
            RuleError: there is none of that name, or the program computes with versions of it and writes none.
        """
        slot = nested(self._owner, name)
        check_current(self.scope.program, join(self.scope.paths[self.instance], slot))
        return Read(slot)

    def drop(self, what: Any) -> None:
        """Let go of the state that a value reads; it goes from the program once nothing reads it.

        Raises:
            RuleError: the value reads none.
        """
        slot, arg = self._slot(what), self.arg(what)
        if slot is None:
            raise RuleError(f"{what!r} reads no state, so there is none to drop")
        self.notes.dropped[slot] = self.notes.reads[arg.name] = None

    def _new(self, name: str, kind: SlotKind, value: torch.Tensor, *, persistent: bool = True) -> Term:
        self.notes.asked = True
        slot = self.scope.state.free(self._owner, name, self.scope.paths, self.notes.added)
        self.notes.added[slot] = Addition(kind, value, persistent)
        self.notes.draws.begin()
        return Read(slot)

    def _checked(self, name: str, value: Any) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise RuleError(f"new state {name!r} is a tensor with numbers, not {value!r}; m.tensor(w) is the one that w reads")
        return value


@frozen(eq=False)
class Match(Place):
    """Where a rule matched: what its variables are there, and the nodes that its operators are.

    Conditions on sizes hold where the program's own constraints prove them: a symbolic size compares as true only then.

    >>> import torch, purefx as px
    >>> square = px.rule(where=lambda m: m.shape("x") == (2, 2))(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> programs = [px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(size),))) for size in ((2, 2), (3,))]
    >>> [square(program) is program for program in programs]
    [False, True]
    """

    found: Found
    """What variables are, and the nodes."""
    variables: Sequence[str] = ()
    """The variables of the rule: one that is in an alternative that is not there is None."""
    _kept: list[Kept] = field(factory=list, repr=False, init=False)

    @property
    def root(self) -> Node:
        """The node whose value is replaced; the last one in the graph where there are several."""
        return self.found.nodes[0]

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes whose values are replaced, in the order of the pattern."""
        return self.found.roots

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are matched, the root first; each once, in however many places of the pattern it stands."""
        return self.found.distinct

    @property
    def place(self) -> str:
        """Where the root is, as messages say it."""
        return place_of(self.root)

    @property
    def value(self) -> Any:
        """The value of the root as it was, for a rule that makes something of it; its operator stays (say ``once=True``).

        Of a module that returns several values it is a tuple of them.
        """
        node = self.origin
        output = self.program.graphs[node.do.graph].output if type(node.do) is Call else None
        if not self._kept:
            val = self._val(Ref(node.name))
            self._kept.append(Kept(node, None if val is None else isinstance(val, torch.Tensor)))
        kept = self._kept[0]
        return tuple([Item(kept, number) for number in range(len(output))]) if type(output) is tuple else kept

    @property
    def kept(self) -> Kept | None:
        """What stands for the value of the root as it was, if somebody asked for it."""
        return next(iter(self._kept), None)

    @property
    def origin(self) -> Node:
        """The root, or the call of a module whose results are replaced."""
        pairs = zip(self.found.terms, self.found.nodes, strict=True)
        return next((node for term, node in pairs if isinstance(term, ModuleCall)), self.root)

    def __getitem__(self, variable: str) -> Arg:
        """Return what a variable is: the use of a value, or a number, a type, a list as it stands.

        It is None where it is in a term of ``any_of`` that is not there.

        Raises:
            NamingError: the rule has no such variable.
        """
        values = self.found.values
        if variable not in values and variable not in self.variables:
            raise NamingError(f"the rule has no variable {variable!r}{did_you_mean(variable, self.variables)}")
        return values.get(variable)

    def arg(self, what: Any) -> Any:
        """Return the argument behind a variable, a value, or the name of a value.

        Raises:
            NamingError: nothing has that name.
        """
        if type(what) is not str:
            return super().arg(what)
        values = self.found.values
        if what in values or what in self.variables:
            return values.get(what)
        if self.scope.node_of(what) is None and what not in self.scope.known and what not in self._formals:
            raise NamingError(f"the rule has no variable {what!r}, and {self._where} no value{self._meant(what)}")
        return Ref(what)

    @property
    def _formals(self) -> set[str]:
        return {formal.name for formal in self.program.graphs[self.graph].inputs}

    @property
    def _where(self) -> str:
        return f"the body {self.graph!r}" if self.graph else "the program"

    def _meant(self, name: str) -> str:
        return did_you_mean(name, [*self.variables, *[node.name for node in self.program.graphs[self.graph].nodes]])

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What each parameter of the operator at the root gets, defaults included; of a module, each input of its body."""
        return {name: self.given(arg) for name, arg in arguments_of(self.program, self.origin).items()}

    def match(self, pattern: Callable[..., Any], what: Any) -> tuple[Any, ...] | None:
        """Match one of the values further: its operators are part of the match from then on.

        Args:
            pattern: plain torch code over variables, as of a rule.
            what: a value that was given.

        Returns:
            What each variable is, in order; None where the value is something else.
        """
        variables = variables_of(pattern)
        term = term_of(pattern, variables)
        ways = match(term, self.arg(what), self.scope.node_of, Found())
        found = next((one for one in ways if is_found(term, self, one)), None)
        if found is None:
            return None
        here, more = {node.name for node in self.found.nodes}, self.found
        for node, term in zip(found.nodes, found.terms, strict=True):
            more = more if node.name in here else more.with_node(node, term)
        object.__setattr__(self, "found", more)  # the match is made while the rule looks
        return tuple([self.given(found.values[one.name]) for one in variables])
