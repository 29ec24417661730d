"""The page of the gallery: for each rewrite what it does, its code and a picture."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import purefx as px
from examples.gallery.drawing import draw
from examples.gallery.scene import scene
from examples.rewrites import Outcome, Rewriting, parts_of
from examples.rewrites.__main__ import FILES

ROOT = Path(__file__).parents[2]

PAGE, PICTURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"

HEAD = """# Gallery: ten rewrites

Each rewrite is one file of `examples/rewrites`, written with purefx and with `torch.fx`. `python -m examples.rewrites` runs both
on a real architecture, flat and as a tree, and compares them with a model that was changed by hand. A picture shows one rewritten
place: removed nodes are red, new nodes are green, their neighbours are grey.

| rewrite | model | lines | in `torch.fx` |
|---|---|---|---|
"""

TAIL = """
`python -m examples.gallery` writes this page. See [Write rewrite rules](rules.md), [Convert](convert.md), [Simplify](simplify.md)
and [Observe](observe.md).
"""


def name_of(file: ModuleType) -> str:
    """Return the name of the file of a rewrite, which its picture has too."""
    return file.__name__.rpartition(".")[2]


def table() -> str:
    """Return the page down to the first rewrite."""
    rows = [
        f"| [{each.REWRITING.name}](#{_anchor(each.REWRITING)}) | {_counts(each.REWRITING)} |\n"
        for each in FILES
    ]
    return HEAD + "".join(rows)


def section(file: ModuleType, outcome: Outcome) -> tuple[str, str]:
    """Return what the page says of one rewrite, and its picture."""
    rewriting: Rewriting = file.REWRITING
    shown = scene(px.sink_state(outcome.before), px.sink_state(outcome.after), at=rewriting.at)
    name = name_of(file)
    paragraphs = (
        f"\n## {rewriting.name[0].upper()}{rewriting.name[1:]}",
        inspect.cleandoc(file.__doc__ or "").replace("``", "`"),
        f"```python no-run\n{_code(rewriting)}\n```",
        f"![{rewriting.name}, before and after](gallery/{name}.svg)",
        f"With `torch.fx`: [examples/rewrites/{name}.py](../examples/rewrites/{name}.py).\n",
    )
    return "\n\n".join(paragraphs), draw(shown)


def _counts(rewriting: Rewriting) -> str:
    ours, theirs = rewriting.lines
    return f"{rewriting.example.name} | {ours} | {theirs}"


def _anchor(rewriting: Rewriting) -> str:
    return "".join(
        letter for letter in rewriting.name.lower() if letter.isalnum() or letter in " -"
    ).replace(" ", "-")


def _code(rewriting: Rewriting) -> str:
    parts = [
        part
        for each in rewriting.written
        for part in (parts_of(each) if isinstance(each, px.Rule) else [each])
    ]
    return "\n\n\n".join(inspect.getsource(part).rstrip() for part in parts)
