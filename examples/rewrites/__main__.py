"""``python -m examples.rewrites``: run all rewrites, and print the lines of each beside those of the same in torch.fx."""

from __future__ import annotations

from examples.rewrites import (
    Rewriting,
    adapters,
    attention,
    batch_norm,
    bfloat16,
    clean_up,
    eight_bits,
    gelu_to_relu,
    linear_relu,
    observers,
    one_projection,
)

FILES = (
    linear_relu,
    attention,
    adapters,
    eight_bits,
    gelu_to_relu,
    batch_norm,
    one_projection,
    bfloat16,
    observers,
    clean_up,
)

ALL: tuple[Rewriting, ...] = tuple([each.REWRITING for each in FILES])


def main() -> None:
    """Run them all."""
    print(f"{'rewrite':28} {'model':8} {'lines':>5} {'in fx':>5} {'from eager':>10}")
    for each in ALL:
        worst = each.run().worst
        ours, theirs = each.lines
        print(f"{each.name:28} {each.example.name:8} {ours:5} {theirs:5} {worst:10.1e}")


if __name__ == "__main__":
    main()
