"""``tree`` and ``split``: rows add up to what ``stats`` counts, equal bodies are one row, and parts are those of the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from tests.command.conftest import Run
from tests.models import Aliased, Block, Branches, Tower, exported, parent


class Encoders(parent(text=lambda: Tower(2), image=lambda: Tower(2))):
    """Equal towers in two places, a pair of equal modules with other names, and a module that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = nn.ModuleDict({"tower": Tower(2), "unused": nn.Linear(2, 2)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.audio["tower"](self.image(self.text(x)))


class Flagged(parent(block=Block)):
    """Runs one module in two ways."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.block(x)).relu()


def programs() -> Iterator[px.Program]:
    for model in (Encoders(), Branches(), Aliased(), Flagged()):
        flat = px.import_ep(exported(model, torch.ones(2, 2 if isinstance(model, Aliased) else 4)))
        tree = px.transform(flat)
        yield from (
            flat,
            tree,
            px.inline(tree),
            px.split_balanced(tree, 2),
            px.deduplicate(px.split_balanced(tree, 3)),
        )


def test_rows_add_up() -> None:
    """The root has all, a row what is in its modules and below; each module is in one row, or below one that is like it."""
    for program in programs():
        found = px.stats(program)
        own = {module.path: module for module in found.modules}
        rows = px.tree(program).rows
        assert rows[0].path == "" and rows[0].operators == sum(found.operators.values())
        assert (rows[0].parameters, rows[0].bytes, rows[0].flops) == (
            found.parameters,
            found.bytes,
            found.flops,
        )
        told = [path for row in rows for path in row.paths]
        left = [
            path
            for row in rows
            if row.like is not None
            for path in own
            for each in row.paths
            if path.startswith(f"{each}.")
        ]
        assert len(set(told)) == len(told) and {*told, *left} >= set(own)
        for number, row in enumerate(rows):
            inner = [one for one in rows[number + 1 :] if one.depth == row.depth + 1]
            inner = [one for one in inner if one.path.startswith(f"{row.path}.") or not row.path]
            mine = sum(own[path].operators for path in row.paths if path in own)
            assert row.like is not None or row.operators == mine + sum(
                one.operators for one in inner
            )
        assert [row for row in rows if row.depth < 2] == list(px.tree(program, depth=1).rows)


def test_equal_bodies_are_one_row() -> None:
    def said(program: px.Program) -> list[tuple[str, int, str | None]]:
        return [(row.label, len(row.paths), row.like) for row in px.tree(program).rows]

    tree = px.transform(px.import_ep(exported(Tower(12), torch.ones(2, 4))))
    assert said(tree) == [
        ("(root)", 1, None),
        ("layers", 1, None),
        ("0-11", 12, None),
        ("up", 12, None),
        ("down", 12, None),
    ]
    assert len(px.tree(px.inline(tree)).rows) == 2 + 3 * 12
    tree = px.transform(px.import_ep(exported(Encoders(), torch.ones(2, 4))))
    assert said(tree)[:3] == [("(root)", 1, None), ("text, image", 2, None), ("layers", 2, None)]
    assert ("tower", 1, "text") in said(tree) and said(tree)[-1] == ("unused", 1, None)


class Scale(nn.Module):
    """Multiplies by a buffer, or by a parameter."""

    def __init__(self, w: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("w", w) if not isinstance(
            w, nn.Parameter
        ) else self.register_parameter("w", w)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w


def test_what_differs_in_anything_has_its_own_row() -> None:
    """In its body, its class, its kind of state, or in what is in it and never runs."""
    buffer, parameters, odd = torch.ones(2), [nn.Parameter(torch.ones(2)) for _ in "ab"], nn.ReLU()
    odd.unused = nn.Linear(2, 2)
    modules = [nn.ReLU(), nn.Tanh(), odd, nn.ReLU(), Scale(buffer), *map(Scale, parameters)]
    rows = px.tree(
        px.transform(px.import_ep(exported(nn.Sequential(*modules), torch.ones(2))))
    ).rows
    assert [row.paths for row in rows if row.depth == 1] == [
        ("0", "3"),
        ("1",),
        ("2",),
        ("4",),
        ("5", "6"),
    ]


def test_a_flat_program_is_told_how_to_be_a_tree(run: Run) -> None:
    _, out, _ = run("tree", "flat.purefx")
    assert "one row for modules with equal bodies" in out
    assert run("tree", "flat.purefx", "--transform")[1] == run("tree", "model.purefx")[1]
    assert run("tree", "model.purefx", "--depth", "0")[1].count("\n") == 2


def test_what_somebody_made(run: Run, tmp_path: Path) -> None:
    """Bodies that call others twice each are refused in no time; a path of any depth is a row."""
    neg = px.Node("y", px.Op("aten.neg.default", target=torch.ops.aten.neg.default), (px.Ref("x"),))
    graphs = {"g0": px.Graph((px.Input("x"),), (neg,), px.Ref("y"))}
    for number in range(1, 60):
        calls = [
            px.Node(
                f"y{one}",
                px.Call(px.Frame("m", one), f"g{number - 1}"),
                (px.Ref(f"y{one - 1}" if one else "x"),),
            )
            for one in range(2)
        ]
        graphs[f"g{number}"] = px.Graph((px.Input("x"),), tuple(calls), px.Ref("y1"))
    graphs[""] = evolve(graphs.pop("g59"), output=(px.Ref("y1"),))
    signature = px.ir.Signature((px.ir.UserInput(px.ir.ObjectType()),), (px.ir.UserOutput(),))
    px.save(px.Program.of(graphs, signature=signature), tmp_path / "twice.purefx")
    for command in (["tree"], ["stats"], ["history"], ["split", "--parts", "2"]):
        words = {"history": ["g0 / y"], "split": [tmp_path / "out.purefx"]}.get(command[0], [])
        status, out, err = run(command[0], tmp_path / "twice.purefx", *words, *command[1:])
        assert (status, out) == (2, "") and "called more than 100,000 times" in err
    assert run("report", tmp_path / "twice.purefx")[0] == 0
    deep = ".".join(["m"] * 3000)
    graph = px.Graph((px.Input("x"),), (evolve(neg, stack=(px.Frame(deep),)),), (px.Ref("y"),))
    px.save(px.Program.of({"": graph}, signature=signature), tmp_path / "deep.purefx")
    status, out, _ = run("tree", tmp_path / "deep.purefx")
    assert status == 0 and out.count("\n") == 3004 and max(map(len, out.splitlines())) < 200


@pytest.mark.parametrize(
    ("way", "names"),
    [
        (["--parts", "2"], ["stage0", "stage1"]),
        (["--at", "layers.*"], ["stage0", "stage1", "stage2"]),
        (["--at", "layers.2", "--at", "layers.0"], ["stage0", "stage1"]),
    ],
)
def test_split(way: list[str], names: list[str], run: Run, files: Path) -> None:
    """The parts are in the file, the program is the same joined, and runs."""
    status, out, err = run("split", "model.purefx", "out.purefx", *way)
    assert (status, err) == (0, "") and out.split()[:5] == [
        "part",
        "body",
        "operators",
        "parameters",
        "bytes",
    ]
    split, program = px.load("out.purefx"), px.load(files / "model.purefx")
    assert [part.name for part in px.parts(split)] == names
    assert px.alpha_equal(px.deduplicate(px.join(split)), program)
    x = torch.randn(2, 4)
    assert torch.equal(px.lower(split)(x), px.lower(program)(x))
    assert px.deduplicate(split) == split, "equal bodies were one, and are one in each part"
