"""Files: damaged, crafted, of a later version, no files at all; written whole or not at all."""

from __future__ import annotations

import copy
import os
import random
import re
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import purefx as px
from purefx.ir.store import container
from tests.models import Aliased, parent
from tests.security.mutating import Parts, mutated_bytes, mutated_json, mutated_text, with_header

HUGE = 10**12


class Mixed(parent(aliased=Aliased, linear=lambda: nn.Linear(2, 2))):
    """State with ties, views and bytes; dynamic sizes; branches."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.linear(self.aliased(x))
        return {
            "y": y.reshape(x.shape[0] * 2),
            "z": torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)),
        }


@cache
def saved(stage: int) -> bytes:
    """Return the bytes of a saved program, flat or as a tree."""
    size = torch.export.Dim("n", min=2, max=64)
    program = px.import_ep(
        torch.export.export(Mixed(), (torch.ones(4, 2),), dynamic_shapes=({0: size},))
    )
    path = Path(os.environ["PYTEST_TMP"]) / "whole.purefx"
    px.save(px.transform(program) if stage else program, path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))


def load(raw: bytes, folder: Path) -> px.Program:
    (folder / "crafted.purefx").write_bytes(raw)
    return px.load(folder / "crafted.purefx")


def tried(raw: bytes, folder: Path) -> px.Program | px.PurefxError:
    try:
        return load(raw, folder)
    except px.PurefxError as error:
        return error


def outcome(raw: bytes, folder: Path) -> str:
    """Load a file: return the name of the error, or "" for a program, which must be right."""
    program = tried(raw, folder)
    if isinstance(program, px.PurefxError):
        assert all(char.isprintable() or char == "\n" for char in str(program))
        return type(program).__name__
    assert px.verify(program) == ()
    assert (
        px.parse(program.text(), state={name: program.state[name].value for name in program.state})
        == program
    )
    px.digest(program)
    try:
        px.lower(px.transform(program))
    except px.PurefxError:
        pass
    return ""


def edited(change: Callable[[dict[str, Any]], Any], stage: int = 0) -> bytes:
    parts = Parts(saved(stage), container.STRUCTURE)
    change(parts.structure)
    return parts.whole()


def text_of(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(structure: dict[str, Any]) -> None:
        assert old in structure["program"]
        structure["program"] = structure["program"].replace(old, new, 1)

    return change


def put(structure: dict[str, Any], word: str, inside: str) -> None:
    """Replace the contents of the first value in the meta with a word."""
    values = structure["meta"]["values"]
    at = next(number for number, value in enumerate(values) if value.startswith(f"{word}("))
    values[at] = f"{word}({inside})"


def name_of(structure: dict[str, Any]) -> str:
    return next(iter(structure["meta"]["symbols"]))


def symbol(structure: dict[str, Any]) -> list[Any]:
    return next(iter(structure["meta"]["symbols"].values()))


CRAFTED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no key": (lambda s: s.pop("meta"), "its structure is malformed"),
    "a key more": (lambda s: s.update(run="os.system"), "its structure is malformed"),
    "no text": (lambda s: s.update(program=["program {}"]), r"structure\['program'\] is malformed"),
    "another text": (
        lambda s: s.update(program="import os"),
        "line 1, column 1: expected 'program', found 'import'",
    ),
    "operators": (lambda s: s.update(operators={"a": 1}), r"structure\['operators'\] is malformed"),
    "storages": (
        lambda s: s.update(storages=[["a"]]),
        r"structure\['storages'\]\[0\] is malformed",
    ),
    "a storage twice": (lambda s: s["storages"].append(s["storages"][0]), "twice"),
    "no such tensor": (lambda s: s["storages"][0].__setitem__(1, "gone"), "has no tensor 'gone'"),
    "no such slot": (
        lambda s: s["storages"][0].__setitem__(0, "gone"),
        "'gone', which is not a slot",
    ),
    "a slot of another storage": (
        lambda s: s["storages"][0].__setitem__(0, s["storages"][1][0]),
        "and in the file|one storage twice",
    ),
    "a begin of no slot": (lambda s: s["begins"].update(gone=8), "is malformed: 'gone'"),
    "a begin outside": (
        lambda s: s["begins"].update({s["storages"][0][0]: 2**40}),
        "reaches beyond|not a possible tensor",
    ),
    "a begin before": (
        lambda s: s["begins"].update({s["storages"][0][0]: -64}),
        "reaches beyond|not a possible tensor",
    ),
    "another slot's tensor": (
        lambda s: s["storages"][0].__setitem__(1, container.STRUCTURE),
        "is torch.float32 .*uint8",
    ),
    "contents without contents": (
        lambda s: s["storages"][0].__setitem__(3, "meta"),
        "on the meta device have no contents",
    ),
    "a tensor as bytes": (lambda s: s["storages"][0].__setitem__(2, False), "is not plain bytes"),
    "a view outside": (text_of("offset 1", "offset 3"), "reaches beyond its memory in the file"),
    "a huge tensor": (
        text_of("parameter linear.weight: f32[2, 2]", f"parameter linear.weight: f32[2, {HUGE}]"),
        r"1000000000000\)",
    ),
    "a huge view": (text_of("offset 1", f"strides [{HUGE}] offset 1"), "reaches beyond"),
    "rows": (lambda s: s["meta"]["graphs"][""][1].pop(), "not have one row for each"),
    "a row": (
        lambda s: s["meta"]["graphs"][""][1].__setitem__(0, [0, -1]),
        "names missing keys or values",
    ),
    "other graphs": (lambda s: s["meta"]["graphs"].pop(""), "other graphs than the program"),
    "a value of no kind": (
        lambda s: s["meta"]["values"].append({"pickle": "x"}),
        r"\['values'\]\[\d+\] is malformed",
    ),
    "a word of no kind": (
        lambda s: s["meta"]["values"].append('pickle("x")'),
        "more than one value: 'pickle",
    ),
    "two values": (lambda s: s["meta"]["values"].append("1, 2"), "more than one value: '1, 2'"),
    "an origin before the first": (lambda s: put(s, "origin", "-1"), "is malformed: -1"),
    "another source": (
        lambda s: s["meta"]["values"].append('from(("a", "b", "c", 1, ()))'),
        "a source of a node .* malformed",
    ),
    "a huge fake": (
        lambda s: put(s, "fake", f"f32[{HUGE * HUGE}] strides [1] on cpu"),
        "not an expression",
    ),
    "deep": (
        lambda s: s["meta"]["values"].append("[" * 100 + "]" * 100),
        "nested more than 64 levels deep",
    ),
    "no expression": (
        lambda s: put(s, "number", "__import__('os')"),
        "not an expression of a few symbols",
    ),
    "an unknown symbol": (
        lambda s: put(s, "number", "evil * 2"),
        "not an expression of a few symbols",
    ),
    "a power": (
        lambda s: put(s, "number", f"({name_of(s)} ** 63) ** 63"),
        "not an expression of a few symbols",
    ),
    "a tower": (
        lambda s: put(s, "number", f"2 ** {name_of(s)}"),
        "not an expression of a few symbols",
    ),
    "a sum of very many": (
        lambda s: put(s, "number", " + ".join([name_of(s)] * 65)),
        "not an expression of a few symbols",
    ),
    "no symbol": (
        lambda s: s["meta"]["symbols"].update({"x=1": [1, 2, 3]}),
        "symbol 'x=1' has an invalid name",
    ),
    "a symbol's number": (lambda s: symbol(s).__setitem__(0, "4"), "is malformed"),
    "not finite": (
        lambda s: symbol(s).__setitem__(1, float("inf")),
        "invalid number or bounds|invalid name or bounds",
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_structure(name: str, tmp_path: Path) -> None:
    change, message = CRAFTED[name]
    with pytest.raises(px.errors.StoreError, match=message):
        load(edited(change), tmp_path)


def test_an_object_with_a_key_twice_is_no_structure(tmp_path: Path) -> None:
    """Readers of JSON differ in which of the two counts."""
    with pytest.raises(px.errors.StoreError, match="not JSON"):
        load(saved(0).replace(b'"weights":', b'"program":'), tmp_path)


def test_a_program_that_is_none_is_told_as_one(tmp_path: Path) -> None:
    """What is well formed and wrong is refused as anywhere: other effects, values that are not there, hostile names."""

    def drawing(structure: dict[str, Any]) -> None:
        before, _, after = structure["program"].partition("aten.linear.default")
        call, _, rest = after.partition(")")
        structure["program"] = f"{before}aten.linear.default{call}) ! random{rest}"

    with pytest.raises(
        px.errors.InvalidProgram,
        match=r"effects of aten\.linear\.default are not those of its target: random",
    ):
        load(edited(drawing), tmp_path)
    with pytest.raises(px.errors.InvalidProgram, match="which its graph does not define"):
        load(edited(text_of("aten.linear.default(", "aten.linear.default(gone, ")), tmp_path)
    with pytest.raises(px.errors.InvalidProgram, match=r"'x=f\(\)' is not a name of a value"):
        load(
            edited(
                lambda s: s.update(program=re.sub(r"\bsym_size_int_1\b", '%"x=f()"', s["program"]))
            ),
            tmp_path,
        )


def test_a_missing_operator_is_named(tmp_path: Path) -> None:
    def change(structure: dict[str, Any]) -> None:
        structure["program"] = structure["program"].replace(
            "aten.linear.default", "evil.system.default"
        )
        structure["operators"].append("evil.system.default")

    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"'evil\.system\.default' \(is not registered here\): import the library that registers",
    ):
        load(edited(change), tmp_path)


def test_headers_that_claim_more_than_there_is(tmp_path: Path) -> None:
    """Nothing of the size that is claimed is allocated: safetensors wants the file to be covered exactly."""
    parts = Parts(saved(0), container.STRUCTURE)
    name = next(name for name in parts.header if name.endswith("weight"))
    for entry in (
        {"shape": [HUGE]},
        {"shape": [HUGE], "data_offsets": [0, 4 * HUGE]},
        {"data_offsets": [0, 2**63]},
        {"dtype": "F99"},
    ):
        header = copy.deepcopy(parts.header)
        header[name].update(entry)
        with pytest.raises(px.errors.StoreError, match="not a saved program, or is incomplete"):
            load(with_header(header, parts.data), tmp_path)
    for raw in (
        b"",
        b"\x00" * 7,
        HUGE.to_bytes(8, "little") + b"{}",
        b"\xff" * 64,
        (2).to_bytes(8, "little") + b"[]",
    ):
        assert outcome(raw, tmp_path) == "StoreError"


def test_versions(tmp_path: Path) -> None:
    parts = Parts(saved(0), container.STRUCTURE)
    for odd in ("6", "4", "-1", "1.5", "", "one", "9" * 5000, "\u0661"):
        with pytest.raises(
            px.errors.StoreError, match=r"has version '.*' of the format, but this purefx reads 5"
        ):
            load(
                with_header({**parts.header, "__metadata__": {"purefx": odd}}, parts.data), tmp_path
            )


def test_what_is_no_path_is_refused() -> None:
    program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1),)))
    does: dict[str, Any] = {
        "save": lambda path: px.save(program, path),
        "load": px.load,
        "report": lambda path: px.report(program, path),
    }
    for name, do in does.items():
        with pytest.raises(TypeError, match=f"{name} takes the path of a file, not an int"):
            do(3)


def test_other_files_get_a_name(tmp_path: Path) -> None:
    with pytest.raises(px.errors.StoreError, match="a safetensors file without a program"):
        load(safetensors.torch.save({"w": torch.ones(1)}, metadata={"format": "pt"}), tmp_path)
    torch.save({"w": torch.ones(1)}, tmp_path / "zip.pt2")
    with pytest.raises(
        px.errors.StoreError,
        match=r"a zip file, like those of torch\.export\.save .*\(loading runs code\)",
    ):
        px.load(tmp_path / "zip.pt2")
    with pytest.raises(FileNotFoundError):
        px.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        px.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(px.errors.StoreError, match="is not a file"):
        px.load(tmp_path / "pipe")


def test_truncated_files(tmp_path: Path) -> None:
    raw = saved(0)
    for at in [*range(0, 64, 7), *range(64, len(raw), len(raw) // 40)]:
        assert outcome(raw[:at], tmp_path) == "StoreError"
    assert outcome(raw + b"\x00", tmp_path) == "StoreError"


@pytest.mark.parametrize("seed", range(2))
def test_any_file_is_a_program_or_an_error_of_ours(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    found: list[str] = []
    for _ in range(30):
        raw = saved(seed % 2)
        parts = Parts(raw, container.STRUCTURE)
        match draw.randrange(3):
            case 0:
                found.append(outcome(mutated_bytes(raw, draw), tmp_path))
            case 1:
                parts.structure["program"] = mutated_text(parts.structure["program"], draw)
                found.append(outcome(parts.whole(), tmp_path))
            case _:
                found.append(outcome(parts.whole(mutated_json(parts.structure, draw)), tmp_path))
    assert "StoreError" in found


def small(number: float = 1.0) -> px.Program:
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.full((3,), number), 0, 0)
    return px.Program.of(
        {"": px.Graph((), (), ())}, state=px.ir.State(("a",), px.ir.pmap({"a": slot}))
    )


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program.purefx"
    px.save(small(), path)

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.serialize_file", fail)
    with pytest.raises(KeyboardInterrupt):
        px.save(small(2.0), path)
    assert list(tmp_path.iterdir()) == [path]
    assert px.load(path) == small()


def test_saving_replaces_files_follows_links_and_keeps_permissions(tmp_path: Path) -> None:
    path, link = tmp_path / "program.purefx", tmp_path / "link"
    px.save(small(), path)
    path.chmod(0o640)
    link.symlink_to(path)
    px.save(small(2.0), link)
    assert link.is_symlink()
    assert px.load(path) == small(2.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(IsADirectoryError):
        px.save(small(), tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        px.save(small(), tmp_path / "gone" / "program.purefx")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a regular file"):
        px.save(small(), tmp_path / "pipe")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["link", "pipe", "program.purefx"]


def test_without_safetensors_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    px.save(small(), tmp_path / "program.purefx")
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(px.errors.MissingDependency, match=r"pip install 'purefx\[store\]'"):
        px.load(tmp_path / "program.purefx")
    with pytest.raises(px.errors.MissingDependency, match=r"pip install 'purefx\[store\]'"):
        px.save(small(), tmp_path / "other.purefx")
