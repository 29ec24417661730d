"""The registry: which transformation has which laws, at which stages of the pipeline it is checked, and what is exempt.

A table with one entry for each transformation; the one test that reads it is a product of transformations and
laws, and another insists that no generic law is left out without a written reason.  A new transformation adds a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from ..transforms import (
    Transformation,
    add_runtime_assertions,
    collect_call_signatures,
    deduplicate,
    dispatch,
    expand,
    functionalize,
    infer,
    inline,
    inplace_mutations,
    insert_ivals,
    join,
    lift_state,
    move_non_tensor_nodes,
    name_inputs,
    normalize_stacks,
    outline,
    relay_skips,
    remove_effect_tokens,
    sink_state,
)
from .checked import CHECKED, COLLECTED, NORMAL_STACKS
from .cleaning import (
    CLEANED_NAMES,
    INPUTS_NAMED,
    MARKED_ONLY,
    NAMES_RESTORED,
    READS_MOVE,
    lift_own_constants,
    mark_some_buffers,
    restore_own_names,
)
from .law import GENERIC, Law
from .partition import (
    JOINS,
    NAMES_MOVE,
    NO_NUMBER_CROSSES,
    NO_PARTS,
    NODES_STAY,
    PARTS_TIGHT,
    STATE_PLACED,
    STRAIGHT,
    TENSORS_STAY,
)
from .shared_names import NAMED_FOR_ALL
from .specific import (
    ALL_READ,
    BODIES_DISTINCT,
    CALLS_TIGHT,
    COPIES,
    COPIES_GO,
    CROSSINGS_ADDED,
    DIGEST_STAYS,
    EXPANDS,
    GRAPHS_STAY,
    INLINES,
    NAMED_AS_GIVEN,
    NO_CALLS,
    NO_MUTATION,
    NO_READS,
    NO_STATE_INPUT,
    NO_TOKEN,
    ONE_BODY_A_LABEL,
    ONE_CALL_A_BODY,
    ONE_CALLABLE,
    READS_BELOW,
    READS_NAMED,
    READS_ONLY,
    SIZES_AT_HOME,
)
from .strategies.programs import split_somewhere
from .swapping import FUEL, SWAPPED, swap_own_bodies
from .values import INFERRED

__all__ = ["REGISTRY", "Entry"]

TAGS_VARY = {"order": "of outlined programs tags are drawn along the flat relation, which is coarser than that between calls"}
"""Between calls more reorderings are legal than the flat relation allows: the same tags cannot be drawn after them."""

STATE_MOVES = MappingProxyType({"state": "names of state get the part in front, and state that two parts read gets two of them"})

BY_ORDER = MappingProxyType({"order": "calls are numbered in the order of the nodes, among them those in bodies of operators"})

META = MappingProxyType({"no-op": "values are meta, and equality leaves meta out"})


@frozen
class Entry:
    """A transformation with its laws.

    >>> Entry(outline, ("flat",)).laws == (*GENERIC, *FUEL)
    True
    """

    transformation: Transformation
    stages: tuple[str, ...]
    """The stages of the programs that it is checked on, as ``purefx.laws.strategies.programs`` names them."""
    specific: tuple[Law, ...] = ()
    exempt: Mapping[str, str] = field(factory=lambda: MappingProxyType({}))
    """Generic laws that do not hold for it, by name, each with the reason."""

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws that it is checked with."""
        fuel = FUEL if self.transformation.takes_fuel else ()
        return (*(law for law in GENERIC if law.name not in self.exempt), *self.specific, *fuel)


REGISTRY: tuple[Entry, ...] = (
    Entry(remove_effect_tokens, ("tokens",), (NO_TOKEN,)),
    Entry(inplace_mutations, ("flat",), (NO_MUTATION, COPIES)),
    Entry(sink_state, ("flat", "in place"), (NO_STATE_INPUT, READS_ONLY, READS_BELOW, ALL_READ)),
    Entry(insert_ivals, ("sunk",), (CROSSINGS_ADDED, SIZES_AT_HOME, NAMED_AS_GIVEN)),
    Entry(outline, ("ivals", "sunk", "flat"), (INLINES, CALLS_TIGHT, ONE_BODY_A_LABEL)),
    Entry(deduplicate, ("outlined", "tree"), (BODIES_DISTINCT, EXPANDS, ONE_BODY_A_LABEL, READS_NAMED, NAMED_FOR_ALL)),
    Entry(dispatch, ("deduplicated", "flat"), (GRAPHS_STAY, ONE_CALLABLE)),
    Entry(expand, ("deduplicated", "tree"), (DIGEST_STAYS, ONE_CALL_A_BODY, ONE_BODY_A_LABEL)),
    Entry(inline, ("outlined", "deduplicated", "tree"), (NO_CALLS, EXPANDS)),
    Entry(functionalize, ("in place",), (COPIES_GO,)),
    Entry(lift_state, ("sunk",), (NO_READS,)),
    Entry(split_somewhere, ("sunk",), (PARTS_TIGHT, STATE_PLACED, NAMES_MOVE, JOINS), STATE_MOVES),
    Entry(split_somewhere, ("outlined",), (PARTS_TIGHT, STATE_PLACED, NAMES_MOVE, JOINS), STATE_MOVES | TAGS_VARY),
    Entry(move_non_tensor_nodes, ("split",), (NO_NUMBER_CROSSES, TENSORS_STAY)),
    Entry(relay_skips, ("split",), (STRAIGHT, NODES_STAY)),
    Entry(join, ("split",), (NO_PARTS, NAMES_MOVE), STATE_MOVES),
    Entry(add_runtime_assertions, ("tree",), CHECKED),
    Entry(normalize_stacks, ("sunk",), NORMAL_STACKS, BY_ORDER),
    Entry(collect_call_signatures, ("flat",), COLLECTED),
    Entry(infer, ("deduplicated",), INFERRED, META),
    Entry(swap_own_bodies, ("tree",), SWAPPED, {"idempotent": "each swap puts new bodies in the place of old ones"}),
    Entry(lift_own_constants, ("deduplicated",), (READS_MOVE,)),
    Entry(restore_own_names, ("outlined",), (NAMES_RESTORED,)),
    Entry(mark_some_buffers, ("tree",), (MARKED_ONLY,), {"state": "what is not saved any more is what it is for"}),
    Entry(name_inputs, ("flat",), (CLEANED_NAMES, INPUTS_NAMED)),
)
"""Every transformation of ``purefx.transforms``."""
