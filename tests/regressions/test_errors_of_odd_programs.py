"""Three programs that ended in errors of Python: written state that is no input, half a hint, an operator that raises.

One idea: each is the smallest program that once escaped as ``KeyError`` or ``ValueError``; what it raises, or gives, is ours.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from attrs import evolve

import purefx as px
from purefx.ir import Ref, StateMutation
from purefx.ir.store import container
from tests.programs import flat


def written_only() -> px.Program:
    """Return a program that gives a buffer new contents, and does not take it."""
    program = px.parse(WRITTEN, state={"count": torch.zeros(2)})
    assert all(type(spec) is not px.StateInput for spec in program.signature.inputs)
    assert any(type(spec) is StateMutation for spec in program.signature.outputs)
    return program


WRITTEN = """program {
modules {
 "": "M"
}
state {
 buffer count: f32[2]
}
takes {
 user x: f32[2]
}
gives {
 state count
 user
}
graph @""(x) {
 y = aten.add.Tensor(x, 1)
 return (y, y)
}
}"""


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_state_that_is_written_and_no_input(to: str) -> None:
    """It is read for the write; it was a ``KeyError`` of ``lower``."""
    module = px.lower(written_only(), to=to)
    for step in (1.0, 2.0):
        (result,) = module(torch.full((2,), step))
        assert result.tolist() == [step + 1, step + 1]
        assert module.count.tolist() == [step + 1, step + 1]


def with_hint(path: Path, hint: object) -> Path:
    """Write a file whose symbolic size was ``hint`` when it was exported."""
    text = """program {
takes {
 user x: f32[s0]
}
gives {
 user
}
modules {
 "": "M"
}
graph @""(x) {
 y = aten.relu.default(x)
 return (y,)
}
}"""
    meta = {
        "keys": [["val"]], "values": [{"tensor": ["f32", ["s0"], [1], "cpu", False]}], "symbols": {"s0": [hint, 2, 9]},
        "graphs": {"": [[[0, 0]], [[0, 0]]]},
    }  # fmt: skip
    structure = {"made with": {"torch": "2"}, "program": text, "operators": [], "storages": [], "weights": True, "meta": meta}
    raw = torch.frombuffer(bytearray(json.dumps(structure).encode()), dtype=torch.uint8)
    path.write_bytes(safetensors.torch.save({container.STRUCTURE: raw}, metadata={"purefx": "1"}))
    return path


def test_a_size_that_was_a_fraction_is_refused(tmp_path: Path) -> None:
    """It was an ``AssertionError`` deep in torch."""
    assert px.verify(px.load(with_hint(tmp_path / "p", 4))) == ()
    for hint in (4.5, True):
        with pytest.raises(px.StoreError, match="which is not of type int"):
            px.load(with_hint(tmp_path / "p", hint))


class Refusal(Exception):
    """An error of a library, of no class that torch raises."""


def refusing(x: torch.Tensor) -> torch.Tensor:
    raise Refusal("no tensors without contents")


def test_stats_of_an_operator_that_raises_while_values_are_computed() -> None:
    """Its operations are not known; whatever it raised came out of ``stats``."""
    value = {"val": torch.ones(2, device="meta")}
    node = px.Node("y", px.Op("toy.refusing", target=refusing), (Ref("x"),), meta=value)
    program = flat([node], Ref("y"), "x")
    main = evolve(program.main, inputs=(px.Input("x", value),))
    found = px.stats(program.with_main(main))
    assert found.flops is None
    assert found.uncounted == {"toy.refusing": 1}


@pytest.mark.parametrize("key", [px.Items([1]), (1, px.Record(())), slice(1)])
def test_a_dict_whose_keys_have_no_hash(key: px.Arg) -> None:
    """It could not be made when the program runs."""
    node = px.Node("y", px.Op("toy.neg"), (px.Record(((key, 2),)),))
    assert [found.rule for found in px.verify(px.Program.of({"": px.Graph((), (node,), ())}))] == ["argument-kinds"]
    right = px.Node("y", px.Op("toy.neg"), (px.Record((((1, "a"), 2),)),))
    assert not px.verify(px.Program.of({"": px.Graph((), (right,), ())}))
