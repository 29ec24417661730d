"""``min_cut`` against functorch's partitioner, on the same models: no more bytes."""

from __future__ import annotations

import pytest

from bench.training import partitions


@pytest.mark.models
@pytest.mark.parametrize("name", ["gpt2-2", pytest.param("llama-2", marks=pytest.mark.deep)])
def test_no_more_is_kept_than_functorch_keeps(name: str) -> None:
    found = {row["policy"]: row for row in partitions(name, 1)}
    assert found["min_cut()"]["bytes"] <= found["functorch min-cut"]["bytes"]
    assert found["save_all()"]["bytes"] <= found["functorch default"]["bytes"]
    assert found["min_cut()"]["seconds"] < found["functorch min-cut"]["seconds"]
