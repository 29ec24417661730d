"""``module_trees``: modules that run a recipe, with arguments for calls and for the export.

The recipes and the menu are those of exported programs, but here the ``Flow`` runs each node inside a module, and the exporter
writes the graph.  Choices depend on the kinds of values and not on tensors, so they are the same in eager mode and under
the exporter.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve, frozen
from torch import nn
from torch.export import ExportedProgram

from ...ir.names import is_below, last_name, parent_of
from ...ir.torch_private import pytree
from ..oracles import Calls
from ..purity import seeded
from .exported import chosen, unused
from .flow import Kind, Style, Value, infer
from .menu import MenuFlow
from .recipes import (
    NodeRecipe,
    OutputRecipe,
    PrintedWhole,
    Recipe,
    Users,
    Visit,
    Window,
    recipes,
    tree_of,
    users,
    visits,
    windows,
)

aten: Any = torch.ops.aten
higher_order: Any = torch.ops.higher_order

EAGER = Style(is_functional=False, is_strict=False)

BUILTINS: tuple[Callable[[], nn.Module], ...] = (
    lambda: nn.Embedding(4, 4),
    lambda: nn.Sequential(
        nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 4, bias=False)
    ),  # equal bodies with other sizes
    lambda: nn.LayerNorm(4),
    lambda: nn.BatchNorm1d(4),
    lambda: nn.Dropout(0.5),
    lambda: nn.Linear(4, 4),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4)),
        nn.Conv1d(1, 2, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(1),
        nn.Linear(8, 4),
    ),
)
"""Modules of torch whose arguments and results are rows of four columns."""

LAYER, NEW_BUFFER, COND = 9, 7, 18
"""Kinds of nodes that differ in modules: a call of a torch module, an assignment to a buffer."""


def _cond(
    condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: tuple[Any, ...]
) -> Any:
    # Outside an exporter, `torch.cond` compiles both branches, which is slow.
    if torch.compiler.is_exporting():
        return torch.cond(condition, yes, no, operands)
    return yes(*operands) if bool(condition) else no(*operands)


def _without_gradients(_: bool, body: Callable[..., Any], *operands: Any) -> Any:  # noqa: FBT001  as torch's operator
    with torch.no_grad():
        return body(*operands)


class _Running(MenuFlow):
    """A flow that runs its nodes; the node of a value is a tensor."""

    def __init__(self, tree: Root, given: Sequence[Value], frames: Any = ()) -> None:
        super().__init__(torch.fx.Graph(), EAGER, smallest=tree.recipe.smallest)
        self.given += given
        self.frames = frames
        self.path = frames[-1][0] if frames else ""
        self.tree = tree
        self.used: set[Value] = set()

    def node(
        self,
        target: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,  # noqa: ARG002
    ) -> Any:
        """Run an operator."""
        if "out" in kwargs:  # autograd does not support `out`
            target = torch.no_grad()(target)
        run = {
            higher_order.cond: _cond,
            higher_order.wrap_with_set_grad_enabled: _without_gradients,
        }.get(target, target)
        return run(
            *[self.use(arg) for arg in args],
            **{key: self.use(value) for key, value in kwargs.items()},
        )

    def use(self, arg: Any) -> Any:
        """Return an argument with tensors in place of values, and mark these as used."""
        if type(arg) is Value:
            self.used.add(arg)
            return arg.node
        return type(arg)([self.use(part) for part in arg]) if type(arg) in (tuple, list) else arg

    def parts(
        self, made: Any, kinds: Sequence[Kind], owners: Sequence[Value | None]
    ) -> list[Value]:
        """Store several results as not writable: autograd refuses writes to views from one multi-output operator."""
        memories = [owner.memory if owner else object() for owner in owners]
        found = zip(made, kinds, memories, strict=True)
        return [
            self.keep(Value(each, kind, memory, is_writable=False)) for each, kind, memory in found
        ]

    def body(self, name: str, module: torch.fx.GraphModule) -> Any:  # noqa: ARG002
        """Return the body itself."""
        return module

    def is_used(self, value: Value) -> bool:
        """Return whether an operator or a call used a value."""
        return value in self.used

    def order(self, target: Any, text: str) -> None:
        """Skip it: the exporter drops operators without tensors."""

    def item(self, node: NodeRecipe) -> None:
        """Run one drawn node."""
        if node.kind == COND:
            super().item(
                NodeRecipe(node.kind, node.first % 4, node.second % 5)
            )  # the exporter often fails on nested ones
        elif node.kind == LAYER:
            self._layer(node)
        elif node.kind == NEW_BUFFER and node.second > 4:
            self.tree.assign(self.path, node.first)
        else:
            super().item(node)

    def call(self, visit: Visit) -> None:
        """Call a module."""
        if visit.frames == self.frames:
            self.run(visit.items)
            return
        number, tree = visit.number, self.tree
        given = [self.value(each) for each in ((number,) if number % 2 else (0, number))]
        tree.entered = visit, given
        tensors = [self.use(value) for value in given]
        options = {"flag": True} if number in (4, 5) else {}
        module = tree.get_submodule(visit.frames[-1][0])
        result = (
            module(*tensors, **options)
            if number % 3 or len(tensors) == 1
            else module(tensors[0], y=tensors[1], **options)
        )
        for tensor, value in zip(pytree.tree_leaves(result), tree.returned, strict=True):
            self.keep(evolve(value, node=tensor))

    def _layer(self, node: NodeRecipe) -> None:
        module = self.tree.get_submodule(_layer_path(self.path, node.second))
        values = map(self.value, range(node.first, node.first + 12))
        value = next(
            (
                each
                for each in values
                if each.kind.dims[1:] == ("4",) and each.kind.dtype is torch.float32
            ),
            None,
        )
        if value is not None:
            x = self.use(value).contiguous()
            result = module((x[:, 0] > 0).long() if isinstance(module, nn.Embedding) else x)
            kind = infer(
                aten.clone.default, (value.kind,), {"memory_format": torch.contiguous_format}
            )
            self.keep(Value(result, kind, object()))


def _layer_path(path: str, number: int) -> str:
    return f"{path}.layers.{number}" if path else f"layers.{number}"


class Block(nn.Module):
    """A module of a tree; the contents of each call of it are drawn."""

    def __init__(self, tree: Root | None) -> None:
        super().__init__()
        self.__dict__["tree"] = tree or self  # not as a child

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, *, flag: bool = False) -> Any:
        """Run the items of this call; return the latest value and the unused ones."""
        tree: Root = self.__dict__["tree"]
        visit, given = tree.entered
        pairs = zip([x] if y is None else [x, y], given, strict=True)
        args = [evolve(value, node=tensor, slot=None) for tensor, value in pairs]
        flow = _Running(tree, [*tree.state(visit.frames[-1][0]), *args], visit.frames)
        flow.run(visit.items)
        if flag or not flow.values:
            flow.emit(aten.neg.default, args[0])  # the exporter drops calls without operators
        latest = flow.values[-1]
        tree.returned = [latest, *[value for value in unused(flow) if value is not latest]]
        return pytree.tree_unflatten(
            [value.node for value in tree.returned], tree_of(len(tree.returned), visit.number)
        )


class Root(Block):
    """The outermost module, which runs the recipe."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(None)
        self.recipe, self.visits = recipe, visits(recipe.items)
        self.users = users(recipe.inputs, is_dynamic=recipe.is_dynamic)
        self.entered: tuple[Visit, list[Value]]
        """The call that begins, and the values of its arguments."""
        self.returned: list[Value] = []
        """The results of the call that ended."""
        self.windows = windows(recipe.slots)
        called = dict.fromkeys(_called(self.visits, ""))
        for path in sorted(
            {path for path, _ in called} | {parent_of(window.name) for window in self.windows}
        ):
            self._module(path)
        for path, number in called:
            if number is not None:
                self._module(parent_of(_layer_path(path, number))).add_module(
                    str(number), BUILTINS[number]()
                )
        self._hold(self.windows)

    def _module(self, path: str) -> nn.Module:
        found: nn.Module = self
        for name in path.split(".") if path else ():
            if not hasattr(found, name):
                found.add_module(name, nn.Module() if name == "layers" else Block(self))
            found = found.get_submodule(name)
        return found

    def _hold(self, drawn: Sequence[Window]) -> None:
        memo: dict[int, Any] = {}
        for window in drawn:
            is_fixed = window.role in ("parameter", "constant")
            # The exporter loses the order of the second name of a constant or of an unsaved buffer, so these are not tied.
            tensor = copy.deepcopy(
                window.tensor, {} if window.role in ("constant", "unsaved") else memo
            )
            path, _, letter = window.name.rpartition(".")
            if is_fixed:
                setattr(self.get_submodule(path), letter, tensor)
            else:
                self.get_submodule(path).register_buffer(
                    letter, tensor, persistent=window.role != "unsaved"
                )

    def state(self, path: str) -> Iterator[Value]:
        """Iterate over the current state of a module."""
        for window in self.windows:
            if is_below(window.name, path):
                owner, _, letter = window.name.rpartition(".")
                tensor = getattr(self.get_submodule(owner), letter)
                yield Value(
                    tensor, window.kind, ("memory", window.memory), window.name, window.is_writable
                )

    def assign(self, path: str, number: int) -> None:
        """Assign new contents to a buffer of a module."""
        mine = [
            each.name
            for each in self.windows
            if each.role == "buffer" and parent_of(each.name) == path
        ]
        if mine:
            owner, letter = self.get_submodule(path), last_name(mine[number % len(mine)])
            setattr(owner, letter, getattr(owner, letter) * 0.5 + 1)

    def whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the recipe; return its outputs and the unused values."""
        leaves = zip(pytree.tree_leaves((args, kwargs)), self.users.leaves, strict=True)
        given = [
            Value(leaf, kind, object(), None, not leaf.requires_grad)
            for leaf, (_, kind) in leaves
            if kind.dtype
        ]
        flow = _Running(self, [*self.state(""), *given])
        flow.run(self.visits)
        drawn = self.recipe.outputs or (OutputRecipe(0, 0),)
        found = [chosen(flow, output) for output in drawn]
        found += [value for value in unused(flow) if value not in found]
        results = [each.node if type(each) is Value else each for each in found]
        return pytree.tree_unflatten(results, tree_of(len(results), drawn[0].value))


def _called(items: Sequence[NodeRecipe | Visit], path: str) -> Iterator[tuple[str, int | None]]:
    # The paths of the called modules, and the numbers of torch modules in them.
    for item in items:
        if type(item) is Visit:
            inside = item.frames[-1][0] if item.frames else ""
            yield inside, None
            yield from _called(item.items, inside)
        elif type(item) is NodeRecipe and item.kind == LAYER:
            yield path, item.second


@cache
def _root(names: tuple[str, ...], keywords: frozenset[str]) -> type[Root]:
    # The exporter reads the parameters of `forward`.
    def forward(self: Root, *args: Any, **kwargs: Any) -> Any:
        return self.whole(args, kwargs)

    kinds = {True: inspect.Parameter.KEYWORD_ONLY, False: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    parameters = [inspect.Parameter(name, kinds[name in keywords]) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return type("Root", (Root,), {"forward": forward, "__module__": __name__})


@frozen
class ModuleTree(PrintedWhole):
    """A generated module, with the arguments of consecutive calls.

    >>> tree = ModuleTree(Recipe((), (NodeRecipe(9, 0, 0),), (), 0, 0, False))
    >>> [name for name, _ in tree.build().named_modules()], len(tree.calls), tree.dynamic_shapes
    (['', 'layers', 'layers.0'], 3, None)
    """

    recipe: Recipe
    mode: int = 0
    """0: all in training; 1: all in evaluation; 2: only the root's children are in evaluation."""
    grads: bool = False
    """Whether inputs require gradients; then they are not written in place."""

    @property
    def users(self) -> Users:
        """Return the inputs."""
        return users(self.recipe.inputs, is_dynamic=self.recipe.is_dynamic)

    def _arguments(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        return pytree.tree_unflatten(leaves, self.users.in_spec)

    @property
    def calls(self) -> Calls:
        """Return the arguments of several calls, new ones each time."""
        found = self.users.calls(self.recipe.sizes)
        for leaf in pytree.tree_leaves(found) if self.grads else ():
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                leaf.requires_grad_()
        return [self._arguments(leaves) for leaves in found]

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """Return the argument of ``torch.export.export``; None when all sizes are static."""
        if not self.recipe.is_dynamic:
            return None
        rows = {0: torch.export.Dim("n", min=self.recipe.smallest, max=16)}
        args, kwargs = self._arguments(
            [rows if kind.dims[1:] == ("4",) else None for _, kind in self.users.leaves]
        )
        return dict(zip(self.users.names, args, strict=False)) | kwargs

    def build(self) -> nn.Module:
        """Return a new module with separate memory and always the same weights."""
        keywords = frozenset(self._arguments([None] * len(self.users.leaves))[1])
        with seeded(0):
            root = _root(self.users.names, keywords)(self.recipe)
        for module in ([], [root], [*root.children()])[self.mode]:
            module.eval()
        return root

    def export(self, *, decomposed: bool = False, preserve: Sequence[str] = ()) -> ExportedProgram:
        """Export a new module with the arguments of the first call.

        Args:
            decomposed: whether to apply ``run_decompositions({})``, which makes it functional.
            preserve: paths of modules whose call signatures the exporter preserves.

        Raises:
            Exception: an error of the exporter.
        """
        args, kwargs = self.calls[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch copies its own deprecated pytree specs
            with seeded(0), torch.no_grad():
                self.build()(
                    *self.calls[0][0], **self.calls[0][1]
                )  # to infer all kinds before tracing
            options: Any = {
                "dynamic_shapes": self.dynamic_shapes,
                "preserve_module_call_signature": tuple(preserve),
            }
            ep = torch.export.export(self.build(), args, kwargs, strict=False, **options)
            return ep.run_decompositions({}) if decomposed else ep


def module_trees() -> st.SearchStrategy[ModuleTree]:
    """Return a strategy of module trees, which shrink by dropping module calls.

    >>> from hypothesis import find
    >>> find(module_trees(), lambda tree: bool(tree.recipe.items)).recipe.items
    (NodeRecipe(kind=0, first=0, second=0),)
    """
    return st.builds(ModuleTree, recipes(), st.integers(0, 2), st.booleans())
