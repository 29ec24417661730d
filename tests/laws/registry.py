"""The registry: which transformation has which laws, at which stages of the pipeline it is checked, and what is exempt.

A table with one entry for each transformation; the one test that reads it is a product of transformations and
laws, and another insists that no generic law is left out without a written reason.  A new transformation adds a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from attrs import field, frozen

from purefx.ir.program import Program
from purefx.laws.law import FUEL, GENERIC, Law
from purefx.laws.provenance import provenance
from purefx.transforms import (
    Transformation,
    bodies_to_regions,
    deduplicate,
    dispatch,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    expand,
    fold_constants,
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
    remove_noops,
    sink_state,
)
from tests.laws.aimed import aimed
from tests.laws.aims import (
    copied,
    crossing,
    repeated,
    split_across_sizes,
    split_somewhere,
    viewed,
    with_wrappers,
)
from tests.laws.checked import NORMAL_STACKS
from tests.laws.cleaning import (
    inputs_named,
    lift_own_constants,
    names_only,
    names_restored,
    reads_move,
    restore_own_names,
)
from tests.laws.converting import (
    SWAPPED,
    devices_back,
    double_says_what_it_computes,
    meta_says_what_it_computes,
    swap_own_bodies,
    there_and_back,
    to_meta_and_back,
)
from tests.laws.modes import (
    markers_come_back,
    modes_stay,
    no_markers,
    no_wrappers,
    regions_and_back,
)
from tests.laws.partition import (
    joins,
    names_move,
    no_number_crosses,
    no_parts,
    nodes_stay,
    parts_tight,
    state_placed,
    straight,
    tensors_stay,
)
from tests.laws.shared_names import INFERRED
from tests.laws.simplifying import (
    all_needed,
    boundary_stays,
    computed_once,
    constants_added,
    copies_fold,
    nothing_new,
    repeats_go,
    sharing_stays,
    views_go,
)
from tests.laws.specific import (
    all_read,
    bodies_distinct,
    calls_tight,
    copies,
    copies_go,
    crossings_added,
    digest_stays,
    graphs_stay,
    inlines,
    named_as_given,
    no_calls,
    no_mutation,
    no_reads,
    no_state_input,
    no_token,
    one_body_a_label,
    one_call_a_body,
    one_callable,
    reads_below,
    reads_named,
    reads_only,
    sizes_at_home,
)

TAGS_VARY = {
    "order": "of outlined programs tags are drawn along the flat relation, which is coarser than that between calls"
}
"""Between calls more reorderings are legal than the flat relation allows: the same tags cannot be drawn after them."""

STATE_MOVES = MappingProxyType(
    {
        "state": "names of state get the part in front, and state that two parts read gets two of them"
    }
)

BY_ORDER = MappingProxyType(
    {
        "order": "calls are numbered in the order of the nodes, among them those in bodies of operators"
    }
)

FIRST_STAYS = MappingProxyType(
    {"order": "of equal nodes the first stays, in the module call that it stands in"}
)

NEW_CONSTANTS = MappingProxyType({"state": "results become constants, which is what it is for"})

CONVERTED = MappingProxyType({"state": "tensors are converted, which is what it is for"})

TREE_ANEW = MappingProxyType(
    {
        "order": "a tree is made anew, and calls are one call where their bodies are equal, nodes in order"
    }
)

META = MappingProxyType({"no-op": "values are meta, and equality leaves meta out"})


OF_ALL: tuple[Law, ...] = (*GENERIC, provenance)
"""The laws that each transformation is asked, unless it is exempt."""


@frozen
class Entry:
    """A transformation with its laws."""

    transformation: Transformation
    stages: tuple[str, ...]
    """The stages of the programs that it is checked on, as ``purefx.laws.strategies.programs`` names them."""
    specific: tuple[Law, ...] = ()
    exempt: Mapping[str, str] = field(factory=lambda: MappingProxyType({}))
    """Generic laws that do not hold for it, by name, each with the reason."""
    aim: Callable[[Program], Program] | None = None
    """Makes of a drawn program one that it changes, where it changes few: generic laws are asked of two programs of three so."""

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws that it is checked with."""
        fuel = FUEL if self.transformation.takes_fuel else ()
        generic = [law for law in OF_ALL if law.name not in self.exempt]
        return (*self.aimed(generic), *self.specific, *self.aimed(fuel))

    def aimed(self, laws: Iterable[Law]) -> list[Law]:
        """Return laws that are asked after the aim."""
        return [aimed(law, self.aim) for law in laws]


REGISTRY: tuple[Entry, ...] = (
    Entry(remove_effect_tokens, ("tokens",), (no_token,)),
    Entry(inplace_mutations, ("flat",), (no_mutation, copies)),
    Entry(sink_state, ("flat", "in place"), (no_state_input, reads_only, reads_below, all_read)),
    Entry(insert_ivals, ("sunk",), (crossings_added, sizes_at_home, named_as_given), aim=crossing),
    Entry(outline, ("ivals", "sunk", "flat"), (inlines, calls_tight, one_body_a_label)),
    Entry(
        deduplicate,
        ("outlined", "tree"),
        (bodies_distinct, digest_stays, one_body_a_label, reads_named),
    ),
    Entry(dispatch, ("deduplicated", "flat"), (graphs_stay, one_callable), aim=crossing),
    Entry(expand, ("deduplicated", "tree"), (digest_stays, one_call_a_body, one_body_a_label)),
    Entry(inline, ("outlined", "deduplicated", "tree"), (no_calls,)),
    Entry(functionalize, ("in place",), (copies_go,)),
    Entry(lift_state, ("sunk",), (no_reads,)),
    Entry(split_somewhere, ("sunk",), (parts_tight, state_placed, names_move, joins), STATE_MOVES),
    Entry(
        split_somewhere,
        ("outlined",),
        (parts_tight, state_placed, names_move, joins),
        STATE_MOVES | TAGS_VARY,
    ),
    Entry(
        move_non_tensor_nodes, ("split",), (no_number_crosses, tensors_stay), aim=split_across_sizes
    ),
    Entry(relay_skips, ("split",), (straight, nodes_stay)),
    Entry(join, ("split",), (no_parts, names_move), STATE_MOVES),
    Entry(normalize_stacks, ("sunk",), NORMAL_STACKS, BY_ORDER),
    Entry(infer, ("deduplicated",), INFERRED, META),
    Entry(
        swap_own_bodies,
        ("tree",),
        SWAPPED,
        {"idempotent": "each swap puts new bodies in the place of old ones"},
    ),
    Entry(lift_own_constants, ("deduplicated",), (reads_move,)),
    Entry(restore_own_names, ("outlined",), (names_restored,)),
    Entry(name_inputs, ("flat",), (names_only, inputs_named)),
    Entry(
        eliminate_dead_code, ("flat", "split", "tree"), (all_needed, nothing_new, boundary_stays)
    ),
    Entry(
        eliminate_common_subexpressions,
        ("flat", "sunk", "tree"),
        (computed_once, repeats_go, sharing_stays, nothing_new, boundary_stays),
        FIRST_STAYS,
        aim=repeated,
    ),
    Entry(
        remove_noops,
        ("flat", "sunk", "deduplicated"),
        (views_go, sharing_stays, nothing_new, boundary_stays),
        aim=viewed,
    ),
    Entry(there_and_back, ("flat",), (double_says_what_it_computes,), CONVERTED),
    Entry(
        there_and_back,
        ("deduplicated",),
        (double_says_what_it_computes,),
        MappingProxyType({**CONVERTED, **TREE_ANEW}),
    ),
    Entry(
        to_meta_and_back, ("flat", "deduplicated"), (meta_says_what_it_computes, devices_back), META
    ),
    Entry(
        bodies_to_regions, ("flat", "deduplicated"), (modes_stay, no_wrappers), aim=with_wrappers
    ),
    Entry(
        regions_and_back,
        ("flat", "deduplicated"),
        (modes_stay, no_markers, markers_come_back),
        aim=with_wrappers,
    ),
    Entry(
        fold_constants,
        ("flat", "sunk", "deduplicated"),
        (copies_fold, constants_added, boundary_stays),
        NEW_CONSTANTS,
        aim=copied,
    ),
)
"""Every transformation of ``purefx.transforms``."""
