"""Every public name of ``purefx`` is documented, and each exists."""

from __future__ import annotations

import subprocess
import sys

import pytest

import purefx
from purefx import errors, ir
from purefx._front import HOMES
from tests.architecture.public import check_documented

NAMES = {purefx: [*HOMES], errors: errors.__all__, ir: ir.__all__}


def test_documented() -> None:
    lacking = [
        line
        for home, names in NAMES.items()
        for name in names
        for line in check_documented(name, getattr(home, name))
    ]
    assert not lacking, "\n".join(lacking)


def test_all_exist() -> None:
    for home, names in NAMES.items():
        assert len(set(names)) == len(names)
        assert all(hasattr(home, name) for name in names)
    assert len(HOMES) <= 100, (
        "the front door has verbs and what people write; ir, errors, rules and laws have the rest"
    )


def test_help_lists_what_is_there() -> None:
    (table,) = [part for part in str(purefx.__doc__).split("\n\n") if part.startswith("import   ")]
    names = {
        word
        for line in table.splitlines()
        if "px." not in line
        for word in line[12:].split()
        if word.isidentifier()
    }
    assert len(names) > 60
    assert names <= {*HOMES, "is"}, "the last line says what px.errors is"


def test_what_never_was_there() -> None:
    with pytest.raises(AttributeError, match="module 'purefx' has no attribute 'nowhere'"):
        getattr(purefx, "nowhere")  # noqa: B009


PACKAGES = {"errors", "ir", "laws", "lowering", "rules", "training", "transforms"}
"""The documented packages behind the front door; Python makes an attribute of each that is imported."""


def test_nothing_else_is_there() -> None:
    # In a process of its own, where no test has imported anything; then with all that a user may import.
    shown = "print(*[name for name in dir(purefx) if not name.startswith('_')])"
    others = "purefx.__main__, purefx.laws, purefx.ir.text, purefx.lowering.stages, purefx.stats, purefx.rules, purefx._doors"
    asked = "print('purefx.laws' in sys.modules, purefx.laws.__name__, len(purefx.rules.algebra.rules) > 40)"
    code = f"import sys, purefx; {shown}; {asked}; import {others}; {shown}"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(found) == 3
    assert found.pop(1) == "False purefx.laws True", "both are imported when they are asked for"
    for line in found:
        assert set(HOMES) <= set(line.split()) <= {*HOMES, *PACKAGES}
    # Here pytest may have rewritten the package, as it does with what an installed plugin brings: its own names begin with "@".
    assert {name for name in dir(purefx) if not name.startswith(("_", "@"))} <= {*HOMES, *PACKAGES}
