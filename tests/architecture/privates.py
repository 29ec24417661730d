"""Private names of others: only ``ir/torch_private/`` may touch torch's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .checkers import imports
from .sources import Source

DOORS = ("ir/torch_private/", "ir/persistent.py")

ALLOWED: dict[str, str] = {
    "_apply": "nn.Module: what .to() and .double() call; overridden to notice another dtype",
    "_graph": "GraphModule: its lazily made graph, in our subclass",
}
"""Private names that ``lowering/`` may use, with the reason."""


def is_private(name: str) -> bool:
    """Say whether a name has a leading underscore and is not a dunder or a throw-away."""
    return name.startswith("_") and not name.endswith("__") and name.strip("_") != ""


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a file defines: functions, classes, variables, fields, ``__slots__``, attributes that it sets."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) in {"self", "cls"}
        ):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.update(alias.name for alias in node.names)
    return found


def touched(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Iterate over (line, name) of the attributes that a file reads, by syntax or by ``getattr``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"getattr", "hasattr", "setattr"}
        ):
            yield from (
                (node.lineno, arg.value)
                for arg in node.args[1:2]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


def torch_privates(source: Source) -> Iterator[str]:
    """Private names of torch are used in one folder only."""
    if source.path.startswith(DOORS):
        return
    for line, name in imports(source):
        if name.split(".")[0] == "torch" and any(is_private(part) for part in name.split(".")):
            yield f"{source.path}:{line}: imports {name}; give it a name in ir/torch_private/"
    own = own_names(source.tree)
    allowed = ALLOWED if source.layer == "lowering" else {}
    for line, name in touched(source.tree):
        if is_private(name) and name not in own and name not in allowed:
            yield f"{source.path}:{line}: touches {name}, which it does not define; give it a name in ir/torch_private/"
