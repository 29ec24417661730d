"""``exported_programs``: convert recipes to exported programs of aten operators, in the exporter's format."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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

from ...ir.torch_private import TrainingIRVerifier, Verifier
from .flow import TOKEN, Flow, Style, Value
from .menu import MenuFlow
from .recipes import (
    LITERALS,
    OWN_CONTENTS,
    PATHS,
    SLOT_KINDS,
    OutputRecipe,
    PrintedWhole,
    Recipe,
    Users,
    Window,
    ranges,
    recipes,
    tree_of,
    users,
    visits,
    windows,
)


def narrowed(recipe: Recipe, barred: frozenset[str]) -> Recipe:
    """Return a recipe without certain features of state, outputs and style.

    Args:
        recipe: any recipe.
        barred: the features; see ``exported_programs``.

    >>> recipe = Recipe((), (), (), 0, 0, True)
    >>> narrowed(recipe, frozenset({"dynamic"})).is_dynamic, narrowed(recipe, frozenset({"writes"})).style
    (False, 3)
    """
    return evolve(
        recipe,
        slots=tuple([evolve(slot, sharing=slot.sharing % 4) for slot in recipe.slots])
        if "views" in barred
        else recipe.slots,
        outputs=tuple(
            [
                one
                for one in recipe.outputs
                if "new contents" not in barred or one.kind != OWN_CONTENTS
            ]
        ),
        style=recipe.style | 3 if "writes" in barred else recipe.style,
        is_dynamic=recipe.is_dynamic and "dynamic" not in barred,
    )


DEAD = 6
"""The number of unused values per value that stays dead."""


def _outputs(flow: Flow, drawn: Sequence[OutputRecipe]) -> tuple[list[tuple[Any, OutputSpec]], Any]:
    # The results with their specs, and the pytree of user outputs.
    results: dict[object, tuple[Any, OutputSpec]] = {}
    for given, value in flow.latest.items():
        results.setdefault(given.memory, _mutation(given, value))
    users: list[tuple[Any, OutputSpec]] = []
    for output in drawn or (OutputRecipe(0, 0),):
        target = flow.given[output.value % len(flow.given)]
        is_own = output.kind == OWN_CONTENTS and target.is_writable
        contents = (
            flow.find(output.value, lambda value, like=target: value.kind is like.kind)
            if is_own
            else None
        )
        # torch's verifier identifies mutations by value name, so a value can be the new contents of one tensor only.
        used = {value for value, _ in results.values()}
        if contents is not None and target.memory not in results and contents.node not in used:
            results[target.memory] = _mutation(target, contents)
        else:
            users.append(_user(chosen(flow, output)))
    known = {value for value, _ in (*results.values(), *users)}
    users += [_user(value) for value in unused(flow) if value.node not in known]
    users = users or [_user(flow.value(0))]
    return [*results.values(), *users], tree_of(len(users), drawn[0].value if drawn else 0)


def unused(flow: Flow) -> list[Value]:
    """Return most of the unused values; the others stay as dead code, which exported programs have."""
    return [
        value
        for number, value in enumerate(flow.values)
        if not flow.is_used(value) and number % DEAD != DEAD - 1
    ]


def _mutation(given: Value, value: Value) -> tuple[Any, OutputSpec]:
    kind = OutputKind.USER_INPUT_MUTATION if given.slot is None else OutputKind.BUFFER_MUTATION
    return value.node, OutputSpec(
        kind, TensorArgument(value.node.name), given.slot or given.node.name
    )


def _user(found: Any) -> tuple[Any, OutputSpec]:
    if type(found) is not Value:
        return found, OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", found), None)
    argument = SymIntArgument if found.kind.dtype is None else TensorArgument
    return found.node, OutputSpec(OutputKind.USER_OUTPUT, argument(found.node.name), None)


def chosen(flow: Flow, output: OutputRecipe) -> Any:
    """Return the drawn result: a value, an input, a size, or a literal."""
    if output.kind == 6:
        return LITERALS[output.value % len(LITERALS)]
    if output.kind == 7:
        return flow.given[-1 - output.value % len(flow.given)]
    return flow.numbers[-1] if output.kind == 8 and flow.numbers else flow.value(output.value)


def build(recipe: Recipe, barred: Collection[str] = ()) -> tuple[ExportedProgram, Users]:
    """Return the exported program of a recipe, and its user inputs.

    Args:
        recipe: any recipe.
        barred: features whose nodes are replaced by others; see ``exported_programs``.

    >>> from .recipes import NodeRecipe
    >>> [node.name for node in build(Recipe((), (NodeRecipe(0, 0, 0),), (), 0, 0, False))[0].graph.nodes]
    ['x', 'neg', 'output']
    """
    style = Style(is_functional=recipe.style in (3, 5, 7), is_strict=recipe.style > 3)
    flow = MenuFlow(torch.fx.Graph(), style, barred, smallest=recipe.smallest)
    given, state = users(recipe.inputs, is_dynamic=recipe.is_dynamic), windows(recipe.slots)
    specs = _inputs(flow, state, given)
    flow.run(visits(recipe.items))
    results, tree = _outputs(flow, recipe.outputs)
    if flow.token is not None and flow.token.op == "placeholder":
        flow.graph.erase_node(flow.token)
        del specs[0]
    elif flow.token is not None:
        results.insert(
            0, (flow.token, OutputSpec(OutputKind.TOKEN, TokenArgument(flow.token.name), None))
        )
    flow.graph.output(tuple(value for value, _ in results))
    entry = ModuleCallSignature([], [], given.in_spec, tree, [*given.names])
    made = ExportedProgram(
        root=dict(flow.modules),
        graph=flow.graph,
        graph_signature=ExportGraphSignature(specs, [spec for _, spec in results]),
        state_dict={window.name: window.tensor for window in state if window.is_saved},
        range_constraints=ranges(recipe.smallest) if recipe.is_dynamic else {},
        module_call_graph=[ModuleCallEntry("", entry), *(ModuleCallEntry(path) for path in PATHS)],
        constants={window.name: window.tensor for window in state if not window.is_saved},
        verifiers=[Verifier if flow.style.is_functional else TrainingIRVerifier],
    )
    return made, given


def _inputs(flow: Flow, state: Sequence[Window], given: Users) -> list[InputSpec]:
    specs: list[InputSpec] = []
    if flow.style.is_functional:
        flow.token = flow.placeholder("token", TOKEN.val)
        specs.append(InputSpec(InputKind.TOKEN, TokenArgument("token"), None))
    for window in state:
        kind, letter, is_persistent = SLOT_KINDS[window.role]
        node = flow.placeholder(f"{letter}_{window.name.replace('.', '_')}", flow.fake(window.kind))
        flow.given.append(
            Value(node, window.kind, ("memory", window.memory), window.name, window.is_writable)
        )
        specs.append(InputSpec(kind, TensorArgument(node.name), window.name, is_persistent))
    for name, kind in given.leaves:
        node = flow.placeholder(name, flow.fake(kind))
        argument: Any = TensorArgument(name) if kind.dtype else ConstantArgument(name, kind.val)
        if kind.dtype:
            flow.given.append(Value(node, kind, object()))
        specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
    return specs


@frozen(eq=False)
class Exported(PrintedWhole):
    """An exported program, and the leaves of its user inputs for several calls.

    >>> recipe = Recipe((), (), (), 0, 0, False)
    >>> len(Exported(build(recipe)[0], calls=((1,), (2,)), recipe=recipe).calls)
    2
    """

    ep: ExportedProgram = field(repr=False)
    calls: tuple[tuple[Any, ...], ...] = field(repr=False)
    """The leaves of each call, with different numbers and dynamic sizes."""
    recipe: Recipe
    """The recipe."""


@cache
def exported_programs(barred: frozenset[str] = frozenset()) -> st.SearchStrategy[Exported]:
    """Return a strategy of exported programs, which shrink by dropping module calls.

    Args:
        barred: features to exclude: "writes" except at the end, all "new contents" of inputs and state, "random", "effects",
            "regions", "training", "views", "dynamic".

    The program is new, but its tensors and fake values are shared: do not write to them.

    >>> from hypothesis import Phase, find, settings
    >>> exported = find(exported_programs(), lambda exported: True, settings=settings(phases=[Phase.generate]))
    >>> len(exported.calls)
    3
    """

    def exported(recipe: Recipe) -> Exported:
        narrow = narrowed(recipe, barred)
        ep, users = build(narrow, barred)
        return Exported(ep, users.calls(narrow.sizes), recipe)

    return recipes().map(exported)
