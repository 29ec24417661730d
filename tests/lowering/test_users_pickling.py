"""Pickling, torch.save and deepcopy of a root and of a child, here and in another process."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.swaps import Parent
from tests.lowering.users import FORMS, KINDS, Mixed, agree, lowered, mixed, mixed_args, three
from tests.models import Shared, Tower, parent
from tests.tables import table

EACH = pytest.mark.parametrize("to", KINDS)


def saved(module: Any) -> Any:
    """Return what torch.save and torch.load make of a module."""
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": saved,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,  # shares the state, as in eager mode
    "twice": lambda module: copy.deepcopy(saved(saved(module))),
}


@table(way=list(COPIES), form=FORMS, to=KINDS)
def test_a_copy_is_a_module_of_its_own(to: str, form: str, way: str) -> None:
    """Eager's numbers and state three times, ties, persistence; the first module is not touched, unless the copy is shallow."""
    model, ep = mixed(form)
    module, (args, _) = lowered(ep, to), mixed_args()
    before = copy.deepcopy(module.state_dict())
    other = COPIES[way](module)
    agree(other, model, three(lambda: mixed_args(4 if "dynamic" in form else 3)))
    assert other.first.up.weight is other.second.up.weight
    assert isinstance(
        other, torch.fx.GraphModule if to == "graph_module" else torch.export.UnflattenedModule
    )
    assert way == "copy" or all(
        torch.equal(value, before[name]) for name, value in module.state_dict().items()
    )
    with pytest.raises(px.errors.InputValueError, match="argument scale"):
        other(*args, scale=torch.ones(9, 9, 9))


@EACH
def test_what_a_copy_keeps(to: str) -> None:
    """The contract, class names, values of nodes, a replaced child, modes, conversions, an adapter that can be pickled."""
    model, x = Tower(2), torch.randn(2, 4)
    ep = torch.export.export(model, (x,))
    module = lowered(ep, to).double().eval()
    module.layers[1].up = nn.Linear(4, 8, dtype=torch.float64)
    module.layers[0].note = "mine"
    other = saved(module)
    assert torch.equal(other(x.double()), module(x.double()))
    assert other.type_name() == module.type_name()
    assert not other.layers[0].training
    assert other.layers[0].note == "mine"
    assert type(other.layers[1].up) is nn.Linear
    assert all("val" in node.meta for node in other.graph.nodes if node.op != "output")
    relu = next(node for node in other.layers[0].graph.nodes if "relu" in node.name)
    assert "models.py" in relu.meta["stack_trace"]


@EACH
def test_higher_order_operators_survive(to: str) -> None:
    """The bodies of a cond are found again."""

    class Chooses(parent(up=lambda: nn.Linear(4, 4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(
                x.sum() > 0, lambda x: self.up(x).relu(), lambda x: self.up(x) - 1, (x,)
            )

    model, x = Chooses(), torch.randn(2, 4)
    other = saved(lowered(torch.export.export(model, (x,)), to))
    for each in (x, -x):
        assert torch.equal(other(each), model(each))
    assert other.graph is not None


@EACH
def test_an_edited_graph_is_refused(to: str) -> None:
    """An edit is no part of the program: said so; a graph that was only looked at, or made again, is none."""
    module = lowered(torch.export.export(Tower(2), (torch.ones(2, 4),)), to)
    module.layers[0].finalize()
    assert torch.equal(saved(module)(torch.ones(2, 4)), module(torch.ones(2, 4)))
    for node in module.layers[1].graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.tanh.default
    with pytest.raises(px.errors.UnsupportedProgram, match=r"layers.1: its graph was edited"):
        pickle.dumps(module)


def test_only_our_own_functions_are_in_a_pickle() -> None:
    """Loading calls two functions of ours; all else is torch's and Python's own, and data."""
    data = pickle.dumps(lowered(torch.export.export(Mixed(), *mixed_args())))
    found: set[str] = set()

    class Finder(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str) -> Any:
            found.add(f"{module_name}.{global_name}")
            return super().find_class(module_name, global_name)

    Finder(io.BytesIO(data)).load()
    ours = {
        name for name in found if name.startswith("purefx.") and not name.startswith("purefx.ir.")
    }
    assert ours == {
        f"purefx.lowering.modules.pickling.{name}" for name in ("load_context", "load_module")
    }


SCRIPT = """
import sys, torch
names, *files = sys.argv[1:]
for file in files:
    module, child, x, expected = torch.load(file, weights_only=False)
    child = torch.load(child, weights_only=False)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=0)
    assert list(module.state_dict()) == names.split(",")
    assert child(x).shape == x.shape
    module.a.double()
print("fine", len(files))
"""


def test_another_process(tmp_path: Path) -> None:
    """Saved here, loaded where neither the model's class nor the exported program is: runs and counts on."""
    torch.manual_seed(0)
    model, x = Shared(), torch.randn(3, 4)
    files = [str(tmp_path / f"{to}.pt") for to in KINDS]
    for to, file in zip(KINDS, files, strict=True):
        module = lowered(torch.export.export(copy.deepcopy(model), (x,)), to)
        expected = tuple(part.detach().clone() for part in copy.deepcopy(module)(x))
        torch.save(module.a, f"{file}.child")
        torch.save((module, f"{file}.child", x, expected), file)
    command = [sys.executable, "-W", "error", "-c", SCRIPT, ",".join(model.state_dict()), *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "fine 2\n", done.stderr


@EACH
def test_operators_are_found_by_name(to: str) -> None:
    """Methods that fx traced, also where an example says that they are those of tensors; and one that no text may name."""
    model, x, wait = (
        nn.Linear(3, 2),
        torch.randn(2, 3),
        torch.ops._c10d_functional.wait_tensor.default,
    )
    traced = torch.fx.symbolic_trace(
        Parent(lambda p, x: wait(p.inner(x).view(-1)).relu(), inner=model)
    )
    for examples in (None, (x,)):
        module = px.lower(px.transform(px.import_fx(traced, example_inputs=examples)), to=to)
        assert torch.equal(pickle.loads(pickle.dumps(module))(x), model(x).view(-1).relu())
