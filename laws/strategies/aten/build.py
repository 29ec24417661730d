"""``exported_programs``: recipes become exported programs of real aten operators, in the form that the exporter writes.

With what the user passes and what the program returns: leaves, pytrees, numbers for several calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import field, frozen
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

from ....ir.expression import Sym
from ....ir.names import is_below
from ....ir.torch_private import TrainingIRVerifier, Verifier, pytree, symbolic_range
from ..recipe import CallRecipe, ItemRecipe, NodeRecipe, OutputRecipe, PrintedWhole
from .flow import TOKEN, Flow, Frames, Kind, Style, Value, number_kind, size, tensor_kind
from .menu import MENU
from .narrow import Narrow, narrowed
from .recipe import OWN_CONTENTS, PATHS, Recipe, recipes, split, windows

__all__ = ["Exported", "Users", "build", "exported_programs", "outputs", "ranges", "users"]

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
    users += [_user(flow, OutputRecipe(0, 0), value) for value in _unused(flow) if value.node not in given]
    return [*results.values(), *users], _tree(len(users), drawn[0].value if drawn else 0)


def _unused(flow: Flow) -> list[Value]:
    # Some of them stay: programs that the exporter writes have dead code, and passes must meet it.
    return [value for number, value in enumerate(flow.values) if not value.node.users and number % DEAD != DEAD - 1]


def _mutation(given: Value, value: Value) -> tuple[Any, OutputSpec]:
    kind = OutputKind.USER_INPUT_MUTATION if given.slot is None else OutputKind.BUFFER_MUTATION
    return value.node, OutputSpec(kind, TensorArgument(value.node.name), given.slot or given.node.name)


def _user(flow: Flow, output: OutputRecipe, value: Value) -> tuple[Any, OutputSpec]:
    if output.kind == 6:
        literal = OUTPUT_LITERALS[output.value % len(OUTPUT_LITERALS)]
        return literal, OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", literal), None)
    if output.kind == 7:
        value = flow.given[-1 - output.value % len(flow.given)]
    if output.kind == 8 and flow.numbers:
        node = flow.numbers[-1].node
        return node, OutputSpec(OutputKind.USER_OUTPUT, SymIntArgument(node.name), None)
    return value.node, OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(value.node.name), None)


def _tree(count: int, form: int) -> Any:
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
        self.calls: dict[str, int] = {}
        self.left: dict[tuple[Frames, str], tuple[str, int]] = {}

    def program(self) -> tuple[ExportedProgram, Users]:
        specs = self._inputs()
        self._items(self.recipe.items)
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

    def _items(self, items: tuple[ItemRecipe, ...]) -> None:
        frames = self.flow.frames
        for item in items:
            if type(item) is NodeRecipe:
                MENU[item.kind](self.flow, item.first, item.second)
            elif type(item) is CallRecipe:
                for shift in (0, item.module % 2) if item.twice else (0,):
                    self.flow.frames = self._entered(item, frames, shift)
                    self._items(item.items)
                self.flow.frames = frames

    def _entered(self, call: CallRecipe, frames: Frames, shift: int) -> Frames:
        within = f"{frames[-1][0]}." if frames and not call.elsewhere else ""
        # A module that is called from inside itself looks in a strict export as if it had been there before.
        around = [inner for inner, _ in frames]
        below = [path for path in PATHS if path.startswith(within) and not any(is_below(inner, path) for inner in around)]
        below = [path for path in below if path not in around]
        if not below:
            return frames
        path = below[(call.module + shift) % len(below)]
        frame = self.left.get((frames, path)) if call.again else None
        if frame is None:
            frame = (path, self.calls.get(path, 0))
            self.calls[path] = frame[1] + 1
        self.left[frames, path] = frame
        return (*frames, frame)


CALLS = 3

ANYTHING = Narrow()


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
def exported_programs(narrow: Narrow = ANYTHING) -> st.SearchStrategy[Exported]:
    """Return a strategy of exported programs, which shrink by dropping module calls.

    Args:
        narrow: what programs may do.

    The program is new, but its tensors and fake values are shared: do not write to them.

    >>> from hypothesis import Phase, find, settings
    >>> exported = find(exported_programs(), lambda exported: True, settings=settings(phases=[Phase.generate]))
    >>> len(exported.calls)
    3
    """
    return recipes().map(lambda recipe: _exported(narrowed(recipe, narrow)))


def _exported(recipe: Recipe) -> Exported:
    ep, users = build(recipe)
    return Exported(ep, tuple(users.call(number) for number in range(CALLS)), recipe)
