"""Every transformation keeps its laws, on generated programs.

One idea: one test, a product of the registry's transformations, stages and laws.  A failure shows the smallest program
as text, ready to be pasted into a regression test.
"""

from __future__ import annotations

import pytest

import purefx as px
import purefx.transforms
from purefx.laws.checking import check_transformation
from purefx.laws.law import GENERIC, Law
from purefx.laws.registry import REGISTRY, Entry
from purefx.laws.strategies import Stage

EXAMPLES = 100

CASES = [(entry, stage, law) for entry in REGISTRY for stage in entry.stages for law in entry.laws]


@pytest.mark.parametrize(
    ("entry", "stage", "law"), CASES, ids=[f"{entry.transformation.name}-{stage}-{law.name}" for entry, stage, law in CASES]
)
def test_law(entry: Entry, stage: Stage, law: Law) -> None:
    check_transformation(entry.transformation, laws=[law], stage=stage, examples=EXAMPLES)


# Calls of one module are one call to `deduplicate` if their bodies are equal, nodes in order; so a reordering of the flat
# program may change which numbers are left.  Each step by itself keeps the law.
@pytest.mark.parametrize("law", [law for law in GENERIC if law.name != "order"], ids=lambda law: law.name)
def test_default_pipeline(law: Law) -> None:
    check_transformation(px.transform, laws=[law], stage="tokens", examples=EXAMPLES)


def test_every_transformation_is_registered() -> None:
    values = [getattr(purefx.transforms, name) for name in purefx.transforms.__all__]
    known = {value.name for value in values if isinstance(value, px.Transformation)}
    assert {entry.transformation.name for entry in REGISTRY} == known
    assert len(REGISTRY) == len(known)


def test_generic_laws_are_kept_or_exempt_for_a_reason() -> None:
    names = {law.name for law in GENERIC}
    for entry in REGISTRY:
        assert set(entry.exempt) <= names
        assert names <= {law.name for law in entry.laws} | set(entry.exempt)
        assert all(len(reason.split()) > 3 for reason in entry.exempt.values())
        assert entry.specific, "a transformation that promises nothing of its own is not worth having"


def test_laws_have_names_and_sentences() -> None:
    laws = {id(law): law for entry in REGISTRY for law in entry.laws}.values()
    assert len({law.name for law in laws}) == len(laws)
    assert all(law.statement[0].islower() and not law.statement.endswith(".") for law in laws)
