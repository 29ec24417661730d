"""``trees``: outlined programs that are drawn directly.

Errors of our own ``outline`` cannot cancel out in them.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
import torch
from attrs import evolve, frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.calls.call_graph import instances
from ...ir.graph import Call, Frame, Get, Graph, Input, Node
from ...ir.names import FROM_ROOT, join
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import Signature, TensorType, UserInput, UserOutput
from ...ir.state import Slot, SlotKind, State
from .. import toy

__all__ = ["trees"]

CHILDREN = ("a", "b", "c")
CALLED = (*CHILDREN, *CHILDREN[:2], f"{FROM_ROOT}a")
"""The modules that bodies call; the last is not below them."""
SLOTS = ("w", "n")
NUMBERS = (1, True, 2, True)
LARGEST = 6
"""How many bodies there are at most, besides the root."""
BRANCHES = tuple(
    Graph((Input("p"),), nodes, Ref(nodes[-1].name))
    for nodes in (
        (Node("r", toy.NEG, (Ref("p"),)),),
        (Node("s", Get("w")), Node("r", toy.ADD, (Ref("p"), Ref("s")))),
        (Node("s", Get("n")), Node("r", toy.ADD_, (Ref("s"), 1))),
        (Node("s", Get("w")), Node("e", toy.EMIT, (Ref("s"), "branch")), Node("r", toy.CLONE, (Ref("s"),))),
    )
)
"""The branches of conditions: they read the state of the module that the condition stands in, and write it."""
LATER = 10
"""More than the calls that a body has by itself."""


@frozen
class _Step:
    kind: int
    first: int
    second: int


@frozen
class _Body:
    steps: tuple[_Step, ...]
    twin: int
    """Above 0 another body stands beside it, at 1 its equal, above with one number changed: almost equal bodies are what
    merging gets wrong."""


STEPS = st.lists(st.builds(_Step, st.integers(0, 9), st.integers(0, 3), st.integers(0, 5)), min_size=3, max_size=8)

BODIES = st.lists(st.builds(_Body, STEPS.map(tuple), st.integers(0, 4)), min_size=2, max_size=LARGEST // 2 + 1)


@cache
def trees() -> st.SearchStrategy[Program]:
    """Return a strategy of outlined programs with shared bodies.

    >>> from hypothesis import Phase, find, settings
    >>> len(find(trees(), lambda program: True, settings=settings(phases=[Phase.generate])).order) > 1
    True
    """
    return st.builds(_tree, BODIES, st.lists(st.booleans(), min_size=2, max_size=2))


def _tree(drawn: list[_Body], ties: list[bool]) -> Program:
    # The last body is the root; the ids of those that it does not reach are dropped.
    graphs: dict[str, Graph] = {f"$b{number}": branch for number, branch in enumerate(BRANCHES)}
    bodies: list[tuple[_Step, ...]] = []
    for body in drawn:
        bodies.append(body.steps)
        if body.twin and body is not drawn[-1]:
            bodies.append(_changed(body.steps, body.twin - 2))
    for index, steps in enumerate(bodies[:-1]):
        graphs[f"g{index}"] = _graph(steps, index)
    root = _with_rest(_plain(_graph(bodies[-1], len(bodies) - 1)), graphs)
    # It returns all its values, or the results of most calls would be unused.
    graphs[""] = Graph(root.inputs, root.nodes, tuple(Ref(node.name) for node in root.nodes))
    whole = Program.of(graphs)
    graphs = {name: graphs[name] for name in whole.order}
    scalar = TensorType(torch.int64, ())
    signature = Signature((UserInput(scalar, "x"),), tuple(UserOutput() for _ in root.nodes))
    facts = frozenset({"outlined", "state sunk", "mutations in place", "token free"})
    return Program.of(graphs, state=_state(whole, ties), signature=signature, facts=facts)


def _plain(root: Graph) -> Graph:
    # In the root all paths are counted from the root as they stand.  The number of a call says which body it has, and its
    # place which call it is, so calls of one module with two spellings stay apart.
    def placed(node: Node) -> Node:
        if type(node.do) is not Call or not node.do.instance.path.startswith(FROM_ROOT):
            return node
        path, call = node.do.instance.path.removeprefix(FROM_ROOT), node.do.instance.call
        return evolve(node, do=Call(Frame(path, call + 2 * LATER * LARGEST), node.do.graph))

    return Graph(root.inputs, tuple(map(placed, root.nodes)), root.output)


def _with_rest(root: Graph, graphs: dict[str, Graph]) -> Graph:
    # Bodies without a call would be lost: the root calls them at its end.
    called = {node.do.graph for graph in (root, *graphs.values()) for node in graph.nodes if type(node.do) is Call}
    own = [name for name in graphs if not name.startswith("$b")]
    rest = [index for index, name in enumerate(own) if name not in called]
    calls = [
        Node(f"r{index}", Call(Frame(CHILDREN[index % 3], LATER * LARGEST + index), f"g{index}"), (Ref("x"),)) for index in rest
    ]
    return Graph(root.inputs, (*root.nodes, *calls))


def _changed(steps: tuple[_Step, ...], place: int) -> tuple[_Step, ...]:
    # A literal, a slot or a callee becomes another one; literals first, because there are few of them.
    places = sorted((index for index, step in enumerate(steps) if step.kind not in (0, 2)), key=lambda at: steps[at].kind)
    if place < 0 or not places:
        return steps
    index = places[place % len(places)]
    changed = [*steps]
    step = steps[index]
    # Another kind of call calls another body, of the same module.
    changed[index] = evolve(step, kind=5 + (step.kind - 4) % 4) if 4 < step.kind < 9 else evolve(step, second=step.second + 1)
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
                node = Node(name, toy.ADD_, (a, NUMBERS[step.second % 4]))
            case 2:
                node = Node(name, toy.RAND, (a, "t"))
            case 3 | 4:
                node = Node(name, Get(SLOTS[step.second % 2]))
            case 9:
                bodies = [Body(f"$b{number % len(BRANCHES)}") for number in (step.second, step.first + 1)]
                node = Node(name, toy.COND, (a, *bodies, (a,)))
            case _ if known:
                child, body = CALLED[step.second % 6], (step.kind + step.second) % known
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
    for name, path in instances(program):
        for node in program.graphs[name].nodes:
            if type(node.do) is Get:
                slots.setdefault(join(path, node.do.slot), _slot(len(slots), slots, tied=ties[SLOTS.index(node.do.slot)]))
    return State(tuple(slots), pmap(slots))


def _slot(number: int, slots: dict[str, Slot], *, tied: bool) -> Slot:
    if tied and slots:
        return next(iter(slots.values()))
    return Slot(SlotKind.BUFFER, _memory(number), number, number)


@cache
def _memory(number: int) -> torch.Tensor:
    return torch.tensor(1 + 2 * number)
