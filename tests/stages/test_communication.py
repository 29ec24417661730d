"""Two processes that talk over gloo, one of which runs a program that was split: what arrives is what eager sends, in its order.

The sends of the first process are cut apart by tags that ask for the other order; the second process says what it got.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

TALK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives
import purefx as px
from tests.stages.test_communication import sender, split_against_the_order
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
if rank == 0:
    traced = sender(dist.group.WORLD.group_name)
    program = px.import_fx(traced)
    for module in (traced, px.lower(program), px.lower(split_against_the_order(program))):
        module(torch.tensor([1.0]), torch.tensor([2.0]))
    os.wait()
else:
    got = torch.zeros(6, 1)
    for row in got:
        dist.recv(row, 0)
    print(got.flatten().tolist(), flush=True)
dist.destroy_process_group()
os._exit(0)
"""

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no collectives")


def sender(group: str) -> torch.fx.GraphModule:
    """Return a program that sends x, then y."""
    import_module("torch.distributed._functional_collectives")  # it registers the operators
    talk = torch.ops._c10d_functional
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    sent = [graph.call_function(talk.isend.default, (value, 1, 0, group), name=f"send_{value}") for value in (x, y)]
    graph.output(tuple(graph.call_function(talk.wait_tensor.default, (one,)) for one in sent))
    return torch.fx.GraphModule({}, graph)


def split_against_the_order(program: object) -> object:
    """Return the program cut in parts, of which the first is asked to have the second send."""
    import purefx as px

    tags = {"send_x": "late", "send_y": "early"}
    assert isinstance(program, px.Program)
    return px.split_by_tags(program, ["early", "late"], tag_of=lambda node: tags.get(node.name), allow_reuse=True)


def test_what_two_processes_say_stays_in_order(tmp_path: Path) -> None:
    """One sends 1 and 2 as fx does, lowered, and split against the order; the other gets 1 and 2 each time."""
    done = subprocess.run(
        [sys.executable, "-c", TALK, str(tmp_path / "rendezvous")],
        cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([1.0, 2.0] * 3)], done.stderr


def test_tags_that_ask_for_another_order_are_refused() -> None:
    """Without parts that are used again the order cannot be had, and the message says why."""
    import purefx as px

    program = px.import_fx(sender("0"))
    tags = {"send_x": "late", "send_y": "early"}
    with pytest.raises(px.errors.PartitionError, match="both communicate"):
        px.split_by_tags(program, ["early", "late"], tag_of=lambda node: tags.get(node.name))
