"""``verify`` and ``check``: all violations of a program at once, by ``RULES``, the specification of a valid program.

A rule has a name, a statement and advice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from ..errors import InvalidProgram, Violation
from ..graph import Frame
from ..persistent import collector_paused
from ..program import Program
from ..taking import a_program
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
from .findings import Finding, Rule, around, frame_of, is_known_frame, source_of
from .index import ProgramIndex
from .operators import check_effects, check_inferred, check_operands, check_operator_names, check_packed, check_results
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
    Rule("well-formed", "every field has the type that it is declared with; each slot and each keyword is listed once",
         advice="build programs from the types of purefx.ir: tuples, Input, Node, Op, Call, Get, Frame, pmap"),
    Rule("unique-names", "in one graph no two inputs or nodes have one name",
         advice="give the new value a fresh name (purefx.ir.names.Names)"),
    Rule("defined-values", "a value that is used is an input or a node of the same graph",
         advice="keep the node that makes the value, or pass it in as an input"),
    Rule("earlier-values", "a value is used only after the node that makes it",
         advice="put the node behind the one that makes the value"),
    Rule("argument-kinds", "arguments are references, literals, and tuple, Items, Record or slice of them",
         advice="write Items for a list, Record for a dict, Body for a graph; lift_constants(program) makes tensors state"),
    Rule("meta", "meta is a mapping from strings; val is a value that a node can have and stack_trace is text",
         advice="keep the meta of the node that was replaced, or leave it empty"),
    Rule("stacks", "no module call is made inside itself, and in the root no path begins with /",
         advice="let the stack be the module calls around the node, outermost first, each once; number calls of one module"),
    Rule("root", "the root names a graph of the program",
         advice="put the graph into program.graphs under the id that program.root says"),
)  # fmt: skip
"""What a program breaks of these, the whole says; where it breaks one, no other rule is asked."""

CONNECTED: tuple[Rule, ...] = (
    Rule("known-callees", "every Call and every Body names a graph of the program", check_known_callees,
         advice="put the graph into program.graphs before something calls it"),
    Rule("acyclic-calls", "no graph calls itself, directly or through others", check_acyclic,
         advice="give the inner call a body of its own"),
    Rule("call-arguments", "a Call passes exactly the inputs of its body, by position", check_arity,
         advice="change the call and the inputs of its body together"),
    Rule("signature-inputs", "the signature has one input for each input of the root", check_inputs,
         advice="change signature.inputs and the inputs of the root together"),
    Rule("signature-outputs", "the root returns a tuple with one value for each output of the signature", check_outputs,
         advice="change signature.outputs and the output of the root together"),
)  # fmt: skip
"""With these, calls can be followed and values paired with inputs and specs."""

RULES: tuple[Rule, ...] = (
    *WELL_FORMED,
    *CONNECTED,
    Rule("reachable-graphs", "the root reaches every graph", check_reachable,
         advice="remove graphs that nothing calls"),
    Rule("operator-bodies", "an operator that takes graphs has effects that go through them; they return values", check_bodies,
         advice="set Effects(through_bodies=True) on the operator; let the graph return a tuple"),
    Rule("operands", "an operator gets as many arguments as it takes, and such as it can take", check_operands,
         advice="call it as its schema says: text is a literal, Ref(name) is a value, Items a list, Body(name) a graph"),
    Rule("results", "an operator that takes one value is not given several; getitem takes a result that there is", check_results,
         advice="take one result with operator.getitem, counted from 0; change the output of a body and those behind its calls"),
    Rule("packed-values", "what purefx.pack makes goes to modules, bodies and the caller, and to no operator", check_packed,
         advice="use the leaves that were packed: operators take tensors, numbers and containers of them"),
    Rule("effects", "the effects of an operator are those of its target, or those and ordered", check_effects,
         advice="make the operator with purefx.ir.effects.registered.effects_of(target)"),
    Rule("operator-names", "an operator bears the name of its target, and has it where that is registered; a name is one target",
         check_operator_names, advice="make the operator with purefx.ir.operators.op_of(target): equality goes by name"),
    Rule("scopes", "in the root a module call is made in one module call", check_scopes,
         advice="give the second call a call number of its own"),
    Rule("module-paths", "every module is listed once, and so is its parent; no name begins with /", check_module_paths,
         advice="list the module and all that hold it in program.modules"),
    Rule("known-modules", "module calls and state are of modules that program.modules lists, where it lists any",
         check_known_modules, advice="list the module in program.modules, or correct the path or the name of the slot"),
    Rule("parts", "parts are modules of the root, which calls each once; modules and state lie in parts", check_parts,
         advice="put it below a part, or take the parts out of program.modules; join(program) does that for all"),
    Rule("call-labels", "path and number of a call name one body", of_instances("call-labels"),
         advice="give the call a call number that the module does not have yet, or the body of the other call"),
    Rule("boundaries", "a preserved call names one leaf for each place of its pytrees, once", check_boundaries,
         advice="change purefx.takes or purefx.gives and the pytrees in program.call_signatures together"),
    Rule("shared-signatures", "where calls of a module share one callable, all of its calls do", check_shared,
         advice="give every call of the module the signature, or let none be shared"),
    Rule("opaque-modules", "a module of the state is read to be called, and nothing else is at its path", check_modules,
         advice="call it with purefx.call_module(Ref(read), ...); what is in the module needs no slot of its own"),
    Rule("signature-slots", "state in the signature is a slot", check_slots,
         advice="add the slot to program.state, or remove the input or mutation"),
    Rule("mutations", "each slot or user input is mutated at most once, by a value of the graph of its shape and dtype",
         check_mutations, advice="an InputMutation counts the inputs of the root: shift it when inputs are added or removed"),
    Rule("gradients", "a gradient is to one parameter or user input, of its shape, once; there is one loss, or tangents",
         check_gradients, advice="give each gradient the spec of what it is the gradient to, and the loss a LossOutput"),
    Rule("tangents", "a tangent is of one user output, of its shape, once; tangents are the last arguments", check_tangents,
         advice="let tangent_of number the user outputs, and put the tangents behind all other user inputs"),
    Rule("signature-types", "user inputs were traced with the dtype and sizes that the signature has for them", check_types,
         advice="keep signature.inputs and the inputs of the root in one order, or export again for the new shape"),
    Rule("signature-arguments", "a user input has a type, and with defaults each argument is one leaf with its name",
         check_arguments, advice="correct the type; give no defaults where arguments are nested"),
    Rule("pytrees", "arguments are a pytree of (args, kwargs); keywords are strings and other keys literals, each once",
         check_pytrees, advice="make it with torch.utils._pytree.tree_structure((args, kwargs))"),
    Rule("signature-leaves", "user inputs and outputs are the leaves of the pytrees", check_leaves,
         advice="keep the user inputs and outputs, or change in_spec and out_spec with them"),
    Rule("state-values", "every slot holds a value; parameters are Parameters, buffers tensors, modules modules", check_values,
         advice="load or set the missing tensor"),
    Rule("state-memory", "slots with one cell are one tensor; they have one storage number exactly where they share memory",
         check_memory, advice="replace all slots of a cell by one tensor, and number storages with torch_private.storage_key"),
    Rule("state-geometry", "state has the shape and dtype that the graph was traced with", check_geometry,
         advice="export again with the new shape, or correct meta['val']"),
    Rule("reads", "a read comes to a slot from every module call that reaches it", of_instances("reads"),
         advice="a Get is relative to the module whose body holds it: add the slot, or correct the path"),
    Rule("constraints", "ranges, guards and sizes refer to user inputs and sizes that exist, and have a value", check_constraints,
         advice="drop the constraint with the input, renumber it, or write one that can be computed"),
    Rule("facts", "a fact that is claimed holds", check_facts,
         advice="let the transformation forget the fact that it breaks"),
)  # fmt: skip

DEEP: tuple[Rule, ...] = (
    Rule("inferred-meta", "operators take their arguments; meta has the dtype, shape and device that they give", check_inferred,
         advice="correct meta['val'] or leave it out (what is not said cannot be wrong), or change what the operator refuses"),
)  # fmt: skip
"""Rules that cost more than all others together: ``verify(program, infer=True)`` asks them too."""

BY_NAME = {rule.name: rule for rule in (*RULES, *DEEP)}

Broken = tuple[Rule, Finding]

OF_THE_FRAME = frozenset({
    "state-values", "state-memory", "module-paths", "pytrees", "signature-leaves", "signature-arguments", "signature-slots",
})  # fmt: skip
"""Rules that look at no graph: checked once for a state with its signature and modules, which versions of a program share."""

ALSO = 3
"""How many places beyond the first are named where one mistake is seen in many."""


def verify(program: Program, *, infer: bool = False) -> tuple[Violation, ...]:
    """Return all violations of a program.

    Args:
        program: any program at any stage; its fields may be malformed.
        infer: run every operator again on fake values, and compare with what the meta of its node says; an operator that
            refuses its arguments is a violation, with its own words.  Left out are operators that have no fake kernel or
            need the contents of tensors, and those whose arguments have no fake values.  Costs many times as much as all
            the other rules.

    Returns:
        All violations in program order: those of the program itself, then graph by graph from the root and node by node;
        () for a valid program.  Of a program that is malformed, or whose calls cannot be followed, those that make it so: what
        else is wrong could follow from them.  What one rule says of several places in the same words, and a fact that does not
        hold, is one violation: the first place, with the number of places in ``count``.

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
        return _violations(_asked(whole, infer=infer), whole)


def _asked(whole: ProgramIndex, *, infer: bool) -> list[Broken]:
    malformed = [(BY_NAME[name], finding) for name, finding in whole.faults]
    if malformed or (malformed := _broken(CONNECTED, whole)):
        return malformed
    program, asked = whole.program, RULES[len(WELL_FORMED) + len(CONNECTED) :]
    is_known = is_known_frame(program)
    found = _broken([rule for rule in asked if not (is_known and rule.name in OF_THE_FRAME)], whole)
    if not (is_known or any(rule.name in OF_THE_FRAME for rule, _ in found)):
        program.state.derived[frame_of] = frame_of(program)
    return [*found, *(_broken(DEEP, whole) if infer else ())]


def check(program: Program, *, asked_by: str = "check") -> Program:
    """Return the program itself if it is valid.

    Args:
        program: any program at any stage.
        asked_by: the function that takes it, for what is said of something that is no program.

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
    """Return the program itself, remembered as valid without being looked at.

    For results of functions that are proven to keep programs valid, on programs that were checked.

    >>> from purefx.ir import Graph, Program
    >>> trust(Program.of({"": Graph((), (), ())})).checked
    True
    """
    object.__setattr__(program, "checked", True)  # a memo of what the value determines, like a cached property
    return program


def _broken(rules: Iterable[Rule], whole: ProgramIndex) -> list[Broken]:
    return [(rule, finding) for rule in rules if rule.check is not None for finding in rule.check(whole)]


def _violations(found: list[Broken], whole: ProgramIndex) -> tuple[Violation, ...]:
    # In program order, and one mistake once, at its first place: the same message for a thousand nodes has one cause.
    if not found:
        return ()
    graphs = {name: rank for rank, name in enumerate(whole.graphs)}
    numbers = {name: number for number, name in enumerate(BY_NAME)}

    def place(broken: Broken) -> tuple[int, int, int]:
        rule, finding = broken
        graph = -1 if finding.graph is None else graphs.get(finding.graph, len(graphs) + (finding.graph != whole.program.root))
        return graph, -2 if finding.at is None else finding.at, numbers[rule.name]

    causes: dict[tuple[Rule, str], list[Finding]] = {}
    for rule, finding in sorted(found, key=place):
        causes.setdefault((rule, finding.message if finding.cause is None else finding.cause), []).append(finding)
    return tuple([_violation(rule, findings, whole.program) for (rule, _), findings in causes.items()])


def _violation(rule: Rule, findings: list[Finding], program: Program) -> Violation:
    first, *others = [_placed(rule, finding, program) for finding in findings[: 1 + ALSO]]
    return evolve(first, count=len(findings), also=tuple([other.where for other in others]))


def _placed(rule: Rule, finding: Finding, program: Program) -> Violation:
    name, at = finding.graph, finding.at
    found = Violation(rule.name, finding.message, name, finding.node, name or "", advice=rule.advice)
    if name is None or at is None:
        return found
    graph = program.graphs[name]
    node: Any = graph.nodes[at] if type(graph.nodes) is tuple and 0 <= at < len(graph.nodes) else None
    stack: Any = getattr(node, "stack", None)
    if type(stack) is tuple and stack and type(stack[-1]) is Frame:
        found = evolve(found, path=f"{name} / {stack[-1].path}" if name else str(stack[-1].path))
    return evolve(found, context=around(graph, at), source=source_of(getattr(node, "meta", None)))
