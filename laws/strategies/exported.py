"""``exported_programs``: recipes become exported programs of real aten operators, in the form that the exporter writes.

With what the user passes and what the program returns: leaves, pytrees, numbers for several calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve, field, frozen
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
    TokenArgument,
)

from ...ir.expression import Sym
from ...ir.names import is_below
from ...ir.torch_private import TrainingIRVerifier, Verifier, pytree, symbolic_range
from .flat import CallRecipe, ItemRecipe, NodeRecipe, OutputRecipe, PrintedWhole, SlotRecipe, filled, nested
from .flow import TOKEN, Flow, Frames, Kind, Style, Value, number_kind, size, tensor_kind
from .menu import DOING, MENU

__all__ = [
    "PATHS",
    "Exported",
    "Recipe",
    "Users",
    "Window",
    "build",
    "exported_programs",
    "narrowed",
    "outputs",
    "ranges",
    "recipes",
    "users",
    "windows",
]

KINDS = 28
"""How many kinds of nodes there are; the same is the length of the menu."""


@frozen
class Recipe(PrintedWhole):
    """All that is drawn for an exported program."""

    slots: tuple[SlotRecipe, ...]
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    inputs: int
    """How many there are, and their pytree."""
    style: int
    """The exporter's training IR, or functional; how it spells stacks."""
    is_dynamic: bool


def _node(number: int) -> NodeRecipe:
    rest, kind = divmod(number, KINDS)
    first, second = divmod(rest, 8)
    return NodeRecipe(kind, first, second)


def _call(head: int, items: tuple[ItemRecipe, ...]) -> CallRecipe:
    # How it is met is one number: flags of its own would keep a call from being dropped whole.
    how, module = divmod(head, 8)
    return CallRecipe(module, again=how == 4, twice=how in (2, 3), kept=False, elsewhere=how == 5, items=items)


NODES = st.integers(0, KINDS * 8 * 12 - 1).map(_node)

SLOTS = st.integers(0, 8 * 8 * 8 * 4 - 1).map(
    lambda number: SlotRecipe(number % 8, number // 8 % 8, number // 64 % 8, number // 512)
)
"""Below 4, ``sharing`` is nothing; 4 and 5: it is tied, 6 and 7: it lies in the same memory."""

OWN_CONTENTS = 9
"""The kind of outputs that are new contents of state or of an input: a quarter of them."""

OUTPUTS = st.integers(0, 12 * 12 - 1).map(lambda number: OutputRecipe(min(number % 12, OWN_CONTENTS), number // 12))

ITEMS = nested(NODES, lambda inside: st.builds(_call, st.integers(0, 8 * 6 - 1), inside), (8, 6, 4, 3))


@cache
def recipes() -> st.SearchStrategy[Recipe]:
    """Return the strategy of recipes.

    >>> from hypothesis import find
    >>> find(recipes(), lambda recipe: len(recipe.items) > 0).items
    (NodeRecipe(kind=0, first=0, second=0),)
    """
    return st.builds(
        Recipe,
        st.lists(SLOTS, max_size=6).map(tuple),
        ITEMS,
        filled(OUTPUTS, 6).map(tuple),
        st.integers(0, 23),
        st.integers(0, 7),
        st.integers(0, 7).map(lambda drawn: drawn == 7),
    )


PATHS = ("a", "a.c", "a.c.self", "b", "b.c", "d")
"""Modules that can be called; the call of ``a.c`` from the root leaves out ``a``."""

SHAPES: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("buffer", (4,), "n"), ("parameter", (4, 4), "w"), ("parameter", (4,), "v"), ("buffer", (), "t"),
    ("buffer", (3, 4), "m"), ("counter", (), "i"), ("unsaved", (4,), "u"), ("constant", (4,), "k"),
)  # fmt: skip

SLOT_KINDS = {
    "parameter": (InputKind.PARAMETER, "p", None), "buffer": (InputKind.BUFFER, "b", True),
    "counter": (InputKind.BUFFER, "b", True), "unsaved": (InputKind.BUFFER, "b", False),
    "constant": (InputKind.CONSTANT_TENSOR, "c", None),
}  # fmt: skip


@frozen
class Window:
    """A piece of state: its name, what it is, and which part of which memory it shows."""

    name: str
    role: str
    shape: tuple[int, ...]
    memory: int
    offset: int = 0

    @property
    def is_saved(self) -> bool:
        """Whether it is in the ``state_dict``."""
        return self.role not in ("unsaved", "constant")

    @property
    def placeholder(self) -> str:
        """The name of the input that it is lifted to."""
        return f"{SLOT_KINDS[self.role][1]}_{self.name.replace('.', '_')}"

    @property
    def contents(self) -> torch.Tensor:
        """The memory that it shows a part of, as it is at first."""
        return _memory(self.memory, "counter" if self.role == "counter" else "")

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor itself, the same object for the same window."""
        return _tensor(self.memory, self.offset, self.shape, self.role)

    @property
    def kind(self) -> Kind:
        """Its fake value, as the exporter would have it."""
        return tensor_kind(self.tensor.dtype, *self.shape, requires_grad=self.tensor.requires_grad)

    @property
    def spec(self) -> InputSpec:
        """How the signature tells it."""
        kind, _, persistent = SLOT_KINDS[self.role]
        return InputSpec(kind, TensorArgument(self.placeholder), self.name, persistent)


@cache
def _memory(number: int, role: str) -> torch.Tensor:
    if role == "counter":
        return torch.tensor([number])
    return torch.linspace(-1.0, 1.0, 16) + number / 8


@cache
def _tensor(memory: int, offset: int, shape: tuple[int, ...], role: str) -> torch.Tensor:
    count = torch.Size(shape).numel()
    found = _memory(memory, "counter" if role == "counter" else "")[offset : offset + count].view(shape)
    return torch.nn.Parameter(found) if role == "parameter" else found


def windows(slots: Sequence[SlotRecipe]) -> list[Window]:
    """Return the state of a recipe, in the exporter's order: parameters, buffers, constants.

    >>> [window.name for window in windows([SlotRecipe(0, 0, 0, 0), SlotRecipe(1, 1, 0, 0)])]
    ['a.w', 'n']
    """
    found: dict[str, Window] = {}
    for index, slot in enumerate(slots):
        for window in _drawn(index, slot, [*found.values()]):
            found.setdefault(window.name, window)
    order = list(SLOT_KINDS)
    return sorted(found.values(), key=lambda window: min(order.index(window.role), 1 + (window.role == "constant")))


def _drawn(index: int, slot: SlotRecipe, before: list[Window]) -> Iterator[Window]:
    paths = ("", *PATHS)
    place = slot.module % len(paths)
    role, shape, letter = SHAPES[slot.kind]
    window = Window(_name(paths[place], letter), role, shape, index)
    other = before[slot.other % len(before)] if before else None
    if other is not None and slot.sharing in (4, 5):
        window = evolve(other, name=_name(paths[place], other.name.rpartition(".")[2] + ("t" if place == 0 else "")))
    elif other is not None and slot.sharing > 5 and "counter" not in (role, other.role) and len(shape) < 2:
        window = evolve(window, memory=other.memory, offset=(1, 2, 5)[slot.other % 3])
    yield window
    if slot.sharing in (1, 2):
        # Its sibling has state of the same name, so that calls of the two can have equal bodies.
        sibling = {"a.c": "b.c", "a": "b", "b": "a", "b.c": "a.c"}.get(paths[place])
        if sibling:
            yield evolve(window, name=_name(sibling, letter), memory=index + 8)


def _name(path: str, letter: str) -> str:
    return f"{path}.{letter}" if path else letter


def split(state: Sequence[Window]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ``state_dict`` and the ``constants`` of an exported program."""
    saved = {window.name: window.tensor for window in state if window.is_saved}
    return saved, {window.name: window.tensor for window in state if not window.is_saved}


# -- programs that do less -------------------------------------------------------------------------------------------------------


FUNCTIONAL = (3, 7)
"""Styles in which writes are the operators that ``run_decompositions`` makes of them: as the exporter spells them, and strict."""


def narrowed(recipe: Recipe, barred: frozenset[str]) -> Recipe:
    """Return a recipe of a program that does less.

    Args:
        recipe: of anything.
        barred: what it may not do: "writes" but at the end, "new contents" of inputs and state at all, "random", "effects",
            "regions", "training", "views", "dynamic".

    >>> recipe = Recipe((), (NodeRecipe(16, 0, 0),), (), 0, 0, True)
    >>> narrowed(recipe, frozenset({"random", "dynamic"})).items, narrowed(recipe, frozenset()) is recipe
    ((NodeRecipe(kind=18, first=0, second=0),), True)
    """
    if not barred:
        return recipe
    gone = {entry for what in barred for entry in DOING.get(what, ())}
    kinds = tuple([number for number, entry in enumerate(MENU) if entry not in gone])
    return evolve(
        recipe,
        slots=tuple([evolve(slot, sharing=slot.sharing % 4) for slot in recipe.slots]) if "views" in barred else recipe.slots,
        items=tuple([_narrowed(item, kinds) for item in recipe.items]),
        outputs=tuple([one for one in recipe.outputs if "new contents" not in barred or one.kind != OWN_CONTENTS]),
        style=FUNCTIONAL[recipe.style % 2] if "writes" in barred else recipe.style,
        is_dynamic=recipe.is_dynamic and "dynamic" not in barred,
    )


def _narrowed(item: ItemRecipe, kinds: tuple[int, ...]) -> ItemRecipe:
    if type(item) is CallRecipe:
        return evolve(item, items=tuple([_narrowed(inner, kinds) for inner in item.items]))
    assert type(item) is NodeRecipe
    return item if item.kind in kinds else evolve(item, kind=kinds[item.kind % len(kinds)])


@frozen
class Visit:
    """A call of a module: the calls that it stands in, itself last, and what happens inside."""

    frames: Frames
    items: tuple[NodeRecipe | Visit, ...]
    number: int = 0
    """What was drawn for it."""


def visits(items: Sequence[ItemRecipe]) -> tuple[NodeRecipe | Visit, ...]:
    """Return the items of a recipe, each call with the module that it is a call of.

    >>> call = CallRecipe(1, again=False, twice=True, kept=False, elsewhere=False, items=())
    >>> [visit.frames for visit in visits([call])]
    [(('a.c', 0),), (('a.c.self', 0),)]
    """
    calls, left = Counter[str](), dict[tuple[Frames, str], tuple[str, int]]()

    def entered(call: CallRecipe, frames: Frames, shift: int) -> Frames:
        within = f"{frames[-1][0]}." if frames and not call.elsewhere else ""
        # A module that is called from inside itself looks in a strict export as if it had been there before.
        around = [inner for inner, _ in frames]
        below = [path for path in PATHS if path.startswith(within) and not any(is_below(inner, path) for inner in around)]
        below = [path for path in below if path not in around]
        if not below:
            return frames
        path = below[(call.module + shift) % len(below)]
        frame = left.get((frames, path)) if call.again else None
        if frame is None:
            frame = (path, calls[path])
            calls[path] += 1
        left[frames, path] = frame
        return (*frames, frame)

    def resolved(items: Sequence[ItemRecipe], frames: Frames) -> Iterator[NodeRecipe | Visit]:
        for item in items:
            if type(item) is NodeRecipe:
                yield item
            elif type(item) is CallRecipe:
                for shift in (0, item.module % 2) if item.twice else (0,):
                    inside = entered(item, frames, shift)
                    yield Visit(inside, tuple(resolved(item.items, inside)), item.module)

    return tuple(resolved(items, ()))


# -- building --------------------------------------------------------------------------------------------------------------------


LITERALS = (None, 2, True, "text")


@frozen(eq=False)
class Users:
    """The user inputs of a program."""

    leaves: tuple[tuple[str, Kind], ...]
    in_spec: Any = field(repr=False)
    names: tuple[str, ...]
    """The argument names of the original ``forward``."""

    def call(self, number: int) -> tuple[Any, ...]:
        """Return the leaves that are passed in a call."""
        return tuple(_leaf(kind, number, index) for index, (_, kind) in enumerate(self.leaves))


def _leaf(kind: Kind, call: int, index: int) -> Any:
    if kind.dtype is None:
        return kind.val
    sizes = [int(dim) if dim.isdigit() else 2 + 2 * call for dim in kind.dims]
    numbers = torch.arange(1.0, 1.0 + torch.Size(sizes).numel()).reshape(sizes)
    return torch.sin(numbers * (1 + call) + index).to(kind.dtype)


@cache
def ranges() -> dict[Any, Any]:
    """Return the range of the dynamic size."""
    found = symbolic_range(Sym(str(size())), 2, 8)
    return dict([found]) if found else {}


@cache
def users(number: int, *, is_dynamic: bool) -> Users:
    """Return the user inputs that a number stands for.

    >>> users(0, is_dynamic=False).names, [name for name, _ in users(2, is_dynamic=False).leaves]
    (('x',), ['x', 'y_q'])
    """
    form, literal = number % 6, LITERALS[number // 6 % len(LITERALS)]
    x, y, s = (tensor_kind(torch.float32, *sizes) for sizes in ((size() if is_dynamic else 3, 4), (4,), ()))
    a, b, c = number_kind(literal), y, s
    forms: tuple[tuple[tuple[str, ...], list[tuple[str, Kind]], Any], ...] = (
        (("x",), [("x", x)], ((0,), {})),
        (("x", "y"), [("x", x), ("y", y)], ((0, 0), {})),
        (("x", "y"), [("x", x), ("y_q", b)], ((0, {"q": 0}), {})),
        (("x", "flag", "z"), [("x", x), ("flag", a), ("z", y)], ((0, 0), {"z": 0})),
        (("xs",), [("xs_0", x), ("xs_1", c), ("xs_2_0", y)], (([0, 0, (0,)],), {})),
        (("x", "o"), [("x", x), ("o_p", y), ("o_q", a), ("o_r", c)], ((0,), {"o": {"p": 0, "q": 0, "r": 0}})),
    )
    names, leaves, tree = forms[form]
    return Users(tuple(leaves), pytree.tree_structure(tree), names)


OUTPUT_LITERALS = (None, 3, 0.5, True, "text")

DEAD = 6
"""One in so many unused values stays dead."""


def outputs(flow: Flow, drawn: Sequence[OutputRecipe]) -> tuple[list[tuple[Any, OutputSpec]], Any]:
    """Return the results of a program with their specs, and the pytree of those that are the user's."""
    results: dict[object, tuple[Any, OutputSpec]] = {}
    for given, value in flow.latest.items():
        results.setdefault(given.memory, _mutation(given, value))
    users: list[tuple[Any, OutputSpec]] = []
    for output in drawn:
        target = flow.given[output.value % len(flow.given)]
        contents = flow.same(output.value, target) if output.kind == OWN_CONTENTS and target.is_writable else None
        # The verifier of torch knows mutations by the value's name: one value is the new contents of one tensor.
        used = {value for value, _ in results.values()}
        if contents is not None and target.memory not in results and contents.node not in used:
            results[target.memory] = _mutation(target, contents)
        else:
            users.append(_user(flow, output, flow.value(output.value)))
    if not users:
        users.append(_user(flow, OutputRecipe(0, 0), flow.value(0)))
    given = {value for value, _ in (*results.values(), *users)}
    users += [_user(flow, OutputRecipe(0, 0), value) for value in unused(flow) if value.node not in given]
    return [*results.values(), *users], tree_of(len(users), drawn[0].value if drawn else 0)


def unused(flow: Flow) -> list[Value]:
    """Return the values that nothing uses, but for some: what the exporter writes has dead code, and passes must meet it."""
    return [value for number, value in enumerate(flow.values) if not flow.is_used(value) and number % DEAD != DEAD - 1]


def _mutation(given: Value, value: Value) -> tuple[Any, OutputSpec]:
    kind = OutputKind.USER_INPUT_MUTATION if given.slot is None else OutputKind.BUFFER_MUTATION
    return value.node, OutputSpec(kind, TensorArgument(value.node.name), given.slot or given.node.name)


def _user(flow: Flow, output: OutputRecipe, value: Value) -> tuple[Any, OutputSpec]:
    found = chosen(flow, output, value)
    if type(found) is not Value:
        return found, OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", found), None)
    argument = SymIntArgument if found.kind.dtype is None else TensorArgument
    return found.node, OutputSpec(OutputKind.USER_OUTPUT, argument(found.node.name), None)


def chosen(flow: Flow, output: OutputRecipe, value: Value) -> Any:
    """Return what an output is: a value, an input, a size, or a literal."""
    if output.kind == 6:
        return OUTPUT_LITERALS[output.value % len(OUTPUT_LITERALS)]
    if output.kind == 7:
        return flow.given[-1 - output.value % len(flow.given)]
    return flow.numbers[-1] if output.kind == 8 and flow.numbers else value


def tree_of(count: int, form: int) -> Any:
    """Return one of the pytrees of some results."""
    if count == 1 and form % 2 == 0:
        return pytree.tree_structure(0)
    forms: tuple[Any, ...] = (
        tuple(range(count)), list(range(count)), {f"k{index}": index for index in range(count)},
        ({"a": 0}, [*range(count - 1)]), [{"a": [(0,)], "b": {f"k{index}": index for index in range(count - 1)}}],
    )  # fmt: skip
    return pytree.tree_structure(forms[form // 2 % len(forms)])


def build(recipe: Recipe) -> tuple[ExportedProgram, Users]:
    """Return the exported program of a recipe, and what its user passes.

    >>> [node.name for node in build(Recipe((), (NodeRecipe(0, 0, 0),), (), 0, 0, False))[0].graph.nodes]
    ['x', 'neg', 'output']
    """
    return _Builder(recipe).program()


class _Builder:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        style = Style(is_functional=recipe.style in (3, 5, 7), is_strict=recipe.style > 3)
        self.flow = Flow(torch.fx.Graph(), style)
        self.state = windows(recipe.slots)
        self.users = users(recipe.inputs, is_dynamic=recipe.is_dynamic)

    def program(self) -> tuple[ExportedProgram, Users]:
        specs = self._inputs()
        self._items(visits(self.recipe.items))
        results, tree = outputs(self.flow, self.recipe.outputs)
        if self.flow.token is not None and self.flow.token.op == "placeholder":
            self.flow.graph.erase_node(self.flow.token)
            del specs[0]
        elif self.flow.token is not None:
            results.insert(0, (self.flow.token, OutputSpec(OutputKind.TOKEN, TokenArgument(self.flow.token.name), None)))
        self.flow.graph.output(tuple(value for value, _ in results))
        entry = ModuleCallSignature([], [], self.users.in_spec, tree, [*self.users.names])
        saved, constants = split(self.state)
        made = ExportedProgram(
            root=dict(self.flow.modules),
            graph=self.flow.graph,
            graph_signature=ExportGraphSignature(specs, [spec for _, spec in results]),
            state_dict=saved,
            range_constraints=ranges() if self.recipe.is_dynamic else {},
            module_call_graph=[ModuleCallEntry("", entry), *(ModuleCallEntry(path) for path in PATHS)],
            constants=constants,
            verifiers=[Verifier if self.flow.style.is_functional else TrainingIRVerifier],
        )
        return made, self.users

    def _inputs(self) -> list[InputSpec]:
        flow, specs = self.flow, list[InputSpec]()
        if flow.style.is_functional:
            flow.token = self._placeholder("token", TOKEN.val)
            specs.append(InputSpec(InputKind.TOKEN, TokenArgument("token"), None))
        for window in self.state:
            node = self._placeholder(window.placeholder, flow.fake(window.kind))
            is_writable = window.role not in ("parameter", "constant")
            flow.given.append(Value(node, window.kind, ("memory", window.memory), window.name, is_writable))
            specs.append(window.spec)
        for name, kind in self.users.leaves:
            node = self._placeholder(name, flow.fake(kind))
            argument: Any = TensorArgument(name) if kind.dtype else ConstantArgument(name, kind.val)
            if kind.dtype:
                flow.given.append(Value(node, kind, object()))
            specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        return specs

    def _placeholder(self, name: str, val: Any) -> torch.fx.Node:
        node = self.flow.graph.placeholder(name)
        node.meta["val"] = val
        return node

    def _items(self, items: tuple[NodeRecipe | Visit, ...]) -> None:
        for item in items:
            if type(item) is NodeRecipe:
                MENU[item.kind](self.flow, item.first, item.second)
            elif type(item) is Visit:
                outside, self.flow.frames = self.flow.frames, item.frames
                self._items(item.items)
                self.flow.frames = outside


CALLS = 3


@frozen(eq=False)
class Exported(PrintedWhole):
    """An exported program, and the leaves of its user inputs for several calls.

    >>> recipe = Recipe((), (), (), 0, 0, False)
    >>> len(Exported(build(recipe)[0], calls=((1,), (2,)), recipe=recipe).calls)
    2
    """

    ep: ExportedProgram = field(repr=False)
    calls: tuple[tuple[Any, ...], ...] = field(repr=False)
    """In each call other numbers, and other sizes where they are dynamic."""
    recipe: Recipe
    """What was drawn."""


@cache
def exported_programs(barred: frozenset[str] = frozenset()) -> st.SearchStrategy[Exported]:
    """Return a strategy of exported programs, which shrink by dropping module calls.

    Args:
        barred: what programs may not do; see ``narrowed``.

    The program is new, but its tensors and fake values are shared: do not write to them.

    >>> from hypothesis import Phase, find, settings
    >>> exported = find(exported_programs(), lambda exported: True, settings=settings(phases=[Phase.generate]))
    >>> len(exported.calls)
    3
    """
    return recipes().map(lambda recipe: _exported(narrowed(recipe, barred)))


def _exported(recipe: Recipe) -> Exported:
    ep, users = build(recipe)
    return Exported(ep, tuple(users.call(number) for number in range(CALLS)), recipe)


# -- __init__ --------------------------------------------------------------------------------------------------------------------
