"""Known defects of ``torch.export.unflatten`` that are right here: ``python -m bench.defects`` prints the table.

Each case is one experiment that runs three times, with eager, with the peer and with purefx; the table shows the results.
Nothing is hard-coded: when the peer is repaired, its row says so.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from attrs import frozen
from torch import nn

import purefx as px

__all__ = ["EXPERIMENTS", "Row", "rows"]

Back = Callable[[torch.export.ExportedProgram], Any]
"""From an exported program to a module; None is eager itself."""
EXPERIMENTS: dict[str, Callable[[Back | None], Any]] = {}


@frozen
class Row:
    """What came out of one experiment."""

    case: str
    eager: str
    torch: str
    ours: str


def experiment(name: str) -> Callable[[Callable[[Back | None], Any]], Callable[[Back | None], Any]]:
    """Register an experiment."""

    def registered(function: Callable[[Back | None], Any]) -> Callable[[Back | None], Any]:
        EXPERIMENTS[name] = function
        return function

    return registered


def rows() -> Iterator[Row]:
    """Make every experiment three times."""
    for name, function in EXPERIMENTS.items():
        yield Row(
            name,
            *(outcome(function, back) for back in (None, torch.export.unflatten, px.unflatten)),
        )


def outcome(function: Callable[[Back | None], Any], back: Back | None) -> str:
    """Return what came out of an experiment, in one line: a value or an error."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return str(function(back))
    except Exception as error:  # whatever the peer raises is its result
        first = (str(error).strip() or "no message").splitlines()[0]
        return f"{type(error).__name__}: {first[:90]}"


def brought_back(
    back: Back | None,
    module: nn.Module,
    *args: Any,
    preserve: tuple[str, ...] = (),
    decomposed: bool = False,
    **options: Any,
) -> Any:
    """Export a copy of a module and bring it back; the module itself for eager."""
    if back is None:
        return module
    ep = torch.export.export(
        copy.deepcopy(module),
        copy.deepcopy(args),
        preserve_module_call_signature=preserve,
        strict=False,
        **options,
    )
    return back(ep.run_decompositions({}) if decomposed else ep)


def total(value: torch.Tensor) -> float:
    """Return a tensor as one number."""
    return round(float(value.detach().double().sum()), 4)


class Count(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x + self.n


class Holder(nn.Module):
    """Holds and calls one child."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, *args: Any) -> Any:
        return self.child(*args)


class Of(nn.Module):
    """Holds children and runs a function of itself."""

    def __init__(self, run: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, child in children.items():
            self._modules[name] = child

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


ONES = torch.ones(2, 3)


class Choice(nn.Module):
    """Calls one of its two children."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: Any, index: Any) -> Any:
        return self.items[index](x)


@experiment("calls of one module that differ only in which child they call")
def _(back: Back | None) -> Any:
    return total(brought_back(back, Of(lambda m, x: m.a(m.a(x, 0), 1), a=Choice()), ONES)(ONES))


@experiment("a child that counts, through three calls of its preserved parent, decomposed")
def _(back: Back | None) -> Any:
    module = Of(lambda m, x: m.p(m.p(m.p(x))) + m.p.child.n, p=Holder(Count()))
    return total(brought_back(back, module, ONES, preserve=("p",), decomposed=True)(ONES))


@experiment("keys of state_dict where a module is called twice")
def _(back: Back | None) -> Any:
    return sorted(
        brought_back(back, Of(lambda m, x: m.a(m.a(x)) + m.a.n, a=Count()), ONES).state_dict()
    )


class AddThenMul(Count):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        y = x + self.n
        self.n.mul_(2)
        return y * self.n


class Slices(Count):
    def forward(self, x: Any) -> Any:
        self.n[0].add_(1)
        self.n[1:] += x[0, :2].detach()
        return x + self.n


class Indexed(Count):
    def forward(self, x: Any) -> Any:
        self.n[torch.tensor([0, 2])] = x.detach()[0, :2]
        self.n.index_add_(0, torch.tensor([1]), torch.ones(1))
        return self.n * x


WRITERS = ((AddThenMul, "add_ then mul_"), (Slices, "slices"), (Indexed, "index_put_"))

for kind, said in WRITERS:

    @experiment(
        f"{said} on a buffer under a preserved signature, read before and after, decomposed"
    )
    def _(back: Back | None, kind: Any = kind) -> Any:
        def run(m: Any, x: Any) -> Any:
            before = m.a.n * 2
            y = m.a(x)
            return before + y + m.a.n + (m.a(y) + m.a.n) * 3

        module = brought_back(back, Of(run, a=kind()), ONES, preserve=("a",), decomposed=True)
        return total(module(ONES) + module(ONES))


@experiment("a parent that writes the buffer of a child with a preserved signature, decomposed")
def _(back: Back | None) -> Any:
    module = Of(lambda m, x: m.a.n.add_(10) * 0 + m.a(x), a=Count())
    return total(brought_back(back, module, ONES, preserve=("a",), decomposed=True)(ONES))


@experiment("train-mode BatchNorm in a preserved module that is called twice, decomposed")
def _(back: Back | None) -> Any:
    module = Of(
        lambda m, x: m.a(m.a(x)) + m.a[1].running_var,
        a=nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
    )
    x = torch.randn(4, 3)
    module = brought_back(back, module, x, preserve=("a",), decomposed=True)
    return total(module(x) + module(x))


@experiment("a preserved module that only returns its input")
def _(back: Back | None) -> Any:
    return total(
        brought_back(back, Of(lambda m, x: m.a(x) + 1, a=nn.Identity()), ONES, preserve=("a",))(
            ONES
        )
    )


@experiment("a preserved grandchild that counts, called twice")
def _(back: Back | None) -> Any:
    module = Of(
        lambda m, x: m.p(m.p(x)) + m.p.child.n,
        p=Of(lambda m, x: m.child(x) + m.child.n, child=Count()),
    )
    return total(brought_back(back, module, ONES, preserve=("p.child",))(ONES))


class Back3(nn.Module):
    def forward(self, y: Any) -> Any:
        return y.view(y.shape[0] // 3, 3)


@experiment("an eager child in place of a preserved one that shares a dynamic size")
def _(back: Back | None) -> Any:
    module = Of(lambda m, x: m.b(m.a(x.reshape(x.shape[0] * 3))), a=nn.ReLU(), b=Back3())
    sizes = ({0: torch.export.Dim("n", min=2)},)
    module = brought_back(back, module, torch.ones(4, 3), preserve=("b",), dynamic_shapes=sizes)
    module.b = Back3()
    return total(module(torch.ones(5, 3)))


class Flagged(nn.Module):
    def forward(self, x: Any, *, flag: bool) -> Any:
        return x * 2 if flag else x + 5


def _flags(back: Back | None) -> Any:
    module = Of(lambda m, x: m.foo(m.foo(x, flag=True), flag=False), foo=Flagged())
    return brought_back(back, module, ONES, preserve=("foo",))


@experiment("a forward after a module was called alone")
def _(back: Back | None) -> Any:
    module = _flags(back)
    module.foo(ONES, flag=True)
    return total(module(ONES))


@experiment("a forward after one that failed half way")
def _(back: Back | None) -> Any:
    module = _flags(back)
    handle = module.foo.register_forward_hook(lambda *_: 1 / 0)
    with contextlib.suppress(ZeroDivisionError):
        module(ONES)
    handle.remove()
    return total(module(ONES))


class Reads(nn.Module):
    """Counts in a buffer of its parent, which it reads."""

    def __init__(self, parent: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "parent", parent)

    def forward(self, x: Any) -> Any:
        cast(Any, self.parent).n.add_(1)
        return x + cast(Any, self.parent).n


class Chain(nn.Module):
    """Many children count in one buffer."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(3))
        self.layers = nn.ModuleList([Reads(self) for _ in range(count)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@functools.cache
def _chained() -> torch.export.ExportedProgram:
    """Return what the peer and purefx bring back, which neither changes; exporting it takes seconds."""
    chain = Chain(512)
    names = tuple(f"layers.{number}" for number in range(512))
    ep = torch.export.export(chain, (ONES,), preserve_module_call_signature=names, strict=False)
    return ep.run_decompositions({})


@experiment("512 chained reads of a written buffer under preserved signatures, decomposed")
def _(back: Back | None) -> Any:
    return total((back(_chained()) if back is not None else Chain(512))(ONES))


@experiment("what it prints while it works")
def _(back: Back | None) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        brought_back(back, Of(lambda m, x: m.a(x) + m.a.n, a=Count()), ONES, preserve=("a",))
    return printed.getvalue().splitlines()[:1]


@experiment("re-export with the original dynamic shapes")
def _(back: Back | None) -> Any:
    sizes = ({0: torch.export.Dim("n", min=2)},)
    module = brought_back(
        back, Of(lambda m, x: m.a(x), a=nn.Linear(3, 3)), ONES, dynamic_shapes=sizes
    )
    again = torch.export.export(module, (ONES,), dynamic_shapes=sizes)
    return tuple(again.module()(torch.ones(5, 3)).shape)


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    print("| case | eager | torch | ours |\n|---|---|---|---|")
    for row in rows():
        cells = (row.case, row.eager, row.torch, row.ours)
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")


if __name__ == "__main__":
    main()
