"""Every public name of ``purefx`` is documented, and ``__all__`` tells the truth."""

from __future__ import annotations

import subprocess
import sys

import purefx
from tests.architecture.public import check_documented


def test_documented() -> None:
    lacking = [line for name in purefx.__all__ for line in check_documented(name, getattr(purefx, name))]
    assert not lacking, "\n".join(lacking)


def test_all_is_sorted_and_exists() -> None:
    assert len(set(purefx.__all__)) == len(purefx.__all__)
    assert all(hasattr(purefx, name) for name in purefx.__all__)


PACKAGES = {"ir", "laws", "lowering", "rules", "transforms"}
"""The documented packages behind the front door; Python makes an attribute of each that is imported."""


def test_nothing_else_is_there() -> None:
    # In a process of its own, where no test has imported anything; then with all that a user may import.
    shown = "print(*[name for name in dir(purefx) if not name.startswith('_')])"
    others = "purefx._command, purefx.laws, purefx.ir.text, purefx.lowering.stages, purefx.stats, purefx.rules, purefx._doors"
    code = f"import purefx; {shown}; import {others}; {shown}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(found) == 2
    for line in found:
        assert set(purefx.__all__) <= set(line.split()) <= {*purefx.__all__, *PACKAGES}
    # Here pytest may have rewritten the package, as it does with what an installed plugin brings: its own names begin with "@".
    assert {name for name in dir(purefx) if not name.startswith(("_", "@"))} <= {*purefx.__all__, *PACKAGES}


def test_a_badly_documented_name_is_found() -> None:
    def bare(x: int) -> int:
        return x

    def example_only(x: int) -> int:
        """Return it.

        >>> 1
        1
        """
        return x

    class Told:
        """Something.

        >>> 1
        1
        """

    class Inherits(Told):
        pass

    assert list(check_documented("bare", bare)) == ["bare: no docstring"]
    assert list(check_documented("example_only", example_only)) == ["example_only: takes x and has no section Args"]
    assert list(check_documented("Told", Told)) == []
    assert list(check_documented("Inherits", Inherits)) == ["Inherits: no docstring"]
