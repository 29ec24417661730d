"""``to_ep``: a program at any stage becomes an ``ExportedProgram``, for the tools that take one.

One idea: flattening is three transformations (``inline``, ``lift_state``, ``functionalize``), and a flat program is spelled
as torch spells it; this is the one place that knows both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from purefx.ir import Call, Program
from purefx.ir.verify import check
from purefx.lowering.to_ep import DIALECTS, make_ep
from purefx.transforms import functionalize, inline, lift_state, transform
from purefx.transforms.regions import with_regions

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["to_ep"]


def to_ep(
    program: Program,
    *,
    state: Literal["copy", "share"] = "copy",
    dialect: Literal["TRAINING", "ATEN"] | None = None,
    example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    nested: bool = False,
) -> ExportedProgram:
    """Return a program as an exported program, which saves, loads, decomposes, compiles and exports like any other.

    Module calls are put in the places of the calls (``inline``), reads of state become inputs (``lift_state``), last writes to
    state and inputs become outputs (``functionalize``); other writes stay operators that write.  Nodes keep the names that
    they have, module stacks, stack traces and custom meta; a node that a rewrite has put in gets a fake value by running its
    operator on those of its arguments.

    Args:
        program: at any stage; it is not changed.
        state: ``"copy"`` gives the result tensors of its own, ``"share"`` those of the program: what is written to the one is
            then written to the other. Fake values, and the symbols of dynamic sizes, are shared either way.
        dialect: which of torch's rule books it says that it keeps. None is ``"TRAINING"``, what ``torch.export.export``
            makes, and ``"ATEN"`` where it has effect tokens; say ``"ATEN"`` for one that was decomposed.
        example_inputs: ``(args, kwargs)`` to keep in it. None makes up zeros of the sizes that were exported: a program does
            not keep the inputs of its export, and torch enforces guards only where there are some.
        nested: keep bodies that several calls share as ``invoke_subgraph`` regions, which torch's compilers compile once; a
            flat program goes through the default pipeline first. Bodies that write, print, return what they were given, or
            have a preserved signature, are inlined all the same. Torch (2.13) takes no gradients through such regions in eager.

    Returns:
        An exported program that torch's verifier took. ``import_ep`` gives back the flattened program, up to names.

    Raises:
        InvalidProgram: the program breaks invariants; all violations are listed, and nothing was made.
        UnsupportedProgram: an exported program can not say what this one does; the message names it.
        InputError: the example inputs are structured differently from the program's arguments.
        ValueError: an option is none of those above.
        TypeError: ``program`` is not a Program.

    >>> import torch, purefx as px
    >>> program = px.transform(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))))
    >>> px.to_ep(program).graph_signature.parameters
    ('weight', 'bias')
    """
    if not isinstance(program, Program):
        raise TypeError(f"to_ep takes a purefx Program, not a {type(program).__name__}; start with import_ep(ep)")
    if state not in ("copy", "share"):
        raise ValueError(f'state={state!r}: it is "copy" or "share"')
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f'dialect={dialect!r}: it is None, "TRAINING" or "ATEN"')
    check(program)
    if nested:
        is_flat = not any(type(node.do) is Call for node in program.main.nodes)
        program = with_regions(transform(program) if is_flat else program)
    flat = functionalize(lift_state(inline(program)))
    return make_ep(flat, state=state, dialect=dialect, example_inputs=example_inputs)
