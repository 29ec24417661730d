"""``make_tree``: a copy of the sources that mutmut can work on."""

from __future__ import annotations

import ast
import json
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

TREE = ROOT / "build" / "mutants"

FRAMES = "__import__('tests.mutants.frames', fromlist=['frame_at'])."

INSTEAD = {"sys._getframe(": f"{FRAMES}frame_at(", "inspect.getsource(": f"{FRAMES}source_of("}
"""What looks at the frame of a caller, or at a source, and sees mutmut there."""

KEPT = ("staticmethod", "classmethod", "property", "setter", "overload")
"""Decorators that stay: mutmut can work with the first two, and the others need what they stand above."""


def make_tree(files: Sequence[str], tree: Path = TREE) -> list[str]:
    """Make the copy anew, and return the files in it that mutants are asked of."""
    shutil.rmtree(tree, ignore_errors=True)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    places: dict[str, str] = tools["setuptools"]["package-dir"]
    ignore = shutil.ignore_patterns("__pycache__")
    for package, folder in places.items():
        if (ROOT / folder).is_dir():
            shutil.copytree(
                ROOT / folder, tree.joinpath(*package.split(".")), ignore=ignore, dirs_exist_ok=True
            )
    for folder in ("tests", "examples", "bench"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignore)
    options = {name: tools["pytest"]["ini_options"][name] for name in ("markers", "filterwarnings")}
    options["markers"].append("timeout: each mutant has its own")
    lines = [
        f"{name} = {json.dumps(value)}\n" for name, value in options.items()
    ]  # lists of texts are written as in JSON
    (tree / "pyproject.toml").write_text(
        (Path(__file__).parent / "mutmut.toml").read_text() + "".join(lines)
    )
    chosen = [f"purefx/{source}" for file in files for source in _sources(file)]
    for path in chosen:
        text = without_decorators((tree / path).read_text())
        for old, new in INSTEAD.items():
            text = text.replace(old, new)
        (tree / path).write_text(text)
    return chosen


def _sources(file: str) -> list[str]:
    path = ROOT / file
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(source.relative_to(ROOT)) for source in found if source.name != "__init__.py"]


def without_decorators(text: str) -> str:
    r"""Return a module whose decorators of functions are calls below the functions.

    >>> print(without_decorators("@cache\ndef f(x):\n    return x"), end="")
    def f(x):
        return x
    f = cache(f)
    """
    lines = text.splitlines()
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    for node in sorted(functions, key=lambda node: -node.lineno):
        if any(_name(decorator) in KEPT for decorator in node.decorator_list):
            continue
        margin = " " * node.col_offset
        assert node.end_lineno is not None
        lines[node.end_lineno : node.end_lineno] = [
            f"{margin}{node.name} = {ast.unparse(made)}({node.name})"
            for made in reversed(node.decorator_list)
        ]
        del lines[node.decorator_list[0].lineno - 1 : node.lineno - 1]
    return "\n".join(lines) + "\n"


def _name(decorator: ast.expr) -> str:
    return (
        decorator.attr
        if isinstance(decorator, ast.Attribute)
        else decorator.id
        if isinstance(decorator, ast.Name)
        else ""
    )
