"""``sink_state`` and ``lift_state``: state as reads where it is used, or as inputs of the flat program.

Each undoes the other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from attrs import evolve

from ..ir.arguments import Arg, Ref, map_refs
from ..ir.errors import PipelineError
from ..ir.graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from ..ir.meta import EMPTY_META
from ..ir.names import Names, word_of
from ..ir.own_operators import TAKES
from ..ir.program import Program
from ..ir.rewriter import Rewriter
from ..ir.signature import InputMutation, InputSpec, StateInput, SunkInput, UserInput
from ..ir.state import exporter_name, reading_place
from .transformation import ADVICE, UNLIMITED, Fuel, transformation

__all__ = ["lift_state", "sink_state"]


@transformation(
    proven=True,
    requires={"flat"},
    establishes={"state sunk"},
    forgets={"state as inputs"},
    inverse="lift_state",
    laws=["only reads are added", "no input is state afterwards", "each read lies below the module call that makes it"],
)
def sink_state(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Read state where it is used instead of taking it as an input.

    Before::

        inputs p_lin_weight = state "lin.weight", x
        linear = aten.linear.default(x, p_lin_weight)      in lin

    After::

        inputs x
        p_lin_weight = get "lin.weight"                     in lin
        linear = aten.linear.default(x, p_lin_weight)      in lin

    Args:
        program: a flat program.
        fuel: a rewrite is one input that becomes reads, in the order of the inputs.

    Returns:
        The program with user inputs only.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.sink_state(program) is program
    True
    """
    specs = program.signature.inputs
    if not any(type(spec) is StateInput for spec in specs):
        return program
    graph = program.main
    state = {
        formal.name: (formal, spec.slot)
        for formal, spec in zip(graph.inputs, specs, strict=True)
        if type(spec) is StateInput and fuel.burn("sink", formal.name, "=", spec.slot)
    }
    if not state:
        return program
    walk = _Sinking(program, state)
    nodes, output = walk.run()
    kept = [index for index, formal in enumerate(graph.inputs) if formal.name not in state]
    moved = {old: new for new, old in enumerate(kept)}
    outputs = tuple(
        InputMutation(moved[spec.index]) if type(spec) is InputMutation and spec.index in moved else spec
        for spec in program.signature.outputs
    )
    lifted = (*program.signature.lifted, *_sunk_inputs(graph, specs, state, walk.used))
    signature = evolve(program.signature, inputs=tuple(specs[index] for index in kept), outputs=outputs, lifted=lifted)
    inputs = tuple(graph.inputs[index] for index in kept)
    return program.with_main(Graph(inputs, nodes, output), signature=signature)


def _sunk_inputs(graph: Graph, specs: tuple[InputSpec, ...], sunk: Container[str], used: Container[str]) -> list[SunkInput]:
    # Positions among the user inputs: tokens may go in the meantime, and nothing else stands between.
    found: list[SunkInput] = []
    users = 0
    for formal, spec in zip(graph.inputs, specs, strict=True):
        users += type(spec) is UserInput
        if type(spec) is StateInput and formal.name in sunk:
            found.append(SunkInput(spec.slot, users, formal.name in used))
    return found


class _Sinking:
    """One walk over the flat graph that puts a read before the first use in each module call."""

    def __init__(self, program: Program, state: dict[str, tuple[Input, str]]) -> None:
        self.program = program
        self.graph = program.main
        self.state = state
        self.names = self.graph.names()
        self.readers: dict[tuple[str, Frame | None], Ref] = {}
        self.used: set[str] = set()
        """Inputs that something reads."""
        self.nodes: list[Node] = []

    def run(self) -> tuple[tuple[Node, ...], Arg]:
        state, nodes = self.state.keys(), self.nodes
        for node in self.graph.nodes:
            read = node if state.isdisjoint(node.refs()) else self._read_for(node)
            nodes.append(read)
        output = map_refs(self.graph.output, lambda ref: self._read(ref, ()))
        return tuple(nodes), output

    def _read_for(self, node: Node) -> Node:
        # What a call takes is read by its caller.
        stack = node.stack[:-1] if type(node.do) is Op and node.do.name == TAKES.name else node.stack
        return node.with_refs(lambda ref: self._read(ref, stack))

    def _read(self, ref: object, stack: Stack) -> object:
        if type(ref) is not Ref or ref.name not in self.state:
            return ref
        formal, slot = self.state[ref.name]
        depth, name = reading_place(self.program.state, slot, stack)
        # The innermost frame stands for the scope: a path and a call number name one call.
        key = (ref.name, stack[depth - 1] if depth else None)
        reader = self.readers.get(key)
        if reader is None:
            reader = Ref(self.names.fresh(ref.name)) if ref.name in self.used else ref
            self.used.add(ref.name)
            self.readers[key] = reader
            self.nodes.append(Node(reader.name, Get(name), (), (), stack[:depth], formal.meta))
        return ref if reader.name == ref.name else reader


@transformation(
    proven=True,
    requires={"flat"},
    establishes={"state as inputs"},
    forgets={"state sunk"},
    inverse="sink_state",
    laws=["only reads are removed", "the root reads no state afterwards", "tied reads become one input"],
)
def lift_state(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Take state as inputs instead of reading it.

    Before::

        inputs x
        p_lin_weight = get "lin.weight"                     in lin
        linear = aten.linear.default(x, p_lin_weight)      in lin

    After::

        inputs p_lin_weight = state "lin.weight", x
        linear = aten.linear.default(x, p_lin_weight)      in lin

    State that ``sink_state`` did not have as an input (a read that was written later) comes before the user inputs, in the
    order of the state.  Of two inputs that were one tensor under two names, a read under a third name gets the first.

    Args:
        program: a flat program.
        fuel: a rewrite is one input, with the reads that it stands for: those that are inputs already, then those that come.

    Returns:
        The program with state inputs, as ``torch.export`` makes them.

    Raises:
        PipelineError: the program calls modules.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.lift_state(program) is program
    True
    """
    graph = program.main
    reads = bool(program.signature.lifted) or any(type(node.do) is Get for _, node in program.nodes())
    if reads and any(type(node.do) is Call for node in graph.nodes):
        # A root without reads looks as if nothing were to do; but the bodies that it calls may have them.
        raise PipelineError(f"lift_state requires a program that is 'flat', but this one is not; {ADVICE['flat']}")
    if not program.signature.lifted and not any(type(node.do) is Get for node in graph.nodes):
        return program
    lifting = _Lifting(program, fuel)
    return lifting.program() if lifting.chosen or not fuel.refused else program


class _Lifting:
    """Works out one input for each tensor; plain lists inside, frozen at the end."""

    def __init__(self, source: Program, fuel: Fuel) -> None:
        self.source = source
        self.state = source.state
        self.pairs = list(zip(source.main.inputs, source.signature.inputs, strict=True))
        self.reads = [node for node in source.main.nodes if type(node.do) is Get]
        self.taken = {spec.slot: formal.name for formal, spec in self.pairs if type(spec) is StateInput}
        """State that is an input already: the input by slot."""
        sunk = [place for place in source.signature.lifted if place.slot not in self.taken]
        self.places = [(place.slot, place.behind) for place in sunk]
        """The inputs to come: the slot, and how many user inputs stand before it."""
        self.slots = {*self.taken, *(place.slot for place in sunk if place.used)}
        self.of_cell: dict[int, str] = {}
        """The slot that is the input for each tensor; those that were used come first."""
        for slot in (*self.taken, *(place.slot for place in sorted(sunk, key=lambda place: not place.used))):
            self.of_cell.setdefault(self.state[slot].cell, slot)
        self._add_unknown()
        read = dict.fromkeys(slot for node in self.reads if (slot := self._slot_of(node)) in self.taken)
        wanted = (*read, *(slot for slot, _ in self.places))
        self.chosen = {slot for slot in wanted if fuel.burn("lift", slot)}
        self.places = [place for place in self.places if place[0] in self.chosen]
        self.whole = not fuel.refused

    def _add_unknown(self) -> None:
        found: dict[int, str] = {}
        for node in self.reads:
            slot = _slot(node)
            if slot not in self.slots and self.state[slot].cell not in self.of_cell:
                found.setdefault(self.state[slot].cell, slot)
        if found:
            rank = {name: index for index, name in enumerate(self.state.order)}
            self.of_cell.update(found)
            self.places += [(slot, 0) for slot in sorted(found.values(), key=rank.__getitem__)]

    def program(self) -> Program:
        """Return the program with the inputs, and without the reads."""
        graph, signature = self.source.main, self.source.signature
        formals = self._formals()
        given = {slot: Ref(name) for slot, name in self.taken.items()}
        given.update((slot, Ref(formal.name)) for slot, formal in formals.items())
        known = {node.name: given[slot] for node in self.reads if (slot := self._slot_of(node)) in self.chosen}
        edit = Rewriter(graph)
        edit.erase(*known)
        for name, formal in known.items():
            edit.replace(name, formal)
        order = self._order(formals)
        moved = {old: new for new, (_, _, old) in enumerate(order) if old >= 0}
        outputs = tuple(InputMutation(moved[spec.index]) if type(spec) is InputMutation else spec for spec in signature.outputs)
        inputs = tuple([formal for formal, _, _ in order])
        left = () if self.whole else tuple([place for place in signature.lifted if place.slot not in self.chosen])
        signature = evolve(signature, inputs=tuple([spec for _, spec, _ in order]), outputs=outputs, lifted=left)
        return self.source.with_main(edit.graph(inputs=inputs), signature=signature)

    def _slot_of(self, read: Node) -> str:
        slot = _slot(read)
        return slot if slot in self.slots else self.of_cell[self.state[slot].cell]

    def _formals(self) -> dict[str, Input]:
        # An input is named after its first read, which bears the name that it had; an unused one after its slot.
        reads: dict[str, list[Node]] = {}
        for node in self.reads:
            reads.setdefault(self._slot_of(node), []).append(node)
        graph = self.source.main
        names = graph.names()
        formals: dict[str, Input] = {}
        for slot, _ in self.places:
            found = reads.get(slot)
            name = names.fresh(word_of(slot)) if found is None else self._named(slot, found, names)
            formals[slot] = Input(name, EMPTY_META if found is None else found[0].meta)
        return formals

    def _named(self, slot: str, reads: list[Node], names: Names) -> str:
        name, own = reads[0].name, _slot(reads[0])
        if own == slot or name != exporter_name(own, self.state[own]):
            return name
        # The read is called after another name of the tensor, as `expand` calls it.
        wanted = exporter_name(slot, self.state[slot])
        return wanted if any(node.name == wanted for node in reads) else names.fresh(wanted)

    def _order(self, formals: dict[str, Input]) -> list[tuple[Input, InputSpec, int]]:
        # Each input with its spec and the position that it had, -1 for a new one.
        waiting: dict[int, list[str]] = {}
        for slot, users in self.places:
            waiting.setdefault(users, []).append(slot)
        found: list[tuple[Input, InputSpec, int]] = []

        def place(slots: Iterable[str]) -> None:
            found.extend((formals[slot], StateInput(slot), -1) for slot in slots)

        users = 0
        for index, (formal, spec) in enumerate(self.pairs):
            if type(spec) is UserInput:
                place(waiting.pop(users, ()))
                users += 1
            found.append((formal, spec, index))
        for number in sorted(waiting):
            place(waiting[number])
        return found


def _slot(node: Node) -> str:
    assert type(node.do) is Get
    return node.do.slot
