"""What meta says of fake values: which two are known to be alike, and what is left when a value is no longer known.

One idea: a wrong yes lets a program say something false about its shapes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch

from purefx.transforms.shared_bodies import alike, without_values
from tests.transforms.small import symbolic

N, M = symbolic()

ALIKE = {
    "equal shapes": (torch.ones(2), torch.zeros(2)),
    "one symbol": (N, N + 1),
    "one size": (N.shape[0], N.shape[0] * 1),
    "numbers": (2, 2),
    "fractions": (0.5, 0.5),
}

APART = {
    "shapes": (torch.ones(2), torch.ones(3)),
    "ranks": (torch.ones(2), torch.ones(2, 1)),
    "dtypes": (torch.ones(2), torch.ones(2, dtype=torch.int64)),
    "devices": (torch.ones(2), torch.ones(2, device="meta")),
    "symbols": (N, M),
    "a symbol and a number": (N, torch.ones(3)),
    "sizes": (N.shape[0], M.shape[0]),
    "a size and what is computed of it": (N.shape[0], N.shape[0] + 1),
    "a size and a number": (N.shape[0], 3),
    "a size and its text": (N.shape[0], str(N.shape[0])),
    "a size and a condition": (N.shape[0], N.shape[0] > M.shape[0]),
    "numbers": (2, 3),
    "types of numbers": (2, 2.0),
    "a number and a truth": (1, True),
    "a tensor and a number": (torch.ones(()), 1),
    "nothing": (None, None),
    "a tensor and nothing": (torch.ones(2), None),
    "texts": ("a", "a"),
}


@pytest.mark.parametrize("which", ALIKE)
def test_these_are_alike(which: str) -> None:
    left, right = ALIKE[which]
    assert alike(left, right) and alike(right, left)


@pytest.mark.parametrize("which", APART)
def test_these_are_not_known_to_be_alike(which: str) -> None:
    left, right = APART[which]
    assert not alike(left, right) and not alike(right, left)


def test_comparing_symbols_decides_nothing_about_them() -> None:
    size: Any = N.shape[0]
    environment = size.node.shape_env
    before = len(environment.guards)
    assert not alike(N, M) and alike(N, N + 1)
    assert not alike(N.shape[0], M.shape[0])
    assert len(environment.guards) == before


@pytest.mark.parametrize("key", ["val", "tensor_meta"])
@pytest.mark.parametrize("value", [1, (1,), (None, 1), torch.ones(2)], ids=str)
def test_what_holds_for_some_shapes_is_left_out(key: str, value: object) -> None:
    assert dict(without_values(MappingProxyType({"stack_trace": "here", key: value}))) == {"stack_trace": "here"}


@pytest.mark.parametrize("value", [None, (), (None, None)])
def test_what_holds_for_all_shapes_stays(value: object) -> None:
    meta = MappingProxyType({"val": value, "stack_trace": "here"})
    assert without_values(meta) is meta


def test_the_quick_look_at_fake_tensors_sees_every_fact() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from purefx.ir.inference import plainly_alike

    with FakeTensorMode():
        mine = torch.empty(2, 3)
        same = [torch.empty(2, 3), mine]
        others = [
            torch.empty(3, 2),
            torch.empty(2, 3, dtype=torch.int32),
            torch.empty_strided((2, 3), (1, 2)),
            torch.empty(2, 3, device="meta"),
            torch.empty(2, 3).to_sparse(),
        ]
    assert plainly_alike(mine, same)
    assert not any(plainly_alike(mine, [*same, other]) for other in (*others, torch.empty(2, 3), None, 1))
