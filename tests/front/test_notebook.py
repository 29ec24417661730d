"""What notebooks show of values: valid and broken ones, names that want to be markup, sizes, the protocol of IPython."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.displayed import html_of
from purefx.ir.errors import InvalidProgram, Violation
from purefx.ir.state import Slot, SlotKind, State
from purefx.ir.text.contract import print_expr
from tests.front.reports import PAYLOADS, hostile, soften
from tests.programs import Tower, parent
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
    assert all(text.isprintable() for text in (found.text, *found.titles)), "each text is one line, without marks of direction"
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


class Tied(parent(a=lambda: nn.Linear(4, 4, bias=False), b=lambda: nn.Linear(4, 4, bias=False))):
    """Has one tensor under two names, a buffer that is not saved, and two sizes that are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.b.weight = self.a.weight
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.b(self.a(x)) + y


def rows(value: Any) -> list[list[str]]:
    """Return the cells of all rows of a page, as text, those of one table after those of another."""
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", value._repr_html_())]
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in row] for row in cells]


def tied() -> px.Program:
    sizes = ({0: torch.export.Dim("rows", min=2, max=64)},) * 2
    return px.transform(px.capture(Tied(), (torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes=sizes))


def test_all_rows_of_a_program() -> None:
    program = tied()
    symbol = print_expr(program.constraints.ranges[0].expr)
    kind, weight = f"f32[{symbol}, 4] cpu", "f32[4, 4] cpu"
    assert rows(program) == [
        ["input x", f"user x: f32[{symbol}, 4]"],
        ["input y", f"user y: f32[{symbol}, 4]"],
        ["b_count = get count", "f32[] cpu"],
        ["add_ = aten.add_.Tensor(b_count, 1)", "f32[] cpu"],
        ["linear = call @Linear(x) as a", kind],
        ["linear_1 = call @Linear(linear) as b", kind],
        ["add = aten.add.Tensor(linear_1, y)", kind],
        ["return (add,)", ""],
        ["input arg", kind],
        ["weight = get weight", weight],
        ["linear = aten.linear.default(arg, weight)", kind],
        ["return linear", ""],
        ["a.weight", "parameter", weight, ""],
        ["b.weight", "parameter", weight, "one tensor with a.weight"],
        ["count", "buffer, not persistent", "f32[] cpu", ""],
        [f"range {symbol} from 2 to 64"],
        ["size(#0, 0) == size(#1, 0)"],
        ["sink_state()"],
        ["outline()"],
        ["deduplicate()"],
    ]


def test_all_rows_of_counts_and_of_a_finding() -> None:
    program = tied()
    found = rows(px.stats(program))
    assert found[:4] == [["operator", "runs"], ["aten.linear.default", "2"], ["aten.add_.Tensor", "1"], ["aten.add.Tensor", "1"]]
    assert found[4:6] == [["module", "operators", "parameters", "bytes", "flops"], ["(root) Tied", "2", "0", "4", "-"]]
    assert 'class="number">2</td>' in px.stats(program)._repr_html_()
    backwards = px.Graph(program.main.inputs, program.main.nodes[::-1], program.main.output)
    found = rows(px.verify(program.with_graphs({"": backwards}))[0])
    assert ["    > add = aten.add.Tensor(linear_1, y)"] in found
    assert found[-1] == ["  to do: put the node behind the one that makes the value"]
    page = px.verify(program.with_graphs({"": backwards}))[0]._repr_html_() or ""
    assert page.count("<tr><td><b>") == 1, "the line itself"


def test_what_a_program_gives_beside_results_is_said() -> None:
    program = px.import_ep(torch.export.export(Tied(), (torch.ones(3, 4), torch.ones(3, 4))).run_decompositions())
    (told,) = [row[1] for row in rows(program) if row[0].startswith("return ")]
    assert told == "state count, user"


def test_state_that_is_no_tensor_says_its_class() -> None:
    slot = Slot(SlotKind.CONSTANT, {"a": 1}, 0, 0)
    program = px.Program.of({"": px.Graph((), ())}).evolve(state=State(("c", "gone"), px.ir.pmap({"c": slot})))
    assert rows(program)[-2:] == [["c", "constant", "dict", ""], ["gone", "missing", ""]]


def test_a_node_says_its_line() -> None:
    assert any("programs.py:" in title for title in parsed(tower()).titles)


def test_other_values() -> None:
    program = tower()
    assert "input" in parsed(program.main).text
    changed = px.diff(program, soften(program))
    text = parsed(changed).text
    assert "- " in text
    assert "+ " in text
    assert parsed(px.diff(program, program)).text == "nothing differs"
    assert f"{px.stats(program).parameters:,} parameters" in parsed(px.stats(program)).text
    with pytest.raises(InvalidProgram) as caught:
        px.transform(program.evolve(root="nowhere"))
    said = parsed(caught.value).text
    assert parsed(caught.value.violations[0]).text in said
    assert "to do:" in said


def test_dynamic_sizes_are_symbols() -> None:
    sizes = ({0: torch.export.Dim("n", min=2, max=64)},)
    program = px.capture(torch.nn.ReLU(), (torch.ones(4, 3),), dynamic_shapes=sizes)
    text = parsed(program).text
    assert "range " in text
    assert "[s" in text


@pytest.mark.parametrize("corruptor", VARIANTS, ids=lambda one: f"{one.rule}-{one.name}")
def test_broken_programs_have_a_page(corruptor: Any) -> None:
    broken = corruptor.apply(PROGRAMS[corruptor.start]())
    assert "graph" in parsed(broken).text
    assert "text/html" in broken._repr_mimebundle_()


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_names_are_text(payload: str) -> None:
    program = hostile(payload)
    values: list[Any] = [program, *program.graphs.values(), px.diff(program, px.Program.of({"": px.Graph((), ())}))]
    values += [
        px.stats(program),
        *px.verify(program.evolve(root=payload * 2)),
        InvalidProgram(px.verify(program.evolve(root=""))),
    ]
    values += [
        Violation(*[payload] * 5, context=(payload, f"> {payload}"), source=payload, advice=payload, also=(payload,), count=2)
    ]
    for value in values:
        parsed(value)
        assert all(line.isprintable() for line in value._repr_mimebundle_()["text/plain"].split("\n"))
    if payload.isascii() and payload.isprintable():
        assert payload in parsed(program).text


def chain(length: int) -> px.Program:
    nodes = [px.Node(f"y{number}", px.Op("toy.neg"), (px.Ref(f"y{number - 1}"),)) for number in range(1, length)]
    return px.Program.of({"": px.Graph((px.Input("y0"),), tuple(nodes), px.Ref(f"y{length - 1}"))})


def test_pages_are_bounded_and_say_what_is_left_out() -> None:
    long = chain(100_000)
    bodies = {str(number): px.Graph((), ()) for number in range(5000)}
    wide = px.Program.of(
        {"": px.Graph((), tuple(px.Node(f"c{name}", px.Call(px.Frame(name), name)) for name in bodies)), **bodies}
    )
    named = px.Program.of({"": px.Graph((), (px.Node("y", px.Op("toy.neg"), ("<" * 10**6,)),))})
    many = px.Program.of({"": px.Graph(tuple(px.Input(f"x{number}") for number in range(10_000)), ())})
    empty = px.Program.of({"": px.Graph((), ())})
    findings = InvalidProgram(px.verify(wide.evolve(root="nowhere")) * 1000)
    cases = (long, long.main, wide, named, many, px.diff(empty, long), px.diff(long, empty), px.diff(empty, wide), findings)
    for value in (*cases, px.stats(wide)):
        assert len(value._repr_html_()) < 500_000
        assert len(value._repr_mimebundle_()["text/plain"]) < 2_000_000
    assert "99,400 lines more" in parsed(long).text
    assert "4,801 graphs more" in parsed(wide).text


def test_a_body_that_is_instantiated_very_often() -> None:
    # Each calls the next twice: 2 ** 60 instances.
    graphs = {
        str(depth): px.Graph((), tuple(px.Node(name, px.Call(px.Frame(name), str(depth + 1))) for name in "ab"))
        for depth in range(60)
    }
    program = px.Program.of({**graphs, "60": px.Graph((), ())}, root="0")
    assert f"x{2**60:,}" in parsed(program).text


def test_the_protocol_of_ipython() -> None:
    graph = chain(3).main
    assert list(graph._repr_mimebundle_()) == ["text/plain", "text/html"]
    assert list(graph._repr_mimebundle_(include={"text/html", "image/png"})) == ["text/html"]
    assert list(graph._repr_mimebundle_(exclude=["text/html"])) == ["text/plain"]
    assert list(graph._repr_mimebundle_(include=["text/html"], exclude=["text/html"])) == []
    assert graph._repr_mimebundle_()["text/plain"] == str(graph)
    assert html_of(object()) is None


def test_what_ipython_shows() -> None:
    formatters: Any = pytest.importorskip("IPython.core.formatters", reason="no IPython: pip install ipython")
    data, _ = formatters.DisplayFormatter().format(tower())
    assert data["text/plain"] == str(tower()).rstrip("\n")
    assert data["text/html"] == tower()._repr_html_()
    assert set(data) == {"text/plain", "text/html"}


def test_looking_needs_nothing_that_is_not_installed() -> None:
    shown = "px.Program.of({'': px.Graph((), ())})._repr_html_()"
    code = f"import purefx as px, sys; {shown}; print('IPython' in sys.modules, 'rich' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"
