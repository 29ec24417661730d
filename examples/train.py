"""Train a lowered module: a few steps of SGD on a ResNet, beside eager: ``python -m examples.train``.

Parameters are trainable and BatchNorm's statistics are updated in place, so every loss and, at the end, every number of the
state equals eager's bit for bit.
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
    """Train both, say the losses, and return the exit status.

    Args:
        steps: of SGD.
    """
    torch.set_num_threads(1)
    example = by_name("resnet_train")
    eager = example.build()
    module = px.lower(px.transform(px.import_ep(example.export(eager))))
    print("step    eager     lowered")
    pairs = list(zip(losses(eager, steps), losses(module, steps), strict=True))
    for step, (theirs, ours) in enumerate(pairs):
        print(f"{step:4}  {theirs:.6f}  {ours:.6f}")
    same = all(theirs == ours for theirs, ours in pairs) and not value_differences(module.state_dict(), eager.state_dict())
    print("all losses and the final state are equal, bit by bit" if same else "they differ")
    return 0 if same and pairs[-1][1] < pairs[0][1] else 1


if __name__ == "__main__":
    sys.exit(main())
