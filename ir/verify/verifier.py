"""``verify`` and ``check``: report all violations of ``RULES``, the specification of a valid program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from ..errors import InvalidProgram, Violation
from ..forks import collector_paused
from ..graph import Frame
from ..meta import source_line
from ..persistent import grouped
from ..program import Program
from ..validation import a_program
from .calls import (
    check_acyclic,
    check_arity,
    check_bodies,
    check_boundaries,
    check_known_callees,
    check_reachable,
    check_shared,
    of_instances,
)
from .findings import FRAME, Finding, Rule, around, frame_of, known_names
from .index import ProgramIndex
from .operators import (
    check_effects,
    check_inferred,
    check_operands,
    check_operator_names,
    check_packed,
    check_results,
)
from .signature import (
    check_arguments,
    check_constraints,
    check_facts,
    check_gradients,
    check_inputs,
    check_leaves,
    check_mutations,
    check_outputs,
    check_pytrees,
    check_slots,
    check_tangents,
    check_types,
)
from .state import (
    check_geometry,
    check_known_modules,
    check_memory,
    check_module_paths,
    check_modules,
    check_parts,
    check_scopes,
    check_values,
)

WELL_FORMED: tuple[Rule, ...] = (
    Rule("well-formed", "every field has its declared type; each slot and each keyword is listed once",
         advice="build programs from the types of purefx.ir: tuples, Input, Node, Op, Call, Get, Frame, pmap"),
    Rule("unique-names", "the inputs and nodes of a graph have distinct names",
         advice="use a fresh name for the new value (purefx.ir.names.Names)"),
    Rule("defined-values", "every value that is used is an input or a node of the same graph",
         advice="keep the node that makes the value, or pass it in as an input"),
    Rule("earlier-values", "a value is used only after the node that makes it",
         advice="move the node after the one that makes the value"),
    Rule("argument-kinds", "arguments are references, literals, and containers of them; Bodies only with through_bodies effects",
         advice="write Items for a list, Record for a dict, Body for a graph; lift_constants(program) makes tensors state"),
    Rule("meta", "meta is a mapping from strings; val is a valid value and stack_trace is a string",
         advice="keep the meta of the node that was replaced, or leave it empty"),
    Rule("stacks", "no module call is inside itself, and in the root no path begins with /",
         advice="list each module call around the node once, outermost first; number the calls of one module"),
    Rule("root", "the root names a graph of the program",
         advice="add the graph to program.graphs under the id in program.root"),
)  # fmt: skip
"""The local rules; if a program breaks one, no other rule is checked."""

CONNECTED: tuple[Rule, ...] = (
    Rule("known-callees", "every Call and every Body names a graph of the program", check_known_callees,
         advice="add the graph to program.graphs before you add calls of it"),
    Rule("acyclic-calls", "no graph calls itself, directly or through others", check_acyclic,
         advice="use a separate body for the inner call"),
    Rule("call-arguments", "a Call passes exactly the inputs of its body, by position", check_arity,
         advice="change the call and the inputs of its body together"),
    Rule("signature-inputs", "the signature has one input for each input of the root", check_inputs,
         advice="change signature.inputs and the inputs of the root together"),
    Rule("signature-outputs", "the root returns a tuple with one value for each output of the signature", check_outputs,
         advice="change signature.outputs and the output of the root together"),
)  # fmt: skip
"""The other rules rely on these to follow calls, and to pair values with inputs and specs."""

RULES: tuple[Rule, ...] = (
    *WELL_FORMED,
    *CONNECTED,
    Rule("reachable-graphs", "the root reaches every graph", check_reachable,
         advice="remove uncalled graphs"),
    Rule("operator-bodies", "the bodies of operators are graphs that return values", check_bodies,
         advice="pass Body(name) of a graph that returns a tuple"),
    Rule("operands", "the arguments of an operator fit its schema", check_operands,
         advice="follow the schema: a string is a literal, Ref(name) is a value, Items a list, Body(name) a graph"),
    Rule("results", "no operator or call uses several results as one value; getitem selects an existing result", check_results,
         advice="select one result with operator.getitem, counted from 0; change the output of a body and its users together"),
    Rule("packed-values", "the result of purefx.pack goes to modules, bodies and the caller, not to operators", check_packed,
         advice="use the packed leaves: operators take tensors, numbers and containers of them"),
    Rule("effects", "the effects of an operator are those of its target, plus ordered if you like", check_effects,
         advice="make the operator with purefx.ir.effects.registered.effects_of(target)"),
    Rule("operator-names", "an operator has the name of its target, and a target if registered; each name has one target",
         check_operator_names, advice="make the operator with purefx.ir.operators.op_of(target): equality compares names"),
    Rule("scopes", "in the root a module call is inside one other module call", check_scopes,
         advice="use a new call number for the second call"),
    Rule("module-paths", "every module and its parent are listed once; no name begins with /", check_module_paths,
         advice="list the module and all its parents in program.modules"),
    Rule("known-modules", "program.modules lists the modules of all calls and state, unless it is empty",
         check_known_modules, advice="list the module in program.modules, or correct the path or the name of the slot"),
    Rule("parts", "parts are modules of the root, which calls each once; all modules and state are in parts", check_parts,
         advice="move it below a part, or remove the parts from program.modules; join(program) removes all"),
    Rule("call-labels", "calls with the same path and number have the same body", of_instances("call-labels"),
         advice="use a new call number of the module, or the body of the other call"),
    Rule("boundaries", "the boundaries of a preserved call name each leaf of its pytrees, once", check_boundaries,
         advice="change purefx.takes or purefx.gives and the pytrees in program.call_signatures together"),
    Rule("shared-signatures", "if one call of a module shares a callable, all its calls do", check_shared,
         advice="add the signature to every call of the module, or share none"),
    Rule("opaque-modules", "a module of the state is only called, and nothing else is at its path", check_modules,
         advice="call it with purefx.call_module(Ref(read), ...); its contents need no slots"),
    Rule("signature-slots", "state in the signature is a slot", check_slots,
         advice="add the slot to program.state, or remove the input or mutation"),
    Rule("mutations", "each slot or user input is mutated at most once, by a value of the graph of its shape and dtype",
         check_mutations, advice="an InputMutation counts the inputs of the root: shift it when inputs are added or removed"),
    Rule("gradients", "each gradient is of one parameter or user input, with its shape; there is one loss, or tangents",
         check_gradients, advice="use the spec of its parameter or input for each gradient, and a LossOutput for the loss"),
    Rule("tangents", "each tangent is of one user output, with its shape; tangents are the last arguments", check_tangents,
         advice="set tangent_of to the number of the user output, and move the tangents after all other user inputs"),
    Rule("signature-types", "user inputs were traced with the dtype and sizes in the signature", check_types,
         advice="keep signature.inputs and the inputs of the root in one order, or export again for the new shape"),
    Rule("signature-arguments", "a user input has a type; if there are defaults, each argument is one leaf with its name",
         check_arguments, advice="correct the type; remove the defaults if arguments are nested"),
    Rule("pytrees", "arguments are a pytree of (args, kwargs); keywords are strings, and other keys distinct literals",
         check_pytrees, advice="make it with torch.utils._pytree.tree_structure((args, kwargs))"),
    Rule("signature-leaves", "user inputs and outputs are the leaves of the pytrees", check_leaves,
         advice="keep the user inputs and outputs, or change in_spec and out_spec with them"),
    Rule("state-values", "every slot has a value; parameters are Parameters, buffers tensors, modules modules", check_values,
         advice="load or set the missing tensor"),
    Rule("state-memory", "slots of one cell are one tensor; slots have the same storage number if and only if they share memory",
         check_memory, advice="use one tensor for all slots of a cell, and number storages with torch_private.storage_key"),
    Rule("state-geometry", "state has the shape and dtype that the graph was traced with", check_geometry,
         advice="export again with the new shape, or correct meta['val']"),
    Rule("reads", "every read finds a slot, in each module call that reaches it", of_instances("reads"),
         advice="a Get is relative to the module of its body: add the slot, or correct the path"),
    Rule("constraints", "ranges, guards and sizes refer to existing user inputs and sizes, and have a value", check_constraints,
         advice="drop the constraint with the input, renumber it, or write one that can be computed"),
    Rule("facts", "the facts of a program hold", check_facts,
         advice="drop the fact in the transformation that breaks it"),
)  # fmt: skip

DEEP: tuple[Rule, ...] = (
    Rule("inferred-meta", "operators accept their arguments; meta has the dtype, shape and device of the results", check_inferred,
         advice="correct or remove meta['val'], or change the arguments that the operator rejects"),
)  # fmt: skip
"""Rules that cost more than all others together; only ``verify(program, infer=True)`` checks them."""

BY_NAME = {rule.name: rule for rule in (*RULES, *DEEP)}

Broken = tuple[Rule, Finding]

ALSO = 3
"""The maximum number of further places that a violation names."""


def verify(program: Program, *, infer: bool = False) -> tuple[Violation, ...]:
    """Return all violations of a program.

    Args:
        program: any program at any stage; its fields may be malformed.
        infer: run every operator again on fake values, and compare the result with the meta of its node; an operator that
            rejects its arguments is a violation too.  Operators without a fake kernel, operators that need the contents of
            tensors, and operands without fake values are skipped.  It costs many times as much as all other rules.

    Returns:
        All violations in program order: those of the program itself, then graph by graph from the root and node by node;
        () for a valid program.  If the program is malformed, or its calls cannot be followed, only these violations, because
        others may follow from them.  Equal messages of one rule, and a fact that does not hold, are one violation: the first
        place, with the number of places in ``count``.

    Raises:
        TypeError: ``program`` is not a Program.

    >>> from purefx.ir import Graph, Node, Op, Program, Ref
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.neg"), (Ref("x"),)),))})
    >>> [str(violation).splitlines()[0] for violation in verify(program)]
    ["defined-values: it uses 'x', which its graph does not define"]
    """
    a_program(program, "verify")
    with collector_paused():
        whole = ProgramIndex(program)
        return _violations(_found(whole, infer=infer), whole)


def _found(whole: ProgramIndex, *, infer: bool) -> list[Broken]:
    malformed = [(BY_NAME[name], finding) for name, finding in whole.faults]
    if malformed or (malformed := _broken(CONNECTED, whole)):
        return malformed
    program, others = whole.program, RULES[len(WELL_FORMED) + len(CONNECTED) :]
    known = known_names(program)
    found = _broken([rule for rule in others if rule.name not in known], whole)
    if known is not FRAME and not any(rule.name in FRAME for rule, _ in found):
        program.state.derived[frame_of] = frame_of(program)
    return [*found, *(_broken(DEEP, whole) if infer else ())]


def check(program: Program, *, asked_by: str = "check") -> Program:
    """Return the program itself if it is valid.

    Args:
        program: any program at any stage.
        asked_by: the name of the calling function, for error messages.

    Returns:
        The same object.

    Raises:
        InvalidProgram: it breaks invariants; ``violations`` has all of them.
        TypeError: ``program`` is not a Program.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> check(program) is program
    True
    """
    if isinstance(program, Program) and program.checked:
        return program
    violations = verify(a_program(program, asked_by))
    if violations:
        raise InvalidProgram(violations)
    return trust(program)


def trust(program: Program) -> Program:
    """Mark a program as valid without a check, and return it.

    Use it for results of functions that provably keep checked programs valid.

    >>> from purefx.ir import Graph, Program
    >>> trust(Program.of({"": Graph((), (), ())})).checked
    True
    """
    object.__setattr__(
        program, "checked", True
    )  # a cache of a derived fact, like a cached property
    return program


def _broken(rules: Iterable[Rule], whole: ProgramIndex) -> list[Broken]:
    return [
        (rule, finding) for rule in rules if rule.check is not None for finding in rule.check(whole)
    ]


def _violations(found: list[Broken], whole: ProgramIndex) -> tuple[Violation, ...]:
    # In program order; equal messages become one violation, at the first place, because they have one cause.
    if not found:
        return ()
    graphs = {name: rank for rank, name in enumerate(whole.graphs)}
    numbers = {name: number for number, name in enumerate(BY_NAME)}

    def place(broken: Broken) -> tuple[int, int, int]:
        rule, finding = broken
        graph = (
            -1
            if finding.graph is None
            else graphs.get(finding.graph, len(graphs) + (finding.graph != whole.program.root))
        )
        return graph, -2 if finding.at is None else finding.at, numbers[rule.name]

    pairs = sorted(found, key=place)
    causes = grouped(
        [((rule, one.message if one.cause is None else one.cause), one) for rule, one in pairs]
    )
    return tuple(
        [_violation(rule, findings, whole.program) for (rule, _), findings in causes.items()]
    )


def _violation(rule: Rule, findings: list[Finding], program: Program) -> Violation:
    first, *others = [_placed(rule, finding, program) for finding in findings[: 1 + ALSO]]
    return evolve(first, count=len(findings), also=tuple([other.where for other in others]))


def _placed(rule: Rule, finding: Finding, program: Program) -> Violation:
    name, at = finding.graph, finding.at
    found = Violation(
        rule.name, finding.message, name, finding.node, name or "", advice=rule.advice
    )
    if name is None or at is None:
        return found
    graph = program.graphs[name]
    node: Any = (
        graph.nodes[at] if type(graph.nodes) is tuple and 0 <= at < len(graph.nodes) else None
    )
    stack: Any = getattr(node, "stack", None)
    if type(stack) is tuple and stack and type(stack[-1]) is Frame:
        found = evolve(found, path=f"{name} / {stack[-1].path}" if name else str(stack[-1].path))
    return evolve(found, context=around(graph, at), source=source_line(getattr(node, "meta", None)))
