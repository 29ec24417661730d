"""The command line: examples and docs/command.md run, wrong arguments get advice, files stay whole, no error is a traceback."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest

import purefx as px
from purefx.__main__ import COMMANDS
from tests.command.conftest import Run

ROOT = Path(__file__).parents[2]


def test_help_names_every_command_and_examples_run(run: Run) -> None:
    status, out, err = run("--help")
    assert (status, err) == (0, "") and "status: 0; 1 if" in out
    assert re.findall(r"^    (\w+) ", out, re.MULTILINE) == list(COMMANDS)
    for command, (_, example, *_rest) in COMMANDS.items():
        assert example in " ".join(run(command, "--help")[1].split())
        words = shlex.split(example)
        assert words[0] == command
        assert run(*words)[0] == (1 if command == "diff" else 0), (
            example
        )  # two programs that differ


def test_the_page(run: Run) -> None:
    page = (ROOT / "docs" / "command.md").read_text("utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    for block in blocks:
        shown = [
            part.partition("\n")
            for part in re.split(r"^\$ python -m purefx ", block, flags=re.MULTILINE)[1:]
        ]
        for command, _, expected in shown:
            _, out, err = run(*shlex.split(command))
            assert err + out == expected, command
    assert [command for command in COMMANDS if f"| `{command} " not in page] == []


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("hsitory a b", "invalid choice: 'hsitory'"),
        ("tree", "the following arguments are required: FILE"),
        ("tree model.purefx --depth -1", "pass the number of levels below the root"),
        (
            "show model.purefx --graph Blok",
            "has no graph 'Blok'; it has '', 'Block', 'Linear'; did you mean 'Block'?",
        ),
        ("show model.puref", "no such file; did you mean 'model.purefx'?: 'model.puref'"),
        ("show model.pt2", "pass --trust"),
        ("show weights.pt --trust", "weights.pt: torch cannot load it"),
        ("stats model.pt2 --import torhc", "No module named 'torhc'"),
        ("history model.purefx 'Blok / relu'", "no node 'relu' in 'Blok'"),
        ("history model.purefx relu_9 --forward", "did you mean 'relu_2' or 'relu_1' or 'relu'?"),
        ("split model.purefx new.purefx", "pass either --parts N or --at GLOB"),
        ("split model.purefx new.purefx --parts 2 --at layers.*", "not both"),
        ("history model.purefx relu_1", "pass --forward for an imported node"),
        ("split model.purefx new.purefx --parts 0", "can be split into 1 to"),
        (
            "split model.purefx new.purefx --at layer.*",
            "no called module matches 'layer.*'; did you mean 'layers.2'",
        ),
        ("split flat.purefx new.purefx --parts 2", "here: --transform"),
        (
            "split model.purefx model.purefx --parts 2",
            "is also an input; choose another name for the result",
        ),
        ("split model.purefx no/new.purefx --parts 2", "does not exist"),
        ("split model.purefx . --parts 2", "is a folder; pass a file name"),
        (
            "report model.purefx --out model.purefx",
            "is also an input; choose another name for the result",
        ),
        ("report model.purefx --before none.purefx", "no such file"),
    ],
)
def test_advice(typed: str, advice: str, run: Run) -> None:
    """The status is 2, and nothing is written."""
    status, out, err = run(*shlex.split(typed))
    assert (status, out) == (2, "") and advice in err
    assert not Path("new.purefx").exists()


def test_answers_are_what_the_library_prints(run: Run, files: Path, tmp_path: Path) -> None:
    flat, tree = px.load(files / "flat.purefx"), px.load(files / "model.purefx")
    assert run("stats", "model.purefx")[1] == f"{px.stats(tree)}\n"
    assert (
        run("history", "model.purefx", "layers.1 / relu")[1]
        == f"{px.history(tree, 'layers.1 / relu')}\n"
    )
    assert run("verify", "model.purefx")[1].startswith(
        "valid: 3 graphs, 10 nodes, 12 names of state; --infer"
    )
    assert run("verify", "--infer", "model.purefx")[1].endswith("every value inferred\n")
    assert run("diff", "flat.purefx", "flat.purefx") == (0, "", "")
    assert run("diff", "flat.purefx", "model.purefx") == (
        1,
        str(px.diff(flat, tree)).rstrip("\n") + "\n",
        "",
    )
    assert run("show", "flat.purefx") == (0, flat.text(), "")
    assert run("show", "model.purefx", "--graph", "layers.1.up") == run(
        "show", "model.purefx", "--graph", "Linear"
    )
    path = tmp_path / "wrong.purefx"
    path.write_bytes((files / "flat.purefx").read_bytes().replace(b"relu = aten", b"rolu = aten"))
    for command in (["verify", path], ["show", path], ["diff", path, path], ["tree", path]):
        status, _, err = run(*command)
        assert status == 1 and "defined-values" in err, command


def test_convert_takes_trust_and_writes_no_file_that_is_read(
    run: Run, files: Path, tmp_path: Path
) -> None:
    status, _, err = run("convert", "model.pt2", "out.purefx")
    assert (
        status == 2
        and "torch runs code from a .pt2 file" in err
        and not Path("out.purefx").exists()
    )
    assert run("convert", "model.pt2", "out.purefx", "--trust", "--transform") == (0, "", "")
    assert px.digest(px.load("out.purefx")) == px.digest(px.load(files / "model.purefx"))
    assert run("convert", "model.purefx", "out.purefx", "--no-weights")[0] == 0
    assert px.load("out.purefx").state["layers.0.up.weight"].value.is_meta
    path = tmp_path / "model.purefx"
    path.write_bytes((files / "model.purefx").read_bytes())
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "hard")
    before = path.read_bytes()
    for out in (path, tmp_path / "link", tmp_path / "hard"):
        status, said, err = run("convert", path, out)
        assert (status, said) == (
            2,
            "",
        ) and "is also an input; choose another name for the result" in err
        assert path.read_bytes() == before


def test_every_error_is_a_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is there stays; ``tests/store`` has what happens to it."""
    for error, told in (
        (KeyboardInterrupt(), "interrupted; nothing was written"), (OSError(28, "No space left on device"), "No space left"),
        (RuntimeError("odd\x1b[2J"), "a bug in purefx, please report it: RuntimeError: odd\\x1b[2J"),
    ):  # fmt: skip
        monkeypatch.setattr("safetensors.serialize_file", Mock(side_effect=error))
        status, said, err = run("convert", "flat.purefx", "model.purefx", "--transform")
        assert (status, said) == (2, "") and told in err


def test_whatever_is_given_is_one_message(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    files = [
        "",
        ".",
        "/dev/null",
        tmp_path / "pipe",
        tmp_path / "empty",
        tmp_path / "\udcff",
        "a\0b",
        __file__,
    ]
    good = "flat.purefx"
    commands = [("verify", file) for file in files] + [("diff", good, file) for file in files]
    commands += [
        ("convert", good, file)
        for file in ("", ".", tmp_path / "pipe", tmp_path / "no" / "out", "a\0b", "/dev/null")
    ]
    commands += [("show", good, "--import", name) for name in ("", ".", "no.such")]
    for command in commands:
        status, said, err = run(*command)
        assert (status, said) == (2, ""), command
        assert err and all(char.isprintable() or char == "\n" for char in err), command


def test_it_answers_before_torch_is_imported() -> None:
    """``--help``, ``--version`` and a typed mistake; the entry point and its status."""
    for words, status in (("--version", 0), ("tree --help", 0), ("tre x", 2)):
        code = f"import runpy, sys; sys.argv = ['purefx', *{words.split()!r}]; runpy.run_module('purefx', run_name='__main__')"
        code = f"try:\n {code}\nexcept SystemExit as ended:\n print([ended.code, 'torch' in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == f"[{status}, False]", done.stderr
    assert px.__version__ == metadata.version("purefx")
