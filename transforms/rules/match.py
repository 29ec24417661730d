"""``Match``: the matched nodes and values, as conditions and replacements see them, and the state that these add.

A body that several modules share is rewritten once if they all agree.  A rule that depends on the module (``m.path``,
``m.tensor``, new state) is applied per module; if the results differ, the body gets several versions (``application.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import Factory, define, evolve, field, frozen

from ...ir.arguments import Arg, Items, Ref, thawed
from ...ir.errors import NamingError, PurefxError, RuleError
from ...ir.graph import Call, Get, Node, Op, Stack
from ...ir.inference import Border, FakeValues
from ...ir.names import did_you_mean, join, nested
from ...ir.program import Program
from ...ir.signature import StateMutation
from ...ir.state import Slot, SlotKind
from ...ir.torch_private import FAKE_REFUSALS, FakeTensor, unguarded
from .explanation import BORDER, SEVERAL, UNCHANGED, Skip
from .matching import CHECKS, Found, Search, is_node
from .pattern import Pattern, Through, arranged, role
from .trace import KEPT, Operands, Template

COPYING = frozenset(
    [
        f"aten.{name}.default"
        for name in ("lift_fresh_copy", "lift_fresh", "detach_", "detach", "alias", "clone")
    ]
)
"""Operators that the exporter puts behind a tensor that was made in the program, and others that keep its contents."""


@define(eq=False)
class Notes:
    """The replacement of one match, for one instance."""

    by_instance: bool = False
    """Whether the result may differ between the modules that share the body."""
    added: dict[str, Slot] = Factory(dict)
    """New state, by the name that the body writes."""
    dropped: dict[str, None] = Factory(dict)
    reads: dict[str, None] = Factory(dict)
    """The reads of dropped state, and the nodes that compute constants and numbers of the pattern."""
    generators: list[torch.Tensor] = Factory(list)
    """The states of torch's generators when the replacement was called, or last added state."""
    looked: bool = False
    """Whether the replacement depends on more than its operands, and so cannot be cached."""
    inner: dict[str, Node] = Factory(dict)
    """The nodes to remove if nothing else uses them."""
    before: str = ""
    """The node before which to insert the new nodes."""
    moved: Sequence[str] = ()
    """The users of the results to move behind the new nodes."""
    nodes: Sequence[Node] | None = None
    """The new nodes; None if the match is skipped."""
    results: Sequence[Ref] = ()

    @property
    def code(self) -> object:
        """The new nodes and the new state; instances whose codes are equal share the nodes."""
        state = [(name, new.kind, new.persistent) for name, new in self.added.items()]
        return None if self.nodes is None else (self.nodes, self.results, state, [*self.dropped])


@frozen(eq=False)
class Match:
    """A match of a rule: the values of its variables, and the nodes of its operators.

    Conditions on sizes hold where they are true for all sizes that the program's constraints allow, also 0 and 1.

    >>> import torch, purefx as px
    >>> square = px.rule(where=lambda m: m.shape("x") == (2, 2))(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> programs = [px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(size),))) for size in ((2, 2), (3,))]
    >>> [square(program) is program for program in programs]
    [False, True]
    """

    scope: Any = field(repr=False)
    """The graph while it is rewritten (``application.Sweep``)."""
    stack: Stack = field(repr=False)
    """The module calls around the match, below the module of the body."""
    instance: int = field(repr=False)
    found: Found
    variables: Sequence[str] = ()
    """The variables of the rule; None for those of an alternative that did not match."""
    notes: Notes = field(factory=Notes, repr=False)
    border: Border | None = field(default=None, repr=False)
    """The sizes 0 and 1 at which the match is looked at again; None for the recorded values."""
    operands: Operands = field(
        init=False, repr=False, default=Factory(lambda m: Operands(m.fakes), takes_self=True)
    )

    @property
    def fakes(self) -> FakeValues:
        """The domain of the fake values of the match."""
        fakes: FakeValues = self.scope.fakes if self.border is None else self.border.domain
        return fakes

    def at(self, border: Border) -> Match:
        """Return the match with its values at sizes 0 or 1."""
        return evolve(self, border=border, notes=Notes())

    # -- where it is ------------------------------------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The program before the rewrite."""
        self.notes.looked = True
        return self.scope.program  # type: ignore[no-any-return]

    @property
    def graph(self) -> str:
        """The id of the graph; a body that several modules share is rewritten once."""
        self.notes.looked = True
        return self.scope.name  # type: ignore[no-any-return]

    @property
    def path(self) -> str:
        """The path of the called module; where modules share a body, the rule is applied once for each path."""
        self.notes.by_instance = self.notes.looked = True
        return self.paths[self.instance]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the modules that share this body."""
        self.notes.looked = True
        return tuple(
            [join(path, self._owner) if self._owner else path for path in self.scope.paths]
        )

    @property
    def _owner(self) -> str:
        return self.stack[-1].path if self.stack else ""

    @property
    def root(self) -> Node:
        """The node whose value is replaced; the last one in the graph if there are several."""
        self.notes.looked = True
        return self.found.nodes[0]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The distinct matched nodes, the root first."""
        self.notes.looked = True
        return self.found.distinct

    # -- reading the match ------------------------------------------------------------------------------------------------------

    def __getitem__(self, variable: str) -> Arg:
        """Return the argument that a variable matched: a reference to a value, a number, a type, or a list.

        Returns None if the variable is in a term of ``any_of`` that did not match.

        Raises:
            NamingError: the rule has no such variable.
        """
        values = self.found.values
        if variable not in values and variable not in self.variables:
            raise NamingError(
                f"the rule has no variable {variable!r}{did_you_mean(variable, self.variables)}"
            )
        self.notes.looked |= isinstance(values.get(variable), Ref | tuple)
        return values.get(variable)

    def operand(self, arg: Arg) -> Any:
        """Return an argument as an operand of a replacement."""
        if isinstance(arg, Through):
            return evolve(arg, value=self.operand)
        return thawed(
            arg,
            lambda leaf: self.operands.of(leaf, self._known(leaf)) if type(leaf) is Ref else leaf,
        )

    def _known(self, arg: Ref) -> Any:
        value = self._val(arg)
        if value is not None:
            return value
        if self.border is not None:
            raise Skip(BORDER.format(self.border))
        if self.scope.draft.is_changed:
            raise Skip(
                UNCHANGED
            )  # it may be inferred after the walk, and the next walk finds the match again
        made = self.scope.hits.made.get(arg.name)
        if (
            made is None
            and len(self.scope.pending.calls.at(self.scope.name, self.scope.paths[self.instance]))
            > 1
        ):
            raise Skip(SEVERAL)
        advice = (
            "apply px.infer before the rule"
            if made is None
            else f"rule {made.rule} made it; pass once=True to px.rule"
        )
        raise RuleError(f"the value of {arg.name} is not known: {advice}")

    def _arg(self, what: Any) -> Any:
        # The argument of a variable or an operand.
        if type(what) is str:
            return self.found.values[what] if what in self.found.values else self[what]
        source = self.operands.by_id.get(id(what))
        self.notes.looked |= type(what) is Ref
        return what if source is None else source

    def val(self, what: Any) -> Any:
        """Return the fake value of a variable or a reference, None if unknown; return anything else unchanged."""
        arg = self._arg(what)
        value = self._val(arg)
        # A replacement may compute with its sizes.
        return (
            self.operand(arg)
            if type(arg) is Ref and value is not None and self.operands.recorder is not None
            else value
        )

    def _val(self, arg: Any) -> Any:
        if type(arg) is not Ref:
            return arg
        if self.border is not None:
            return self.border.value(self.scope.name, arg.name)
        known = self.scope.draft.value(arg.name)
        if (
            known is None and len(self.scope.paths) > 1
        ):  # the instances may have distinct known values
            self.notes.by_instance = True
            known = self.scope.values_at[self.instance].get(arg.name)
        return known

    def shape(self, what: Any) -> tuple[Any, ...] | None:
        """Return the sizes of a tensor; None if it is unknown, or is not a tensor."""
        value = self.val(what)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else None

    def dtype(self, what: Any) -> torch.dtype | None:
        """Return the data type of a tensor; None if it is unknown, or is not a tensor."""
        value = self.val(what)
        return value.dtype if isinstance(value, torch.Tensor) else None

    def _slot(self, what: Any) -> str | None:
        # The state that a value reads, under the name in the body.
        arg, self.notes.looked = self._arg(what), True
        node = self.scope.draft.nodes.get(arg.name) if type(arg) is Ref else None
        if node is not None:
            return node.do.slot if type(node.do) is Get else None
        return (
            self.program.state_inputs.get(arg.name)
            if type(arg) is Ref and self.graph == self.program.root
            else None
        )

    def _from_root(self, slot: str) -> str:
        self.notes.by_instance = self.notes.looked = True
        return join(self.scope.paths[self.instance], slot)

    def tensor(self, what: Any) -> Any:
        """Return the tensor that a value reads from the state; None if it reads none, or the program writes or returns it."""
        slot = self._slot(what)
        return None if slot is None else self.scope.pending.tensor(self._from_root(slot))

    def constant(self, what: Any, *, buffers: bool = False, parameters: bool = False) -> Any:
        """Return the constant tensor that a value reads or copies; None if it is not constant.

        The nodes that copy the tensor are removed with the match if nothing else uses them.

        Args:
            what: a variable, or a value.
            buffers: treat persistent buffers as constants too; only safe if you never load others.
            parameters: treat parameters as constants too; only safe if you neither train nor load others.
        """
        self.notes.looked = True
        arg = self._arg(what)
        while type(arg) is Ref:
            if self.scope.legality.is_changed(arg.name):
                return None
            node = self.scope.draft.nodes.get(arg.name)
            self.notes.reads[arg.name] = None
            if node is None or node.op_name not in COPYING:
                break
            arg = node.args[0]
        slot = self._slot(arg)
        return slot and self.scope.pending.constant(
            self._from_root(slot), buffers=buffers, parameters=parameters
        )

    @property
    def value(self) -> Any:
        """The original value of the root; its operator stays in the program (pass ``once=True`` to the rule)."""
        self.notes.looked = True
        return self.operands.of(KEPT, self._known(Ref(self.root.name)))

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the root operator by parameter, defaults included; for a module, by input of its body."""
        self.notes.looked = True
        do, args = self.root.do, self.root.args
        if type(do) is Call:
            found: Mapping[str, Any] = dict(
                zip([each.name for each in self.program.graphs[do.graph].inputs], args, strict=True)
            )
        else:
            found = (
                arranged(do.target, args, dict(self.root.kwargs)) if type(do) is Op else None
            ) or {}
        return {name: self.operand(arg) for name, arg in found.items()}

    def match(self, pattern: Callable[..., Any], what: Any) -> tuple[Any, ...] | None:
        """Match an operand against another pattern, and add its operators to the match.

        Args:
            pattern: a function in plain torch code; its parameters are variables.
            what: an operand of the replacement.

        Returns:
            The value of each variable, in order; None if the pattern does not match.
        """
        traced, self.notes.looked = Pattern.of(pattern), True
        for found in Search(self.scope.draft.nodes.get).match(
            traced.results[0], self._arg(what), evolve(self.found, values={})
        ):
            if evolve(self, found=found, variables=traced.variables).holds(None):
                object.__setattr__(
                    self, "found", evolve(found, values=self.found.values)
                )  # it grows while the replacement runs
                return tuple([self.operand(found.values[name]) for name in traced.variables])
        return None

    def traced(self, rule: Any, operands: Sequence[Any]) -> Template:
        """Trace the replacement of a rule on operands.

        Raises:
            RuleError: the replacement skips the match, depends on the contents of a value, or raises.
        """
        names = [name for node in self.found.nodes for name in (node.name, *node.refs())]
        if len(self.scope.paths) > 1 and any(
            self.scope.draft.value(name) is None for name in names
        ):
            _ = (
                self.scope.values_at
            )  # computed now: nothing else may run while the replacement is recorded
        self.notes.generators = generator_states()
        may_skip = rule.written is rule.replacement  # only at= may return None

        def replacement() -> Any:
            made = rule.replacement(self, *operands)
            if made is None and may_skip:
                raise Skip(UNCHANGED)
            return made

        made = self._run(
            "the replacement", lambda: self.operands.traced(replacement, len(self.found.several))
        )
        has_constants = any(isinstance(source, torch.Tensor) for source in self.operands.by_source)
        if has_constants and not all(map(torch.equal, self.notes.generators, generator_states())):
            raise RuleError(
                "the replacement draws random numbers once, so every run would use the same ones; draw in the program\n"
                "(torch.rand_like(x), or m.call(torch.ops.aten.rand, [3, 4]) with any_effects=True), or use m.buffer"
            )
        if made is None:  # torch could not prove a comparison
            words = "the replacement needs a size or a value as a number, but it is known only at run time"
            raise Skip(UNCHANGED) if may_skip else RuleError(f"{words}; compare sizes in `where=`")
        return made

    def holds(self, where: Callable[[Match], bool] | None) -> bool:
        """Return whether the values fit the pattern, and a condition holds.

        Raises:
            RuleError: the condition raises.
        """
        values = [
            (part, each)
            for part, several in self.found.values.items()
            if role(part) in CHECKS
            for each in several
        ]
        fits = not values or self._run(
            "the pattern",
            lambda: all(CHECKS[role(part)](self, part, each) for part, each in values),
        )
        if not fits or not all(
            is_node(self, *each) for each in zip(self.found.parts, self.found.nodes, strict=True)
        ):
            return False
        return where is None or bool(self._run("where=", lambda: bool(where(self))))

    def _run(self, what: str, function: Callable[[], Any]) -> Any:
        # The result of a function of the user; None if it depends on a comparison that is not proven.
        try:
            return unguarded(self.fakes.mode.shape_env, function)
        except PurefxError:
            raise
        except FAKE_REFUSALS as error:
            raise RuleError(
                f"{what} depends on the contents of a value, which are known only at run time"
            ) from error
        except Exception as error:
            raise RuleError(f"{what} raised {type(error).__name__}: {error}") from error

    # -- building the replacement -----------------------------------------------------------------------------------------------

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value that an operator computes when the program runs.

        Args:
            op: an operator without a torch function, such as one of your libraries, or one that makes a tensor.
            args: positional arguments; ``m.value`` and ``m["x"]`` are the values that they name.
            kwargs: keyword arguments.
        """
        given = [self._passed(arg) for arg in args]
        named = {key: self._passed(arg) for key, arg in kwargs.items()}
        target: Any = op.target if type(op) is Op else op
        return self.operands.called(target, *given, **named)

    def _passed(self, arg: Any) -> Any:
        # `m["x"]` is the argument of a node; an operator accepts its operand.
        return self.operand(arg) if isinstance(arg, Ref | Items) else arg

    def parameter(self, name: str, value: torch.Tensor) -> Any:
        """Add a parameter to the module of the match, and return it; it is trainable if its dtype allows.

        Args:
            name: the name of the attribute; a number is appended if it exists.
            value: the tensor; if modules share the body, one for each.

        Raises:
            RuleError: the value is not a tensor.
        """
        value = _checked(name, value)
        if not isinstance(value, torch.nn.Parameter):
            value = torch.nn.Parameter(
                value.detach(), requires_grad=value.is_floating_point() or value.is_complex()
            )
        return self._new(name, SlotKind.PARAMETER, value)

    def buffer(self, name: str, value: torch.Tensor, *, persistent: bool = True) -> Any:
        """Add a buffer to the module of the match, and return it.

        Args:
            name: the name of the attribute; a number is appended if it exists.
            value: the tensor; if modules share the body, one for each.
            persistent: whether ``state_dict`` contains the buffer.

        Raises:
            RuleError: the value is not a tensor.
        """
        return self._new(
            name, SlotKind.BUFFER, _checked(name, value).detach(), persistent=persistent
        )

    def read(self, name: str) -> Any:
        """Return state of the program: an attribute of the module of the match, or ``"/a.b"`` from the root.

        Raises:
            RuleError: no such state exists, or the program returns its new contents instead of writing them.
        """
        slot, state = (
            (join if self.scope.name == self.program.root else nested)(self._owner, name),
            self.program.state,
        )
        found = self._from_root(slot)
        if found not in state:
            raise RuleError(f"m.read: the program has no state {found!r}")
        outputs = self.program.signature.outputs
        if state[found].storage in [
            state[spec.slot].storage for spec in outputs if type(spec) is StateMutation
        ]:
            raise RuleError(
                f"a read of {found!r} would return its contents before the call: apply the rule before run_decompositions,\n"
                "after px.transform, or match the value with a variable"
            )
        return self.operands.of_state(Get(slot), state[found].value)

    def drop(self, what: Any) -> None:
        """Drop the state that a value reads; the program loses it once nothing reads it.

        Raises:
            RuleError: the value reads no state.
        """
        if (slot := self._slot(what)) is None:
            raise RuleError(f"m.drop: {what!r} reads no state")
        self.notes.dropped[slot] = self.notes.reads[self._arg(what).name] = None

    def _new(
        self, name: str, kind: SlotKind, value: torch.Tensor, *, persistent: bool = True
    ) -> Any:
        self.notes.by_instance = self.notes.looked = True
        slot = self.scope.pending.free(self._owner, name, self.scope.paths, self.notes.added)
        self.notes.added[slot] = Slot(kind, value, 0, 0, persistent)
        self.notes.generators = generator_states()
        return self.operands.of_state(Get(slot), value)


def _checked(name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        raise RuleError(
            f"new state {name!r} is a tensor with numbers, not {value!r}; m.tensor(w) is the tensor that w reads"
        )
    return value


def generator_states() -> list[torch.Tensor]:
    """Return the states of torch's generators; a draw changes them."""
    every = (
        torch.default_generator,
        *(torch.cuda.default_generators if torch.cuda.is_initialized() else ()),
    )
    return [generator.get_state() for generator in every]
