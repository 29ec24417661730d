"""Every example in every docstring of the library runs, under the name that the module is installed as.

Pytest would import ``ir/graph.py`` as ``ir.graph``, which is not what it is; so the modules are found in the
folders, imported as ``purefx.ir.graph``, and searched here.  Warnings in examples are errors, as everywhere.
"""

from __future__ import annotations

import doctest
import importlib
import linecache
from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import Phase, settings

import purefx
from tests.architecture.sources import LAYERS, sources

MODULES = [source.module for source in sources(*LAYERS) if not source.path.endswith("__main__.py")]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Return the examples of a module; of classes, functions and transformations defined in it."""
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.fixture
def quick_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do what no example shows less often: ask whether sources have changed, and trace each line of what becomes smaller."""
    monkeypatch.setattr(
        linecache, "checkcache", lambda filename=None: None
    )  # a debugger does so, which each docstring has
    before = settings.get_current_profile_name()
    settings.register_profile(
        "examples", settings(), phases=[phase for phase in Phase if phase is not Phase.explain]
    )
    settings.load_profile("examples")
    yield
    settings.load_profile(before)


@pytest.mark.usefixtures("quick_examples")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner()
    for test in examples(importlib.import_module(name)):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_finder_sees_transformations() -> None:
    # They are values, not functions: that doctest finds them hangs on what Transformation puts in its dict.
    for step in purefx.DEFAULT:
        module = importlib.import_module(step.apply.__module__)
        assert f"{module.__name__}.{step.name}" in {test.name for test in examples(module)}


def test_a_wrong_example_is_found() -> None:
    module = ModuleType("broken")
    module.__doc__ = ">>> 1 + 1\n3\n"
    said: list[str] = []
    runner = doctest.DocTestRunner()
    for test in examples(module):
        runner.run(test, out=said.append)
    assert runner.failures == 1
    assert "Expected" in "".join(said)
