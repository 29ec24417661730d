"""The examples in the docstrings of the files that are mutated: tests like others, and as cheap as tests are."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
from pathlib import Path
from types import ModuleType

import pytest

ASKED = Path("asked.json")

FILES: list[str] = json.loads(ASKED.read_text())["files"] if ASKED.exists() else []


class Finder(doctest.DocTestFinder):
    """Finds the examples of what a module has written itself."""

    def _from_module(self, module: ModuleType, object: object) -> bool:  # noqa: A002  its name there
        plain = inspect.unwrap(object) if callable(object) else object
        return isinstance(plain, property) or getattr(plain, "__module__", "") == module.__name__


def examples(name: str) -> list[doctest.DocTest]:
    """Return the examples of a module, and none of its mutants."""
    module = importlib.import_module(name)
    return [test for test in Finder().find(module) if test.examples and "_mutmut_" not in test.name]


NAMES = [file.removesuffix(".py").replace("/", ".") for file in FILES]


@pytest.mark.parametrize(
    "test", [test for name in NAMES for test in examples(name)], ids=lambda test: test.name
)
def test_example(test: doctest.DocTest) -> None:
    said: list[str] = []
    assert doctest.DocTestRunner().run(test, out=said.append, clear_globs=False).failed == 0, (
        "".join(said)
    )
