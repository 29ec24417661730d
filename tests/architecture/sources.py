"""The source files that the architecture tests look at, parsed once."""

from __future__ import annotations

import ast
import tomllib
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from attrs import field, frozen

ROOT = Path(__file__).resolve().parent.parent.parent

LAYERS = ("ir", "transforms", "lowering", "laws", "purefx")
"""The folders of the library."""


@frozen(slots=False)
class Source:
    """One file: its path from the root of the repository, and its text."""

    path: str
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.text)

    @property
    def layer(self) -> str:
        """The top-level folder."""
        return self.path.split("/")[0]

    @property
    def module(self) -> str:
        """The dotted name under which it is installed."""
        parts = self.path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(parts if parts[0] == "purefx" else ["purefx", *parts])

    @property
    def package(self) -> str:
        """What a relative import with one dot starts from."""
        return self.module if self.path.endswith("__init__.py") else self.module.rpartition(".")[0]


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Return the Python files under folders of the repository."""
    found = (
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "__pycache__" not in path.parts
    )
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in found
    )


@cache
def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
