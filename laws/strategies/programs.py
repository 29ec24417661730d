"""Programs of toy operators: flat ones, outlined ones with shared bodies, and those at each stage of the default pipeline.

Outlined ones are built without ``outline``, so that its errors cannot cancel out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal, get_args

import hypothesis.strategies as st
import torch
from attrs import evolve
from hypothesis import reject

from ...ir.arguments import Arg, Body, Ref
from ...ir.errors import PartitionError, UnsupportedProgram
from ...ir.graph import Call, Frame, Get, Graph, Input, Node, Op
from ...ir.names import FROM_ROOT, is_below, last_name, parent_of
from ...ir.own_operators import GIVES, TAKES, is_boundary
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Module, Program
from ...ir.signature import (
    InputMutation,
    OutputSpec,
    Signature,
    StateInput,
    StateMutation,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from ...ir.state import Slot, SlotKind, State
from ...ir.torch_private import pytree
from ...transforms import (
    deduplicate,
    inplace_mutations,
    insert_ivals,
    outline,
    sink_state,
    split_balanced,
    split_by_tags,
)
from .. import toy
from ..variants import reordered
from .flow import Flow, Style, Value, tensor_kind
from .recipes import (
    LITERALS,
    OWN_CONTENTS,
    PATHS,
    NodeRecipe,
    Recipe,
    Visit,
    Window,
    recipes,
    visits,
    windows,
)

TOY_PATHS = (*PATHS, "a@1", "a_1")
"""The last two look like the second call of ``a`` and like names derived from it."""

INTEGER = tensor_kind(torch.int64)

SCALAR = TensorType(torch.int64, ())

ENTRIES: tuple[tuple[Op, str], ...] = (
    (toy.NEG, "a"), (toy.ADD, "ab"), (toy.MUL, "an"), (toy.ADD_, "an"), (toy.ADD_, "rn"), (toy.COPY_, "ab"),
    (toy.VIEW, "a"), (toy.CLONE, "a"), (toy.RAND, "at"), (toy.EMIT, "at"), (toy.PRINT, "t"), (toy.PAIR, "ab"),
    (toy.GETITEM, ""), (toy.COND, ""), (toy.ENTER, ""), (toy.SEND, "a"), (toy.COPY_, "ab"), (toy.ADD_, "rn"),
    (toy.MUL, "an"), (toy.VIEW, "a"), (toy.RAND, "at"), (toy.ADD_, "an"), (toy.COUNT, "a"), (toy.ENTER, ""),
)  # fmt: skip
"""The menu: operators and their operands.  ``a`` and ``b`` are values, ``r`` is an operand of the previous node, ``n`` a number
and ``t`` a tag.  Operators without operands here choose them."""

RESULTS = {toy.EMIT: 0, toy.PRINT: 0, toy.PAIR: 2, toy.COND: 1, toy.ENTER: 0, toy.LEAVE: 0}
"""The number of results of operators with other than one value."""

ACTING = frozenset(
    {toy.ADD_, toy.COPY_, toy.RAND, toy.EMIT, toy.PRINT, toy.COND, toy.ENTER, toy.SEND, toy.COUNT}
)
"""Operators that may have effects."""

TREES = tuple(
    (pytree.tree_structure(args), pytree.tree_structure(result))
    for args, result in (
        (((1, 2), {}), (1, 2)),
        (((1,), {"k": 2}), [1, 2]),
        (((1, [2, 3]), {}), {"a": 1, "b": (2, 3)}),
    )
)
"""The pytrees of preserved calls; the last leaf is a constant."""


class ToyFlow(Flow):
    """A flow that writes nodes of a flat program."""

    def __init__(self, given: Sequence[Value], *, acts: bool = True) -> None:
        super().__init__(torch.fx.Graph(), Style(is_functional=False, is_strict=False))
        self.given += given
        self.acts = acts
        """Whether nodes may have effects: in programs full of effects, passes have nothing to do."""
        self.nodes: list[Node] = []
        self.bodies: dict[str, Graph] = {}
        self.tuples: list[tuple[str, int]] = []
        self.sent: list[Ref] = []
        """Values that were sent and not yet awaited."""
        self.preserved: dict[Frame, CallSignature] = {}

    def add(self, do: Any, *args: Arg, results: int | None = None) -> Ref:
        """Add a node; return a reference to it.

        Args:
            do: the operator, read or call.
            args: its arguments.
            results: None for one value, otherwise the length of the tuple.
        """
        word = last_name(parent_of(do.name)) or do.name if type(do) is Op else "v"
        name = f"{word}{len(self.nodes)}"
        self.nodes.append(Node(name, do, args, (), tuple([Frame(*frame) for frame in self.frames])))
        if results is None:
            self.keep(Value(Ref(name), INTEGER, object()))
        elif results:
            self.tuples.append((name, results))
        return Ref(name)

    def item(self, node: NodeRecipe) -> None:
        """Add the operator of one drawn node."""
        op, letters = ENTRIES[node.kind]
        first, second = node.first, node.second
        if op in ACTING and not self.acts:
            op, letters = ENTRIES[second % 3]
        a, b = self.value(first).node, self.value(second + 2).node
        operands = {
            "a": a,
            "b": b,
            "n": second + 1,
            "t": f"t{second}",
            "r": self._just_read() if "r" in letters else a,
        }
        args = tuple([operands[letter] for letter in letters])
        if op is toy.RAND and second == 7:
            args = (*args, False)
        if op is toy.SEND and second > 2 and self.sent:
            self.add(toy.WAIT, self.sent.pop(0))
        elif op is toy.SEND:
            self.sent.append(self.add(op, a, toy.GROUPS[second % len(toy.GROUPS)]))
        elif op is toy.GETITEM and self.tuples:
            name, length = self.tuples[-1 - first % len(self.tuples)]
            self.add(op, Ref(name), second % length)
        elif op is toy.COND:
            self.add(op, a, self._body(second), self._body(first), (a, b), results=1)
        elif op is toy.ENTER:
            self._enter_or_leave(second)
        elif args:
            self.add(op, *args, results=RESULTS.get(op))

    def call(self, visit: Visit) -> None:
        """Write a call of a module; a preserved one has boundaries with its leaves."""
        if not visit.is_preserved or visit.frames == self.frames:
            super().call(visit)
            return
        outside, self.frames = self.frames, visit.frames
        args_spec, result_spec = TREES[visit.number % len(TREES)]
        self.preserved[Frame(*visit.frames[-1])] = CallSignature(args_spec, result_spec)
        for op, spec in ((TAKES, args_spec), (GIVES, result_spec)):
            if op is GIVES:
                self.run(visit.items)
            self.add(
                op,
                *[self.value(3 * number).node for number in range(spec.num_leaves - 1)],
                2,
                results=0,
            )
        self.frames = outside

    def _just_read(self) -> Ref:
        # Write to a value that was just read, so that its reader must not move after the write.
        refs = self.nodes[-1].refs() if self.nodes and not is_boundary(self.nodes[-1]) else ()
        known = {value.node.name for value in (*self.values, *self.given)}
        return next((Ref(name) for name in refs if name in known), self.value(0).node)

    def _enter_or_leave(self, second: int) -> None:
        self.add(toy.LEAVE if second % 3 == 2 else toy.ENTER, results=0)

    def _body(self, number: int) -> Body:
        p, q = Ref("p"), Ref("q")
        menu: tuple[tuple[Op, tuple[Arg, ...]], ...] = (
            (toy.NEG, (p,)), (toy.ADD, (p, q)), (toy.ADD_, (p, 1)), (toy.RAND, (q, "body")), (toy.COPY_, (p, q)),
        )  # fmt: skip
        nodes: tuple[Node, ...] = (Node("r", *menu[number % len(menu)]),)
        if number % 8 > len(menu):
            nodes = (Node("seen", toy.EMIT, (q, "body")), *nodes)
        return self._keep_body(nodes)

    def _keep_body(self, nodes: tuple[Node, ...]) -> Body:
        name = f"$body_{len(self.bodies)}"
        self.bodies[name] = Graph((Input("p"), Input("q")), nodes, (Ref("r"),))
        return Body(name)


LARGEST = 1024
"""More than the number of bodies of a program."""


class TreeFlow(ToyFlow):
    """A flow that writes the body of one module call; calls in it are nodes."""

    def __init__(
        self, state: Sequence[Window], graphs: dict[str, Graph], frames: tuple[Any, ...] = ()
    ) -> None:
        super().__init__([Value(Ref("x"), INTEGER, object())])
        self.state, self.graphs = state, graphs
        self.calls = Counter[str]()
        self.path = frames[-1][0] if frames else ""
        self.slots = [
            last_name(window.name) for window in state if parent_of(window.name) == self.path
        ]
        for slot in self.slots[:2]:
            self.add(Get(slot))

    def call(self, visit: Visit) -> None:
        """Add a call; equal bodies are one graph."""
        path = visit.frames[-1][0] if visit.frames else ""
        inside = TreeFlow(self.state, self.graphs, visit.frames)
        inside.run(visit.items)
        body = self._interned(Graph((Input("x"),), tuple(inside.nodes), inside.value(0).node), "g")
        # Path and call number determine one body for all callers.
        number = self.calls[path] * LARGEST + list(self.graphs).index(body)
        self.calls[path] += 1
        relative = (
            path.removeprefix(f"{self.path}.")
            if is_below(path, self.path)
            else f"{FROM_ROOT}{path}"
        )
        self.add(Call(Frame(relative, number), body), self.value(visit.number).node)

    def _interned(self, graph: Graph, prefix: str) -> str:
        for name, other in self.graphs.items():
            if other == graph:
                return name
        name = f"{prefix}{len(self.graphs)}"
        self.graphs[name] = graph
        return name

    def _enter_or_leave(self, second: int) -> None:
        self.add(toy.NEG, self.value(second).node)

    def _keep_body(self, nodes: tuple[Node, ...]) -> Body:
        # Branches also read and write the state of the calling module.
        if self.slots:
            nodes = (Node("s", Get(self.slots[0])), Node("w", toy.ADD_, (Ref("s"), 1)), *nodes)
        return Body(self._interned(Graph((Input("p"), Input("q")), nodes, (Ref("r"),)), "$b"))


def build_tree(recipe: Recipe) -> Program:
    """Return the outlined program of a recipe, whose equal bodies are shared.

    >>> from .recipes import CallRecipe
    >>> build_tree(Recipe((), (CallRecipe(0, 2, (NodeRecipe(0, 0, 0),)),), (), 0, 0, False)).order
    ('', 'g0')
    """
    state = windows(recipe.slots)
    graphs: dict[str, Graph] = {}
    flow = TreeFlow(state, graphs)
    flow.run(visits(recipe.items))
    results = tuple([value.node for value in flow.values])  # all, so that results of calls are used
    signature = Signature((UserInput(SCALAR, "x"),), tuple([UserOutput() for _ in results]))
    facts = frozenset({"outlined", "state sunk", "mutations in place", "token free"})
    main = Graph((Input("x"),), tuple(flow.nodes), results)
    return Program.of({"": main, **graphs}, state=_state(state), signature=signature, facts=facts)


def build_flat(recipe: Recipe) -> Program:
    """Return the flat program of a recipe.

    >>> from .recipes import CallRecipe
    >>> build_flat(Recipe((), (CallRecipe(0, 0, (NodeRecipe(0, 0, 0),)),), (), 0, 0, False)).main.nodes[0].stack
    (Frame(path='a', call=0),)
    """
    state = windows(recipe.slots)
    given = [
        Value(Ref(f"s{index}"), INTEGER, window.memory, window.name)
        for index, window in enumerate(state)
        if window.role != "counter"
    ]
    given += [
        Value(Ref(f"x{index}"), INTEGER, f"x{index}") for index in range(1 + recipe.inputs % 2)
    ]
    flow = ToyFlow(given, acts=recipe.inputs < 20)
    flow.run(visits(recipe.items, TOY_PATHS))
    outputs = _outputs(flow, recipe)
    inputs = [
        UserInput(SCALAR, value.node.name) if value.slot is None else StateInput(value.slot)
        for value in given
    ]
    formals = tuple([Input(value.node.name) for value in given])
    main = Graph(formals, tuple(flow.nodes), tuple([arg for arg, _ in outputs]))
    program = Program.of(
        {"": main, **flow.bodies},
        state=_state(state),
        signature=Signature(tuple(inputs), tuple([spec for _, spec in outputs])),
        modules=tuple(Module(path, "toy.Module") for path in ("", *TOY_PATHS)),
        call_signatures=pmap(flow.preserved),
        facts=frozenset({"flat"}),
    )
    # In half of the programs, the nodes of each call are contiguous.
    return reordered(program, seed=recipe.style) if recipe.style % 2 else program


def _outputs(flow: ToyFlow, recipe: Recipe) -> list[tuple[Arg, OutputSpec]]:
    found: list[tuple[Arg, OutputSpec]] = []
    mutated: set[object] = set()
    for drawn in recipe.outputs:
        value, target = flow.value(drawn.value).node, flow.given[drawn.value % len(flow.given)]
        if drawn.kind == 6:
            found.append((LITERALS[drawn.value % len(LITERALS)], UserOutput()))
        elif drawn.kind < OWN_CONTENTS or target.memory in mutated:
            found.append((value, UserOutput()))
        else:
            # The order of two new contents of one memory is undefined.
            mutated.add(target.memory)
            index = flow.given.index(target)
            found.append(
                (value, InputMutation(index) if target.slot is None else StateMutation(target.slot))
            )
    return found


ROLES = {"parameter": SlotKind.PARAMETER, "constant": SlotKind.CONSTANT}


def _state(state: Sequence[Window]) -> State:
    cells: dict[Window, int] = {}
    slots: dict[str, Slot] = {}
    for window in state:
        unnamed = evolve(window, name="")
        cell, kind = cells.setdefault(unnamed, len(cells)), ROLES.get(window.role, SlotKind.BUFFER)
        slots[window.name] = Slot(kind, _tensor(unnamed), cell, window.memory, window.is_saved)
    return State.of(slots)


@cache
def _memory(number: int) -> torch.Tensor:
    # Programs share these: tensors of programs are never written.
    return torch.tensor(1 + 2 * number)


@cache
def _tensor(window: Window) -> torch.Tensor:
    tensor = _memory(window.memory).view(())
    return torch.nn.Parameter(tensor, requires_grad=False) if window.role == "parameter" else tensor


# -- stages ----------------------------------------------------------------------------------------------------------------------


def _split(program: Program) -> Program:
    # Into three parts, or as many as possible.
    for count in (3, 2):
        with suppress(PartitionError):
            return split_balanced(program, count, cost=lambda node: len(node.args))
    return split_by_tags(program, ("stage0",), tag_of=lambda _: "stage0")


Stage = Literal[
    "tokens", "flat", "in place", "sunk", "ivals", "outlined", "deduplicated", "split", "tree"
]

STAGES: tuple[Stage, ...] = get_args(Stage)

PASSES: dict[str, tuple[Callable[[Program], Program], ...]] = {
    "in place": (inplace_mutations,),
    "sunk": (inplace_mutations, sink_state),
    "ivals": (inplace_mutations, sink_state, insert_ivals),
    "outlined": (inplace_mutations, sink_state, insert_ivals, outline),
    "deduplicated": (inplace_mutations, sink_state, insert_ivals, outline, deduplicate),
    "split": (inplace_mutations, sink_state, _split),
}


def programs(stage: Stage = "flat") -> st.SearchStrategy[Program]:
    """Return a strategy of valid programs of toy operators, which shrink by dropping module calls.

    Args:
        stage: ``"tokens"`` threads tokens through ordered effects, ``"flat"`` is an imported program without them, the next
            five are stages of the default pipeline; ``"split"`` has three parts; ``"tree"`` draws outlined
            programs directly, with shared bodies.

    >>> from hypothesis import Phase, find, settings
    >>> from purefx.ir import StateInput
    >>> program = find(programs("sunk"), lambda program: True, settings=settings(phases=[Phase.generate]))
    >>> StateInput in map(type, program.signature.inputs)
    False
    """

    def passed(program: Program) -> Program:
        try:
            for step in (with_tokens,) if stage == "tokens" else PASSES.get(stage, ()):
                program = step(program)
        except UnsupportedProgram:
            reject()  # a reordered write can cut a preserved call, which outline refuses
        return program

    return recipes().map(build_tree if stage == "tree" else build_flat).map(passed)


def with_tokens(program: Program) -> Program:
    """Return a flat program with a token threaded through its prints, as the exporter writes it.

    >>> node = Node("p", toy.PRINT, ("hi",))
    >>> [made.name for made in with_tokens(Program.of({"": Graph((), (node,), ())})).main.nodes]
    ['p', 'p_token']
    """
    token = "token"  # noqa: S105  not a password
    nodes: list[Node] = []
    for node in program.main.nodes:
        if node.do != toy.PRINT:
            nodes.append(node)
            continue
        nodes.append(evolve(node, do=toy.THREAD, args=(Ref(token), toy.PRINT.target, *node.args)))
        token = f"{node.name}_token"
        nodes.append(Node(token, toy.GETITEM, (Ref(node.name), 0), (), node.stack))
    main, signature = program.main, program.signature
    outputs = tuple(
        InputMutation(spec.index + 1) if type(spec) is InputMutation else spec
        for spec in signature.outputs
    )
    signature = evolve(signature, inputs=(Token(), *signature.inputs), outputs=(Token(), *outputs))
    graph = Graph((Input("token"), *main.inputs), tuple(nodes), (Ref(token), *main.output))
    return program.with_main(graph, signature=signature)
