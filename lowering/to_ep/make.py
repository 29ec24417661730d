"""``make_ep``: a flat program becomes an exported program.

One idea: the graph is made first, and everything else (signature, call signatures, ranges, guards, examples) is read off the
program and the names that the graph was given.  ``torch`` checks the whole in the constructor; what it refuses is told as
something that can not be exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch.export import ExportedProgram

from ...ir.collector import collector_paused
from ...ir.errors import UnsupportedProgram
from ...ir.program import Program
from ...ir.signature import Token
from ...ir.torch_private import SpecViolationError, TrainingIRVerifier, Verifier, set_guards
from ...ir.verify import check
from .calls import module_calls
from .constraints import guard_texts, range_constraints
from .examples import Inputs, checked_inputs, made_up_inputs
from .graphs import GraphMaker
from .outputs import apart
from .signature import graph_signature
from .state import state_of_ep
from .values import Values

__all__ = ["DIALECTS", "make_ep"]

DIALECTS: Mapping[str, Any] = {"TRAINING": TrainingIRVerifier, "ATEN": Verifier}
"""What torch calls the rules that an exported program keeps: operators that write are allowed in the first alone."""


def make_ep(
    program: Program,
    *,
    state: Literal["copy", "share"] = "copy",
    dialect: Literal["TRAINING", "ATEN"] | None = None,
    example_inputs: Inputs | None = None,
) -> ExportedProgram:
    """Return a flat program as an exported program.

    Args:
        program: it calls no module and takes its state as inputs.
        state: ``"copy"`` gives it tensors of its own, ``"share"`` those of the program.
        dialect: which of torch's two rule books it is checked against and says of itself.
        example_inputs: positional and keyword arguments to keep in it; made up where there are none.

    Raises:
        InvalidProgram: the program breaks invariants; nothing was made.
        UnsupportedProgram: an exported program can not say what this one does; the message names it.
        InputError: the example inputs are structured differently from the program's arguments.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> make_ep(program).graph_signature.user_outputs
    ('relu',)
    """
    with collector_paused():
        return _make(apart(check(program)), state == "copy", dialect, example_inputs)


def _make(program: Program, copy: bool, dialect: str | None, example_inputs: Inputs | None) -> ExportedProgram:  # noqa: FBT001
    values = Values(program)
    root = GraphMaker(program, values).root()
    signature = graph_signature(program, root)
    calls = module_calls(program, root)
    assert calls[0].signature is not None
    in_spec = calls[0].signature.in_spec
    guards = guard_texts(program, calls[0])
    examples = checked_inputs(example_inputs, in_spec) if example_inputs is not None else made_up_inputs(program, root, in_spec)
    saved, constants = state_of_ep(program, copy=copy)
    try:
        made = ExportedProgram(
            root=root.attributes,
            graph=root.graph,
            graph_signature=signature,
            state_dict=saved,
            range_constraints=range_constraints(program, root),
            module_call_graph=calls,
            example_inputs=examples,
            constants=constants,
            verifiers=[DIALECTS[dialect or _dialect(program)]],
        )
    except SpecViolationError as error:
        raise UnsupportedProgram(f"torch does not take it as an exported program: {error}") from error
    set_guards(made, guards)
    return made


def _dialect(program: Program) -> str:
    # Tokens are unthreaded by `ep.module()` in the one dialect alone; the other one refuses nothing that torch exports.
    specs = (*program.signature.inputs, *program.signature.outputs)
    return "ATEN" if any(type(spec) is Token for spec in specs) else "TRAINING"
