"""Save a program to a file and load it: ``python -m examples.save_load``.

The graph and the weights can be in one file or in two; the loaded program runs as eager does and has the same digest.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import purefx as px
from examples.quickstart import Block


def main() -> int:
    """Save a model with its weights and without, load both, and compare with eager."""
    model, x = torch.nn.Sequential(Block(), Block()), torch.randn(2, 4)
    program = px.transform(px.import_ep(torch.export.export(model, (x,))))

    with tempfile.TemporaryDirectory() as folder:
        full, bare = Path(folder, "model.purefx"), Path(folder, "bare.purefx")
        px.save(program, full)
        px.save(program, bare, weights=False)
        print(f"{full.stat().st_size:,} bytes with weights, {bare.stat().st_size:,} without")
        loaded = px.load(full)
        given = px.load(bare, state=model.state_dict())

    same = px.digest(loaded) == px.digest(program) == px.digest(given)
    equal = all(torch.equal(px.lower(found)(x), model(x)) for found in (loaded, given))
    print("same digest, equal to eager" if same and equal else "DIFFERENT")
    return 0 if same and equal else 1


if __name__ == "__main__":
    sys.exit(main())
