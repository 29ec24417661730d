"""``executable``: reduce a root to user inputs and user outputs: reads of state, writes in place, no effect tokens.

``with_saved_values`` prepares programs whose new contents stay outputs.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ..ir.arguments import Arg, Ref
from ..ir.effects.resolved import node_effects, slot_views, views_of
from ..ir.graph import Graph, Input, Node
from ..ir.inference import clone_value
from ..ir.names import word_of
from ..ir.operators import op_of
from ..ir.program import Program
from ..ir.signature import GIVEN, InputMutation, StateInput, StateMutation, UserInput
from ..transforms import inplace_mutations, remove_effect_tokens, sink_state

__all__ = ["executable", "with_saved_values"]

CLONE = op_of(torch.ops.aten.clone.default)


def executable(program: Program) -> Program:
    """Return a program whose root has only user inputs and user outputs.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> executable(program) is program
    True
    """
    signature = program.signature
    if all(type(spec) is UserInput for spec in signature.inputs) and all(type(spec) in GIVEN for spec in signature.outputs):
        return program
    read = {spec.slot for spec in signature.inputs if type(spec) is StateInput}
    written = dict.fromkeys([spec.slot for spec in signature.outputs if type(spec) is StateMutation and spec.slot not in read])
    if written:  # a write needs a read of the slot
        names, inputs = program.main.names(), program.main.inputs
        main = evolve(program.main, inputs=(*inputs, *[Input(names.fresh(word_of(slot))) for slot in written]))
        program = program.with_boundary(main, (*signature.inputs, *map(StateInput, written)))
    for step in (remove_effect_tokens, inplace_mutations, sink_state):
        program = step.apply(program)  # works on trees too; only the laws of these passes require flat programs
    return program


def with_saved_values(program: Program) -> Program:
    """Clone outputs so that new contents are distinct values, and no other output aliases the contents that they replace.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_saved_values(program) is program
    True
    """
    graph, specs = program.main, program.signature.outputs
    owner = {spec.slot: formal.name for formal, spec in program.inputs if type(spec) is StateInput}
    targets = {number: owner.get(spec.slot) for number, spec in enumerate(specs) if type(spec) is StateMutation}
    targets |= {number: graph.inputs[spec.index].name for number, spec in enumerate(specs) if type(spec) is InputMutation}
    if not targets:
        return program
    views = views_of(program, node_effects(program, graph))
    written: set[object] = {graph.inputs[spec.index].name for spec in specs if type(spec) is InputMutation}
    written.update(*[slot_views(program, spec.slot) for spec in specs if type(spec) is StateMutation])
    names, clones, saved, used = graph.names(), list[Node](), dict[Arg, Ref](), set[Arg]()

    def clone(value: Ref, original: Ref) -> Ref:
        meta = graph.metas[original.name]
        known = {"val": clone_value(meta["val"])} if "val" in meta else {}
        clones.append(Node(names.fresh("clone"), CLONE, (value,), meta=known))
        return Ref(clones[-1].name)

    output: list[Arg] = []
    for number, arg in enumerate(graph.output):
        original, target = arg, targets.get(number)
        if type(original) is Ref and original.name != target:
            if not written.isdisjoint(views[original.name]):
                arg = saved[original] = saved.get(original) or clone(original, original)
            if target is not None and arg in used:
                arg = clone(arg, original)
        if target is not None:
            used.add(arg)
        output.append(arg)
    return program.with_main(Graph(graph.inputs, (*graph.nodes, *clones), tuple(output))) if clones else program
