"""Mutations of saved programs: of the bytes of a file, of the JSON in it, of the program text in that, and of text alone."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w.]*|-?\d+(?:\.\d+)?|\s+|.', re.DOTALL)

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "-3",
    "99",
    "2147483648",
    "9223372036854775808",
    "-9223372036854775809",
    "1" + "0" * 40,
)

LITERALS = (
    "None", '"text"', "1.5", "()", "[]", "[x, 1]", '{"a": 1}', "slice(0, 2, None)", "True", "torch.float16", 'device("cuda:9")',
    'device("nowhere")', "...", "nan", "-inf", "1e400", "complex(1.0, 2.0)", "(1, (2, [3]))", 'b"a"', "range(0, 3, 1)",
    "tree(([*], {}))", 'op("aten.relu.default")', '@""',
)  # fmt: skip

HOSTILE = (
    "os.system", "builtins.eval", "builtins.exec", "builtins.getattr", "posix.system", "subprocess.run", "operator.attrgetter",
    "operator.methodcaller", "torch.load", "torch.ops.load_library", "aten.from_file.default", "higher_order.wrap",
    "operator.setitem", "builtins.open", "torch.hub.load", "prim.PythonOp", "aten._print.default", "pickle.loads",
)  # fmt: skip
"""Names of what could run something."""

Change = Callable[[list[str], random.Random], None]


def _is_word(token: str) -> bool:
    return token[0].isalpha() or token[0] in '_"'


def _places(tokens: list[str], wanted: Callable[[str], bool]) -> list[int]:
    return [index for index, token in enumerate(tokens) if wanted(token)]


def _replaced(wanted: Callable[[str], bool], pool: Callable[[list[str]], Sequence[str]]) -> Change:
    """Return a change of one token of a kind to one of a pool."""

    def change(tokens: list[str], draw: random.Random) -> None:
        if places := _places(tokens, wanted):
            tokens[draw.choice(places)] = draw.choice(pool(tokens))

    return change


def _is_number(token: str) -> bool:
    return token[0].isdigit() or (token[0] == "-" and len(token) > 1)


def _is_operator(token: str) -> bool:
    return token.count(".") > 1 or token.startswith(("operator.", "higher_order."))


def _near_word(tokens: list[str], draw: random.Random) -> None:
    # A word that stands nearby is more often of the same kind.
    places = _places(tokens, _is_word)
    if not places:
        return
    at = draw.randrange(len(places))
    tokens[places[at]] = tokens[places[max(0, min(len(places) - 1, at + draw.randint(-12, 12)))]]


def _swapped(tokens: list[str], draw: random.Random) -> None:
    places = _places(tokens, lambda token: not token.isspace())
    at = draw.randrange(len(places))
    other = max(0, min(len(places) - 1, at + draw.randint(-8, 8)))
    tokens[places[at]], tokens[places[other]] = tokens[places[other]], tokens[places[at]]


def _dropped(tokens: list[str], draw: random.Random) -> None:
    # An argument with its comma, rather than one token alone.
    places = _places(tokens, lambda token: token == ",")
    at = draw.choice(places) if places and draw.random() < 0.7 else draw.randrange(len(tokens))
    del tokens[at : at + draw.choice((1, 2, 3))]


def _doubled(tokens: list[str], draw: random.Random) -> None:
    places = _places(tokens, lambda token: token == ",")
    if places:
        at = draw.choice(places)
        tokens[at:at] = [", ", draw.choice([token for token in tokens if _is_word(token)])]


def _line(tokens: list[str], draw: random.Random) -> None:
    lines = "".join(tokens).split("\n")
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    near = min(len(lines) - 1, at + 1)
    match draw.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            lines[at] = lines[other]
        case _:
            other = draw.choice((other, near))
            lines[at], lines[other] = lines[other], lines[at]
    tokens[:] = ["\n".join(lines)]


CHANGES: tuple[Change, ...] = (
    _replaced(_is_number, lambda _: NUMBERS),
    _replaced(_is_word, lambda tokens: list(filter(_is_word, tokens))),
    _replaced(_is_operator, lambda tokens: list(filter(_is_operator, tokens))),
    _replaced(lambda token: "." in token and token[0].isalpha(), lambda _: HOSTILE),
    *[_replaced(lambda token: _is_word(token) or token[0].isdigit(), lambda _: LITERALS)] * 2,
    *(_near_word, _near_word, _swapped, _dropped, _doubled, _line, _line),
)


def mutated_text(text: str, draw: random.Random) -> str:
    """Return a text with some things changed: mostly one, so that it is still a program."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        tokens = TOKENS.findall(text)
        if len(tokens) < 3:
            return text
        draw.choice(CHANGES)(tokens, draw)
        text = "".join(tokens)
    return text


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 10**40, 1.5, float("nan"), "", "x", "cuda:9", "nowhere", "aten.relu.default", [], {},
    [[]], "\ud800", {"tensor": "f32[1] strides [1] on cpu"}, {"arg": "os.system"}, {"number": "s0"},
)  # fmt: skip


def mutated_json(structure: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return a JSON object with some values changed, removed, doubled, or put where others were."""
    found = copy.deepcopy(structure)
    for _ in range(draw.choice((1, 1, 2))):
        places = _json_places(found)
        holder, key = draw.choice(places)
        match draw.randrange(5):
            case 0:
                holder[key] = draw.choice(ODD)
            case 1:
                other, which = draw.choice(places)
                holder[key] = copy.deepcopy(other[which]) if which in _keys(other) else None
            case 2:
                del holder[key]
            case 3 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 4 if isinstance(holder[key], str):
                holder[key] = mutated_text(holder[key], draw)
            case _ if isinstance(holder[key], int):
                holder[key] += draw.choice((-1, 1))
            case _:
                pass
    return found


def _keys(holder: Any) -> Any:
    return range(len(holder)) if isinstance(holder, list) else holder


def _json_places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, list | dict):
            pairs: list[tuple[Any, Any]] = list(
                enumerate(part) if isinstance(part, list) else part.items()
            )
            found += [(part, key) for key, _ in pairs]
            todo += [inner for _, inner in pairs]
    return found


def mutated_bytes(raw: bytes, draw: random.Random) -> bytes:
    """Return bytes with some changed, cut off, doubled, or put elsewhere; more often where a file says what is in it."""
    found = bytearray(raw)
    end = min(len(found), 1200) if draw.random() < 0.5 else len(found)
    at, count = draw.randrange(end), draw.choice((1, 2, 8, 64))
    match draw.randrange(5):
        case 0:
            for _ in range(draw.choice((1, 3, 20))):
                found[draw.randrange(end)] ^= 1 << draw.randrange(8)
        case 1:
            del found[at:]
        case 2:
            del found[at : at + count]
        case 3:
            found[at:at] = found[(other := draw.randrange(len(found))) : other + count]
        case _:
            found[at : at + count] = found[(other := draw.randrange(len(found))) : other + count]
    return bytes(found)


class Parts:
    """A file taken apart: its header, its structure, its data; and put together again."""

    def __init__(self, raw: bytes, name: str) -> None:
        size = int.from_bytes(raw[:8], "little")
        self.header: dict[str, Any] = json.loads(raw[8 : 8 + size])
        self.data, self.name = raw[8 + size :], name
        self.begin, self.end = self.header[name]["data_offsets"]
        self.structure: dict[str, Any] = json.loads(self.data[self.begin : self.end])

    def whole(self, structure: Any = None, header: Any = None) -> bytes:
        """Return the bytes with the structure as it is now, or with another one."""
        text = json.dumps(self.structure if structure is None else structure).encode()
        header = copy.deepcopy(self.header if header is None else header)
        shift = len(text) - (self.end - self.begin)
        for name, entry in header.items():
            if (
                name != "__metadata__"
                and isinstance(entry, dict)
                and isinstance(entry.get("data_offsets"), list)
            ):
                entry["data_offsets"] = [
                    at + shift if type(at) is int and at >= self.end else at
                    for at in entry["data_offsets"]
                ]
        if isinstance(header.get(self.name), dict):
            header[self.name].update(
                shape=[len(text)], data_offsets=[self.begin, self.begin + len(text)]
            )
        return with_header(header, self.data[: self.begin] + text + self.data[self.end :])


def with_header(header: Any, data: bytes) -> bytes:
    """Return the bytes of a file with this header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data
