"""DistributedDataParallel and FSDP2 around lowered modules: one process, gloo, CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import copy, itertools, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
import purefx as px
from tests.lowering.users import KINDS
from tests.programs import Tower

dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
model, x = Tower(2), torch.randn(2, 4)
program = px.transform(px.import_ep(torch.export.export(copy.deepcopy(model), (x,))))

def ddp(module):
    return DistributedDataParallel(module)

def fsdp(module):
    for layer in module.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)

for wrap, to in itertools.product((ddp, fsdp), KINDS):
    mine, theirs = wrap(px.lower(program, to=to)), wrap(copy.deepcopy(model))
    for module in (mine, theirs):
        module(x).square().sum().backward()
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for ours, eager in zip(mine.parameters(), theirs.parameters(), strict=True):
        grads = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in (ours, eager)]
        torch.testing.assert_close(*grads, rtol=0, atol=0)
dist.destroy_process_group()
print("fine")
"""


@pytest.mark.slow
def test_wrapped_modules_train_as_eager(tmp_path: Path) -> None:
    """Gradients and state_dict keys are those of the wrapped eager model."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "rendezvous")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.stdout == "fine\n", done.stderr[-2000:]
