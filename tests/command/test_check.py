"""``python -m purefx check``: what it prints, its status, and what it says of a wrong argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import purefx as px
from purefx._command import main

PASSES = """
import torch

import purefx as px


def nothing(module):
    return None


def dead_code(module):
    module.graph.eliminate_dead_code()


def upside_down(module):
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.target = torch.ops.aten.sub.Tensor


def no_assertions(module):
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_async.msg):
        module.graph.erase_node(node)


class Pass:
    def __init__(self, kind="dead"):
        self.kind = kind

    def __call__(self, module):
        module.graph.eliminate_dead_code()


def by_hash(module):
    names = {"a", "b", "c", "d", "e", "f", "g", "h"}
    for name in names:
        with module.graph.inserting_before(next(iter(module.graph.nodes))):
            module.graph.call_function(torch.ops.aten.scalar_tensor.default, (float(ord(name)),))


def no_zeros(module):
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        if node.args[1] == 0:
            node.replace_all_uses_with(node.args[0])


seeds = [(lambda x: x + 0, (torch.ones(2, 3),))]
seed = seeds[0]


tanh = px.rule(lambda x: torch.neg(torch.neg(x))).becomes(lambda m, x: x.clone())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_passes.py").write_text(PASSES, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("some_passes", None)
    return "some_passes"


def check(*arguments: str) -> int:
    return main(["check", *arguments, "--minutes", "0", "--hash-seeds", "0"])


@pytest.mark.parametrize("name", ["dead_code", "Pass"])
def test_right_passes(module: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{module}:{name}", "--without", "regions", "--without", "training") == 0
    said = capsys.readouterr().out
    counts = {
        line.split()[0]: int(line.split()[-1]) for line in said.splitlines() if line.startswith(("  programs ", "  right "))
    }
    assert counts["programs"] == counts["right"] >= 30


def test_a_wrong_pass_is_shown_small(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{module}:upside_down") == 1
    said = capsys.readouterr().out
    assert "1. upside_down breaks the law 'meaning'" in said
    shown = said.partition("on the program")[2].partition("Found among")[0]
    assert 0 < shown.count(" = ") <= 3
    assert "wrong: meaning" in said


def test_as_json(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{module}:upside_down", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["pass"] == "upside_down" and said["changed"] > 0 and said["depends_on_hashes"] == []
    assert said["programs"] == said["right"] + sum(said["wrong"].values()) + sum(said["refused"].values())
    assert said["wrong"]["meaning"] > 0
    found = next(one for one in said["findings"] if one["law"] == "meaning")
    assert found["wrong"] and "aten.add.Tensor" in str(px.parse(found["program"]))


def test_our_own_are_asked_as_well(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    around = ("--around", f"{module}:seed")
    assert check("purefx:eliminate_dead_code", *around) == 0
    assert check(f"{module}:tanh", "--contract", "inference", *around) == 0
    assert "eliminate_dead_code" in capsys.readouterr().out


def test_what_a_pass_does_not_claim_is_not_asked(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{module}:no_assertions", "--without", "regions") == 1
    assert "no longer asserts" in capsys.readouterr().out
    assert check(f"{module}:no_assertions", "--without", "regions", "--unclaimed", "assertions") == 0


def test_what_does_nothing_was_not_checked(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{module}:nothing", "--without", "random", "--without", "regions") == 0
    assert "this says nothing" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["seed", "seeds"])
def test_around_what_it_looks_for(module: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{module}:no_zeros", "--contract", "inference", "--around", f"{module}:{name}") == 0
    said = capsys.readouterr().out
    changed = next(line for line in said.splitlines() if line.strip().startswith("changed"))
    assert int(changed.split()[1]) > 10


def test_results_that_depend_on_hashes(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    around = ["--around", f"{module}:seed"]  # which are drawn in no time
    found = main(["check", f"{module}:by_hash", "--minutes", "0", "--hash-seeds", "2", *around])
    assert found == 1
    assert "depends on the order of a set" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("passes", "write MODULE:NAME"),
        ("some_passes", "names nothing"),
        ("no_such_module:x", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("purefx:no_such_name", "purefx has no 'no_such_name'"),
        ("purefx.ir:Node", "is a class that takes arguments"),
        ("math:pi", "not a float"),
    ],
)
def test_wrong_arguments(what: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(what) == 2
    assert said in capsys.readouterr().err
