"""``cases_of``: programs, exported programs and models of the user's, with arguments, become cases that laws are asked on.

One idea: a program is taken as it is and a model is exported and brought to the stage that was asked for; what can not be
run with its arguments is told before any law is asked.  It draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..ir.errors import PurefxError
from ..ir.importing import import_ep
from ..ir.program import Program
from ..ir.signature import UserInput
from ..ir.torch_private import pytree
from ..ir.verify import check
from .law import Case
from .strategies import Stage
from .tiers import at_stage, case_with_calls

__all__ = ["WrongQuestion", "cases_of"]

CALLS = 2
"""How often in a row each is run, so that what is left in its state is seen."""

HOW = "write programs=[(program, args)] or [(model, args, kwargs)], where args is the tuple of positional arguments"


class WrongQuestion(PurefxError, TypeError, ValueError):
    """``check_transformation`` was called with something that no law can be asked with.

    >>> issubclass(WrongQuestion, TypeError), issubclass(WrongQuestion, ValueError)
    (True, True)
    """


def cases_of(programs: Iterable[Any], *, stage: Stage = "flat") -> list[Case]:
    """Return the cases of what a user gives.

    Args:
        programs: pairs of a program, an exported program or a module and the tuple of its arguments, or these and a dict
            of its keyword arguments.
        stage: where modules and exported programs are taken to; programs are left as they are.

    Raises:
        WrongQuestion: something in it is none of that, or can not be run.

    >>> [case.program.main.nodes[0].do.name for case in cases_of([(torch.nn.ReLU(), (torch.ones(2),))])]
    ['aten.relu.default']
    """
    if isinstance(programs, str | Program | torch.nn.Module) or not isinstance(programs, Iterable):
        raise WrongQuestion(f"programs is a {type(programs).__name__}; {HOW}")
    return [_case(number, given, stage) for number, given in enumerate(programs)]


def _case(number: int, given: Any, stage: Stage) -> Case:
    what = f"programs[{number}]"
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WrongQuestion(f"{what} is a {type(given).__name__}; {HOW}")
    source, args, kwargs = (*given, {})[:3]
    if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
        raise WrongQuestion(f"the arguments of {what} are a {type(args).__name__} and a {type(kwargs).__name__}; {HOW}")
    args = tuple(args)
    if isinstance(source, torch.nn.Module):
        try:
            source = torch.export.export(source, args, kwargs)
        except Exception as error:  # the exporter raises whatever its parts do
            raise WrongQuestion(f"{what} can not be exported: {type(error).__name__}: {error}") from error
    if isinstance(source, torch.export.ExportedProgram):
        source = at_stage(import_ep(source), "aten", stage)
    if not isinstance(source, Program):
        raise WrongQuestion(f"{what} begins with a {type(source).__name__}, which is no program, exported program or module")
    case = case_with_calls(check(source), [_leaves(what, source, args, kwargs)] * CALLS, seed=number)
    lacking = [name for name, slot in source.state.pairs if isinstance(slot.value, torch.Tensor) and slot.value.is_meta]
    if lacking:
        raise WrongQuestion(f"{what} has no contents for {lacking[0]!r}, so it can not be run; parse or load it with state=...")
    try:
        case.meaning(source)
    except Exception as error:  # whatever its operators raise
        raise WrongQuestion(f"{what} can not be run with its arguments: {type(error).__name__}: {error}") from error
    return case


def _leaves(what: str, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    spec = program.signature.in_spec
    if spec is not None and kwargs:
        wanted = spec.children()[1].context if len(spec.children()) == 2 else []
        kwargs = {name: kwargs[name] for name in wanted if name in kwargs} | kwargs
    leaves, found = pytree.tree_flatten((args, kwargs))
    count = sum(type(inner) is UserInput for inner in program.signature.inputs)
    if len(leaves) != count or (spec is not None and found != spec):
        raise WrongQuestion(
            f"{what} takes {count} values, as {str(spec)[:300]}, and is given {len(leaves)}, as {str(found)[:300]}"
        )
    return leaves
