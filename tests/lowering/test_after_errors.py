"""After an error inside of a module the process is as before: gradient mode, autocast, levels of vmap and all other modes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch
from attrs import evolve
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import purefx as px
from purefx.ir.operators import op_of
from purefx.laws.purity import changes_in_process
from tests.models import imported, module_class, parent

pytestmark = pytest.mark.usefixtures(
    "unverified"
)  # levels of forward derivatives are not open while values are inferred
X = torch.linspace(-1, 1, 4).view(2, 2)


class Raised(BaseException):
    """No Exception, as a KeyboardInterrupt is none."""


@torch.library.custom_op("purefx_after::raises", mutates_args=())
def raises(x: torch.Tensor) -> torch.Tensor:
    """Raise, wherever it runs."""
    raise Raised


@raises.register_vmap
def _mapped(*_: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
    raise Raised


@raises.register_fake
def _fake(x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportUnusedFunction]
    return torch.empty_like(x)


RAISES = op_of(torch.ops.purefx_after.raises.default)


class NoGrad(parent(lin=lambda: nn.Linear(2, 2))):
    """Regions of two gradient modes, one in the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.lin(x) + 1
            with torch.enable_grad():
                y = y * 2
            y = y + 1
        return y.sin()


class Autocast(parent(lin=lambda: nn.Linear(2, 2))):
    """Regions of autocast, one in the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.lin(x)
            with torch.autocast("cpu", enabled=False):
                z = self.lin(x) + 1
            z = z + self.lin(x)
        return (y + z).sin()


class Casts(nn.Module):
    """Regions of autocast, without state."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            with torch.autocast("cpu", enabled=False):
                z = x @ x
            y = z @ x
        return y.sin()


class Inner(parent(inner=NoGrad, other=Autocast)):
    """Calls modules with modes, in a mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.other(x)
        return self.inner(y) + x


class Mapped(nn.Module):
    """Two levels of vmap, in a gradient mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = torch.func.vmap(lambda row: torch.func.vmap(torch.sin)(row) + 1)(x)
        return y * 2


# Forward gradients.
Forward = module_class("Forward", lambda self, x: torch.func.jvp(torch.sin, (x,), (x,))[1] + 1)
# A gradient by torch.func, which disables hooks on saved tensors.
Gradient = module_class("Gradient", lambda self, x: torch.func.grad(lambda a: a.sin().sum())(x) + 1)


class Inference(nn.Module):
    """Inference mode inside and outside of vmap."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(row: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                return row.sin() + 1

        with torch.inference_mode():
            y = torch.func.vmap(inner)(x) + 1
        return x + y.clone()


class Attention(nn.Module):
    """Attention by one kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x) + 1


class Branch(parent(inner=NoGrad)):
    """A branch with a mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def other(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return x.cos() + 1

        return torch.cond(x.sum() > 5, torch.sin, other, (x,)) + 1


def seen_by_dynamo(module: nn.Module) -> px.Program:
    """Return the program of what Dynamo hands to a backend."""
    found: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        found.append(graph)
        return graph

    torch.compiler.reset()
    cast(Any, torch.compile(module, backend=backend, fullgraph=True))(X)
    return px.import_fx(found[0])


PROGRAMS: dict[str, Callable[[], px.Program]] = {
    "no_grad": lambda: imported(NoGrad(), X),
    "autocast": lambda: imported(Autocast(), X),
    "modules": lambda: imported(Inner(), X),
    "vmap": lambda: imported(Mapped(), X),
    "jvp": lambda: imported(Forward(), X),
    "cond": lambda: imported(Branch(), X),
    "preserved signatures": lambda: imported(
        Inner(), X, preserve_module_call_signature=("inner", "other")
    ),
    "modules between markers": lambda: px.bodies_to_regions(imported(Inner(), X)),
    "Dynamo: autocast": lambda: seen_by_dynamo(Casts()),
    "Dynamo: vmap": lambda: seen_by_dynamo(Mapped()),
    "Dynamo: grad": lambda: seen_by_dynamo(Gradient()),
    "Dynamo: inference": lambda: seen_by_dynamo(Inference()),
    "Dynamo: attention": lambda: seen_by_dynamo(Attention()),
}


def edited(program: px.Program) -> Any:
    """Return a lowered program that runs the code which fx makes of its graphs."""
    module: Any = px.lower(program)
    for part in list(module.modules()):
        if isinstance(part, torch.fx.GraphModule):
            part.graph.lint()
            part.recompile()
    return module


def looked_at(program: px.Program) -> Any:
    """Return a lowered program that interprets the fx graphs of its modules."""
    module: Any = px.lower(program, to="interpreter")
    for part in module.modules():
        if hasattr(part, "purefx_place"):
            part.graph.lint()
    return module


WAYS: dict[str, Callable[[px.Program], Any]] = {
    "flat": px.lower,
    "flat, interpreter": lambda program: px.lower(program, to="interpreter"),
    "tree": lambda program: px.lower(outlined(program)),
    "tree, interpreter": lambda program: px.lower(outlined(program), to="interpreter"),
    "edited": lambda program: edited(outlined(program)),
    "interpreter that is looked at": lambda program: looked_at(outlined(program)),
    "evaluated": lambda program: lambda x: px.first_difference(program, program, (x,)),
}


ALWAYS = "tree"
"""The way in which each program runs in ``make test``; each runs in a third of the others."""


def outlined(program: px.Program) -> px.Program:
    """Return the module tree."""
    return px.outline(program) if "outlined" not in program.facts else program


def broken(program: px.Program) -> Iterator[px.Program]:
    """Return the program with an operator that raises, before each node and before the result of each graph."""
    for name in program.order:
        graph = program.graphs[name]
        values = [formal.name for formal in graph.inputs]
        for index in range(len(graph.nodes) + 1):
            if values:
                stack = graph.nodes[min(index, len(graph.nodes) - 1)].stack
                node = px.Node(
                    graph.names().fresh("raises"), RAISES, (px.Ref(values[0]),), stack=stack
                )
                nodes = (*graph.nodes[:index], node, *graph.nodes[index:])
                yield program.with_graphs({name: evolve(graph, nodes=nodes)})


@functools.cache
def program_of(kind: str) -> px.Program:
    """Return a program, made once."""
    return PROGRAMS[kind]()


def rows() -> list[Any]:
    """Return each program with each way; two thirds of those that are not always run are ``deep``."""
    return [
        pytest.param(
            kind,
            way,
            marks=[pytest.mark.deep] if way != ALWAYS and (place + number) % 3 else [],
        )
        for place, kind in enumerate(PROGRAMS)
        for number, way in enumerate(WAYS)
    ]


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch.func.jvp, on its first call
@pytest.mark.parametrize(("kind", "way"), rows())
def test_modes_are_as_before(kind: str, way: str) -> None:
    program = program_of(kind)
    module, raised = WAYS[way](program), 0
    module(X)  # what is made on the first call
    for each in broken(program):
        module = WAYS[way](each)

        def act(module: Any = module) -> None:
            nonlocal raised
            try:
                module(X)
            except Raised:
                raised += 1

        with warnings.catch_warnings():
            assert changes_in_process(act) == []
    assert raised > 3
