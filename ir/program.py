"""``Program``: a table of graphs, a root, the state, the signature, and its history.

A program is immutable.  A transformation makes a new one that shares all unchanged parts with the old one; the trail
keeps the old one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, singledispatch
from types import MappingProxyType
from typing import Any, ClassVar

from attrs import Factory, evolve, field, frozen

from .arguments import Arg
from .errors import ArgumentError, InvalidProgram, NamingError, Violation
from .graph import Call, Frame, Graph, Input, Node, Value
from .names import did_you_mean, escaped, is_below, join
from .operators import foreign_operators
from .origins import Version
from .persistent import Displayed, PMap, pmap, summary_of, text_of
from .signature import (
    Constraints,
    InputMutation,
    InputSpec,
    OutputSpec,
    Signature,
    StateInput,
    UserInput,
)
from .state import State


@frozen
class Module:
    """A module of the original hierarchy: its path and the name of its class.

    >>> Module("layers.0", "torch.nn.Linear").path
    'layers.0'
    """

    path: str
    type_name: str | None = None
    cell: int | None = None
    """Modules with one cell are one object with several paths; None if no other path is known.

    In a program that was split they are one object in each part.
    """


@frozen
class CallSignature:
    """The call signature of a module call that the exporter preserved on request.

    The values are the operands of two boundary nodes inside the call, see ``own_operators.py``.

    >>> CallSignature(None, None, ("x",)).arg_names
    ('x',)
    """

    in_spec: Any = field(hash=False, repr=False)
    """The pytree of ``(args, kwargs)``."""
    out_spec: Any = field(hash=False, repr=False)
    """The pytree of the result."""
    arg_names: tuple[str, ...] = ()
    shared: bool = False
    """Whether all calls of the module go to one callable under its own name, see ``dispatch``."""


@frozen
class Step:
    """One entry of a program's trail: a transformation, its options, and the program before it.

    >>> str(Step("outline", (), Program.of({})))
    'outline()'
    """

    name: str
    options: tuple[tuple[str, Any], ...]
    _before: Program = field(eq=False, repr=False)
    _first: Callable[[Program], Program] | None = field(default=None, eq=False, repr=False)
    """The step that ran as one with it, on the same program."""

    @cached_property
    def before(self) -> Program:
        """The program before it; computed on demand if two steps ran as one."""
        return self._before if self._first is None else self._first(self._before)

    def on(self, change: Callable[[Program], Program]) -> Step:
        """Return the step on a changed program: ``change`` of the one that it, or the step that ran as one with it, was on."""
        return Step(self.name, self.options, change(self._before), self._first)

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options)
        return escaped(f"{self.name}({options})")


@frozen(repr=False)
class Program(Value, Displayed):
    """An imported PyTorch program.

    Equality is structural: graphs, state, signature, modules, call signatures and constraints; not facts and not the
    trail, which say how a program came to be.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> program == Program.of({"": Graph((), (), ())})
    True
    """

    _saved: ClassVar[str] = "px.save(program, path) writes it to a file, and px.load reads it"
    graphs: PMap[str, Graph]
    root: str = ""
    state: State = Factory(State)
    signature: Signature = Factory(Signature)
    modules: tuple[Module, ...] = ()
    """The original hierarchy in declaration order, containers and modules that were never called included."""
    call_signatures: PMap[Frame, CallSignature] = pmap()
    constraints: Constraints = Factory(Constraints)
    facts: frozenset[str] = field(default=frozenset(), eq=False)
    """Facts that transformations have established (``"outlined"`` ...); only trusted where the program does not show them."""
    trail: tuple[Step, ...] = field(default=(), eq=False, repr=False)
    past: tuple[Version, ...] = field(default=(), eq=False, repr=False)
    """Its versions before the trail if it was loaded from a file; the last one is the saved program."""
    checked: bool = field(default=False, init=False, eq=False, repr=False)
    """Whether ``check`` found it valid: remembered, because a value cannot become invalid.  A copy with other fields
    starts unchecked."""
    imported: bool = field(default=False, init=False, eq=False, repr=False)
    """Whether it is unchanged since the import; a copy with other fields is not."""

    @classmethod
    def of(cls, graphs: Mapping[str, Graph], **fields: Any) -> Program:
        """Return a program from a plain dict of graphs and any other fields."""
        if not isinstance(graphs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f'Program.of takes graphs by id, {{"": graph}}, not a {type(graphs).__name__}'
            )
        return cls(pmap(graphs), **fields)

    @property
    def main(self) -> Graph:
        """The root graph.

        Raises:
            InvalidProgram: the program has no such graph.

        >>> Program.of({}).main
        Traceback (most recent call last):
        ...
        purefx.ir.errors.InvalidProgram: the program breaks 1 invariant:
        <BLANKLINE>
        root: the root is '', which is not in program.graphs
          at the program
        """
        root = self.graphs.get(self.root)
        if root is None:
            raise InvalidProgram(
                [Violation("root", f"the root is {self.root!r}, which is not in program.graphs")]
            )
        return root

    @property
    def inputs(self) -> tuple[tuple[Input, InputSpec], ...]:
        """The inputs of the root, each with its spec."""
        return tuple(zip(self.main.inputs, self.signature.inputs, strict=True))

    @property
    def user_inputs(self) -> list[tuple[Input, UserInput]]:
        """The inputs of the root that the caller passes, each with its spec."""
        return [(formal, spec) for formal, spec in self.inputs if type(spec) is UserInput]

    @cached_property
    def state_inputs(self) -> Mapping[str, str]:
        """The slot of each input of the root that is state, by name of the input."""
        return MappingProxyType(
            {formal.name: spec.slot for formal, spec in self.inputs if type(spec) is StateInput}
        )

    @property
    def outputs(self) -> list[tuple[Arg, OutputSpec]]:
        """The outputs of the root, each with its spec."""
        return list(zip(self.main.output, self.signature.outputs, strict=True))

    @cached_property
    def types(self) -> Mapping[str, str | None]:
        """The class of each module of the hierarchy, by path."""
        return MappingProxyType({module.path: module.type_name for module in self.modules})

    def graph(self, name: str) -> Graph:
        """Return a graph by its id, or by the path of a module that runs it.

        Args:
            name: an id, as in ``graphs``, or a path such as ``"layers.0"``.

        Raises:
            NamingError: no graph or module call has this name.

        >>> from purefx.ir import Call, Node
        >>> call = Node("y", Call(Frame("mlp"), "Mlp"))
        >>> program = Program.of({"": Graph((), (call,), ()), "Mlp": Graph((), ())})
        >>> program.graph("mlp") is program.graph("Mlp") is program.graphs["Mlp"]
        True
        """
        return self.graphs[self._graph_id(name)]

    def _graph_id(self, name: str) -> str:
        if name in self.graphs:
            return name
        todo = [(self.root, "")]
        for graph, path in todo:  # grows during the loop
            for node in self.graphs[graph].callers:
                inner = join(path, node.do.instance.path) if type(node.do) is Call else path
                if inner == name:
                    return node.callees[0]
                places = (
                    [(callee, inner) for callee in node.callees] if is_below(name, inner) else []
                )
                todo += [place for place in places if place not in todo]
        near = did_you_mean(name, {*self.graphs, *self.types})
        raise NamingError(
            f"no graph and no called module is named {name!r}{near}; print(program) lists them"
        )

    def text(self, graph: str | None = None) -> str:
        """Return the full text, which ``px.parse`` reads.

        Args:
            graph: the text of this graph alone, by its id or the path of a module that runs it.

        >>> program = Program.of({"": Graph((), ())})
        >>> print(program.text(""))
        graph @""() {
          return ()
        }
        """
        if graph is None:
            return text_of(self)
        name = self._graph_id(graph)
        return text_of(self.graphs[name], name=name)

    def __str__(self) -> str:
        """Return the text of a short program; the graphs, the state and the steps of a long one."""
        return summary_of(self)

    def __repr__(self) -> str:
        return f"Program({len(self.graphs):,} graphs, {sum(len(graph.nodes) for graph in self.graphs.values()):,} nodes)"

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The ids of the graphs that the root reaches: each before those that it calls, in order of first use."""
        seen: dict[str, None] = {}
        todo = [self.root]
        while todo:
            name = todo.pop()
            if name in seen or name not in self.graphs:
                continue
            seen[name] = None
            todo.extend(reversed(self.graphs[name].callees))
        return tuple(seen)

    @cached_property
    def bottom_up(self) -> tuple[str, ...]:
        """The ids of the graphs that the root reaches, each after those that it calls."""
        done: dict[str, None] = {}
        opened: set[str] = set()
        todo = [(self.root, False)]
        while todo:
            name, closing = todo.pop()
            if closing:
                done.setdefault(name)
            elif name not in opened and name in self.graphs:
                opened.add(name)
                todo.append((name, True))
                todo.extend((inner, False) for inner in reversed(self.graphs[name].callees))
        return tuple(done)

    @cached_property
    def foreign_operators(self) -> tuple[str, ...]:
        """The names of the operators that a program from an untrusted source may not use.

        They are functions and methods that a graph module calls, and operators that reach beyond data.  ``save`` writes them
        only with ``allow=``.

        >>> from purefx.ir import Graph, Node, Op, Program
        >>> Program.of({"": Graph((), (Node("y", Op("builtins.getattr", target=getattr)),))}).foreign_operators
        ('builtins.getattr',)
        """
        return foreign_operators(node for _, node in self.nodes())

    def evolve(self, **changes: Any) -> Program:
        """Return a copy with other fields."""
        return evolve(self, **changes)

    def with_main(self, graph: Graph, **changes: Any) -> Program:
        """Return a copy with another root graph, and other fields."""
        return self.evolve(graphs=self.graphs.set(self.root, graph), **changes)

    def with_boundary(
        self,
        graph: Graph,
        inputs: Iterable[InputSpec],
        outputs: Iterable[OutputSpec] | None = None,
        **changes: Any,
    ) -> Program:
        """Return a copy with another root graph and the specs of its inputs and outputs.

        Mutations of inputs refer to root inputs by position; they are renumbered by name.

        Args:
            graph: the root.
            inputs: the spec of each of its inputs.
            outputs: the spec of each of its outputs, with the old numbers of mutated inputs; by default the old ones.
            changes: other fields of the signature.
        """
        was = self.main.inputs
        now = {formal.name: number for number, formal in enumerate(graph.inputs)}
        specs = [
            InputMutation(now.get(was[spec.index].name, spec.index))
            if type(spec) is InputMutation
            else spec
            for spec in (self.signature.outputs if outputs is None else outputs)
        ]
        signature = evolve(self.signature, inputs=tuple(inputs), outputs=tuple(specs), **changes)
        return self.with_main(graph, signature=signature)

    def with_graphs(self, graphs: Mapping[str, Graph], *, only: bool = False) -> Program:
        """Return a copy with these graphs under these ids, on request without all others; the same object if nothing changes."""
        changed = {
            name: graph for name, graph in graphs.items() if self.graphs.get(name) is not graph
        }
        return (
            self.evolve(graphs=pmap(graphs) if only else self.graphs.update(changed))
            if changed
            else self
        )

    def with_state(
        self, *, add: Mapping[str, Any] = MappingProxyType({}), remove: Iterable[str] = ()
    ) -> Program:
        """Return a copy with state added or removed.

        New state is ordered as in ``state_dict`` if its module had registered it last; missing modules on its path are added.  A
        tensor that is state under another path is tied to it; one that shares memory with state stays an alias.  To read it,
        write ``Get(path)`` (in a body the path from its module); a program that takes its state as inputs gets one more input
        for each new tensor.  A tensor with several names loses only the removed ones.

        Args:
            add: values by path: a ``torch.nn.Parameter``, a tensor (a persistent buffer), or a ``Slot`` (its kind and
                persistence are kept, its numbers are not).
            remove: paths of unused state; its inputs are removed too.

        Raises:
            NamingError: a path to add is used or malformed; a path to remove is unknown, or its state is used (the message
                names a user).
            TypeError: a value is neither a tensor nor a slot.

        >>> import torch
        >>> program = Program.of({"": Graph((), ())}).with_state(add={"lora.a": torch.nn.Parameter(torch.ones(2))})
        >>> program.state.order, program.state["lora.a"].kind.name, program.with_state(remove=["lora.a"]).state.order
        (('lora.a',), 'PARAMETER', ())
        """
        return state_changed(self, add, remove)

    def pruned(self) -> Program:
        """Return a copy without the graphs that the root does not reach; the same object if it reaches all."""
        reached = self.order
        same = len(reached) == len(self.graphs)
        return (
            self
            if same
            else evolve(self, graphs=pmap({name: self.graphs[name] for name in reached}))
        )

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """Iterate over (graph id, node), graph by graph in ``order``."""
        for name in self.order:
            for node in self.graphs[name].nodes:
                yield name, node

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """Return a copy with copied tensors; ties are kept, and programs of the trail are not copied."""
        return self.evolve(state=copy.deepcopy(self.state, memo)) if self.state.order else self


@singledispatch
def state_changed(program: Program, add: Mapping[str, Any], remove: Iterable[str]) -> Program:  # noqa: ARG001
    """Return a program with other state; ``state_changes.py``, which needs the call graph, registers the implementation.

    Args:
        program: a program.
        add: as ``Program.with_state`` takes it.
        remove: likewise.
    """
    raise TypeError(f"a {type(program).__name__} has no state")
