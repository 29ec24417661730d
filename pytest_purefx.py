"""The door for pytest: options of purefx, for every test session on a machine where it is installed.

Pytest reads this file at every start, also in projects that have nothing to do with purefx; so it imports nothing
until an option asks for something.  It stands alone because importing ``purefx`` imports torch.  What the options do
is in ``purefx.laws.pytest_plugin``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


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
