"""``write_root``: a recipe becomes the text of all its classes, the root last.

One idea: the root is a body that takes what is drawn for its inputs, gives back pytrees of what exists, and ties
together what is far apart.  Nothing here runs the text.
"""

from __future__ import annotations

import re

from .calls import BodyWriter
from .inputs import parameters
from .library import Library
from .made import Place
from .recipe import Output, Recipe

__all__ = ["write_root"]


def write_root(recipe: Recipe) -> str:
    """Return the text of the classes of a module tree; the last is ``Root``.

    Args:
        recipe: what was drawn.

    >>> from .recipe import Body, Step
    >>> print(write_root(Recipe(Body((), (Step(0, 0, 0),), 0, 0), (), (), 0, 0, False)))
    class Root(nn.Module):
        def forward(self, x):
            v1 = x.tanh()
            return v1
    """
    library = Library(writes=not recipe.grads, keeps_dead=recipe.sizes == 2)
    writer = BodyWriter(library, "Root", "self")
    head, reads, vectors = parameters(recipe.inputs)
    for drawn in recipe.root.slots:
        writer.slot(drawn)
    # The first argument is the latest value before the first step.
    writer.values[:0] = reversed(reads)
    writer.state += [Place(name, "constant") for name in vectors]
    writer.items(recipe.root.items)
    results = [_output(drawn, writer) for drawn in recipe.outputs] or [writer.values[-1]]
    results += writer.lost(results)
    writer.line(f"return {', '.join(results)}")
    writer.init += library.wiring
    text = "\n\n\n".join([*library.texts, writer.text(f"def forward({head}):")])
    # Where a module has two names, the exporter calls the modules of a slice "m0.slice(1, None, None).0".
    return re.sub(r"in (self\.m\d+)\[1:\]:", r"in list(\1)[1:]:", text) if library.has_two_names else text


def _output(drawn: Output, writer: BodyWriter) -> str:
    a = writer.values[-1 - drawn.first % len(writer.values)]
    b = writer.values[-1 - drawn.second % len(writer.values)]
    places = [place.text for place in writer.state if place.shape != "3, 3"]
    match drawn.kind:
        case 3:
            return f'{{"a": {a}, "none": None, "b": [{b}, 2]}}'
        case 4:
            return f"Pair({a}, {{'k': {b}}})"
        case 5:
            return ("1.5", "None", '"text"', "True")[drawn.first % 4]
        case 6:
            return "x"
        case 7 | 8 if places:
            return places[-1 - drawn.first % len(places)]
        case 9:
            return f"({a}, ({b},))"
        case _:
            return a
