"""The law "incremental is from nothing", on edits and corruptions of generated programs of all stages, and what it finds.

Three ways to forget a condition are mistakes that it has to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch

import purefx as px
from purefx.ir.analysis import digest as digests
from purefx.ir.facts import Edit, Fact
from purefx.ir.operators import op_of
from purefx.ir.verify import edited, verifier
from purefx.laws.edits import EDITS, Edited, edits_of, incremental_faults
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import share
from tests.laws.corruptions import CORRUPTORS
from tests.programs import drawn
from tests.verify.test_corruptions import imported

ALL = (*EDITS * 4, *edits_of([(corruptor.name, corruptor.apply) for corruptor in CORRUPTORS]))


@pytest.mark.parametrize("stage", STAGES)
def test_incremental_is_from_nothing(stage: Stage) -> None:
    for program, seed in drawn(stage, share(20)):
        assert incremental_faults(program, seed, ALL) == []


def test_incremental_is_from_nothing_for_real_programs() -> None:
    for seed, program in enumerate(imported()):
        assert incremental_faults(program, seed, ALL, length=4) == []


def found(edits: Sequence[Edited] = EDITS, count: int = 60) -> bool:
    """Return whether the law finds something wrong."""
    stages: tuple[Stage, ...] = ("outlined", "deduplicated", "tree")
    cases = [case for cases in zip(*[drawn(stage, count) for stage in stages], strict=True) for case in cases]
    return any(incremental_faults(program, seed, edits) for program, seed in cases)


@pytest.mark.parametrize("forgotten", ["_faces", "_reads_less", "_calls_the_same", "_stands_in_less", "stays"])
def test_a_condition_that_is_forgotten_is_found(forgotten: str) -> None:
    with patch.object(edited, forgotten, lambda *_: True):
        assert found(ALL if forgotten == "stays" else EDITS), f"nothing is wrong without {forgotten}"


def test_an_edit_of_what_is_looked_at_by_itself_is_found() -> None:
    with patch.object(edited, "WITHIN", ()):
        assert found(ALL)


def test_a_digest_that_does_not_reach_the_callers_is_found() -> None:
    def only_there(known: Any, edit: Edit) -> Any:
        changed = {name: (digests.own_identity(edit.after.graphs[name])[0], None) for name in edit.changed}
        return digests.Digests(known.ranks, known.users, known.known.update(changed))

    with patch.object(digests, "DIGESTS", Fact("wrong", digests.DIGESTS.derive, only_there)):
        assert found()


def test_a_body_that_became_equal_to_another_is_found() -> None:
    module: Any = import_module("purefx.transforms.deduplicate")
    with patch.object(module, "DISTINCT", Fact("distinct bodies", module.DISTINCT.derive, lambda known, _: known)):
        assert found()


def test_a_call_that_became_equal_to_another_gets_its_number() -> None:
    module: Any = import_module("purefx.transforms.deduplicate")
    body = px.Graph((px.Input("x"),), (px.Node("y", px.Op("toy.neg"), (px.Ref("x"),)),), px.Ref("y"))

    def calls(*frames: px.Frame) -> px.Graph:
        nodes = [px.Node(f"y{number}", px.Call(frame, "body"), (px.Ref("x"),)) for number, frame in enumerate(frames)]
        return px.Graph((px.Input("x"),), tuple(nodes), tuple([px.Ref(node.name) for node in nodes]))

    before = px.Program.of({"": calls(px.Frame("a"), px.Frame("c")), "body": body})
    assert px.deduplicate(before) is before
    after, expected = (before.with_main(calls(px.Frame("a"), px.Frame("a", number))) for number in (1, 0))
    assert px.deduplicate(after) == expected
    with patch.object(module, "_calls_alike", lambda *_: True):
        assert px.deduplicate(after) != expected


def test_an_operator_that_came_to_thread_a_token_is_found() -> None:
    module: Any = import_module("purefx.transforms.effect_tokens")
    with_one = px.Program.of({"": px.Graph((px.Input("t"), px.Input("x")), (THREADED,), (px.Ref("t"), px.Ref("x")))})
    before = with_one.with_main(px.Graph(with_one.main.inputs, (), with_one.main.output))
    assert px.remove_effect_tokens(before) is before
    after = before.with_main(with_one.main)
    assert px.remove_effect_tokens(after).main.nodes[0].do != THREADED.do
    with patch.object(module, "THREADED", Fact("none", lambda _: frozenset(), lambda known, _: known)):
        assert px.remove_effect_tokens(after) is after


THREADED = px.Node("y", op_of(torch.ops.higher_order.with_effects), (px.Ref("t"), torch.ops.aten._print.default, "hi"))


def test_the_law_is_asked_of_edits_that_are_followed() -> None:
    followed = 0
    follow = verifier.still_sound

    def counted(known: Any, edit: Any) -> Any:
        nonlocal followed
        result = follow(known, edit)
        followed += result is not None
        return result

    with patch.object(verifier, "still_sound", counted):
        for stage in ("deduplicated", "tree"):
            for program, seed in drawn(stage, 20):
                incremental_faults(program, seed, EDITS)
    assert followed >= 30
