"""The page of the gallery: for each rewrite what it does, its code, a picture and the lines that differ."""

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

Each rewrite is one file of `examples/rewrites`, written twice: with purefx, and on a `torch.fx.GraphModule`.
`python -m examples.rewrites` runs both on a real architecture, flat and as a tree, and compares them with a model that was
changed by hand. A picture shows the first place that is rewritten, or one that tells more: what is gone is red, what is new is
green, and what is around it is grey.

| rewrite | model | lines | in `torch.fx` |
|---|---|---|---|
"""

TAIL = """
`python -m examples.gallery` writes this page. [Write a rule](guide/rule.md) explains how rules are written; other
functions are those of [Another dtype, another device](convert.md), [Clean-up](simplify.md) and
[Values of inner modules](observe.md).
"""


def name_of(file: ModuleType) -> str:
    """Return the name of the file of a rewrite, which its picture has too."""
    return file.__name__.rpartition(".")[2]


def table() -> str:
    """Return the page down to the first rewrite."""
    rows = [f"| [{each.REWRITING.name}](#{_anchor(each.REWRITING)}) | {_counts(each.REWRITING)} |\n" for each in FILES]
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
        "\n".join(["```diff", *shown.lines, "```"]),
        f"All of it, with the same in `torch.fx`: [examples/rewrites/{name}.py](../examples/rewrites/{name}.py).\n",
    )
    return "\n\n".join(paragraphs), draw(shown)


def _counts(rewriting: Rewriting) -> str:
    ours, theirs = rewriting.lines
    return f"{rewriting.example.name} | {ours} | {theirs}"


def _anchor(rewriting: Rewriting) -> str:
    return "".join(letter for letter in rewriting.name.lower() if letter.isalnum() or letter in " -").replace(" ", "-")


def _code(rewriting: Rewriting) -> str:
    parts = [part for each in rewriting.written for part in (parts_of(each) if isinstance(each, px.Rule) else [each])]
    return "\n\n\n".join(inspect.getsource(part).rstrip() for part in parts)
