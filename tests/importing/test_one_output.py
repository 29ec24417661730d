"""A program has one output: every door refuses a second, with a typed error that says what is wrong.

One idea: an fx graph returns at its first ``output`` and a JSON reader takes one of two equal keys; what was meant nobody knows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from attrs import evolve
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import purefx as px


class Writes(nn.Module):
    """Writes a buffer, and gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.n.add_(1)
        return x + self.n, x * 2


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Writes(), (torch.ones(2),))


def with_a_second_output(graph: torch.fx.Graph) -> None:
    graph.output((next(iter(graph.nodes)),))


def with_a_write_behind(graph: torch.fx.Graph) -> None:
    graph.call_function(torch.ops.aten.add_.Tensor, (next(iter(graph.nodes)), 1))


def without_output(graph: torch.fx.Graph) -> None:
    graph.erase_node(list(graph.nodes)[-1])


CHANGES = {with_a_second_output: "2 output nodes", with_a_write_behind: "after its output", without_output: "no output nodes"}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_fx_graphs(change: object) -> None:
    ep, traced = exported(), torch.fx.symbolic_trace(Writes())
    change(ep.graph)  # type: ignore[operator]
    change(traced.graph)  # type: ignore[operator]
    for door in (lambda: px.import_ep(ep), lambda: px.import_fx(traced)):
        with pytest.raises(px.InvalidProgram, match=CHANGES[change]) as error:  # type: ignore[index]
            door()
        assert [violation.rule for violation in error.value.violations] == ["signature-outputs"]


def test_texts() -> None:
    text = str(px.import_ep(exported()))
    (returned,) = re.findall(r"^    return .*\n", text, re.MULTILINE)
    for twice in (
        text.replace(returned, returned * 2),
        text.replace("  gives {\n", "  gives {\n    user\n  }\n  gives {\n"),
        text.replace('  graph @""', '  graph @""() {\n    return ()\n  }\n  graph @""'),
    ):
        with pytest.raises(px.ParseError):
            px.parse(twice)


def test_signatures() -> None:
    program = px.import_ep(exported())
    specs, output = program.signature.outputs, program.main.output
    assert type(output) is tuple
    more = evolve(program.signature, outputs=(*specs, specs[-1]))

    def rules(graph: px.Graph, signature: px.Signature) -> set[str]:
        return {violation.rule for violation in px.verify(program.with_main(graph, signature=signature))}

    assert rules(program.main, program.signature) == set()
    assert "signature-outputs" in rules(program.main, more)
    assert "signature-outputs" in rules(evolve(program.main, output=(*output, output[-1])), program.signature)
    assert "signature-outputs" in rules(evolve(program.main, output=output[-1]), program.signature)
    assert "signature-leaves" in rules(evolve(program.main, output=(*output, output[-1])), more)
    given = px.import_ep(exported().run_decompositions({}))
    kinds, values = given.signature.outputs, given.main.output
    assert type(values) is tuple
    assert type(kinds[0]) is px.StateMutation
    twice = given.with_main(
        evolve(given.main, output=(values[0], *values)), signature=evolve(given.signature, outputs=(kinds[0], *kinds))
    )
    assert "mutations" in {violation.rule for violation in px.verify(twice)}


def test_keys_of_files(tmp_path: Path) -> None:
    """The structure of a file is JSON in which no object says one thing twice."""
    path = tmp_path / "program.purefx"
    px.save(px.import_ep(exported()), path)
    with safe_open(path, framework="pt") as file:
        tensors, said = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118  no mapping
    (name,) = [name for name, tensor in tensors.items() if tensor.dtype is torch.uint8]
    text = bytes(tensors[name].tolist())
    first = json.loads(text.decode())
    twice = json.dumps(next(iter(first))).encode().join((b"{", b": null, " + text[1:]))
    assert json.loads(twice) == first
    tensors[name] = torch.tensor(list(twice), dtype=torch.uint8)
    save_file(tensors, path, said)
    with pytest.raises(px.StoreError, match="not JSON"):
        px.load(path)
