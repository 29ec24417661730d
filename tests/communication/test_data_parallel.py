"""Training on two processes: collectives that are joined and moved give the numbers of DDP, bit for bit."""

from __future__ import annotations

import pytest

from tests.communication.pair import Pair


@pytest.mark.parametrize(("how", "joined"), [("replicated", [9, 1, 6, 9, 6]), ("sharded", [18, 2, 12, 18, 12])])
def test_training_is_that_of_ddp(pair: Pair, how: str, joined: list[int]) -> None:
    """Each way of running the same step, of which the first is as it was traced: nine parameters, so so many collectives."""
    ran = pair.ask("tests.communication.data_parallel:train", [how, how])
    for rank in range(2):
        found = [each[rank] for each in ran]
        assert [name for name, _, _, is_same in found if not is_same] == []
        assert [count for _, count, _, _ in found[1:]] == joined
        losses = {tuple(its) for _, _, its, _ in found}
        assert len(losses) == 1, "the losses of every way, to the bit"
        assert len({loss for its in losses for loss in its}) > 1


def test_what_dynamo_captures_is_joined(pair: Pair) -> None:
    """``dist.all_reduce`` in place, as users write it."""
    mine, theirs = pair.ask("tests.communication.data_parallel:captured_by_dynamo", [None, None])[0]
    assert mine == theirs == (3, 2, True)


def test_a_tensor_parallel_model_is_compiled_through_programs(pair: Pair) -> None:
    """DTensor's layers: forward and backward of a backend of ``torch.compile`` are programs, moved and lowered."""
    mine, theirs = pair.ask("tests.communication.data_parallel:tensor_parallel", [None, None])[0]
    assert mine == theirs == ([3, 3], True)
