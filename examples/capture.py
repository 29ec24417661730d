"""From a module to a program in one call: ``python -m examples.capture``.

``capture`` exports and imports, from any number of threads and with dynamic sizes; the result is a program like any other, which
can be counted, transformed and lowered.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

import purefx as px
from examples.quickstart import Block


def main() -> None:
    """Capture a model with a dynamic number of rows, and several models at once."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block())
    rows = torch.export.Dim("rows", min=2, max=64)
    program = px.capture(
        model,
        (torch.randn(3, 4),),
        dynamic_shapes=({0: rows},),
        preserve_module_call_signature=("1",),
    )
    print(px.stats(program))

    module = px.lower(px.transform(program))
    for size in (2, 64):
        x = torch.randn(size, 4)
        assert torch.equal(module(x), model(x))
        assert torch.equal(module.get_submodule("1")(x), model[1](x)), (
            "a call whose signature was preserved"
        )

    # torch's exporter breaks the process under threads, so captures wait for each other.
    models = [torch.nn.Linear(4, size) for size in (2, 3, 4)]
    with ThreadPoolExecutor() as pool:
        programs = list(pool.map(lambda linear: px.capture(linear, (torch.ones(1, 4),)), models))
    for linear, captured in zip(models, programs, strict=True):
        assert torch.equal(px.lower(captured)(torch.ones(1, 4)), linear(torch.ones(1, 4)))
    print("captured, for 2 to 64 rows and from three threads: equal to eager, bit by bit")


if __name__ == "__main__":
    main()
