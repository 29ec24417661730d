"""One pytest session that runs the original once, and then every mutant in a process forked from it."""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import asdict
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

from tests.mutants.made import Mutant, make_mutants

SELECTED = {
    "transforms": (
        "tests/transforms",
        "tests/regressions",
        "tests/unflatten",
        "tests/mutants/examples.py",
        "tests/mutants/laws.py",
    ),
    "ir": (
        "tests/ir",
        "tests/verify",
        "tests/importing",
        "tests/regressions",
        "tests/mutants/examples.py",
        "tests/mutants/laws.py",
    ),
    "lowering": ("tests/lowering", "tests/regressions", "tests/mutants/examples.py"),
}
"""The tests that are asked about the mutants of a layer; the rest costs much and finds little that these do not."""

LAYERS = tuple([f"purefx.{layer}" for layer in SELECTED])


class Session:
    """A pytest plugin whose loop over the tests is a loop over mutants."""

    def __init__(self, mutants: Sequence[Mutant], *, budget: float, workers: int) -> None:
        self.mutants = mutants
        self.budget = budget
        self.workers = workers
        self.seconds: dict[str, float] = {}
        """What each test takes on the original."""
        self.tests: dict[str, list[str]] = {}
        """The tests that call each function."""
        self.verdicts: dict[str, str] = {}
        self.kills: Counter[tuple[str, str]] = Counter()
        """How many mutants of a function, or of a file, a test has found."""
        self.broken: list[str] = []
        """Tests that fail on the original."""
        self.failed = False
        """Whether the test that runs failed."""
        self.remembered: list[functools._lru_cache_wrapper[Any]] = []
        """What functions of the layers that are mutated returned: the original's answers are none of a mutant."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the original, then the mutants."""
        if session.testsfailed:
            pytest.exit("some tests cannot be collected, so they would find nothing", returncode=2)
        items = {item.nodeid: item for item in session.items}
        imported = set(state()._stats)
        self.remembered = caches(LAYERS)
        self._original(items)
        # What runs only when a module is imported fills tables, which every mutant inherits: that cannot be asked here.
        self.mutants = [
            mutant
            for mutant in self.mutants
            if mutant.tested_as in self.tests or mutant.tested_as not in imported
        ]
        gc.collect()
        gc.freeze()
        running: dict[int, tuple[Mutant, int]] = {}
        for mutant in self.mutants:
            if len(running) == self.workers:
                self._wait(running)
            chosen = [items[test] for test in self._chosen(mutant)]
            if chosen:
                child, told = self._fork(mutant, chosen)
                running[child] = mutant, told
            else:
                self._note(mutant.name, "no test")
        while running:
            self._wait(running)
        return True

    def _original(self, items: dict[str, pytest.Item]) -> None:
        set_mutant_under_test("stats")
        for name, item in items.items():
            state()._stats.clear()
            self._forget()
            begun = time.process_time()
            if self._fails(item):
                self.broken.append(name)
                continue
            self.seconds[name] = time.process_time() - begun
            for function in state()._stats:
                self.tests.setdefault(function, []).append(name)
        set_mutant_under_test("")
        Path("seconds.json").write_text(json.dumps(self.seconds))
        Path("broken.json").write_text(json.dumps(self.broken))
        print(
            f"{len(self.seconds)} tests take {sum(self.seconds.values()):.0f} s; {len(self.mutants)} mutants",
            flush=True,
        )

    def _chosen(self, mutant: Mutant) -> Iterator[str]:
        def rank(test: str) -> tuple[int, int, float]:
            # What found other mutants of this function, or of this file, finds this one soonest; else the cheapest is first.
            return (
                -self.kills[mutant.tested_as, test],
                -self.kills[mutant.file, test],
                self.seconds[test],
            )

        left = self.budget
        for test in sorted(self.tests.get(mutant.tested_as, ()), key=rank):
            left -= self.seconds[test]
            if left < 0:
                break
            yield test

    def _fork(self, mutant: Mutant, items: list[pytest.Item]) -> tuple[int, int]:
        told, tell = os.pipe()
        child = os.fork()
        if child:
            os.close(tell)
            return child, told
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        # A mutant that loops is ended by the seconds of processor that it uses, however busy the machine is.
        limit = 5 + int(3 * self.budget)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        set_mutant_under_test(mutant.name)
        self._forget()
        try:
            failed = next((item.nodeid for item in items if self._fails(item)), "")
            os.write(tell, failed.encode())
            os._exit(int(bool(failed)))
        finally:
            os._exit(2)

    def _wait(self, running: dict[int, tuple[Mutant, int]]) -> None:
        child, status = os.wait()
        mutant, told = running.pop(child)
        with os.fdopen(told) as pipe:
            failed = pipe.read()
        self.kills.update([(mutant.tested_as, failed), (mutant.file, failed)] if failed else [])
        code = os.waitstatus_to_exitcode(status)
        self._note(mutant.name, {0: "survived", 1: "killed"}.get(code, "stopped"))

    def _fails(self, item: pytest.Item) -> bool:
        # By the hook, around which a test's own filters of warnings are set.
        self.failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return self.failed

    def _forget(self) -> None:
        for each in self.remembered:
            each.cache_clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self.failed |= report.failed

    def _note(self, name: str, verdict: str) -> None:
        self.verdicts[name] = verdict
        with Path("verdicts").open("a") as file:  # what is known so far, if somebody stops it
            file.write(f"{verdict}\t{name}\n")
        done = len(self.verdicts)
        if done % 100 == 0:
            print(
                f"{done} of {len(self.mutants)}, {list(self.verdicts.values()).count('survived')} survived",
                flush=True,
            )


def main(budget: float, workers: int, seed: int, sample: int) -> int:
    """Run the mutants that ``asked.json`` names, and write what becomes of each to ``verdicts`` as soon as it is known."""
    asked = json.loads(Path("asked.json").read_text())
    mutants = [mutant for file in asked["files"] for mutant in make_mutants(file)]
    if not mutants:
        return 0
    # In an order that is random, so that a run which is stopped has asked a fair sample.
    mutants = Random(seed).sample(mutants, min(sample or len(mutants), len(mutants)))
    Path("mutants.json").write_text(json.dumps([asdict(mutant) for mutant in mutants]))
    selected = asked["tests"] or dict.fromkeys(
        test for file in asked["files"] for test in SELECTED[file.split("/")[1]]
    )
    session = Session(mutants, budget=budget, workers=workers)
    set_mutant_under_test("stats")
    sys.setrecursionlimit(
        4 * sys.getrecursionlimit()
    )  # the switch before a function is two calls more
    # Other plugins are off, ours included; without its profile hypothesis has deadlines, and draws other programs each time.
    options = [
        "-s",
        "-p",
        "pytest_purefx",
        "--ir-profile=ci",
        "-m",
        "not slow and not models and not deep",
    ]
    done = pytest.main([*options, *selected], plugins=[session])
    return (
        0 if done == pytest.ExitCode.TESTS_FAILED else int(done)
    )  # the report names tests that fail without any mutant


def caches(packages: Sequence[str]) -> list[functools._lru_cache_wrapper[Any]]:
    """Return the caches of functions of some packages; the collector does not know them, from which imports are hidden."""
    modules = [
        module
        for name, module in sys.modules.items()
        if f"{name}.".startswith(tuple(f"{one}." for one in packages))
    ]
    found = [value for module in modules for value in vars(module).values()]
    return [each for each in found if isinstance(each, functools._lru_cache_wrapper)]


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
