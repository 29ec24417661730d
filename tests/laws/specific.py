"""What holds for one transformation each, beyond the generic laws.

Each check looks at the program before and after and nothing else, so that it is written without knowing how the
transformation works.  Which transformation has which is in ``registry.py``.
"""

from __future__ import annotations

import re
from collections import Counter

from torch import Tensor

from purefx.ir.analysis.digest import digest, own_identity
from purefx.ir.analysis.numbers import SYMBOLIC
from purefx.ir.calls.call_graph import calls_from, signatures_of_bodies
from purefx.ir.calls.parts import part_names
from purefx.ir.graph import Call, Frame, Get, Node, Op, Stack
from purefx.ir.names import is_below, word_of
from purefx.ir.own_operators import GIVES, TAKES, is_boundary
from purefx.ir.program import Program
from purefx.ir.signature import InputMutation, StateInput, StateMutation, Token
from purefx.ir.state import reads_value
from purefx.laws.law import Case, Transform
from purefx.transforms.inline import inlined
from tests.laws.aimed import law
from tests.laws.aims import crossing
from tests.laws.shared_names import became

COPY = "aten.copy_.default"
CLONE = "aten.clone.default"
THREADING = "higher_order.with_effects"
SIZE = "aten.sym_size.int"


@law("no token is threaded afterwards")
def no_token(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    found = [f"{name} threads a token" for name in _ops(result) if name == THREADING]
    return found + ["the signature has a token" for spec in _specs(result) if type(spec) is Token]


def _ops(program: Program) -> list[str]:
    return [node.do.name for _, node in program.nodes() if type(node.do) is Op]


def _specs(program: Program) -> tuple[object, ...]:
    return (*program.signature.inputs, *program.signature.outputs)


@law("the signature has no mutation afterwards")
def no_mutation(transform: Transform, case: Case) -> list[str]:
    specs = _specs(transform(case.program))
    return [
        f"{spec} is still there" for spec in specs if type(spec) in (StateMutation, InputMutation)
    ]


@law("there is one copy_ for each mutation that changes something")
def copies(transform: Transform, case: Case) -> list[str]:
    program = case.program
    added = _ops(transform(program)).count(COPY) - _ops(program).count(COPY)
    real = 0
    for arg, spec in zip(program.main.output, program.signature.outputs, strict=True):
        if type(spec) is InputMutation:
            real += arg.name != program.main.inputs[spec.index].name
        elif type(spec) is StateMutation:
            index = program.signature.inputs.index(StateInput(spec.slot))
            real += arg.name != program.main.inputs[index].name
    return [] if added == real else [f"{added} copy_ for {real} mutations"]


@law("no input is state afterwards")
def no_state_input(transform: Transform, case: Case) -> list[str]:
    return [
        f"{spec} is still there"
        for spec in transform(case.program).signature.inputs
        if type(spec) is StateInput
    ]


@law("only reads are added")
def reads_only(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.main.nodes, transform(case.program).main.nodes
    kept = [node for node in after if type(node.do) is not Get or node in before]
    given, expected = (
        [(node.name, node.do, node.stack) for node in nodes] for nodes in (kept, before)
    )
    return [] if given == expected else ["something other than reads was added, removed or moved"]


@law("each read lies below the module call that makes it")
def reads_below(transform: Transform, case: Case) -> list[str]:
    return [
        f"{node.name} reads {node.do.slot} in {node.stack[-1]}"
        for node in transform(case.program).main.nodes
        if type(node.do) is Get and node.stack and not is_below(node.do.slot, node.stack[-1].path)
    ]


@law("nothing is read for nobody")
def all_read(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    used = {name for node in result.main.nodes for name in node.refs()} | set(
        result.main.output_refs()
    )
    return [
        f"{node.name} is read for nobody"
        for node in result.main.nodes
        if type(node.do) is Get and node.name not in used
    ]


@law("inlining restores the program; exactly, if every call was one run of nodes")
def inlines(transform: Transform, case: Case) -> list[str]:
    program, result = case.program, transform(case.program)
    called = {node.do.graph for _, node in result.nodes() if type(node.do) is Call}
    whole = inlined(result, result.main, into=called.__contains__)
    if is_gathered(program.main.nodes):
        return (
            []
            if whole == program.main
            else [f"inlined, it is not the original:\n{program.evolve(graphs={'': whole})}"]
        )
    return (
        []
        if Counter(whole.nodes) == Counter(program.main.nodes)
        else ["inlined, it has other nodes"]
    )


def is_gathered(nodes: tuple[Node, ...]) -> bool:
    """Return whether the nodes of each module call stand side by side."""
    left: set[Stack] = set()
    last: Stack = ()
    for node in nodes:
        pieces = {node.stack[:depth] for depth in range(1, len(node.stack) + 1)}
        if pieces & left:
            return False
        left |= {last[:depth] for depth in range(1, len(last) + 1)} - pieces
        last = node.stack
    return True


@law(
    "each call passes exactly the free values of its body, and returns the values that are used outside"
)
def calls_tight(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    found: list[str] = []
    for name in result.order:
        if name in case.program.graphs:
            continue
        graph = result.graphs[name]
        made = {node.name for node in graph.nodes}
        used = {ref for node in graph.nodes for ref in node.refs()}
        found += [
            f"{name} takes {formal.name} and does not use it"
            for formal in graph.inputs
            if formal.name not in used
        ]
        found += [
            f"{name} returns {ref}, which it does not make"
            for ref in graph.output_refs()
            if ref not in made
        ]
    for name in result.order:
        graph = result.graphs[name]
        used = {ref for node in graph.nodes for ref in node.refs()} | set(graph.output_refs())
        for node in graph.nodes:
            outputs = result.graphs[node.do.graph].output_refs() if type(node.do) is Call else ()
            if outputs and node.name not in used:
                found.append(f"{node.name} returns what nobody uses")
    return found


@law("path and number of a call name one body")
def one_body_a_label(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    bodies: dict[tuple[str, int], str] = {}
    found: list[str] = []
    for _, call, path in calls_from(result):
        label = (path, call.instance.call)
        if bodies.setdefault(label, call.graph) != call.graph:
            found.append(
                f"{call.instance} of {path} is two bodies: {bodies[label]} and {call.graph}"
            )
    return found


@law("no two bodies are equal afterwards")
def bodies_distinct(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    signatures = signatures_of_bodies(result)
    known: dict[str, str] = {}
    for name in result.bottom_up:
        graph = result.graphs[name]
        instances = [str(node.do.instance) for node in graph.callers if type(node.do) is Call]
        known[name] = repr(
            (own_identity(graph)[0], instances, [known[callee] for callee in graph.callees])
        )
        # Equal bodies that are called differently are two.
        known[name] += str(
            signatures.get(name) and (signatures[name].in_spec, signatures[name].out_spec)
        )
    bodies = [known[name] for name in result.order if name != result.root]
    return [
        f"{name} is equal to another body"
        for name in result.order[1:]
        if bodies.count(known[name]) > 1
    ]


@law("in a body that others become, reads are called after the state as the module names it")
def reads_named(transform: Transform, case: Case) -> list[str]:
    # A body that is parted keeps the names that it has.
    result = transform(case.program)
    shared = (
        {}
        if part_names(result)
        else {name: users for name, users in became(case.program, result).items() if len(users) > 1}
    )
    return [
        f"{node.name} in {name}, which {sorted(users)} became, reads {node.do.slot}"
        for name, users in shared.items()
        for node in result.graphs[name].nodes
        if type(node.do) is Get
        and not re.fullmatch(re.escape(word_of(node.do.slot)) + r"(_\d+)?", node.name)
    ]


@law("no graph calls a module afterwards")
def no_calls(transform: Transform, case: Case) -> list[str]:
    return [
        f"{name} still calls {node.name}"
        for name, node in transform(case.program).nodes()
        if type(node.do) is Call
    ]


@law("the root reads no state afterwards but the modules that it calls")
def no_reads(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    return [
        f"{node.name} still reads"
        for node in result.main.nodes
        if reads_value(result.state, node.do)
    ]


@law("no two calls have one body")
def one_call_a_body(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    called = Counter(node.do.graph for _, node in result.nodes() if type(node.do) is Call)
    return [f"{name} is called {times} times" for name, times in called.items() if times > 1]


@law("the digest, the modules and the signature of the program stay")
def digest_stays(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    found = [] if digest(after) == digest(before) else ["the digest is another"]
    same = (after.modules, after.signature) == (before.modules, before.signature)
    return found if same else [*found, "modules or signature are others"]


@law("only copy_ and clone are removed, and nothing moves")
def copies_go(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.main.nodes, transform(case.program).main.nodes
    kept = {node.name for node in after}
    gone = [node for node in before if node.name not in kept]
    given, expected = (
        [node.name for node in after],
        [node.name for node in before if node.name in kept],
    )
    found = [
        f"{node.name} was removed"
        for node in gone
        if type(node.do) is not Op or node.do.name not in (COPY, CLONE)
    ]
    return found if given == expected else [*found, "a node was added or moved"]


@law(
    "only copies, reads and sizes are added, only sizes without uses go, and nothing moves",
    aim=crossing,
)
def crossings_added(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.main.nodes, transform(case.program).main.nodes
    kept = {node.name for node in before}
    added = [node for node in after if node.name not in kept and not _is_number(node)]
    found = [
        f"{node} was added"
        for node in added
        if type(node.do) is Call or _op_name(node) not in ("", COPY, CLONE, SIZE)
    ]
    given = [(node.name, node.do, node.stack) for node in after if node.name in kept]
    left = {node.name for node in after}
    expected = [
        (node.name, node.do, node.stack)
        for node in before
        if node.name in left or not _is_number(node)
    ]
    return (
        found
        if given == expected
        else [*found, "a node was removed or moved, or does something else"]
    )


def _is_number(node: Node) -> bool:
    return (
        isinstance(node.meta.get("val"), SYMBOLIC)
        and type(node.do) is Op
        and not node.do.effects.acts
    )


@law("no call takes a size that it can read off what else it takes", aim=crossing)
def sizes_at_home(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    nodes = program.main.nodes
    checked: set[str] = set()
    for node in reversed(nodes):
        if node.name in checked or (
            type(node.do) is Op and (node.do.effects.ordered or is_boundary(node))
        ):
            checked.update(node.refs())
    sizes = {node.name: node for node in nodes if _op_name(node) == SIZE and _is_number(node)}
    values = {value.name: value.meta.get("val") for value in (*program.main.inputs, *nodes)}
    met: dict[Stack, set[str]] = {}
    found: list[str] = []
    for node in nodes:
        if (
            not node.stack
            or any(frame in program.call_signatures for frame in node.stack)
            or is_boundary(node)
        ):
            continue
        here = met.setdefault(node.stack, set())
        for name in node.refs() if node.name not in checked else ():
            size = sizes.get(name)
            if (
                size is not None
                and size.stack[: len(node.stack)] != node.stack
                and str(size.meta["val"]) in here
            ):
                found.append(
                    f"{node.name} in {node.stack[-1]} is handed the size {name}, which a tensor there has"
                )
        here.update(
            str(size)
            for name in node.refs()
            if isinstance(value := values.get(name), Tensor)
            for size in value.shape
        )
    return found


@law(
    "what a preserved call converts to the type that it has, and does not return, goes by its own name outside",
    aim=crossing,
)
def named_as_given(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    nodes = program.main.by_name
    leaves: dict[tuple[Frame, str], set[str]] = {}
    for node in nodes.values():
        if is_boundary(node) and node.stack:
            leaves.setdefault((node.stack[-1], _op_name(node)), set()).update(node.refs())
    found: list[str] = []
    for user in nodes.values():
        for name in user.refs() if not is_boundary(user) else ():
            given = _converted_to_what_it_is(program, name)
            for frame in nodes[name].stack if given else ():
                taken, returned = (
                    leaves.get((frame, do.name), set[str]()) for do in (TAKES, GIVES)
                )
                if frame not in user.stack and given in taken and name not in returned:
                    found.append(
                        f"{user.name} uses {name} of {frame}, which is {given}, the same object"
                    )
    return found


def _converted_to_what_it_is(program: Program, name: str) -> str | None:
    # `x.to(dtype)` of an `x` that has it: torch returns its argument.
    node = program.main.by_name.get(name)
    if node is None or _op_name(node) != "aten.to.dtype" or len(node.args) != 2 or node.kwargs:
        return None
    operand, value = node.args[0].name, node.meta.get("val")
    of = program.main.by_name.get(operand) or next(
        formal for formal in program.main.inputs if formal.name == operand
    )
    told = of.meta.get("val")
    same = (
        isinstance(value, Tensor)
        and isinstance(told, Tensor)
        and value.dtype == told.dtype == node.args[1]
    )
    return operand if same else None


def _op_name(node: Node) -> str:
    return node.do.name if type(node.do) is Op else ""


@law("no graph changes", aim=crossing)
def graphs_stay(transform: Transform, case: Case) -> list[str]:
    return [] if transform(case.program).graphs == case.program.graphs else ["a graph is another"]


@law(
    "the calls of a module go to one callable where all have one preserved signature, and only there",
    aim=crossing,
)
def one_callable(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    signatures = result.call_signatures
    plain = {
        frame.path for node in result.main.nodes for frame in node.stack if frame not in signatures
    }
    plain |= {
        path
        for _, call, path in calls_from(result)
        if Frame(path, call.instance.call) not in signatures
    }
    shared: dict[str, set[bool]] = {}
    kinds: dict[str, set[str]] = {}
    for frame in signatures:
        signature = signatures[frame]
        shared.setdefault(frame.path, set()).add(signature.shared)
        kinds.setdefault(frame.path, set()).add(
            f"{signature.in_spec} {signature.out_spec} {signature.arg_names}"
        )
    return [
        f"{path} is {shared[path]} with {len(kinds[path])} signatures"
        for path in shared
        if shared[path] != {len(kinds[path]) == 1 and path not in plain}
    ]
