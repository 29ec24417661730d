"""Names of values and graphs, and paths of modules.

One grammar defines well-formed names; fresh names never collide.  Paths are joined and made relative here.
"""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable


def is_identifier(name: object) -> bool:
    r"""Return whether a text can name a value, an argument or a keyword: a Python identifier that is not a keyword.

    >>> is_identifier("p_0_weight"), is_identifier("x=print()"), is_identifier("a\nb"), is_identifier("class")
    (True, False, False, False)
    """
    return type(name) is str and name.isidentifier() and not keyword.iskeyword(name)


def word_of(path: str) -> str:
    r"""Return the path of a module or of state as an identifier, for naming a value.

    >>> word_of("layers.0.mlp"), word_of("0"), word_of("/a-b"), word_of("class")
    ('layers_0_mlp', '_0', 'a_b', '_class')
    """
    word = path.removeprefix("/").replace(".", "_")
    if is_identifier(word):
        return word
    word = "".join([char if f"_{char}".isidentifier() else "_" for char in word])
    return word if is_identifier(word) else f"_{word}"


def stem_of(name: str) -> str:
    """Return a name without its number.

    >>> stem_of("linear_12"), stem_of("add_1_1"), stem_of("conv2d"), stem_of("_0")
    ('linear', 'add', 'conv2d', '_0')
    """
    stem, _, number = name.rpartition("_")
    return stem_of(stem) if stem and number.isdecimal() and number.isascii() else name


def is_plain_path(name: object) -> bool:
    r"""Return whether a path of a module, a slot or a class is printable, without " and backslash, so that it can be quoted.

    >>> is_plain_path("layers.0@1"), is_plain_path("a b"), is_plain_path('x") or f("'), is_plain_path("\u202e")
    (True, True, False, False)
    """
    return isinstance(name, str) and name.isprintable() and '"' not in name and "\\" not in name


def escaped(text: str) -> str:
    r"""Return a text with escapes for unprintable characters other than line ends.

    >>> escaped("a\x1b[2J\n\u202e")
    'a\\x1b[2J\n\\u202e'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        [char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text]
    )


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar known names, or an empty text.

    >>> did_you_mean("maks", ["mask", "w"]), did_you_mean("zzz", ["mask"])
    ("; did you mean 'mask'?", '')
    """
    near = difflib.get_close_matches(str(name), list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


class Names:
    """Chooses unused names.

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
        """Return the wanted name, numbered if it is used, and mark it as used."""
        name = wanted
        while name in self._taken:
            number = self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def without(self, names: Iterable[str]) -> Names:
        """Return a copy in which some names are free again."""
        return Names(self._taken.difference(names))

    def renumbered(self, wanted: str) -> str:
        """Return the wanted name, with another number if it is used, and mark it as used."""
        if wanted in self._taken:
            wanted = stem_of(wanted)
            self._taken.add(wanted)  # if ``sum_1`` was wanted, keep ``sum`` unused
        return self.fresh(wanted)


FROM_ROOT = "/"
"""The first character of a path that starts at the root."""


def join(outer: str, inner: str) -> str:
    """Return a path of a body as a path from the root.

    Args:
        outer: the path of the module with the body, from the root; empty for the root itself.
        inner: a path as the body writes it.

    >>> join("b.c", "d"), join("b.c", "/a"), join("", "a")
    ('b.c.d', 'a', 'a')
    """
    if inner.startswith(FROM_ROOT):
        return inner[1:]
    return f"{outer}.{inner}" if outer else inner


def nested(outer: str, inner: str) -> str:
    """Return a path of a body as written in a caller that calls the body ``outer``.

    >>> nested("b", "c"), nested("b", "/a"), nested("/a", "c")
    ('b.c', '/a', '/a.c')
    """
    return inner if not outer or inner.startswith(FROM_ROOT) else f"{outer}.{inner}"


def relative(path: str, outer: str) -> str:
    """Return a path as the body of a module writes it: relative if it is below the module, else from the root.

    Args:
        path: a path from the root, written plainly.
        outer: the module, likewise; empty for the root.

    >>> relative("b.c", "b"), relative("a", "b"), relative("bc", "b"), relative("a", "")
    ('c', '/a', '/bc', 'a')
    """
    if not outer:
        return path
    length = len(outer)
    if path.startswith(outer) and path[length : length + 1] == ".":
        return path[length + 1 :]
    return FROM_ROOT + path


def is_below(path: str, outer: str) -> bool:
    """Return whether a module is below another one; both paths start at the root.

    >>> is_below("b.c", "b"), is_below("bc", "b"), is_below("b", "b"), is_below("b", "")
    (True, False, False, True)
    """
    return path.startswith(f"{outer}.") if outer else path != ""


def parent_of(path: str) -> str:
    """Return a dotted path without its last name: the module that holds a module or a slot; "" if that is the root.

    >>> parent_of("layers.0.weight"), parent_of("weight")
    ('layers.0', '')
    """
    return path.rpartition(".")[0]


def last_name(path: str) -> str:
    """Return the last name of a dotted path.

    >>> last_name("layers.0.weight"), last_name("torch.nn.Linear"), last_name("weight")
    ('weight', 'Linear', 'weight')
    """
    return path.rpartition(".")[2]


def way_to(path: str) -> list[str]:
    """Return the paths of the modules around a module, outermost first, then its own; [] for the root.

    >>> way_to("a.b.c"), way_to("")
    (['a', 'a.b', 'a.b.c'], [])
    """
    names = path.split(".") if path else []
    return [".".join(names[:depth]) for depth in range(1, len(names) + 1)]


FORBIDDEN = frozenset("'\"\\.")


def is_name(text: object) -> bool:
    r"""Return whether a text can name a module or an attribute: printable, without quotes, dots and backslashes.

    >>> is_name("layer 0"), is_name("a.b"), is_name("x'"), is_name("a\nb"), is_name("")
    (True, False, False, False, False)
    """
    return (
        type(text) is str
        and bool(text)
        and text.isprintable()
        and FORBIDDEN.isdisjoint(text)
        and text[0] != FROM_ROOT
    )


def is_dotted_path(text: object) -> bool:
    """Return whether a text consists of names separated by dots.

    >>> is_dotted_path("layers.0.weight"), is_dotted_path("a..b"), is_dotted_path("a.b'); import os")
    (True, False, False)
    """
    return type(text) is str and all(map(is_name, text.split(".")))
