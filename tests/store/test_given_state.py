"""``save(weights=False)`` and ``load(state=...)``: a program and its weights go different ways and meet again.

A ``state_dict`` is all that is missing; what it does not have is in the file; ties and views are the program's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.torch_private import storage_key
from tests.programs import Aliased, exported


class Net(nn.Module):
    """A tied weight, a buffer that is saved, one that is not, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("table", torch.arange(2.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return self.other(self.one(x)) + self.table + self.seen + torch.tensor([1.0, 2.0])


X = torch.ones(1, 2)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "bare.purefx"
    px.save(px.import_ep(exported(Net(), X)), path, weights=False)
    return path


def test_without_state_there_are_stand_ins(bare: Path) -> None:
    program = px.load(bare)
    assert {name: slot.value.device.type for name, slot in program.state.pairs} == {
        "one.weight": "meta", "one.bias": "meta", "other.weight": "meta", "other.bias": "meta", "seen": "meta",
        "table": "cpu", "lifted_tensor_0": "cpu",
    }  # fmt: skip
    assert program.state["one.weight"].value is program.state["other.weight"].value
    assert program.state["table"].value.tolist() == [0, 1]


def test_a_state_dict_is_all_that_is_missing(bare: Path) -> None:
    model = Net()
    program = px.load(bare, state=model.state_dict())
    assert storage_key(program.state["one.weight"].value) == storage_key(model.one.weight)  # shared, not copied
    assert isinstance(program.state["one.weight"].value, nn.Parameter)
    assert program.state["one.weight"].value is program.state["other.weight"].value
    module = px.lower(px.transform(program))
    for _ in range(2):
        torch.testing.assert_close(module(X), model(X), rtol=0, atol=0)


def test_what_is_given_goes_before_what_the_file_has(tmp_path: Path) -> None:
    program = px.import_ep(exported(Net(), X))
    px.save(program, tmp_path / "full.purefx")
    mine = torch.tensor([5.0, 6.0])
    found = px.load(tmp_path / "full.purefx", state={"seen": mine})
    assert found.state["seen"].value is mine
    assert found.state["one.bias"] == program.state["one.bias"]
    tied = px.load(tmp_path / "full.purefx", state={"other.weight": torch.eye(2)})
    assert tied.state["one.weight"].value.tolist() == [[1, 0], [0, 1]]
    assert tied.state["one.weight"].value is tied.state["other.weight"].value


def given(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**Net().state_dict(), **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (given(seen=None), "neither the file nor `state` has: 'seen'"),
        ({}, "neither the file nor `state` has: 'one.weight', 'one.bias'"),
        (given(seen=torch.ones(3)), r"the slot 'seen' is torch.float32 \(2,\), and `state` gives torch.float32 \(3,\)"),
        (given(seen=torch.ones(2).double()), "gives torch.float64"),
        (given(seen=[1.0, 2.0]), "`state` gives a list"),
        (
            {f"module.{key}": value for key, value in given().items()},
            "not a slot of the program: 'module.seen', 'module.one.weight'",
        ),
        (given(**{"other.weight": torch.ones(2, 2)}), "'one.weight', 'other.weight' are one tensor, and `state` gives several"),
    ],
)
def test_what_does_not_fit_is_told(state: dict[str, Any], message: str, bare: Path) -> None:
    with pytest.raises(px.errors.StoreError, match=message):
        px.load(bare, state=state)


def test_views_are_made_again(tmp_path: Path) -> None:
    """A state dict that was saved by other means has copies of views; the program's memory is one."""
    model = Aliased()
    px.save(px.import_ep(exported(model, X)), tmp_path / "bare.purefx", weights=False)
    model(X)
    copies = {name: value.clone() for name, value in model.state_dict().items()}
    for state in (copies, model.state_dict()):
        program = px.load(tmp_path / "bare.purefx", state=state)
        whole, part = program.state["whole"].value, program.state["part"].value
        assert storage_key(whole) == storage_key(part)
        assert (part.storage_offset(), whole.tolist()) == (1, [0, 1, 1, 0])
        assert px.verify(program) == ()
    lowered = px.lower(px.transform(px.load(tmp_path / "bare.purefx", state=copies)))
    for _ in range(2):
        torch.testing.assert_close(lowered(X), model(X), rtol=0, atol=0)
    with pytest.raises(px.errors.StoreError, match="share memory, and what `state` gives for them does not fit together"):
        px.load(tmp_path / "bare.purefx", state={**copies, "part": torch.zeros(2)})


def test_numbers_that_lie_otherwise_are_put_where_the_program_has_them(tmp_path: Path) -> None:
    model = nn.Conv2d(2, 3, 1).to(memory_format=torch.channels_last)
    px.save(px.import_ep(exported(model, torch.ones(1, 2, 4, 4))), tmp_path / "bare.purefx", weights=False)
    state = {name: value.clone(memory_format=torch.contiguous_format) for name, value in model.state_dict().items()}
    weight = px.load(tmp_path / "bare.purefx", state=state).state["weight"].value
    assert weight.stride() == model.weight.stride()
    assert torch.equal(weight, model.weight)


def test_devices(tmp_path: Path, bare: Path) -> None:
    path = tmp_path / "full.purefx"
    px.save(px.import_ep(exported(nn.Linear(2, 2), X)), path)
    assert px.load(path, device="cpu").state["weight"].value.device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(px.errors.UnsupportedProgram, match="device 'cuda' is not here"):
            px.load(path, device="cuda")
    with pytest.raises(px.errors.UnsupportedProgram, match="device 'moon' is not here"):
        px.load(path, device="moon")


def test_the_weights_can_be_loaded_from_the_file_alone(tmp_path: Path) -> None:
    """Two files: one with the program, one with the weights, written by somebody else."""
    from safetensors.torch import load_file, save_model

    model = Net()
    px.save(px.import_ep(exported(model, X)), tmp_path / "bare.purefx", weights=False)
    save_model(model, str(tmp_path / "weights.safetensors"))
    program = px.load(tmp_path / "bare.purefx", state=load_file(tmp_path / "weights.safetensors"))
    torch.testing.assert_close(px.lower(program)(X), model(X), rtol=0, atol=0)
