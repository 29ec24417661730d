"""Functions whose code is made when they are first called.

One idea: the function is there from the beginning and stays the same object; its first call changes its code.  So whoever holds
it (a class, a traceback, dynamo) never sees a second function, and later calls cost what calls cost.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

from ..ir.torch_private import run_while_tracing

__all__ = ["deferred"]


def deferred(write: Callable[[], tuple[CodeType, Mapping[str, Any]]], name: str, *, parameters: int) -> FunctionType:
    """Return a function of ``self`` and values that is compiled when it is first called.

    Threads that call it first at the same time may each write its code; what they write is the same.

    Args:
        write: gives the code and the globals that it reads.
        name: of the function.
        parameters: how many values it takes.

    >>> code = compile("def twice(self, v0): return two * v0", "", "exec").co_consts[0]
    >>> twice = deferred(lambda: (code, {"two": 2}), "twice", parameters=1)
    >>> twice(None, 4), twice.__code__ is code
    (8, True)
    """

    def ready() -> None:
        if run.__code__ is first:
            code, values = write()
            run.__globals__.update(values)
            run.__code__ = code

    # Of its own: dynamo keeps what it compiled with the code object.
    first = _first(parameters).replace(co_name=name)
    run = FunctionType(first, {"ready": run_while_tracing(ready), "__builtins__": builtins}, name)
    run.__globals__["whole"] = run
    return run


@functools.cache
def _first(parameters: int) -> CodeType:
    # Takes what the function will take, so that nobody who looks at its signature sees a difference.
    given = ", ".join(["self", *(f"v{number}" for number in range(parameters))])
    made: dict[str, Any] = {}
    exec(f"def first({given}):\n ready()\n return whole({given})", {}, made)  # noqa: S102 - nothing of a program is in it
    code: CodeType = made["first"].__code__
    return code
