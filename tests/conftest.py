"""What holds for every test: the order of the run, the seed, that nothing is fetched, and what the collector looks at.

Cheap answers first.  The architecture and the doctests run first, then the rest, then what is ``slow``, then
the real ``models``.  Two processes take files in turn, the longest first, so that neither waits for the other at the end.
Fixtures that only some folders need live in those folders.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

torch.set_num_threads(1)  # sums are added in one order

# Hypothesis takes constants from the sources of whatever is imported, so the programs that a test draws would be others after any
# edit, and in any other division of the files among the workers.
SOURCES = "_get_local_constants"
assert hasattr(providers, SOURCES), f"hypothesis calls it otherwise now: {SOURCES}"
setattr(providers, SOURCES, Constants)

FIRST = ("architecture", "doctests", "readme")


LONGEST = (
    "test_laws", "test_check_rule", "test_zoo", "test_fx_passes", "test_kept_values", "test_corruptions", "test_rewrites",
    "test_site", "test_pipeline", "test_shipped_rules", "test_readme", "test_rules_spelling", "test_effects_of_torch",
    "test_two_processes", "test_small_sizes", "test_draws_and_writes", "test_sizes_zero_and_one", "test_pairs", "test_scale",
    "test_joint", "test_doctests", "test_rules_several", "test_examples", "test_lazy_borders", "test_training_module",
    "test_loading", "test_exported", "test_users_graphs", "test_fx_passes_around", "test_users_pickling", "test_rulesets",
    "test_hash_seed", "test_higher_order", "test_imports", "test_rules_on_programs", "test_checking",
)  # fmt: skip
"""The files that take longest, from a minute to nine seconds; ``make house`` prints those of the last run."""


def pytest_configure(config: pytest.Config) -> None:
    """Prepare a process that runs tests: the one that starts others for it does not, and needs no more of torch."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        from tests.quicker import quicken

        quicken()
        # What is collected stays: to look for garbage in it took a third of the time.  The collector is back when all is there.
        gc.disable()


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test takes more than a few seconds."""
    return any(item.get_closest_marker(name) is not None for name in ("models", "slow"))


def cost(item: pytest.Item) -> tuple[bool, bool, int]:
    """Return what a run is sorted by; items that agree keep their order."""
    folder = item.path.parent.name
    early = FIRST.index(folder) if folder in FIRST else len(FIRST)
    return (item.get_closest_marker("models") is not None, is_slow(item), early)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put cheap tests first; where several processes share the files, those that take longest, then those with most tests.

    There a slow test counts for thirty, so that what is left for the end are files of a few seconds.
    """
    items.sort(key=cost)
    if hasattr(config, "workerinput"):
        counts = Counter[Path]()
        for item in items:
            counts[item.path] += 30 if is_slow(item) else 1
        longest = {name: place for place, name in enumerate(LONGEST)}
        items.sort(
            key=lambda item: (
                longest.get(item.path.stem, len(longest)),
                -counts[item.path],
                item.path,
            )
        )


def pytest_collection_finish() -> None:
    """Keep the collector from walking a million objects of torch and of the test files again and again.

    They live as long as the process.  The exporter makes so many new ones that collections take a third of the time: those of
    few objects, which are in the cache of the processor, take least.  It imports half of torch when it first runs, which is done
    before.
    """
    torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 400)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _imported_programs_are_valid() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Verify all that is imported: import does not.  Tests of programs that were edited by hand ask for ``unverified``."""
    from tests.imported import verified

    with verified():
        yield


@pytest.fixture
def unverified() -> Iterator[None]:
    """Let a test import what is wrong."""
    from tests.imported import not_verified

    with not_verified():
        yield


def pytest_report_header() -> Sequence[str]:
    """Say what the tests run on."""
    return [
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, cuda {torch.cuda.is_available()}"
    ]


@pytest.fixture(autouse=True, scope="module")
def _nothing_of_other_files() -> None:  # pyright: ignore[reportUnusedFunction]
    """Hide from the collector what the files before have left, as what was there before the first test."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def quick_collection() -> None:
    """Let a test that collects garbage walk what it makes itself, and not all that was made before it."""
    gc.freeze()


# torch.manual_seed also looks for every kind of device: most of a millisecond, before each of ten thousand tests.
SEED = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed


@pytest.fixture(autouse=True)
def _same_numbers() -> None:  # pyright: ignore[reportUnusedFunction]
    SEED(0)
