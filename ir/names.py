"""Names: fresh ones for values and graphs, and the one grammar of those that come from outside.

One idea: a name that is wanted and free is taken as it is, else the smallest free number is put behind it.  A name is data:
our own code never compiles one, but torch does (fx writes them into Python text), so what comes from a file or from another
library has to be a name.
"""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable

__all__ = ["Names", "did_you_mean", "escaped", "is_identifier", "is_plain_path", "stem_of", "word_of"]

DIGITS = "0123456789"


def is_identifier(name: object) -> bool:
    r"""Say whether a name of a value, an argument or a keyword is what Python takes for a name: one word, and not a keyword.

    >>> is_identifier("p_0_weight"), is_identifier("x=print()"), is_identifier("a\nb"), is_identifier("class")
    (True, False, False, False)
    """
    return type(name) is str and name.isidentifier() and not keyword.iskeyword(name)


def word_of(path: str) -> str:
    r"""Return a name for a value that belongs to a module or to state: the path, as one word that is an identifier.

    >>> word_of("layers.0.mlp"), word_of("0"), word_of("/a-b"), word_of("class")
    ('layers_0_mlp', '_0', 'a_b', '_class')
    """
    word = path.removeprefix("/").replace(".", "_")
    if is_identifier(word):
        return word
    word = "".join([char if f"_{char}".isidentifier() else "_" for char in word])
    return word if is_identifier(word) else f"_{word}"


def stem_of(name: str) -> str:
    """Return a name without the number that tells it from others that are wanted alike.

    >>> stem_of("linear_12"), stem_of("add_1_1"), stem_of("conv2d"), stem_of("_0")
    ('linear', 'add', 'conv2d', '_0')
    """
    while name[-1:] in DIGITS:
        stem = name.rstrip(DIGITS)
        if len(stem) < 2 or stem[-1] != "_":
            break
        name = stem[:-1]
    return name


def is_plain_path(name: object) -> bool:
    r"""Say whether the path of a module, of a slot or of a class can stand between quotes: printable, without " and backslash.

    >>> is_plain_path("layers.0@1"), is_plain_path("a b"), is_plain_path('x") or f("'), is_plain_path("\u202e")
    (True, True, False, False)
    """
    return isinstance(name, str) and name.isprintable() and '"' not in name and "\\" not in name


def escaped(text: str) -> str:
    r"""Return a text in which whatever is not printable is written as an escape, but for the ends of lines.

    >>> escaped("a\x1b[2J\n\u202e")
    'a\\x1b[2J\n\\u202e'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join([char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text])


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a sentence that says that a name is not known: what is near it, or nothing.

    >>> did_you_mean("maks", ["mask", "w"]), did_you_mean("zzz", ["mask"])
    ("; did you mean 'mask'?", '')
    """
    near = difflib.get_close_matches(str(name), list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


class Names:
    """Hands out names that are not taken yet.

    >>> names = Names(["x"])
    >>> names.fresh("x"), names.fresh("x"), names.fresh("y")
    ('x_1', 'x_2', 'y')
    >>> names.renumbered("y_1"), names.renumbered("y_1")
    ('y_1', 'y_2')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """Return the wanted name, numbered if it is taken, and take it."""
        name = wanted
        while name in self._taken:
            number = self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def renumbered(self, wanted: str) -> str:
        """Return the wanted name, with another number if it is taken, and take it."""
        if wanted not in self._taken:
            self._taken.add(wanted)
            return wanted
        stem = stem_of(wanted)
        self._taken.add(stem)  # where ``sum_1`` was wanted, ``sum`` is no name for another
        return self.fresh(stem)
