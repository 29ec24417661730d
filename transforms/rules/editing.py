"""``editing``: an edit of one body without a pattern, written with values and operators of torch as replacements of rules are.

The program stays as it is; the edit gives a new one at the end of its block, verified, with its values inferred.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from attrs import define, field, frozen

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Ref
from ...ir.calls.call_graph import all_instances
from ...ir.errors import NamingError, RuleError
from ...ir.graph import Graph, Node, Op
from ...ir.importing.constants import with_constants
from ...ir.inference import CallValues, values_of
from ...ir.names import did_you_mean
from ...ir.program import Program, Step
from ...ir.rewriter import Rewriter
from ...ir.taking import a_program
from ...ir.verify import check
from ..cleanup import infer
from .building import Builder
from .given import Given
from .new_state import NewState, as_staged
from .place import Place
from .scope import Scope
from .specialise import specialised

__all__ = ["Edit", "editing"]


@contextmanager
def editing(program: Program, path: str = "") -> Generator[Edit]:
    """Edit the body of one module, in a block; ``edit.program`` is the result afterwards.

    A body that other modules share is left to them; this module gets one of its own.

    Args:
        program: a program at any stage; it is not changed.
        path: the module from the root, empty for the root; in a flat program all nodes are in the root.

    Returns:
        An ``Edit``: ``edit["relu"]`` is a value of the body, ``edit.replace`` lets its users use something else.

    Raises:
        NamingError: no module of that path is called.
        InvalidProgram: at the end of the block, what was written is not a valid program.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> with px.editing(program) as edit:
    ...     edit.replace("relu", torch.tanh(edit["input"]) * 2)
    >>> [node.do.name for node in edit.program.main.nodes]
    ['aten.tanh.default', 'aten.mul.Tensor']
    """
    edit = _begun(program, path)
    yield edit
    edit.finish()


@define(eq=False)
class _Written:
    """What was written so far."""

    rewriter: Rewriter
    placed: dict[str, int] = field(factory=dict)
    """After which node each new one stands."""
    made: dict[Any, Any] = field(factory=dict)
    """The values of terms, so that one that is used twice is computed once."""
    replaced: list[str] = field(factory=list)
    has_tensors: bool = False
    result: Program | None = None


@frozen(eq=False)
class Edit(Place):
    """An edit of one body: what is there, what is made, and the program that comes of it.

    Values are those before the edit: what is written with ``edit["relu"]`` uses that node, also where it is replaced.
    """

    before: Program = field(repr=False)
    written: _Written = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        """Return a value of the body to write with.

        Raises:
            NamingError: it has none of that name.
        """
        if name not in self._graph.metas:
            raise NamingError(f"{self.graph or 'the root'} has no value called {name!r}{did_you_mean(name, self.names)}")
        return self.given(Ref(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its values: inputs, then nodes in order."""
        return tuple(self._graph.metas)

    @property
    def _graph(self) -> Graph:
        return self.written.rewriter.source

    @property
    def program(self) -> Program:
        """The program after the edit, at the end of the block.

        Raises:
            RuleError: the block has not ended, or ended with an error.
        """
        if self.written.result is None:
            raise RuleError("edit.program is there at the end of the block `with px.editing(program) as edit: ...`")
        return self.written.result

    def replace(self, what: Any, by: Any) -> None:
        """Let all users of a value use another one; a node that nothing uses then goes, unless it does something.

        Args:
            what: a value of the body, or its name.
            by: a value of the body, or what operators of torch make of such values and of new state.

        Raises:
            NamingError: the body has no such value.
            RuleError: that is not one value, or what computes it does not fit.
        """
        name = self._name(what)
        self.written.rewriter.replace(name, self._made(by, name))
        self.written.replaced.append(name)

    def add(self, term: Any, *, after: Any) -> Any:
        """Add an operator behind a value, for what it does or for ``replace``.

        Args:
            term: what operators of torch make of values of the body.
            after: a value of the body, or its name.

        Returns:
            The value.
        """
        return self.given(self._made(term, self._name(after)))

    def _name(self, what: Any) -> str:
        return self[what.ref.name if isinstance(what, Given) else what].ref.name

    def _made(self, term: Any, name: str) -> Ref:
        work = self.written.rewriter
        node = self._graph.by_name.get(name) or Node(name, Op(name))
        place = Place(self.scope, node.stack, 0)
        builder = Builder(place, work.names, node, made_of_value(self.scope.program, self.graph, name), self.written.made)
        result = builder.result(term)
        self.notes.dropped.update(place.notes.dropped)
        self.written.has_tensors |= builder.has_tensors
        used = [used for made in builder.nodes for used in made.refs()]
        at = max([work.position[name], *[self._position(each) for each in (*used, result.name) if each not in _names(builder)]])
        work.after(at, *builder.nodes)
        self.written.placed.update(dict.fromkeys(_names(builder), at))
        return result

    def _position(self, name: str) -> int:
        return self.written.placed[name] if name in self.written.placed else self.written.rewriter.position[name]

    def finish(self) -> None:
        """Make the program; done at the end of the block.

        Raises:
            InvalidProgram: it is not valid.
        """
        work, state, path = self.written.rewriter, self.scope.state, self.scope.paths[0]
        work.erase(*self._unused())
        if (graph := work.graph()) is self._graph:
            self.written.result = self.before
            return
        state.add(path, self.notes.added)
        state.drop(path, self.notes.dropped)
        made = state.applied(self.scope.program.with_graphs({self.graph: graph}))
        made = as_staged(infer((with_constants(made) if self.written.has_tensors else made).pruned()))
        step = Step("editing", (("path", path),), self.before)
        self.written.result = check(made.evolve(facts=made.facts - {"deduplicated"}, trail=(*self.before.trail, step)))

    def _unused(self) -> list[str]:
        # Of what was replaced, and the reads of state that is dropped, what nothing uses after the edit and that only computes.
        after = self.written.rewriter.graph()
        used = {name for node in after.nodes for name in node.refs()}.union(after.output_refs())
        nodes = [after.by_name[name] for name in (*self.written.replaced, *self.notes.reads) if name in after.by_name]
        return [node.name for node in nodes if node.name not in used and not (type(node.do) is Op and node.do.effects.acts)]


def _names(builder: Builder) -> set[str]:
    return {node.name for node in builder.nodes}


def _begun(program: Program, path: str) -> Edit:
    instances = all_instances(a_program(program, "editing", path=path))
    found = [name for name, paths in instances.items() if path in paths and (path or name == program.root)]
    inside = [node.stack for node in program.main.nodes if any(frame.path == path for frame in node.stack)]
    if not found and not inside:
        paths = {each for paths in instances.values() for each in paths}
        raise NamingError(f"no module {path!r} is called in this program{did_you_mean(path, paths)}")
    name, place = (found[0], path) if found else (program.root, "")
    made, versions = specialised(program, name, {each: each == place for each in instances[name]})
    mine = next((new for new in (name, *versions) if place in all_instances(made).get(new, ())), name)
    graph = made.graphs[mine]
    scope = Scope(made, mine, lambda: (place,), values_of(graph), graph.by_name.get, NewState(made), CallValues(made))
    stack = () if found else inside[0][: [frame.path for frame in inside[0]].index(path) + 1]
    return Edit(scope, stack, 0, program, _Written(Rewriter(graph)))
