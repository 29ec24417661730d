"""``infer``: infer missing or stale fake values, and no others.

A value is valid as long as the node and its operands are unchanged.  So an operator runs only if its value is missing or an
operand changed, and propagation stops at unchanged values.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.errors import NamingError
from ...ir.inference import Interpreter
from ...ir.names import did_you_mean
from ...ir.persistent import grouped
from ...ir.program import Program
from ..transformation import transformation


@transformation(
    proven=True,
    laws=[
        "removed values are inferred again, equal to before",
        "a value stays the same object where nothing that it depends on has changed",
        "a value in a shared body is that of every call",
        "only meta changes",
    ],
)
def infer(program: Program, *, changed: Iterable[str] = ()) -> Program:
    """Infer missing or stale fake values (``val`` in meta).

    Before::

        x                                       # val: f32[4, 8]
        y = aten.to.dtype(x, torch.float64)     # no val
        z = aten.neg.default(y)                 # val: f32[4, 8]

    After::

        x                                       # val: f32[4, 8]
        y = aten.to.dtype(x, torch.float64)     # val: f64[4, 8]
        z = aten.neg.default(y)                 # val: f64[4, 8]

    Operators run on tensors without contents, in the fake mode of the program's values, so symbolic sizes are preserved and
    nothing is computed or allocated.  A body is inferred for each of its calls, and keeps the values on which all of them agree.
    Values that cannot be inferred stay unknown: results of modules, of unknown functions and of operators without a fake kernel,
    and values that depend on an input with neither value nor type.  A stale value that cannot be inferred is dropped.

    Args:
        program: a program at any stage.
        changed: further values that are stale: names of nodes and inputs that were edited and kept their metadata.
            ``verify(program, infer=True)`` finds them.

    Returns:
        The program with values; the same object if none are missing.

    Raises:
        InvalidProgram: an operator refuses its arguments; the message has its error, and the line of the user.
        NamingError: ``changed`` has a name that is not a value of the program.
        TypeError: ``changed`` is a single string, or not a list of names.

    >>> import torch, purefx as px
    >>> from purefx.ir.operators import op_of
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),)))
    >>> row = px.Node("row", op_of(torch.ops.aten.select.int), (px.Ref("relu"), 0, 1))
    >>> longer = program.with_main(px.Graph(program.main.inputs, (*program.main.nodes, row), program.main.output))
    >>> tuple(px.infer(longer).main.nodes[-1].meta["val"].shape)
    (3,)
    >>> px.infer(program) is program
    True
    """
    given: object = changed
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"infer(changed=) takes a list of names of values, not {given!r}")
    order = program.order if changed else ()
    where = grouped([(name, graph) for graph in order for name in program.graphs[graph].metas])
    stale: set[tuple[str, str]] = set()
    for name in changed:
        if name not in where:
            raise NamingError(
                f"infer(changed=): the program has no value called {name!r}{did_you_mean(name, where)}"
            )
        stale.update([(graph, name) for graph in where[name]])
    return Interpreter(program, frozenset(stale)).program()
