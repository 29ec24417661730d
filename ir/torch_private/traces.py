"""Private names of torch for recording the operators that torch code calls, as ``torch.export`` records them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from .fakes import _switched_off
from .joints import Late

__all__ = ["Recorder", "assuming_sizes"]

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

_proxies: Any = Late("torch.fx.experimental.proxy_tensor")


@contextmanager
def assuming_sizes(environment: Any) -> Generator[None]:
    """Let operators assume sizes for their fake results, as inference does, where code of a user must not.

    Args:
        environment: of the symbols; None where all sizes are numbers.

    >>> with assuming_sizes(None):
    ...     torch.ones(1).sum()
    tensor(1.)
    """
    if environment is None:
        yield
        return
    with _switched_off(environment, "_error_on_new_guards"), environment.suppress_guards():
        yield


class Recorder:
    """Records the operators that are called on its operands; ``make_fx`` would also generate a module.

    >>> from torch._subclasses import FakeTensorMode
    >>> recorder, x = Recorder(), FakeTensorMode().from_tensor(torch.ones(2))
    >>> with recorder.recording():
    ...     y = torch.relu(recorder.operand(x) + 1)
    >>> [str(node.target) for node in recorder.calls()], recorder.node_of(y).name
    (['aten.add.Tensor', 'aten.relu.default'], 'relu')
    """

    def __init__(self) -> None:
        self._tracer = _proxies.PythonKeyTracer()
        self._tracer.graph = self.graph = fx.Graph(tracer_cls=type(self._tracer))
        self._tracer.root = torch.nn.Module()
        self._tracer.tensor_attrs = {}

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record what runs inside; operators are recorded before autograd decomposes them."""
        mode = _proxies.ProxyTorchDispatchMode(self._tracer, "real", pre_dispatch=True)
        with torch.no_grad(), enable_python_dispatcher(), mode:
            yield

    def paused(self) -> AbstractContextManager[Any]:
        """Run operators inside of ``recording`` without recording them."""
        return cast("AbstractContextManager[Any]", _proxies.disable_proxy_modes_tracing())

    def operand(self, value: Any) -> Any:
        """Return a tensor or a symbolic number after noting that it comes from outside."""
        proxy = self._tracer.create_proxy("placeholder", "operand", (), {})
        with self.paused():
            _proxies.track_tensor_tree(value, proxy, constant=None, tracer=self._tracer)
        return value

    def node_of(self, value: Any) -> fx.Node | None:
        """Return the node that computes a value; None for a value that was not recorded."""
        if isinstance(value, torch.Tensor):
            return cast("fx.Node | None", _proxies.get_proxy_slot(value, self._tracer, None, lambda found: found.proxy.node))
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            found = _proxies.get_proxy_slot(value, self._tracer, None)
            return None if found is None else cast("fx.Node", found.force().node)
        return None

    def calls(self) -> list[fx.Node]:
        """Return the recorded calls in order."""
        return [node for node in self.graph.nodes if node.op == "call_function"]
