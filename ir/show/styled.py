"""Text of purefx as text of rich, which has colours: ``styled`` takes what a value prints as, and adds styles alone.

The text stays what it is, letter by letter: nothing in it is markup, and what is not printable is an escape already.  Which text
a value has is the business of ``../text`` and of the value; whether colours are wanted is that of rich's console, which knows
``NO_COLOR``, terminals and files.  Rich is imported when it asks for this, so it is needed by nobody else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from ..names import escaped

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Form", "styled"]

Form = Literal["program", "diff", "table", "finding", "history"]
"""What kind of text it is: of programs and graphs, of differences, of counts in columns, of ``verify``, of origins."""

STYLES = {
    "defined": "cyan", "graph": "magenta", "keyword": "bold", "number": "blue", "operator": "green", "effects": "red",
    "string": "yellow", "where": "dim",
}  # fmt: skip
"""By the words of the text form; colours of the terminal's own palette, which are legible on dark and on light."""

QUOTED = r'"(?:[^"\\\n]|\\.)*+(?:"|\\?$)'
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
    for match in FORMS[form].finditer(text):
        lines = WORDS.finditer(text, match.start(), match.end()) if match.lastgroup == "program" else (match,)
        for word in lines:
            style = str(word.lastgroup)
            spans.append(Span(word.start(style), word.end(style), STYLES.get(style, style.replace("_", " "))))
    return Text(text, spans=spans)
