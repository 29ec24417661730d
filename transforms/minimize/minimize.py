"""``minimize``: from a program on which something goes wrong to the smallest one found on which it still does.

Here is the order in which programs get smaller; what is proposed is in the other files of this folder.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from ...ir.program import Program
from ...ir.taking import a_function, a_program
from ...ir.verify import check
from .bodies import bypass_nodes, describe_less, open_bodies
from .dropping import drop_nodes, drop_outputs, read_less
from .search import Search, TimeIsUp
from .simplifying import shrink_sizes, simplify_literals, use_usual_types

__all__ = ["Minimized", "minimize"]

PASSES = (
    drop_nodes, describe_less, drop_nodes, drop_outputs, open_bodies, bypass_nodes, read_less, use_usual_types, shrink_sizes,
    simplify_literals,
)  # fmt: skip
"""What is done, in order, until none of it finds anything smaller: what cuts most comes first, for questions about large programs
take long, and nodes may go only when what describes the program does not stand in the way."""


@frozen
class Minimized:
    """What is left of a program, and how it was found.

    >>> from purefx.ir import Graph
    >>> print(str(Minimized(Program.of({"": Graph((), ())}), 3, 0.1, ("take out y",))).rstrip())
    program {
      graph @""() {
        return ()
      }
    }
    """

    program: Program
    """A valid program that is wrong as well."""
    tried: int = field(eq=False)
    """How many programs ``is_wrong`` was asked about."""
    seconds: float = field(eq=False)
    """How long that took."""
    steps: tuple[str, ...]
    """What was cut away, in order."""

    def __str__(self) -> str:
        return self.program.text()


def minimize(program: Program, is_wrong: Callable[[Program], bool], *, seconds: float = 60.0) -> Minimized:
    """Reduce a program on which something goes wrong to a small one on which it still does.

    Before::

        graph ""(ids, ...)         a Llama: 2,000 nodes in 300 modules, of which a rewrite gets one wrong

    After::

        graph ""(linear_118)       silu = aten.silu.default(linear_118);  return (silu,)

    What is cut off is replaced by inputs of the same types: first nodes and calls of modules, many at once.  Outputs and state
    go, calls and branches are opened, nodes give one of their operands; then sizes, dtypes and literals get simpler.  A candidate
    is tested if it is valid and smaller than the program so far.  One that means something else is a candidate like any other, so
    ``is_wrong`` has to say of any program whether it is wrong, on arguments that it makes for it (``px.laws.example_args``).

    Laws: the result is valid and wrong, never larger, and is found again; reduced again it stays as it is.

    Args:
        program: any valid program, at any stage.
        is_wrong: whether a program is wrong, such as
            ``lambda program: meaning(rewrite(program)) != meaning(program)``.  Where it raises, the program counts as not wrong:
            if raising is what is wrong, let it catch that.  It must not depend on how often it was asked.
        seconds: after these no more questions are asked, and the smallest program so far is returned; a question that is
            being answered is not interrupted.

    Returns:
        The smallest program found.  Its text is that of the program; its signature has no pytrees, so
        ``px.lower(found.program)`` takes and gives the values one by one.

    Raises:
        InvalidProgram: the program breaks invariants.
        ArgumentError: ``program`` is not a Program, or ``is_wrong`` no function.
        MinimizeError: ``is_wrong`` does not hold of the program itself, or fails on it.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    >>> program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    >>> found = px.minimize(program, lambda program: "aten.relu.default" in program.text())
    >>> print(found.program.main)
    graph @""(linear) {
      relu = aten.relu.default(linear)
      return ()
    }
    """
    a_program(program, "minimize", is_wrong=is_wrong)
    a_function(is_wrong, "is_wrong of minimize", "a function of a program that says whether it is wrong")
    search = Search(check(program), is_wrong, seconds=seconds)
    search.begin()
    try:
        _reduce(search)
    except TimeIsUp:
        search.steps.append("the time was up")
    return Minimized(search.best, search.tried, search.seconds, tuple(search.steps))


def _reduce(search: Search) -> None:
    before = None
    while search.program is not before:
        before = search.program
        for step in PASSES:
            step(search)
