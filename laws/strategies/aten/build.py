"""``build``: a recipe becomes an exported program of real aten operators, in the form that the exporter writes.

One idea: one walk over the drawn calls and nodes, as in the toy tier; then signature, pytrees and state around the graph.
Torch's own verifier runs when the program is made.  It draws nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
    TokenArgument,
)

from ....ir.paths import is_below
from ....ir.torch_private import TrainingIRVerifier, Verifier
from .flow import TOKEN, Flow, Frames, Style, Value
from .menu import MENU
from .outputs import outputs
from .recipe import CallRecipe, ItemRecipe, NodeRecipe, Recipe
from .state import PATHS, split, windows
from .users import Users, ranges, users

__all__ = ["build"]


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
            node = self._placeholder(window.placeholder, window.kind.val)
            is_writable = window.role not in ("parameter", "constant")
            flow.given.append(Value(node, window.kind, ("memory", window.memory), window.name, is_writable))
            specs.append(window.spec)
        for name, kind in self.users.leaves:
            node = self._placeholder(name, kind.val)
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
