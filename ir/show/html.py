"""Markup for notebooks, and short descriptions of values and nodes for all forms.

Programs need not be valid, so nothing here relies on a field: a value that cannot be printed is shown as such.
Pages have no scripts, links or ids, so a notebook may have any number of them.  Colours are mixed with that of the surrounding
text, so that they are legible in dark and light themes.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..analysis.history import line_of
from ..names import escaped
from ..origins import Imported
from ..text.programs import counted
from ..text.state import DTYPE
from ..torch_private import device_of
from ..verify.findings import source_of
from .styled import WORDS

__all__ = [
    "ROWS", "Room", "code", "described", "dim", "fold", "imported_line", "listed", "more", "page", "safely", "shown",
    "source_line", "table", "text", "titled",
]  # fmt: skip

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
"""Half of each colour is that of the surrounding text, which is dark on a light page and light on a dark one."""


class Room:
    """Counts the lines that may still be shown, which bounds the size of a page.

    >>> room = Room(5)
    >>> room.take(3), room.take(3), room.take(3)
    (3, 2, 0)
    """

    def __init__(self, lines: int) -> None:
        self.left = lines

    def take(self, wanted: int) -> int:
        """Return how many of the wanted lines may be shown, and count them."""
        count = min(wanted, self.left)
        self.left -= count
        return count


def text(value: object, longest: int = LONGEST) -> str:
    r"""Return any text as markup: one line, printable, escaped, and cut if it is long.

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
    """Return a line of the text form as markup, with coloured words.

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
    """Return a head with a body that folds; the head alone if the body is empty.

    Args:
        head: markup of one line.
        body: markup.
        is_open: whether it starts unfolded.

    >>> fold("state", "w"), fold("state", "")
    ('<details><summary>state</summary>w</details>', '<div>state</div>')
    """
    return f"<details{' open' if is_open else ''}><summary>{head}</summary>{body}</details>" if body else f"<div>{head}</div>"


def listed(what: str, lines: Sequence[str], count: int) -> str:
    """Return a list that folds under its name and its length; nothing for an empty one.

    Args:
        what: its name.
        lines: the shown lines, as markup.
        count: the number of all lines.

    >>> listed("steps", ["outline()"], 2).endswith("... 1 line more, which print(...) shows</span></div></details>")
    True
    """
    return (
        fold(f"{what} {dim(f'{count:,}')}", table([(line,) for line in lines]) + more(count - len(lines), "line"))
        if count
        else ""
    )


def more(count: int, word: str) -> str:
    """Return a line with the number of omitted lines; nothing for 0.

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


UNPRINTABLE = "(cannot be printed)"

MOST = 600
"""Characters of a text; names in programs may be of any length."""


def safely(printed: Callable[[], Any], otherwise: Any = UNPRINTABLE) -> Any:
    """Return the result of a function, or another value if it raises.

    Args:
        printed: prints a value of any type.
        otherwise: the result if the function raises.

    >>> safely(lambda: 1 // 0), safely(lambda: 1)
    ('(cannot be printed)', 1)
    """
    try:
        return printed()
    except Exception:  # noqa: BLE001  an invalid value may raise anything; the rest of the page is still shown
        return otherwise


def shown(text: Any, longest: int = MOST) -> str:
    r"""Return a text on one line, printable and not too long.

    Args:
        text: any object; its ``str`` is shown.
        longest: the number of characters after which it is cut.

    >>> shown("a\nb"), len(shown("x" * 10**6)), shown("x" * 10**6)[-13:]
    ('a\\nb', 614, '... (1000000)')
    """
    text = str(text)
    cut = text if len(text) <= longest else f"{text[:longest]} ... ({len(text)})"
    return escaped(cut).replace("\n", "\\n")


def described(value: Any) -> str | None:
    """Describe a value in a word or two; return None if it is unknown.

    Args:
        value: the ``val`` of a meta.

    >>> described(torch.ones(2, 3)), described((torch.ones(1, dtype=torch.bool), 7)), described(None) is None
    ('f32[2, 3] cpu', '(bool[1] cpu, 7)', True)
    """
    if isinstance(value, torch.Tensor):
        dtype = DTYPE.write(value.dtype).removeprefix("torch.")
        return safely(lambda: f"{dtype}[{', '.join(map(str, value.shape))}] {device_of(value)}")
    if isinstance(value, tuple | list):
        parts = [described(part) or "None" for part in value[:8]]
        return f"({', '.join([*parts, *(['...'] if len(value) > 8 else [])])})"
    return None if value is None else safely(lambda: str(value))


def source_line(meta: Any) -> str | None:
    r"""Return the innermost source line that made a node: the user's, else torch's, or None.

    Args:
        meta: of the node.

    >>> source_line({"stack_trace": '  File "m.py", line 3, in forward\n    return -x'})
    'm.py:3 in forward: return -x'
    """
    trace = meta.get("stack_trace")
    return imported_line(Imported("", "", trace=trace)) or source_of(meta) if isinstance(trace, str) else None


def imported_line(origin: Imported) -> str | None:
    r"""Return the user's source line that made an imported node, or None.

    >>> imported_line(Imported("y", "toy.neg", trace='  File "m.py", line 3, in forward\n    return -x'))
    'm.py:3 in forward: return -x'
    """
    found = line_of(origin)
    return f"{found['file']}:{found['line']} in {found['function']}: {found['code']}" if found else None
