"""``Judge``: a pass over fx graphs as a function from programs to programs, which remembers what happened on the way.

Where a pass raises, no law is asked, and the first exception is kept with its program.  The result is lint, stale code, another
interface, or a program, on which the laws are asked.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.fx
from attrs import define, field

from ...ir.errors import FxPassError, InvalidProgram, PurefxError, UnsupportedProgram
from ...ir.importing import import_ep
from ...ir.program import Program
from ...ir.torch_private import FakeTensor, OpOverload, new_guards, schema_of
from ...ir.verify import check
from ...lowering.fx import FxPass, to_fx
from ...lowering.fx.passes import exported, paths_of, same_graph, seen_of, taken_back
from ...transforms import remove_effect_tokens
from ..example_args import example_args
from .runs import called

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
    given: Mapping[str, Any] = field(factory=dict)
    """The tensors of the module that it was given, by path."""
    module: torch.fx.GraphModule | None = None
    """The module that it gave."""
    raised: Exception | None = None
    """What it raised."""
    refused: Exception | None = None
    """Why nothing can be said of what it made."""
    wrong: list[str] = field(factory=list)
    """What is wrong with the graph itself."""

    @property
    def error(self) -> Exception | None:
        """Why no law is asked."""
        return self.raised or self.refused


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
    raised: Counter[str] = field(factory=Counter)
    """How often the pass raised what."""
    refused: Counter[str] = field(factory=Counter)
    """How often nothing can be said of what it made."""
    first_raised: str = ""
    """The traceback of its first exception, and the program."""
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
        if outcome.error is not None:
            told = f"{self.name} raised {type(outcome.error).__name__}: {outcome.error}"
            raise UnsupportedProgram(told) from outcome.error
        return program if outcome.result is None else outcome.result

    def outcome(self, program: Program) -> Outcome:
        """Return what the pass did to a program; it is called once for each."""
        known = next((one for one in self._known if one.program is program), None)
        if known is None:
            known = self.fresh(program)
            self._known = [known, *self._known[: KEPT - 1]]
            if known.error is not None:
                (self.refused if known.raised is None else self.raised)[type(known.error).__name__] += 1
            if known.raised is not None:
                self.first_raised = self.first_raised or _traceback(known.raised, program)
        return known

    def fresh(self, program: Program) -> Outcome:
        """Return what the pass does to a program, now."""
        run = self._on_export if self.called.over == "exported_program" else self._on_module
        env = _sizes_of(program)
        with warnings.catch_warnings(), new_guards(env) if env is not None else nullcontext[list[str]]([]) as guards:
            warnings.simplefilter("ignore")  # where warnings are errors, a pass that warns would refuse everything
            outcome = run(program)
        if guards and outcome.error is None:  # a compiler would check them before each call
            outcome.refused = UnsupportedProgram(f"it is for sizes of which {' and '.join(guards)}")
        return outcome

    def _on_module(self, program: Program) -> Outcome:
        module = to_fx(program)
        before = seen_of(module)
        outcome = Outcome(program, given=paths_of(module))
        try:
            outcome.module = self.called.on_module(module)
        except FxPassError as error:
            outcome.wrong.append(str(error))
            return outcome
        except Exception as error:  # noqa: BLE001  a pass may raise whatever it likes
            outcome.raised = error
            return outcome
        if outcome.module is module and same_graph(before, seen_of(module)):
            outcome.result = program
            return outcome
        outcome.wrong += _lint(outcome.module)
        return outcome if outcome.wrong else self._back(outcome)

    def _back(self, outcome: Outcome) -> Outcome:
        assert outcome.module is not None
        try:
            outcome.result = taken_back(outcome.program, outcome.module, self.name, given=outcome.given)
        except FxPassError as error:
            outcome.wrong.append(str(error))
        except PurefxError as error:
            self._unreadable(outcome, error)
        return outcome

    def _unreadable(self, outcome: Outcome, error: PurefxError) -> None:
        # No program for us; it may be a module that runs all the same, and then there is no verdict.
        assert outcome.module is not None
        if isinstance(error, InvalidProgram):
            try:
                called(outcome.module, example_args(outcome.program))
            except Exception as raised:  # noqa: BLE001  whatever the graph runs into
                outcome.wrong += [f"called, it raises {type(raised).__name__}: {raised}", str(error)]
                return
        outcome.refused = error

    def _on_export(self, program: Program) -> Outcome:
        outcome = Outcome(program)
        given = exported(program)
        try:
            outcome.result = remove_effect_tokens(check(import_ep(self.called.on_export(given))))
        except (InvalidProgram, FxPassError) as error:
            outcome.wrong.append(str(error))
        except Exception as error:  # noqa: BLE001  see above
            outcome.raised = error
        return outcome


OURS = tuple([str(Path(__file__).parents[2] / folder) for folder in ("laws", "lowering")])


def _traceback(error: Exception, program: Program) -> str:
    # Without our frames.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OURS)]
    return f"{''.join(traceback.format_list(frames))}{type(error).__name__}: {error}\non the program\n{program.text()}"


def _sizes_of(program: Program) -> Any:
    # Drawn programs share the symbols of their sizes: what is assumed of one would be assumed of all.
    values = [formal.meta.get("val") for formal in program.main.inputs]
    return next((value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)), None)


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
            behind = nodes[[node.op for node in nodes].index("output") + 1 :] if nodes else []
            late = [node.name for node in behind if _acts(node)]  # others are dead code, wherever they stand
            if late:
                found.append(f"{path or 'the graph'} has {', '.join(late)} after its output, where nothing runs")
    return found


def _acts(node: torch.fx.Node) -> bool:
    target: Any = node.target
    return node.is_impure() or (isinstance(target, OpOverload) and schema_of(target).is_mutable)
