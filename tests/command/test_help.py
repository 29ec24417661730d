"""Every help has an example, every example runs, docs/command.md shows what is printed, and what is typed wrong gets advice."""

from __future__ import annotations

import json
import logging
import re
import shlex
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree

import purefx as px
from purefx._command.files import LOGS
from tests.command.conftest import Run

ROOT = Path(__file__).parents[2]

COMMANDS = ("show", "verify", "digest", "diff", "stats", "tree", "history", "convert", "report", "split")

EXAMPLE = re.compile(r"^example: python -m purefx (.*)$", re.MULTILINE)


def test_the_help_names_every_command_and_the_status(run: Run) -> None:
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    assert re.findall(r"^    (\w+) ", out, re.MULTILINE) == list(COMMANDS)
    assert "status: 0; 1 where" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_run(command: str, run: Run) -> None:
    status, out, _ = run(command, "--help")
    examples = EXAMPLE.findall(out)
    assert status == 0 and examples and "--json" in out
    expected = 1 if command == "diff" else 0  # two programs that differ
    for example in examples:
        words = shlex.split(example)
        assert words[0] == command
        assert run(*words)[0] == expected, example
        status, out, err = run(*words, "--json")
        assert status == expected and err == ""
        assert isinstance(json.loads(out), dict) and out.count("\n") == 1


def test_the_page(run: Run) -> None:
    page = (ROOT / "docs" / "command.md").read_text("utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 4
    for block in blocks:
        shown = [part.partition("\n") for part in re.split(r"^\$ python -m purefx ", block, flags=re.MULTILINE)[1:]]
        for command, _, expected in shown:
            _, out, err = run(*shlex.split(command))
            assert err + out == expected, command
    for command in COMMANDS:
        assert f"| `{command} " in page and f"| `{command}` |" in page, f"{command}: what it does, and its keys"


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("hsitory a b", "there is no command 'hsitory'; did you mean 'history'?"),
        ("tree", "example: python -m purefx tree model.purefx"),
        ("tree model.purefx --dpeth 3", "unrecognized arguments: '--dpeth' '3'; did you mean '--depth'?"),
        ("tree model.purefx --depth -1", "it is how many levels are shown"),
        ("tree model.purefx --depth x", "invalid int value: 'x'"),
        ("show model.purefx --graph Blok", "has no graph 'Blok'; it has '', 'Block', 'Linear'; did you mean 'Block'?"),
        ("show model.puref", "No such file: 'model.puref'; did you mean 'model.purefx'?"),
        ("show no/folder/model.purefx", "No such file: 'no/folder/model.purefx'"),
        ("show model.pt2", "say --trust"),
        ("show weights.pt --trust", "weights.pt: torch cannot load it"),
        ("stats model.pt2 --import torhc", "No module named 'torhc'"),
        ("history model.purefx 'Blok / relu'", "there is no node 'relu' in 'Blok'"),
        ("history model.purefx relu_1", "did you mean 'relu'?; the imported program had one: --forward"),
        ("history model.purefx Block.relu", "the node of a graph or a module is written 'layers.0 / relu'"),
        ("history model.purefx relu --graph layer.0", "there is no node 'relu' in 'layer.0'"),
        ("history model.purefx relu_9 --forward", "did you mean 'relu_2' or 'relu_1' or 'relu'?"),
        ("history model.purefx relu --forward --step 9", "step is 0 to 3"),
        ("history model.purefx relu --step 1", "--step says where to begin with --forward"),
        ("split model.purefx new.purefx", "one of the arguments --parts --at --part --tags is required"),
        ("split model.purefx new.purefx --parts 2 --at layers.*", "not allowed with argument"),
        ("split model.purefx new.purefx --parts 0", "it can be split into 1 to"),
        ("split model.purefx new.purefx --at layer.*", "no module that runs has the path 'layer.*'; did you mean 'layers.2'"),
        ("split model.purefx new.purefx --at layers.*.upp", "did you mean 'layers.2.up'"),
        ("split model.purefx new.purefx --part a", "write NAME=GLOB"),
        ("split model.purefx new.purefx --part a=layers.0 --part b=layers.0", "is asked for in two parts, 'a' and 'b'"),
        ("split model.purefx new.purefx --part a=layers.0,layers.2 --part b=layers.1", "here: --allow-reuse"),
        ("split model.purefx new.purefx --part forward=layers.0", "cannot be the name of a part"),
        ("split model.purefx new.purefx --tags a", "no node has the tag 'a'; none has any"),
        ("split flat.purefx new.purefx --parts 2", "here: --transform"),
        ("split model.purefx model.purefx --parts 2", "is the file that is read; give the result another name"),
        ("split model.purefx no/new.purefx --parts 2", "there is no folder"),
        ("split model.purefx . --parts 2", "is a folder; give the name of a file"),
        ("report model.purefx --out model.purefx", "is a file that is read; name the page with --out"),
    ],
)  # fmt: skip
def test_advice(typed: str, advice: str, run: Run) -> None:
    """The status is 2, nothing is written, and JSON has the message too."""
    words = shlex.split(typed)
    status, out, err = run(*words)
    assert (status, out) == (2, "") and advice in err
    assert not Path("new.purefx").exists()
    status, out, _ = run(*words, "--json")
    said = json.loads(out)
    assert status == 2 and advice in said["message"] and said["error"].endswith("Error")


def test_an_invalid_program_is_json_as_well(run: Run, files: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.purefx"
    path.write_bytes((files / "flat.purefx").read_bytes().replace(b"relu = aten", b"rolu = aten"))
    for command in (["verify", path], ["show", path], ["diff", path, path], ["tree", path]):
        status, out, err = run(*command, "--json")
        said = json.loads(out)
        assert status == 1 and said["findings"][0]["rule"] == "defined-values", command
        assert ("valid" in said) == (command[0] == "verify") == (err == "")


def test_a_file_in_a_folder_of_many(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is near is told also where the folder cannot be listed, or names are odd."""
    (tmp_path / "mod\x1b[2Jel.purefx").touch()
    _, _, err = run("show", tmp_path / "modxel.purefx")
    assert "did you mean 'mod\\x1b[2Jel.purefx'" in err
    monkeypatch.setattr(Path, "iterdir", lambda self: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert "No such file" in run("show", tmp_path / "modxel.purefx")[2]


def test_the_library_says_the_same(run: Run, files: Path) -> None:
    program = px.load(files / "model.purefx")
    assert json.loads(run("stats", "model.purefx", "--json")[1]) == px.stats(program).to_dict()
    assert run("stats", "model.purefx")[1] == f"{px.stats(program)}\n"
    found = px.history(program, "Block / relu")
    assert json.loads(run("history", "model.purefx", "Block / relu", "--json")[1]) == found.to_dict()
    assert (
        json.loads(run("history", "model.purefx", "relu", "--graph", "layers.1", "--json")[1])["imported"][0]["name"] == "relu_1"
    )
    forward = json.loads(run("history", "model.purefx", "layers.1 / relu_1", "--forward", "--step", "2", "--json")[1])
    assert [one["graph"] for one in forward["nodes"]] == ["Block"]
    said = json.loads(run("show", "model.purefx", "--json")[1])
    assert [one["graph"] for one in said["graphs"]] == list(program.order)
    assert [node["name"] for one in said["graphs"] for node in one["nodes"]] == [node.name for _, node in program.nodes()]


class Named:
    """What a library has its modules return, and registers when it is imported."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Names(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Named:
        return Named(x.neg())


def test_classes_that_another_library_registers(run: Run) -> None:
    """A model of transformers is read with --import; the error says so, and has torch's own reason and no traceback."""
    _pytree.register_pytree_node(
        Named, lambda one: ([one.x], None), lambda leaves, _: Named(*leaves), serialized_type_name="tests.Named"
    )
    ep = torch.export.export(Names(), (torch.ones(2),))
    torch.export.save(ep, "named.pt2")
    px.save(px.import_ep(ep), "named.purefx")
    _pytree._deregister_pytree_node(Named)
    for file, reason in (("named.pt2", "Named in pytree is not registered"), ("named.purefx", "cannot be read from text")):
        status, out, err = run("show", file, "--trust")
        assert (status, out) == (2, "") and reason in err and "here: --import MODULE, the one that registers it" in err
    assert not any(logging.getLogger(name).filters for name in LOGS)
