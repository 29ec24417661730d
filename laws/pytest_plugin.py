"""``start``: implement the options ``--ir-verify-each`` and ``--ir-profile`` of pytest.

During a session each transformation verifies its result, so the first test with an invalid program names the transformation that
made it.  Everything is restored at the end.  The options themselves are in ``pytest_purefx``, which imports nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from ..ir.errors import InvalidProgram
from ..ir.program import Program
from ..ir.verify import verify
from ..transforms import Fuel, Transformation
from .tiers import PREFIX, PROFILES, register


def start(config: pytest.Config) -> None:
    """Apply the options of a session.

    Args:
        config: the configuration of the session; all changes are restored when it ends.

    Raises:
        pytest.UsageError: no profile has this name.

    >>> start.__name__
    'start'
    """
    name: str | None = config.getoption("ir_profile")
    if name is not None:
        name = name.removeprefix(PREFIX)
        if name not in PROFILES:
            raise pytest.UsageError(f"--ir-profile={name}: choose from {', '.join(PROFILES)}")
        register()
        before = settings.get_current_profile_name()
        settings.load_profile(PREFIX + name)
        config.add_cleanup(lambda: settings.load_profile(before))
    if config.getoption("ir_verify_each"):
        each = VerifyEach()
        config.pluginmanager.register(each, "purefx-verify-each")
        each.begin()
        config.add_cleanup(each.end)


class VerifyEach:
    """Verifies the results of transformations from ``begin`` to ``end``.

    >>> import purefx as px
    >>> each = VerifyEach()
    >>> each.begin()
    >>> px.deduplicate(px.Program.of({"": px.Graph((), (), ())})).order
    ('',)
    >>> each.end()
    >>> each.seen
    0
    """

    def __init__(self) -> None:
        self.seen = 0
        """Results that were verified."""
        self._spend = Transformation.spend

    def begin(self) -> None:
        """Verify every result from now on."""
        each, spend = self, self._spend

        def verified(self: Transformation, program: Program, fuel: Fuel, **options: Any) -> Program:
            result = spend(self, program, fuel, **options)
            if result is program:
                return program
            each.seen += 1
            violations = verify(result)
            # An invalid argument is not the fault of this transformation.
            if violations and not verify(program):
                error = InvalidProgram(violations)
                error.add_note(f"{self.name} returned it for a valid program")
                raise error
            return result

        Transformation.spend = verified

    def end(self) -> None:
        """Restore the transformations."""
        Transformation.spend = self._spend

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report the number of verified results."""
        terminalreporter.write_line(f"purefx: {self.seen:,} results of transformations verified")
