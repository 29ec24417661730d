"""``module_trees``: a strategy of modules as text, with the arguments to call and to export them with.

The text uses torch and a few helpers, and runs by itself.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve, frozen
from torch import nn
from torch.export import ExportedProgram

from ...oracles import Calls
from ...purity import seeded
from ..recipe import PrintedWhole
from .calls import BodyWriter
from .library import Library, Place
from .recipe import Holder, Output, Pair, Recipe, arguments, cond, dynamic_shapes, parameters, recipes

__all__ = ["ModuleTree", "module_trees", "write_root"]


def write_root(recipe: Recipe) -> str:
    """Return the text of the classes of a module tree; the last is ``Root``.

    Args:
        recipe: what was drawn.

    >>> from .recipe import Body, Step
    >>> print(write_root(Recipe(Body((), (Step(0, 0, 0),), 0, 0), (), (), 0, 0, False)))
    class Root(nn.Module):
        def forward(self, x):
            v1 = x.tanh()
            return v1
    """
    library = Library(writes=not recipe.grads, keeps_dead=recipe.sizes == 2)
    writer = BodyWriter(library, "Root", "self")
    head, reads, vectors = parameters(recipe.inputs)
    for drawn in recipe.root.slots:
        writer.slot(drawn)
    # The first argument is the latest value before the first step.
    writer.values[:0] = reversed(reads)
    writer.state += [Place(name, "constant") for name in vectors]
    writer.items(recipe.root.items)
    results = [_output(drawn, writer) for drawn in recipe.outputs] or [writer.values[-1]]
    results += writer.lost(results)
    writer.line(f"return {', '.join(results)}")
    writer.init += library.wiring
    text = "\n\n\n".join([*library.texts, writer.text(f"def forward({head}):")])
    # Where a module has two names, the exporter calls the modules of a slice "m0.slice(1, None, None).0".
    return re.sub(r"in (self\.m\d+)\[1:\]:", r"in list(\1)[1:]:", text) if library.has_two_names else text


def _output(drawn: Output, writer: BodyWriter) -> str:
    a = writer.values[-1 - drawn.first % len(writer.values)]
    b = writer.values[-1 - drawn.second % len(writer.values)]
    places = [place.text for place in writer.state if place.shape != "3, 3"]
    match drawn.kind:
        case 3:
            return f'{{"a": {a}, "none": None, "b": [{b}, 2]}}'
        case 4:
            return f"Pair({a}, {{'k': {b}}})"
        case 5:
            return ("1.5", "None", '"text"', "True")[drawn.first % 4]
        case 6:
            return "x"
        case 7 | 8 if places:
            return places[-1 - drawn.first % len(places)]
        case 9:
            return f"({a}, ({b},))"
        case _:
            return a


ROWS = (3, 5, 2)
"""The sizes of the first dimension in three calls, when it is dynamic."""

QUIET = (
    (".*LeafSpec", FutureWarning),  # torch copies its own specs
    ("The .grad attribute of a Tensor that is not a leaf", UserWarning),
)


@frozen(repr=False)
class ModuleTree(PrintedWhole):
    r"""A generated module, with the arguments of three calls in a row.

    >>> tree = ModuleTree("class Root(nn.Module):\n    def forward(self, x):\n        return x + 1")
    >>> tree.build()(torch.zeros(1))
    tensor([1.])
    >>> len(tree.calls), tree.dynamic_shapes
    (3, None)
    """

    source: str
    """The classes; the last is ``Root``.  They use ``torch``, ``nn``, and what is in ``support``."""
    inputs: tuple[int, ...] = ()
    """The kinds of the arguments after ``x``; see ``inputs.KINDS``."""
    is_dynamic: bool = False
    mode: int = 0
    """0: in training; 1: in evaluation; 2: the children of the root are in evaluation."""
    grads: bool = False
    """Whether the inputs want gradients."""
    preserve: tuple[str, ...] = ()
    """Paths of modules whose call signatures the exporter should preserve."""

    @property
    def calls(self) -> Calls:
        """Return the arguments of three calls, new ones each time it is asked."""
        rows = ROWS if self.is_dynamic else (3, 3, 3)
        return [arguments(self.inputs, seed=seed, rows=count, grads=self.grads) for seed, count in enumerate(rows)]

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """Return what the exporter is told; None when all is static."""
        return dynamic_shapes(self.inputs) if self.is_dynamic else None

    @property
    def is_random(self) -> bool:
        """Whether random numbers may be drawn; ``run_decompositions`` drops draws that nothing uses, eager does not."""
        return any(text in self.source for text in ("torch.rand_like(", "torch.randn(3) *", "ropout"))

    def build(self) -> nn.Module:
        """Return a new module; all that are built have the same numbers and share nothing."""
        with seeded(0):
            root = _root(self.source)()
        if self.mode:
            for child in root.children() if self.mode == 2 else [root]:
                child.eval()
        return root

    def export(self, *, strict: bool = False, decomposed: bool = False) -> ExportedProgram:
        """Return what the exporter makes of a new module and the first call.

        Args:
            strict: traced by dynamo.
            decomposed: in the form that ``run_decompositions({})`` gives: functional.

        Raises:
            Exception: whatever the exporter refuses it with.
        """
        args, kwargs = self.calls[0]
        with warnings.catch_warnings():
            for message, category in QUIET:
                warnings.filterwarnings("ignore", message=message, category=category)
            ep = torch.export.export(
                self.build(), args, kwargs, dynamic_shapes=self.dynamic_shapes, strict=strict,
                preserve_module_call_signature=self.preserve,
            )  # fmt: skip
            return ep.run_decompositions({}) if decomposed else ep

    def __str__(self) -> str:
        mode = ("training", "evaluation", "children in evaluation")[self.mode]
        rows = "n dynamic" if self.is_dynamic else "n = 3"
        wants = ", inputs want gradients" if self.grads else ""
        kept = f", signatures preserved: {', '.join(self.preserve)}" if self.preserve else ""
        args, kwargs = self.calls[0]
        given = ", ".join([_shown(arg) for arg in args] + [f"{name}={_shown(arg)}" for name, arg in kwargs.items()])
        return f"{self.source}\n\n# {mode}; {rows}{wants}{kept}; Root()({given})"

    __repr__ = __str__


@lru_cache(maxsize=32)
def _root(source: str) -> type[nn.Module]:
    names: dict[str, Any] = {"torch": torch, "nn": nn, "Holder": Holder, "Pair": Pair, "cond": cond, "__name__": __name__}
    exec(compile(source, "<generated module>", "exec"), names)  # noqa: S102  our own text, from fixed parts
    return names["Root"]


def _shown(arg: Any) -> str:
    match arg:
        case torch.Tensor():
            return "(n, 3)" if arg.dim() == 2 else "(3,)"
        case dict():
            return "{" + ", ".join([f'"{key}": {_shown(value)}' for key, value in arg.items()]) + "}"
        case tuple():
            return "(" + ", ".join([_shown(value) for value in arg]) + ",)"
        case list():
            return "[" + ", ".join([_shown(value) for value in arg]) + "]"
        case Pair():
            return f"Pair({_shown(arg.left)}, {_shown(arg.right)})"
        case _:
            return repr(arg)


def module_trees(*, preserve: bool = False) -> st.SearchStrategy[ModuleTree]:
    """Return a strategy of module trees, which shrink by dropping module calls.

    Args:
        preserve: also draw modules whose call signatures the exporter should preserve.

    >>> from hypothesis import find
    >>> print(find(module_trees(), lambda tree: "nn.Linear" in tree.source))
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.m0 = nn.Linear(3, 3)
        def forward(self, x):
            v1 = self.m0(x)
            return v1
    <BLANKLINE>
    # training; n = 3; Root()((n, 3))
    """
    trees = recipes().map(_tree)
    if not preserve:
        return trees
    return st.builds(_preserving, trees, st.lists(st.integers(0, 7), min_size=1, max_size=2))


def _tree(recipe: Recipe) -> ModuleTree:
    return ModuleTree(write_root(recipe), recipe.inputs, recipe.sizes == 3, recipe.mode, recipe.grads)


def _preserving(tree: ModuleTree, numbers: list[int]) -> ModuleTree:
    names = [name for name, _ in tree.build().named_modules() if name]
    return evolve(tree, preserve=tuple(dict.fromkeys(names[number % len(names)] for number in numbers if names)))
