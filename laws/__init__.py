"""Checks for user code: checkers, the generic laws, oracles and strategies.  Import it as ``purefx.laws``.

- ``check_transformation``, ``check_rule`` and ``check_fx_pass`` draw programs and check laws on them.
- ``law.GENERIC``, ``law.GRADIENTS``, ``law.FUEL``, ``provenance`` and ``values.recorded_values`` are laws for all
  transformations.
- An oracle compares two things and returns the differences as text; an empty list means equal.
- ``strategies`` and ``tiers.cases`` draw programs for hypothesis; ``pytest_plugin`` has the options of pytest.

The laws of single transformations are tests in ``tests/laws``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..ir.errors import MissingDependency
from .oracles import (
    Calls,
    assert_same_as_eager,
    behaviour_differences,
    gradient_differences,
    structure_differences,
    value_differences,
)
from .purity import changes_in_program
from .values import example_args

__all__ = [
    "Calls", "Contract", "assert_same_as_eager", "behaviour_differences", "changes_in_program",
    "check_fx_pass", "check_rule", "check_transformation", "example_args", "gradient_differences", "structure_differences",
    "value_differences",
]  # fmt: skip

if TYPE_CHECKING:
    from .checking import check_transformation
    from .fx_passes import Contract, check_fx_pass
    from .rules import check_rule
else:
    LATER = {
        "check_transformation": "checking",
        "check_rule": "rules",
        "check_fx_pass": "fx_passes",
        "Contract": "fx_passes",
    }
    """The parts that draw programs and require hypothesis."""

    def __getattr__(name: str) -> Any:
        if name not in LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            home = importlib.import_module(f"{__name__}.{LATER[name]}")
        except ModuleNotFoundError as error:
            if error.name != "hypothesis":
                raise
            raise MissingDependency(
                f"px.laws.{name} draws programs with hypothesis: pip install 'purefx[laws]'"
            ) from error
        return getattr(home, name)
