"""Build programs around instances of patterns, with tensors for running them.

The nodes beside the patterns are of the menu of exported programs.  All choices are drawn, the simplest first, so that a failing
program shrinks to a few operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve

from ...ir.arguments import Arg, Body, Items, Ref, thawed
from ...ir.errors import PurefxError
from ...ir.expression import Sym
from ...ir.graph import Call, Frame, Get, Graph, Input, Node, Op
from ...ir.inference import ASSUMED
from ...ir.names import Names, join
from ...ir.operators import op_of
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import Constraints, Range, Signature, TensorType, UserInput, UserOutput
from ...ir.state import Slot, SlotKind, State
from ...ir.torch_private import resolve_operator
from ...ir.verify import verify
from ...transforms import infer, lift_state
from ..evaluate import evaluate, written_state
from ..law import Case
from ..purity import seeded
from ..strategies.flow import Style, Value, tensor_kind
from ..strategies.menu import DOING, MENU, MenuFlow
from ..strategies.recipes import NodeRecipe
from ..toy import GETITEM, TensorMachine
from ..values import false_values
from .instances import CALLS, Instance, Operand, changed

aten: Any = torch.ops.aten

Pick = Callable[[str, Sequence[Any]], Any]
"""Chooses one of several values for a named choice; the first value is the simplest."""


class PatternFlow(MenuFlow):
    """A flow that writes the nodes of a program around patterns.

    Args:
        barred: features to exclude: "writes", "random", "effects", "views", "state".
        is_dynamic: whether a size of the inputs is symbolic, so that neither literals nor state have sizes.

    >>> flow = PatternFlow()
    >>> x = flow.add_input(Operand(torch.ones(2)))
    >>> flow.emit(aten.neg.default, x).node, flow.emit(aten.select.int, x, 5, 5), [node.name for node in flow.nodes]
    (Ref(name='neg'), None, ['neg'])
    """

    def __init__(self, barred: Collection[str] = (), *, is_dynamic: bool = False) -> None:
        self.barred = {
            *barred,
            "regions",
            *(("sizes",) if is_dynamic else ()),
            *(("in place",) if "writes" in barred else ()),
        }
        super().__init__(torch.fx.Graph(), Style(is_functional=False, is_strict=False), self.barred)
        self.is_dynamic = is_dynamic
        self.names = Names([])
        self.inputs: dict[str, Operand] = {}
        self.nodes: list[Node] = []
        self.slots: dict[str, tuple[SlotKind, Operand, str]] = {}
        """The kind and the contents of each slot, and the first slot with the same cell."""

    def add_input(self, operand: Operand) -> Value:
        """Add a user input."""
        name = self.names.fresh("x")
        self.inputs[name] = operand
        return self.add(Ref(name), operand, object())

    def add(self, node: Ref, operand: Operand, memory: object, slot: str | None = None) -> Value:
        """Store a value that is like an operand."""
        self.given.append(
            Value(node, tensor_kind(operand.value.dtype, *operand.value.shape), memory, slot)
        )
        return self.given[-1]

    def read(self, operand: Operand, kind: SlotKind, *, tied: bool = False) -> Value:
        """Add a slot like an operand and a read; ``tied`` shares the cell of an equal slot."""
        kind = (
            SlotKind.BUFFER
            if kind is SlotKind.PARAMETER and not operand.value.is_floating_point()
            else kind
        )
        name = self.names.fresh(kind.value)
        equal = [first for _, other, first in self.slots.values() if repr(other) == repr(operand)]
        first = equal[0] if tied and equal else name
        self.slots[name] = (self.slots[first][0] if first in self.slots else kind, operand, first)
        self.nodes.append(Node(self.names.fresh(f"{name}_read"), Get(name)))
        return self.add(Ref(self.nodes[-1].name), operand, ("cell", first), name)

    def state(self, paths: Sequence[str] = ("",)) -> State:
        """Return the state of the modules at some paths, with other contents in each."""
        found: dict[str, Slot] = {}
        for call, path in enumerate(paths):
            for name, (kind, operand, first) in self.slots.items():
                tensor: Any = operand.at(call, len(found) + 1)
                tensor = torch.nn.Parameter(tensor) if kind is SlotKind.PARAMETER else tensor
                new = Slot(
                    kind, tensor, len(found), len(found), persistent=kind is not SlotKind.CONSTANT
                )
                found[join(path, name)] = found.get(join(path, first), new)
        return State(tuple(found), pmap(found))

    def node(
        self,
        target: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,  # noqa: ARG002
    ) -> Any:
        """Add a node; return a reference to it."""
        name = self.names.fresh(target.__name__.partition(".")[0])
        named = tuple([(key, _arg(value)) for key, value in kwargs.items()])
        self.nodes.append(Node(name, op_of(target), tuple(map(_arg, args)), named))
        return Ref(name)

    def put(self, node: Node, known: dict[str, Any]) -> bool:
        """Add a node of a pattern; return False if the operator refuses its operands.

        Args:
            node: the node of the pattern.
            known: the values in this graph of those of the pattern; that of the node is added, None if it has no result.
        """

        def leaf(arg: Arg) -> Any:
            return known[arg.name] if type(arg) is Ref else arg

        args, count = thawed(node.args, leaf), len(self.nodes)
        if node.do == GETITEM and isinstance(args[0], list):  # the items are there already
            known[node.name] = dict(enumerate(args[0])).get(args[1])
        else:
            assert type(node.do) is Op and node.do.target is not None
            known[node.name] = self.emit(
                node.do.target, *args, **{key: thawed(arg, leaf) for key, arg in node.kwargs}
            )
        # An assertion has no value.
        return known[node.name] is not None or len(self.nodes) > count

    def step(self, pick: Pick, entries: Sequence[int] = range(len(MENU))) -> None:
        """Add a node beside the patterns."""
        drawn = NodeRecipe(pick("step", entries), pick("first", range(8)), pick("second", range(8)))
        if self.values or self.given:
            self.item(drawn)


def _arg(arg: Any) -> Arg:
    if type(arg) is list:
        return Items([_arg(part) for part in arg])
    return arg.node if type(arg) is Value else arg


def _few(pick: Pick, name: str, most: int) -> int:
    return max(0, pick(name, range(2 * most + 1)) - most)  # 0 about half of the time


KINDS = {kind.value: kind for kind in SlotKind} | {
    "read": SlotKind.PARAMETER,
    "tied": SlotKind.BUFFER,
}
"""The sources that read state."""

FEEDS = ("input",) * 8 + (
    "value", "earlier value", "parameter", "buffer", "tied", "transposed", "part", "expanded", "copied", "part of a value",
)  # fmt: skip
"""The sources of operands; a new input if the source is not possible."""

OF: Mapping[str, tuple[str, ...]] = {
    "state": tuple(KINDS),
    "views": ("transposed", "part", "expanded", "part of a value"),
    "sizes": ("parameter", "buffer", "tied", "part", "expanded", "part of a value"),
}
"""The sources with a feature; those with sizes have literal ones."""


THROUGH: Mapping[
    str,
    tuple[Callable[[torch.Tensor], torch.Tensor], Any, Callable[[torch.Tensor], tuple[Any, ...]]],
] = {
    "transposed": (lambda it: it.transpose(0, -1), aten.transpose.int, lambda _: (0, -1)),
    "part": (
        lambda it: torch.cat([it[:1], it]),
        aten.slice.Tensor,
        lambda like: (0, 1, len(like) + 1),
    ),
    "expanded": (lambda it: it[:1], aten.expand.default, lambda like: ([*like.shape],)),
    "copied": (torch.Tensor.clone, aten.clone.default, lambda _: ()),
}
"""Operators between an input and the operand: the input made from the operand, and the other arguments."""


def supplied(flow: PatternFlow, operand: Operand, feed: str) -> Value:
    """Return a value like an operand.

    Args:
        flow: the graph.
        operand: the operand.
        feed: its source.

    >>> flow = PatternFlow()
    >>> supplied(flow, Operand(torch.ones(2, 3)), "transposed").node, flow.given[0].kind.dims
    (Ref(name='transpose'), ('3', '2'))
    """
    like = operand.value
    wanted = (like.dtype, tuple(map(str, like.shape)))
    there = [
        value
        for value in (*flow.given, *flow.values)
        if (value.kind.dtype, value.kind.dims) == wanted
    ][::-1]
    feed = "input" if any(feed in OF[what] for what in flow.barred & OF.keys()) else feed
    found: Value | None = None
    if feed in KINDS:
        found = flow.read(operand, KINDS[feed], tied=feed == "tied")
    elif feed in ("value", "earlier value") and there:
        found = there[(feed == "earlier value") % len(there)]
    elif feed == "part of a value" and there and like.dim():
        found = flow.emit(aten.slice.Tensor, there[0], 0, 0, len(like), of=there[0])
    elif feed in THROUGH and like.dim() and len(like):
        change, target, args = THROUGH[feed]
        whole = flow.add_input(evolve(operand, value=change(like)))
        found = flow.emit(target, whole, *args(like), of=whole)
    return found or flow.add_input(operand)


# -- programs --------------------------------------------------------------------------------------------------------------------

ROOT, SHARED, TWICE, BRANCH = "root", "shared", "twice", "branch"
"""The places of patterns: the root, a body of two modules, a body that is called twice, a branch."""

FRAMES = {SHARED: (Frame("a"), Frame("b")), TWICE: (Frame("a", 0), Frame("a", 1))}
"""The calls of a body."""

IN_BRANCHES = ("writes", "random", "effects", "state")
"""Features that are excluded from branches."""

TREE = frozenset({"state sunk", "mutations in place", "token free"})

FLAT = frozenset({"flat", "mutations in place", "token free"})

SIZE = Sym("s0")
"""The open size."""

LEAST = (ASSUMED, ASSUMED, 1, 0)
"""Where its range starts."""


def build(
    pick: Pick,
    pool: Sequence[Instance],
    *,
    near: bool = False,
    is_flat: bool = False,
    barred: Collection[str] = (),
) -> Case | None:
    """Build a program around patterns; return None if it is invalid or does not run.

    Args:
        pick: makes all choices.
        pool: the instances to choose from, the simplest first.
        near: whether one literal of each pattern is changed.
        is_flat: whether the program is flat with its state as inputs; it has more writes inside patterns.
        barred: features to exclude: "writes", "random", "effects", "views", "regions", "dynamic".
    """
    place = pick("place", (ROOT,) * 5 + (SHARED, SHARED, TWICE, BRANCH))
    place = ROOT if "regions" in barred or (is_flat and place != BRANCH) else place
    is_dynamic = (
        pick("dynamic", (False, False, True, True)) and place == ROOT and "dynamic" not in barred
    )
    flow = PatternFlow((*barred, *(IN_BRANCHES if place == BRANCH else ())), is_dynamic=is_dynamic)
    results: list[Value] = []
    finite: dict[str, float] = {}
    for _ in range(_few(pick, "before", 2)):
        flow.step(pick)
    for _ in range(pick("hits", (1, 2, 3))):
        results += _hit(flow, pick, pool, finite, near=near, is_flat=is_flat)
    if not results:
        return None
    for _ in range(_few(pick, "after", 3)):
        flow.step(pick)
    # Half of the time, return nothing else: most values of a large pattern are inner ones, and outputs would use them.
    outputs = [
        *results,
        *[flow.value(pick("output", range(10))) for _ in range(_few(pick, "outputs", 2))],
    ]
    if place == BRANCH:  # results of branches must not be operands
        outputs = [flow.emit(aten.clone.default, value) for value in outputs]
    size = _opened(flow, pick)
    least = pick("least", LEAST) if size else ASSUMED
    program = _placed(flow, place, outputs, size, least)
    if is_flat or not pick("sunk", (False, True)):
        program = lift_state(program) if place == ROOT else program
    program = program.evolve(facts=FLAT) if is_flat else program
    calls = tuple(
        [
            tuple([one.at(call, index, sizes) for index, one in enumerate(flow.inputs.values())])
            for call, sizes in _sizes_of_calls(size, least)
        ]
    )
    try:
        program = infer(program)
    except PurefxError:
        return None
    case = Case(program, pick("variant", range(1 << 16)), calls)
    return None if verify(program) or not _runs(case, finite) else case


def drawn_around(pool: Sequence[Instance], **options: Any) -> st.SearchStrategy[Case | None]:
    """Return the strategy of programs around patterns.

    Args:
        pool: the instances, the simplest first.
        options: of ``build``.

    >>> from hypothesis import find
    >>> from .instances import instance_of
    >>> found = instance_of(lambda x: torch.relu(x), [Operand(torch.ones(2))])
    >>> [node.name for node in find(drawn_around([found]), lambda case: case is not None).program.main.nodes]
    ['relu', 'mul']
    """
    return st.composite(
        lambda draw: build(lambda _, choices: draw(_sampled(choices)), pool, **options)
    )()


_sampled = cache(st.sampled_from)


@lru_cache(256)  # a search and its check build the same ones
def simplest(instance: Instance, **choices: Any) -> Case | None:
    """Build the program of a pattern on inputs, which returns a function of its result; ``choices`` override defaults."""
    return build(lambda name, several: choices.get(name, several[0]), [instance])


def _hit(
    flow: PatternFlow, pick: Pick, pool: Sequence[Instance], finite: dict[str, float], *, near: bool, is_flat: bool
) -> list[Value]:  # fmt: skip
    # Return the outputs; [] if the pattern does not run on its operands. Record values that have to be finite.
    found = pool[pick("instance", range(len(pool)))]
    found = changed(found, pick("changed", range(24))) if near else found
    known: dict[str, Any] = {}
    for number, (name, operand) in enumerate(found.leaves):
        feed = pick("feed", FEEDS) if number < 4 else FEEDS[0]
        source = found.sources.get(name, feed)
        known[name] = supplied(
            flow,
            operand,
            feed if source == "read" and feed in ("parameter", "buffer", "tied") else source,
        )
    finite.update(
        [(known[name].node.name, 0.5) for name, operand in found.leaves if operand.is_finite]
    )
    entries: Sequence[int] = range(len(MENU))
    places: list[int] = []
    if len(found.nodes) > 1 and (
        pick("between", range(4)) == 3 or (is_flat and pick("written", range(3)) == 1)
    ):
        entries = (
            tuple([number for number in entries if MENU[number] in DOING["in place"]])
            if is_flat
            else entries
        )
        places = [
            pick("behind", range(min(4, len(found.nodes) - 1)))
            for _ in range(pick("steps", (1, 2)))
        ]
    for number, node in enumerate(found.nodes):
        if is_cast(node) and pick("asserted", (False, False, True)):
            _assert_type(flow, known[node.refs()[0]])
        if not flow.put(node, known):
            return []
        for _ in range(places.count(number)):
            flow.step(pick, entries)
    finite.update(
        [(known[name].node.name, 1.0) for name in found.finite if type(known.get(name)) is Value]
    )
    if found.keeps_inner and (kept := pick("kept", KEPT)):
        results = [known[name] for name in found.results]
        return _kept(flow, pick, kept, results, [known[node.name] for node in found.nodes])
    end = pick("end", (0,) * 10 + (0, 1, 2, 3, 4))
    return [
        used
        for result in found.results
        for used in _ended(flow, end, known[result], known[next(iter(found.nodes)).name])
    ]


KEPT = ("",) * 7 + ("returned", "result written", "view written", "inner written")
"""What becomes of an inner value that a rule keeps: the caller gets it, or a write to one value may reach another."""


def _kept(
    flow: PatternFlow, pick: Pick, kept: str, results: Sequence[Value], values: Sequence[Any]
) -> list[Value]:
    # The outputs of a match with an inner value that stays: one nearest to the results first.
    inner = [one for one in values if type(one) is Value and one not in results][::-1]
    if not inner:
        return [*results]
    stays = inner[pick("inner", range(len(inner))) % len(inner)]
    result = results[pick("result", range(len(results)))]
    if kept == "returned" or "writes" in flow.barred:
        return [*results, stays]
    written = {"result written": result, "inner written": stays}.get(kept)
    if written is None and "views" not in flow.barred:
        written = flow.emit(aten.unsqueeze.default, result, 0, of=result)
    if written is not None:
        flow.emit(aten.add_.Tensor, written, 1, of=written)
    outputs = [flow.emit(aten.mul.Tensor, one, 2) for one in (*results, stays)]
    return [one for one in outputs if one is not None]


def is_cast(node: Node) -> bool:
    """Return whether torch.export writes an assertion of the type of its operand before a node.

    >>> is_cast(Node("y", op_of(aten.to.dtype), (Ref("x"), torch.float64)))
    True
    """
    return type(node.do) is Op and node.do.name in CASTS and bool(node.refs())


CASTS = frozenset({f"aten.to.{name}" for name in ("dtype", "device", "dtype_layout", "other")})
"""Operators before which torch.export asserts the type of the operand."""


ASSERT_TYPE: Any = resolve_operator("aten", "_assert_tensor_metadata", "default")


def _assert_type(flow: PatternFlow, value: Any) -> None:
    if type(value) is Value:
        flow.node(ASSERT_TYPE, (value,), {"dtype": value.kind.dtype}, None)


def _ended(flow: PatternFlow, end: int, result: Value, first: Any) -> list[Value]:
    if end == 1:
        return [result]
    if end == 2:
        return [
            result
            if "views" in flow.barred
            else flow.emit(aten.transpose.int, result, 0, -1, of=result) or result
        ]
    if end == 3 and "writes" not in flow.barred:
        flow.emit(aten.add_.Tensor, result, 1, of=result)
    found = [flow.emit(aten.mul.Tensor, result, 2)]
    if end == 4 and type(first) is Value:
        found.append(flow.emit(aten.mul.Tensor, first, 2))
    return [value for value in found if value is not None]


def _runs(case: Case, finite: Mapping[str, float]) -> bool:
    # Whether all calls run, with right fake values: exporters write no program in which a size that grows makes more chunks.
    # Computed operands that must be finite, such as an inner value of another match, may be infinite or overflow in a product.
    # Values that a pattern computes from them may overflow. Both are bounded by a power of the largest number.

    def seen(_: str, part: Any, value: Any) -> None:
        is_real = isinstance(value, torch.Tensor) and (
            value.is_floating_point() or value.is_complex()
        )
        if (
            is_real
            and part.name in finite
            and not (value.abs() <= torch.finfo(value.dtype).max ** finite[part.name]).all()
        ):
            raise OverflowError(part.name)

    try:
        for leaves_alone in (
            (None, written_state(case.program)) if finite else (None,)
        ):  # a caller may write returned state
            with seeded(0), torch.no_grad():
                evaluate(
                    case.program, case.calls, TensorMachine(), seen=seen, leaves_alone=leaves_alone
                )
        return not case.computed(false_values, case.program)
    except Exception:  # noqa: BLE001  operators raise any exceptions
        return False


def _opened(flow: PatternFlow, pick: Pick) -> int:
    # The size to replace by a symbol: the most frequent one of inputs or the next, or 0.  The user's operands keep their sizes.
    operands = flow.inputs.values()
    if not flow.is_dynamic or any(operand.style == "given" for operand in operands):
        return 0
    sizes = Counter([size for operand in operands for size in operand.value.shape if size > 1])
    if not sizes:
        return 0
    ordered = sorted(sizes, key=lambda size: (sizes[size], size), reverse=True)
    return ordered[pick("open", (0, 0, 1)) % len(ordered)]


def _sizes_of_calls(size: int, least: int) -> list[tuple[int, dict[int, int]]]:
    # The number of each call, with its size in place of an open one.  Small sizes come before the numbers that are not finite,
    # which may stay in the state.
    if not size:
        return [(call, {}) for call in range(CALLS)]
    first, *others = [(call, {size: size + call}) for call in range(CALLS)]
    small = [(CALLS + number, {size: number}) for number in range(least, ASSUMED)]
    return [first, *small, *others]


def _placed(flow: PatternFlow, place: str, outputs: list[Value], size: int, least: int) -> Program:
    # The program with the outputs; a size, if not 0, is replaced by a symbol whose range starts at ``least``.
    args = tuple(map(Ref, flow.inputs))
    body = Graph(
        tuple([Input(arg.name) for arg in args]),
        tuple(flow.nodes),
        tuple([value.node for value in outputs]),
    )
    frames = FRAMES.get(place, ())
    graphs, facts = {"": body}, TREE | {"outlined"} if frames else TREE
    calls = [
        Node(f"call_{number}", Call(frame, "body"), args) for number, frame in enumerate(frames)
    ]
    if place == BRANCH:  # both branches are equal, so that any results have equal strides
        calls = [
            Node(
                "cond", op_of(torch.ops.higher_order.cond), (True, Body("body"), Body("body"), args)
            )
        ]
    if calls:
        items = [
            (call, Node(f"{call.name}_{n}", GETITEM, (Ref(call.name), n)))
            for call in calls
            for n in range(len(outputs))
        ]
        nodes = dict.fromkeys([node for pair in items for node in pair])
        graphs = {
            "": Graph(body.inputs, tuple(nodes), tuple([Ref(item.name) for _, item in items])),
            "body": body,
        }
    specs = list[UserInput]()
    for name, operand in flow.inputs.items():
        shape = tuple([SIZE if one == size > 0 else one for one in operand.value.shape])
        specs.append(UserInput(TensorType(operand.value.dtype, shape), name))
    signature = Signature(tuple(specs), (UserOutput(),) * len(graphs[""].output))
    constraints = Constraints((Range(SIZE, least, None),) if size else ())
    paths = tuple({frame.path: None for frame in frames}) or ("",)
    return Program.of(
        graphs, state=flow.state(paths), signature=signature, constraints=constraints, facts=facts
    )
