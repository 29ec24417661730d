"""``styled``: add colours to the printed text of a value, as text of rich.

The characters of the text do not change: it has no markup, and unprintable characters are already escaped.  Rich's console
decides whether to show colours, from ``NO_COLOR``, terminals and files.  Only the caller of ``styled`` needs rich.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from ..names import escaped

if TYPE_CHECKING:
    from rich.text import Text

Form = Literal["program", "diff", "table", "finding", "history"]
"""The kind of text: programs and graphs, differences, counts in columns, findings of ``verify``, origins."""

STYLES = {
    "defined": "cyan", "graph": "magenta", "keyword": "bold", "number": "blue", "operator": "green", "effects": "red",
    "string": "yellow", "where": "dim",
}  # fmt: skip
"""Styles by kind of word; colours of the terminal's palette, which are legible on dark and on light."""

QUOTED = r'"(?:[^"\\\n]|\\.)*+(?:"|\\?$)'
"""Up to the closing quote or the end of the line, so that text of many quotes is not searched from each of them."""

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
    re.VERBOSE | re.MULTILINE,
)

FIRST = r"(?:\A|(?<=\n\n))"
"""The first line of a text, and the first one after an empty line."""

FORMS: dict[str, re.Pattern[str]] = {
    "program": WORDS,
    **{
        form: re.compile(pattern, re.MULTILINE)
        for form, pattern in {
            "diff": r"^(?:(?P<green>\+.*)|(?P<red>-.*)|(?P<cyan>@.*)|(?P<bold>[^ \n].*))",
            "table": rf"{FIRST}(?P<bold>.+)|(?P<graph>@\S+)|(?P<number>(?<=  )x[\d,]+(?=  |$))",
            "finding": rf"{FIRST}(?P<bold_red>.*?:)|^(?P<program>    .*)|^(?P<green>  to do:.*)|^(?P<cyan>  at .*)|^(?P<dim>.+)",
            "history": rf"{FIRST}(?P<bold>.+)|^(?P<dim> {{4}}.*)|^  (?P<cyan>step [^:]*:|imported|input|state|now|gone since)",
        }.items()
    },
}
"""The words of each form, by their style or by a key of ``STYLES``; ``program`` is a line of that form."""


def styled(text: str, form: Form = "program") -> Text:
    r"""Return a text with styles, for rich to print; rich adds the end of the last line.

    Args:
        text: the printed text of a value.
        form: the kind of text.

    >>> found = styled("y = aten.relu.default(x)")
    >>> found.plain, [str(span.style) for span in found.spans]
    ('y = aten.relu.default(x)', ['cyan', 'green'])
    >>> styled("[red]\x1b[2J").plain
    '[red]\\x1b[2J'
    """
    from rich.text import Span, Text

    text = escaped(text).removesuffix("\n")
    spans: list[Span] = []
    for match in FORMS[form].finditer(text):
        lines = (
            WORDS.finditer(text, match.start(), match.end())
            if match.lastgroup == "program"
            else (match,)
        )
        for word in lines:
            style = str(word.lastgroup)
            spans.append(
                Span(word.start(style), word.end(style), STYLES.get(style, style.replace("_", " ")))
            )
    return Text(text, spans=spans)
