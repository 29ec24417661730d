"""Where ``split_balanced`` cuts: as small a largest part as there can be, and what counts as its size."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import purefx as px
from purefx.laws.toy import ADD, NEG
from purefx.transforms.partition.split import balanced
from tests.programs import flat, node


def by_hand(sizes: list[int], depths: list[int], parts: int) -> list[int]:
    """Return where the parts end, found among all ways to cut: the smallest bound, then cut by cut the best that is left."""
    count = len(sizes)
    ways = [(*inner, count) for inner in combinations(range(1, count), parts - 1)]

    def largest(ends: tuple[int, ...]) -> int:
        return max(sum(sizes[start:end]) for start, end in zip((0, *ends), ends, strict=False))

    bound = min(map(largest, ways))
    left = [ends for ends in ways if largest(ends) == bound]
    start = 0
    for number in range(parts - 1):
        shares = parts - number

        def worth(end: int, start: int = start, shares: int = shares) -> tuple[int, int]:
            return depths[end], abs(sum(sizes[start:end]) * shares - sum(sizes[start:]))

        start = min({ends[number] for ends in left}, key=lambda end: (*worth(end), end))
        left = [ends for ends in left if ends[number] == start]
    return list(left[0])


@given(st.data())
def test_the_largest_part_is_as_small_as_it_can_be(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
    depths = data.draw(st.lists(st.integers(0, 2), min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    parts = data.draw(st.integers(1, len(sizes)))
    assert balanced(sizes, depths, parts) == by_hand(sizes, depths, parts)


def sized(*slots: px.ir.Slot) -> px.Program:
    """Return a program whose nodes are named by number, each of which reads one slot."""
    state = {f"s{number}": slot for number, slot in enumerate(slots)}
    reads = [px.Node(f"r{number}", px.Get(name)) for number, name in enumerate(state)]
    uses = [node(f"n{number}", ADD, f"n{number - 1}" if number else "x", f"r{number}") for number in range(len(slots))]
    nodes = [each for pair in zip(reads, uses, strict=True) for each in pair]
    facts = frozenset({"flat", "state sunk"})
    return flat(nodes, px.Ref(uses[-1].name), "x", state=px.ir.State(tuple(state), px.ir.pmap(state)), facts=facts)


def slot(number: int, kind: px.ir.SlotKind, count: int, dtype: torch.dtype = torch.float32) -> px.ir.Slot:
    """Return a slot of its own tensor, with so many numbers."""
    value = torch.ones(count, dtype=dtype)
    return px.ir.Slot(kind, nn.Parameter(value) if kind is px.ir.SlotKind.PARAMETER else value, number, number)


def first_part(program: px.Program, parts: int) -> list[str]:
    """Return the names of what the first of several equal parts does."""
    split = px.split_balanced(program, parts)
    return [each.name for each in split.graphs[px.parts(split)[0].graph].nodes if not isinstance(each.do, px.Get)]


def test_the_size_of_a_parameter_is_its_bytes() -> None:
    """24, 16 and 16 bytes, though the first has fewest numbers; the large buffer in front counts for nothing."""
    buffer, parameter = px.ir.SlotKind.BUFFER, px.ir.SlotKind.PARAMETER
    small = [slot(1, parameter, 3, torch.float64), slot(2, parameter, 4), slot(3, parameter, 4)]
    assert first_part(sized(slot(0, buffer, 100), *small), 2) == ["n0", "n1"]
    assert first_part(sized(slot(0, buffer, 100), slot(1, parameter, 1), slot(2, parameter, 9)), 2) == ["n0", "n1"]


def test_it_is_not_cut_inside_of_a_region() -> None:
    opens, shuts = (px.Op(f"toy.{name}", px.Effects(scope=scope)) for name, scope in (("open", 1), ("shut", -1)))
    nodes = [node("a", NEG, "x"), px.Node("o", opens), node("b", NEG, "a"), node("c", NEG, "b"), px.Node("s", shuts)]
    program = flat([*nodes, node("d", NEG, "c")], px.Ref("d"), "x")
    with pytest.raises(px.errors.PartitionError, match="split_balanced: the program can be split into 1 to 3 parts"):
        px.split_balanced(program, 4)
    split = px.split_balanced(program, 3)
    assert [[each.name for each in split.graphs[part.graph].nodes] for part in px.parts(split)] == [
        ["a"],
        ["o", "b", "c", "s"],
        ["d"],
    ]


def test_flops_are_counted_as_torch_counts_them() -> None:
    """A convolution has few parameters and many operations."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(256, 8), nn.Linear(8, 200))
    program = px.transform(px.capture(model, (torch.ones(2, 1, 8, 8),)))

    def first(cost: object) -> list[str]:
        split = px.split_balanced(program, 2, cost=cost)
        return [module.path for module in split.modules if module.path.startswith("stage0.")]

    assert first("flops") == ["stage0.0"]
    assert first("bytes") == ["stage0.0", "stage0.1", "stage0.2"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cost": "time"}, ValueError, 'split_balanced: cost=\'time\': pass "bytes", "flops" or a function'),
        ({"cost": 3}, TypeError, "split_balanced: cost is .* not a int"),
        ({"cost": lambda _: -1}, ValueError, "split_balanced: cost returns -1 for node 'a'"),
        ({"k": 2.0}, TypeError, "split_balanced: k is the number of parts"),
    ],
)
def test_errors_name_the_function_that_was_called(options: dict[str, object], error: type[Exception], words: str) -> None:
    program = flat([node("a", NEG, "x"), node("b", NEG, "a")], px.Ref("b"), "x")
    with pytest.raises(error, match=words):
        px.split_balanced(program, **{"k": 2, **options})


def test_a_missing_fact_is_told_of_the_function_that_was_called() -> None:
    program = px.capture(nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(px.errors.PipelineError, match="split_balanced requires"):
        px.split_balanced(program, 1)
