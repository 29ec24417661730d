"""``make_mutants``: mutmut writes all mutants of a file into it, behind a switch; what each one changes is told."""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path

from attrs import frozen
from mutmut.mutation.file_mutation import mutate_file_contents

STRICT = re.compile(r",?\s*strict=(True|False|None)|,\s*(?=\))")
"""An assertion that two things are of one length; like other assertions it is not mutated."""


@frozen
class Mutant:
    """One change of one function."""

    name: str
    """What mutmut knows it by."""
    file: str
    """The path from the root of the repository."""
    function: str
    old: str
    """The lines that are gone."""
    new: str
    """The lines that stand there instead."""

    @property
    def tested_as(self) -> str:
        """The name under which mutmut records who calls the function."""
        return self.name.partition("__mutmut_")[0]


def make_mutants(path: str) -> list[Mutant]:
    """Write the mutants of a file into it, and return them."""
    file = Path(path)
    made = mutate_file_contents(path, file.read_text())
    file.write_text(made.code)
    lines = made.code.splitlines()
    bodies = {
        node.name: _without_margin(lines[node.lineno : node.end_lineno])
        for node in ast.walk(ast.parse(made.code))
        if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name
    }
    module = path.removesuffix(".py").replace("/", ".")
    source = path.removeprefix("purefx/")
    found = [
        Mutant(f"{module}.{name}", source, _function(name), *_change(bodies, name))
        for name in made.mutant_names
    ]
    return [mutant for mutant in found if STRICT.sub("", mutant.old) != STRICT.sub("", mutant.new)]


def _without_margin(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip()]


def _function(name: str) -> str:
    return name.partition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")


def _change(bodies: dict[str, list[str]], name: str) -> tuple[str, str]:
    before, after = bodies[f"{name.partition('__mutmut_')[0]}__mutmut_orig"], bodies[name]
    changes = list(difflib.ndiff(before, after))
    return tuple("\n".join(line[2:] for line in changes if line[0] == side) for side in "-+")  # type: ignore[return-value]
