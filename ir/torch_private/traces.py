"""Private names of torch: the structured trace, which ``TORCH_TRACE=folder`` writes and ``tlparse`` shows.

No handler of ours is ever installed, and nothing is written where nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch._logging._internal as logs

__all__ = ["is_traced", "write_artifact"]


def is_traced() -> bool:
    """Return whether somebody reads the structured trace of torch.

    Its logger has a handler from the beginning, which without a folder takes one record and goes; and pytest hangs its own on
    every logger, for messages, of which a trace has none.  Neither is somebody.

    >>> is_traced()
    False
    """
    handlers: list[Any] = cast(Any, logs).trace_log.handlers
    return any(map(_reads, handlers))


def _reads(handler: Any) -> bool:
    if type(handler) is logs.LazyTraceHandler:
        return handler.root_dir is not None
    return type(handler).__module__ != "_pytest.logging"


def write_artifact(name: str, text: Callable[[], str]) -> None:
    """Write a text to the structured trace.

    Args:
        name: becomes the name of a file in the pages that ``tlparse`` makes.
        text: is called if somebody reads the trace.
    """
    if is_traced():
        logs.trace_structured_artifact(name, "string", text)
