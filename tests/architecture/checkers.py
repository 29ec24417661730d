"""What must hold of every source file by itself: one function for each rule, from a ``Source`` to its violations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .sources import Source

MAY_IMPORT: dict[str, set[str]] = {
    "ir": set(), "transforms": {"ir"}, "lowering": {"transforms", "ir"}, "laws": {"ir", "transforms", "lowering"},
    "purefx": {"ir", "transforms", "lowering", "laws"},
}  # fmt: skip
"""The arrows: which layers a layer may import besides itself."""


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Iterate over (line, dotted name) of everything that a file imports, relative imports resolved."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = source.package.split(".")
                base = ".".join([*above[: len(above) - node.level + 1], *base.split(".")]).rstrip(
                    "."
                )
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def arrows(source: Source) -> Iterator[str]:
    """Imports between layers point one way, and nothing that is installed imports what is not."""
    for line, name in imports(source):
        parts = name.split(".")
        if parts[0] in {"tests", "bench", "examples"}:
            yield f"{source.path}:{line}: imports {name}, which is not installed"
        if parts[0] != "purefx" or source.layer == "purefx":
            continue
        layer = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "purefx"
        if layer != source.layer and layer not in MAY_IMPORT[source.layer]:
            yield f"{source.path}:{line}: {source.layer}/ imports {name}; it may import {sorted(MAY_IMPORT[source.layer])}"


def pyrsistent_door(source: Source) -> Iterator[str]:
    """Only ``ir/persistent.py`` imports pyrsistent."""
    if source.path == "ir/persistent.py":
        return
    for line, name in imports(source):
        if name.split(".")[0] == "pyrsistent":
            yield f"{source.path}:{line}: imports {name}; use ir/persistent.py, the C extension corrupts live objects"


def opening(source: Source) -> Iterator[str]:
    """A file opens with a docstring."""
    if not ast.get_docstring(source.tree):
        yield f"{source.path}:1: opens without a docstring: what the file is for, in one to four sentences"


def no_print(source: Source) -> Iterator[str]:
    """The library does not print."""
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield f"{source.path}:{node.lineno}: prints"


MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\s*\(?#\d+)")


def numbered_marks(source: Source) -> Iterator[str]:
    """What is left to do has an issue: ``TODO #12``."""
    for line, text in enumerate(source.text.splitlines(), 1):
        if found := MARKS.search(text):
            yield f"{source.path}:{line}: {found[0]} without the number of an issue"


REAL_DEVICES = {
    "ir/inference/values.py": {"self.device", "kind.device"},
    "ir/state.py": {"tensor.device"},
    "ir/store/files.py": {"place.device"},
    "ir/store/container.py": {
        "tensor.device",
        "plain.device",
        "left.device",
        "right.device",
        "value.device",
        "storage.device",
    },
    "ir/store/metas.py": {"fake.device"},
    "ir/text/state.py": {"storage.device", "tensor.device"},
    "ir/torch_private/fakes.py": {"tensor.device"},
    "ir/torch_private/graphs.py": {"memory.device"},
    "laws/oracles.py": {"tensor.device"},
    "laws/values.py": {"real.device"},
    "lowering/code/script.py": {"tensor.device"},
    "lowering/modules/conversion.py": {
        "value.device",
        "self.convert(torch.empty(0, device=device)).device",
    },
    "lowering/stages/lower_stages.py": {"tensor.device"},
    "lowering/stages/plan.py": {"spec.type.device"},
    "transforms/convert/devices.py": {"plain.device", "kind.device"},
    "transforms/minimize/cutting.py": {"kind.device"},
    "transforms/rulesets/attention.py": {"mask.device"},
    "transforms/simplify/constants.py": {"value.device"},
}
"""What is asked for its device and is never a fake tensor: real tensors, and values of our own."""


def devices_of_fakes(source: Source) -> Iterator[str]:
    """A fake value is not asked for its device: it says ``meta`` while another thread runs an operator on its mode."""
    known = REAL_DEVICES.get(source.path, set())
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "device"
            and isinstance(node.ctx, ast.Load)
        ):
            text = ast.unparse(node)
            if text != "torch.device" and text not in known:
                yield f"{source.path}:{node.lineno}: asks {text}; use device_of of ir/torch_private"


CHECKERS = (devices_of_fakes, arrows, pyrsistent_door, opening, no_print, numbered_marks)
