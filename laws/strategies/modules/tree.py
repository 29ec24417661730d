"""``ModuleTree``: the text of a module tree with all that is needed to run and to export it.

One idea: a case is text, so the smallest failing one is printed as a program that runs when pasted; each ``build``
executes it anew with the same random numbers.  Nothing here draws.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch.export import ExportedProgram

from ...oracles import Calls
from .inputs import arguments, dynamic_shapes
from .support import Holder, Pair, cond

__all__ = ["ModuleTree"]

ROWS = (3, 5, 2)
"""The sizes of the first dimension in three calls, when it is dynamic."""

QUIET = (
    (".*LeafSpec", FutureWarning),  # torch copies its own specs
    ("The .grad attribute of a Tensor that is not a leaf", UserWarning),
)


@frozen(repr=False)
class ModuleTree:
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
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
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
