"""What notebooks show of values: valid and broken ones, names that want to be markup, sizes, the protocol of IPython."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.errors import InvalidProgram, Violation
from purefx.ir.persistent import html_of
from tests.front.reports import PAYLOADS, hostile, soften
from tests.models import Tower
from tests.verify.corruptors import VARIANTS
from tests.verify.programs import PROGRAMS

TAGS = {"div", "style", "b", "details", "summary", "table", "tr", "td", "span"}

ATTRIBUTES = {"class", "open", "title"}


class Parsed(HTMLParser):
    """A page as a browser would read it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.titles: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] != "style":
            self.text += data


def parsed(value: Any) -> Parsed:
    """Return the page of a value, which is what every page is: markup of ours, without scripts, links and ids."""
    found = Parsed(value._repr_html_())
    assert found.tags <= TAGS
    assert found.attributes <= ATTRIBUTES
    assert all(text.isprintable() for text in (found.text, *found.titles)), (
        "each text is one line, without marks of direction"
    )
    assert value._repr_html_() == value._repr_html_()
    return found


def tower() -> px.Program:
    return px.transform(px.capture(Tower(3), (torch.ones(2, 4),)))


def test_a_program_has_its_bodies_state_and_steps() -> None:
    program = tower()
    text = parsed(program).text
    assert text.startswith("Tower 3 graphs, 10 nodes deduplicated, outlined, state sunk@")
    for name in (*program.order, *program.state.order):
        assert name in text
    assert "x3 " in text, "how many modules share a body"
    assert "outline()" in text
    assert "f32[2, 4] cpu" in text


def test_other_values() -> None:
    program = tower()
    assert "input" in parsed(program.main).text
    changed = px.diff(program, soften(program))
    text = parsed(changed).text
    assert "- " in text
    assert "+ " in text
    assert parsed(px.diff(program, program)).text == "nothing differs"
    with pytest.raises(InvalidProgram) as caught:
        px.transform(program.evolve(root="nowhere"))
    said = parsed(caught.value).text
    assert parsed(caught.value.violations[0]).text in said
    assert "to do:" in said


@pytest.mark.parametrize("corruptor", VARIANTS, ids=lambda one: f"{one.rule}-{one.name}")
def test_broken_programs_have_a_page(corruptor: Any) -> None:
    broken = corruptor.apply(PROGRAMS[corruptor.start]())
    assert "graph" in parsed(broken).text
    assert "text/html" in broken._repr_mimebundle_()


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_names_are_text(payload: str) -> None:
    program = hostile(payload)
    values: list[Any] = [
        program,
        *program.graphs.values(),
        px.diff(program, px.Program.of({"": px.Graph((), ())})),
    ]
    values += [
        *px.verify(program.evolve(root=payload * 2)),
        InvalidProgram(px.verify(program.evolve(root=""))),
    ]
    values += [
        Violation(
            *[payload] * 5,
            context=(payload, f"> {payload}"),
            source=payload,
            advice=payload,
            also=(payload,),
            count=2,
        )
    ]
    for value in values:
        parsed(value)
        assert all(
            line.isprintable() for line in value._repr_mimebundle_()["text/plain"].split("\n")
        )
    if payload.isascii() and payload.isprintable():
        assert payload in parsed(program).text


def chain(length: int) -> px.Program:
    nodes = [
        px.Node(f"y{number}", px.Op("toy.neg"), (px.Ref(f"y{number - 1}"),))
        for number in range(1, length)
    ]
    return px.Program.of({"": px.Graph((px.Input("y0"),), tuple(nodes), px.Ref(f"y{length - 1}"))})


def test_pages_are_bounded_and_say_what_is_left_out() -> None:
    long = chain(3_000)
    bodies = {str(number): px.Graph((), ()) for number in range(1000)}
    wide = px.Program.of(
        {
            "": px.Graph(
                (), tuple(px.Node(f"c{name}", px.Call(px.Frame(name), name)) for name in bodies)
            ),
            **bodies,
        }
    )
    named = px.Program.of({"": px.Graph((), (px.Node("y", px.Op("toy.neg"), ("<" * 10**5,)),))})
    many = px.Program.of(
        {"": px.Graph(tuple(px.Input(f"x{number}") for number in range(3_000)), ())}
    )
    empty = px.Program.of({"": px.Graph((), ())})
    findings = InvalidProgram(px.verify(wide.evolve(root="nowhere")) * 100)
    cases = (
        long,
        long.main,
        wide,
        named,
        many,
        px.diff(empty, long),
        px.diff(long, empty),
        px.diff(empty, wide),
        findings,
    )
    for value in cases:
        assert len(value._repr_html_()) < 500_000
        assert len(value._repr_mimebundle_()["text/plain"]) < 2_000_000
    assert "2,400 lines more" in parsed(long).text
    assert "801 graphs more" in parsed(wide).text


def test_a_body_that_is_instantiated_very_often() -> None:
    # Each calls the next twice: 2 ** 60 instances.
    graphs = {
        str(depth): px.Graph(
            (), tuple(px.Node(name, px.Call(px.Frame(name), str(depth + 1))) for name in "ab")
        )
        for depth in range(60)
    }
    program = px.Program.of({**graphs, "60": px.Graph((), ())}, root="0")
    assert f"x{2**60:,}" in parsed(program).text


def test_the_protocol_of_ipython() -> None:
    graph = chain(3).main
    assert list(graph._repr_mimebundle_()) == ["text/plain", "text/html"]
    assert graph._repr_mimebundle_()["text/plain"] == str(graph)
    assert html_of(object()) is None
