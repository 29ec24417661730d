"""``observe``: what inner modules give becomes a further output of the program.

The values travel through the bodies that the calls stand in; a body that several modules share gives them in all of its calls,
and callers take what they need.  For calibration, for features of inner layers, for looking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Arg, Ref, bodies_in
from ...ir.calls.call_sites import Convention, conventions
from ...ir.calls.parts import part_names
from ...ir.effects.resolved import program_effects
from ...ir.errors import NamingError, UnsupportedProgram
from ...ir.graph import Call, Frame, Get, Graph, Node, Op, Stack
from ...ir.meta import Meta
from ...ir.names import Names, did_you_mean, is_below, join
from ...ir.operators import GETITEM, op_of
from ...ir.program import Program
from ...ir.signature import StateMutation, UserOutput
from ...ir.taking import a_program
from ...ir.torch_private import pytree
from ..cleanup import infer
from ..effect_tokens import remove_effect_tokens
from ..inline import inline
from ..insert_ivals import insert_ivals
from ..mutations import inplace_mutations
from ..outline import outline
from ..state import sink_state

__all__ = ["observe"]

Chain = tuple[str, ...]
"""The nodes that call one another, from a graph down to the call that is observed."""


@frozen
class Observed:
    """One call that is observed."""

    name: str
    """The path of the module; with ``@1`` for its second call."""
    chain: Chain
    graph: str
    """The body."""
    convention: Convention | None = None
    """How the body is called, where its call signature is preserved."""

    def given_by(self, body: Graph) -> list[Ref]:
        """Return the values that the call gives: what its forward returned if that is known, else what the program uses."""
        return given(body, self.convention)


def found_calls(program: Program, globs: Sequence[str]) -> list[Observed]:
    """Return the calls that are observed, in the order in which they run.

    Args:
        program: a tree of calls.
        globs: of module paths.

    Raises:
        NamingError: a glob matches no module that is called, or none that gives a value.
        UnsupportedProgram: a module stands inside of an operator, or state in between would pass for what it gives.

    >>> from purefx.ir import Node
    >>> bodies = {"": Graph((), (Node("y", Call(Frame("m"), "m")),)), "m": Graph((), (Node("z", Get("b")),), Ref("z"))}
    >>> found_calls(Program.of(bodies), ["m"])
    [Observed(name='m', chain=('y',), graph='m', convention=None)]
    """
    counts: Counter[str] = Counter()
    known = conventions(program)
    used: set[str] = set()
    found: list[Observed] = []
    for called in _calls(program):
        path, number = called.path, counts[called.path]
        counts[path] += 1
        matching = [glob for glob in globs if fnmatchcase(path, glob)]
        convention = known.get(called.graph)
        if matching and given(program.graphs[called.graph], convention):
            used.update(matching)
            found.append(Observed(f"{path}@{number}" if number else path, called.chain, called.graph, convention))
    _check_all(program, globs, used, counts)
    _check_versions(program, {path: count for path, count in counts.items() if any(fnmatchcase(path, glob) for glob in globs)})
    return found


@frozen
class _Called:
    """A call that is met on the way from the root, and those around it."""

    path: str
    chain: Chain
    graph: str


def _calls(program: Program) -> Iterator[_Called]:
    # All calls, in the order in which they run.
    todo = [_Called("", (), program.root)]
    while todo:
        met = todo.pop()
        if met.chain:
            yield met
        for node in reversed(program.graphs[met.graph].callers):
            if type(do := node.do) is Call:
                path = join(met.path, do.instance.path)
                todo.append(_Called(path, (*met.chain, node.name), do.graph))


def _check_all(program: Program, globs: Sequence[str], used: set[str], called: Mapping[str, Any]) -> None:
    # Whether each glob was of use, and nothing that it asks for is out of reach.
    hidden = _hidden(program)
    for glob in globs:
        lost = [path for path in hidden if fnmatchcase(path, glob)]
        if lost:
            raise UnsupportedProgram(
                f"observe: {lost[0]} runs inside of {hidden[lost[0]]}, whose body gives nothing else: "
                f"observe the module around it, and name those that you want"
            )
        if glob in used:
            continue
        if any(fnmatchcase(path, glob) for path in [*called, *(module.path for module in program.modules if module.path)]):
            raise NamingError(
                f"observe: {glob!r} is in the program, but has no value of its own there: nothing uses what it gives, it "
                "gives what it takes, or the exporter kept no trace of its call; observe the module around it"
            )
        raise NamingError(f"observe: no module {glob!r} is called that gives a value{did_you_mean(glob, called)}")


def _check_versions(program: Program, counts: Mapping[str, int]) -> None:
    # In a program that was functional, state that a module has written and that is written again is a value of its own, and would
    # pass for what the module gives.
    if "mutations in place" not in program.facts:
        return
    for where, slot in _written(program):
        for path, count in counts.items():
            if is_below(slot, path) and (count > 1 or not is_below(join(where, "x"), path)):
                raise UnsupportedProgram(
                    f"observe: {path} writes {slot}, "
                    f"which is written {'in several calls' if count > 1 else 'outside of it as well'}, "
                    f"so here a state in between is a value like those that {path} gives: "
                    f"observe the program as it was before run_decompositions"
                )


def _written(program: Program) -> Iterator[tuple[str, str]]:
    # Modules, and the state that each writes.
    for called in (_Called("", (), program.root), *_calls(program)):
        body = program.graphs[called.graph]
        for node in body.nodes:
            if type(node.do) is Op and node.do.effects.writes and type(node.args[0]) is Ref:
                read = body.by_name.get(node.args[0].name)
                if read is not None and type(read.do) is Get:
                    yield called.path, join(called.path, read.do.slot)


def _hidden(program: Program) -> dict[str, str]:
    # Modules in the bodies of operators, with the operator.
    found: dict[str, str] = {}
    todo = [("", program.root, ""), *((met.path, met.graph, "") for met in _calls(program))]
    while todo:
        path, graph, operator = todo.pop()
        for node in program.graphs[graph].nodes if operator else program.graphs[graph].callers:
            here = join(path, node.stack[-1].path) if node.stack else path
            if operator:
                inner = [frame.path for frame in node.stack] + ([node.do.instance.path] if type(node.do) is Call else [])
                found.update((join(path, each), operator) for each in inner)
            if type(node.do) is Op:
                todo += [(here, body, node.do.name) for body in bodies_in(node.args, node.kwargs)]
    return found


def given(body: Graph, convention: Convention | None) -> list[Ref]:
    """Return the values that a call of a body gives, see ``Observed.given_by``.

    >>> given(Graph((), (), (1, Ref("x"))), None)
    [Ref(name='x')]
    """
    return [leaf for leaf in (results_of(body) if convention is None else convention.gives) if type(leaf) is Ref]


def results_of(body: Graph) -> tuple[Arg, ...]:
    """Return the results of a body, also where it has one.

    >>> results_of(Graph((), (), 1))
    (1,)
    """
    return body.output if type(body.output) is tuple else (body.output,)


CLONE = op_of(torch.ops.aten.clone.default)


def observe(program: Program, paths: str | Sequence[str]) -> Program:
    """Let a program return what inner modules give: ``(result, {path: value})``.

    Before::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z,)

    After ``observe(program, "up")``::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z, y)      # (z, {"up": y})

    A module that was exported with ``preserve_module_call_signature`` gives what its ``forward`` returned, in its structure. Any
    other gives the values that the rest of the program uses of it, a tuple if there are several: a trace tells no more.
    A value that the program writes somewhere is copied where the module gives it, otherwise it is the tensor itself, as a forward
    hook gets it.  A module that is called again is ``path@1``, ``path@2`` ..., in the order of the calls.

    Laws: what the program gave before, and what it writes, is what it was; what is observed is what a forward hook of eager gets.

    Args:
        program: flat, or a tree with shared bodies; before it is split.
        paths: globs of module paths, such as ``layers.*.mlp``.

    Returns:
        The program with further outputs; a flat one is flat again, its state read and written in place.

    Raises:
        NamingError: a glob matches no module that is called, or none that gives a value.
        UnsupportedProgram: the program is split; a module stands inside of an operator, or of a module whose call signature is
            preserved; in a program that was functional, state in between would pass for what it gives.
        TypeError: ``paths`` is no glob.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> program = px.transform(px.import_ep(torch.export.export(model, (torch.ones(1, 2),))))
    >>> result, seen = px.lower(px.observe(program, "0"))(torch.ones(1, 2))
    >>> result.shape, {path: tuple(value.shape) for path, value in seen.items()}
    (torch.Size([1, 3]), {'0': (1, 3)})
    """
    a_program(program, "observe", paths=paths)
    globs = _globs(paths)
    if part_names(program):
        raise UnsupportedProgram("observe takes a program before it is split: join it, observe it, and split it again")
    if not any(type(node.do) is Call for _, node in program.nodes()):
        sunk = sink_state(inplace_mutations(remove_effect_tokens(program)))
        tree = infer(outline(insert_ivals(sunk)))
        return infer(inline(_Threading(tree, found_calls(tree, globs)).observed()))
    if any(isinstance(spec, StateMutation) for spec in program.signature.outputs):
        raise UnsupportedProgram(
            "observe takes a tree whose state is written in place, for else new state is among what modules give: "
            "observe the flat program, or the result of transform(program)"
        )
    program = infer(program)
    return infer(_Threading(program, found_calls(program, globs)).observed())


def _globs(paths: Any) -> list[str]:
    globs: list[Any] = [paths] if isinstance(paths, str) or not isinstance(paths, list | tuple | set | frozenset) else list(paths)
    if not all(isinstance(glob, str) for glob in globs):
        raise TypeError(f"observe takes globs of module paths, such as 'layers.*.mlp', not {paths!r}")
    return sorted(globs) if isinstance(paths, set | frozenset) else globs


def _returning(program: Program, main: Graph, found: Sequence[tuple[Observed, Sequence[Ref]]]) -> Program:
    # The program that returns values beside its result, in a dict by the names of the calls.
    named: dict[str, tuple[Arg, ...]] = {}
    specs: dict[str, Any] = {}
    counts = Counter(observed.name for observed, _ in found)  # a module may be called like a call of another
    for observed, refs in found:
        leaves: Sequence[Arg] = refs
        if observed.convention is not None and counts[observed.name] == 1:
            values = iter(refs)
            leaves = [next(values) if type(leaf) is Ref else leaf for leaf in observed.convention.gives]
            specs[observed.name] = observed.convention.signature.out_spec
        named[observed.name] = (*named.get(observed.name, ()), *leaves)
    signature = program.signature
    spec = signature.out_spec
    if spec is None:
        spec = pytree.tree_structure(tuple(0 for output in signature.outputs if isinstance(output, UserOutput)))
    for name, refs in named.items():
        specs.setdefault(name, pytree.tree_structure(0 if len(refs) == 1 else (0,) * len(refs)))
    extra = [ref for refs in named.values() for ref in refs]
    return program.with_main(
        Graph(main.inputs, main.nodes, (*results_of(main), *extra)),
        signature=evolve(
            signature,
            outputs=(*signature.outputs, *(UserOutput() for _ in extra)),
            out_spec=pytree.treespec_tuple([spec, pytree.treespec_dict({name: specs[name] for name in named})]),
        ),
    )


def _writes(program: Program) -> bool:
    return any(does.writes or does.writes_slots for effects in program_effects(program).values() for does in effects)


def _is_tensor(graph: Graph, result: Ref) -> bool:
    return isinstance(graph.metas[result.name].get("val"), torch.Tensor)


def _clone(names: Names, ref: Ref, stack: Stack, origin: Meta) -> Node:
    return Node(names.fresh("clone"), CLONE, (ref,), stack=stack, meta=origin)


class _Threading:
    """Gives values through the bodies that they are made in."""

    def __init__(self, program: Program, found: Sequence[Observed]) -> None:
        self.program = program
        self.found = found
        self.copies = _writes(program)
        self.given = {observed.graph: observed.given_by(program.graphs[observed.graph]) for observed in found}
        """What each body gives that is observed."""
        self.wanted: dict[str, dict[Chain, None]] = {}
        """What each graph gives beside its results, as chains below it; () is what it has itself."""
        for observed in found:
            self._want(observed)
        self.made: dict[str, dict[Chain, list[Ref]]] = {}
        """The values of each chain in the graph that it begins in."""

    def _want(self, observed: Observed) -> None:
        graph, path = self.program.root, ""
        for depth, name in enumerate(observed.chain):
            self.wanted.setdefault(graph, {})[observed.chain[depth:]] = None
            call = self.program.graphs[graph].by_name[name].do
            assert type(call) is Call
            path = join(path, call.instance.path)
            if depth + 1 < len(observed.chain) and Frame(path, call.instance.call) in self.program.call_signatures:
                raise UnsupportedProgram(
                    f"{observed.name} cannot be observed: it stands in {path}, whose call signature is preserved, so it gives "
                    f"nothing else; observe {path}, or export without preserve_module_call_signature"
                )
            graph = call.graph
        if self._lacking(graph):
            self.wanted.setdefault(graph, {})[()] = None

    def _lacking(self, name: str) -> list[Ref]:
        # What a body gives, and does not return because nothing uses it.
        returned = results_of(self.program.graphs[name])
        return list(dict.fromkeys(ref for ref in self.given[name] if ref not in returned))

    def observed(self) -> Program:
        """Return the program with further outputs."""
        program = self.program
        graphs = {
            name: self._threaded(name)
            for name in program.bottom_up
            if name in self.wanted or not self.wanted.keys().isdisjoint(program.graphs[name].callees)
        }
        made = self.made.get(program.root, {})
        result = program.with_graphs(graphs)
        return _returning(result, result.main, [(observed, made[observed.chain]) for observed in self.found])

    def _threaded(self, name: str) -> Graph:
        graph, wanted = self.program.graphs[name], self.wanted.get(name, {})
        names, nodes = graph.names(), list[Node]()
        made: dict[Chain, list[Ref]] = {(): self._lacking(name)} if () in wanted else {}
        for node in graph.nodes:
            chains = [chain for chain in wanted if chain[:1] == (node.name,)]
            grows = type(node.do) is Call and node.do.graph in self.wanted
            nodes += self._called(name, node, chains, names, made) if chains or grows else [node]
        self.made[name] = {chain: made[chain] for chain in wanted}
        extra = [ref for chain in wanted for ref in made[chain]]
        output = graph.output if name == self.program.root or not extra else (*results_of(graph), *extra)
        return Graph(graph.inputs, tuple(nodes), output)

    def _called(self, name: str, node: Node, chains: Sequence[Chain], names: Names, made: dict[Chain, list[Ref]]) -> list[Node]:
        # A call with the values behind it that are taken out of its results.
        assert type(node.do) is Call
        body = self.program.graphs[node.do.graph]
        single = type(body.output) is not tuple
        meta = {key: value for key, value in node.meta.items() if key != "val"}
        grows = node.do.graph in self.wanted
        call = node.evolve(name=names.fresh(node.name), meta=meta) if grows and single else node
        if grows and not single:
            call = node.evolve(meta=meta)
        added = (
            [Node(node.name, GETITEM, (Ref(call.name), 0), meta=node.meta, stack=node.stack)] if call.name != node.name else []
        )
        places = self._places(node.do.graph)
        for chain in chains:
            values = self.given[node.do.graph] if len(chain) == 1 else self.made[node.do.graph][chain[1:]]
            for value, number in zip(values, places[chain[1:]], strict=True):
                if single and number == 0:
                    ref = Ref(node.name)
                else:
                    ref = Ref(names.fresh("getitem"))
                    added.append(Node(ref.name, GETITEM, (Ref(call.name), number), stack=node.stack))
                if len(chain) == 1 and self.copies and _is_tensor(body, value):
                    added.append(_clone(names, ref, node.stack, made_of_value(self.program, name, node.name)))
                    ref = Ref(added[-1].name)
                made.setdefault(chain, []).append(ref)
        return [call, *added]

    def _places(self, name: str) -> dict[Chain, list[int]]:
        # Where the values of each chain are among the results of a body, and at () those that it gives itself.
        results: list[Arg] = list(results_of(self.program.graphs[name]))
        found: dict[Chain, list[int]] = {}
        for chain in self.wanted.get(name, ()):
            values = self.made[name][chain]
            found[chain] = [*range(len(results), len(results) + len(values))]
            results += values
        own = {result.name: number for number, result in reversed(list(enumerate(results))) if type(result) is Ref}
        return found | {(): [own[ref.name] for ref in self.given.get(name, ())]}
