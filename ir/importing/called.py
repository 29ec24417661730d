"""The module calls around a traced operator, noted while a module runs under a tracer that preserves meta.

Hooks on all calls of modules keep ``nn_module_stack`` of the tracer's current meta, which it copies to the nodes that it makes.
Nothing of the module is changed, and nothing is noted of modules that run in other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.traceback
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from .reading import class_name

__all__ = ["noted_calls"]


@contextmanager
def noted_calls(root: torch.nn.Module) -> Iterator[None]:
    """Note the module calls around each node that is traced while this is open.

    Args:
        root: the module that is traced; calls of it begin anew, calls of modules that it does not hold are not noted.

    >>> with noted_calls(torch.nn.ReLU()):
    ...     y = torch.nn.ReLU()(torch.ones(2))
    """
    noted = _Noted(root)
    handles = [register_module_forward_pre_hook(noted.enter), register_module_forward_hook(noted.leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Noted:
    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.thread = threading.get_ident()
        self.paths = {id(module): path for path, module in reversed(list(root.named_modules(remove_duplicate=False)))}
        """The first path of each module."""
        self.counts: dict[str, int] = {}
        self.entered: list[tuple[str, tuple[str, str]]] = []

    def enter(self, module: torch.nn.Module, _: Any) -> None:
        """Note that a module is called."""
        path = self.path(module)
        if path is None:
            return
        if module is self.root and not self.entered:
            self.counts.clear()  # torch runs the module once before it traces it
        number = self.counts[path] = self.counts.get(path, -1) + 1
        self.entered.append((f"{path}@{number}", (path, class_name(type(module)))))
        self.tell()

    def leave(self, module: torch.nn.Module, _args: Any, _result: Any) -> None:
        """Note that the call of a module is over."""
        if self.path(module) is not None and self.entered:
            self.entered.pop()
            self.tell()

    def path(self, module: torch.nn.Module) -> str | None:
        return self.paths.get(id(module)) if threading.get_ident() == self.thread else None

    def tell(self) -> None:
        """Write the calls into the meta of what is traced next."""
        meta = torch.fx.traceback.get_current_meta()
        if self.entered:
            meta["nn_module_stack"] = dict(self.entered)
        else:
            meta.pop("nn_module_stack", None)
