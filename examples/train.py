"""Train a lowered module and a training module: a few steps of SGD on a ResNet, beside eager: ``python -m examples.train``.

The one is taken apart by autograd like any module, the other's backward is a program, which computes again what a minimum cut
does not keep.  Parameters are trainable and BatchNorm's statistics are updated in place, so every loss and, at the end, every
number of the state equals eager's bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

import purefx as px
from examples.zoo import by_name
from purefx.laws import value_differences


def losses(model: torch.nn.Module, steps: int) -> Iterator[float]:
    """Train a classifier on one fixed batch and give the loss of each step.

    Args:
        model: takes ``pixel_values`` and gives ``logits``; it is changed.
        steps: how many.
    """
    batch = by_name("resnet_train").inputs()[1]
    labels = torch.tensor([0, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**batch).logits, labels)
        torch.autograd.backward(loss)
        optimizer.step()
        yield loss.item()


def main(steps: int = 8) -> int:
    """Train all three, say the losses, and return the exit status.

    Args:
        steps: of SGD.
    """
    torch.set_num_threads(1)
    example = by_name("resnet_train")
    eager = example.build()
    lowered = px.lower(px.transform(px.import_ep(example.export(eager))))
    joint = px.training.capture_joint(eager, *example.inputs())
    trained = px.training_module(joint, policy=px.training.min_cut())
    print("step    eager     lowered   trained")
    rows = list(
        zip(losses(eager, steps), losses(lowered, steps), losses(trained, steps), strict=True)
    )
    for step, row in enumerate(rows):
        print(f"{step:4}", *[f"{loss:.6f}" for loss in row], sep="  ")
    final = eager.state_dict()
    same = all(len(set(row)) == 1 for row in rows)
    same = same and not any(
        value_differences(module.state_dict(), final) for module in (lowered, trained)
    )
    print("all losses and the final state are equal, bit by bit" if same else "they differ")
    return 0 if same and rows[-1][0] < rows[0][0] else 1


if __name__ == "__main__":
    sys.exit(main())
