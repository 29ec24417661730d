"""When the code of a lowered program is made: at its first call, also from several threads."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import purefx as px
from tests.models import parent

# Eight threads look at one lowered module at once: graphs, code, copies, pickles, state, calls.


class Leaf(parent(linear=lambda: torch.nn.Linear(2, 2))):
    """Takes a tuple, so its preserved call has pytrees; does one of two things."""

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor], flag: bool = False) -> torch.Tensor:
        x = self.linear(pair[0]) + pair[1]
        return x.relu() if flag else x


class Model(parent(a=Leaf, b=Leaf)):
    """Calls one module twice with different bodies, and another under a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.b((self.a((x, x), True), x))
        with torch.no_grad():
            y = x * 2
        return self.a((x, y))


LOOKS: list[Callable[[Any], Any]] = [
    lambda module: [str(part.graph) for part in module.modules() if hasattr(part, "graph")],
    lambda module: [part.code for part in module.modules() if hasattr(part, "code")],
    lambda module: copy.deepcopy(module)(torch.ones(1, 2)).tolist(),
    lambda module: pickle.loads(pickle.dumps(module))(torch.ones(1, 2)).tolist(),
    lambda module: sorted(module.state_dict()),
    lambda module: module(torch.ones(1, 2)).tolist(),
    lambda module: (
        str(module.graph_module.meta)
        + str([id(part.graph) == id(part.graph) for part in module.children()])
    ),
]


@pytest.fixture
def often_switched() -> Generator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often_switched")
@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_eight_threads_look_at_one_module(to: Any) -> None:
    torch.manual_seed(0)
    ep = torch.export.export(Model(), (torch.ones(1, 2),), preserve_module_call_signature=("b",))
    program = px.transform(px.import_ep(ep))
    expected = [look(px.lower(program, to=to)) for look in LOOKS]
    with ThreadPoolExecutor(8) as threads:
        for number in range(12):
            module, start = px.lower(program, to=to), threading.Barrier(8)

            def look(index: int, module: Any = module, start: threading.Barrier = start) -> Any:
                start.wait()
                return LOOKS[index](module)

            order = [
                (index + number) % len(LOOKS) if number % 3 else number % 4 for index in range(8)
            ]
            assert list(threads.map(look, order)) == [expected[index] for index in order]
