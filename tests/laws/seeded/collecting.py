"""Mistakes of passes that put stacks, values, checks and tracepoints in order.

Each does its work with the right pass and then leaves out what is easily forgotten.  Values are those of integers,
because the programs that mistakes are looked for in have no tensors.
"""

from __future__ import annotations

import operator
from types import MappingProxyType

from attrs import evolve

import purefx as px
from purefx.ir.operators import op_of
from purefx.ir.own_operators import is_boundary

from .mistake import Nodes, mistake, with_nodes


@mistake("sunk", "calls numbered")
def numbers_calls_from_the_back(program: px.Program) -> px.Program:
    result = px.normalize_stacks(program)
    last: dict[str, int] = {}
    for node in result.main.nodes:
        for frame in node.stack:
            last[frame.path] = max(last.get(frame.path, 0), frame.call)
    nodes = [
        evolve(node, stack=tuple([evolve(frame, call=last[frame.path] - frame.call) for frame in node.stack]))
        for node in result.main.nodes
    ]
    return with_nodes(result, nodes)


@mistake("sunk", "calls together")
def makes_one_call_of_all(program: px.Program) -> px.Program:
    # The number is dropped, as tracers that count no calls do.
    nodes = [evolve(node, stack=tuple([evolve(frame, call=0) for frame in node.stack])) for node in program.main.nodes]
    return with_nodes(program, nodes)


@mistake("sunk", "calls together")
def forgets_the_signatures(program: px.Program) -> px.Program:
    # Calls get other numbers, and the signatures stay with the old ones.
    result = px.normalize_stacks(program)
    moved = {frame: evolve(frame, call=frame.call + 1) for frame in result.call_signatures}
    return result.evolve(call_signatures=px.ir.pmap({moved[frame]: result.call_signatures[frame] for frame in moved}))


@mistake("sunk", "one form")
def keeps_gaps(program: px.Program) -> px.Program:
    return program


@mistake("tree", "wrong sizes refused")
def takes_the_end_of_a_range(program: px.Program) -> px.Program:
    # At most becomes less than.
    result = px.add_runtime_assertions(program)
    others = {"operator.le": op_of(operator.lt), "operator.ge": op_of(operator.gt)}
    nodes: Nodes = [
        evolve(node, do=others.get(node.do.name, node.do))
        if type(node.do) is px.Op and node.name not in program.main.by_name
        else node
        for node in result.main.nodes
    ]
    return with_nodes(result, nodes)


@mistake("tree", "wrong sizes refused")
def forgets_that_sizes_are_tied(program: px.Program) -> px.Program:
    inputs = [
        evolve(spec, type=evolve(spec.type, shape=(3, 3)))
        if type(spec) is px.ir.UserInput and type(spec.type) is px.ir.TensorType
        else spec
        for spec in program.signature.inputs
    ]
    untied = program.evolve(signature=evolve(program.signature, inputs=tuple(inputs)))
    result = px.add_runtime_assertions(untied)
    return result.evolve(signature=program.signature)


@mistake("tree", "checks in front")
def checks_at_the_end(program: px.Program) -> px.Program:
    result = px.add_runtime_assertions(program)
    added = len(result.main.nodes) - len(program.main.nodes)
    return with_nodes(result, [*result.main.nodes[added:], *result.main.nodes[:added]])


@mistake("tree", "checks in front")
def checks_again_and_again(program: px.Program) -> px.Program:
    result = px.add_runtime_assertions(program)
    checks = [node for node in result.main.nodes if type(node.do) is px.Op and "_assert_scalar" in node.do.name]
    again = [evolve(node, name=f"{node.name}_{len(result.main.nodes)}") for node in checks]
    return with_nodes(
        result, [*result.main.nodes[: len(result.main.nodes) - len(program.main.nodes)], *again, *program.main.nodes]
    )


@mistake("flat", "no tracepoint")
def leaves_results_of_tracepoints(program: px.Program) -> px.Program:
    # The tracepoints go, and who used what they handed on uses it still.
    kept = [node for node in program.main.nodes if type(node.do) is not px.Op or "_export_tracepoint" not in node.do.name]
    return with_nodes(program, kept)


@mistake("flat", "traced calls")
def leaves_the_nodes_where_they_were(program: px.Program) -> px.Program:
    result = px.collect_call_signatures(program)
    known = {node.name: node.stack for node in program.main.nodes}
    return with_nodes(result, [node if is_boundary(node) else evolve(node, stack=known[node.name]) for node in result.main.nodes])


@mistake("flat", "meta only")
def renames_what_it_infers(program: px.Program) -> px.Program:
    nodes = [
        evolve(node, stack=(), meta=MappingProxyType({**node.meta, "val": 1})) if "val" not in node.meta else node
        for node in px.infer(program).main.nodes
    ]
    return with_nodes(program, nodes)
