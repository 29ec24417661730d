"""Mistakes with writes: when they happen, what they overtake, which memory they reach.

A mutation that a program returns happens after everything; one in the program happens where it stands.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from purefx.ir.arguments import map_refs
from purefx.laws import toy

from .mistake import Nodes, mistake, using, values_used, with_nodes


@mistake("flat", "meaning")
def writes_at_once(program: px.Program) -> px.Program:
    result = px.inplace_mutations(program)
    made = {node.name: index for index, node in enumerate(program.main.nodes)}
    old = [node for node in result.main.nodes if node.name in made]
    for node in reversed([node for node in result.main.nodes if node.name not in made and node.do == toy.COPY_]):
        names = [other.name for other in old]
        value = node.args[1].name
        old.insert(names.index(value) + 1 if value in names else 0, node)
    clones = [node for node in result.main.nodes if node.name not in made and node.do == toy.CLONE]
    return result if clones else with_nodes(result, old)


@mistake("flat", "meaning")
def writes_after_the_last_use_by_name(program: px.Program) -> px.Program:
    # A view of the old contents bears another name.
    result = px.inplace_mutations(program)
    known = {node.name for node in program.main.nodes}
    nodes = list(result.main.nodes)
    for node in [node for node in nodes if node.name not in known and node.do == toy.COPY_]:
        nodes.remove(node)
        names = set(node.refs())
        last = max((at for at, other in enumerate(nodes) if other.name in names or names & set(other.refs())), default=-1)
        nodes.insert(last + 1, node)
    return with_nodes(result, nodes)


@mistake("flat", "meaning")
def saves_nothing(program: px.Program) -> px.Program:
    result = px.inplace_mutations(program)
    known = {node.name for node in program.main.nodes}
    saved = {node.name: node.args[0] for node in result.main.nodes if node.name not in known and node.do == toy.CLONE}

    def use(arg: object) -> object:
        return map_refs(arg, lambda ref: saved.get(ref.name, ref) if type(ref) is px.Ref else ref)

    nodes = [evolve(node, args=use(node.args)) for node in result.main.nodes if node.name not in saved]
    return result if not saved else result.with_main(px.Graph(result.main.inputs, tuple(nodes), use(result.main.output)))


def without_output(program: px.Program, index: int) -> px.Program:
    """Return the program without one of its outputs."""
    outputs = (*program.signature.outputs[:index], *program.signature.outputs[index + 1 :])
    output = (*program.main.output[:index], *program.main.output[index + 1 :])
    return program.with_main(evolve(program.main, output=output), signature=evolve(program.signature, outputs=outputs))


@mistake("flat", "meaning")
def forgets_a_mutation(program: px.Program) -> px.Program:
    for index, spec in enumerate(program.signature.outputs):
        if type(spec) is px.ir.StateMutation:
            return without_output(program, index)
    return program


@mistake("flat", "meaning")
def writes_each_value_once(program: px.Program) -> px.Program:
    # A dictionary from values to what they are written to: a value that is the new contents of two has one place in it.
    targets = {
        arg.name: index
        for index, (arg, spec) in enumerate(zip(program.main.output, program.signature.outputs, strict=True))
        if type(spec) in (px.ir.StateMutation, px.ir.InputMutation)
    }
    for index, spec in reversed(list(enumerate(program.signature.outputs))):
        if type(spec) in (px.ir.StateMutation, px.ir.InputMutation) and targets[program.main.output[index].name] != index:
            program = without_output(program, index)
    return px.inplace_mutations(program)


@mistake("flat", "meaning")
def counts_the_users_inputs_only(program: px.Program) -> px.Program:
    # A mutated input is named by its number among all inputs, state included.
    users = [index for index, spec in enumerate(program.signature.inputs) if type(spec) is px.ir.UserInput]

    def shifted(spec: object) -> object:
        return px.ir.InputMutation(users.index(spec.index)) if type(spec) is px.ir.InputMutation else spec

    outputs = tuple(map(shifted, program.signature.outputs))
    if outputs == program.signature.outputs:
        return px.inplace_mutations(program)
    return px.inplace_mutations(program.evolve(signature=evolve(program.signature, outputs=outputs)))


@mistake("in place", "meaning")
def returns_every_copy(program: px.Program) -> px.Program:
    # Every copy_ into state becomes a returned value, also when what comes after it reads the new contents.
    slots = {
        formal.name: spec.slot
        for formal, spec in zip(program.main.inputs, program.signature.inputs, strict=True)
        if type(spec) is px.ir.StateInput
    }
    copies = {node.args[0].name: node for node in program.main.nodes if is_copy(node) and node.args[0].name in slots}
    copies = {target: node for target, node in copies.items() if node.name not in values_used(program)}
    if not copies:
        return program
    nodes = [node for node in program.main.nodes if node not in copies.values()]
    signature = evolve(
        program.signature, outputs=(*(px.ir.StateMutation(slots[name]) for name in copies), *program.signature.outputs)
    )
    output = (*(node.args[1] for node in copies.values()), *program.main.output)
    return program.with_main(px.Graph(program.main.inputs, tuple(nodes), output), signature=signature)


def is_copy(node: px.Node) -> bool:
    """Say whether a node copies one value into another."""
    return node.do == toy.COPY_


@mistake("in place", "meaning")
def reads_the_new_value_too_early(program: px.Program) -> px.Program:
    # After a copy_ the target is the value that was copied; before it, it is not.
    new = {node.args[0].name: node.args[1].name for node in program.main.nodes if is_copy(node)}
    made = {formal.name for formal in program.main.inputs}
    nodes: Nodes = []
    for node in program.main.nodes:
        if node.do not in (toy.ADD_, toy.COPY_, toy.VIEW):
            node = evolve(node, args=using(node.args, {old: value for old, value in new.items() if value in made}))
        made.add(node.name)
        nodes.append(node)
    return with_nodes(program, nodes)


@mistake("in place", "meaning")
def removes_unused_writes(program: px.Program) -> px.Program:
    used = values_used(program)
    return with_nodes(program, [node for node in program.main.nodes if node.name in used or node.do != toy.ADD_])


@mistake("in place", "meaning")
def removes_writes_that_are_overwritten(program: px.Program) -> px.Program:
    # A write before a copy_ to the same name is lost anyway; unless something reads it in between.
    later: set[str] = set()
    nodes: Nodes = []
    used = values_used(program)
    for node in reversed(program.main.nodes):
        if node.do == toy.ADD_ and node.args[0].name in later and node.name not in used:
            continue
        if is_copy(node):
            later.add(node.args[0].name)
        nodes.insert(0, node)
    return with_nodes(program, nodes)
