"""The pytest entry point: options of purefx, in every test session of an environment where it is installed.

Pytest reads this file at every start, also in unrelated projects, so it imports nothing until an option is used.  It is a
separate file because importing ``purefx.laws`` imports torch.  ``purefx.laws.pytest_plugin`` implements the options.
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
        help="verify the result of every transformation that runs in a test, also of trusted ones",
    )
    group.addoption(
        "--ir-profile",
        metavar="NAME",
        help="how to draw programs: dev (a few, others each time), ci (always the same), deep (many, others each time)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin if an option is used."""
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
    """List the findings about passes over fx graphs, also from processes of xdist."""
    for report in terminalreporter.stats.get("passed", []):
        for name, line in getattr(report, "user_properties", ()):
            if name == SAID and report.when == "call":
                terminalreporter.write_line(f"purefx: {line}")
