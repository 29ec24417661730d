"""``with_state``: a program whose state has other names, everywhere where a program names state.

One idea: a name of state stands in the state, the signature and the reads; a read is relative to the module that its body
stands in, so it is resolved from each place of the body, renamed, and written relative again.  It chooses no names.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from ...ir.callers import all_places
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Graph
from ...ir.listing import with_listed
from ...ir.node import Get, Node
from ...ir.parts import part_names
from ...ir.paths import FROM_ROOT, join, relative
from ...ir.program import Module, Program
from ...ir.signature import StateGradient, StateInput, StateMutation, SunkInput
from ...ir.state import State

__all__ = ["with_state"]


def with_state(program: Program, state: State, names: Mapping[str, str], modules: Mapping[str, Module]) -> Program:
    """Return a program with another state.

    Args:
        program: any valid program.
        state: the state that it shall have.
        names: what each slot of the program that is called otherwise now is called in that.
        modules: of the modules that hold state now those that are known, by path.

    Raises:
        UnsupportedProgram: a body that several modules share would have to read state under several names, or state would
            leave the parts of a split program.

    >>> from purefx.ir import Slot, SlotKind, pmap
    >>> slot = Slot(SlotKind.BUFFER, None, 0, 0)
    >>> program = Program.of({"": Graph((), (Node("w", Get("c")),))}, state=State(("c",), pmap({"c": slot})))
    >>> with_state(program, State(("lin.w",), pmap({"lin.w": slot})), {"c": "lin.w"}, {}).main.nodes[0].do
    Get(slot='lin.w')
    """
    _check_parts(program, state)
    places = all_places(program) if names else {}
    graphs = {name: _renamed(program.graphs[name], name, places[name], names) for name in places}
    changed = {name: graph for name, graph in graphs.items() if graph is not program.graphs[name]}
    owners = [slot.rpartition(".")[0] for slot in state.order]
    listed = with_listed(program.modules, owners, {path: module.type_name for path, module in modules.items()})
    signature = _signature(program, names)
    return program.evolve(graphs=program.graphs.update(changed), state=state, signature=signature, modules=listed)


def _check_parts(program: Program, state: State) -> None:
    parts = part_names(program)
    strange = [name for name in state if name not in program.state and name.partition(".")[0] not in parts] if parts else []
    if strange:
        raise UnsupportedProgram(
            f"the program is split, so its state lies in the parts, and {strange[0]!r} is in none: restore names before "
            "split_by_tags, or join the parts first"
        )


def _renamed(graph: Graph, name: str, places: tuple[str, ...], names: Mapping[str, str]) -> Graph:
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        do = node.do
        if type(do) is Get:
            slot = _slot(do.slot, name, places, names)
            if slot != do.slot:
                changed = True
                node = Node(node.name, Get(slot), node.args, node.kwargs, node.stack, node.meta)
        nodes.append(node)
    return Graph(graph.inputs, tuple(nodes), graph.output) if changed else graph


def _slot(slot: str, graph: str, places: tuple[str, ...], names: Mapping[str, str]) -> str:
    olds = [join(place, slot) for place in places]
    news = [names.get(old, old) for old in olds]
    if news == olds:
        return slot
    ways = {relative(new, place) for new, place in zip(news, places, strict=True)}
    if len(ways) == 1:
        return ways.pop()
    if len(set(news)) == 1:
        return FROM_ROOT + news[0]
    raise UnsupportedProgram(
        f"the body {graph!r} is shared by {', '.join(map(repr, places[:3]))}, and what it reads as {slot!r} is to be called "
        f"{', '.join(map(repr, news[:3]))}; give the names before deduplicate, or expand the program first"
    )


def _signature(program: Program, names: Mapping[str, str]) -> object:
    signature = program.signature
    if not names:
        return signature
    inputs = [StateInput(names.get(one.slot, one.slot)) if type(one) is StateInput else one for one in signature.inputs]
    outputs = [
        type(one)(names.get(one.slot, one.slot)) if isinstance(one, StateMutation | StateGradient) else one
        for one in signature.outputs
    ]
    lifted = [SunkInput(names.get(place.slot, place.slot), place.behind, place.used) for place in signature.lifted]
    return evolve(signature, inputs=tuple(inputs), outputs=tuple(outputs), lifted=tuple(lifted))
