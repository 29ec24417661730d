"""``dispatch``: the calls of a module with a preserved signature go to one callable under its own name.

One idea: which call it is belongs to the call, so it is data on the call and no counter in the module; what changes is that
the caller no longer chooses another module for it.  Modules whose calls take or give different pytrees stay apart, and so
do those with a call that lost its signature (the exporter loses it where ``no_grad`` or ``autocast`` holds one call).
"""

from __future__ import annotations

from attrs import evolve

from ..ir.callers import plain_calls
from ..ir.node import Frame
from ..ir.program import CallSignature, Program
from .fuel import UNLIMITED, Fuel
from .transformation import transformation

__all__ = ["dispatch"]


@transformation(
    proven=True,
    establishes={"dispatched"},
    laws=[
        "the calls of a module with one preserved signature go to one callable",
        "every call of that module has the signature",
        "no graph changes",
    ],
)
def dispatch(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Let all calls of a module with a preserved signature go to one callable.

    Before::

        y = call foo(x) as foo           # the module foo
        z = call foo@1(y) as foo@1       # another module, foo@1

    After::

        shared signature foo, foo@1      # both calls go to the module foo, which knows what each of its calls does

    So ``module.foo = other`` replaces what all of them call.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one module whose calls are marked as shared, in the order of paths.

    Returns:
        The program with its call signatures marked as shared.

    >>> import purefx as px
    >>> calls = {px.Frame("foo", number): px.CallSignature(None, None) for number in range(2)}
    >>> program = px.Program.of({"": px.Graph((), (), ())}, call_signatures=px.pmap(calls))
    >>> px.dispatch(program).call_signatures[px.Frame("foo", 1)].shared
    True
    """
    signatures = program.call_signatures
    calls: dict[str, list[Frame]] = {}
    for frame in signatures:
        calls.setdefault(frame.path, []).append(frame)
    plain = {frame.path for frame in plain_calls(program, calls)}
    shared: dict[Frame, CallSignature] = {}
    for path in sorted(calls):
        mine = {frame: signatures[frame] for frame in calls[path]}
        apart = not all(signature.shared for signature in mine.values())
        if apart and path not in plain and _agree(list(mine.values())) and fuel.burn("share", path):
            shared.update((frame, evolve(signature, shared=True)) for frame, signature in mine.items())
    return program.evolve(call_signatures=signatures.update(shared)) if shared else program


def _agree(signatures: list[CallSignature]) -> bool:
    first = signatures[0]
    return all(
        other.in_spec == first.in_spec and other.out_spec == first.out_spec and other.arg_names == first.arg_names
        for other in signatures
    )
