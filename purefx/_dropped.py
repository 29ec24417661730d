"""Actions of a module that ``torch.export`` drops silently, recorded while ``capture`` runs the module."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from purefx.ir.errors import CaptureWarning
from purefx.ir.program import Program
from purefx.ir.tensors import tensors_among
from purefx.ir.torch_private import (
    calls_wrapped,
    generator_key,
    is_freshly_seeded,
    own_functions,
    pytree,
    random_state_kept,
    traced_joint,
)

from ._assigned import Attributes

HOOKS = frozenset({torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook})
MARK = 0x70757265
"""The seed of the module's generators in a trace, where they draw nothing: another state was set by the module."""
BETWEEN = {
    traced_joint.__code__.co_filename,
    str(Path(contextlib.__file__)),
    *[
        str(Path(torch.__file__).parent / file)
        for file in (
            "random.py",
            "cuda/random.py",
            "xpu/random.py",
            "_compile.py",
            "_dynamo/eval_frame.py",
        )
    ],
}
"""The files whose functions set the state, or call one that does."""
TORCHS_OWN = str(Path(torch.__file__).parent / "_")
"""The beginning of the paths of torch's private packages, which fork the state while they trace."""


class Dropped(TorchFunctionMode):
    """Records what an exported program drops.

    Dynamo (``strict=True``) does not run the module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module, self.thread = module, threading.get_ident()
        self.paths = {
            id(vars(part)): path
            for path, part in reversed(list(module.named_modules(remove_duplicate=False)))
        }
        """The first path of each module; tracers call proxies that share its attributes."""
        self.running: list[str] = []
        self.functions: dict[str, None] = {}
        self.hooks: dict[str, None] = {}
        self.assigned: dict[str, None] = {}
        self.seeds: dict[str, None] = {}
        self.known: set[int] = set()
        """The generators of the module and of the devices, by their C++ objects."""

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Record what the module does in the context; restore the random state that it sets."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._watching_generators())
            stack.enter_context(self)
            stack.enter_context(random_state_kept(self._is_dropped))
            stack.enter_context(calls_wrapped(self.around))
            yield

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = MappingProxyType({}),
    ) -> Any:
        """Call the function."""
        if func in HOOKS:
            self.hooks[func.__name__] = None
        return func(*args, **(kwargs or {}))

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function that calls modules, to record what they do."""

        def noted(called: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():  # it traces the bodies of operators
                return call(called, *args, **kwargs)
            is_ours = threading.get_ident() == self.thread
            path = self.paths.get(id(vars(called))) if is_ours else None
            if path is None:
                return call(called, *args, **kwargs)
            before = None if self.running else Attributes(self.module)
            self.running.append(path)
            try:
                result = call(called, *args, **kwargs)
                if before is not None:
                    result, lost = before.write_back((args, kwargs), result)
                    self.assigned.update(dict.fromkeys(lost))
            finally:
                self.running.pop()
            if path == "":
                tensors = tensors_among(pytree.tree_leaves(result))
                self.functions.update(dict.fromkeys(own_functions(tensors)))
            return result

        return noted

    def _is_dropped(self, name: str) -> bool:
        if threading.get_ident() != self.thread or not self.running:
            return False
        frame = inspect.currentframe()
        caller: FrameType | None = frame.f_back if frame is not None else None
        setter = name
        while caller is not None and caller.f_code.co_filename in BETWEEN:
            home = caller.f_globals["__name__"].removesuffix(".random")
            if home.startswith("torch") and "._" not in home:
                setter = f"{home}.{caller.f_code.co_name}"
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename.startswith(TORCHS_OWN):
            return False
        path = self.running[-1]
        self.seeds[f"{setter} in {path!r}" if path else setter] = None
        return True

    @contextlib.contextmanager
    def _watching_generators(self) -> Generator[None]:
        default, cuda = torch.default_generator, torch.cuda.default_generators
        devices = [default, *cuda]
        own = {
            path: generator
            for path, generator in Attributes(self.module).generators.items()
            if generator_key(generator) not in map(generator_key, devices)
        }
        self.known = {generator_key(generator) for generator in (*devices, *own.values())}
        states = [(generator, generator.get_state()) for generator in own.values()]
        seed, state = default.initial_seed(), default.get_state()
        for generator, _ in states:
            generator.manual_seed(MARK)
        marked = {path: generator.get_state() for path, generator in own.items()}
        try:
            yield
            for path, generator in own.items():
                if not torch.equal(generator.get_state(), marked[path]):
                    self.seeds[f"the state of the generator {path!r}"] = None
        finally:
            for generator, before in states:
                generator.set_state(before)
            # Other threads may have drawn numbers, but they would not have set a seed.
            is_seeded = is_freshly_seeded(default) and not torch.equal(default.get_state(), state)
            if is_seeded or default.initial_seed() != seed:
                self.seeds["the state of torch.default_generator"] = None
                default.set_state(state)

    def warn(self, program: Program) -> None:
        """Warn the caller of ``capture``.

        Args:
            program: the exported program, for the generators that it draws from.
        """
        name = type(self.module).__qualname__
        for stored in program.state.values():
            value = stored.value
            is_other = isinstance(value, torch.Generator) and generator_key(value) not in self.known
            if is_other and is_freshly_seeded(value):
                self.seeds["a generator that is made or seeded in forward"] = None
        lost = self._gradients()
        if lost:
            _warn(
                f"torch.export drops {' and '.join(lost)} from {name}: in training, the program may "
                "have other gradients than the module. To train, use px.training.capture_joint(module, args), which traces the "
                "backward. Inference is not affected."
            )
        if self.assigned:
            _warn(
                f"torch.export drops assignments of tensors in forward of {name}: {', '.join(self.assigned)}. The lowered "
                "module keeps the values that these had before. To keep state between calls, register a buffer of the final "
                "size and dtype, and write to it (self.buffer.copy_(value)); otherwise return the tensor."
            )
        if self.seeds:
            _warn(
                f"torch.export drops the random state that {name} sets in forward: {', '.join(self.seeds)}. The lowered module "
                "draws other numbers. Set the state before the call."
            )

    def _gradients(self) -> list[str]:
        hint = (
            " (pass use_reentrant=False to torch.utils.checkpoint)"
            if "CheckpointFunction" in self.functions
            else ""
        )
        lost = [f"the backward of {', '.join(self.functions)}{hint}"] if self.functions else []
        return lost + ([f"hooks on tensors ({', '.join(self.hooks)})"] if self.hooks else [])


def _warn(text: str) -> None:
    warnings.warn(text, CaptureWarning, stacklevel=4)
