"""``trees``: outlined programs that are drawn directly, so that errors of our own ``outline`` can not cancel out.

One idea: bodies are drawn from the leaves up and every later body may call any earlier one, several times, under any
name of a module; so bodies are shared, equal ones stand beside each other, and modules have several bodies.  Their state is
complete: every module that a body stands in has what the body reads.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
import torch
from attrs import evolve, frozen

from ...ir.arguments import Arg, Ref
from ...ir.graph import Graph, Input
from ...ir.node import Call, Frame, Get, Node
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import Signature, TensorType, UserInput, UserOutput
from ...ir.state import Slot, SlotKind, State
from .. import toy

__all__ = ["trees"]

CHILDREN = ("a", "b", "c")
SLOTS = ("w", "n")
LARGEST = 6
"""How many bodies there are at most."""


@frozen
class _Step:
    kind: int
    first: int
    second: int


@frozen
class _Body:
    steps: tuple[_Step, ...]
    like: int
    """Above 1, it is the body before it with one number changed: almost equal bodies are what merging gets wrong."""


STEPS = st.lists(st.builds(_Step, st.integers(0, 8), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=8)

BODIES = st.lists(st.builds(_Body, STEPS.map(tuple), st.integers(0, 4)), min_size=1, max_size=LARGEST)


@cache
def trees() -> st.SearchStrategy[Program]:
    """Return a strategy of outlined programs with shared bodies.

    >>> from hypothesis import find
    >>> program = find(trees(), lambda program: len(program.order) > 1)
    >>> [str(node.do.instance) for node in program.main.nodes if type(node.do) is Call]
    ['a']
    """
    return st.builds(_tree, BODIES, st.lists(st.booleans(), min_size=2, max_size=2))


def _tree(drawn: list[_Body], ties: list[bool]) -> Program:
    # The last body is the root; the ids of those that it does not reach are dropped.
    graphs: dict[str, Graph] = {}
    bodies: list[tuple[_Step, ...]] = []
    for body in drawn:
        bodies.append(_changed(bodies[-1], body.like) if body.like > 1 and bodies else body.steps)
    for index, steps in enumerate(bodies[:-1]):
        graphs[f"g{index}"] = _graph(steps, index)
    root = _graph(bodies[-1], len(bodies) - 1)
    graphs[""] = Graph(root.inputs, root.nodes, (root.output,))
    whole = Program.of(graphs)
    graphs = {name: graphs[name] for name in whole.order}
    scalar = TensorType(torch.int64, ())
    signature = Signature((UserInput(scalar, "x"),), (UserOutput(),))
    facts = frozenset({"outlined", "state sunk", "mutations in place", "token free"})
    return Program.of(graphs, state=_state(whole, ties), signature=signature, facts=facts)


def _changed(steps: tuple[_Step, ...], place: int) -> tuple[_Step, ...]:
    index = -1 - place % len(steps)
    changed = [*steps]
    changed[index] = evolve(steps[index], second=steps[index].second + 1)
    return tuple(changed)


def _graph(steps: tuple[_Step, ...], known: int) -> Graph:
    values, nodes = ["x"], list[Node]()
    numbers: dict[str, int] = {}
    for index, step in enumerate(steps):
        a: Arg = Ref(values[-1 - step.first % len(values)])
        name = f"v{index}"
        match step.kind:
            case 0:
                node = Node(name, toy.NEG, (a,))
            case 1:
                node = Node(name, toy.ADD_, (a, step.second % 2 + 1))
            case 2:
                node = Node(name, toy.RAND, (a, "t"))
            case 3 | 4:
                node = Node(name, Get(SLOTS[step.second % 2]))
            case _ if known:
                child, body = CHILDREN[step.second % 3], (step.kind + step.second) % known
                count = numbers[child] = numbers.get(child, -1) + 1
                # Path and call number name one body: the number says which, wherever this body stands.
                node = Node(name, Call(Frame(child, count * LARGEST + body), f"g{body}"), (a,))
            case _:
                node = Node(name, toy.ADD, (a, Ref(values[-1])))
        values.append(name)
        nodes.append(node)
    return Graph((Input("x"),), tuple(nodes), Ref(values[-1]))


def _state(program: Program, ties: list[bool]) -> State:
    slots: dict[str, Slot] = {}
    todo, seen = [(program.root, "")], set[tuple[str, str]]()
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        prefix = f"{place[1]}." if place[1] else ""
        for node in program.graphs[place[0]].nodes:
            if type(node.do) is Get:
                slots.setdefault(prefix + node.do.slot, _slot(len(slots), slots, tied=ties[SLOTS.index(node.do.slot)]))
            elif type(node.do) is Call:
                todo.append((node.do.graph, prefix + node.do.instance.path))
    return State(tuple(slots), pmap(slots))


def _slot(number: int, slots: dict[str, Slot], *, tied: bool) -> Slot:
    if tied and slots:
        return next(iter(slots.values()))
    return Slot(SlotKind.BUFFER, _memory(number), number, number)


@cache
def _memory(number: int) -> torch.Tensor:
    return torch.tensor(1 + 2 * number)
