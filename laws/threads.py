"""``on_threads``: one transformation on several threads at once.

One idea: the threads share one program of which nothing has been derived yet, so that they all derive it, and the
interpreter is told to change threads all the time.  What a transformation keeps outside its own call then gets mixed up.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from ..ir.graph import Graph
from ..ir.persistent import pmap
from ..ir.program import Program

__all__ = ["on_threads"]

SWITCH = 1e-5
"""Seconds that a thread has before another is asked for; normally 5 ms, in which a small program is long done."""


def on_threads(transform: Callable[[Program], Program], program: Program, *, threads: int = 8) -> list[Program | Exception]:
    """Return what a transformation gives, or raises, on each of several threads at once.

    Args:
        transform: the function from programs to programs.
        program: what each thread gets: one copy of this, its derived properties forgotten.
        threads: how many.

    >>> empty = Program.of({"": Graph((), (), ())})
    >>> [result == empty for result in on_threads(lambda program: program, empty, threads=2)]
    [True, True]
    """
    graphs = {name: Graph(graph.inputs, graph.nodes, graph.output) for name, graph in _items(program)}
    fresh = program.evolve(graphs=pmap(graphs))
    results: list[Program | Exception] = []
    start = threading.Barrier(threads)

    def run() -> None:
        start.wait()
        try:
            results.append(transform(fresh))
        except Exception as error:  # noqa: BLE001  it is what happened, and is given back
            results.append(error)

    running = [threading.Thread(target=run) for _ in range(threads)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return results


def _items(program: Program) -> list[tuple[str, Graph]]:
    return [(name, program.graphs[name]) for name in sorted(program.graphs)]
