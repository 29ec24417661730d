"""``narrowed``: recipes for programs that do less: functional ones, without draws, views, regions or dynamic sizes.

A recipe of anything becomes one of what is wanted: kinds of nodes that are not wanted become others, so that nothing that was
drawn is thrown away and what is found still shrinks.
"""

from __future__ import annotations

from attrs import evolve, frozen

from ..recipe import CallRecipe, ItemRecipe, NodeRecipe
from .menu import DOING, MENU
from .recipe import Recipe

__all__ = ["Narrow", "narrowed"]

FUNCTIONAL = (3, 7)
"""Styles in which writes are the operators that ``run_decompositions`` makes of them: as the exporter spells them, and strict."""

OWN_CONTENTS = 9
"""The kind of an output that is the new contents of state or of an input."""


@frozen(kw_only=True)
class Narrow:
    """What programs do; by default anything.

    >>> set(Narrow().kinds()) - set(Narrow(random=False).kinds())
    {16, 17, 25}
    """

    functional: bool = False
    random: bool = True
    effects: bool = True
    regions: bool = True
    training: bool = True
    views: bool = True
    new_contents: bool = True
    dynamic: bool = True

    def kinds(self) -> tuple[int, ...]:
        """Return the kinds of nodes that may be drawn, by their number in the menu."""
        gone = {entry for what, entries in DOING.items() if not getattr(self, what) for entry in entries}
        return tuple([number for number, entry in enumerate(MENU) if entry not in gone])


def narrowed(recipe: Recipe, narrow: Narrow) -> Recipe:
    """Return a recipe of a program that does no more than it may.

    Args:
        recipe: of anything.
        narrow: what is wanted.

    >>> recipe = Recipe((), (NodeRecipe(16, 0, 0),), (), 0, 0, True)
    >>> narrowed(recipe, Narrow(random=False, dynamic=False)).items, narrowed(recipe, Narrow()) is recipe
    ((NodeRecipe(kind=18, first=0, second=0),), True)
    """
    if narrow == Narrow():
        return recipe
    return evolve(
        recipe,
        slots=recipe.slots if narrow.views else tuple([evolve(slot, sharing=slot.sharing % 4) for slot in recipe.slots]),
        items=tuple([_narrowed(item, narrow.kinds()) for item in recipe.items]),
        outputs=tuple([one for one in recipe.outputs if narrow.new_contents or one.kind != OWN_CONTENTS]),
        style=FUNCTIONAL[recipe.style % 2] if narrow.functional else recipe.style,
        is_dynamic=recipe.is_dynamic and narrow.dynamic,
    )


def _narrowed(item: ItemRecipe, kinds: tuple[int, ...]) -> ItemRecipe:
    if type(item) is CallRecipe:
        return evolve(item, items=tuple([_narrowed(inner, kinds) for inner in item.items]))
    assert type(item) is NodeRecipe
    return item if item.kind in kinds else evolve(item, kind=kinds[item.kind % len(kinds)])
