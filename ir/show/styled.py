"""Text of purefx as text of rich, which has colours: ``styled`` takes what a value prints as, and adds styles alone.

The text stays what it is, letter by letter: nothing in it is markup, and what is not printable is an escape already.  Which text
a value has is the business of ``../text`` and of the value; whether colours are wanted is that of rich's console, which knows
``NO_COLOR``, terminals and files.  Rich is imported when it asks for this, so it is needed by nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from ..names import escaped

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Form", "styled"]

Form = Literal["program", "diff", "table", "finding", "history"]
"""What kind of text it is: of programs and graphs, of differences, of counts in columns, of ``verify``, of origins."""

Spans = Iterator[tuple[int, int, str]]
"""Where a style begins and ends in a line, and which it is."""

STYLES = {
    "defined": "cyan", "graph": "magenta", "keyword": "bold", "number": "blue", "operator": "green", "effects": "red",
    "string": "yellow", "where": "dim",
}  # fmt: skip
"""By the words of the text form; colours of the terminal's own palette, which are legible on dark and on light."""

QUOTED = r'"(?:[^"\\]|\\.)*+(?:"|\\?$)'
"""To its end or that of the line, so that text of many quotes is not searched from each of them."""

WORDS = re.compile(
    r"""
      (?P<defined> ^ [ >]* (?: [A-Za-z_]\w* | %{QUOTED} ) (?= [ ]=[ ] ) )
    | (?P<graph>   (?<! [\w$.] ) @ (?: {QUOTED} | [\w$.]+ ) )
    | (?P<string>  [%b]? {QUOTED} )
    | (?P<where>   (?<! [ ] ) [ ]{2,}+ in [ ] .* $ )
    | (?P<effects> [ ] ! [ ] (?: (?! [ ]{2} ) . )*+ )
    | (?P<keyword> ^ [ >]* [a-z_]+ (?= [ ] .* \{ $ | [ ] \{ $ ) | ^ [ >]* return \b | (?<= [ ]=[ ] ) (?: call | get ) (?= [ ] ) )
    | (?P<operator> (?<= [ ]=[ ] ) [\w$.]+ (?= \( ) )
    | (?P<number>  (?<! [\w$.@] ) (?<! [ ]as[ ] ) -? \d [\d.e+-]* (?! [\w$.] ) )
    """.replace("{QUOTED}", QUOTED),
    re.VERBOSE,
)


def styled(text: str, form: Form = "program") -> Text:
    r"""Return a text of purefx with styles, for rich to print; the end of its last line is rich's business.

    Args:
        text: what a value prints as.
        form: what kind of text that is.

    >>> found = styled("y = aten.relu.default(x)")
    >>> found.plain, [str(span.style) for span in found.spans]
    ('y = aten.relu.default(x)', ['cyan', 'green'])
    >>> styled("[red]\x1b[2J").plain
    '[red]\\x1b[2J'
    """
    from rich.text import Span, Text

    text = escaped(text).removesuffix("\n")
    spans: list[Span] = []
    start, before = 0, ""
    for line in text.split("\n"):
        spans += [Span(start + begin, start + end, style) for begin, end, style in LINES[form](line, before) if line]
        start, before = start + len(line) + 1, line
    return Text(text, spans=spans)


def _program(line: str, before: str) -> Spans:  # noqa: ARG001
    for match in WORDS.finditer(line):
        yield match.start(), match.end(), STYLES[str(match.lastgroup)]


SIGNS = {"+": "green", "-": "red", "@": "cyan", " ": ""}


def _diff(line: str, before: str) -> Spans:  # noqa: ARG001
    style = SIGNS.get(line[:1], "bold")
    if style:
        yield 0, len(line), style


CELLS = re.compile(r"(?P<graph>@\S+)|(?P<number>(?<=  )x[\d,]+(?=  |$))")


def _table(line: str, before: str) -> Spans:
    if not before:
        yield 0, len(line), "bold"
    else:
        for match in CELLS.finditer(line):
            yield match.start(), match.end(), STYLES[str(match.lastgroup)]


def _finding(line: str, before: str) -> Spans:
    if not before:
        yield 0, line.find(":") + 1, "bold red"
    elif line.startswith("    "):
        yield from _program(line, before)
    else:
        style = "green" if line.startswith("  to do:") else "cyan" if line.startswith("  at ") else "dim"
        yield 0, len(line), style


LEADS = re.compile(r"^  (?:step \d+, [^:]*:|imported|input|state|now|gone since)")


def _history(line: str, before: str) -> Spans:
    if not before:
        yield 0, len(line), "bold"
    elif line.startswith("    "):
        yield 0, len(line), "dim"
    elif (match := LEADS.match(line)) is not None:
        yield 2, match.end(), "cyan"


LINES: dict[Form, Callable[[str, str], Spans]] = {
    "program": _program, "diff": _diff, "table": _table, "finding": _finding, "history": _history,
}  # fmt: skip
