"""Rules on a whole program: its graphs are walked until nothing matches, and what they make is put together.

One walk over one graph is in ``application.py``; what rules are is in ``rule.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...ir.errors import InvalidProgram
from ...ir.importing.constants import with_constants
from ...ir.inference import CallValues, FakeValues
from ...ir.program import Program
from ..cleanup import infer
from ..transformation import Fuel
from .application import Sweep
from .branches import check_branches
from .explanation import Left
from .hits import Hits
from .new_state import NewState, as_staged
from .place import Places
from .specialise import specialised
from .telling import note_rules

__all__ = ["Application"]


class Application:
    """Rules on a whole program: graphs are walked until nothing matches, and bodies go apart where instances disagree."""

    def __init__(
        self,
        program: Program,
        rules: Mapping[Any, tuple[Any, ...]],
        fuel: Fuel,
        *,
        is_top_down: bool = False,
        explains: bool = False,
    ) -> None:
        self.before = self.program = program
        self.is_top_down = is_top_down
        self.explains = explains
        self.left: dict[str, list[Left]] = {}
        """What the last walk over each graph left alone, if it was asked."""
        self.rules = rules
        self.fuel = fuel
        self.state = NewState(program)
        self.values = FakeValues(program)
        self.hits = {name: Hits(name, program.graphs[name]) for name in program.order}

    def run(self) -> Program:
        """Return the program after the rules; the same object if none matched."""
        todo: Iterable[str] = self.program.order
        while todo and not self.fuel.refused:
            todo = self._walk(todo)
        check_branches(self.before, self.program, self.hits)
        return as_staged(self.program.pruned()) if any(each.found for each in self.hits.values()) else self.before

    def _walk(self, todo: Iterable[str]) -> list[str]:
        # A match makes another one possible behind it; so graphs that changed are walked again, if anything is left in them.
        program, places = self.program, Places(self.program)
        shared = self.rules, self.fuel, self.state, CallValues(program), self.values
        walks = [Sweep(program, name, places, self.hits[name], *shared) for name in todo]
        for walk in walks if self.explains else ():
            walk.left = self.left[walk.name] = []
        graphs = {walk.name: walk.run(is_top_down=self.is_top_down) for walk in walks}
        changed = {name: graph for name, graph in graphs.items() if graph is not program.graphs[name]}
        if changed:
            made = self.state.applied(program.with_graphs(changed))
            if any(walk.has_tensors for walk in walks):
                made = with_constants(made)
            self.program = made if all(walk.is_said for walk in walks) else self._inferred(made)
        apart = [walk for walk in walks if walk.classes]
        # One body at a time: the callers that others stand in may get versions by it.
        versions = self._split(apart[0]) if apart else []
        again = [walk.name for walk in walks if walk.name in changed and (not walk.is_over or walk.left)]
        return [*dict.fromkeys([*again, *versions, *[walk.name for walk in apart]])]

    def _inferred(self, made: Program) -> Program:
        try:
            return infer(made)
        except InvalidProgram as error:
            note_rules(error, self.hits)
            raise

    def _split(self, walk: Sweep) -> list[str]:
        apart, versions = specialised(self.program, walk.name, walk.classes)
        self.program = self._inferred(apart)  # what instances had different values of may be known of each version
        for new, old in versions.items():
            self.hits[new] = Hits(new, self.program.graphs[new], self.hits[old].made)
        return list(versions)
