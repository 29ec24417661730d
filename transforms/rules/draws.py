"""Draws from torch's generators while a replacement is written: tensors that are drawn then are the same in each run.

The states of the generators say whether something was drawn, and not what.  New state may be drawn: each piece of it starts anew.
"""

from __future__ import annotations

import torch
from attrs import define

from ...ir.errors import RuleError

__all__ = ["Draws"]


@define(eq=False)
class Draws:
    """What the generators were like when a replacement was called, or brought new state the last time.

    >>> draws = Draws()
    >>> draws.begin()
    >>> noise = torch.rand(2)
    >>> draws.check()
    Traceback (most recent call last):
        ...
    purefx.ir.errors.RuleError: a tensor of the replacement was drawn while that was written, so each run would have the same \
numbers.
    Draw when the program runs: torch.rand_like(x), or m.call(torch.ops.aten.rand, [3, 4]), with any_effects=True; or bring it as
    new state that is drawn once, m.buffer(name, tensor).
    """

    before: list[torch.Tensor] | None = None

    def begin(self) -> None:
        """Take what is drawn from here on for numbers of the replacement."""
        self.before = _states()

    def check(self) -> None:
        """Check that nothing was drawn; asked where a tensor stands in the replacement.

        Raises:
            RuleError: something was.
        """
        if self.before is None or all(map(torch.equal, self.before, _states())):
            return
        raise RuleError(
            "a tensor of the replacement was drawn while that was written, so each run would have the same numbers.\n"
            "Draw when the program runs: torch.rand_like(x), or m.call(torch.ops.aten.rand, [3, 4]), with any_effects=True; or "
            "bring it as\nnew state that is drawn once, m.buffer(name, tensor)."
        )


def _states() -> list[torch.Tensor]:
    others = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [generator.get_state() for generator in (torch.default_generator, *others)]
