"""The tools that take an ExportedProgram take ours: ONNX, AOTInductor, torch.compile, the exporter once more.

A small rewritten model with a dynamic size goes through each door and is compared with eager.  What is not
installed here is skipped and says so.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from examples.to_ep import Mlp, tanh_gelu
from tests.to_ep.support import imported

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
