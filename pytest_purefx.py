"""The door for pytest: options of purefx, for every test session on a machine where it is installed.

Pytest reads this file at every start, also in projects that have nothing to do with purefx; so it imports nothing
until an option asks for something.  It stands alone because importing ``purefx`` imports torch.  What the options do
is in ``purefx.laws.pytest_plugin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SAID = "purefx fx pass"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("purefx", "purefx: transformations of PyTorch programs")
    group.addoption(
        "--ir-verify-each",
        action="store_true",
        help="verify the result of every transformation that runs in a test, also of those that are trusted",
    )
    group.addoption(
        "--ir-profile",
        metavar="NAME",
        help="how programs are drawn: dev (a few, others each time), ci (always the same), deep (many, others each time)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hand over to the plugin when an option asks for it."""
    if config.getoption("ir_verify_each") or config.getoption("ir_profile") is not None:
        from purefx.laws import pytest_plugin

        pytest_plugin.start(config)


@pytest.fixture
def check_fx_pass(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``purefx.laws.check_fx_pass``, whose reports are listed at the end of the session."""
    from purefx.laws.fx_passes import check_fx_pass as check

    def checked(a_pass: Any, **options: Any) -> Any:
        report = check(a_pass, **options)
        request.node.user_properties.append((SAID, str(report)))
        return report

    return checked


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was found of passes over fx graphs, from processes of xdist as well."""
    for report in terminalreporter.stats.get("passed", []):
        for name, said in getattr(report, "user_properties", ()):
            if name == SAID and report.when == "call":
                terminalreporter.write_line(f"purefx: {said}")
