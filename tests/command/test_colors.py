"""Colours are where they are wanted, change no letter of the text, and no name of a program is taken for markup or an escape."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any

import pytest

import purefx as px
from purefx.__main__ import main
from purefx.ir.show.styled import Form, styled
from tests.command.conftest import Run
from tests.front.reports import hostile

STYLE = re.compile(r"\x1b\[[0-9;]*m")

HOSTILE = (
    "[bold red]x[/]", "[/]", "[link=https://x.y]z[/link]", ":smile:", "\\[red]", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m",
    "a\u202eb", "a\u2066b", "a\nb", "a\rb", "a\tb", "\x00", "\x7f", "\ud800", "💥", "日本",
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(value: Any, **options: Any) -> str:
    """Return what a terminal gets."""
    rich = pytest.importorskip("rich.console", reason="rich is not installed (extra rich)")
    terminal = io.StringIO()
    console = rich.Console(
        file=terminal, force_terminal=True, color_system="standard", width=100, **options
    )
    console.print(value, soft_wrap=True)
    return terminal.getvalue()


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    program, empty = hostile(name), px.Program.of({"": px.Graph((), ())})
    values = [
        program,
        program.graphs[name],
        program.main.nodes[0],
        px.diff(empty, program),
        px.diff(program, empty),
    ]
    values += px.verify(program.evolve(root=name * 2))
    values += [
        px.errors.Violation(
            name, name, name, name, name, (name, f"> {name}"), name, name, 2, (name,)
        )
    ]
    for value in values:
        found = shown(value)
        assert STYLE.sub("", found).rstrip("\n") == str(value).rstrip("\n")
        assert all(char.isprintable() or char == "\n" for char in STYLE.sub("", found))
        assert "\x1b" in found
    counts = px.stats(program)
    assert STYLE.sub("", shown(counts)) == f"{counts}\n"


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("program", 'y = aten.add.Tensor(x, 1.5, "= aten.no(1)")  in a / .b',
         ["cyan y", "green aten.add.Tensor", "blue 1.5", 'yellow "= aten.no(1)"', "dim   in a / .b"]),
        ("program", 'y = call @"a@1"(x) as a@1', ["cyan y", "bold call", 'magenta @"a@1"']),
        ("program", "y = call @ReLU(x) as 0", ["cyan y", "bold call", "magenta @ReLU"]),
        ("program", "y = toy.neg(x_1, -2) ! writes 0, random  in a",
         ["cyan y", "green toy.neg", "blue -2", "red  ! writes 0, random", "dim   in a"]),
        ("program", "graph @Block(arg) {\n  call = get a.b\n}", ["bold graph", "magenta @Block", "cyan   call", "bold get"]),
        ("program", '  %"a b" = get a.b', ['cyan   %"a b"', "bold get"]),
        ("program", "  return (y, 2)", ["bold   return", "blue 2"]),
        ("diff", "1 node\n- a\n+ b\n  c\n@@ node 1\ngraph @x changed",
         ["bold 1 node", "red - a", "green + b", "cyan @@ node 1", "bold graph @x changed"]),
        ("table", "module  x\na       1\n\nclass  n\n@b     x3", ["bold module  x", "bold class  n", "magenta @b", "blue x3"]),
        ("table", "module      class\n0-2     x3  Block", ["bold module      class", "blue x3"]),
        ("finding", "rule: it: no\n  at a / b\n    > y = toy.neg(x)\n  from m.py\n  to do: go\n\nother: no",
         ["bold red rule:", "cyan   at a / b", "cyan     > y", "green toy.neg", "dim   from m.py", "green   to do: go",
          "bold red other:"]),
        ("history", "y in a\n  step 1, outline: a -> b\n  imported y\n    m.py:3\n  now y\n  and 2 more",
         ["bold y in a", "cyan step 1, outline:", "cyan imported", "dim     m.py:3", "cyan now"]),
    ],
)  # fmt: skip
def test_styles(form: Form, text: str, expected: list[str]) -> None:
    pytest.importorskip("rich", reason="rich is not installed (extra rich)")
    found = styled(f"{text}\n", form)
    assert found.plain == text
    assert [f"{span.style} {text[span.start : span.end]}" for span in found.spans] == expected


def test_a_terminal_has_colors(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="rich is not installed (extra rich)")
    monkeypatch.setenv("TERM", "xterm")
    for command, *more in (
        ["show"],
        ["diff", "after.purefx"],
        ["tree"],
        ["history", "Block / relu"],
    ):
        plain = run(command, "model.purefx", *more)[1]
        assert "\x1b" not in plain
        for no_color in ("", "1"):
            monkeypatch.setenv("NO_COLOR", no_color)
            stream = Terminal()
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", stream)
                main([command, "model.purefx", *more])
            assert STYLE.sub("", stream.getvalue()) == plain, command
            assert ("\x1b[3" in stream.getvalue()) == (not no_color), command


def test_names_of_files_stay_text(run: Run) -> None:
    assert run("report", "model.purefx", "--out", "a\x1b[2J\x7f.html")[1] == "a\\x1b[2J\\x7f.html\n"


def test_a_reader_that_goes_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 1 would say that programs differ."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="ascii") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert main(["show", "model.purefx"]) == 0
