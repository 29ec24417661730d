"""``observe``: what inner modules give becomes a further output of the program.

The values travel through the bodies that the calls stand in; a body that several modules share gives them in all of its calls,
and callers take what they need.  For calibration, for features of inner layers, for looking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.analysis.versions import made_of_value
from ...ir.arguments import Arg, Ref
from ...ir.calls.parts import part_names
from ...ir.effects.resolved import program_effects
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Frame, Get, Graph, Node, Op, Stack
from ...ir.meta import Meta
from ...ir.names import Names, join
from ...ir.operators import GETITEM, op_of
from ...ir.origins import made_of
from ...ir.program import Program
from ...ir.signature import StateInput, StateMutation, UserOutput
from ...ir.taking import a_program
from ...ir.torch_private import pytree
from ..cleanup import infer
from ..effect_tokens import remove_effect_tokens
from ..insert_ivals import insert_ivals
from ..mutations import inplace_mutations
from ..outline import outline
from ..state import sink_state
from .calls import Chain, Observed, found_calls, results_of, values_given

__all__ = ["observe"]

CLONE = op_of(torch.ops.aten.clone.default)


def observe(program: Program, paths: str | Sequence[str]) -> Program:
    """Let a program return what inner modules give: ``(result, {path: value})``.

    Before::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z,)

    After ``observe(program, "up")``::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z, y)      # (z, {"up": y})

    A module gives the values that the rest of the program uses of it: what its ``forward`` returned, as far as a trace tells it
    (a tuple if there are several; of a module exported with ``preserve_module_call_signature`` exactly what it returned).
    A value that the program writes somewhere is copied where the module gives it, otherwise it is the tensor itself, as a forward
    hook gets it.  A module that is called again is ``path@1``, ``path@2`` ..., in the order of the calls.

    Laws: what the program gave before, and what it writes, is what it was; what is observed is what a forward hook of eager gets.

    Args:
        program: flat, or a tree with shared bodies; before it is split.
        paths: globs of module paths, such as ``layers.*.mlp``.

    Returns:
        The program with further outputs, flat if it was flat.

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
    program = infer(program)
    if not any(type(node.do) is Call for _, node in program.nodes()):
        return infer(_flat(program, globs))
    if any(isinstance(spec, StateMutation) for spec in program.signature.outputs):
        raise UnsupportedProgram(
            "observe takes a tree whose state is written in place, for else new state is among what modules give: "
            "observe the flat program, or the result of transform(program)"
        )
    return infer(_Threading(program, found_calls(program, globs)).observed())


def _globs(paths: Any) -> list[str]:
    globs: list[Any] = [paths] if isinstance(paths, str) or not isinstance(paths, list | tuple | set | frozenset) else list(paths)
    if not all(isinstance(glob, str) for glob in globs):
        raise TypeError(f"observe takes globs of module paths, such as 'layers.*.mlp', not {paths!r}")
    return sorted(globs) if isinstance(paths, set | frozenset) else globs


def _returning(program: Program, main: Graph, given: Sequence[tuple[str, Sequence[Ref]]]) -> Program:
    # The program that returns values beside its result, in a dict by their names.
    named: dict[str, tuple[Ref, ...]] = {}
    for name, refs in given:
        named[name] = (*named.get(name, ()), *refs)
    signature = program.signature
    spec = signature.out_spec
    if spec is None:
        spec = pytree.tree_structure(tuple(0 for output in signature.outputs if isinstance(output, UserOutput)))
    leaves = {name: refs[0] if len(refs) == 1 else refs for name, refs in named.items()}
    extra = [ref for refs in named.values() for ref in refs]
    return program.with_main(
        Graph(main.inputs, main.nodes, (*results_of(main), *extra)),
        signature=evolve(
            signature,
            outputs=(*signature.outputs, *(UserOutput() for _ in extra)),
            out_spec=pytree.treespec_tuple([spec, pytree.tree_structure(leaves)]),
        ),
    )


def _writes(program: Program) -> bool:
    return any(does.writes or does.writes_slots for effects in program_effects(program).values() for does in effects)


def _is_tensor(graph: Graph, number: int) -> bool:
    # Of a result of a body.
    result = results_of(graph)[number]
    if type(result) is not Ref:
        return False
    item = graph.by_name.get(result.name) or next(item for item in graph.inputs if item.name == result.name)
    return isinstance(item.meta.get("val"), torch.Tensor)


def _flat(program: Program, globs: Sequence[str]) -> Program:
    # Values bear the same names in the tree, which says what modules give: new state is none of it there.
    sunk = insert_ivals(sink_state(inplace_mutations(remove_effect_tokens(program))))
    tree, main, copies = outline(sunk), program.main, _writes(program)
    names, added = main.names(), dict[int, list[Node]]()
    places = _places(main, sunk.main)
    known = _known(program, sunk)
    given: list[tuple[str, list[Ref]]] = []
    for observed in found_calls(tree, globs):
        body, refs = tree.graphs[observed.graph], list[Ref]()
        place = max(places[name] for name in _inside(tree, observed.graph) if name in places)
        for number in values_given(body):
            ref = known[results_of(body)[number]]
            if copies and _is_tensor(body, number):
                stack = main.nodes[place - 1].stack[: len(observed.chain) - 1]
                added.setdefault(place, []).append(_clone(names, ref, stack, made_of([main.metas[ref.name]])))
                ref = Ref(added[place][-1].name)
            refs.append(ref)
        given.append((observed.name, refs))
    nodes = [*added.get(0, ()), *(each for place, node in enumerate(main.nodes, 1) for each in (node, *added.get(place, ())))]
    return _returning(program, main.with_nodes(nodes) if added else main, given)


def _places(main: Graph, sunk: Graph) -> Mapping[str, int]:
    # How many nodes of the flat graph have run when a node of the sunk one has; a node that is not in it counts as that before.
    flat = {node.name: number for number, node in enumerate(main.nodes, 1)}
    found, done = dict[str, int](), 0
    for node in sunk.nodes:
        found[node.name] = done = flat.get(node.name, done)
    return found


def _known(program: Program, sunk: Program) -> Mapping[Arg, Ref]:
    # For each value of the sunk program that of the flat one: reads of state are inputs there, and copies are what they copy.
    slots = sunk.state.slots
    formals = {slots[spec.slot].cell: Ref(formal.name) for formal, spec in program.inputs if isinstance(spec, StateInput)}
    found = {Ref(item.name): Ref(item.name) for item in (*program.main.inputs, *program.main.nodes)}
    for node in sunk.main.nodes:
        ref = Ref(node.name)
        if ref in found:
            continue
        if type(node.do) is Get:
            found[ref] = formals[slots[node.do.slot].cell]
        elif type(node.do) is Op and node.do.name == CLONE.name and node.args[0] in found:
            found[ref] = found[node.args[0]]
    return found


def _clone(names: Names, ref: Ref, stack: Stack, origin: Meta) -> Node:
    return Node(names.fresh("clone"), CLONE, (ref,), stack=stack, meta=origin)


def _inside(program: Program, graph: str) -> Iterator[str]:
    # The nodes of a body and of those that it calls.
    todo = [graph]
    while todo:
        body = program.graphs[todo.pop()]
        yield from (node.name for node in body.nodes)
        todo += [node.do.graph for node in body.callers if type(node.do) is Call]


class _Threading:
    """Gives values through the bodies that they are made in."""

    def __init__(self, program: Program, found: Sequence[Observed]) -> None:
        self.program = program
        self.found = found
        self.copies = _writes(program)
        self.wanted: dict[str, dict[Chain, None]] = {}
        """What each graph gives beside its results, as chains below it."""
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
        return _returning(result, result.main, [(observed.name, made[observed.chain]) for observed in self.found])

    def _threaded(self, name: str) -> Graph:
        graph, wanted = self.program.graphs[name], self.wanted.get(name, {})
        names, nodes = graph.names(), list[Node]()
        made: dict[Chain, list[Ref]] = {}
        for node in graph.nodes:
            chains = [chain for chain in wanted if chain[0] == node.name]
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
        given = self._starts(node.do.graph)
        for chain in chains:
            if len(chain) == 1:
                numbers, is_new = values_given(body), True
            else:
                start = given[chain[1:]]
                numbers, is_new = list(range(start, start + len(self.made[node.do.graph][chain[1:]]))), False
            for number in numbers:
                if single and len(chain) == 1:
                    ref = Ref(node.name)
                else:
                    ref = Ref(names.fresh("getitem"))
                    added.append(Node(ref.name, GETITEM, (Ref(call.name), number), stack=node.stack))
                if is_new and self.copies and _is_tensor(body, number):
                    added.append(_clone(names, ref, node.stack, made_of_value(self.program, name, node.name)))
                    ref = Ref(added[-1].name)
                made.setdefault(chain, []).append(ref)
        return [call, *added]

    def _starts(self, name: str) -> dict[Chain, int]:
        # Where the values of each chain begin among the results of a body.
        body = self.program.graphs[name]
        count = len(body.output) if type(body.output) is tuple else 1
        found: dict[Chain, int] = {}
        for chain in self.wanted.get(name, ()):
            found[chain] = count
            count += len(self.made[name][chain])
        return found
