"""Markup for notebooks: escaped text, tables, things that fold, and a style of a few lines.

Pages have no script, no link and no id, so any number of them stand in one notebook.  The colours are that of the text around,
mixed with some of ours: what is legible there is legible here, in the dark and the light themes of any notebook, and nothing has
to know which one it is.  What is shown of which value is in ``notebook.py``.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ..text.printer import counted
from .styled import WORDS
from .values import shown

__all__ = ["ROWS", "Room", "code", "dim", "fold", "listed", "more", "page", "table", "text", "titled"]

LONGEST = 240
"""Characters of a line."""

ROWS = 200
"""Rows of a list."""

STYLE = """
.purefx{font:12px/1.5 var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace);overflow-x:auto;
 color:var(--jp-content-font-color1,var(--vscode-editor-foreground,inherit))}
.purefx table{border-collapse:collapse;margin:0 0 0 1.2em;font:inherit;color:inherit}
.purefx td{padding:0 1.5em 0 0;border:0;text-align:left;white-space:pre;vertical-align:top}
.purefx tr{background:none!important}
.purefx tr:hover{background:color-mix(in srgb,currentColor 8%,transparent)!important}
.purefx summary{cursor:pointer}
.purefx details details{margin-left:1.2em}
.purefx .dim{color:color-mix(in srgb,currentColor 72%,transparent)}
.purefx .add,.purefx .string,.purefx .operator{color:color-mix(in srgb,#1a9a45 50%,currentColor)}
.purefx .gone,.purefx .effects{color:color-mix(in srgb,#e5534b 50%,currentColor)}
.purefx .graph,.purefx .rule{color:color-mix(in srgb,#b45fd6 50%,currentColor)}
.purefx .defined,.purefx .place{color:color-mix(in srgb,#2f86d6 50%,currentColor)}
.purefx .keyword,.purefx .rule{font-weight:600}
"""
"""Half of each colour is that of the text around, which is dark on a light page and light on a dark one."""


class Room:
    """How many lines may still be shown, so that a page of any program is of a bounded size.

    >>> room = Room(5)
    >>> room.take(3), room.take(3), room.take(3)
    (3, 2, 0)
    """

    def __init__(self, lines: int) -> None:
        self.left = lines

    def take(self, wanted: int) -> int:
        """Return how many of some lines may be shown, and count them."""
        taken = min(wanted, self.left)
        self.left -= taken
        return taken


def text(value: object, longest: int = LONGEST) -> str:
    r"""Return a text of anybody's as markup: one line, printable, escaped, and cut where it is long.

    >>> text("<b>\x1b")
    '&lt;b&gt;\\x1b'
    """
    return html.escape(shown(value, longest))


def dim(value: object) -> str:
    """Return a text that is less important, as markup; nothing for None.

    >>> dim("f32"), dim(None)
    ('<span class="dim">f32</span>', '')
    """
    return "" if value is None else f'<span class="dim">{text(value)}</span>'


def code(line: object) -> str:
    """Return a line of the text form as markup, its words in colours.

    >>> code('y = aten.relu.default(x)')
    '<span class="defined">y</span> = <span class="operator">aten.relu.default</span>(x)'
    """
    line = shown(line, LONGEST)
    parts: list[str] = []
    end = 0
    for match in WORDS.finditer(line):
        found = html.escape(match[0])
        parts += [html.escape(line[end : match.start()]), f'<span class="{match.lastgroup}">{found}</span>']
        end = match.end()
    return "".join([*parts, html.escape(line[end:])])


def titled(markup: str, title: object) -> str:
    """Return markup with a tooltip.

    >>> titled("y", 'm.py:3 in "f"')
    '<span title="m.py:3 in &quot;f&quot;">y</span>'
    """
    return markup if title is None else f'<span title="{text(title)}">{markup}</span>'


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells of markup as a table; nothing for no rows.

    >>> table([("a", "b")])
    '<table><tr><td>a</td><td>b</td></tr></table>'
    """
    lines = [f"<tr>{''.join([f'<td>{cell}</td>' for cell in row])}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>" if lines else ""


def fold(head: str, body: str, *, is_open: bool = False) -> str:
    """Return a head with something below that folds; the head alone where there is nothing.

    Args:
        head: markup of one line.
        body: markup.
        is_open: whether it begins unfolded.

    >>> fold("state", "w"), fold("state", "")
    ('<details><summary>state</summary>w</details>', '<div>state</div>')
    """
    return f"<details{' open' if is_open else ''}><summary>{head}</summary>{body}</details>" if body else f"<div>{head}</div>"


def listed(what: str, lines: Sequence[str], count: int) -> str:
    """Return a list that folds under its name and its length; nothing for an empty one.

    Args:
        what: its name.
        lines: those that are shown, as markup.
        count: how many there are.

    >>> listed("steps", ["outline()"], 2).endswith("... 1 line more, which print(...) shows</span></div></details>")
    True
    """
    return (
        fold(f"{what} {dim(f'{count:,}')}", table([(line,) for line in lines]) + more(count - len(lines), "line"))
        if count
        else ""
    )


def more(count: int, word: str) -> str:
    """Return a line with the number of omitted lines; nothing if none is omitted.

    >>> more(0, "node"), more(1234, "node")
    ('', '<div><span class="dim">... 1,234 nodes more, which print(...) shows</span></div>')
    """
    return f"<div>{dim(f'... {counted(count, word)} more, which print(...) shows')}</div>" if count > 0 else ""


def page(*parts: str) -> str:
    """Return markup as a page of a notebook.

    >>> page("<b>x</b>").endswith("<b>x</b></div>")
    True
    """
    return f'<div class="purefx"><style>{STYLE}</style>{"".join(parts)}</div>'
