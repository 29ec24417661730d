"""What ``torch.export`` drops without a word: backward functions of the module's own, hooks on tensors.

The exporter runs the module once, and this looks on: nothing is run a second time.  Dynamo (``strict=True``) runs no module.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, field
from torch.overrides import TorchFunctionMode

from purefx.ir.errors import CaptureWarning
from purefx.ir.torch_private import calls_wrapped, own_functions, pytree

__all__ = ["Dropped"]

HOOKS = frozenset({torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook})

REENTRANT = "CheckpointFunction"


class _Hooks(TorchFunctionMode):
    """Notes the hooks that are put on tensors while it is on."""

    def __init__(self, found: dict[str, None]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = MappingProxyType({})
    ) -> Any:
        """Call the function."""
        if func in HOOKS:
            self.found[func.__name__] = None
        return func(*args, **(kwargs or {}))


@define(eq=False)
class Dropped:
    """What a module does while it is exported that the exported program does not.

    >>> dropped = Dropped(torch.nn.ReLU())
    >>> with dropped.watched():
    ...     ep = torch.export.export(dropped.module, (torch.ones(2),))
    >>> dropped.warn()
    """

    module: torch.nn.Module
    functions: dict[str, None] = field(factory=dict)
    """The classes with a backward of their own that the results depend on."""
    hooks: dict[str, None] = field(factory=dict)
    """How hooks were put on tensors."""

    @contextmanager
    def watched(self) -> Generator[None]:
        """Note it while this is open, for calls of the module in this thread that Dynamo does not trace."""
        thread = threading.get_ident()

        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            def noted(called: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
                if called is not self.module or threading.get_ident() != thread or torch.compiler.is_dynamo_compiling():
                    return call(called, *args, **kwargs)
                result = call(called, *args, **kwargs)
                results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
                self.functions.update(dict.fromkeys(own_functions(results)))
                return result

            return noted

        with _Hooks(self.hooks), calls_wrapped(around):
            yield

    def warn(self) -> None:
        """Warn the caller of who calls this."""
        name = type(self.module).__qualname__
        hint = " (pass use_reentrant=False to torch.utils.checkpoint)" if REENTRANT in self.functions else ""
        lost = [f"the backward of {', '.join(self.functions)}{hint}"] if self.functions else []
        lost += [f"hooks on tensors ({', '.join(self.hooks)})"] if self.hooks else []
        if lost:
            said = (
                f"torch.export drops {' and '.join(lost)} from {name}: in training, the program may have other gradients than "
                "the module. To train, use px.training.capture_joint(module, args), which traces the backward. Inference is "
                "not affected."
            )
            warnings.warn(said, CaptureWarning, stacklevel=3)
