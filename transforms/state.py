"""``sink_state`` and ``lift_state``: convert state between reads where it is used and inputs of the flat program.

They are inverses.
"""

from __future__ import annotations

from collections.abc import Container

from ..ir.arguments import Ref
from ..ir.errors import PipelineError
from ..ir.graph import Get, Graph, Input, Node
from ..ir.meta import EMPTY_META
from ..ir.names import Names, word_of
from ..ir.persistent import grouped
from ..ir.program import Program
from ..ir.rewriter import Rewriter, with_reads
from ..ir.signature import InputSpec, StateInput, SunkInput, UserInput
from ..ir.state import exporter_name, reads_value
from .transformation import ADVICE, UNLIMITED, Fuel, transformation


@transformation(
    proven=True,
    requires={"flat"},
    establishes={"state sunk"},
    forgets={"state as inputs"},
    inverse="lift_state",
    laws=[
        "only reads are added",
        "no input is state afterwards",
        "each read lies below the module call that makes it",
    ],
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
    state = {
        formal.name: (spec.slot, formal.meta)
        for formal, spec in program.inputs
        if type(spec) is StateInput and fuel.burn("sink", formal.name, "=", spec.slot)
    }
    if not state:
        return program
    made, used = with_reads(program.main, program.state, state)
    kept = [(formal, spec) for formal, spec in program.inputs if formal.name not in state]
    lifted = (*program.signature.lifted, *_sunk_inputs(program, state, used))
    root = Graph(tuple([formal for formal, _ in kept]), made.nodes, made.output)
    return program.with_boundary(root, [spec for _, spec in kept], lifted=lifted)


def _sunk_inputs(program: Program, sunk: Container[str], used: Container[str]) -> list[SunkInput]:
    # Positions among the user inputs, because tokens may be removed later.
    found: list[SunkInput] = []
    users = 0
    for formal, spec in program.inputs:
        users += type(spec) is UserInput
        if type(spec) is StateInput and formal.name in sunk:
            found.append(SunkInput(spec.slot, users, formal.name in used))
    return found


@transformation(
    proven=True,
    requires={"flat"},
    establishes={"state as inputs"},
    forgets={"state sunk"},
    inverse="sink_state",
    laws=[
        "only reads are removed",
        "the root reads no state afterwards but the modules that it calls",
        "tied reads become one input",
    ],
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

    State that was not an input before ``sink_state`` (a read that was added later) comes before the user inputs, in the order of
    the state.  If two inputs were one tensor under two names, reads under a third name use the first.
    Modules that the program calls as they are stay reads, because no input can be a module.

    Args:
        program: a flat program.
        fuel: everything is one rewrite.

    Returns:
        The program with state inputs, as ``torch.export`` has them.

    Raises:
        PipelineError: the program calls modules.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.lift_state(program) is program
    True
    """
    graph = program.main
    reads = program.signature.lifted or any(program.graphs[name].reads for name in program.order)
    if reads and graph.called:
        # The root has no reads, but the bodies that it calls may have some.
        raise PipelineError(
            f"lift_state requires a program that is 'flat', but this one is not; {ADVICE['flat']}"
        )
    read = any(reads_value(program.state, node.do) for node in graph.nodes)
    if not program.signature.lifted and not read:
        return program
    return _Lifting(program).program() if fuel.burn("lift the state") else program


class _Lifting:
    """Computes one input for each tensor."""

    def __init__(self, source: Program) -> None:
        self.source = source
        self.state = source.state
        self.reads = [node for node in source.main.nodes if reads_value(self.state, node.do)]
        self.present = {slot: name for name, slot in source.state_inputs.items()}
        """The inputs that are already state, by slot."""
        sunk = [place for place in source.signature.lifted if place.slot not in self.present]
        self.places = [(place.slot, place.behind) for place in sunk]
        """The new inputs: the slot, and the number of user inputs before it."""
        self.slots = {*self.present, *(place.slot for place in sunk if place.used)}
        self.of_cell: dict[int, str] = {}
        """The slot of the input of each tensor; slots in use are preferred."""
        for slot in (
            *self.present,
            *(place.slot for place in sorted(sunk, key=lambda place: not place.used)),
        ):
            self.of_cell.setdefault(self.state[slot].cell, slot)
        self._add_unknown()

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
        graph = self.source.main
        formals = self._formals()
        replacements = {slot: Ref(name) for slot, name in self.present.items()}
        replacements.update((slot, Ref(formal.name)) for slot, formal in formals.items())
        edit = Rewriter(graph)
        for node in self.reads:
            edit.drop(node.name, replacements[self._slot_of(node)])
        pairs = self._order(formals)
        root = edit.graph(inputs=tuple([formal for formal, _ in pairs]))
        return self.source.with_boundary(root, [spec for _, spec in pairs], lifted=())

    def _slot_of(self, read: Node) -> str:
        slot = _slot(read)
        return slot if slot in self.slots else self.of_cell[self.state[slot].cell]

    def _formals(self) -> dict[str, Input]:
        # An input is named after its first read, which has the former name of the input; an unused one after its slot.
        reads = grouped([(self._slot_of(node), node) for node in self.reads])
        names = self.source.main.names()
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
        # The read has another name of the tensor, as `expand` names it.
        wanted = exporter_name(slot, self.state[slot])
        return wanted if any(node.name == wanted for node in reads) else names.fresh(wanted)

    def _order(self, formals: dict[str, Input]) -> list[tuple[Input, InputSpec]]:
        waiting = grouped(
            [(users, (formals[slot], StateInput(slot))) for slot, users in self.places]
        )
        found: list[tuple[Input, InputSpec]] = []
        users = 0
        for formal, spec in self.source.inputs:
            if type(spec) is UserInput:
                found += waiting.pop(users, ())
                users += 1
            found.append((formal, spec))
        return found + [pair for number in sorted(waiting) for pair in waiting[number]]


def _slot(node: Node) -> str:
    assert type(node.do) is Get
    return node.do.slot
