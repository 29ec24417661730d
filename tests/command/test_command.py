"""The command line says what the library says, takes no code for data, and never ends in a traceback."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

import purefx as px
from purefx._command import main
from tests.programs import Block, exported


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model as a .pt2 and as a saved program, and with its tree."""
    folder = tmp_path_factory.mktemp("command")
    ep = exported(nn.Sequential(Block(), Block()), torch.ones(1, 4))
    torch.export.save(ep, folder / "model.pt2")
    px.save(px.import_ep(ep), folder / "flat.purefx")
    px.save(px.transform(px.import_ep(ep)), folder / "tree.purefx")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return status, said.out, said.err


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "show", folder / "flat.purefx") == (0, px.load(folder / "flat.purefx").text(), "")
    status, out, _ = run(capsys, "show", folder / "tree.purefx", "--graph", "Linear")
    assert (status, out.splitlines()[0]) == (0, "graph @Linear(arg) {")
    status, _, err = run(capsys, "show", folder / "tree.purefx", "--graph", "gone\x1b[2J")
    assert status == 2
    assert "has no graph 'gone\\x1b[2J'; it has '', 'Block'" in err


def test_digest_verify_and_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat, tree = px.load(folder / "flat.purefx"), px.load(folder / "tree.purefx")
    assert run(capsys, "digest", folder / "flat.purefx") == (0, px.digest(flat) + "\n", "")
    assert run(capsys, "verify", "--infer", folder / "tree.purefx") == (0, "", "")
    assert run(capsys, "diff", folder / "flat.purefx", folder / "flat.purefx") == (0, "", "")
    assert run(capsys, "diff", folder / "flat.purefx", folder / "tree.purefx") == (
        1,
        str(px.diff(flat, tree)).rstrip("\n") + "\n",
        "",
    )


def test_a_pt2_takes_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "converted.purefx"
    status, _, err = run(capsys, "convert", folder / "model.pt2", out)
    assert status == 2
    assert "torch runs code while it loads a .pt2" in err
    assert "--trust" in err
    assert not out.exists()
    assert run(capsys, "convert", folder / "model.pt2", out, "--trust", "--transform") == (0, "", "")
    assert px.digest(px.load(out)) == px.digest(px.load(folder / "tree.purefx"))
    assert run(capsys, "convert", folder / "tree.purefx", out, "--no-weights")[0] == 0
    assert px.load(out).state["0.up.weight"].value.is_meta


def test_what_is_wrong_is_one_message(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken\x1b[2J.purefx"
    broken.write_bytes((folder / "flat.purefx").read_bytes()[:-1])
    (tmp_path / "zip.pt2").write_bytes(b"PK\x03\x04 and nothing else")
    for arguments, message in (
        (("show", tmp_path / "gone"), "No such file"),
        (("show", broken), "broken\\x1b[2J.purefx' is not a saved program, or not all of one"),
        (("show", tmp_path), "Is a directory"),
        (("show", tmp_path / "zip.pt2", "--trust"), "torch cannot load it"),
        (("digest", "--import", "no_such_module_of_mine", folder / "flat.purefx"), "No module named 'no_such_module_of_mine'"),
        (("convert", folder / "flat.purefx", tmp_path / "no" / "folder"), "there is no folder"),
    ):
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, "")
        assert message in err
        assert all(char.isprintable() or char == "\n" for char in err)


def test_a_program_that_breaks_invariants(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.purefx"
    # One letter of the text, of the same length: the file is right, the program is not.
    path.write_bytes((folder / "flat.purefx").read_bytes().replace(b"relu = aten", b"rolu = aten"))
    status, _, err = run(capsys, "verify", path)
    assert status == 1
    assert "it uses 'relu', which its graph does not define" in err


def test_no_file_that_is_read_is_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "model.purefx", tmp_path / "other.purefx"
    path.write_bytes((folder / "tree.purefx").read_bytes())
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "hard")
    (tmp_path / "down").mkdir()
    before = path.read_bytes()
    for out in (path, tmp_path / "link", tmp_path / "hard", tmp_path / "down" / ".." / "model.purefx"):
        for given in ((path, out, "--no-weights"), (out, path, "--transform"), (path, out)):
            status, said, err = run(capsys, "convert", *given)
            assert (status, said) == (2, "") and "is the file that is read; give the result another name" in err
            assert path.read_bytes() == before
    # What is elsewhere is replaced when all is done, behind a link too, and a link into nothing is followed.
    (tmp_path / "ahead").symlink_to(other)
    assert run(capsys, "convert", path, tmp_path / "ahead", "--no-weights") == (0, "", "")
    assert run(capsys, "convert", path, other) == (0, "", "")
    assert (tmp_path / "ahead").is_symlink() and px.load(other) == px.load(path)
    assert path.read_bytes() == before


def test_what_is_interrupted_leaves_all_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import safetensors

    out = tmp_path / "out.purefx"
    out.write_bytes((folder / "tree.purefx").read_bytes())
    before = out.read_bytes()
    for error, told in (
        (KeyboardInterrupt(), "interrupted; nothing was written"), (OSError(28, "No space left on device"), "No space left"),
        (MemoryError(), "MemoryError"), (RuntimeError("odd\x1b[2J"), "a defect of purefx: RuntimeError: odd\\x1b[2J"),
    ):  # fmt: skip

        def half(_specs: object, path: str, *, metadata: object, error: BaseException = error) -> None:
            Path(path).write_bytes(before[:100])
            raise error

        monkeypatch.setattr(safetensors, "serialize_file", half)
        status, said, err = run(capsys, "convert", folder / "flat.purefx", out, "--transform")
        assert (status, said) == (2, "") and told in err
        assert out.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["out.purefx"]


def test_whatever_is_given_is_one_message(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    good = folder / "flat.purefx"
    commands = [(name, file) for name in ("show", "verify", "digest") for file in files]
    commands += [("diff", good, file) for file in files] + [("convert", file, tmp_path / "out") for file in files]
    commands += [("convert", good, file) for file in ("", ".", tmp_path / "pipe", tmp_path / "no" / "out", "a\0b", "/dev/null")]
    commands += [("digest", good, "--import", name) for name in ("", ".", "no.such", "antigravity.x", "os.path.x")]
    for command in commands:
        status, said, err = run(capsys, *command)
        assert (status, said) == (2, ""), command
        assert err and all(char.isprintable() or char == "\n" for char in err), command
    assert not (tmp_path / "out").exists() and not Path("out").exists()


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["convert", "a"], ["run", "a"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "usage: python -m purefx" in capsys.readouterr().err


def test_a_reader_that_goes_away(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``... | head -n 1`` is no trouble: nothing is said, also when Python flushes at its end."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["show", str(folder / "flat.purefx")]) == 0
    assert capsys.readouterr().err == ""


def test_as_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["purefx", "digest", str(folder / "flat.purefx")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(px.__file__).parent / "__main__.py"), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == px.digest(px.load(folder / "flat.purefx")) + "\n"
