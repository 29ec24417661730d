"""``PAIRS``: laws about two transformations, or a thing and its inverse: what undoes what, and which order does not matter.

Each is an equation between two ways from a program to a program, up to names (``≅``, the digest), with the condition
under which it holds written beside it.  Only equations that were found to hold are here; those that look as if they should
and do not are distinguished by their conditions.  That each side is right by itself is the business of ``law.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from purefx.ir.analysis.diff import diff
from purefx.ir.analysis.digest import alpha_equal
from purefx.ir.effects.resolved import node_effects, storages
from purefx.ir.errors import UnsupportedProgram
from purefx.ir.graph import Op, common_prefix
from purefx.ir.program import Program
from purefx.ir.signature import InputMutation, StateInput, StateMutation
from purefx.laws.law import Case
from purefx.laws.strategies.programs import Stage
from purefx.transforms import (
    Transformation,
    deduplicate,
    expand,
    functionalize,
    inline,
    inplace_mutations,
    lift_state,
    outline,
    remove_effect_tokens,
    sink_state,
)
from purefx.transforms.mutations import COPY
from tests.laws.partition import as_one, has_one_read_each, split_again, split_and_joined
from tests.laws.specific import is_gathered


def _always(_: Program) -> bool:
    return True


@frozen
class PairLaw:
    """A sentence about two transformations, and how to find out whether it holds."""

    name: str
    statement: str
    transformations: tuple[str, ...]
    """Those that it is about, in the order in which they run; for an inverse: first the one, then what undoes it."""
    stages: tuple[Stage, ...]
    """The stages of the programs that it holds for."""
    equation: Callable[[Case], tuple[Program, Program]]
    """The two sides, which should be equal up to names."""
    condition: Callable[[Program], bool] = _always
    """Which of those programs it holds for."""
    exact: bool = False
    """Whether the two sides are equal, names and all."""

    def check(self, case: Case) -> list[str]:
        """Return what is wrong on a case: nothing if the law holds, or says nothing about the program.

        It says nothing either where a transformation refuses the program.
        """
        if not self.condition(case.program):
            return []
        try:
            left, right = self.equation(case)
        except UnsupportedProgram:
            return []
        same = alpha_equal(left, right) and (not self.exact or _are_one(left, right))
        return [] if same else [f"the two sides differ: {self.statement}", str(diff(right, left))]


def _are_one(left: Program, right: Program) -> bool:
    # Equal programs have one text, but for the facts, which equality leaves out.
    plain, other = (evolve(program, facts=frozenset()) for program in (left, right))
    return left == right and hash(left) == hash(right) and plain.text() == other.text()


def _undoes(
    back: Transformation,
    forth: Transformation,
    *stages: Stage,
    condition: Callable[[Program], bool] = _always,
    where: str = "",
) -> PairLaw:
    statement = f"{back.name} undoes {forth.name}{where and ', where '}{where}"

    def equation(case: Case) -> tuple[Program, Program]:
        return back(forth(case.program)), case.program

    return PairLaw(
        f"{back.name} after {forth.name}",
        statement,
        (forth.name, back.name),
        stages,
        equation,
        condition,
    )


def _commute(first: Transformation, second: Transformation, *stages: Stage) -> PairLaw:
    statement = f"{first.name} and {second.name} give the same in either order"

    def equation(case: Case) -> tuple[Program, Program]:
        return first(second(case.program)), second(first(case.program))

    return PairLaw(
        f"{first.name} and {second.name}", statement, (first.name, second.name), stages, equation
    )


def _absorbs(outer: Transformation, inner: Transformation, *stages: Stage) -> PairLaw:
    statement = f"{outer.name} gives the same whether {inner.name} ran before it or not"

    def equation(case: Case) -> tuple[Program, Program]:
        return outer(inner(case.program)), outer(case.program)

    return PairLaw(
        f"{outer.name} absorbs {inner.name}", statement, (inner.name, outer.name), stages, equation
    )


def one_input_a_tensor(program: Program) -> bool:
    """Return whether no two state inputs that are used are one tensor; the exporter uses one of them."""
    used = set(program.main.users).union(program.main.output_refs())
    slots = [
        spec.slot
        for formal, spec in program.inputs
        if type(spec) is StateInput and formal.name in used
    ]
    slots += [place.slot for place in program.signature.lifted if place.used]
    cells = [program.state[slot].cell for slot in slots]
    return len(set(cells)) == len(cells)


def is_functional(program: Program) -> bool:
    """Return whether a program writes to nothing, and returns new contents as the exporter does.

    Those that are new come before what the user gets, state first, in the order of the inputs.
    """
    position = {formal.name: index for index, formal in enumerate(program.main.inputs)}
    slots = {
        spec.slot: index
        for index, spec in enumerate(program.signature.inputs)
        if type(spec) is StateInput
    }
    ranks: list[tuple[int, int]] = []
    for arg, spec in zip(program.main.output, program.signature.outputs, strict=True):
        match spec:
            case StateMutation(slot=slot):
                ranks.append((1, slots[slot]))
            case InputMutation(index=index):
                ranks.append((2, index))
            case _:
                ranks.append((3, 0))
                continue
        if position.get(arg.name) == ranks[-1][1]:
            return False
    writes = any(
        node_effect.writes or node_effect.writes_slots
        for node_effect in node_effects(program, program.main)
    )
    return not writes and ranks == sorted(ranks)


def returns_all(program: Program) -> bool:
    """Return whether ``functionalize`` returns all that a program copies into its inputs and state.

    A copy that it keeps, since others may touch the same memory, need not stand on the same side of those that it returns.
    """
    return all(
        type(node.do) is not Op or node.do.name != "aten.copy_.default"
        for node in functionalize(program).main.nodes
    )


def returns_no_copied_value(program: Program) -> bool:
    """Return whether the caller gets no value that is copied into an input, but the written tensor.

    A functional program returns the value for both, and ``inplace_mutations`` gives the caller the written tensor.
    """
    copied = {node.refs()[-1] for node in program.main.nodes if node.do == COPY}
    return copied.isdisjoint(program.main.output_refs())


def copies_stand_first(program: Program) -> bool:
    """Return whether each ``copy_`` stands right behind what it waits for, and in the call of that, as one does that was made.

    A copy between values that may share memory waits for a clone of the value, which is made first.
    """
    done = node_effects(program, program.main)
    find = storages(program, program.main, done).find
    stacks = {node.name: node.stack for node in program.main.nodes}
    before = None
    for node, node_effect in zip(program.main.nodes, done, strict=True):
        if node.do != COPY:
            before = node, node_effect
        elif before is None:
            if node.stack:
                return False
        else:
            target, value = node.refs()[0], node.refs()[-1]
            last, what = before
            waits = find(target) in map(find, (last.name, *last.refs())) or find(value) in map(
                find, what.writes
            )
            mine = (
                last.stack
                if value == last.name
                else common_prefix([stacks.get(value, last.stack), last.stack])
            )
            if node.stack != mine or not (waits or value == last.name):
                return False
            if find(target) == find(value):
                return False
    return True


def has_copies_as_made(program: Program) -> bool:
    """Return whether the copies of a program are those that ``inplace_mutations`` would make again."""
    conditions = (returns_all, copies_stand_first, returns_no_copied_value)
    return all(condition(program) for condition in conditions)


def calls_are_runs(program: Program) -> bool:
    """Return whether the nodes of each module call stand side by side."""
    return is_gathered(program.main.nodes)


INVERSES: tuple[PairLaw, ...] = (
    _undoes(inline, outline, "flat", "sunk", condition=calls_are_runs, where="every call is one run of nodes"),
    _undoes(outline, inline, "outlined", "deduplicated"),
    _undoes(lift_state, sink_state, "flat", "in place", condition=one_input_a_tensor, where="no tensor is used as two inputs"),
    _undoes(sink_state, lift_state, "sunk", condition=one_input_a_tensor, where="no tensor was used as two inputs"),
    _undoes(functionalize, inplace_mutations, "flat", condition=is_functional, where="nothing is written in place"),
    _undoes(inplace_mutations, functionalize, "in place", condition=has_copies_as_made,
            where="every copy can be given back and stands where it is made, and no copied value is a result"),
    _undoes(expand, deduplicate, "flat", "outlined", "tree"),
    _undoes(deduplicate, expand, "deduplicated", "tree"),
    PairLaw("join after split_by_tags", "join undoes split_by_tags, but for second reads and a legal order",
            ("split_by_tags", "join"), ("sunk", "ivals", "deduplicated"), split_and_joined, exact=True),
    PairLaw("split_by_tags after join", "split_by_tags with the same tags undoes join", ("split_by_tags", "join"), ("sunk",),
            split_again),
    PairLaw("names of split_by_tags after join",
            "it undoes join names and all, where no call had read state twice before the split",
            ("split_by_tags", "join"), ("sunk",),
            split_again, condition=has_one_read_each, exact=True),
)  # fmt: skip

ORDERS: tuple[PairLaw, ...] = (
    PairLaw("split_by_tags with one tag", "split by one tag it is one body with all nodes in order", ("split_by_tags", "join"),
            ("sunk", "deduplicated"), as_one, exact=True),
    PairLaw("outline after inline after outline", "an outlined program is the same after inline and outline",
            ("outline", "inline", "outline"), ("flat", "sunk"),
            lambda case: (outline(inline(outline(case.program))), outline(case.program))),
    _commute(remove_effect_tokens, inplace_mutations, "tokens"),
    _commute(remove_effect_tokens, sink_state, "tokens"),
    _commute(remove_effect_tokens, deduplicate, "tokens"),
    _commute(deduplicate, inplace_mutations, "flat"),
    _commute(deduplicate, sink_state, "flat", "in place"),
    _commute(deduplicate, lift_state, "sunk"),
    _commute(deduplicate, outline, "flat", "sunk"),
    _commute(deduplicate, expand, "outlined", "tree"),
    _absorbs(inline, deduplicate, "outlined", "tree"),
    _absorbs(inline, expand, "deduplicated", "tree"),
)  # fmt: skip

PAIRS: tuple[PairLaw, ...] = (*INVERSES, *ORDERS)
"""What holds between transformations."""
