"""``Judge``: a pass over fx graphs as a function from programs to programs, which remembers what happened on the way.

What a pass raises is no answer: such a program is refused.  What it gives is lint, stale code, another interface or a program,
on which the laws are asked.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
import torch.fx
from attrs import define, field

from ...ir.errors import FxPassError, InvalidProgram, PurefxError, UnsupportedProgram
from ...ir.importing import import_ep
from ...ir.program import Program
from ...lowering.fx import FxPass, to_fx
from ...lowering.fx.applied import same_graph, seen_of
from ...lowering.fx.passes import exported, taken_back
from ..oracles import value_differences

__all__ = ["Judge", "Outcome"]

KEPT = 3
"""How many outcomes are remembered: laws ask one program after the other."""


@define(eq=False)
class Outcome:
    """What a pass did to one program."""

    program: Program
    """What it was given."""
    result: Program | None = None
    """What it made of it; None where it refused, or where what it made is no program."""
    module: torch.fx.GraphModule | None = None
    """The module that it gave."""
    raised: Exception | None = None
    """What it raised: it refuses the program."""
    wrong: list[str] = field(factory=list)
    """What is wrong with the graph itself."""
    stale: bool = False
    """Whether the code of the module is not that of its graph."""
    input_changed: list[str] = field(factory=list)
    """What it changed in the module that it was given, where it gave another."""


@define(eq=False)
class Judge:
    """Calls a pass, once for each program, and says what came of it.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> judge = Judge(FxPass.of(lambda module: None))
    >>> judge(program) is program, judge.outcome(program).wrong
    (True, [])
    """

    called: FxPass
    refusals: Counter[str] = field(factory=Counter)
    """How often the pass raised what."""
    _known: list[Outcome] = field(factory=list)

    @property
    def name(self) -> str:
        """What messages call the pass."""
        return self.called.name

    def __call__(self, program: Program) -> Program:
        """Return what the pass makes of a program.

        Raises:
            UnsupportedProgram: the pass raises something, or what it gives cannot be represented.
            InvalidProgram: what it gives is not a valid graph.
        """
        outcome = self.outcome(program)
        if outcome.raised is not None:
            told = f"{self.name} raised {type(outcome.raised).__name__}: {outcome.raised}"
            raise UnsupportedProgram(told) from outcome.raised
        return program if outcome.result is None else outcome.result

    def outcome(self, program: Program) -> Outcome:
        """Return what the pass did to a program; it is called once for each."""
        known = next((one for one in self._known if one.program is program), None)
        if known is None:
            known = self.fresh(program)
            self._known = [known, *self._known[: KEPT - 1]]
            if known.raised is not None:
                self.refusals[type(known.raised).__name__] += 1
        return known

    def fresh(self, program: Program) -> Outcome:
        """Return what the pass does to a program, now."""
        return self._on_export(program) if self.called.over == "exported_program" else self._on_module(program)

    def _on_module(self, program: Program) -> Outcome:
        module = to_fx(program)
        before, contents = seen_of(module), _contents(module)
        outcome = Outcome(program)
        try:
            outcome.module = self.called.on_module(module)
        except FxPassError as error:
            outcome.wrong.append(str(error))
            return outcome
        except Exception as error:  # noqa: BLE001  a pass may raise whatever it likes; it says that it cannot do this
            outcome.raised = error
            return outcome
        if outcome.module is not module:
            changed = [] if same_graph(before, seen_of(module)) else ["its graph, meta or tensors"]
            outcome.input_changed = [*changed, *value_differences(_contents(module), contents, where="its tensor ")]
        elif same_graph(before, seen_of(module)):
            outcome.result = program
            return outcome
        outcome.wrong += _lint(outcome.module)
        outcome.stale = not outcome.wrong and _is_stale(outcome.module)
        return outcome if outcome.wrong else self._back(outcome)

    def _back(self, outcome: Outcome) -> Outcome:
        assert outcome.module is not None
        try:
            outcome.result = taken_back(outcome.program, outcome.module, self.name)
        except (InvalidProgram, FxPassError) as error:
            outcome.wrong.append(str(error))
        except PurefxError as error:  # nothing that we can run as a program: no verdict
            outcome.raised = error
        return outcome

    def _on_export(self, program: Program) -> Outcome:
        outcome = Outcome(program)
        given = exported(program)
        try:
            outcome.result = import_ep(self.called.on_export(given))
        except (InvalidProgram, FxPassError) as error:
            outcome.wrong.append(str(error))
        except Exception as error:  # noqa: BLE001  see above
            outcome.raised = error
        return outcome


def _contents(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _lint(module: torch.fx.GraphModule) -> list[str]:
    # The output is where a graph ends for the code that is generated of it; `lint` does not say so.
    found: list[str] = []
    for path, inner in module.named_modules():
        if isinstance(inner, torch.fx.GraphModule):
            try:
                inner.graph.lint()
            except Exception as error:  # noqa: BLE001  lint raises what it meets
                found.append(f"lint of {path or 'the graph'}: {type(error).__name__}: {error}")
            nodes = list(inner.graph.nodes)
            late = [node.name for node in nodes[[node.op for node in nodes].index("output") + 1 :]] if nodes else []
            if late:
                found.append(f"{path or 'the graph'} has {', '.join(late)} after its output, where nothing runs")
    return found


def _is_stale(module: torch.fx.GraphModule) -> bool:
    # What runs is the code of the last `recompile`.
    other = copy.copy(module)
    generated: Any = other.graph.python_code("self")
    return module.code.strip() != str(generated.src).strip()
