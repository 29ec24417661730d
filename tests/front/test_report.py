"""``report`` without a browser: what the data say, that names stay text, how large a page is, and that it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.names import escaped
from purefx.report import page
from purefx.report.gather import gather
from tests.front.reports import PAYLOADS, data_of, hostile, policy_of, soften
from tests.laws.corruptions import CORRUPTORS
from tests.models import Shared, Tower


def made(layers: int = 3) -> px.Program:
    """Return a program with four steps behind it, one of which is a rule."""
    return soften(px.transform(px.capture(Tower(layers), (torch.ones(2, 4),))))


@pytest.fixture(scope="module")
def program() -> px.Program:
    return made()


class Texts:
    """Reads rows of the data."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def __call__(self, number: int) -> str | None:
        return None if number < 0 else self.data["strings"][number]

    def rows(self, version: int) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the nodes of a version, by graph and name."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for name, graph in self.data["versions"][version]["graphs"]:
            inputs, nodes, _, _ = self.data["graphs"][graph]
            for row in (self.data["nodes"][number] for number in (*inputs, *nodes)):
                key = (str(self(name)), str(self(row[0])))
                found[key] = {"kind": row[1], "op": self(row[2]), "line": self(row[3]), "value": self(row[4]), "bytes": row[5],
                              "source": self(row[6]), "effects": self(row[7])}  # fmt: skip
        return found


def test_every_step_is_there(program: px.Program) -> None:
    data = gather(program)
    read = Texts(data)
    assert [read(row["step"]) for row in data["versions"]] == ["imported", *map(str, program.trail)]
    for number, each in enumerate([*[step.before for step in program.trail], program]):
        rows = read.rows(number)
        nodes = {(name, node.name): node for name, node in each.nodes()}
        assert set(nodes) == {key for key, row in rows.items() if row["kind"] != 3}
        assert all(rows[key]["line"] == str(node) for key, node in nodes.items())
        found = px.stats(each)
        assert data["versions"][number]["totals"] == [
            sum(found.operators.values()), found.parameters, found.bytes, found.flops,
        ]  # fmt: skip


def test_what_a_node_says(program: px.Program) -> None:
    rows = Texts(gather(program)).rows(-1)
    value = next(row for row in rows.values() if row["op"] == "aten.tanh.default")
    assert (value["value"], value["bytes"], value["effects"]) == ("f32[2, 8] cpu", 64, None)
    assert "tests/models.py" in next(
        row["source"] for row in rows.values() if row["op"] == "aten.linear.default"
    )
    flat = px.capture(Shared().eval(), (torch.ones(3, 4),))
    assert any(
        "writes" in (row["effects"] or "")
        for row in Texts(gather(px.transform(flat))).rows(-1).values()
    )


# -- one file -------------------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_it_needs_nothing_else(program: px.Program) -> None:
    text = page(gather(program))
    for tag, attributes in Tags(text).found:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "href", "action", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert "sourceMappingURL" not in text
    assert set(re.findall(r"https?://[^\s\"'),;]+", text)) == {
        "https://github.com/dagrejs/dagre",
        "http://www.w3.org/2000/svg",
    }
    assert "Permission is hereby granted" in text
    assert text.isascii()
    for word in (
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "eval(",
        "new Function",
        "innerHTML",
        "document.write",
        "localStorage",
    ):
        assert word not in text


def test_policy_allows_what_is_there_and_nothing_else(program: px.Program) -> None:
    text = page(gather(program))
    policy = policy_of(text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in (*scripts, style)
    ]
    assert policy == (
        f"default-src 'none'; script-src {hashes[0]} {hashes[1]}; style-src {hashes[2]}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_names_stay_text(payload: str) -> None:
    program = hostile(payload)
    assert px.verify(program) == ()
    text = page(gather(program))
    # The page of any other name has the same tags.
    assert Tags(text).found[1:] == Tags(page(gather(hostile("plain")))).found[1:]
    assert text.count("</script") == 3
    assert "<!--" not in text.replace("<!-- made by purefx -->", "", 1)
    assert text.isascii()
    assert set(text) - set(map(chr, range(32, 127))) == {"\n", "\x01"}, (
        "the library separates keys with the second"
    )
    data = data_of(text)
    assert all(each.isprintable() for each in data["strings"]), "a text may be shown anywhere"
    said = escaped(payload).replace("\n", "\\n")
    doors = {key for key, each in texts(data) if said in each or said.replace(".", "") in each}
    assert doors >= {"name", "op", "line", "step", "graph", "module", "class"}
    assert "source" in doors or len(f"{payload}.".splitlines()) > 1, "a trace has lines"


def texts(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the texts of a page by what they are."""
    read = Texts(data)
    found = [("name", row[0]) for row in data["nodes"]] + [("op", row[2]) for row in data["nodes"]]
    found += [("line", row[3]) for row in data["nodes"]] + [
        ("source", row[6]) for row in data["nodes"]
    ]
    found += [("step", row["step"]) for row in data["versions"]]
    found += [("graph", name) for row in data["versions"] for name, _ in row["graphs"]]
    modules = [module for row in data["versions"] for module in row["modules"]]
    found += [("module", row[0]) for row in modules] + [("class", row[1]) for row in modules]
    return [(key, str(read(number))) for key, number in found]


# -- what is wrong --------------------------------------------------------------------------------------------------------------


def test_findings_are_at_their_place() -> None:
    program = px.transform(px.capture(Tower(1), (torch.ones(2, 4),)))
    name = next(name for name, node in program.nodes() if node.name == "relu")
    graph = program.graphs[name]
    broken = px.Graph(
        graph.inputs, tuple([node for node in graph.nodes if node.name != "relu"]), graph.output
    )
    data = gather(program.with_graphs({name: broken}))
    read = Texts(data)
    (found,) = data["versions"][-1]["findings"]
    assert (read(found["rule"]), read(found["graph"])) == ("defined-values", name)
    assert (name, str(read(found["node"]))) in read.rows(-1)
    assert data["versions"][-1]["totals"] is None


@pytest.fixture(scope="module")
def stages() -> list[px.Program]:
    """Return programs at each stage."""
    found: list[px.Program] = []
    for module in (Shared().eval(), Tower(2)):
        program = px.transform(px.capture(module, (torch.ones(3, 4),)))
        found += [*[step.before for step in program.trail], program]
    return found


@pytest.mark.parametrize("corruptor", CORRUPTORS, ids=str)
def test_an_invalid_program_has_a_page(corruptor: Any, stages: list[px.Program]) -> None:
    program = next(
        (broken for each in stages if (broken := corruptor.apply(each, 0)) is not None), stages[0]
    )
    assert bool(data_of(page(gather(program)))["versions"][-1]["findings"]) == bool(
        px.verify(program)
    )


# -- the function and the command -----------------------------------------------------------------------------------------------


def test_report_writes_a_page(
    program: px.Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = px.report(program, tmp_path / "a.html")
    assert found == tmp_path / "a.html"
    assert found.read_text("ascii") == page(gather(program))
    assert px.report(program, str(found)).read_bytes() == found.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert capsys.readouterr() == ("", "")


def test_what_is_no_page_is_not_replaced(program: px.Program, tmp_path: Path) -> None:
    other = tmp_path / "model.html"
    other.write_text("<!DOCTYPE html>\n<p>mine")
    with pytest.raises(
        FileExistsError, match="exists and is not a page of report; pass another path"
    ):
        px.report(program, other)
    assert other.read_text() == "<!DOCTYPE html>\n<p>mine"
    with pytest.raises(IsADirectoryError):
        px.report(program, tmp_path)
    with pytest.raises(FileNotFoundError):
        px.report(program, tmp_path / "none" / "a.html")
