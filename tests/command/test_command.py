"""The command line: examples and docs/command.md run, wrong arguments get advice, files stay whole, no error is a traceback."""

from __future__ import annotations

import json
import logging
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib import metadata
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
    assert "status: 0; 1 if" in out


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
        ("tree model.purefx --depth -1", "pass how many levels to show below the root"),
        ("tree model.purefx --depth x", "invalid int value: 'x'"),
        ("show model.purefx --graph Blok", "has no graph 'Blok'; it has '', 'Block', 'Linear'; did you mean 'Block'?"),
        ("show model.puref", "No such file: 'model.puref'; did you mean 'model.purefx'?"),
        ("show no/folder/model.purefx", "No such file: 'no/folder/model.purefx'"),
        ("show model.pt2", "say --trust"),
        ("show weights.pt --trust", "weights.pt: torch cannot load it"),
        ("stats model.pt2 --import torhc", "No module named 'torhc'"),
        ("history model.purefx 'Blok / relu'", "there is no node 'relu' in 'Blok'"),
        ("history model.purefx relu_9 --forward", "did you mean 'relu_2' or 'relu_1' or 'relu'?"),
        ("history model.purefx relu --forward --step 9", "step is 0 to 3"),
        ("history model.purefx relu --step 1", "--step says where to begin with --forward"),
        ("split model.purefx new.purefx", "say where to cut: --parts N, or --at GLOB"),
        ("split model.purefx new.purefx --parts 2 --at layers.*", "not both"),
        ("history model.purefx relu_1", "one that was imported needs --forward"),
        ("split model.purefx new.purefx --parts 0", "it can be split into 1 to"),
        ("split model.purefx new.purefx --at layer.*", "no module that runs has the path 'layer.*'; did you mean 'layers.2'"),
        ("split model.purefx new.purefx --at layers.*.upp", "did you mean 'layers.2.up'"),
        ("split flat.purefx new.purefx --parts 2", "here: --transform"),
        ("split model.purefx model.purefx --parts 2", "is a file that is read; give the result another name"),
        ("split model.purefx no/new.purefx --parts 2", "there is no folder"),
        ("split model.purefx . --parts 2", "is a folder; give the name of a file"),
        ("report model.purefx --out model.purefx", "is a file that is read; give the result another name"),
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


def test_the_library_says_the_same(run: Run, files: Path) -> None:
    program = px.load(files / "model.purefx")
    assert json.loads(run("stats", "model.purefx", "--json")[1]) == px.stats(program).to_dict()
    assert run("stats", "model.purefx")[1] == f"{px.stats(program)}\n"
    found = px.history(program, "Block / relu")
    assert json.loads(run("history", "model.purefx", "Block / relu", "--json")[1]) == found.to_dict()
    assert json.loads(run("history", "model.purefx", "layers.1 / relu", "--json")[1])["imported"][0]["name"] == "relu_1"
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
    """A saved program of transformers is shown, compared and converted without transformers; a .pt2 needs --import."""
    _pytree.register_pytree_node(
        Named, lambda one: ([one.x], None), lambda leaves, _: Named(*leaves), serialized_type_name="tests.Named"
    )
    ep = torch.export.export(Names(), (torch.ones(2),))
    torch.export.save(ep, "named.pt2")
    px.save(px.import_ep(ep), "named.purefx")
    _pytree._deregister_pytree_node(Named)
    status, out, err = run("show", "named.pt2", "--trust")
    assert (status, out) == (2, "") and "Named in pytree is not registered" in err and "--import MODULE" in err
    assert not any(logging.getLogger(name).filters for name in LOGS)
    assert 'test_command.Named" with None' in run("show", "named.purefx")[1]
    assert run("convert", "named.purefx", "again.purefx") == (0, "", "")
    assert Path("again.purefx").read_bytes() == Path("named.purefx").read_bytes()


def test_verify_and_digest(run: Run, files: Path) -> None:
    flat, tree = px.load(files / "flat.purefx"), px.load(files / "model.purefx")
    assert run("digest", "flat.purefx") == (0, px.digest(flat) + "\n", "")
    assert run("verify", "model.purefx")[1].startswith("valid: 3 graphs, 10 nodes, 12 names of state; --infer")
    assert run("verify", "--infer", "model.purefx")[1].endswith("every value inferred\n")
    assert run("diff", "flat.purefx", "flat.purefx") == (0, "", "")
    assert run("diff", "flat.purefx", "model.purefx") == (1, str(px.diff(flat, tree)).rstrip("\n") + "\n", "")
    assert run("show", "flat.purefx") == (0, flat.text(), "")
    assert run("show", "model.purefx", "--graph", "layers.1.up") == run("show", "model.purefx", "--graph", "Linear")


def test_a_pt2_takes_trust(run: Run, files: Path) -> None:
    status, _, err = run("convert", "model.pt2", "out.purefx")
    assert status == 2 and "torch runs code while it loads a .pt2" in err and not Path("out.purefx").exists()
    assert run("convert", "model.pt2", "out.purefx", "--trust", "--transform") == (0, "", "")
    assert px.digest(px.load("out.purefx")) == px.digest(px.load(files / "model.purefx"))
    assert run("convert", "model.purefx", "out.purefx", "--no-weights")[0] == 0
    assert px.load("out.purefx").state["layers.0.up.weight"].value.is_meta


def test_no_file_that_is_read_is_written(run: Run, files: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "model.purefx", tmp_path / "other.purefx"
    path.write_bytes((files / "model.purefx").read_bytes())
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "hard")
    (tmp_path / "down").mkdir()
    before = path.read_bytes()
    for out in (path, tmp_path / "link", tmp_path / "hard", tmp_path / "down" / ".." / "model.purefx"):
        for given in ((path, out, "--no-weights"), (out, path, "--transform"), (path, out)):
            status, said, err = run("convert", *given)
            assert (status, said) == (2, "") and "is a file that is read; give the result another name" in err
            assert path.read_bytes() == before
    # What is elsewhere is replaced when all is done, behind a link too, and a link into nothing is followed.
    (tmp_path / "ahead").symlink_to(other)
    assert run("convert", path, tmp_path / "ahead", "--no-weights") == (0, "", "")
    assert run("convert", path, other) == (0, "", "")
    assert (tmp_path / "ahead").is_symlink() and px.load(other) == px.load(path)
    assert path.read_bytes() == before


def test_what_is_interrupted_leaves_all_as_it_was(run: Run, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors

    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "out.purefx"
    out.write_bytes((files / "model.purefx").read_bytes())
    before = out.read_bytes()
    for error, told in (
        (KeyboardInterrupt(), "interrupted; nothing was written"), (OSError(28, "No space left on device"), "No space left"),
        (MemoryError(), "MemoryError"), (RuntimeError("odd\x1b[2J"), "a defect of purefx: RuntimeError: odd\\x1b[2J"),
    ):  # fmt: skip

        def half(_specs: object, path: str, *, metadata: object, error: BaseException = error) -> None:
            Path(path).write_bytes(before[:100])
            raise error

        monkeypatch.setattr(safetensors, "serialize_file", half)
        status, said, err = run("convert", "flat.purefx", out, "--transform")
        assert (status, said) == (2, "") and told in err
        assert out.read_bytes() == before and [path.name for path in folder.iterdir()] == ["out.purefx"]


def test_whatever_is_given_is_one_message(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    files = [
        "",
        ".",
        "/dev/null",
        tmp_path / "pipe",
        tmp_path / "empty",
        tmp_path / "loop",
        tmp_path / "\udcff",
        "a\0b",
        __file__,
    ]
    good = "flat.purefx"
    commands = [(name, file) for name in ("show", "verify", "digest") for file in files]
    commands += [("diff", good, file) for file in files] + [("convert", file, tmp_path / "out") for file in files]
    commands += [("convert", good, file) for file in ("", ".", tmp_path / "pipe", tmp_path / "no" / "out", "a\0b", "/dev/null")]
    commands += [("digest", good, "--import", name) for name in ("", ".", "no.such", "antigravity.x", "os.path.x")]
    for command in commands:
        status, said, err = run(*command)
        assert (status, said) == (2, ""), command
        assert err and all(char.isprintable() or char == "\n" for char in err), command
    assert not (tmp_path / "out").exists() and not Path("out").exists()


def test_it_answers_before_torch_is_imported() -> None:
    """``--help``, ``--version`` and a typed mistake; the entry point and its status."""
    for words, status in (("--help", 0), ("--version", 0), ("tree --help", 0), ("tre x", 2), ("", 2)):
        code = f"import runpy, sys; sys.argv = ['purefx', *{words.split()!r}]; runpy.run_module('purefx', run_name='__main__')"
        code = f"try:\n {code}\nexcept SystemExit as ended:\n print([ended.code, 'torch' in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"[{status}, False]", done.stderr
    assert px.__version__ == metadata.version("purefx")


def test_as_a_module(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["purefx", "digest", "flat.purefx"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(px.__file__).parent / "__main__.py"), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == px.digest(px.load(files / "flat.purefx")) + "\n"
