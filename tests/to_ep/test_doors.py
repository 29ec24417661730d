"""The tools that take an ExportedProgram take ours: ONNX, AOTInductor, torch.compile, the exporter once more.

A small rewritten model with a dynamic size goes through each door and is compared with eager.  What is not
installed here is skipped and says so.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from examples.to_ep import Mlp, tanh_gelu
from examples.zoo import by_name, llama
from purefx.ir.operators import op_of
from purefx.laws import behaviour_differences
from tests.to_ep.support import flattened, imported, loaded

ROWS = ({0: torch.export.Dim.DYNAMIC},)

all_doors = pytest.mark.skipif("PUREFX_ALL_DOORS" not in os.environ, reason="takes minutes: set PUREFX_ALL_DOORS=1")

ONNX = ("onnx", "onnxscript", "onnxruntime")


def rewritten() -> tuple[torch.nn.Module, px.Program]:
    """Return what the rewritten program of the example computes, and the program, deduplicated."""

    class Expected(Mlp):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = torch.nn.functional.gelu(block(x), approximate="tanh")
            return x

    torch.manual_seed(0)
    module = Expected()
    source = Mlp()
    source.load_state_dict(module.state_dict())
    return module, px.transform(imported(source, torch.randn(3, 8), dynamic_shapes=ROWS), *px.DEFAULT, tanh_gelu)


def test_it_is_exported_again() -> None:
    module, program = rewritten()
    again = torch.export.export(px.to_ep(program).module(), (torch.randn(4, 8),), dynamic_shapes=ROWS)
    x = torch.randn(7, 8)
    assert torch.equal(again.module()(x), module(x))
    assert px.unflatten(again)(x).shape == (7, 8)


@pytest.mark.slow
def test_it_is_compiled() -> None:
    module, program = rewritten()
    compiled: Any = torch.compile(px.to_ep(program).module(), backend="aot_eager", fullgraph=True)
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.slow
@all_doors
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler, and there is no g++")
def test_aot_inductor(tmp_path: Path) -> None:
    module, program = rewritten()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path: Any = torch._inductor.aoti_compile_and_package(px.to_ep(program), package_path=str(tmp_path / "model.pt2"))
        packaged: Any = torch._inductor.aoti_load_package(path)
    for rows in (2, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(packaged(x), module(x))


def run_onnx(ep: torch.export.ExportedProgram, *leaves: torch.Tensor) -> list[torch.Tensor]:
    """Export to ONNX and run that with onnxruntime."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = torch.onnx.export(ep, dynamo=True, verbose=False)
    made.save(file)
    session: Any = onnxruntime.InferenceSession(file.getvalue())
    named = {value.name: leaf.numpy() for value, leaf in zip(session.get_inputs(), leaves, strict=True)}
    return [torch.from_numpy(value) for value in session.run(None, named)]


needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ONNX), reason=f"needs {', '.join(ONNX)}: pip install purefx[onnx]"
)


@pytest.mark.slow
@needs_onnx
def test_onnx() -> None:
    module, program = rewritten()
    x = torch.randn(5, 8)
    torch.testing.assert_close(run_onnx(px.to_ep(program), x)[0], module(x))


@px.transformation(laws=["no silu afterwards"])
def silus(program: px.Program) -> px.Program:
    """Write silu as a product with a sigmoid, in new nodes that say nothing but what they do."""
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph, nodes = program.graphs[name], list[px.Node]()
        for node in graph.nodes:
            if isinstance(node.do, px.Op) and node.do.name == "aten.silu.default":
                gate = px.Node(f"{node.name}_gate", op_of(torch.ops.aten.sigmoid.default), node.args, (), node.stack)
                product = (*node.args, px.Ref(gate.name))
                nodes += [gate, px.Node(node.name, op_of(torch.ops.aten.mul.Tensor), product, (), node.stack)]
            else:
                nodes.append(node)
        if len(nodes) > len(graph.nodes):
            graphs[name] = evolve(graph, nodes=tuple(nodes))
    return program.evolve(graphs=program.graphs.update(graphs))


@pytest.mark.slow
@needs_onnx
def test_onnx_of_a_rewritten_llama() -> None:
    """Two layers of the published architecture, deduplicated, rewritten, through ONNX."""
    example = llama(2)
    model = example.build()
    program = px.transform(px.import_ep(example.export(model)), *px.DEFAULT, silus)
    assert "aten.silu.default" not in program.text()
    _, kwargs = example.inputs(3)
    given = run_onnx(px.to_ep(program), *kwargs.values())
    expected = model(**kwargs).logits
    torch.testing.assert_close(given[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.models
@pytest.mark.slow
@all_doors
@pytest.mark.parametrize("name", ["llama", "bert_train", "llama_dynamic", "t5"])
def test_real_models(name: str) -> None:
    """At their real depth: the law from the flat and from the deduplicated program, eager's numbers, saved and loaded too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        example = by_name(name)
        model = example.build()
        source = example.export(model)
        program, calls = px.import_ep(source), [example.inputs(seed) for seed in (1, 2, 3)]
        assert px.import_ep(px.to_ep(program)) == program
        tree = px.transform(program)
        assert px.alpha_equal(px.import_ep(px.to_ep(tree)), flattened(tree))
        assert behaviour_differences(px.to_ep(tree).module(), copy.deepcopy(model), calls) == []
        known = behaviour_differences(loaded(source).module(), copy.deepcopy(model), calls)  # torch unties state when it loads
        assert behaviour_differences(loaded(px.to_ep(tree)).module(), copy.deepcopy(model), calls) == known
    finally:
        torch.set_num_threads(threads)
